"""What a solver may be kept from seeing: each blinding makes the problem that a solver then believes in.

A blinded solver is the same solver, exact as ever, on a problem that lacks one thing. Its plan is a plan of the full
problem too, as a blinding never touches layers, variants or microbatches, and is judged there. `docs/ablations.md` has
the definitions for readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from nest.cluster import Cluster, Level
from nest.constraints import EqualStages, LevelTraffic, WithinLevel
from nest.errors import InvalidProblem
from nest.files.words import meant, show
from nest.problem import Problem

Change: TypeAlias = Callable[[Problem], Problem]

UNLIMITED_BYTES = 2**62
"""Memory of a device on which everything fits: where the solvers' counts of bytes end."""


def _as_it_is(problem: Problem) -> Problem:
    return problem


@dataclass(frozen=True, slots=True)
class Blinding:
    """One thing that a solver does not see.

    Parameters
    ----------
    name
        As on the command line.
    text
        What the solver believes instead.
    believe
        From the full problem to the one that the solver believes in.
    judged
        From the full problem to the one in which its plan is judged: the same, but for ``recompute``.
    """

    name: str
    text: str
    believe: Change
    judged: Change = _as_it_is


def blinding_named(name: str) -> Blinding:
    """Return a blinding by its name; names joined by ``+`` are one that hides all of them.

    Raises
    ------
    InvalidProblem
        If there is none of that name, with the one that was probably meant.
    """
    parts = [_single(part.strip()) for part in name.split("+")]
    if len(parts) == 1:
        return parts[0]
    return Blinding(
        "+".join(part.name for part in parts),
        "; ".join(part.text for part in parts),
        _chained([part.believe for part in parts]),
        _chained([part.judged for part in parts]),
    )


def _single(name: str) -> Blinding:
    if name not in BLINDINGS:
        remedy = meant(name, BLINDINGS, f"choose among {', '.join(BLINDINGS)}")
        raise InvalidProblem("--without", f"{show(name)} is no blinding", remedy)
    return BLINDINGS[name]


def _chained(changes: list[Change]) -> Change:
    def change(problem: Problem) -> Problem:
        """Return the problem after all changes, in their order."""
        for each in changes:
            problem = each(problem)
        return problem

    return change


def _without_memory(problem: Problem) -> Problem:
    return replace(problem, cluster=problem.cluster.with_memory(UNLIMITED_BYTES))


def _without_topology(problem: Problem) -> Problem:
    """Put all devices into one group, with the figures of the innermost level."""
    innermost = problem.cluster.levels[0]
    return _with_levels(problem, (replace(innermost, fanout=problem.cluster.devices),))


def _without_topology_worst(problem: Problem) -> Problem:
    """Put each device into a group of its own, and all groups under one level, with the figures of a path to the top.

    What is sent then crosses a level above the innermost, which counts twice as in the full problem (D1).
    """
    cluster = problem.cluster
    top = replace(cluster.levels[-1], bandwidth_bytes_per_s=cluster.path_bandwidths[-1])
    return _with_levels(problem, (replace(top, fanout=1), replace(top, fanout=cluster.devices)))


def _with_levels(problem: Problem, levels: tuple[Level, ...]) -> Problem:
    """Return the problem on another network of as many devices; one level is flat as it is, and stays.

    Whoever does not see the levels cannot keep side constraints on them either.
    """
    cluster: Cluster = problem.cluster
    if len(cluster.levels) == 1:
        return problem
    kept = tuple(each for each in problem.constraints if not isinstance(each, WithinLevel | LevelTraffic))
    return replace(problem, cluster=replace(cluster, levels=levels, partial=False), constraints=kept)


def _without_placement(problem: Problem) -> Problem:
    return problem.with_preset(replace(problem.preset, boundary="first", all_replicas=False))


def _without_sync(problem: Problem) -> Problem:
    return problem.with_preset(replace(problem.preset, sync_factor=0.0))


def _without_zero(problem: Problem) -> Problem:
    return problem.with_choices(zero=frozenset({0}))


def _without_recompute(problem: Problem) -> Problem:
    """Let no stage recompute: where each chooses for itself, that leaves a choice out."""
    if problem.preset.recompute == "stage":
        return problem.with_choices(stage_recompute=frozenset({"none"}))
    return problem.with_choices(recompute="none")


def _without_having_to_recompute(problem: Problem) -> Problem:
    """Let no stage have to recompute: where each chooses for itself, none has to."""
    return problem if problem.preset.recompute == "stage" else _without_recompute(problem)


def _without_uneven(problem: Problem) -> Problem:
    """Ask for stages of equally many layers, of those of the most frequent kind: blocks, without embedding and head."""
    layers = problem.graphs[problem.variants[0]].layers
    (kind, _), *_ = Counter(layer.kind for layer in layers).most_common(1)
    equal = EqualStages(counting=[layer.id for layer in layers if layer.kind == kind])
    return problem.with_constraints(*problem.constraints, equal)


_ALL = (
    Blinding("memory", "devices have unlimited memory", _without_memory),
    Blinding("topology", "the network is flat, all of it as fast as its innermost level", _without_topology),
    Blinding(
        "topology-worst",
        "the network is flat, all of it as slow as a path across its outermost level",
        _without_topology_worst,
    ),
    Blinding(
        "placement",
        "a boundary lies between the first devices of its blocks, and every replica lies as the first one",
        _without_placement,
    ),
    Blinding("sync", "replicas synchronise their gradients in no time", _without_sync),
    Blinding("zero", "no stage may shard", _without_zero),
    Blinding("uneven", "stages hold equally many layers of the most frequent kind", _without_uneven),
    Blinding("recompute", "no stage may recompute, and none has to", _without_recompute, _without_having_to_recompute),
)

BLINDINGS: Mapping[str, Blinding] = {blinding.name: blinding for blinding in _ALL}
"""All of them, by name."""
