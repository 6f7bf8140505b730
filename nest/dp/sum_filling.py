"""How many stages all layers take at least, each within a load and its memory, whatever cuts, transfers and places are.

Stages are filled from the end of the pipeline on, each as far as it reaches. What is asked of a stage only grows with
its layers, and with its number from the end: so filling up is the best, and needs no more stages than any plan whose
slowest stage keeps to the load.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import EACH_MICROBATCH
from nest.cost.memory import state
from nest.tables import GroupedTables, prefix
from nest.tables.repeated import RangeMost
from nest.tables.shares import Option
from nest.units import NEVER, Ints


class _Kind(NamedTuple):
    """A kind of recomputation: what it may free in the first 0, 1, ... layers, and what that takes at least.

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
        self._filled: dict[int, _Filled] = {}

    def within(self, replicas: int) -> _Filled:
        """Return the stages of so many replicas."""
        if replicas not in self._filled:
            self._filled[replicas] = _Filled(self, replicas)
        return self._filled[replicas]

    @cached_property
    def work(self) -> Ints:
        """Sums of the work of the first 0, 1, ... layers."""
        return prefix(self.tables.work)

    @cached_property
    def kept(self) -> Ints:
        """Sums of what they keep of a microbatch, as if those that recompute anyway did so for nothing."""
        plain = "none" in self.tables.kinds
        return prefix(self.tables.activations if plain else self.tables.least_kept)

    @cached_property
    def kinds(self) -> tuple[_Kind, ...]:
        """What recomputation may free."""
        found = []
        for each in self.tables.repeating:
            freed = np.where(each.able, np.maximum(self.tables.activations - each.kept, 0), 0)
            if "none" in self.tables.kinds and freed.any():
                ticks, some = each.ticks[freed > 0], freed[freed > 0]
                found.append(_Kind(prefix(freed), int(freed.max()), int(ticks.min()), float((ticks / some).min())))
        return tuple(found)

    @cached_property
    def working(self) -> Ints:
        """What each layer has in use for a moment at least, weights apart."""
        ways = [self.tables.working, *(each.working for each in self.tables.repeating)]
        return np.minimum.reduce(ways)

    def extra_s(self, option: Option) -> tuple[float, float]:
        """Return what a quantum of dense weights and one of experts' exchange for each microbatch at least, in ticks.

        Ranks are as near to each other as they may be.
        """
        tables, variant = self.tables, self.tables.variant
        found = []
        for inside in tables.problem.copy_ranks(variant, 1):
            count = np.array([option.together * inside])
            apart = np.array([variant.tensor if inside > 1 else variant.width])
            size = float(tables.bytes_of(np.ones(1, dtype=np.int64))[0])
            ways = [
                float(tables.exchanges.least_s(kind, count, apart, size * tables.times(part))[0])
                for kind, part in EACH_MICROBATCH[option.zero]
            ]
            found.append(sum(ways) * tables.scale.time.ticks_per_s * (1 - 1e-9))
        return found[0], found[1]


class _Filled:
    """Stages of one number of replicas."""

    def __init__(self, filling: Filling, replicas: int) -> None:
        self.filling, self.tables, self.replicas = filling, filling.tables, replicas
        tables = self.tables
        options = _extremes(tables.options(replicas))
        self.held = np.array([prefix(self._state(option)) for option in options])
        self.extra = np.array([prefix(self._exchanged(option)) for option in options])
        alike = [(option.zero, *(degree > 1 for degree in tables.ranks(option.together))) for option in options]
        kinds = list(dict.fromkeys(alike))
        first = [options[alike.index(kind)] for kind in kinds]
        self.moments = [
            RangeMost(filling.working + tables.whole(tables.ranks(option.together), option.zero)) for option in first
        ]
        self.moment_of = np.array([kinds.index(each) for each in alike], dtype=np.int64)
        self.rows = np.arange(len(options))
        self._known: dict[tuple[int, int], int] = {}

    def _state(self, option: Option) -> Ints:
        """Return what each layer adds to a stage at least; a sum is rounded up once, and not for each layer."""
        tables = self.tables
        parts = zip((tables.dense, tables.expert), tables.ranks(option.together), strict=True)
        dense, expert = (state(weights, tables.copies, option.zero, degree) for weights, degree in parts)
        return np.maximum(dense + expert - (2 if option.zero else 0), 0)

    def _exchanged(self, option: Option) -> Ints:
        """Return the ticks that each layer exchanges at least; up to six times may each be rounded down."""
        dense, expert = self.filling.extra_s(option)
        ticks = np.floor(self.tables.dense * dense + self.tables.expert * expert) - 3
        return np.maximum(ticks, 0).astype(np.int64)

    def fewest(self, load: int, enough: int) -> int:
        """Return how many stages there are at least if none takes longer than a load, or that they are more."""
        key = load, enough
        if key not in self._known:
            self._known[key] = self._fewest(load, enough)
        return self._known[key]

    def _fewest(self, load: int, enough: int) -> int:
        end, work = self.tables.layers, self.filling.work
        if not len(self.rows):
            return enough + 1
        for stages in range(1, enough + 1):
            first = int(np.searchsorted(work, work[end] - load))
            if first >= end:
                return enough + 1
            end = self._reach(first, end, load, self.tables.flying(self.replicas, stages))
            if end == 0:
                return stages
        return enough + 1

    def _reach(self, first: int, end: int, load: int, flying: int) -> int:
        """Return with which layer a stage that ends there may begin, from a first one that its work allows."""
        low, high = np.full_like(self.rows, first), np.full_like(self.rows, end)
        fits = self._fits(low, end, load, flying)
        if fits.any():
            return first
        low += 1
        while (low < high).any():
            middle = (low + high) // 2
            fits = self._fits(middle, end, load, flying)
            high, low = np.where(fits, middle, high), np.where(fits, low, np.minimum(middle + 1, high))
        return int(high.min())

    def _fits(self, first: Ints, end: int, load: int, flying: int) -> np.ndarray:
        filling, rows = self.filling, self.rows
        ends = np.full_like(first, end)
        moment = np.array([most.most(first, ends) for most in self.moments])[self.moment_of, rows]
        room = (self.tables.capacity - (self.held[rows, end] - self.held[rows, first]) - moment) // flying
        missing = np.maximum(filling.kept[end] - filling.kept[first] - room, 0)
        again = np.where(missing > 0, NEVER, 0)
        for kind in filling.kinds:
            layers = -(-missing // kind.most)
            taken = np.maximum(layers * kind.least, np.floor(missing * kind.ratio * (1 - 1e-9)).astype(np.int64))
            possible = missing <= kind.freed[end] - kind.freed[first]
            again = np.where(possible, np.minimum(again, taken), again)
        busy = filling.work[end] - filling.work[first] + self.extra[rows, end] - self.extra[rows, first]
        fits: np.ndarray = (again < NEVER) & (busy + again <= load) | (first >= end)
        return fits


def _extremes(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """Return of type 1 the largest groups, in the place of type 0 as well: more memory or less time has no other."""
    largest = next((option for option in options if option.zero == 1), None)
    return tuple(option for option in options if option == largest or option.zero > 1 or (not largest and not option.zero))
