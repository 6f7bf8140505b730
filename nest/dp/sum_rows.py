"""Plans of one outer choice under the objective `sum`: the recursion over (stage from the end, first layer).

All stages are equally wide, so that what the ``q``-th stage from the end sees depends on ``q`` alone. For a cap on the
load and one on the synchronisation of every stage, the least sum of loads is a shortest path:

    ``sum_q[first] = min over end > first of load_q(first, end) + sum_{q-1}[end]``,  ``sum_0[layers] = 0``,

over the stages that keep both caps and fit their memory (C11); the load of a stage is that of the fastest way to shard
and to recompute that does. Stages are runs of layers by construction (C2, C3); where layers branch, a cut is a downset
in the place of a number of layers, and a stage the difference of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nest.dp.masks import Role, StageMasks
from nest.dp.sum_cuts import Entries, cuts_of
from nest.dp.watch import Watch
from nest.places import Placing
from nest.tables import GroupedBand
from nest.tables.grouped import Site
from nest.tables.shares import Holders, Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import LONGEST, NEVER, Ints, distinct


class Step(NamedTuple):
    """What one stage sees, and what side constraints may know of it.

    Parameters
    ----------
    site
        Its boundaries and the holders of its weights.
    flying
        Microbatches in flight.
    role, start
        For side constraints; 0 for a start that none of them looks at.
    """

    site: Site
    flying: int
    role: Role
    start: int


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
    flying
        Microbatches in flight.
    ends
        Ticks of each stage to sum the gradients of its copies of a table.
    allowed
        Which stages side constraints leave.
    """

    band: GroupedBand
    flying: int
    ends: Ints
    allowed: np.ndarray


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


class SumRows:
    """The recursion for one outer choice.

    Parameters
    ----------
    band
        Tables of the stages that may be used.
    masks
        What side constraints leave of them.
    steps
        Of the 1st, 2nd, ... stage from the end.
    holding
        What holds for all of them.
    watch
        Of the search.
    """

    def __init__(
        self, band: GroupedBand, masks: StageMasks, steps: tuple[Step, ...], holding: Holding, watch: Watch
    ) -> None:
        self.band, self.masks, self.steps, self.watch = band, masks, steps, watch
        self.options, self.placing = holding
        self.cuts = cuts_of(band)
        self.most_sync = NEVER - 1
        self._stages: dict[Step, StageTables] = {}
        self._sharded: dict[tuple[frozenset[str], Holders], list[ShardedWay]] = {}
        self._undominated: dict[tuple[frozenset[str], tuple[Shares, ...]], list[ShardedWay]] = {}

    def lower_sync(self, most: int) -> None:
        """Allow no stage to synchronise longer than ``most`` ticks from now on."""
        self.most_sync = most
        self._stages.clear()

    def stage(self, step: Step) -> StageTables:
        """Return the tables of every stage in one place."""
        if step not in self._stages:
            self.watch.check()
            self._stages[step] = self._stage(step)
        return self._stages[step]

    def _stage(self, step: Step) -> StageTables:
        band, shape = self.band.on(step.site.classes), self.band.valid.shape
        added, sync = (np.full(shape, NEVER, dtype=np.int64) for _ in range(2))
        found = StageTables(added, sync, *(np.zeros(shape, dtype=np.int64) for _ in range(3)))
        admitted = self.masks.at(step.role, step.start, self.placing.stride, self.placing.line)
        allowed = band.valid if admitted is None else band.valid & admitted
        ends = band.ends(step.site.ends)
        for at, each in enumerate(self.ways(step.site)):
            self._consider(found, Turn(band, step.flying, ends, allowed), at, each)
        usable = added < NEVER
        load = band.work + band.hops(step.site.pairs) + np.where(usable, added, 0)
        usable &= load < LONGEST
        load[~usable], sync[~usable] = NEVER, NEVER
        return StageTables(load, sync, found.option, found.kind, found.count)

    def _consider(self, found: StageTables, turn: Turn, at: int, way: ShardedWay) -> None:
        """Enter a way to shard where it is better than those before, with as little recomputation as it needs."""
        band, flying, ends, allowed = turn
        if found.load.max(where=allowed, initial=0) < int(way.least.min()):
            return
        own, waits = band.own(way), band.waits(way) + ends
        may = allowed & (waits <= self.most_sync)
        may &= (own < found.load) | ((own == found.load) & (waits < found.sync))
        if not may.any():
            return
        again = band.recomputation(way, flying, may)
        total = np.where(again.ticks < NEVER, own + again.ticks, NEVER)
        better = (total < found.load) | ((total == found.load) & (waits < found.sync) & (total < NEVER))
        chosen = np.full_like(again.kind, at)
        for into, values in zip(
            (found.load, found.sync, found.option, found.kind, found.count),
            (total, waits, chosen, again.kind, again.layers),
            strict=True,
        ):
            np.copyto(into, values, where=better)

    def ways(self, site: Site) -> list[ShardedWay]:
        """Return the ways to shard of stages in one place, without those than which another is never worse."""
        key = site.classes, site.holders
        if key not in self._sharded:
            band, kept = self.band.on(site.classes), list[ShardedWay]()
            shares = tuple(band.tables.shares(site.holders, option.together) for option in self.options)
            if (site.classes, shares) not in self._undominated:
                for option, each in zip(self.options, shares, strict=True):
                    way = band.way(option, each)
                    if not any(other.beats(way) for other in kept):
                        kept = [*(other for other in kept if not way.beats(other)), way]
                self._undominated[site.classes, shares] = kept
            self._sharded[key] = self._undominated[site.classes, shares]
        return self._sharded[key]

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
        band = self.band.on(step.site.classes)
        sync, ends = np.full(band.valid.shape, NEVER, dtype=np.int64), band.ends(step.site.ends)
        for each in self.ways(step.site):
            fits = band.least_need(each.option, step.flying)
            np.minimum(sync, band.waits(each) + ends, out=sync, where=fits)
        return sync

    def _least_most(self, tables: list[Ints]) -> int:
        cuts, depth = self.cuts, self.band.depth
        row = cuts.start()
        for position, values in enumerate(tables, start=1):
            begins = self._begins(position)
            stages = cuts.stages(begins, depth)
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
        cuts, depth = self.cuts, min(self.band.depth, max(1, self.band.tables.deepest_within(most)))
        row = cuts.start()
        rows = [row]
        for position, step in enumerate(self.steps, start=1):
            begins = self._begins(position)
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
            first, tables = found[-1], self.stage(self.steps[position - 1])
            stages = self.cuts.stages(slice(first, first + 1), self.band.depth)
            load = tables.load[stages]
            total = load + self.cuts.beyond(rows[position - 1], stages)
            end, at = self.cuts.stage(first, int(np.argmin(np.where(load <= most, total, NEVER))))
            slowest, sync = max(slowest, int(tables.load[at])), max(sync, int(tables.sync[at]))
            found.append(end)
            entries.append(at)
            option = self.ways(self.steps[position - 1].site)[int(tables.option[at])].option
            ways.append(Way(option, int(tables.kind[at]), int(tables.count[at])))
        return Path(int(rows[-1][0]), slowest, sync, tuple(found), tuple(ways), tuple(entries))

    def _begins(self, position: int) -> slice:
        """Return the cuts with which a stage may begin: other stages have to fit before it, and behind it."""
        return self.cuts.begins(len(self.steps) - position, position)
