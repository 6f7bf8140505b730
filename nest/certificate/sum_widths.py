"""Whether a plan whose stages have widths of their own takes less than a value under the objective `sum`.

Under one outer choice, which says how many replicas there are and how they are laid out, a stage is of some form and
stands somewhere. What those behind it can see of it is where it stands, its form and how the transfer into it takes: a
*spot*. What a stage takes depends on its layers, its spot, the next one, and its number from the end alone. So the
least sum of loads of the last ``q`` stages, the first of which is at a spot and begins with the layer ``first``, is

    ``f_q[spot, first] = min over next, end of load_q(spot, next, first, end) + f_{q-1}[next, end]``,

and boxes are closed with it as those of stages of one width (`sum_boxes`). Of all numbers of stages at once: D14 is the
same for all. Where layers hold copies of a table, what the ends of a pipeline exchange depends on both: then boxes are
of the plans that have one first spot and whose last stage is joined to it by some levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from nest.certificate.choices import allowed
from nest.certificate.sum_boxes import Box, below
from nest.plan import Plan, Stage, inside_stage, over_replicas
from nest.presets import Arrangement
from nest.tables import GroupedBand, UnevenTables
from nest.tables.grouped import NO_BOUNDARY
from nest.tables.repeated import Passing
from nest.tables.shares import Holders, Option, Shares
from nest.uneven import groups_to_begin_with, next_start
from nest.units import LONGEST, NEVER, Ints

MOST_KEPT = 4096
"""Tables of stages that are kept for reuse."""


@dataclass(frozen=True, slots=True)
class Layout:
    """An outer choice (C4, C9): replicas, and where they are.

    Attributes
    ----------
    apart
        Size of the groups with which all stages begin (stage-major), or devices from one replica to the next.
    room
        Devices that stages may use: of all replicas (stage-major), or of one.
    further
        Microbatches of a replica but one.
    """

    replicas: int
    arrangement: Arrangement
    apart: int
    room: int
    further: int

    @property
    def by_stage(self) -> bool:
        """Whether the replicas of a stage are neighbours."""
        return self.arrangement == "stage-major"

    @property
    def each(self) -> int:
        """Devices that the stages of one replica may use."""
        return self.room // self.replicas if self.by_stage else self.room


def layouts(tables: UnevenTables) -> Iterator[Layout]:
    """Yield the outer choices that devices and choices leave; with one replica all arrangements are the same."""
    problem, devices, least = tables.problem, tables.devices, min(tables.widths)
    for replicas in allowed(problem.choices.replicas, min(tables.microbatches, devices // least)):
        further = -(-tables.microbatches // replicas) - 1
        for group in groups_to_begin_with(problem.cluster.group_sizes, problem.cluster.devices):
            yield Layout(replicas, "stage-major", group, devices, further)
        for apart in range(1, devices // (replicas - 1) + 1) if replicas > 1 else ():
            room = min(apart, devices - (replicas - 1) * apart)
            if room >= least and any(apart % width == 0 for width in tables.widths):
                yield Layout(replicas, "replica-major", apart, room, further)


def least_load(tables: UnevenTables, layout: Layout) -> int:
    """Return what the largest load is at least: the heaviest layer, and the mean of the device-ticks of all layers."""
    spread = sum(np.minimum.reduce([form.work * form.width for form in tables.forms]).tolist())
    heaviest = int(np.minimum.reduce([form.work for form in tables.forms]).max())
    return max(heaviest, -(-spread // layout.each)) if layout.each else NEVER


class Spot(NamedTuple):
    """Where a stage stands: number of its form, first device in replica 0, and the transfer into it.

    Attributes
    ----------
    before, levels
        Form of the stage before, and the levels to it, by replica; no boundaries before the first.
    """

    form: int
    start: int
    before: int
    levels: tuple[int, ...]


class Ends(NamedTuple):
    """First spot of a pipeline, and the levels that join it to the last; any, where no layer holds a copy."""

    first: Spot
    joined: tuple[int, ...] | None


class Own(NamedTuple):
    """Stages of a form by first layer and column, transfers apart, in the ways of the least load: of which option."""

    load: Ints
    sync: Ints
    option: Ints


class Holding(NamedTuple):
    """What a stage sees but transfers: how it may shard, between whom, and by which levels the ends are joined."""

    form: int
    options: tuple[Option, ...]
    shares: tuple[Shares, ...]
    joined: tuple[int, ...] | None


class Stages:
    """Stages of some forms by themselves, whatever the outer choice.

    Parameters
    ----------
    tables
        Of the forms.
    watch
        Called now and then; raises where there is no more time.
    """

    def __init__(self, tables: UnevenTables, watch: Callable[[], None]) -> None:
        self.tables, self.watch = tables, watch
        self.bands = [GroupedBand(form, tables.layers) for form in tables.forms]
        self._known: dict[tuple[Holding, Passing, int], Own] = {}

    def own(self, holding: Holding, passing: Passing, sync: int) -> Own:
        """Return the stages in the ways of the least load that fit (C11) and keep to a cap on synchronisation."""
        key = holding, passing, sync
        if key not in self._known:
            self.watch()
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = self._own(holding, passing, sync)
        return self._known[key]

    def _own(self, holding: Holding, passing: Passing, sync: int) -> Own:
        band = self.bands[holding.form]
        found = Own(*(np.full(band.valid.shape, NEVER, dtype=np.int64) for _ in Own._fields))
        for number, (option, shares) in enumerate(zip(holding.options, holding.shares, strict=True)):
            way = band.way(option, shares)
            waits, load = band.waits(way) + band.ends(holding.joined or ()), band.work + band.own(way)
            asked = band.valid & (waits <= sync) & (load < found.load)
            load = load + np.minimum(band.recomputation(way, passing, asked).ticks, LONGEST)
            better = asked & (load < LONGEST) & (load < found.load)
            found.load[better], found.sync[better], found.option[better] = load[better], waits[better], number
        return found


class Placed(NamedTuple):
    """A stage of a plan: its spot, its layers ``[first, end)``, and how it shards."""

    spot: Spot
    first: int
    end: int
    option: Option


class UnevenPath(NamedTuple):
    """Stages that hold all layers: sum and largest of their loads, and their largest synchronisation."""

    loads: int
    slowest: int
    sync: int
    stages: list[Placed]


class Pipelines:
    """The plans of an outer choice.

    Parameters
    ----------
    stages
        Of the forms.
    counts
        Numbers of stages, for all of which stages may shard alike.
    value
        Ticks that plans are compared with.
    """

    def __init__(self, stages: Stages, layout: Layout, counts: list[int], value: int) -> None:
        self.stages, self.tables, self.layout, self.counts, self.value = stages, stages.tables, layout, counts, value
        self.cluster, self.widths = self.tables.problem.cluster, self.tables.widths
        self.counted = layout.replicas if self.tables.problem.preset.all_replicas else 1
        self.options = self.tables.options(layout.replicas, max(counts))
        self._followers: dict[tuple[int, int], list[Spot]] = {}
        self._least: dict[tuple[int, Spot], Ints] = {}

    def better(self, cap: int) -> Plan | None:
        """Return a plan below the value whose loads are at most a cap, None if there is none."""
        for ends in self._ends():
            path = below(partial(self.path, ends), cap, self.value, self.layout.further)
            if path is not None:
                return self._plan(path)
        return None

    def _ends(self) -> Iterator[Ends]:
        firsts = [Spot(form, 0, 0, (NO_BOUNDARY,) * self.counted) for form in range(len(self.widths))]
        for first in (each for each in firsts if self._fits(each.form, 0)):
            joined = {self._joined(first, last): None for last in self._reached(first)} if self.tables.tied else {None}
            yield from (Ends(first, levels) for levels in joined)

    def _reached(self, first: Spot) -> list[Spot]:
        """Return the spots to which a pipeline may come that begins at one."""
        found = {first: 1}
        for spot in (todo := [first]):
            for after in self.followers(spot) if found[spot] < max(self.counts) else ():
                if after not in found:
                    found[after] = found[spot] + 1
                    todo.append(after)
        return todo

    def _joined(self, first: Spot, last: Spot) -> tuple[int, ...]:
        return tuple(sorted(set(self.cluster.spans(self._starts(first), self._starts(last)).tolist())))

    def _stride(self, form: int) -> int:
        return self.widths[form] if self.layout.by_stage else self.layout.apart

    def _starts(self, spot: Spot) -> Ints:
        return spot.start + self._stride(spot.form) * np.arange(self.counted, dtype=np.int64)

    def _end(self, form: int, start: int) -> int:
        return start + self.widths[form] * (self.layout.replicas if self.layout.by_stage else 1)

    def _fits(self, form: int, start: int) -> bool:
        """Whether a stage may stand there (C9, C10), in every replica at a multiple of its width."""
        aligned = self.layout.by_stage or self.layout.apart % self.widths[form] == 0
        return aligned and self._end(form, start) <= self.layout.room

    def followers(self, spot: Spot) -> list[Spot]:
        """Return where the next stage may stand."""
        key = spot.form, spot.start
        if key not in self._followers:
            group = self.layout.apart if self.layout.by_stage else 1
            starts = [next_start(self._end(*key), width, group) for width in self.widths]
            there = [Spot(form, start, spot.form, ()) for form, start in enumerate(starts) if self._fits(form, start)]
            levels = (self.cluster.spans(self._starts(spot), self._starts(each)).tolist() for each in there)
            pairs = zip(there, levels, strict=True)
            self._followers[key] = [each._replace(levels=tuple(found)) for each, found in pairs]
        return self._followers[key]

    def own(self, spot: Spot, ends: Ends, from_end: int, sync: int) -> Own:
        """Return the stages of a spot by themselves, by their number from the end."""
        form, options = self.tables.forms[spot.form], self.options[spot.form]
        holders = Holders(spot.start % self.cluster.period, self._stride(spot.form), self.layout.replicas)
        shares = tuple(form.shares(holders, option.together) for option in options)
        holding = Holding(spot.form, options, shares, ends.joined)
        return self.stages.own(holding, self.tables.passing(self.layout.replicas, from_end), sync)

    def load(self, spot: Spot, after: Spot | None, own: Own, cap: int) -> Ints:
        """Return the loads of the stages of a spot, transfers included; `NEVER` above the cap."""
        hops, band = self.tables.hops, self.stages.bands[spot.form]
        out, behind = ((NO_BOUNDARY,) * self.counted, 0) if after is None else (after.levels, after.form)
        total = own.load + np.maximum.reduce(
            [
                hops(spot.before, spot.form, into)[band.first] + hops(spot.form, behind, level)[band.reached]
                for into, level in set(zip(spot.levels, out, strict=True))
            ]
        )
        return np.where(total <= cap, total, NEVER)

    def path(self, ends: Ends, box: Box) -> UnevenPath | None:
        """Return the plan of the least sum of loads within the caps of a box, None if there is none."""
        self._least = {}
        loads, count = min((int(self.least(count, ends.first, ends, box)[0]), count) for count in self.counts)
        return None if loads >= NEVER else self._back(loads, count, ends, box)

    def least(self, from_end: int, spot: Spot, ends: Ends, box: Box) -> Ints:
        """Return the least sum of loads of the last stages, by the cut with which the first of them begins."""
        key = from_end, spot
        if key not in self._least:
            self.stages.watch()
            found = np.full(self.tables.layers + 1, NEVER, dtype=np.int64)
            for _, _, total in self._totals(from_end, spot, ends, box):
                found[:-1] = np.minimum(found[:-1], total.min(axis=1))
            self._least[key] = found
        return self._least[key]

    def _totals(self, from_end: int, spot: Spot, ends: Ends, box: Box) -> Iterator[tuple[Spot | None, Ints, Ints]]:
        """Yield where the next stage may stand, None behind the last, with loads and their sums, by stage."""
        reached, own = self.stages.bands[spot.form].reached, self.own(spot, ends, from_end, box.sync)
        closes = from_end == 1 and ends.joined in (None, self._joined(ends.first, spot))
        for after in self.followers(spot) if from_end > 1 else [None] * closes:
            behind = np.where(np.arange(self.tables.layers + 1) == self.tables.layers, 0, NEVER)
            if after is not None:
                behind = self.least(from_end - 1, after, ends, box)
            load, there = self.load(spot, after, own, box.load), behind[reached]
            some = (load < NEVER) & (there < NEVER)
            yield after, load, np.where(some, np.where(some, load, 0) + np.where(some, there, 0), NEVER)

    def _back(self, loads: int, count: int, ends: Ends, box: Box) -> UnevenPath:
        found, spot, first, left, slowest, sync = list[Placed](), ends.first, 0, loads, 0, 0
        for from_end in range(count, 0, -1):
            after, load, column = next(
                (after, int(load[first, at]), at)
                for after, load, total in self._totals(from_end, spot, ends, box)
                if int(total[first, at := int(np.argmin(total[first]))]) == left
            )
            own = self.own(spot, ends, from_end, box.sync)
            option = self.options[spot.form][int(own.option[first, column])]
            found.append(Placed(spot, first, first + 1 + column, option))
            slowest, sync = max(slowest, load), max(sync, int(own.sync[first, column]))
            first, left, spot = first + 1 + column, left - load, after or spot
        return UnevenPath(loads, slowest, sync, found)

    def _plan(self, path: UnevenPath) -> Plan:
        """Return the plan of a path: of the variant of its stages with the most tensor ranks."""
        wholes = [self.tables.shapes[each.spot.form].whole for each in path.stages]
        variant = max(wholes, key=lambda whole: whole.tensor)
        numbers = range(len(path.stages), 0, -1)
        stages = tuple(self._stage(*each, variant.tensor) for each in zip(path.stages, numbers, strict=True))
        stride = variant.width if self.layout.by_stage else self.layout.apart
        technologies = self.tables.problem.cluster.technologies
        return Plan(variant, self.layout.replicas, stride, stages, self.layout.arrangement, technologies=technologies)

    def _stage(self, placed: Placed, from_end: int, tensor: int) -> Stage:
        (spot, first, end, option), places = placed, np.arange(placed.first, placed.end)
        form, band, shape = self.tables.forms[spot.form], self.stages.bands[spot.form], self.tables.shapes[spot.form]
        asked = np.zeros_like(band.valid)
        asked[first, end - first - 1] = True
        holders = Holders(spot.start % self.cluster.period, self._stride(spot.form), self.layout.replicas)
        way, passing = band.way(option, form.shares(holders, option.together)), self.tables.passing
        repeats = band.recomputation(way, passing(self.layout.replicas, from_end), asked)
        kind, count = int(repeats.kind[asked][0]), int(repeats.layers[asked][0])
        again, zero = form.repeating[kind - 1] if kind else None, min(option.zero, 3)
        stage = Stage(
            tuple(form.graph.layers[place].id for place in places.tolist()),
            spot.start,
            form.width,
            "none" if again is None else again.kind,
            over_replicas(zero, form.ranks(option.together).dense),
            recomputed=None if again is None or count == again.able[places].sum() else count,
            tensor=None if shape.variant.tensor == tensor else shape.variant.tensor,
        )
        inside = stage if shape.inside == 1 else None
        return inside or replace(stage, sharding=inside_stage(zero, shape.inside, splits_batch=shape.splits))
