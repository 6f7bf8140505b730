"""Plans side by side: what each takes, what that consists of, what it chose, and in which rows they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from rich.console import RenderableType
from rich.table import Table

from nest.evaluate import Evaluation, evaluate
from nest.plan import Plan, Stage
from nest.problem import Problem
from nest.report.details import SPENT_NAMES
from nest.report.figures import PricedPlan
from nest.report.format import count, counted, duration, percent, share, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table
from nest.report.page.bars import MEMORY
from nest.report.shown import Shown
from nest.report.stage_table import recompute_text, sharding_text
from nest.report.terminal import title
from nest.report.throughput import Workload
from nest.report.verdict import verdict_document

SCHEMA = "nest.comparison/1"

DIFFERENT = "≠"
"""Before the name of a row whose values are not all the same."""

_LABEL, _CELL = 23, 16
"""Columns for names and for each plan, by which it is decided how many go beside each other."""

_ASIDE = ("name", "source")
"""What may differ between problems that are the same."""

_FREE = ("choices", "constraints")
"""What says which plans there are, and prices none."""


@dataclass(frozen=True)
class Compared:
    """A plan from a file, judged by its problem.

    Parameters
    ----------
    file
        As typed.
    work
        What an iteration computes, where that is known.
    """

    file: str
    problem: Problem
    plan: Plan
    work: Workload | None = None

    @cached_property
    def evaluation(self) -> Evaluation:
        """What the judge found; raises `nest.errors.InvalidPlan` if the plan is none of its problem."""
        return evaluate(self.problem, self.plan)

    @cached_property
    def priced(self) -> PricedPlan | None:
        """The plan with its figures; None where it has no price."""
        return PricedPlan.of(self.problem, self.plan, self.evaluation, self.work)


def differing(plans: Sequence[Compared]) -> list[str]:
    """Return in which parts the problems of some plans differ; nothing where one judge prices all of them alike."""
    names = [spec.name for spec in fields(Problem) if spec.name not in _ASIDE]
    first = plans[0].problem
    return [name for name in names if any(getattr(each.problem, name) != getattr(first, name) for each in plans[1:])]


def comparison_text(plans: Sequence[Compared], screen: Screen) -> str:
    """Return the plans side by side, as many as the screen takes in one table."""
    summary = Summary()
    summary.extend("Plan", (f"{_letter(at)}  {each.file}" for at, each in enumerate(plans)))
    apart = differing(plans)
    if apart and set(apart) <= set(_FREE):
        summary.add("Problem", f"{title(plans[0].problem)}; what plans may choose differs, which prices none")
    elif apart:
        summary.extend("Problem", (f"{_letter(at)}  {title(each.problem)}" for at, each in enumerate(plans)))
        what = f"not of one problem, they differ in {', '.join(apart)}; each is judged by its own"
        summary.add("Beware", what, "yellow")
    else:
        summary.add("Problem", f"{title(plans[0].problem)}, the same for all")
    for at, each in enumerate(plans):
        broken = sorted({violation.rule for violation in each.evaluation.violations})
        summary.add("Broken", f"{_letter(at)}  {', '.join(broken)}" if broken else "", "red")
    beside = max(2, (screen.width - _LABEL) // _CELL)
    rows = list(_rows(plans))
    parts: list[RenderableType] = [summary.table]
    for start in range(0, len(plans), beside):
        parts += ["", _table(rows, range(start, min(start + beside, len(plans))))]
    return render(screen, *parts)


def comparison_document(plans: Sequence[Compared]) -> dict[str, object]:
    """Return the same ready for JSON, each plan with what `nest evaluate` says of it."""
    return {
        "schema": SCHEMA,
        "differing": differing(plans),
        "plans": [
            {
                "file": each.file,
                "choices": _choices(each.plan),
                **verdict_document(each.problem, each.plan, each.evaluation, shown=Shown(each.work)),
            }
            for each in plans
        ],
    }


def _choices(plan: Plan) -> dict[str, object]:
    variant = {spec.name: getattr(plan.variant, spec.name) for spec in fields(plan.variant)}
    return {
        **variant,
        "stages": len(plan.stages),
        "replicas": plan.replicas,
        "arrangement": plan.arrangement,
        "zero": sorted({stage.sharding.zero for stage in plan.stages}),
        "zero_degree": sorted({stage.sharding.degree for stage in plan.stages}),
        "recompute": sorted({stage.recompute for stage in plan.stages}),
    }


def _table(rows: Iterable[tuple[str, Sequence[str]]], shown: range) -> Table:
    """Return a table of some of the plans; rows in which any of all plans differ are marked, and bold."""
    listed = [(name, cells) for name, cells in rows if any(cell != "-" for cell in cells)]
    columns = [Column(""), *(Column(_letter(at), number=True) for at in shown)]
    marked = {at for at, (_, cells) in enumerate(listed) if len(set(cells)) > 1}
    return ruled_table(
        columns,
        [
            (f"{DIFFERENT if at in marked else ' '} {name}", *(cells[plan] for plan in shown))
            for at, (name, cells) in enumerate(listed)
        ],
        marked,
    )


def _rows(plans: Sequence[Compared]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each row and its text for each plan, a dash where it has none."""
    yield "Iteration", _of(plans, lambda priced: duration(priced.iteration_s))
    yield "against A", _against(plans)
    for name, words in SPENT_NAMES.items():
        yield f"  {words}", _of(plans, lambda priced, name=name: _spent(priced, name))  # type: ignore[misc]
    yield "times compute limit", _of(plans, lambda priced: f"{priced.iteration_s / priced.limit_s:.3g}")
    yield "MFU", _of(plans, lambda priced: "-" if priced.mfu is None else f"{100 * priced.mfu:.1f} %")
    yield "Slowest stage", _of(plans, lambda priced: duration(priced.load_s))
    yield "Memory at most", _of(plans, lambda priced: size(priced.fullest[1]))
    yield "  of a device", _of(plans, lambda priced: percent(priced.fullest[1], priced.capacity(priced.fullest[0])))
    for name, words in MEMORY.items():
        yield f"  {words.lower()}", _of(plans, lambda priced, name=name: _held(priced, name))  # type: ignore[misc]
    yield "Devices in use", _of(plans, lambda priced: count(priced.devices_used))
    yield from _chosen(plans)


_CHOICES = {
    "tensor": "Tensor",
    "expert": "Expert",
    "context": "Context",
    "sequence": "Sequence parallel",
    "microbatch": "Microbatch",
}

_ARRANGEMENTS = {"replica-major-reversed": "reversed"}


def _value(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _chosen(plans: Sequence[Compared]) -> Iterator[tuple[str, list[str]]]:
    for name, words in _CHOICES.items():
        yield words, [_value(getattr(each.plan.variant, name)) for each in plans]
    yield "Stages", [count(len(each.plan.stages)) for each in plans]
    yield "Replicas", [count(each.plan.replicas) for each in plans]
    yield "Microbatches", _of(plans, lambda priced: count(priced.microbatches))
    yield "ZeRO", [_of_stages(each, sharding_text) for each in plans]
    yield "Recomputes", [_of_stages(each, recompute_text) for each in plans]
    yield "Layers of stages", [_all({str(len(stage.layers)) for stage in each.plan.stages}) for each in plans]
    yield "Arrangement", [_ARRANGEMENTS.get(each.plan.arrangement, each.plan.arrangement) for each in plans]


def _of_stages(compared: Compared, text: Callable[[Problem, Plan, Stage], str]) -> str:
    return _all({text(compared.problem, compared.plan, stage) for stage in compared.plan.stages})


def _of(plans: Sequence[Compared], text: Callable[[PricedPlan], str]) -> list[str]:
    return ["-" if each.priced is None else text(each.priced) for each in plans]


def _against(plans: Sequence[Compared]) -> list[str]:
    """Return how much slower each plan is than the first."""
    first = plans[0].priced
    if first is None or not first.iteration_s:
        return ["-"] * len(plans)
    return _of(plans, lambda priced: f"{100 * (priced.iteration_s / first.iteration_s - 1):+.2f} %")


def _spent(priced: PricedPlan, name: str) -> str:
    ticks = priced.spent.as_dict()[name]
    return f"{duration(priced.seconds(ticks))} {share(ticks, priced.objective_ticks):>6}" if ticks else "-"


def _held(priced: PricedPlan, name: str) -> str:
    quanta = priced.memory[priced.fullest[0]].as_dict()[name]
    return size(priced.bytes(quanta)) if quanta else "-"


def _all(texts: set[str]) -> str:
    """Return what stages have, in few words."""
    listed = sorted(texts)
    return ", ".join(listed) if len(listed) <= 2 else counted(len(listed), "kind")


def _letter(at: int) -> str:
    """Return the name of a plan: ``A`` to ``Z``, then ``A1`` and so on."""
    turn, letter = divmod(at, 26)
    return f"{chr(ord('A') + letter)}{turn or ''}"
