"""The recursion over stages of unequal width, for one outer choice and all numbers of stages at once.

From a spot on, ``q`` stages hold the layers from a cut on in the least sum of loads

    ``sum[spot][q][cut] = min over step, end > cut of  load_q(spot, step, cut, end) + sum[to of step][q - 1][end]``,

under a cap on the load and one on the synchronisation of every stage. The state is complete: spots hold all that a
stage sees of those before it, and ``q`` the microbatches in flight. Spots come from the last of the line to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.dp.masks import Role
from nest.dp.sum_rows import StageTables, SumRows, Way
from nest.dp.sum_rows import Step as Turn
from nest.dp.uneven_lattice import END, Lattice, Spot, Step
from nest.dp.watch import Watch
from nest.tables.grouped import NO_BOUNDARY, Site
from nest.tables.repeated import Passing
from nest.units import NEVER, Ints, distinct

MOST_KEPT = 2**25
"""Loads that are kept for reuse."""

Together: TypeAlias = Callable[[Ints, Ints], Ints]
"""What a stage and those behind it make together: the sum, or the larger."""


Windows: TypeAlias = Callable[[int], list[tuple[int, int]]]
"""For a largest load, with which cuts the stage at each spot may begin."""


class Placed(NamedTuple):
    """A stage of a plan: where it stands, its layers ``[first, end)``, and how it shards and recomputes."""

    spot: Spot
    first: int
    end: int
    way: Way


@dataclass(frozen=True, slots=True)
class UnevenPath:
    """A way through the recursion.

    Attributes
    ----------
    loads, slowest, sync
        Sum and largest of the loads, and largest synchronisation.
    stages
        From the first of the pipeline on.
    """

    loads: int
    slowest: int
    sync: int
    stages: tuple[Placed, ...]


class Frame(NamedTuple):
    """What all stages of a plan know of its ends, where layers hold copies of a table.

    Parameters
    ----------
    first
        Spots of the first stage.
    last
        Spots of the last stage.
    ends
        Levels that join them; none where no layer holds a copy.
    """

    first: tuple[int, ...]
    last: frozenset[int]
    ends: tuple[int, ...]


class Asked(NamedTuple):
    """Which plans of an outer choice are of interest.

    Parameters
    ----------
    passing
        Microbatches of a stage by its number from the end, from 1 on; ``passing[0]`` is nothing.
    counts
        Numbers of stages that are allowed, ascending.
    cap
        Largest load of interest.
    windows
        For a largest load, with which cuts the stage at each spot may begin: a first one, and that behind the last.
    """

    passing: tuple[Passing, ...]
    counts: tuple[int, ...]
    cap: int
    windows: Windows


class _Solved(NamedTuple):
    """Values by spot, number of stages and cut, and the best of them: value, spot and number of stages."""

    values: list[Ints]
    best: tuple[int, int, int]


class UnevenRows:
    """The recursion of one outer choice.

    Parameters
    ----------
    lattice
        Where stages may stand.
    engines
        Of each form: its stages, where only the holders of weights play a part.
    asked
        Which plans are of interest.
    watch
        Of the search.
    """

    def __init__(self, lattice: Lattice, engines: tuple[SumRows, ...], asked: Asked, watch: Watch) -> None:
        self.lattice, self.engines, self.watch = lattice, engines, watch
        self.passing, self.counts, self.cap, self.windows = asked
        self.layers, self.spots = lattice.tables.layers, lattice.spots
        self.frames = tuple(self._frames())
        self._deepest = self._most_stages()
        self._transfers: dict[tuple[int, int], Ints] = {}
        self._loads: dict[tuple[int, object, tuple[int, ...]], Ints] = {}
        self._sights: dict[int, object] = {}
        self._totals: dict[tuple[object, ...], Ints] = {}
        self._waits: dict[tuple[object, ...], Ints] = {}

    def _frames(self) -> Iterator[Frame]:
        """Yield the frames: one, or one for each first stage and each set of levels that join it to the last."""
        firsts = tuple(at for at, spot in enumerate(self.spots) if spot.start == 0)
        if not self.lattice.tables.tied:
            yield Frame(firsts, frozenset(range(len(self.spots))), ())
            return
        for first in firsts:
            found: dict[tuple[int, ...], set[int]] = {}
            for last in range(len(self.spots)):
                found.setdefault(self.lattice.joining(first, last), set()).add(last)
            yield from (Frame((first,), frozenset(lasts), ends) for ends, lasts in found.items())

    def _most_stages(self) -> list[int]:
        """Return how many stages there may be from each spot on."""
        most, deepest = max(self.counts), [0] * len(self.spots)
        for at in range(len(self.spots) - 1, -1, -1):
            behind = (0 if step.to == END else deepest[step.to] for step in self.spots[at].steps)
            deepest[at] = min(1 + max(behind), most)
        return deepest

    def lower_sync(self, most: int) -> None:
        """Allow no stage to synchronise longer than ``most`` ticks from now on."""
        self._loads.clear()
        self._totals.clear()
        for engine in self.engines:
            engine.lower_sync(most)

    def _turn(self, spot: Spot, frame: Frame, from_end: int) -> Turn:
        site = Site(((NO_BOUNDARY, NO_BOUNDARY),), spot.holders, frame.ends)
        return Turn(site, self.passing[from_end], Role(), 0)

    def stages(self, at: int, frame: Frame, from_end: int) -> StageTables:
        """Return the stages at a spot, transfers apart."""
        spot = self.spots[at]
        return self.engines[spot.form].stage(self._turn(spot, frame, from_end))

    def loads_at(self, at: int, frame: Frame) -> Ints:
        """Return the loads at a spot, transfers apart, by number from the end from 1 on; one for all where equal."""
        key = self.spots[at].form, self._sight(at), frame.ends
        if key not in self._loads:
            numbers = range(1, max(self._deepest) + 1)
            turns = {self.passing[number]: number for number in reversed(numbers)}
            first, last = (self.stages(at, frame, turns[each]) for each in (min(turns), max(turns)))
            alike = np.array_equal(first.load, last.load) and np.array_equal(first.sync, last.sync)
            if alike and not min(turns).buffered:
                self._loads[key] = first.load[None]  # what more microbatches in flight change lies between the two
            else:
                each = {passing: self.stages(at, frame, number).load for passing, number in turns.items()}
                self._loads[key] = np.stack([each[self.passing[number]] for number in numbers])
        return self._loads[key]

    def _sight(self, at: int) -> object:
        """Return what tells spots of a form apart for whoever looks at the holders of weights alone."""
        if at not in self._sights:
            spot, engine = self.spots[at], self.engines[self.spots[at].form]
            shares = engine.any.tables.shares
            self._sights[at] = tuple(id(shares(spot.holders, option.together)) for option in engine.options)
        return self._sights[at]

    def transfers(self, at: int, pairs: int) -> Ints:
        """Return the ticks of both transfers of the stages of a form."""
        form = self.spots[at].form
        if (form, pairs) not in self._transfers:
            band = self.engines[form].any
            self._transfers[form, pairs] = self.lattice.hops.of_stages(pairs, band.first, band.reached)
        return self._transfers[form, pairs]

    def least_slowest(self) -> int:
        """Return the least of the largest loads, `NEVER` where no plan keeps the cap on the synchronisation."""
        return min(self._solve(frame, self._load, self.cap, np.maximum).best[0] for frame in self.frames)

    def least_sync(self) -> int:
        """Return a time below which no plan synchronises: the least of the largest, whatever the loads."""
        return min(self._solve(frame, self._wait, NEVER - 1, np.maximum).best[0] for frame in self.frames)

    def loads(self, least: int, most: int) -> Ints:
        """Return the distinct loads of stages from one limit to another, ascending."""
        found: dict[tuple[object, ...], Ints] = {}
        for frame in self.frames:
            for at, spot in enumerate(self.spots):
                for step in spot.steps:
                    key = spot.form, self._sight(at), frame.ends, step.pairs
                    if key not in found:
                        each = self._load(at, step, frame)
                        found[key] = distinct(each[(each >= least) & (each <= most)])
        return distinct(np.concatenate(list(found.values())))

    def least_sum(self, most: int) -> UnevenPath | None:
        """Return the plan of the least sum of loads, each at most ``most`` ticks, None where there is none."""
        solved = [self._solve(frame, self._load, most, np.add) for frame in self.frames]
        at = min(range(len(solved)), key=lambda number: solved[number].best[0])
        return self._trace(solved[at], self.frames[at], most) if solved[at].best[0] < NEVER else None

    def _load(self, at: int, step: Step, frame: Frame) -> Ints:
        """Return the loads of the stages at a spot, by number from the end, that a step follows."""
        last = step.to == END
        key = self.spots[at].form, self._sight(at), frame.ends, step.pairs, last
        if key not in self._totals:
            own = self.loads_at(at, frame)
            own = own[:1] if last else own[1:] if len(own) > 1 else own
            total: Ints = np.where(own < NEVER, own + self.transfers(at, step.pairs), NEVER)
            if total.size * len(self._totals) > MOST_KEPT:
                self._totals.clear()
            self._totals[key] = total
        return self._totals[key]

    def _wait(self, at: int, _: Step, frame: Frame) -> Ints:
        """Return how long the stages at a spot synchronise at least, if they are the last."""
        spot = self.spots[at]
        key = spot.form, self._sight(at), frame.ends
        if key not in self._waits:
            self._waits[key] = self.engines[spot.form].soonest(self._turn(spot, frame, 1))[None]
        return self._waits[key]

    def _solve(
        self, frame: Frame, values: Callable[[int, Step, Frame], Ints], most: int, together: Together
    ) -> _Solved:
        """Return the best values of all stages from each spot on, each stage of at most ``most``."""
        found: list[Ints] = [np.zeros((0, 0), dtype=np.int64)] * len(self.spots)
        windows = self.windows(min(most, self.cap))
        for at in range(len(self.spots) - 1, -1, -1):
            self.watch.check()
            first, end = windows[at]
            if first >= end:
                continue
            rows = np.full((self._deepest[at] + 1, self.layers + 1), NEVER, dtype=np.int64)
            for step in self.spots[at].steps:
                if step.to == END and at in frame.last:
                    self._enter_last(rows, values(at, step, frame)[0], most)
                elif step.to != END and len(found[step.to]) > 1:
                    inside = rows[2:, first:end], values(at, step, frame)[:, first:end]
                    self._enter(*inside, most, found[step.to][1:, first + 1 :], together)
            found[at] = rows
        begun = [(at, count) for at in frame.first if len(found[at]) for count in self._counts(at)]
        best = min(((int(found[at][count, 0]), at, count) for at, count in begun), default=(NEVER, 0, 0))
        return _Solved(found, best)

    def _counts(self, at: int) -> list[int]:
        return [count for count in self.counts if count <= self._deepest[at]] or [0]

    def _enter_last(self, rows: Ints, values: Ints, most: int) -> None:
        """Enter the stages that end with the last layer."""
        begins = np.arange(max(self.layers - values.shape[1], 0), self.layers)
        last = values[begins, self.layers - 1 - begins]
        rows[1, begins] = np.where(last <= most, last, NEVER)

    def _enter(self, rows: Ints, values: Ints, most: int, behind: Ints, together: Together) -> None:
        """Enter the stages that a step follows where they are better than those before.

        Parameters
        ----------
        rows
            To enter them into: a row for each number of stages from 2 on, a column for each cut.
        values
            Of the stages that begin there, by number from the end from 2 on, or the same for all.
        behind
            Values by number of stages from 1 on of what follows, and by cut, from that behind the first one here on.
        """
        count, depth = min(len(behind), len(rows)), values.shape[2]
        if count < 1:
            return
        beyond = np.full((count, rows.shape[1] + depth), NEVER, dtype=np.int64)
        some = min(behind.shape[1], beyond.shape[1])
        beyond[:, :some] = behind[:count, :some]
        ends = np.lib.stride_tricks.sliding_window_view(beyond, depth, axis=1)[:, : rows.shape[1]]
        own = values if len(values) == 1 else values[:count]
        total = np.where(own <= most, together(np.minimum(own, NEVER - 1), ends), NEVER)
        np.minimum(rows[:count], total.min(axis=2), out=rows[:count])

    def _trace(self, solved: _Solved, frame: Frame, most: int) -> UnevenPath:
        value, at, count = solved.best
        first, stages, loads = 0, list[Placed](), list[tuple[int, int]]()
        while count:
            wanted = int(solved.values[at][count, first])
            column, to, load = self._found(solved, frame, most, (at, count, first), wanted)
            tables, spot = self.stages(at, frame, count), self.spots[at]
            site = Site(((NO_BOUNDARY, NO_BOUNDARY),), spot.holders, frame.ends)
            option = self.engines[spot.form].ways(site)[int(tables.option[first, column])].option
            way = Way(option, int(tables.kind[first, column]), int(tables.count[first, column]))
            stages.append(Placed(spot, first, first + 1 + column, way))
            loads.append((load, int(tables.sync[first, column])))
            first, at, count = first + 1 + column, to, count - 1
        slowest, sync = (max(each) for each in zip(*loads, strict=True))
        return UnevenPath(value, slowest, sync, tuple(stages))

    def _found(
        self, solved: _Solved, frame: Frame, most: int, where: tuple[int, int, int], wanted: int
    ) -> tuple[int, int, int]:
        """Return with which column, step and load a value comes about."""
        at, count, first = where
        for step in self.spots[at].steps:
            if (step.to == END) != (count == 1) or (step.to == END and at not in frame.last):
                continue
            values = self._load(at, step, frame)
            loads = values[0 if len(values) == 1 else count - 2][first]
            for column in np.flatnonzero(loads <= most).tolist():
                end = first + 1 + column
                if end > self.layers:
                    continue
                behind = 0 if end == self.layers else NEVER
                if step.to != END:
                    rows = solved.values[step.to]
                    behind = int(rows[count - 1, end]) if count - 1 < len(rows) else NEVER
                if behind < NEVER and int(loads[column]) + behind == wanted:
                    return column, step.to, int(loads[column])
        raise AssertionError("a value of the recursion comes from a stage")
