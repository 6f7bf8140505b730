"""What levels cost a plan: its price on them beside that by the pairs of devices that it uses, as they are wired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np

from nest.cluster import Level
from nest.evaluate import evaluate
from nest.hardware import Hardware, Pairs
from nest.plan import Plan
from nest.problem import Problem
from nest.units import Ints


@dataclass(frozen=True, slots=True)
class PairGap:
    """A plan's iteration in seconds.

    Parameters
    ----------
    levelled_s
        On the levels, which take the worst pair in them and what devices share.
    pairs_s
        With each level as slow as the slowest pair that the plan uses there, alone on the network.
    """

    levelled_s: float
    pairs_s: float

    @property
    def share(self) -> float:
        """By how much the levelled time exceeds the other."""
        return self.levelled_s / self.pairs_s - 1

    @property
    def text(self) -> str:
        """Both, for people."""
        said = "as on the levels" if abs(self.share) < 5e-5 else f"levels cost {100 * self.share:.1f} % more"
        return f"{self.pairs_s:.6g} s by the slowest pairs that the plan uses, each alone on the network: {said}"


def pair_gap(problem: Problem, plan: Plan, hardware: Hardware) -> PairGap | None:
    """Return what levels cost a plan, or None where nothing is known of pairs.

    Groups count by their rings, each member sending to the next, and boundaries by counterparts.

    Parameters
    ----------
    problem, plan
        A problem on the cluster of the hardware, and a plan that is legal.
    """
    if hardware.pairs is None or problem.cluster.devices != hardware.cluster.devices:
        return None
    by_pairs = replace(problem, cluster=replace(problem.cluster, levels=_levels(problem, plan, hardware)))
    seconds = []
    for each in (problem, by_pairs):
        verdict = evaluate(each, plan)
        assert verdict.objective_ticks is not None, "the plan is legal"
        seconds.append(verdict.scale.time.seconds(verdict.objective_ticks))
    return PairGap(*seconds)


def _levels(problem: Problem, plan: Plan, hardware: Hardware) -> tuple[Level, ...]:
    """Return the levels with the figures of the slowest pairs that the plan uses, where it uses any.

    Levels of problems reach a part of the rated bandwidth; pairs reach the same part of theirs.
    """
    assert hardware.pairs is not None, "checked by whoever asks"
    exact: Pairs = hardware.pairs
    used = np.array(sorted(set(_used(plan))), dtype=np.int64).reshape(-1, 2)
    spans = problem.cluster.spans(used[:, 0], used[:, 1])
    rated = hardware.cluster.path_bandwidths
    levels = []
    for at, level in enumerate(problem.cluster.levels):
        ends = used[spans == at].T
        if ends.size:
            slowest = float(exact.bandwidth_bytes_per_s[ends[0], ends[1]].min())
            part = slowest / min(rated[at], hardware.cluster.levels[at].pair_bytes_per_s or inf)
            delay = float(exact.latency_s[ends[0], ends[1]].max())
            level = _slowed(level, problem.cluster.path_bandwidths[at], part, delay)  # noqa: PLW2901
        levels.append(level)
    return tuple(levels)


def _slowed(level: Level, path: float, part: float, delay: float) -> Level:
    """Return a level with a part of its bandwidth, and of what a pair has where a device has links of its own."""
    single = None if level.pair_bytes_per_s is None else level.pair_bytes_per_s * part
    return replace(level, bandwidth_bytes_per_s=path * part, pair_bytes_per_s=single, latency_s=delay)


def _used(plan: Plan) -> Iterator[tuple[int, int]]:
    """Yield the pairs of places that send to each other."""
    variant = plan.variant
    shape = plan.replicas, variant.expert, variant.context, variant.tensor
    starts = [plan.starts(at)[:, None] for at in range(len(plan.stages))]
    blocks = [(each + np.arange(variant.width)[None, :]).reshape(shape) for each in starts]
    for before, behind in pairwise(blocks):
        yield from zip(before.ravel().tolist(), behind.ravel().tolist(), strict=True)
    for block in blocks:
        yield from _rings(block.reshape(-1, variant.tensor))
        yield from _rings(np.moveaxis(block, 2, -1).reshape(-1, variant.context))
        yield from _rings(np.moveaxis(block, 1, -1).reshape(-1, variant.expert))
        yield from _rings(block.reshape(-1, variant.tensor).T)
        yield from _rings(block.transpose(1, 3, 0, 2).reshape(variant.expert * variant.tensor, -1))


def _rings(groups: Ints) -> Iterator[tuple[int, int]]:
    """Yield the neighbours in the ring of each group, its members in their order on the line."""
    if groups.shape[1] > 1:
        line = np.sort(groups, axis=1)
        yield from zip(line.ravel().tolist(), np.roll(line, -1, axis=1).ravel().tolist(), strict=True)
