"""What the stages of an outer choice may be under the objective `sum`: layers, and how they shard and recompute.

All stages of an outer choice are as wide as its variant, so that the ``q``-th stage from the end sees the same wherever
the others are cut, and stands on the same classes of devices. What a stage of some layers costs in each of its ways is
in the tables, `nest.tables`, of these devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from nest.constraints import Filters, Run, Site
from nest.milp.sum_choices import SumChoice
from nest.milp.sum_chunks import ChunkWays
from nest.milp.sum_sent import Marks, StageBytes
from nest.milp.sum_ways import Kept, Ways, undominated
from nest.tables import Ends, GroupedBand, GroupedTables, band_of
from nest.tables.grouped import Pair
from nest.tables.grouped import Site as Seen
from nest.tables.repeated import Passing
from nest.tables.shares import Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import LONGEST, NEVER, Ints


class _Sight(NamedTuple):
    """What a stage sees of its outer choice: the network, its microbatches, ends, and levels that its bytes cross."""

    seen: Seen
    passing: Passing
    ends: Ends
    marks: Marks


class _Sharded(NamedTuple):
    """What an option adds in one place: to the load of each stage, recomputation apart, and once per iteration."""

    way: ShardedWay
    own: Ints
    waits: Ints


class StageWays:
    """The ways of the stages of one variant.

    Parameters
    ----------
    tables
        Of the variant.
    kept
        ``"every"`` way; of each option the fastest recomputation with which a stage fits (``"sharding"``); or of these
        none than which another is no slower in load and synchronisation (``"fastest"``). Where bytes count, of each
        kind of recomputation the fastest, and none than which another is no slower and sends no more.
    """

    def __init__(self, tables: GroupedTables, kept: Kept) -> None:
        self.tables, self.kept = tables, kept
        self._bands: dict[tuple[int, Ends], GroupedBand] = {}
        self._sharded: dict[tuple[GroupedBand, Shares, int], _Sharded] = {}
        self.bytes = StageBytes(tables)
        self._interleaved = ChunkWays(tables, kept, self.bytes)

    @property
    def work(self) -> int:
        """Ticks that the loads of all stages of a plan add up to at least."""
        return int(self.tables.work.sum())

    @property
    def most_sent(self) -> tuple[int, ...]:
        """Bytes that all stages of a plan together may send, by column of `Ways.sent`."""
        return self.bytes.most

    def cuts_of(self, choice: SumChoice) -> int:
        """Return how many cuts the paths of an outer choice have; interleaved there is one between all stages."""
        return self.tables.cuts if choice.chunks == 1 else choice.stages + 1

    def below(self, choice: SumChoice, limit: int) -> list[Ways]:
        """Return the stages of plans of a choice below a limit, by position; some has none where there is no plan."""
        most = choice.most_load(self.work, limit)
        return [Ways.together([])] if most < 0 else self.positions(choice, most)

    def positions(self, choice: SumChoice, most: int = LONGEST - 1) -> list[Ways]:
        """Return the stages of a choice of a load of at most ``most``, by position from the end.

        Those at the ends of the pipeline are few, and come first: if there is none of them, there is none at all.
        """
        if choice.chunks > 1:
            return self._interleaved.positions(choice, most)
        tables, known, marks = self.tables, dict[_Sight, Ways](), self.bytes.marks(choice)
        sites = tables.sites(choice.stages, choice.replicas, choice.placing)
        options = tables.options(choice.replicas, choice.stages)

        def at(position: int) -> Ways:
            """Return the ways of the stages at a position, counted from the end of the pipeline."""
            passing = tables.passing(choice.replicas, position, choice.stages, choice.schedule)
            band = self._band(most, tables.held_ends(position, choice.stages))
            key = _Sight(sites[-position], passing, band.at, marks[-position])
            if key not in known:
                known[key] = self._ways(band.on(key.seen.classes), key, options, most)
            return known[key]

        return self._in_turn(choice, at)

    def bare(self, choice: SumChoice, most: int) -> list[Ways]:
        """Return the same as if stages exchanged nothing, computed nothing again and fitted any memory: one way each.

        Their loads are no larger than those of any of their ways. For choices without chunks.
        """
        tables, known = self.tables, dict[tuple[GroupedBand, tuple[Pair, ...]], Ways]()
        sites = tables.sites(choice.stages, choice.replicas, choice.placing)

        def at(position: int) -> Ways:
            """Return the stages at a position, by their work and transfers alone, as ways that hold no memory."""
            site = sites[-position]
            band = self._band(most, tables.held_ends(position, choice.stages)).on(site.classes)
            key = band, site.pairs
            if key not in known:
                load = band.work + band.hops(site.pairs)
                chosen = np.nonzero(band.valid & (load <= most))
                none = np.zeros((len(chosen[0]), 1 + len(self.bytes.most)), dtype=np.int64)
                known[key] = Ways._make([*band.cuts_of(chosen), load[chosen], *[none[:, 0]] * 4, none[:, 1:]])
            return known[key]

        return self._in_turn(choice, at)

    def _in_turn(self, choice: SumChoice, ways_at: Callable[[int], Ways]) -> list[Ways]:
        """Return the stages by position from the end, none of them where one has none."""
        found = dict[int, Ways]()
        for position in sorted(range(1, choice.stages + 1), key=lambda at: 1 < at < choice.stages):
            found[position] = self._placed(choice, position, ways_at(position))
            if not len(found[position].first):
                return [Ways.together([], len(self.bytes.most))] * choice.stages
        return [found[position] for position in range(1, choice.stages + 1)]

    def alone(
        self, seen: Seen, passing: Passing, options: tuple[Option, ...], ends: tuple[bool, bool], most: int
    ) -> Ways:
        """Return the stages in one place, whichever plan they are of, of a load of at most ``most``.

        Parameters
        ----------
        ends
            Whether they hold the first layer, and the last one.
        """
        band = self._band(most, Ends(*ends))
        ways = self._ways(band, _Sight(seen, passing, band.at, ()), options, most)
        held = ways.first == 0, ways.end == self.tables.cuts - 1
        return ways.pick(np.logical_and.reduce([each == wanted for each, wanted in zip(held, ends, strict=True)]))

    def _band(self, most: int, ends: Ends) -> GroupedBand:
        """Return tables of all stages of a load of at most ``most``, and longer ones."""
        depth = max(1, self.tables.deepest_within(min(most, self.work)))
        rounded = min(self.tables.layers, 1 << max(depth - 1, 0).bit_length())
        if (rounded, ends) not in self._bands:
            self._bands[rounded, ends] = band_of(self.tables, rounded, ends)
        return self._bands[rounded, ends]

    def _placed(self, choice: SumChoice, position: int, ways: Ways) -> Ways:
        """Return the stages that a position and side constraints leave: the first and the last have an end each."""
        tables, filters = self.tables, self.tables.filters
        kept = (ways.first == 0) == (position == choice.stages)
        kept &= (ways.end == tables.cuts - 1) == (position == 1)
        ways = ways.pick(kept)
        if not filters.local or not len(ways.first):
            return ways
        run, start = Run(ways.first, ways.end), np.full(len(ways.first), choice.starts[-position])
        site = Site(position, start, tables.width, choice.placing.stride, choice.placing.line)
        masks = [
            filters.run(choice.variant, run),
            filters.stage(choice.variant, choice.stages, position, run),
            filters.place(choice.outer, run, site),
        ]
        there = [mask for mask in masks if mask is not None]
        return ways.pick(np.logical_and.reduce(there)) if there else ways

    def _ways(self, band: GroupedBand, sight: _Sight, options: tuple[Option, ...], most: int) -> Ways:
        """Return the stages that fit their memory (C11) in one place, whichever layers they have."""
        seen, plain, parts = sight.seen, band.work + band.hops(sight.seen.pairs), list[Ways]()
        for at, option in enumerate(options):
            may = band.least_need(option, sight.passing) & (plain <= most)
            if not may.any():  # which is seen before anything is known of exchanges
                continue
            sharded = self._of(band, seen, option)
            own = plain + sharded.own
            may &= own <= most
            sent = self.bytes.sent(band, seen, option, sight.marks)
            for added, kind, count in self._repeats(band, sharded.way, sight.passing, may):
                chosen = np.nonzero(may & (added < NEVER) & (own + added <= most))
                first, end = band.cuts_of(chosen)
                columns = own + added, sharded.waits, np.full_like(own, at), kind, count
                rows = self.bytes.rows(band, sent, chosen, (seen, option, kind, count))
                parts.append(Ways._make([first, end, *(each[chosen] for each in columns), rows]))
        found = Ways.together(parts, len(self.bytes.most))
        return undominated(found, self.tables.cuts) if self.kept == "fastest" else found

    def _repeats(
        self, band: GroupedBand, way: ShardedWay, passing: Passing, may: np.ndarray
    ) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield what recomputation adds to the load of each stage, what it computes again, and in how many layers."""
        if self.kept != "every" and not self.bytes:
            yield band.recomputation(way, passing, may)
            return
        nothing, plain = np.zeros(may.shape, dtype=np.int64), band.plain(way.option, passing)
        yield np.where(plain, 0, NEVER), nothing, nothing
        if self.kept != "every":
            for at in range(len(self.tables.repeating)):
                count = band.fewest(way.option, passing, at, may & ~plain)
                yield band.repeated(way, passing, at, count), np.full_like(nothing, at + 1), count
            return
        numbers = self.tables.problem.choices.recomputed
        for at, repeating in enumerate(self.tables.repeating):
            able, done = band.sums(repeating.able.astype(np.int64)), np.zeros(may.shape, dtype=np.int64)
            for number in sorted(numbers or range(1, int(repeating.able.sum()) + 1)):
                count = np.where(may & (np.minimum(number, able) > done), np.minimum(number, able), 0)
                done = np.maximum(done, count)
                yield band.repeated(way, passing, at, count), np.full_like(nothing, at + 1), count

    def _of(self, band: GroupedBand, seen: Seen, option: Option) -> _Sharded:
        shares = self.tables.shares(seen.holders, option.together)
        key = band, shares, option.zero
        if key not in self._sharded:
            way = band.way(option, shares)
            self._sharded[key] = _Sharded(way, band.own(way), band.waits(way))
        found = self._sharded[key]
        return found._replace(waits=found.waits + band.ends(seen.ends))


def kept_under(filters: Filters) -> Kept:
    """Return which ways of a stage side constraints that tie stages together may tell apart."""
    if any(each.looks_at_recompute for each in filters.coupling):
        return "every"
    return "sharding" if any(each.looks_at_sharding for each in filters.coupling) else "fastest"
