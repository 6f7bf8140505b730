"""Lower bounds for plans that shard: the recursions with every stage at its cheapest levels.

Sharding trades devices, and collectives in every microbatch, for memory and for gradient bytes, so a bound has to hold
both ends together. It cuts the bytes that a stage may synchronise into intervals: a plan whose largest share lies
between two marks has at least the least load among plans that keep to the upper mark, and at least the synchronisation
of the lower one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nest.dp.layout import LevelClasses
from nest.dp.masks import Role, StageMasks
from nest.dp.outer import Bounds, OuterChoices, least_blocks, objectives
from nest.dp.sharding import ShardedStages
from nest.units import NEVER, Floats, Ints, distinct

MARKS = 24
"""Intervals into which the synchronised parameters are cut."""

FULL = 2**30
"""More blocks than any cluster has."""


@dataclass(frozen=True)
class Interval:
    """Plans whose largest synchronised share lies between two marks (quanta)."""

    lower: float
    upper: float


class Relaxation:
    """Bounds of one variant.

    Parameters
    ----------
    stages, bounds
        Of one variant; stages outside their band must be too slow to matter.

    Attributes
    ----------
    classes
        What stages may see, by where replicas start, cycle, degree and the degrees of neighbours: kept for all layouts.
    """

    def __init__(self, stages: ShardedStages, bounds: Bounds) -> None:
        self.stages, self.bounds, self.masks = stages, bounds, StageMasks(stages.band)
        self.band, self.tables, self.problem = stages.band, stages.tables, stages.problem
        self.classes: dict[tuple[bytes, int, int, tuple[int, ...]], LevelClasses] = {}

    @cached_property
    def intervals(self) -> list[Interval]:
        """Intervals of the synchronised share; a single one where only the first stage is waited for."""
        total = float(self.tables.parameters.sum())
        if not self.problem.preset.sync_all_stages or total == 0:
            return [Interval(0.0, total)]
        least = total / max(1, self.tables.devices // self.tables.width)
        marks: Floats = np.concatenate([[0.0], np.geomspace(least, total, MARKS)])
        return [Interval(lower, upper) for lower, upper in zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True)]

    def refine(self, choices: OuterChoices, heights: Ints) -> tuple[OuterChoices, Ints]:
        """Return outer choices with better bounds, and the bound of each choice (column) in each interval (row)."""
        most = int(choices.stages.max(initial=0))
        crossing = self._crossing(choices)
        floors = self.bounds.sync_weights(choices.stages, choices.replicas, sharded=True)
        rows = []
        for interval in self.intervals:
            load = np.maximum(self.least_loads(interval.upper, most)[choices.stages], crossing)
            sync = self.bounds.sync(np.maximum(floors, interval.lower), choices.replicas, heights)
            rows.append(objectives(load, choices.rounds, sync))
        by_interval = np.maximum(np.array(rows), choices.bounds)
        return OuterChoices(choices.stages, choices.replicas, choices.rounds, by_interval.min(axis=0)), by_interval

    def least_loads(self, mark: float, most_stages: int) -> Ints:
        """Least largest load of 0, 1, ... stages among plans that synchronise at most ``mark`` quanta each."""
        load = np.full(self.band.valid.shape, NEVER, dtype=np.int64)
        limit = np.zeros(self.band.valid.shape, dtype=np.int64)
        for degree, zero in self.stages.shardings:
            flights = self._within(mark, degree, zero)
            load = np.where(flights > 0, np.minimum(load, self.stages.cheapest(degree, zero)), load)
            limit = np.maximum(limit, flights)
        row = self._last_row(NEVER)
        least = [NEVER]
        for position in range(1, most_stages + 1):
            value = np.maximum(np.where(limit >= position, load, NEVER), self._after(row))
            row[: self.tables.layers] = value.min(axis=1)
            row[self.tables.layers] = NEVER
            least.append(int(row[0]))
        return np.array(least, dtype=np.int64)

    def _last_row(self, never: int) -> Ints:
        row = np.full(self.tables.layers + 1 + self.band.depth, never, dtype=np.int64)
        row[self.tables.layers] = 0
        return row

    def _after(self, row: Ints) -> Ints:
        return sliding_window_view(row[1:], self.band.depth)[: self.tables.layers]

    def _within(self, mark: float, degree: int, zero: int) -> Ints:
        """Most microbatches in flight under one way to shard, 0 where the stage synchronises more than the mark."""
        flights = self.band.most_in_flight(zero, degree)
        if not self.problem.preset.sync_all_stages:
            return flights
        return np.where(self.band.parameters <= mark * self.stages.ranks(degree, zero), flights, 0)

    def completions(self, count: int, cap: int, mark: float) -> list[Ints]:
        """Least blocks that complete a pipeline of ``count`` stages from the end on.

        Returns
        -------
        list of arrays
            Entry ``[q][first]``: blocks that the stages beyond the ``q``-th from the end need to hold the layers before
            ``first``, each stage within ``cap`` ticks and ``mark`` synchronised quanta; `FULL` where nothing will do.
        """
        usable = self._usable(cap, mark)
        layers, depth = self.tables.layers, self.band.depth
        row = np.full(layers + 1, FULL, dtype=np.int64)
        row[0] = 0
        found = [row]
        for position in range(count, 0, -1):
            need = np.full((layers, depth), FULL, dtype=np.int64)
            for degree, limit in usable:
                need[limit >= position] = degree
            admitted = self.masks.inner(Role(count, position))
            if admitted is not None:
                need[~admitted] = FULL
            total = need + row[:layers, None]
            row = np.full(layers + 1, FULL, dtype=np.int64)
            np.minimum(np.where(self._ending, total[self._firsts, self._columns], FULL).min(axis=1), FULL, out=row[1:])
            found.append(row)
        return found[::-1]

    def _usable(self, cap: int, mark: float) -> list[tuple[int, Ints]]:
        """Degrees, largest first, with the most microbatches in flight within the caps."""
        limits = {degree: np.zeros(self.band.valid.shape, dtype=np.int64) for degree in self.stages.degrees}
        for degree, zero in self.stages.shardings:
            fast = np.where(self.stages.cheapest(degree, zero) <= cap, self._within(mark, degree, zero), 0)
            limits[degree] = np.maximum(limits[degree], fast)
        return [(degree, limit) for degree, limit in reversed(limits.items()) if limit.any()]

    @cached_property
    def _columns(self) -> Ints:
        return np.arange(self.band.depth)[None, :]

    @cached_property
    def _firsts(self) -> Ints:
        """First layer of the stage that ends with each layer, by column; 0 where there is none."""
        firsts: Ints = np.maximum(np.arange(self.tables.layers)[:, None] - self._columns, 0)
        return firsts

    @cached_property
    def _ending(self) -> np.ndarray:
        ends: np.ndarray = np.arange(self.tables.layers)[:, None] >= self._columns
        return ends

    def fits(self, count: int, budget: int, cap: int, mark: float) -> bool:
        """Whether ``budget`` blocks suffice for ``count`` stages of at most ``cap`` ticks and ``mark`` quanta each."""
        return int(self.completions(count, cap, mark)[0][self.tables.layers]) <= budget

    def _crossing(self, choices: OuterChoices) -> Ints:
        """Least load that follows from a replica crossing from one group of devices into the next.

        Where some replica does not lie within one group of a level, one of its boundaries sees the next level, and so
        do the two stages beside it (a block that lies across makes both of its own boundaries do so).
        """
        if self.problem.preset.boundary != "block":
            return np.zeros_like(choices.stages)
        loads = self._loads_across
        levels = np.zeros_like(choices.stages)
        for replicas in distinct(choices.replicas).tolist():
            which = choices.replicas == replicas
            crossed = self._levels_crossed(replicas)
            least = least_blocks(self.problem, self.tables.width, choices.stages[which])
            levels[which] = crossed[np.minimum(least, len(crossed) - 1)]
        return np.where(choices.stages > 1, loads[levels], 0)

    def _levels_crossed(self, replicas: int) -> Ints:
        """Least level, over all replicas of at least 0, 1, ... blocks that fit, of their dearest boundary."""
        most = self.tables.devices // self.tables.width // replicas
        size = np.arange(most + 1, dtype=np.int64) * self.tables.width
        size[0] = 1
        level = np.zeros_like(size)
        for at, group in enumerate(self.problem.cluster.group_sizes[:-1], start=1):
            across = (size > group) | ((replicas * size > group) & (group % size != 0))
            level[across] = at
        least: Ints = np.minimum.accumulate(level[::-1])[::-1]
        return least

    @cached_property
    def _loads_across(self) -> Ints:
        """Least load of the slower of the two stages beside a boundary of at least level 0, 1, ..."""
        behind = self.band.valid & (np.arange(self.tables.layers) > 0)[:, None]
        loads = []
        for level in range(self.problem.levels):
            entering = (self.band.forward(level) + self.stages.backward)[behind].min(initial=NEVER)
            leaving = (self.band.backward(level) + self.stages.forward)[self.band.inner].min(initial=NEVER)
            loads.append(max(int(entering), int(leaving)))
        return np.minimum.accumulate(np.array(loads, dtype=np.int64)[::-1])[::-1]
