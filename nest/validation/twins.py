"""Rows that are no property of what they state: others ran the same kernels as often, in another time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from nest.validation.compare import Comparison
from nest.validation.layers import heads_of, layer_of, layer_passes

BAND = 0.02
"""A predictor is to come so near to each of four rows; if none can, they contradict each other."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows that differ in nothing but their heads.

    Parameters
    ----------
    few, many
        Places of the one with fewer heads, and of that with more.
    times
        Their times, seconds.
    passes
        How often an iteration waits for a layer.
    """

    few: int
    many: int
    times: tuple[float, float]
    passes: int

    @property
    def more_s(self) -> float:
        """Seconds that the attention of a layer with more heads takes more, for one microbatch."""
        return (self.times[1] - self.times[0]) / self.passes

    @property
    def sum_s(self) -> float:
        """Both times for each pass of a layer."""
        return sum(self.times) / self.passes


@dataclass(frozen=True, slots=True)
class Twins:
    """Two pairs whose layers run the same attention kernels.

    Everything else is the same within a pair. So whatever the kernels take, the times within both pairs differ by as
    much for each pass of a layer, for any predictor that gives equal kernels equal times.
    """

    one: Pair
    other: Pair

    @property
    def least_error(self) -> float:
        """How far off such a predictor is at least from one of the four rows, as a share of its time."""
        return abs(self.one.more_s - self.other.more_s) / (self.one.sum_s + self.other.sum_s)


def twins(comparisons: Sequence[Comparison]) -> list[Twins]:
    """Return all pairs of pairs with the same attention kernels."""
    same: dict[object, list[Pair]] = defaultdict(list)
    for kernels, pair in _pairs(comparisons):
        same[kernels].append(pair)
    every = (Twins(one, other) for pairs in same.values() for one, other in combinations(pairs, 2))
    return [each for each in every if each.one.passes != each.other.passes or each.one.few != each.other.few]


def contradicted_times(comparisons: Sequence[Comparison]) -> dict[int, Twins]:
    """Return the rows whose times other rows contradict, each with the twins that do so the most.

    Of rows that cannot all be right, those are taken that leave none when they are gone: the row that takes part in
    most of what is left, one after the other.
    """
    left = [each for each in twins(comparisons) if each.least_error > BAND]
    found: dict[int, Twins] = {}
    while left:
        worst = Counter(place for each in left for place in _rows(each)).most_common(1)[0][0]
        found[worst] = max((each for each in left if worst in _rows(each)), key=lambda each: each.least_error)
        left = [each for each in left if worst not in _rows(each)]
    return found


def _rows(each: Twins) -> set[int]:
    return {each.one.few, each.one.many, each.other.few, each.other.many}


def _pairs(comparisons: Sequence[Comparison]) -> Iterator[tuple[object, Pair]]:
    """Yield pairs of rows that differ in their heads alone, with the kernels of the attention of both."""
    alike: dict[object, list[int]] = defaultdict(list)
    for place, each in enumerate(comparisons):
        case = each.case
        if case.seconds is not None:
            layers = tuple(len(stack.blocks) for stack in case.model.stacks)
            key = (case.setting, case.layout, case.hardware.cluster, layers, layer_of(case).width)
            alike[key].append(place)
    for places in alike.values():
        for few, many in combinations(sorted(places, key=lambda at: heads_of(comparisons[at].case)), 2):
            kernels = _kernels(comparisons[few]), _kernels(comparisons[many])
            times = comparisons[few].case.seconds or 0.0, comparisons[many].case.seconds or 0.0
            if kernels[0] != kernels[1]:
                yield kernels, Pair(few, many, times, layer_passes(comparisons[few].case))


def _kernels(each: Comparison) -> tuple[object, ...]:
    """Return what decides about the kernels of attention: sequences times heads of a device, their width, length."""
    case, (heads, width) = each.case, heads_of(each.case)
    setting = case.setting
    batch = setting.microbatch * heads / setting.tensor
    return batch, width, setting.sequence, setting.flash, case.hardware.device.name, layer_of(case).width
