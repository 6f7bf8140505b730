"""Plans of one outer choice under the objective `sum`: the recursion over (stage from the end, first layer).

All stages are equally wide, so that what the ``q``-th stage from the end sees depends on ``q`` alone. For a cap on the
load and one on the synchronisation of every stage, the least sum of loads is a shortest path:

    ``sum_q[first] = min over end > first of load_q(first, end) + sum_{q-1}[end]``,  ``sum_0[layers] = 0``,

over the stages that keep both caps and fit their memory (C11); the load of a stage is that of the fastest ZeRO type
that does. Stages are runs of layers by construction (C2, C3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nest.dp.masks import Role, StageMasks
from nest.dp.uniform import windows
from nest.dp.watch import Watch
from nest.tables import GroupedBand
from nest.tables.grouped import Ranks, Site
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
    ranks
        How many hold copies of a weight.
    types
        ZeRO types that a stage may use, ascending.
    stride
        Devices from replica to replica.
    """

    ranks: Ranks
    types: tuple[int, ...]
    stride: int


@dataclass(frozen=True, slots=True)
class StageTables:
    """Every stage in one place: the load and the synchronisation of the fastest ZeRO type allowed, and which that is.

    Both are `NEVER` where none is.
    """

    load: Ints
    sync: Ints
    zero: Ints


@dataclass(frozen=True, slots=True)
class Path:
    """A way through the recursion.

    Attributes
    ----------
    loads, slowest, sync
        Sum and largest of the loads, and largest synchronisation.
    cuts, zeros
        ``[0, cut, ..., layers]``, and the ZeRO type of each stage.
    """

    loads: int
    slowest: int
    sync: int
    cuts: tuple[int, ...]
    zeros: tuple[int, ...]


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
        self.ranks, self.types, self.stride = holding
        self.layers = band.tables.layers
        self.most_sync = NEVER - 1
        self._stages: dict[Step, StageTables] = {}

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
        band, (pairs, holders) = self.band, step.site
        extra, sync, zero = (np.full(band.valid.shape, value, dtype=np.int64) for value in (NEVER, NEVER, 0))
        for each in reversed(self.types):  # a later one is never slower; of equally fast ones, that of less sync
            own, waits = band.extra(holders, each), band.sync(holders, each)
            better = (own < extra) | ((own == extra) & (waits < sync))
            better &= (band.most_in_flight(self.ranks, each) >= step.flying) & (waits <= self.most_sync)
            extra, sync, zero = (
                np.where(better, own, extra),
                np.where(better, waits, sync),
                np.where(better, each, zero),
            )
        allowed = extra < NEVER
        admitted = self.masks.at(step.role, step.start, self.stride)
        if admitted is not None:
            allowed &= admitted
        load = band.work + band.hops(pairs) + np.where(allowed, extra, 0)
        allowed &= load < LONGEST
        return StageTables(np.where(allowed, load, NEVER), np.where(allowed, sync, NEVER), zero)

    def least_slowest(self) -> int:
        """Return the least of the largest loads, `NEVER` where no plan keeps the cap on the synchronisation."""
        return self._least_most([self.stage(step).load for step in self.steps])

    def least_sync(self) -> int:
        """Return a time below which no plan synchronises: the least of the largest, whatever the loads."""
        tables = []
        for step in self.steps:
            sync = np.full(self.band.valid.shape, NEVER, dtype=np.int64)
            for each in self.types:
                fits = self.band.most_in_flight(self.ranks, each) >= step.flying
                sync = np.minimum(sync, np.where(fits, self.band.sync(step.site.holders, each), NEVER))
            tables.append(sync)
        return self._least_most(tables)

    def _least_most(self, tables: list[Ints]) -> int:
        row = self._start()
        for position, values in enumerate(tables, start=1):
            rows = self._rows(position)
            most = np.maximum(values[rows], windows(row, values.shape)[rows])
            row = np.full_like(row, NEVER)
            row[rows] = most.min(axis=1)
        return int(row[0])

    def loads(self, least: int, most: int) -> Ints:
        """Return the distinct loads of stages from one limit to another, ascending."""
        tables = (self.stage(step).load for step in dict.fromkeys(self.steps))
        found = [each[(each >= least) & (each <= most)] for each in tables]
        return distinct(np.concatenate(found))

    def least_sum(self, most: int) -> Path | None:
        """Return the plan of the least sum of loads, each at most ``most`` ticks, None where there is none."""
        columns = min(self.band.depth, max(1, self.band.tables.deepest_within(most)))
        rows, row = [self._start()], self._start()
        for position, step in enumerate(self.steps, start=1):
            inner = self._rows(position)
            load = self.stage(step).load[inner, :columns]
            after = windows(row, (self.layers, columns))[inner]
            total = np.where(load <= most, load + after, NEVER)
            row = np.full_like(row, NEVER)
            row[inner] = np.minimum(total.min(axis=1), NEVER)
            rows.append(row)
        return self._trace(rows, most) if row[0] < NEVER else None

    def _trace(self, rows: list[Ints], most: int) -> Path:
        cuts, zeros, slowest, sync = [0], [], 0, 0
        for position in range(len(self.steps), 0, -1):
            first, tables = cuts[-1], self.stage(self.steps[position - 1])
            load = tables.load[first]
            after = rows[position - 1][first + 1 : first + 1 + len(load)]
            column = int(np.argmin(np.where(load <= most, load + after, NEVER)))
            slowest, sync = max(slowest, int(load[column])), max(sync, int(tables.sync[first, column]))
            cuts.append(first + 1 + column)
            zeros.append(int(tables.zero[first, column]))
        return Path(int(rows[-1][0]), slowest, sync, tuple(cuts), tuple(zeros))

    def _start(self) -> Ints:
        row = np.full(self.layers + 1 + self.band.depth, NEVER, dtype=np.int64)
        row[self.layers] = 0
        return row

    def _rows(self, position: int) -> slice:
        """Return the layers with which a stage may begin: others have to fit before it, and behind it."""
        return slice(len(self.steps) - position, self.layers - position + 1)
