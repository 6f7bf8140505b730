"""Tables of the stages of a variant, up to a depth, where network times follow from the places of all members."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.cost.memory import state
from nest.tables.grouped import GroupedTables, Pair
from nest.tables.repeated import Fewest, Repeating, Repeats, Stages
from nest.tables.shares import Option, Ranks, Shares
from nest.units import NEVER, Ints, distinct

MOST_SHARDED = 32
"""Ways to shard whose memory is kept for reuse."""


class Recomputation(NamedTuple):
    """What stages recompute so that they fit, the fastest way.

    Parameters
    ----------
    ticks
        What it adds to their loads; `NEVER` where nothing makes them fit.
    kind
        What they compute again: 0 for nothing, then a place in `GroupedTables.repeating`, from 1.
    layers
        How many do.
    """

    ticks: Ints
    kind: Ints
    layers: Ints


class GroupedBand:
    """Tables of the stages ``[first, first + 1 + column)`` of one variant, columns up to a depth.

    Attributes
    ----------
    first, end, valid
        Cuts before and behind each stage; whether it is within the model.
    reached
        The same as ``end`` where it is, and the last cut elsewhere.
    work, dense, expert
        Ticks and quanta of each stage.
    """

    def __init__(self, tables: GroupedTables, depth: int) -> None:
        self.tables, self.depth = tables, depth
        self._cut()
        self.work, self.dense, self.expert = map(self.sums, (tables.work, tables.dense, tables.expert))
        self._kept = self.sums(tables.activations)
        self._hops: dict[tuple[Pair, ...], Ints] = {}
        self._states: dict[tuple[Ranks, int], tuple[Ints, Ints]] = {}
        self._repeats: dict[tuple[int, int, bool, bool], Fewest] = {}
        self._most: dict[tuple[int, bool, bool], Ints] = {}

    def _cut(self) -> None:
        """Set which stages there are."""
        self.first: Ints = np.arange(self.tables.layers)[:, None]
        self.end: Ints = self.first + np.arange(self.depth) + 1
        self.valid: np.ndarray = self.end <= self.tables.layers
        self.reached: Ints = np.minimum(self.end, self.tables.layers)

    def _cuts_of(self, chosen: tuple[Ints, ...]) -> tuple[Ints, Ints]:
        """Return the cuts before and behind some stages, given by their indices in the tables."""
        first, column = chosen
        return first, first + column + 1

    def sums(self, values: Ints) -> Ints:
        """Return the sum of a value of layers in each stage."""
        ends = self.tables.by_cut(values)
        found: Ints = ends[self.reached] - ends[self.first]
        return found

    def _largest(self, values: Ints) -> Ints:
        """Return the largest value of a layer in each stage."""
        padded = np.concatenate([values, np.zeros(self.depth, dtype=np.int64)])
        columns = np.lib.stride_tricks.sliding_window_view(padded, self.depth)[: self.tables.layers]
        largest: Ints = np.maximum.accumulate(columns, axis=1)
        return largest

    def hops(self, pairs: tuple[Pair, ...]) -> Ints:
        """Ticks of the two transfers of each stage, in the slowest of the replicas that see these levels."""
        if pairs not in self._hops:
            hops = self.tables.hops
            each = [hops(entry)[self.first] + hops(out)[self.reached] for entry, out in pairs]
            self._hops[pairs] = np.maximum.reduce(each)
        return self._hops[pairs]

    @cached_property
    def loads_of_weights(self) -> tuple[Ints, Ints, Ints]:
        """Different pairs of dense and expert quanta among the stages, and which pair each stage has."""
        dense, expert = distinct(self.dense), distinct(self.expert)
        code = np.searchsorted(dense, self.dense) * len(expert) + np.searchsorted(expert, self.expert)
        codes = distinct(code)
        return dense[codes // len(expert)], expert[codes % len(expert)], np.searchsorted(codes, code)

    def syncs(self, shares: Shares, zero: int) -> Ints:
        """Ticks to synchronise stages of each pair of `loads_of_weights`."""
        return self.tables.sync(shares, zero, *self.loads_of_weights[:2])

    def spread_out(self, values: Ints) -> Ints:
        """Return values of pairs of `loads_of_weights` as values of stages."""
        found: Ints = values[self.loads_of_weights[2]]
        return found

    def recomputation(self, option: Option, flying: int, asked: np.ndarray) -> Recomputation:
        """Return what stages recompute under a way to shard; `NEVER` where they are not asked for, too."""
        room, without = self._rooms(option)
        plain = asked & (self._kept <= without // flying) if "none" in self.tables.kinds else np.zeros_like(asked)
        ticks = np.where(plain, 0, NEVER)
        kind, count = np.zeros_like(ticks), np.zeros_like(ticks)
        left = np.nonzero(asked & ~plain & self.valid & (room >= 0))
        if len(left[0]) and self.tables.repeating:
            stages = Stages(*self._cuts_of(left), room[left], self._kept[left])
            for at in range(len(self.tables.repeating)):
                repeats = self._repeating(at, option)
                fewest = repeats.fewest(stages, flying)
                added = repeats.added(stages, fewest)
                better = added < ticks[left]
                where = tuple(each[better] for each in left)
                ticks[where], kind[where], count[where] = added[better], at + 1, fewest[better]
        if "none" not in self.tables.kinds:
            idle = asked & (self._able == 0) & (self._kept <= without // flying)
            ticks[idle] = 0
        return Recomputation(ticks, kind, count)

    @cached_property
    def _able(self) -> Ints:
        """How many layers of each stage can recompute in any of the ways that are allowed."""
        able = [each.able for each in self.tables.repeating]
        return self.sums(np.logical_or.reduce(able).astype(np.int64))

    def _rooms(self, option: Option) -> tuple[Ints, Ints]:
        """Return the quanta that the state of each stage leaves, and those left beside what is in use for a moment."""
        ranks = self.tables.ranks(option.together)
        key = ranks, option.zero
        if key not in self._states:
            if len(self._states) >= MOST_SHARDED:
                self._states.clear()
            copies = self.tables.copies
            held = [
                state(weights, copies, option.zero, degree)
                for weights, degree in zip((self.dense, self.expert), ranks, strict=True)
            ]
            room = self.tables.capacity - held[0] - held[1]
            self._states[key] = room, np.where(self.valid, room - self._moment(option), -1)
        return self._states[key]

    def _moment(self, option: Option) -> Ints:
        """Quanta in use for a moment in each stage without recomputation."""
        ranks = self.tables.ranks(option.together)
        key = option.zero, ranks.dense > 1, ranks.expert > 1
        if key not in self._most:
            self._most[key] = self._largest(self.tables.working + self.tables.whole(ranks, option.zero))
        return self._most[key]

    def _repeating(self, at: int, option: Option) -> Fewest:
        ranks = self.tables.ranks(option.together)
        key = at, option.zero, ranks.dense > 1, ranks.expert > 1
        if key not in self._repeats:
            tables, whole = self.tables, self.tables.whole(ranks, option.zero)
            moment = tables.working + whole
            self._repeats[key] = self._repeats_of(tables.repeating[at], tables.activations, moment, whole)
        return self._repeats[key]

    def _repeats_of(self, repeating: Repeating, kept: Ints, moment: Ints, whole: Ints) -> Fewest:
        return Repeats(repeating, kept, moment, whole, self.tables.problem.choices.recomputed)

    def least_need(self, option: Option, flying: int) -> np.ndarray:
        """Return which stages may fit at all, as if each layer kept as little as it can."""
        room = self._rooms(option)[0]
        fits: np.ndarray = self.valid & (self._least_kept <= room // flying)
        return fits

    @cached_property
    def _least_kept(self) -> Ints:
        return self.sums(self.tables.least_kept)
