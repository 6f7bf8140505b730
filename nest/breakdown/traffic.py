"""How long links carry what a plan sends: the way up from each group of the network, as a part of an iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nest.breakdown.load import LoadParts
from nest.cost.exchanges import axis_group
from nest.evaluate import Evaluation
from nest.graph import Axis
from nest.plan import Plan
from nest.problem import Problem

AXES: tuple[Axis, ...] = ("tensor", "context", "expert")


@dataclass(frozen=True, slots=True)
class Uplink:
    """The way up from a group of devices.

    Parameters
    ----------
    level, group
        Which group: its level, and its number at that level.
    ticks
        Of an iteration, for which it carries something, at most: that of the stage in the group that sends the longest.
        Of a stage in several places, the time is that of its slowest replica.
    """

    level: int
    group: int
    ticks: int


def uplinks(problem: Problem, plan: Plan, evaluation: Evaluation, parts: Sequence[LoadParts]) -> tuple[Uplink, ...]:
    """Return the ways up from all groups that hold devices of the plan, below the outermost level.

    Only time that the judge counts is here: what computation hides also passes, but delays nobody.

    Parameters
    ----------
    evaluation, parts
        The judge's, and the parts of its loads.
    """
    most: dict[tuple[int, int], int] = {}
    sizes = problem.cluster.group_sizes[:-1]
    for at in range(len(plan.stages)):
        for replica in range(plan.replicas):
            terms = list(_terms(problem, plan, evaluation, parts[at], (at, replica)))
            first, end = _block(plan, at, replica)
            for level, size in enumerate(sizes):
                ticks = sum(ticks for reach, ticks in terms if reach > level)
                for group in range(first // size, (end - 1) // size + 1):
                    most[level, group] = max(most.get((level, group), 0), ticks)
    return tuple(Uplink(level, group, ticks) for (level, group), ticks in sorted(most.items()))


def _block(plan: Plan, at: int, replica: int) -> tuple[int, int]:
    first = int(plan.starts(at)[replica])
    return first, first + plan.stages[at].devices


def _terms(
    problem: Problem, plan: Plan, evaluation: Evaluation, parts: LoadParts, where: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield for what a stage of a replica sends how high it climbs, and ticks of an iteration."""
    at, replica = where
    span, microbatches = problem.cluster.span, -(-problem.microbatches(plan.variant) // plan.replicas)
    first, end = _block(plan, at, replica)
    stages = len(plan.stages)
    neighbours = [other for other in (at - 1, at + 1) if 0 <= other < stages]
    if plan.chunks > 1:  # the ends send to each other
        neighbours = [(at - 1) % stages, (at + 1) % stages]
    for other in neighbours:
        there = _block(plan, other, replica)[0]
        yield span(min(first, there), max(first, there)), microbatches * parts.transfer // len(neighbours)
    for axis in AXES:
        step, count = axis_group(plan.stage_variants[at], axis)
        yield span(first, min(first + step * (count - 1), end - 1)), microbatches * getattr(parts, axis)
    across = span(_block(plan, at, 0)[0], _block(plan, at, plan.replicas - 1)[1] - 1)
    inside = plan.stages[at].inside > 1
    yield (span(first, end - 1) if inside else across), microbatches * parts.sharding
    yield across, evaluation.stages[at].sync
