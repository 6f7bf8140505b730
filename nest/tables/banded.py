"""Tables of the stages of a variant, up to a depth, where network times follow from the places of all members."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.cost.memory import state
from nest.cost.overlap import hideable, left
from nest.tables.grouped import ANY, Ends, GroupedTables, Pair
from nest.tables.repeated import Fewest, Passing, Peaks, Repeating, Repeats, Stages, most_kept
from nest.tables.shares import Option, Ranks, Shares
from nest.tables.ways import ShardedWay, way_of
from nest.units import NEVER, Ints, distinct

FULL = 2**62
"""Quanta of buffers with which nothing fits."""

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


def capped_times(sizes: Ints, count: int) -> Ints:
    """Return multiples of sizes, or more than any device has where they are beyond the range of numbers."""
    return np.where(sizes > FULL // max(count, 1), FULL, sizes * count)


class GroupedBand:
    """Tables of the stages ``[first, first + 1 + column)`` of one variant, of at most ``depth`` layers.

    Parameters
    ----------
    tables
        Of the variant.
    depth
        Most layers of a stage.
    ends
        Which ends of the model stages hold: those that open it have a single row, those that close it a single column.
    puts_off
        Whether the schedule puts off gradients of weights. These alone run beside sums of gradients then, and until
        they are there a stage keeps all that the microbatch does, so that nothing recomputes.

    Attributes
    ----------
    first, end, valid
        Cuts before and behind each stage; whether it is within the model.
    reached
        The same as ``end`` where it is, and the last cut elsewhere.
    opening, counts
        Place of the first layer of each stage, and how many layers it has.
    work, window, dense, expert, tied
        Ticks and quanta of each stage; ``window`` is what sums of gradients run beside, ``tied`` what is a copy of a
        table that other devices hold.
    """

    def __init__(self, tables: GroupedTables, depth: int, ends: Ends = ANY, *, puts_off: bool = False) -> None:
        self.tables, self.depth, self.at, self.puts_off = tables, depth, ends, puts_off
        self._cut()
        self._rate()
        self.dense, self.expert = map(self.sums, (tables.dense, tables.expert))
        tied, has_table = self.sums(tables.tied), self.sums((np.arange(tables.layers) == tables.table).astype(int)) > 0
        self.tied: Ints = np.where(has_table, 0, tied)
        self.dense -= np.where(has_table, tied, 0)
        self._kept = self.sums(tables.activations)
        self._hops: dict[tuple[Pair, ...], Ints] = {}
        self._states: dict[tuple[Ranks, int], tuple[Ints, Ints]] = {}
        self._tied_sums: dict[tuple[int, ...], Ints] = {}
        self._repeats: dict[tuple[int, int, bool, bool], Fewest] = {}
        self._most: dict[tuple[int, bool, bool], Ints] = {}

        self._on: dict[frozenset[str], GroupedBand] = {}

    def _rate(self) -> None:
        """Set what depends on devices."""
        beside = self.tables.weight if self.puts_off else self.tables.backward
        self.work, self.window = map(self.sums, (self.tables.work, beside))

    def on(self, classes: frozenset[str]) -> GroupedBand:
        """Return the tables of the same stages on devices of some classes together."""
        if not classes:
            return self
        if classes not in self._on:
            made = copy(self)
            made.tables, made._states = self.tables.on(classes), {}
            made._rate()
            self._on[classes] = made
        return self._on[classes]

    def _cut(self) -> None:
        """Set which stages there are."""
        layers = self.tables.layers
        self.first: Ints = np.arange(1 if self.at.opens else layers)[:, None]
        self.end: Ints = np.full_like(self.first, layers) if self.at.closes else self.first + np.arange(self.depth) + 1
        self.opening: Ints = self.first
        self.counts: Ints = self.end - self.first
        self.valid: np.ndarray = (self.end <= layers) & (self.counts <= self.depth)
        self.reached: Ints = np.minimum(self.end, layers)

    def cuts_of(self, chosen: tuple[Ints, ...]) -> tuple[Ints, Ints]:
        """Return the cuts before and behind some stages, given by their indices in the tables."""
        return self.first[chosen[0], 0], self.end[chosen]

    def sums(self, values: Ints) -> Ints:
        """Return the sum of a value of layers in each stage."""
        ends = self.tables.by_cut(values)
        found: Ints = ends[self.reached] - ends[self.first]
        return found

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

    def way(self, option: Option, shares: Shares) -> ShardedWay:
        """Return what a way to shard adds to stages."""
        return way_of(self.tables, option, shares, self.loads_of_weights[:2], puts_off=self.puts_off)

    def own(self, way: ShardedWay) -> Ints:
        """Ticks that a way to shard adds to the load of each stage, recomputation apart."""
        if way.option.zero == 2:
            scattered: Ints = left(self.sums(way.behind), self.window, self.tables.hidden)
            return scattered
        own: Ints = self.sums(way.extra) + self.opened(way.ahead)
        return own

    def opened(self, values: Ints) -> Ints:
        """Return a value of the layers with which stages begin."""
        found: Ints = values[self.opening]
        return found

    def gathered(self, way: ShardedWay) -> Ints:
        """Ticks among these that go with the forward pass."""
        gathered: Ints = self.sums(way.early) + self.opened(way.ahead)
        return gathered

    def late(self, way: ShardedWay) -> Ints:
        """Ticks among these that go with gradients of weights which are put off."""
        return self.own(way) if self.puts_off and way.option.zero == 2 else self.sums(way.late)

    def waits(self, way: ShardedWay) -> Ints:
        """Ticks of each stage once per iteration: what is left of its exchanges, and the optimizer's step."""
        if not self.tables.hidden:
            return self.spread_out(way.summed + way.rest)
        summed = self.spread_out(way.summed)
        window = np.maximum(self.window - self.sums(way.behind), 0)
        window = np.minimum(hideable(summed, self.counts), window)
        waits: Ints = left(summed, window, self.tables.hidden) + self.spread_out(way.rest)
        return waits

    def ends(self, levels: tuple[int, ...]) -> Ints:
        """Ticks of each stage to sum the gradients of its copies of a table."""
        if levels not in self._tied_sums:
            self._tied_sums[levels] = self.tables.summed_ends(levels, self.tied)
        return self._tied_sums[levels]

    def spread_out(self, values: Ints) -> Ints:
        """Return values of pairs of `loads_of_weights` as values of stages."""
        found: Ints = values[self.loads_of_weights[2]]
        return found

    def recomputation(self, way: ShardedWay, passing: Passing, asked: np.ndarray) -> Recomputation:
        """Return what stages recompute under a way to shard; `NEVER` where they are not asked for, too."""
        option, room = way.option, self.rooms(way.option, passing)
        plain = asked & self.plain(option, passing)
        ticks = np.where(plain, 0, NEVER)
        kind, count = np.zeros_like(ticks), np.zeros_like(ticks)
        asking = np.nonzero(asked & ~plain & self.valid & (room >= 0))
        if len(asking[0]) and self.tables.repeating and not self.puts_off:
            stages = Stages(*self.cuts_of(asking), room[asking], self._kept[asking])
            for at in range(len(self.tables.repeating)):
                repeats = self._repeating(at, option)
                fewest = repeats.fewest(stages, passing.flying)
                added = repeats.added(way.again[at], stages, fewest)
                better = added < ticks[asking]
                where = tuple(each[better] for each in asking)
                ticks[where], kind[where], count[where] = added[better], at + 1, fewest[better]
        return Recomputation(ticks, kind, count)

    def plain(self, option: Option, passing: Passing) -> np.ndarray:
        """Return which stages fit without recomputation and may do without it, as no layer can or `none` is allowed."""
        room = self.rooms(option, passing)
        fits: np.ndarray = self._kept <= most_kept(room, self._peak(option), passing.flying)
        return fits if "none" in self.tables.kinds else fits & (self._able == 0)

    def repeated(self, way: ShardedWay, passing: Passing, at: int, count: Ints) -> Ints:
        """Return the ticks that stages add of which so many layers recompute; `NEVER` where they do not fit then.

        Parameters
        ----------
        at
            Place of what they recompute in `GroupedTables.repeating`.
        count
            For each stage, of the layers that can; with 0 it does not fit.
        """
        room, ticks = self.rooms(way.option, passing), np.full(self.valid.shape, NEVER, dtype=np.int64)
        asking = np.nonzero(self.valid & (room >= 0) & (count > 0))
        stages = Stages(*self.cuts_of(asking), room[asking], self._kept[asking])
        repeats = self._repeating(at, way.option)
        fits = repeats.fits(stages, count[asking], passing.flying)
        ticks[asking] = np.where(fits, repeats.added(way.again[at], stages, count[asking]), NEVER)
        return ticks

    def fewest(self, option: Option, passing: Passing, at: int, asked: np.ndarray) -> Ints:
        """Return how many layers of each stage that is asked for recompute at least, 0 where no number makes it fit.

        Parameters
        ----------
        at
            Place of what they recompute in `GroupedTables.repeating`.
        """
        room, count = self.rooms(option, passing), np.zeros(self.valid.shape, dtype=np.int64)
        asking = np.nonzero(asked & self.valid & (room >= 0))
        stages = Stages(*self.cuts_of(asking), room[asking], self._kept[asking])
        count[asking] = self._repeating(at, option).fewest(stages, passing.flying)
        return count

    def sums_again(self, option: Option, at: int, values: Ints, count: Ints) -> Ints:
        """Return the sum of a value of the layers of each stage of which so many recompute.

        Parameters
        ----------
        at
            As for `fewest`.
        values
            Sums of that of the first 0, 1, ... layers that can recompute.
        """
        found = np.zeros(self.valid.shape, dtype=np.int64)
        asking = np.nonzero(self.valid & (count > 0))
        stages = Stages(*self.cuts_of(asking), self._kept[asking], self._kept[asking])
        found[asking] = self._repeating(at, option).added(values, stages, count[asking])
        return found

    @cached_property
    def _able(self) -> Ints:
        """How many layers of each stage can recompute in any of the ways that are allowed."""
        able = [each.able for each in self.tables.repeating]
        return self.sums(np.logical_or.reduce(able).astype(np.int64))

    def rooms(self, option: Option, passing: Passing) -> Ints:
        """Return the quanta that state and buffers leave each stage, -1 where the optimizer's step leaves none."""
        room, stepping = self._state(option)
        if not passing.buffered:
            return np.where(stepping <= room, room, -1)
        received, stays = self.buffers
        done, ahead = passing.buffered, passing.buffered - passing.flying
        room = np.maximum(room - capped_times(stays, done), -1)
        stepping = stepping + capped_times(received, done)
        left = room - capped_times(received, ahead)
        return np.where((stepping <= room) & (left >= 0), left, -1)

    def leaves(self, option: Option) -> Ints:
        """Return what the state leaves each stage, and the optimizer's step: where both are no less, more fits."""
        room, stepping = self._state(option)
        return np.stack([room, np.maximum(room - stepping, -1)])

    @cached_property
    def buffers(self) -> tuple[Ints, Ints]:
        """Quanta that buffers hold of a microbatch: what comes into each stage, and all else of it."""
        alive, parted = self.tables.alive, self.counts < self.tables.layers
        stays: Ints = np.where(parted, 2 * alive[self.reached] + self.sums(self.tables.results), 0)
        received: Ints = np.where(parted, alive[self.first], 0)
        return received, stays

    def _state(self, option: Option) -> tuple[Ints, Ints]:
        """Return the quanta that the state of each stage leaves, -1 for none, and those of the optimizer's step."""
        ranks, copies = self.tables.ranks(option.together), self.tables.copies
        key = ranks, option.zero
        if key not in self._states:
            if len(self._states) >= MOST_SHARDED:
                self._states.clear()
            parts = zip((self.dense, self.expert), ranks, strict=True)
            held = sum(state(weights, copies, option.zero, degree) for weights, degree in parts)
            room = np.where(self.valid, np.maximum(self.tables.capacity - held, -1), -1)
            stepping = copies.stepped * self.tables.stepped_on(ranks, option.zero, self.dense, self.expert)
            self._states[key] = room, stepping
        return self._states[key]

    def _peak(self, option: Option) -> Ints:
        """Quanta that the backward pass of a microbatch needs at its peak in each stage, without recomputation."""
        ranks = self.tables.ranks(option.together)
        key = option.zero, ranks.dense > 1, ranks.expert > 1
        if key not in self._most:
            moment = self.tables.working + self.tables.whole(ranks, option.zero)
            kept = self.tables.activations
            most = self._peaks(np.zeros_like(kept), moment) + self._kept if self.puts_off else None
            self._most[key] = self._peaks(kept, moment) if most is None else most
        return self._most[key]

    def _peaks(self, kept: Ints, moment: Ints) -> Ints:
        return Peaks(kept, moment).most(self.first, self.reached)

    def _repeating(self, at: int, option: Option) -> Fewest:
        ranks = self.tables.ranks(option.together)
        key = at, option.zero, ranks.dense > 1, ranks.expert > 1
        if key not in self._repeats:
            tables, whole = self.tables, self.tables.whole(ranks, option.zero)
            moment = tables.working + whole
            self._repeats[key] = self._repeats_of(tables.repeating[at], tables.activations, moment, whole)
        return self._repeats[key]

    def _repeats_of(self, repeating: Repeating, kept: Ints, moment: Ints, whole: Ints) -> Fewest:
        problem = self.tables.problem
        return Repeats(
            repeating, kept, moment, whole, problem.choices.recomputed, last=problem.training.recomputes_last
        )

    def least_need(self, option: Option, passing: Passing) -> np.ndarray:
        """Return which stages may fit at all, as if each layer kept as little as it can."""
        fits: np.ndarray = self.valid & (self._least_kept <= self.rooms(option, passing) // passing.flying)
        return fits

    @cached_property
    def _least_kept(self) -> Ints:
        return self.sums(self.tables.least_kept)
