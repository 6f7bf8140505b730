"""What files of ours there are, by the name of their schema: what each is, and who takes it."""

from __future__ import annotations

from dataclasses import dataclass

from nest.files.words import show


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of files.

    Parameters
    ----------
    name
        With its article, as in ``a plan``.
    use
        What can be done with one of them.
    """

    name: str
    use: str


_ANSWER = "no command reads this one: it is for other programs"

KINDS = {
    "nest.problem": Kind("a problem", "nest solve, nest show and nest certify take this one"),
    "nest.run": Kind("a run", "nest solve, nest show and nest certify take this one"),
    "nest.plan": Kind("a plan", "nest evaluate, report, compare, certify, simulate and export take this one"),
    "nest.result": Kind("a result", "nest evaluate and other commands take this one as a plan, with --problem"),
    "nest.cluster": Kind("a cluster", "option --cluster and nest show take this one"),
    "nest.captured": Kind("a captured module", "nest show and option --model take this one"),
    "nest.layers": Kind("a table of layers", "nest show and option --model take this one"),
    "nest.profile": Kind("a profile of layers", "option --profile takes this one"),
    "nest.model": Kind("a description of a model, as nest show --json prints it,", _ANSWER),
    "nest.network": Kind("a network, as nest show --json prints it,", _ANSWER),
    "nest.collectives": Kind("a table of collectives, as nest show --json prints it,", _ANSWER),
    "nest.dag": Kind("a graph with branches, as nest show --json prints it,", _ANSWER),
    "nest.estimate": Kind("an estimate", _ANSWER),
    "nest.certificate": Kind("a certificate", _ANSWER),
    "nest.report": Kind("a report", _ANSWER),
    "nest.comparison": Kind("a comparison", _ANSWER),
    "nest.frontier": Kind("a front of plans", _ANSWER),
    "nest.ablation": Kind("an ablation", _ANSWER),
    "nest.validation": Kind("a validation", _ANSWER),
    "nest.dag.result": Kind(
        "an answer of nest solve about a graph with branches",
        "no command reads this one: its stages, loads and bound stand in it, and nest solve of the graph prints them",
    ),
}
"""By the name of the schema, without its version."""


def of_another_kind(schema: object, *wanted: str) -> tuple[str, str] | None:
    """Return what is wrong with a file of this schema and what would be right; None unless it is known to be another.

    Parameters
    ----------
    wanted
        The schemas that would be right, with their versions, the usual one first.
    """
    name, first = str(schema).partition("/")[0], wanted[0]
    kind = KINDS.get(name)
    if kind is None or name in (each.partition("/")[0] for each in wanted):
        return None
    right = KINDS[first.partition("/")[0]]
    return f"{show(schema)}: {kind.name}, not {right.name}", f"give {right.name} ({show(first)}); {kind.use}"
