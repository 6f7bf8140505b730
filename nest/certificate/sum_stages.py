"""What the stages of one outer choice take under the objective `sum`, each in the best way that keeps to caps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nest.certificate.sum_choices import SumChoice
from nest.certificate.sum_classes import holds_all
from nest.certificate.sum_memory import SCATTERING, least_extra
from nest.constraints import Outer, Run, Site
from nest.places import Placing
from nest.plan import Plan, Stage, over_replicas
from nest.tables import BranchedBand, GroupedBand, GroupedTables
from nest.tables.grouped import Site as Seen
from nest.tables.repeated import Passing
from nest.tables.shares import Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import NEVER, Ints


class Way(NamedTuple):
    """A way to shard the stages in one place.

    Attributes
    ----------
    sharded
        What it adds, and takes of layers.
    own
        Ticks that it adds to the load of each stage, recomputation apart.
    waits
        Ticks of the synchronisation of each stage.
    room
        Quanta that the state of each stage leaves.
    """

    sharded: ShardedWay
    own: Ints
    waits: Ints
    room: Ints

    def never_worse(self, other: Way, *, sync: bool) -> bool:
        """Whether a stage fits in this way where it does in another, with no larger load, nor synchronisation.

        Where it fits, it does with as few layers that recompute, and each of them adds no more.
        """
        mine, theirs = self.sharded, other.sharded
        pairs = [(self.own, other.own), (other.room, self.room), (mine.whole, theirs.whole)]
        pairs += [(self.waits, other.waits)] if sync else []
        pairs += [(np.diff(one), np.diff(two)) for one, two in zip(mine.again, theirs.again, strict=True)]
        return all(bool((less <= more).all()) for less, more in pairs)


class Loads(NamedTuple):
    """Stages by first layer and column, in the ways of the least load: `NEVER` where none keeps to the caps."""

    load: Ints
    sync: Ints
    way: Ints


class Standing(NamedTuple):
    """Where the blocks of an outer choice stand, and what its stages see there, from the first on."""

    placing: Placing
    sites: tuple[Seen, ...]


def standings(tables: GroupedTables, choice: SumChoice) -> list[Standing]:
    """Return where the blocks of an outer choice may stand (C9), but where their devices are too slow for its cap.

    Of placings in which all that times depend on is the same, one stands for the others, unless side constraints look
    at places.
    """
    options, found = tables.options(choice.replicas, choice.stages), dict[object, Standing]()
    for placing in tables.placings(choice.stages, choice.replicas, choice.arrangement):
        sites = tables.sites(choice.stages, choice.replicas, placing)
        if not holds_all(tables, [site.classes for site in sites], choice.cap):
            continue
        sights = placing if tables.filters.by_place else tables.sights(sites, options)
        found.setdefault(sights, Standing(placing, sites))
    return list(found.values())


class SumStages:
    """The stages of an outer choice.

    Parameters
    ----------
    band
        Tables of stages deep enough for every load of interest, one behind the other by the cut with which they begin.
    choice, standing
        The outer choice, and where its blocks stand.
    """

    def __init__(self, band: GroupedBand, choice: SumChoice, standing: Standing) -> None:
        self.band, self.choice, self.tables = band, choice, band.tables
        self.placing, self.sites = standing
        tables, positions = self.tables, np.array(self.placing.starts(choice.stages), dtype=np.int64)
        self.starts = self.placing.line.devices(positions)
        self.options = tables.options(choice.replicas, choice.stages)
        self.least_extra = [
            band.sums(least_extra(tables, option)) if option.zero in SCATTERING else 0 for option in self.options
        ]
        self.ends = band.ends(self.sites[0].ends)
        self.outer = Outer(tables.variant, choice.stages, choice.replicas)
        self.run = Run(band.first, band.reached)
        self.opens = _opens(band)
        self.by_run = tables.filters.run(tables.variant, self.run)
        self._known: dict[tuple[frozenset[str], Shares, int], Way] = {}
        self._useful: dict[frozenset[str], list[int]] = {}

    def loads(self, position: int, load: int, sync: int, wanted: np.ndarray) -> Loads:
        """Return what the ``position``-th stages from the end take within caps on both, of those that are wanted.

        Every way to shard is tried with the fastest recomputation with which the stage fits (C11), unless another that
        was tried is never worse; without a cap on the synchronisation that does not count.
        """
        seen, passing = self.sites[-position], self._passing(position)
        band = self.band.on(seen.classes)
        plain = band.work + band.hops(seen.pairs)
        found = Loads(*(np.full(plain.shape, NEVER, dtype=np.int64) for _ in range(3)))
        wanted, tried = wanted & (plain <= load) & self._admitted(position), list[Way]()
        for number in range(len(self.options)) if sync < NEVER else self._for_loads(seen.classes):
            least = plain + self.least_extra[number]
            if not (wanted & (least <= load) & (least <= found.load)).any():
                continue
            way = self._way(seen, self.options[number])
            own, waits = plain + way.own, way.waits
            asked = wanted & (own <= load) & (waits <= sync) & _better(own, waits, found)
            if asked.any() and not any(other.never_worse(way, sync=sync < NEVER) for other in tried):
                whole = own + band.recomputation(way.sharded, passing, asked).ticks
                chosen = (whole <= load) & _better(whole, waits, found)
                found.load[chosen], found.sync[chosen], found.way[chosen] = whole[chosen], waits[chosen], number
                tried.append(way)
        return found

    def _passing(self, position: int) -> Passing:
        """Return the microbatches of a stage, counted from the end."""
        return self.tables.passing(self.choice.replicas, position, self.choice.stages, self.choice.schedule)

    def _for_loads(self, classes: frozenset[str]) -> list[int]:
        """Return the options of use where synchronisation does not count, on devices of some classes.

        Of those that take no time in loads only such as leave some stage the most room; mostly it is type 1 over all.
        """
        if classes not in self._useful:
            scattering = [number for number, option in enumerate(self.options) if option.zero in SCATTERING]
            light = [number for number in range(len(self.options)) if number not in scattering]
            light.sort(key=lambda number: (self.options[number].zero != 1, -self.options[number].together))
            kept, rooms = list[int](), list[Ints]()
            for number in light:
                room = self.band.on(classes).leaves(self.options[number])
                if not any((other >= room).all() for other in rooms):
                    kept.append(number)
                    rooms.append(room)
            self._useful[classes] = sorted(kept + scattering)
        return self._useful[classes]

    def _admitted(self, position: int) -> np.ndarray:
        """Return which stages there are that local side constraints admit."""
        filters, stages, start = self.tables.filters, self.choice.stages, self.starts[-position]
        by_stage = filters.stage(self.tables.variant, stages, position, self.run)
        site = Site(position, np.full((1, 1), start), self.tables.width, self.placing.stride, self.placing.line)
        masks = [self.by_run, by_stage, filters.place(self.outer, self.run, site)]
        admitted: np.ndarray = np.logical_and.reduce([self.band.valid, *(mask for mask in masks if mask is not None)])
        return admitted

    def _way(self, seen: Seen, option: Option) -> Way:
        key = seen.classes, self.tables.shares(seen.holders, option.together), option.zero
        if key not in self._known:
            band = self.band.on(seen.classes)
            sharded = band.way(option, key[1])
            self._known[key] = Way(sharded, band.own(sharded), band.waits(sharded) + self.ends, band.leaves(option))
        return self._known[key]

    def plan(self, entries: list[int], numbers: list[int]) -> Plan:
        """Return the plan of stages that are so far in the tables; ``numbers`` are of their `options`."""
        stages = tuple(map(self._stage, range(len(numbers)), entries, numbers))
        choice, placing, technologies = self.choice, self.placing, self.tables.problem.cluster.technologies
        plan = Plan(choice.variant, choice.replicas, placing.stride, stages, choice.arrangement, choice.schedule)
        return replace(plan, technologies=technologies, line=placing.line)

    def _stage(self, at: int, entry: int, number: int) -> Stage:
        tables, option, asked = self.tables, self.options[number], np.zeros_like(self.band.valid)
        asked.flat[entry] = True
        ends = np.broadcast_to(self.band.first, asked.shape)[asked], self.band.reached[asked]
        places = tables.between(*(int(each[0]) for each in ends))
        passing = self._passing(self.choice.stages - at)
        way = self._way(self.sites[at], option).sharded
        band = self.band.on(self.sites[at].classes)
        _, kind, count = (int(each[asked][0]) for each in band.recomputation(way, passing, asked))
        again = tables.repeating[kind - 1] if kind else None
        every = again is None or count == again.able[places].sum()
        return Stage(
            tuple(tables.graph.layers[place].id for place in places.tolist()),
            int(self.starts[at]),
            tables.width,
            "none" if again is None else again.kind,
            over_replicas(min(option.zero, 3), tables.ranks(option.together).dense),
            recomputed=None if every else count,
        )


def _opens(band: GroupedBand) -> Ints:
    """Return where in the tables the stages are that begin with each cut, and where the last of them end."""
    if isinstance(band, BranchedBand):
        return band.stages.starts
    return np.arange(band.tables.layers + 1, dtype=np.int64) * band.depth


def _better(load: Ints, sync: Ints, found: Loads) -> np.ndarray:
    better: np.ndarray = (load < found.load) | ((load == found.load) & (sync < found.sync) & (load < NEVER))
    return better
