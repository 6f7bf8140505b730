"""Plans of one outer choice under the objective `sum`: the recursion over (stage from the end, first layer).

All stages are equally wide, so that what the ``q``-th stage from the end sees depends on ``q`` alone. For a cap on the
load and one on the synchronisation of every stage, the least sum of loads is a shortest path:

    ``sum_q[first] = min over end > first of load_q(first, end) + sum_{q-1}[end]``,  ``sum_0[layers] = 0``,

over the stages that keep both caps and fit their memory (C11); the load of a stage is that of the fastest way to shard
and to recompute that does. Stages are runs of layers by construction (C2, C3); where layers branch, a cut is a downset
in the place of a number of layers, and a stage the difference of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nest.dp.masks import Role, StageMasks
from nest.dp.sum_cuts import Cuts, Entries, cuts_of
from nest.dp.watch import Watch
from nest.places import Placing
from nest.tables import Ends, GroupedBand
from nest.tables.grouped import ANY, Site
from nest.tables.repeated import Passing
from nest.tables.shares import Holders, Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import LONGEST, NEVER, Ints, distinct


class Step(NamedTuple):
    """What one stage sees, and what side constraints may know of it.

    Parameters
    ----------
    site
        Its boundaries and the holders of its weights.
    passing
        Its microbatches.
    role, start
        For side constraints; 0 for a start that none of them looks at.
    holds
        Which ends of the model.
    """

    site: Site
    passing: Passing
    role: Role
    start: int
    holds: Ends = ANY


class Holding(NamedTuple):
    """What holds for all stages of an outer choice.

    Parameters
    ----------
    options
        How a stage may shard.
    placing
        Where their blocks are.
    """

    options: tuple[Option, ...]
    placing: Placing


class Turn(NamedTuple):
    """What holds for all ways to shard a stage in one place.

    Parameters
    ----------
    band
        Tables of the stages on the devices there.
    passing
        Its microbatches.
    ends
        Ticks of each stage to sum the gradients of its copies of a table.
    allowed
        Which stages side constraints leave, and the largest load that counts.
    room
        Ticks that are left of that load to what sharding adds.
    most_sync
        Ticks that they may synchronise at most.
    """

    band: GroupedBand
    passing: Passing
    ends: Ints
    allowed: np.ndarray
    room: Ints
    most_sync: int


MOST_ADDED = 2**21
"""Figures of stages that are kept for reuse, of each of two kinds."""


class Way(NamedTuple):
    """How a stage shards, and what how many layers recompute: a place in `GroupedTables.repeating` from 1, or 0."""

    option: Option
    kind: int
    layers: int


@dataclass(frozen=True, slots=True)
class StageTables:
    """Every stage in one place: load and synchronisation of the fastest way that is allowed, and which that is.

    Both are `NEVER` where none is.
    """

    load: Ints
    sync: Ints
    option: Ints
    kind: Ints
    count: Ints


@dataclass(frozen=True, slots=True)
class Path:
    """A way through the recursion.

    Attributes
    ----------
    loads, slowest, sync
        Sum and largest of the loads, and largest synchronisation.
    cuts, ways
        Numbers of the cuts from that before all layers to that behind all, and how each stage shards and recomputes.
    stages
        Where each stage is in tables.
    """

    loads: int
    slowest: int
    sync: int
    cuts: tuple[int, ...]
    ways: tuple[Way, ...]
    stages: tuple[Entries, ...]


@dataclass(frozen=True)
class Bands:
    """Tables of stages of at most so many layers by the ends that they hold, and masks over them, made when asked for.

    Parameters
    ----------
    depth
        Layers of a stage at most.
    make
        Makes those of stages that hold some ends.
    """

    depth: int
    make: Callable[[Ends], GroupedBand]
    _made: dict[Ends, tuple[GroupedBand, StageMasks]] = field(default_factory=dict)

    def at(self, ends: Ends) -> tuple[GroupedBand, StageMasks]:
        """Return tables and masks of stages that hold some ends."""
        if ends not in self._made:
            band = self.make(ends)
            self._made[ends] = band, StageMasks(band)
        return self._made[ends]


class Added(NamedTuple):
    """What a way to shard adds to each stage: ticks of its load, recomputation apart, and once per iteration."""

    own: Ints
    waits: Ints


class _Kept:
    """Stages that hold the same ends of the model: their tables, and what is known of ways to shard them."""

    def __init__(self, band: GroupedBand, masks: StageMasks) -> None:
        self.band, self.masks, self.cuts = band, masks, cuts_of(band)
        self.sharded: dict[tuple[frozenset[str], Holders], list[ShardedWay]] = {}
        self.undominated: dict[tuple[frozenset[str], tuple[Shares, ...]], list[ShardedWay]] = {}
        self._most = max(MOST_ADDED // max(band.valid.size, 1), 1)
        self._added: dict[ShardedWay, Added] = {}

    def added(self, way: ShardedWay, band: GroupedBand) -> Added:
        """Return what one of the ways adds; some are kept, as it does not depend on microbatches in flight."""
        if way not in self._added:
            if len(self._added) >= self._most:
                self._added.clear()
            self._added[way] = Added(band.own(way), band.waits(way))
        return self._added[way]


class SumRows:
    """The recursion for one outer choice.

    Parameters
    ----------
    bands
        Tables of the stages that may be used, and what side constraints leave of them.
    steps
        Of the 1st, 2nd, ... stage from the end.
    holding
        What holds for all of them.
    watch
        Of the search.
    """

    def __init__(self, bands: Bands, steps: tuple[Step, ...], holding: Holding, watch: Watch) -> None:
        self.steps, self.watch, self.depth = steps, watch, bands.depth
        self.options, self.placing = holding
        self.most_sync, self.most_load = NEVER - 1, LONGEST - 1
        self._bands, self._kept = bands, dict[Ends, _Kept]()
        self._stages: dict[Step, StageTables] = {}

    @property
    def any(self) -> GroupedBand:
        """Tables of all stages, whatever ends of the model they hold."""
        return self._of(ANY).band

    def band(self, step: Step) -> GroupedBand:
        """Return the tables of the stages in one place, on the devices there."""
        return self._of(step.holds).band.on(step.site.classes)

    def _of(self, ends: Ends) -> _Kept:
        if ends not in self._kept:
            self._kept[ends] = _Kept(*self._bands.at(ends))
        return self._kept[ends]

    def admitted(self, step: Step) -> np.ndarray:
        """Return the stages that side constraints leave in one place."""
        admitted = self._of(step.holds).masks.at(step.role, step.start, self.placing.stride, self.placing.line)
        valid = self.band(step).valid
        found: np.ndarray = valid if admitted is None else valid & admitted
        return found

    def lower_sync(self, most: int) -> None:
        """Allow no stage to synchronise longer than ``most`` ticks from now on."""
        self.most_sync = most
        self._stages.clear()

    def lower_load(self, most: int) -> None:
        """Look for no stage that takes longer than ``most`` ticks from now on."""
        self.most_load = min(most, self.most_load)

    def stage(self, step: Step) -> StageTables:
        """Return the tables of every stage in one place; of those that take too long some may be missing."""
        if step not in self._stages:
            self.watch.check()
            self._stages[step] = self._stage(step)
        return self._stages[step]

    def _stage(self, step: Step) -> StageTables:
        band, room = self.band(step), self._room(step)
        shape, allowed = band.valid.shape, self.admitted(step) & (room >= 0)
        added, sync = (np.full(shape, NEVER, dtype=np.int64) for _ in range(2))
        found = StageTables(added, sync, *(np.zeros(shape, dtype=np.int64) for _ in range(3)))
        ends, kept = band.ends(step.site.ends), self._of(step.holds)
        for at, each in enumerate(self.ways(step.site, step.holds) if allowed.any() else ()):
            if found.load.max(where=allowed, initial=0) >= int(each.least.min()):
                turn = Turn(band, step.passing, ends, allowed, room, self.most_sync)
                _consider(found, turn, at, (each, kept.added(each, band)))
        usable = added <= room
        load = np.where(usable, self.most_load - room + added, NEVER)
        sync[~usable] = NEVER
        return StageTables(load, sync, found.option, found.kind, found.count)

    def _room(self, step: Step) -> Ints:
        """Return what the work and the transfers of each stage leave of the largest load that counts."""
        band = self.band(step)
        room: Ints = self.most_load - band.work - band.hops(step.site.pairs)
        return room

    def ways(self, site: Site, ends: Ends = ANY) -> list[ShardedWay]:
        """Return the ways to shard of stages in one place, without those than which another is never worse."""
        known, key = self._of(ends), (site.classes, site.holders)
        if key not in known.sharded:
            band, kept = known.band.on(site.classes), list[ShardedWay]()
            shares = tuple(band.tables.shares(site.holders, option.together) for option in self.options)
            if (site.classes, shares) not in known.undominated:
                for option, each in zip(self.options, shares, strict=True):
                    way = band.way(option, each)
                    if not any(other.beats(way) for other in kept):
                        kept = [*(other for other in kept if not way.beats(other)), way]
                known.undominated[site.classes, shares] = kept
            known.sharded[key] = known.undominated[site.classes, shares]
        return known.sharded[key]

    def least_slowest(self) -> int:
        """Return the least of the largest loads, `NEVER` where no plan keeps the cap on the synchronisation."""
        return self._least_most([self.stage(step).load for step in self.steps])

    def least_sync(self) -> int:
        """Return a time below which no plan synchronises: the least of the largest, whatever the loads.

        As if the layers of a stage recomputed each in the way in which it keeps the least.
        """
        return self._least_most([self.soonest(step) for step in self.steps])

    def soonest(self, step: Step) -> Ints:
        """Return how long stages in one place synchronise at least, whatever their loads."""
        band = self.band(step)
        sync, ends = np.full(band.valid.shape, NEVER, dtype=np.int64), band.ends(step.site.ends)
        kept, counts = self._of(step.holds), self._room(step) >= 0
        for each in self.ways(step.site, step.holds):
            fits = counts & band.least_need(each.option, step.passing)
            np.minimum(sync, kept.added(each, band).waits + ends, out=sync, where=fits)
        return sync

    def _least_most(self, tables: list[Ints]) -> int:
        row = self._cuts(1).start()
        for position, values in enumerate(tables, start=1):
            cuts, begins = self._cuts(position), self._begins(position)
            stages = cuts.stages(begins, self.depth)
            most = np.maximum(values[stages], cuts.beyond(row, stages))
            row = np.full_like(row, NEVER)
            row[begins] = cuts.least(most, stages)
        return int(row[0])

    def loads(self, least: int, most: int) -> Ints:
        """Return the distinct loads of stages from one limit to another, ascending."""
        tables = (self.stage(step).load for step in dict.fromkeys(self.steps))
        found = [each[(each >= least) & (each <= most)] for each in tables]
        return distinct(np.concatenate(found))

    def least_sum(self, most: int) -> Path | None:
        """Return the plan of the least sum of loads, each at most ``most`` ticks, None where there is none."""
        tables = self._of(self.steps[0].holds).band.tables
        depth, row = min(self.depth, max(1, tables.deepest_within(most))), self._cuts(1).start()
        rows = [row]
        for position, step in enumerate(self.steps, start=1):
            cuts, begins = self._cuts(position), self._begins(position)
            stages = cuts.stages(begins, depth)
            load = self.stage(step).load[stages]
            total = np.where(load <= most, load + cuts.beyond(row, stages), NEVER)
            row = np.full_like(row, NEVER)
            row[begins] = np.minimum(cuts.least(total, stages), NEVER)
            rows.append(row)
        return self._trace(rows, most) if row[0] < NEVER else None

    def _trace(self, rows: list[Ints], most: int) -> Path:
        found, ways, entries, slowest, sync = [0], list[Way](), list[Entries](), 0, 0
        for position in range(len(self.steps), 0, -1):
            first, tables, cuts = found[-1], self.stage(self.steps[position - 1]), self._cuts(position)
            stages = cuts.stages(slice(first, first + 1), self.depth)
            load = tables.load[stages]
            total = load + cuts.beyond(rows[position - 1], stages)
            end, at = cuts.stage(first, int(np.argmin(np.where(load <= most, total, NEVER))))
            slowest, sync = max(slowest, int(tables.load[at])), max(sync, int(tables.sync[at]))
            found.append(end)
            entries.append(at)
            step = self.steps[position - 1]
            option = self.ways(step.site, step.holds)[int(tables.option[at])].option
            ways.append(Way(option, int(tables.kind[at]), int(tables.count[at])))
        return Path(int(rows[-1][0]), slowest, sync, tuple(found), tuple(ways), tuple(entries))

    def _begins(self, position: int) -> slice:
        """Return the cuts with which a stage may begin: other stages have to fit before it, and behind it."""
        return self._cuts(position).begins(len(self.steps) - position, position)

    def _cuts(self, position: int) -> Cuts:
        return self._of(self.steps[position - 1].holds).cuts


def _consider(found: StageTables, turn: Turn, at: int, sharded: tuple[ShardedWay, Added]) -> None:
    """Enter a way to shard where it is better than those before, with as little recomputation as it needs."""
    (band, passing, ends, allowed, room, most_sync), (way, (own, waits)) = turn, sharded
    waits = waits + ends
    may = allowed & (waits <= most_sync) & (own <= room)
    may &= (own < found.load) | ((own == found.load) & (waits < found.sync))
    if not may.any():
        return
    again = band.recomputation(way, passing, may)
    total = np.where(again.ticks < NEVER, own + again.ticks, NEVER)
    better = (total < found.load) | ((total == found.load) & (waits < found.sync) & (total < NEVER))
    chosen = np.full_like(again.kind, at)
    for into, values in zip(
        (found.load, found.sync, found.option, found.kind, found.count),
        (total, waits, chosen, again.kind, again.layers),
        strict=True,
    ):
        np.copyto(into, values, where=better)
