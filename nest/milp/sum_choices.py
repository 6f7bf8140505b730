"""Outer choices under the objective `sum`: the one place from which the programme takes them, the best bound first.

With ``W`` the work of all layers and ``m`` microbatches for each replica of ``S`` stages, D14 is

    objective = (sum of loads) + (m - 1) * (largest load) + sync >= W + (m - 1) * (largest load).

The largest load is no less than the mean, ``W / S``, and than ``ceil(k / S)`` times the work of the ``k``-th heaviest
layer, for every ``k``, as one stage has that many of the ``k`` heaviest. So every outer choice has a bound before
anything is known of its stages.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.constraints import Outer
from nest.places import Placing, Shape
from nest.presets import Arrangement, ScheduleName
from nest.problem import Allowed, Variant
from nest.tables import Tables
from nest.units import HARD_LIMIT, NEVER, Ints


@dataclass(frozen=True, slots=True)
class SumChoice:
    """An outer choice.

    Attributes
    ----------
    placing
        Where its blocks stand (C9).
    schedule
        In which order stages take their passes.
    further
        Microbatches of a replica but one: how often the largest load counts besides.
    """

    variant: Variant
    stages: int
    replicas: int
    arrangement: Arrangement
    placing: Placing
    schedule: ScheduleName
    further: int

    @property
    def outer(self) -> Outer:
        """What side constraints see of it."""
        return Outer(self.variant, self.stages, self.replicas)

    @property
    def shape(self) -> Shape:
        """How many blocks it has, and how wide."""
        return Shape(self.variant.width, self.stages, self.replicas)

    @property
    def starts(self) -> Ints:
        """First devices of the stages of replica 0, from the first of the pipeline on."""
        return self.placing.line.devices(np.array(self.placing.starts(self.stages), dtype=np.int64))


class _Numbers(NamedTuple):
    """Numbers of stages and replicas of one variant by ascending bound: arrays of equal length."""

    stages: Ints
    replicas: Ints
    further: Ints
    bounds: Ints


_Cursor: TypeAlias = "Iterator[tuple[int, SumChoice]]"


class Agenda:
    """Outer choices that are left, each with ticks that all its plans take at least.

    Parameters
    ----------
    tables
        Of the problem.
    every
        Keep choices as which others are alike, see `choices_of`.
    """

    def __init__(self, tables: Tables, *, every: bool = False) -> None:
        self.tables, self.every = tables, every
        self._turns = count()
        self._heap: list[tuple[int, int, Variant | _Cursor | SumChoice]] = []
        for variant in tables.fitting:
            self._push(least_of_variant(tables, variant), variant)

    @property
    def least(self) -> int:
        """Ticks that every plan of a choice that is left takes at least; `NEVER` where none is."""
        return self._heap[0][0] if self._heap else NEVER

    def put(self, bound: int, choice: SumChoice) -> None:
        """Put a choice back with a better bound."""
        self._push(bound, choice)

    def take(self, limit: int) -> tuple[int, SumChoice] | None:
        """Return the choice with the least bound, and that, if it is below a limit; it is no longer left."""
        while self._heap and self._heap[0][0] < limit:
            bound, _, found = heapq.heappop(self._heap)
            if isinstance(found, SumChoice):
                return bound, found
            cursor = choices_of(self.tables, found, every=self.every) if isinstance(found, Variant) else found
            following = next(cursor, None)
            if following is not None:
                self._push(max(bound, following[0]), following[1])
                self._push(max(bound, following[0]), cursor)
        return None

    def _push(self, bound: int, item: Variant | _Cursor | SumChoice) -> None:
        heapq.heappush(self._heap, (bound, next(self._turns), item))


def least_of_variant(tables: Tables, variant: Variant) -> int:
    """Return a bound of all plans of a variant, for which no tables are needed: all devices share all computation.

    As ``m >= M / d`` and ``d * S`` is at most the number of blocks, ``W + (m - 1) * W / S >= W * M / blocks``.
    """
    layers, ticks = tables.problem.graphs[variant].layers, tables.scale.time.ticks_array
    passes = (np.array([each.forward_s for each in layers]), np.array([each.backward_s for each in layers]))
    work = sum(int(ticks(seconds).sum()) for seconds in passes)
    blocks = tables.blocks(variant)
    return min(-(-work * tables.problem.microbatches(variant) // blocks), HARD_LIMIT - 1)


def choices_of(tables: Tables, variant: Variant, *, every: bool = False) -> Iterator[tuple[int, SumChoice]]:
    """Yield the outer choices of a variant that are allowed (C4, C5, C9, C10, `admits`), by ascending bounds.

    Parameters
    ----------
    every
        Yield all placings and schedules. Otherwise one stands for all those in which stages see the same, unless a side
        constraint may tell them apart, and 1F1B for all schedules: none takes less time or memory.
    """
    made, schedules = tables.of_variant(variant), sorted(tables.problem.choices.schedules)
    if "1f1b" in schedules and not every:
        schedules = ["1f1b"]
    alike = not (every or tables.filters.by_place or tables.filters.coupling)
    for stages, replicas, further, bound in zip(*map(np.ndarray.tolist, _numbers(tables, variant)), strict=True):
        if not tables.filters.outer(Outer(variant, stages, replicas)):
            continue
        seen, options = set[object](), made.options(replicas, stages)
        for arrangement in tables.problem.preset.arrangements:
            for placing in made.placings(stages, replicas, arrangement):
                sights = made.sights(made.sites(stages, replicas, placing), options) if alike else placing
                if sights not in seen:
                    seen.add(sights)
                    for schedule in schedules:
                        yield bound, SumChoice(variant, stages, replicas, arrangement, placing, schedule, further)


def _numbers(tables: Tables, variant: Variant) -> _Numbers:
    choices, blocks = tables.problem.choices, tables.blocks(variant)
    made = tables.of_variant(variant)
    counts = _allowed(choices.stages, min(made.layers, blocks))
    copies = _allowed(choices.replicas, min(made.microbatches, blocks))
    rows, columns = np.nonzero(counts[:, None] * copies <= blocks)
    further = -(-made.microbatches // copies[columns]) - 1
    work, number = np.sort(made.work)[::-1], np.arange(1, made.layers + 1)
    total = int(work.sum())
    crowded = (-(-number // counts[:, None]) * work).max(axis=1, initial=0)
    largest = np.maximum(crowded, -(-total // np.maximum(counts, 1)))[rows]
    bounds = np.minimum(total + further.astype(np.float64) * largest, HARD_LIMIT / 2)  # whole numbers could overflow
    exact = np.where(bounds < HARD_LIMIT / 2, total + further * largest, HARD_LIMIT // 2)
    order = np.argsort(exact, kind="stable")
    return _Numbers(counts[rows][order], copies[columns][order], further[order], exact[order])


def _allowed(kept: Allowed, most: int) -> Ints:
    """Return the allowed numbers up to a limit, ascending."""
    found = range(1, most + 1) if kept is None else sorted(each for each in kept if each <= most)
    return np.array(list(found), dtype=np.int64)
