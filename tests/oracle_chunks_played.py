"""The slow plain reference for interleaved pipelines that are played: what each chunk takes, and when each pass ends.

As `oracle_chunks`, it shares only data classes with `nest`.
"""

from __future__ import annotations

from itertools import product

import oracle_chunks as chunks
import oracle_default as oracle
import oracle_plans
from oracle_chunks import Chunked, cut, inners, order, plan_of
from oracle_default import Costs, Rounding
from oracle_groups import decimal
from oracle_places import spot_of
from oracle_plans import Inner, Outer, repeating

from nest.plan import Plan
from nest.problem import Problem

Times = tuple[tuple[int, int], ...]
"""Ticks forward and backward of each chunk of a stage."""


class Played(Chunked):
    """One outer choice, cut into chunks, whose schedule is played."""

    def times(self, at: int, inner: Inner) -> Times:
        """Return what chunks take in the slowest replica, of several as docs/formulation.md says."""
        rows = []
        for replica in range(self.costs.outer.replicas):
            passes = [self._chunk(number, at, inner, replica) for number in range(self.chunks)]
            ahead, load = sum(there for there, _ in passes), sum(sum(both) for both in passes)
            apart = self._apart(at - 1, replica), self._apart(at, replica)
            rows.append((load, ahead, apart, passes))
        passes = max(rows, key=lambda row: row[:3])[3]
        shown = [self._shown(number, at, inner) for number in range(self.chunks)]
        return tuple(
            (there + ahead, back + behind) for (there, back), (ahead, behind) in zip(passes, shown, strict=True)
        )

    def _pair(self, boundary: int, replica: int) -> tuple[int, int]:
        block = self.costs.outer.block
        return block(boundary % self.stages, replica), block((boundary + 1) % self.stages, replica)

    def _apart(self, boundary: int, replica: int) -> int:
        """Return the level of the network between two stages."""
        one, two = self._pair(boundary, replica)
        sizes = self.costs.cluster.group_sizes
        return next(level for level, size in enumerate(sizes) if one // size == two // size)

    def _chunk(self, number: int, at: int, inner: Inner, replica: int) -> tuple[int, int]:
        """Return both passes of a chunk in a replica, without what sharding exchanges."""
        costs, block, part = self.costs, self.costs.outer.block(at, replica), number * self.stages + at
        again = dict(zip(self.places(at), repeating(self.costs.problem, self._layers(at), inner), strict=True))
        forward = backward = 0
        for place in range(*self.runs[part]):
            forward += costs.passes(place, "forward", block)
            backward += costs.passes(place, "backward", block)
            backward += costs.repeats(place, inner.kind, block) if again[place] else 0
        if part > 0:
            received, sent = costs._crossing(self.runs[part][0], *self._pair(part - 1, replica))
            forward, backward = forward + received, backward + sent
        if part + 1 < len(self.runs):
            received, sent = costs._crossing(self.runs[part][1], *self._pair(part, replica))
            forward, backward = forward + sent, backward + received
        return forward, backward

    def _shown(self, number: int, at: int, inner: Inner) -> tuple[int, int]:
        """Return what is left of exchanges in both passes of a chunk."""
        costs, block, run = self.costs, self.costs.outer.block(at, 0), self.own(at)[number]
        if costs._zero(inner) != 3:
            whole = self._sharded(at, inner)
            return 0, whole * (number + 1) // self.chunks - whole * number // self.chunks
        again = dict(zip(self.places(at), repeating(self.costs.problem, self._layers(at), inner), strict=True))
        forward = backward = 0
        for place in range(*run):
            there = self._exchange(at, inner, [costs.layers[place]], ("all-gather", costs.gathered))
            forward += costs._left(there, 0 if place == run[0] else costs.passes(place, "forward", block))
            beside = costs.passes(place, "backward", block)
            beside += costs.repeats(place, inner.kind, block) if again[place] else 0
            backward += costs._left(self._back(at, inner, place), beside)
        return forward, backward


def played(stages: int, number: int, times: list[Times], microbatches: int) -> int:
    """Return when the last pass ends: each starts when the one before it and the one that feeds it have ended."""
    orders = [_named(order(stages, number, at, microbatches), number) for at in range(stages)]
    ends: dict[tuple[str, int, int], int] = {}
    while len(ends) < sum(map(len, orders)):
        for at, each in enumerate(orders):
            before = 0
            for kind, chunk, microbatch in each:
                part, last = chunk * stages + at, number * stages - 1
                fed = kind, part + (1 if kind == "backward" else -1), microbatch
                if kind == "backward" and part == last:
                    fed = ("forward", part, microbatch)
                first = kind == "forward" and part == 0
                if not first and fed not in ends:
                    break
                takes = times[at][chunk][kind == "backward"]
                before = max(before, 0 if first else ends[fed]) + takes
                ends[kind, part, microbatch] = before
    return max(ends.values())


def _named(passes: list[tuple[str, int]], number: int) -> list[tuple[str, int, int]]:
    """Return passes with their microbatches: of each kind and chunk they come in order."""
    counts = dict.fromkeys(product(("forward", "backward"), range(number)), 0)
    found = []
    for kind, chunk in passes:
        found.append((kind, chunk, counts[kind, chunk]))
        counts[kind, chunk] += 1
    return found


def ways(one: Played, at: int) -> list[tuple[Times, int, Inner]]:
    """Return what a stage may choose that fits the memory, one of what takes the same."""
    found = dict[tuple[Times, int], Inner]()
    for inner in inners(one.costs.problem, one, at):
        figures = one.figures(at, inner)
        if figures.memory <= decimal(one.costs.cluster.hbm_bytes):
            times = one.times(at, inner)
            assert sum(map(sum, times)) == figures.load
            found.setdefault((times, figures.sync), inner)
    return [(*key, inner) for key, inner in found.items()]


def best(problem: Problem, rounding: Rounding) -> oracle.Best:
    """Try every interleaved plan of a problem; those with too much work on a stage are not played."""
    found = oracle.Best(None, None)
    for plain in chunks.choices(problem, rounding):
        one = Played(plain.costs, plain.chunks, plain.runs)
        for picked in product(*(ways(one, at) for at in range(one.stages))):
            sync, times = max(each for _, each, _ in picked), [each for each, _, _ in picked]
            work = one.costs.m * max(sum(map(sum, each)) for each in times)
            if found.objective is None or work + sync < found.objective:
                ticks = played(one.stages, one.chunks, times, one.costs.m) + sync
                if found.objective is None or ticks < found.objective:
                    found = oracle.Best(ticks, plan_of(one, [inner for _, _, inner in picked]))
    return found


def price(problem: Problem, plan: Plan, rounding: Rounding) -> int:
    """Return what a plan of equal parts takes where it stands."""
    spot = spot_of(plan, problem.cluster.devices)
    outer = Outer(plan.variant, len(plan.stages), plan.replicas, plan.arrangement, spot)
    costs = Costs(problem, outer, rounding)
    runs = cut(costs.layers, len(plan.stages) * plan.chunks)
    assert runs is not None
    one = Played(costs, plan.chunks, runs)
    inner = [oracle_plans.inner_of(plan, stage) for stage in plan.stages]
    times = [one.times(at, each) for at, each in enumerate(inner)]
    sync = max(one.figures(at, each).sync for at, each in enumerate(inner))
    return played(one.stages, one.chunks, times, costs.m) + sync
