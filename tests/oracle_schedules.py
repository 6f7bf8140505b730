"""The slow plain reference for schedules: passes of every stage of every plan, played by repeated relaxation.

As `oracle_default`, it shares only data classes with `nest`; what a stage takes forward and backward, when each pass
starts and which plan is the best are written out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import accumulate, product
from math import floor, prod

import oracle_default as oracle
from oracle_default import Costs, Rounding
from oracle_groups import decimal
from oracle_places import spot_of
from oracle_plans import Inner, Outer, inner_of, inners, outer_choices, plan_of, repeating
from random_branches import cuttings, orders, reordered

from nest.graph import Layer
from nest.plan import Plan
from nest.problem import Problem


@dataclass(frozen=True)
class Times:
    """Ticks of both passes of a stage, transfers included, of its synchronisation, and of gradients of weights."""

    forward: int
    backward: int
    sync: int
    weight: int = 0


class Passes(Costs):
    """Passes of the stages of one outer choice and a schedule."""

    def __init__(self, problem: Problem, outer: Outer, rounding: Rounding, schedule: str) -> None:
        super().__init__(problem, outer, rounding)
        self.schedule = schedule

    def iteration(self, times: list[Times]) -> int:
        """Return what an iteration takes, by the objective of the preset."""
        sync, loads = max(each.sync for each in times), [each.forward + each.backward for each in times]
        if self.problem.preset.objective == "sum":
            return sum(loads) + (self.m - 1) * max(loads) + sync
        return played(self.schedule, times, self.m) + sync

    def flying(self, at: int) -> int:
        """Return how many microbatches a stage has in flight."""
        return kept(self.schedule, at, self.outer.stages, self.m)

    def peak(self, passing: list[tuple[Fraction, Fraction]]) -> Fraction:
        """Return the most that a pass takes, which frees nothing as long as gradients of weights are to come."""
        if self.schedule != "zb-h1":
            return super().peak(passing)
        return passing[-1][0] + max(moment for _, moment in passing)

    def _backward(self, at: int, first: int, end: int) -> int:
        if self.schedule != "zb-h1":
            return super()._backward(at, first, end)
        return sum(map(self._weight, self.layers[first:end]))

    def _scattered(self, at: int, first: int, end: int, inner: Inner) -> int:
        if self.schedule != "zb-h1":
            return super()._scattered(at, first, end, inner)
        return sum(self._one(at, place, inner)[1] for place in range(first, end)) if self._zero(inner) in (2, 3) else 0

    def _one(self, at: int, place: int, inner: Inner) -> tuple[int, int]:
        """Return what it takes to gather the weights of a layer, and to scatter their gradients."""
        kinds = [("all-gather", self.gathered), ("reduce-scatter", self.summed)]
        there, back = (self._exchange(at, inner.group, [self.layers[place]], kind) for kind in kinds)
        return there, back

    def _split(self, at: int, first: int, end: int, inner: Inner) -> tuple[int, int, int]:
        """Return what is left of exchanges in forward passes, backward passes and gradients of weights."""
        late, zero = self.schedule == "zb-h1", self._zero(inner)
        if zero == 2:
            left = self._left(self._scattered(at, first, end, inner), self._backward(at, first, end))
            return 0, 0 if late else left, left if late else 0
        forward = backward = weight = 0
        again = repeating(self.problem, self.layers[first:end], inner)
        for place in range(first, end) if zero == 3 else ():
            block, (there, back) = self.outer.block(at, 0), self._one(at, place, inner)
            forward += self._left(there, self.passes(place, "forward", block) if place > first else 0)
            beside = self.passes(place, "backward", block)
            beside += self.repeats(place, inner.kind, block) if again[place - first] else 0
            if late:
                own = self._weight(self.layers[place])
                backward += self._left(there, beside - own)
                weight += self._left(back, own)
            else:
                backward += self._left(there + back, beside)
        return forward, backward, weight

    def _sharded(self, at: int, first: int, end: int, inner: Inner) -> int:
        return sum(self._split(at, first, end, inner))

    def times(self, at: int, first: int, end: int, inner: Inner) -> Times:
        """Return what a stage takes in the replica that takes longest, of several that which waits longest before."""
        figures = self.stage(at, first, end, inner)
        rows = []
        for replica in range(self.outer.replicas):
            load = self._load(at, first, end, inner, replica)
            forward = sum(self._ahead(place, self.outer.block(at, replica)) for place in range(first, end))
            if at > 0:
                forward += self._crossing(first, *self._pair(at - 1, replica))[0]
            if at + 1 < self.outer.stages:
                forward += self._crossing(end, *self._pair(at, replica))[1]
            rows.append((load, forward))
        load, forward = max(rows)
        gathered, _, late = self._split(at, first, end, inner)
        weight = sum(self._weight(layer) for layer in self.layers[first:end]) + late
        return Times(forward + gathered, figures.load - forward - gathered, figures.sync, weight)

    def _pair(self, boundary: int, replica: int) -> tuple[int, int]:
        return self.outer.block(boundary, replica), self.outer.block(boundary + 1, replica)

    def _weight(self, layer: Layer) -> int:
        share = Fraction(1, 2) if layer.weight_share is None else Fraction(layer.weight_share)
        return floor(share * self.round(decimal(layer.backward_s)))

    def _ahead(self, place: int, block: int) -> int:
        layer = self.layers[place]
        exchanged = sum(self._inside((each,), block) for each in layer.collectives if each.when == "forward")
        return exchanged + self.round(decimal(layer.forward_s))


@cache
def order(schedule: str, stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """Return the passes of a stage."""
    found: list[tuple[str, int]] = []
    forward = backward = weight = 0
    room = microbatches if schedule == "gpipe" else stages - stage
    while backward < microbatches:
        if forward < microbatches and forward - backward < room:
            found.append(("forward", forward))
            forward += 1
        else:
            found.append(("backward", backward))
            backward += 1
            if schedule == "zb-h1" and backward - weight > stage:
                found.append(("weight", weight))
                weight += 1
    return found + [("weight", each) for each in range(weight, microbatches) if schedule == "zb-h1"]


def kept(schedule: str, stage: int, stages: int, microbatches: int) -> int:
    """Return the most microbatches of which a stage keeps something, counted along its passes."""
    last = "weight" if schedule == "zb-h1" else "backward"
    steps = [{"forward": 1, last: -1}.get(kind, 0) for kind, _ in order(schedule, stage, stages, microbatches)]
    return max(accumulate(steps))


def played(schedule: str, times: list[Times], microbatches: int) -> int:
    """Return when the last pass ends: each pass starts when the one before it and the one that feeds it have ended."""
    stages = len(times)
    orders = [order(schedule, at, stages, microbatches) for at in range(stages)]
    ends: dict[tuple[int, str, int], int] = {}
    late = [each.weight if schedule == "zb-h1" else 0 for each in times]
    ticks = [
        {"forward": each.forward, "backward": each.backward - weight, "weight": weight}
        for each, weight in zip(times, late, strict=True)
    ]
    ended = [0] * stages
    while len(ends) < sum(map(len, orders)):
        for at, each in enumerate(orders):
            for place in range(ended[at], len(each)):
                kind, microbatch = each[place]
                waits = [(at, *each[place - 1])] if place else []
                if kind == "forward" and at > 0:
                    waits.append((at - 1, "forward", microbatch))
                if kind == "backward" and at + 1 < stages:
                    waits.append((at + 1, "backward", microbatch))
                if any(one not in ends for one in waits):
                    break
                takes = ticks[at][kind]
                ends[at, kind, microbatch] = max((ends[one] for one in waits), default=0) + takes
                ended[at] += 1
    return max(ends.values())


def priced(problem: Problem, rounding: Rounding, order: Sequence[int] = ()) -> Iterator[tuple[int, Plan]]:
    """Yield every plan that fits the memory, with what an iteration takes.

    Parameters
    ----------
    order
        Places of the layers in a problem of which this one is a reordering; stages of others are left out.
    """
    for outer, schedule in product(outer_choices(problem), sorted(problem.choices.schedules)):
        costs = Passes(problem, outer, rounding, schedule)
        for cuts in cuttings(order or range(len(costs.layers)), outer.stages):
            options = [list(_fitting(costs, problem, outer, at, run)) for at, run in enumerate(cuts)]
            for picked in product(*options):
                times = [each for _, each in picked]
                plan = plan_of(problem, outer, cuts, [each for each, _ in picked])
                yield costs.iteration(times), replace(plan, schedule=schedule)


def ways(costs: Passes, outer: Outer) -> int:
    """Return how many plans there are of an outer choice, whether they fit the memory or not."""
    places = range(len(costs.layers))
    return sum(
        prod(len(list(_choices(costs, costs.problem, outer, run))) for run in cuts)
        for cuts in cuttings(places, outer.stages)
    )


def _choices(costs: Passes, problem: Problem, outer: Outer, run: tuple[int, int]) -> Iterator[Inner]:
    """Yield all that a stage may choose: what is computed again has to stay for gradients of weights put off."""
    return (each for each in inners(problem, outer, run) if costs.schedule != "zb-h1" or each.kind == "none")


def _fitting(
    costs: Passes, problem: Problem, outer: Outer, at: int, run: tuple[int, int]
) -> Iterator[tuple[Inner, Times]]:
    """Yield the ways of a stage that fit; of those that take the same one."""
    seen = set()
    for each in _choices(costs, problem, outer, run):
        if costs.stage(at, *run, each).memory <= decimal(costs.cluster.hbm_bytes):
            times = costs.times(at, *run, each)
            if times not in seen:
                seen.add(times)
                yield each, times


def best(problem: Problem, rounding: Rounding) -> oracle.Best:
    """Try every plan of a problem, whose layers may branch."""
    found = oracle.Best(None, None)
    for order in orders(next(iter(problem.graphs.values()))):
        for ticks, plan in priced(reordered(problem, order), rounding, order):
            if found.objective is None or ticks < found.objective:
                found = oracle.Best(ticks, plan)
    return found


def price(problem: Problem, plan: Plan, rounding: Rounding) -> int:
    """Return what a plan takes where it stands."""
    spot = spot_of(plan, problem.cluster.devices)
    outer = Outer(plan.variant, len(plan.stages), plan.replicas, plan.arrangement, spot)
    costs, times, first = Passes(problem, outer, rounding, plan.schedule), list[Times](), 0
    for at, stage in enumerate(plan.stages):
        times.append(costs.times(at, first, first + len(stage.layers), inner_of(plan, stage)))
        first += len(stage.layers)
    return costs.iteration(times)
