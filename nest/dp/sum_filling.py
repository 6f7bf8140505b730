"""How many stages all layers take at least, each within a load and its memory, whatever cuts, transfers and places are.

Stages are filled from the end of the pipeline on, each as far as it reaches. What is asked of a stage only grows with
its layers, and with its number from the end: so filling up is the best, and needs no more stages than any plan whose
slowest stage keeps to the load.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nest.problem import HELD
from nest.tables import BranchedTables, GroupedTables
from nest.tables.exchanged import least_exchanged, uncovered
from nest.tables.repeated import RangeMost, most_kept
from nest.tables.shares import Option
from nest.units import LONGEST, NEVER, Ints

PRECISE = 128
"""Bounds of the slowest load are as near to each other as this part of them."""


class _Kind(NamedTuple):
    """A kind of recomputation: what it may free in the layers before each cut, and what that takes at least.

    Parameters
    ----------
    freed
        Sums of quanta of a microbatch.
    most, least
        The most that a layer frees, and the fewest ticks that a layer takes which frees anything.
    ratio
        The fewest ticks for each quantum.
    """

    freed: Ints
    most: int
    least: int
    ratio: float


class Filling:
    """Fills stages of one variant.

    Parameters
    ----------
    tables
        Of the variant.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.tables = tables
        self._filled: dict[tuple[int, int, bool], Filled] = {}

    def within(self, fewest: int, most: int, stages: int) -> Filled:
        """Return the stages of so many replicas, with equally many microbatches and as many stages each."""
        key = fewest, most, stages > 1
        if key not in self._filled:
            self._filled[key] = self._made(fewest, _options(self.tables, fewest, most, stages))
        return self._filled[key]

    def _made(self, replicas: int, choices: tuple[Option, ...]) -> Filled:
        return Filled(self, replicas, choices)

    @cached_property
    def work(self) -> Ints:
        """Sums of the work of the layers before each cut."""
        return self.tables.by_cut(self.tables.work)

    @cached_property
    def work_so_far(self) -> list[int]:
        """The same in a list, in which single values are found sooner."""
        return list(map(int, self.work))

    @cached_property
    def kept(self) -> Ints:
        """Sums of what they keep of a microbatch, as if those that recompute anyway did so for nothing."""
        plain = "none" in self.tables.kinds
        return self.tables.by_cut(self.tables.activations if plain else self.tables.least_kept)

    @cached_property
    def kinds(self) -> tuple[_Kind, ...]:
        """What recomputation may free."""
        found = []
        for each in self.tables.repeating:
            freed = np.where(each.able, np.maximum(self.tables.activations - each.kept, 0), 0)
            if "none" in self.tables.kinds and freed.any():
                ticks, some = each.ticks[freed > 0], freed[freed > 0]
                sums, ratio = self.tables.by_cut(freed), float((ticks / some).min())
                found.append(_Kind(sums, int(freed.max()), int(ticks.min()), ratio))
        return tuple(found)

    @cached_property
    def working(self) -> Ints:
        """What each layer has in use for a moment at least, weights apart."""
        ways = [self.tables.working, *(each.working for each in self.tables.repeating)]
        least: Ints = np.minimum.reduce(ways)
        return least


def filling_of(tables: GroupedTables) -> Filling | LooseFilling:
    """Return what fills stages: of layers that branch, where tables know all cuts."""
    if tables.graph.unordered_pair is None:
        return Filling(tables)
    return BranchedFilling(tables) if isinstance(tables, BranchedTables) else LooseFilling(tables)


def all_filled(stages: Sequence[Filled], load: int) -> bool:
    """Whether some stages, from the last on and each on devices of its own, may hold all layers within a load.

    A stage on slow devices that can hold none of those that are left may hold some that were given to stages behind it.
    """
    end = stages[0].tables.layers
    for position, each in enumerate(stages, start=1):
        if end and len(each.rows):
            end = each.begin(end, load, position)
    return end == 0


class BranchedFilling(Filling):
    """Fills stages of one variant whose layers branch: of each number, the least of all cuts.

    Parameters
    ----------
    tables
        Of the variant.
    """

    def __init__(self, tables: BranchedTables) -> None:
        super().__init__(tables)
        self.order = tables.order

    def _made(self, replicas: int, choices: tuple[Option, ...]) -> Filled:
        return BranchedFilled(self, replicas, choices)


class LooseFilling:
    """What stages need together, where layers branch and no order of them holds for all plans.

    Parameters
    ----------
    tables
        Of the variant.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.tables, self.total = tables, int(tables.work.sum())

    def within(self, *_: int) -> LooseFilling:
        """Return the stages of any number of replicas, whatever the number of stages."""
        return self

    def slowest(self, stages: int, most: int, least: int) -> int:
        """Return a load that some of so many stages reaches, at most ``most + 1``, given one that some reaches."""
        return min(max(least, -(-self.total // stages), int(self.tables.work.max())), most + 1)


class Filled:
    """Stages of one number of replicas.

    Parameters
    ----------
    filling
        Of their variant.
    replicas
        By which microbatches are divided.
    choices
        Ways to shard among which are the extremes of all.
    """

    def __init__(self, filling: Filling, replicas: int, choices: tuple[Option, ...]) -> None:
        self.filling, self.tables, self.replicas = filling, filling.tables, replicas
        tables = self.tables
        extremes = _extremes(choices)
        options, nearest = [each for each, _ in extremes], [each for _, each in extremes]
        self.rows = np.arange(len(options))[:, None]
        self._known: dict[tuple[int, int], int] = {}
        self._needed: dict[tuple[int, int], tuple[int, list[int]]] = {}
        self._in_flight: dict[int, int] = {}
        if not options:
            return
        self.held = self._by_cut(np.array([tables.least_state(option) for option in options]))
        self.extra, self.beside = map(self._by_cut, least_exchanged(tables, nearest))
        alike = [(option.zero, *(degree > 1 for degree in tables.ranks(option.together))) for option in options]
        kinds = list(dict.fromkeys(alike))
        first = [options[alike.index(kind)] for kind in kinds]
        self.kind = np.array([kinds.index(each) for each in alike], dtype=np.int64)
        self._set_peaks([tables.whole(tables.ranks(option.together), option.zero) for option in first])

    def _by_cut(self, rows: Ints) -> Ints:
        return np.stack([self.tables.by_cut(row) for row in rows])

    def _set_peaks(self, wholes: list[Ints]) -> None:
        """Keep what is in use for a moment in runs of layers, given what of it is weights, of each kind of sharding."""
        least = self.tables.by_cut(self.tables.least_kept)
        self.peaks = RangeMost(np.concatenate([least[1:] + self.filling.working + each for each in wholes]))
        self.least_kept = least
        self.moment_from = self.tables.layers * self.kind

    def slowest(self, stages: int, most: int, least: int) -> int:
        """Return a load that some of so many stages reaches, at most ``most + 1``, given one that some reaches."""
        if self.fewest(most, stages) > stages:
            return most + 1
        low, high = least - 1, most
        while high - low > max(low // PRECISE, 1):
            middle = (low + high) // 2 if high < 4 * low else min(2 * max(low, 0) + 1, high - 1)
            low, high = (low, middle) if self.fewest(middle, stages) <= stages else (middle, high)
        return low + 1

    def fewest(self, load: int, enough: int) -> int:
        """Return how many stages there are at least if none takes longer than a load, or that they are more."""
        key = load, enough
        if key not in self._known:
            self._known[key] = self._fewest(load, enough)
        return self._known[key]

    def _fewest(self, load: int, enough: int) -> int:
        end = self.tables.layers
        if not len(self.rows):
            return enough + 1
        for stages in range(1, enough + 1):
            begin = self.begin(end, load, stages)
            if begin in (0, end):
                return stages if begin == 0 else enough + 1
            end = begin
        return enough + 1

    def begin(self, end: int, load: int, position: int) -> int:
        """Return with which layer the ``position``-th stage from the end may begin at the least, ``end`` for none."""
        work = self.filling.work_so_far
        first = bisect_left(work, work[end] - load)
        if first >= end:
            return end
        key = end, self.flying(position)
        lowest, gained = self._needed.get(key, (end, []))
        if first < lowest:
            lowest, gained = self._needed[key] = (
                first,
                (-np.minimum.accumulate(self._least_of_runs(first, *key))).tolist(),
            )
        return lowest + bisect_left(gained, -load)  # what begins before ``first`` takes longer by its work alone

    def flying(self, position: int) -> int:
        """Return how many microbatches the ``position``-th stage from the end has in flight at least."""
        if position not in self._in_flight:
            self._in_flight[position] = self.tables.flying(self.replicas, position)
        return self._in_flight[position]

    def _least_of_runs(self, first: int, end: int, flying: int) -> Ints:
        """Return what stages with this end take at least, that begin with a first layer and with each behind it."""
        firsts, moments = np.arange(first, end), self.moment_from[:, None]
        peak = self.peaks.most(moments + firsts, moments + end) - self.least_kept[firsts]
        return self.least_loads(firsts, np.array([end]), peak, flying)

    def least_loads(self, first: Ints, end: Ints, peak: Ints, flying: int) -> Ints:
        """Return what stages between two cuts take at least, given what is in use for a moment: a row for each way."""
        filling = self.filling
        room = self.tables.capacity - (self.held[:, end] - self.held[:, first])
        most = np.minimum(most_kept(room, peak, flying), room // flying)
        missing = np.maximum(filling.kept[end] - filling.kept[first] - most, 0)
        again = np.where(missing > 0, NEVER, 0)
        for kind in filling.kinds:
            layers = -(-missing // kind.most)
            taken = np.maximum(layers * kind.least, np.floor(missing * kind.ratio * (1 - 1e-9)).astype(np.int64))
            possible = missing <= kind.freed[end] - kind.freed[first]
            again = np.where(possible, np.minimum(again, taken), again)
        busy = self.extra[:, end] - self.extra[:, first] + again
        if self.tables.hidden:
            beside = self.beside[:, end] - self.beside[:, first]
            busy = np.maximum(busy, beside + uncovered(self.tables, again))
        least: Ints = np.where(again < NEVER, busy, NEVER).min(axis=0) + (filling.work[end] - filling.work[first])
        return least


TOGETHER = 2**16
"""Stages that are looked at together, at most."""


class BranchedFilled(Filled):
    """Stages of one number of replicas, of layers that branch.

    Parameters
    ----------
    filling, replicas, choices
        As for `Filled`.
    """

    def __init__(self, filling: BranchedFilling, replicas: int, choices: tuple[Option, ...]) -> None:
        self.order = filling.order
        super().__init__(filling, replicas, choices)
        last = np.full(filling.tables.cuts, NEVER, dtype=np.int64)
        last[-1] = 0
        self._slowest, self._loads = [last], (0, last)

    def _set_peaks(self, wholes: list[Ints]) -> None:
        """Keep the most that is in use for a moment in each stage, of each kind of sharding."""
        kept, working = self.tables.least_kept, self.filling.working
        self.peak = np.stack([self.order.peaks(kept, working + each) for each in wholes])

    def slowest(self, stages: int, most: int, least: int) -> int:
        """Return a load that some of so many stages reaches, given one that some reaches."""
        if not len(self.rows):
            return most + 1
        for position in range(len(self._slowest), stages + 1):
            self._slowest.append(self._least_slowest(position))
        return min(max(least, int(self._slowest[stages][0])), LONGEST + 1)

    def _least_slowest(self, position: int) -> Ints:
        """Return for each cut the least of the largest loads of so many stages that hold what is behind it."""
        stages, row = self.order.stages, np.full_like(self._slowest[0], NEVER)
        loads = np.maximum(self._all_loads(self.flying(position)), self._slowest[position - 1][stages.end])
        row[:-1] = np.minimum.reduceat(loads, stages.starts[:-1])
        return row

    def _all_loads(self, flying: int) -> Ints:
        """Return what each stage takes at least."""
        if self._loads[0] != flying:
            first, end, count = self.order.stages.first, self.order.stages.end, len(self.order.stages.first)
            parts = [slice(begin, begin + TOGETHER) for begin in range(0, count, TOGETHER)]
            found = [self.least_loads(first[at], end[at], self.peak[:, at][self.kind], flying) for at in parts]
            self._loads = flying, np.concatenate(found)
        return self._loads[1]


SIZES = (1, 2, 8, 32, 2**62)
"""Groups of replicas that share weights are taken together from each of these sizes to the next."""


def _options(tables: GroupedTables, fewest: int, most: int, stages: int) -> tuple[Option, ...]:
    """Return ways to shard among which are the extremes of all ways of so many replicas.

    Where groups may be of any size, those that any number of replicas may have: the first and the last from each of
    `SIZES` to the next.
    """
    if fewest == most:
        return tables.options(fewest, stages)
    choices, alone = tables.problem.choices, tables.ranks(1).dense > 1
    if choices.zero_degree is None and choices.hybrid and choices.zero != {0}:
        sizes = {most, *(size for edge in SIZES[1:-1] for size in (edge, edge - 1))}
        groups = {size for size in sizes if size <= most and (size > 1 or alone)}
    else:
        groups = {
            size for each in range(fewest, most + 1) for size in tables.problem.shard_groups(tables.variant, each)
        }
    return tables.options_of(fewest, stages, sorted(groups, reverse=True))


def _extremes(options: tuple[Option, ...]) -> list[tuple[Option, Option]]:
    """Return pairs of ways to shard, each as good as all of some ways: by memory the first, by time the second.

    Larger groups leave less and exchange more; who holds what he gathers (`HELD`) exchanges nothing so, and holds more
    in any group than alone. Of type 1 the largest stand for type 0 as well.
    """
    plain = [option for option in options if option.zero == 1] or [option for option in options if option.zero == 0]
    found = [(plain[0], plain[0])] if plain else []
    for zero in (2, 3, HELD):
        for low, high in pairwise(SIZES if zero != HELD else (1, 2, SIZES[-1])):
            alike = [each for each in options if each.zero == zero and low <= each.together < high]
            found += [(alike[0], alike[-1])] if alike else []
    return found
