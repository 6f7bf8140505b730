"""The recursion over (stage from the end, first layer, widths, place) for stages that differ in width.

Widths make the position a part of the state. For a cap on the load and one on the synchronisation,

    ``least_q[first, below, own, place] = min over end of least_{q-1}[end, ., below, place - below] + below``

is the least number of blocks under the ``q + 1``-th stage from the end, which will be ``own`` blocks wide and stand on
one of ``below`` blocks, at a place within the cycle after which levels look alike; the minimum is over the stages
``[first, end)`` whose load at their place stays within the cap. Stages fit the memory of their devices (rule C11) and
are runs of layers (C2, C3) by construction. "Is there a better plan?" is whether the least number of blocks is within
those of a replica (C10); the best plan follows by bisection over the loads that occur.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.constraints import Mask
from nest.dp.layout import Layout, LevelClasses
from nest.dp.masks import Role
from nest.dp.outer import OuterChoice
from nest.dp.relaxed import FULL, Relaxation
from nest.dp.sharding import most
from nest.dp.traceback import stages_of
from nest.dp.watch import Watch
from nest.plan import StageChoice
from nest.units import NEVER, Ints, distinct


class Placing:
    """Decides whether, and how, stages can be placed in a layout.

    Parameters
    ----------
    relaxation
        Tables and bounds of the variant, deep enough for every stage of interest.
    layout, choice
        Where replicas start; stages and replicas.
    watch
        Of the search.
    """

    def __init__(self, relaxation: Relaxation, layout: Layout, choice: OuterChoice, watch: Watch) -> None:
        self.relaxation, self.layout, self.watch = relaxation, layout, watch
        self.stages, self.band, self.tables = relaxation.stages, relaxation.band, relaxation.tables
        self.count, self.replicas = choice.stages, choice.replicas
        room = layout.budget - (self.count - 1) * self.stages.degrees[0]
        self.degrees = tuple(degree for degree in self.stages.degrees if degree <= room)
        self.masks = relaxation.masks
        self._places = np.arange(layout.cycle, dtype=np.int64)
        self._classes = relaxation.classes
        self._syncs: dict[tuple[int, int], Ints] = {}

    def least_load(self, floor: int, cap: int, sync_cap: int) -> tuple[int, list[StageChoice]] | None:
        """Return the least load of ``floor`` to ``cap`` with which a plan exists, and such a plan."""
        choices = self.decide(cap, sync_cap)
        if choices is None:
            return None
        loads = self._loads_between(floor, cap)
        low, high = 0, len(loads) - 1
        while low < high:
            middle = (low + high) // 2
            better = self.decide(int(loads[middle]), sync_cap)
            if better is None:
                low = middle + 1
            else:
                high, choices = middle, better
        return int(loads[high]), choices

    def _loads_between(self, floor: int, cap: int) -> Ints:
        found = [np.zeros(0, dtype=np.int64)]
        for degree in self.degrees:
            for triples in self.classes(degree).triples:
                for zero in self.stages.types(degree):
                    load = self.stages.load(degree, zero, triples)
                    found.append(load[self.band.valid & (load >= floor) & (load <= cap)])
        return distinct(np.concatenate(found))

    def least_sync(self, load: int, sync_cap: int, choices: list[StageChoice]) -> tuple[int, list[StageChoice]]:
        """Return the least synchronisation below ``sync_cap`` for plans of at most ``load``, and such a plan."""
        shardings = [sharding for sharding in self.stages.shardings if sharding[0] in self.degrees]
        syncs = distinct(np.concatenate([self.sync(degree, zero)[self.band.valid] for degree, zero in shardings]))
        syncs = syncs[syncs <= sync_cap]
        low, high = 0, len(syncs) - 1
        while low < high:
            middle = (low + high) // 2
            better = self.decide(load, int(syncs[middle]))
            if better is None:
                low = middle + 1
            else:
                high, choices = middle, better
        return int(syncs[high]), choices

    def sync(self, degree: int, zero: int) -> Ints:
        """Ticks of the gradient synchronisation of every stage."""
        if (degree, zero) not in self._syncs:
            self._syncs[degree, zero] = self.stages.syncs(degree, zero, self.replicas, self.layout.height)
        return self._syncs[degree, zero]

    def classes(self, degree: int) -> LevelClasses:
        """Levels that a stage of ``degree`` blocks may see."""
        layout = self.layout
        key = (layout.offsets.tobytes(), layout.cycle, degree, self.degrees)
        if key not in self._classes:
            self._classes[key] = layout.classes(degree, self.degrees, monotone=self.tables.monotone)
        return self._classes[key]

    def decide(self, cap: int, sync_cap: int) -> list[StageChoice] | None:
        """Return the stages of a plan whose loads and synchronisation stay within the caps, None if there is none."""
        first_only = not self.stages.problem.preset.sync_all_stages
        limits = Limits(self, cap, NEVER if first_only else sync_cap)
        first_limits = Limits(self, cap, sync_cap) if first_only else limits
        completions = self.relaxation.completions(self.count, cap, float(self.tables.parameters.sum()))
        room = [self.layout.budget - least for least in completions]
        if room[0][self.tables.layers] < 0:
            return None
        rows = [self._start()]
        for position in range(1, self.count):
            rows.append(self._step(rows[-1], position, limits, room[position]))
            if rows[-1].least >= FULL:
                return None
        return stages_of(self, rows, limits, first_limits)

    def role(self, position: int) -> Role:
        """Return what side constraints may know of the stage at a position from the end."""
        return Role(self.count, position, self.replicas)

    def placed(self, position: int, own: int) -> Mask | None:
        """Return which stages of the ``own``-th degree may stand where, by first layer, column and place."""
        return self.masks.placed(self.role(position), self._places, self.degrees[own], self.layout.budget)

    def _empty(self, layers: int) -> Ints:
        count = len(self.degrees)
        return np.full((layers, count + 1, count, self.layout.cycle), FULL, dtype=np.int64)

    def _start(self) -> Row:
        values = self._empty(1)
        values[0, len(self.degrees), :, 0] = 0
        return Row(self.tables.layers, values)

    def _step(self, row: Row, position: int, limits: Limits, room: Ints) -> Row:
        """Place the ``position``-th stage from the end under another one.

        Parameters
        ----------
        room
            Most blocks from which the pipeline can still be completed, by first layer.
        """
        self.watch.check()
        lowest = max(0, row.low - self.band.depth)
        open_now = np.flatnonzero(room[lowest : row.high - 1] >= 0) + lowest
        if len(open_now) == 0:
            return Row(0, self._empty(1))
        low, high = int(open_now[0]), int(open_now[-1]) + 1
        before = row.between(low + 1, high + self.band.depth)
        result = self._empty(high - low)
        admitted = self.masks.inner(self.role(position))
        for own, degree in enumerate(self.degrees):
            usable = limits.of(own)[low:high] >= position
            if admitted is not None:
                usable &= admitted[low:high, :, None]
            placed = self.placed(position, own)
            reached = self._reach(before[:, :, own, :], usable, own, None if placed is None else placed[low:high])
            moved = np.roll(reached, degree % self.layout.cycle, axis=2) + degree
            moved[moved > room[low:high, None, None]] = FULL
            result[:, own, :, :] = moved
        return Row(low, result).trimmed()

    def _reach(self, before: Ints, usable: Mask, own: int, placed: Mask | None) -> Ints:
        """Return the least blocks below a stage of the ``own``-th degree, by first layer, next degree and place."""
        count, layers = len(self.degrees), len(usable)
        reached = np.full((layers, count, self.layout.cycle), FULL, dtype=np.int64)
        which = self.classes(self.degrees[own]).which[:, :count, :]
        for column in np.flatnonzero(usable.any(axis=(0, 2))).tolist():
            legal = usable[:, column].take(which, axis=1)
            if placed is not None:
                legal &= placed[:, column, None, None, :]
            after = np.where(legal, before[column : column + layers, :, None, :], FULL).min(axis=1)
            np.minimum(reached, after, out=reached)
        return reached


@dataclass(frozen=True)
class Row:
    """Least blocks by first layer from ``low`` on, index of the degree below and of the own, and place."""

    low: int
    values: Ints

    @property
    def high(self) -> int:
        """One beyond the last first layer."""
        return self.low + len(self.values)

    @property
    def least(self) -> int:
        """Least value of the row."""
        return int(self.values.min())

    def between(self, low: int, high: int) -> Ints:
        """Return the values of the first layers ``[low, high)``, `FULL` where the row has none."""
        values = np.full((high - low, *self.values.shape[1:]), FULL, dtype=np.int64)
        start, end = max(low, self.low), min(high, self.high)
        if start < end:
            values[start - low : end - low] = self.values[start - self.low : end - self.low]
        return values

    def trimmed(self) -> Row:
        """Return the row without the first layers at its ends that nothing reaches."""
        active = np.flatnonzero((self.values < FULL).any(axis=(1, 2, 3)))
        if len(active) == 0:
            return Row(self.low, self.values[:1])
        return Row(self.low + int(active[0]), self.values[active[0] : active[-1] + 1])


class Limits:
    """For each degree and class of levels, the most microbatches in flight with which a stage keeps the caps."""

    def __init__(self, placing: Placing, cap: int, sync_cap: int) -> None:
        self.placing, self.cap, self.sync_cap = placing, cap, sync_cap
        self._found: dict[int, Ints] = {}

    def of(self, own: int) -> Ints:
        """Return the limit of every stage (first layer, column) with the ``own``-th degree, by class of levels."""
        if own not in self._found:
            degree = self.placing.degrees[own]
            types, kinds = self.placing.stages.types(degree), range(len(self.placing.classes(degree).triples))
            limits = [most([self.with_type(zero, own, kind) for zero in types]) for kind in kinds]
            self._found[own] = np.stack(limits, axis=-1)
        return self._found[own]

    def with_type(self, zero: int, own: int, kind: int) -> Ints:
        """Return the limit of every stage for one ZeRO type and class of levels."""
        placing = self.placing
        degree = placing.degrees[own]
        fast = placing.stages.load(degree, zero, placing.classes(degree).triples[kind]) <= self.cap
        if self.sync_cap < NEVER:
            fast &= placing.sync(degree, zero) <= self.sync_cap
        return np.where(fast, placing.band.most_in_flight(zero, degree), 0)
