"""Which option each layer of a stage takes: the least time within a device's memory, exactly.

It is a knapsack with one choice for each layer. Its relaxation, in which a layer may take parts of options, is solved
by a greedy walk over *steps*: a layer goes on to its next smaller, slower option, those first that cost the least time
for a byte. What the relaxation leaves open is settled by merging, layer by layer, the pairs of time and memory of which
no other has less of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Choice: TypeAlias = tuple[int, int, int]
"""Time, memory, and the number of the option."""


@dataclass(frozen=True, slots=True)
class Step:
    """From one option of a layer to the next on the convex hull: ``time`` more, ``saved`` memory less."""

    layer: int
    time: int
    saved: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The least time, and the number of the option of each layer."""

    time: int
    options: tuple[int, ...]


def front(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices that no other beats in time and memory, the fastest first."""
    kept: list[Choice] = []
    for choice in sorted(choices):
        if not kept or choice[1] < kept[-1][1]:
            kept.append(choice)
    return kept


def steps_of(layer: int, choices: Sequence[Choice]) -> list[Step]:
    """Return the steps of a layer from its fastest to its smallest option, along the convex hull."""
    hull: list[Choice] = []
    for point in front(choices):
        while len(hull) > 1 and _above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return [Step(layer, after[0] - before[0], before[1] - after[1]) for before, after in pairwise(hull)]


def _above(first: Choice, middle: Choice, last: Choice) -> bool:
    """Whether the middle point lies on or above the line from the first to the last."""
    return (middle[0] - first[0]) * (first[1] - last[1]) >= (last[0] - first[0]) * (first[1] - middle[1])


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Return steps in the order of the greedy walk; those of one layer stay in theirs."""
    return sorted(steps, key=lambda step: step.time / step.saved)


def least_time(layers: Sequence[Sequence[Choice]], capacity: int, most: int) -> Taken | None:
    """Return the fastest choice of an option for each layer that fits, or None if none takes at most ``most``."""
    fronts = [front(choices) for choices in layers]
    order = sorted(range(len(fronts)), key=lambda at: fronts[at][0][1] - fronts[at][-1][1], reverse=True)
    rests = _rests([fronts[at] for at in order])
    partial: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    for depth, at in enumerate(order):
        rest = rests[depth + 1]
        grown: list[tuple[int, int, tuple[int, ...]]] = []
        for time, memory, taken in partial:
            for more, size, option in fronts[at]:
                bound = rest.bound(capacity - memory - size)
                if bound is not None and time + more + bound <= most:
                    grown.append((time + more, memory + size, (*taken, option)))
        partial = _front_of(grown)
        if not partial:
            return None
    time, _, taken = partial[0]
    options = [0] * len(order)
    for at, option in zip(order, taken, strict=True):
        options[at] = option
    return Taken(time, tuple(options))


def _front_of(partial: list[tuple[int, int, tuple[int, ...]]]) -> list[tuple[int, int, tuple[int, ...]]]:
    kept: list[tuple[int, int, tuple[int, ...]]] = []
    for one in sorted(partial):
        if not kept or one[1] < kept[-1][1]:
            kept.append(one)
    return kept


@dataclass(frozen=True, slots=True)
class _Rest:
    """The layers that are still to come: their fastest and smallest sums, and the steps between."""

    time: int
    memory: int
    saved: tuple[int, ...]
    cost: tuple[int, ...]

    def bound(self, room: int) -> int | None:
        """Return a time that they take at least within so much memory; None where they do not fit."""
        need = self.memory - room
        if need <= 0:
            return self.time
        if not self.saved or need > self.saved[-1]:
            return None
        low, high = 0, len(self.saved) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.saved[middle] >= need else (middle + 1, high)
        done, spent = (self.saved[low - 1], self.cost[low - 1]) if low else (0, 0)
        last, price = self.saved[low] - done, self.cost[low] - spent
        return self.time + spent - (-(need - done) * price // last)


def _rests(fronts: Sequence[list[Choice]]) -> list[_Rest]:
    """Return what is still to come after each number of layers."""
    rests = []
    for begin in range(len(fronts) + 1):
        left = fronts[begin:]
        steps = in_order([step for at, choices in enumerate(left) for step in steps_of(at, choices)])
        saved, cost, total, spent = [], [], 0, 0
        for step in steps:
            total, spent = total + step.saved, spent + step.time
            saved.append(total)
            cost.append(spent)
        time, memory = sum(choices[0][0] for choices in left), sum(choices[0][1] for choices in left)
        rests.append(_Rest(time, memory, tuple(saved), tuple(cost)))
    return rests
