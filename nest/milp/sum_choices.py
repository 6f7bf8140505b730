"""Outer choices under the objective `sum`: the one place from which the programme takes them, the best bound first.

With ``W`` the work of all layers and ``m`` microbatches for each replica of ``S`` stages, D14 is

    objective = (sum of loads) + (m - 1) * (largest load) + sync >= W + (m - 1) * (largest load).

The largest load is no less than the mean, ``W / S``, and than ``ceil(k / S)`` times the work of the ``k``-th heaviest
layer, for every ``k``, as one stage has that many of the ``k`` heaviest. So every outer choice has a bound before
anything is known of its stages. Under an interleaved schedule the cut is known, and with it the work of each stage.

Where devices are of several classes, ``W`` is the work on the fastest of each layer. A stage whose devices take ``s``
times as long at least does ``T / s`` of it in ``T`` ticks. So stages that are all at work for ``T`` at most, the ``k``
least slow of them for all of it, take ``k * T = k * W / (sum of their 1 / s)`` together, and for other ``T`` more or,
between two such, a mean.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.constraints import Outer, Run, Site
from nest.milp.paced import Paced
from nest.milp.wide_choices import WideChoice, least_of_forms, wide_choices
from nest.places import Placing, Shape
from nest.presets import Arrangement, ScheduleName
from nest.problem import Allowed, Variant
from nest.tables import GroupedTables, Tables, UnevenTables
from nest.tables.chunked import levels_around
from nest.tables.speeds import SURE, least_work
from nest.units import HARD_LIMIT, NEVER, Ints


@dataclass(frozen=True, slots=True)
class SumChoice(Paced):
    """An outer choice.

    Attributes
    ----------
    placing
        Where its blocks stand (C9).
    schedule
        In which order stages take their passes.
    further
        Microbatches of a replica but one: how often the largest load counts besides.
    chunks
        Of each stage.
    """

    variant: Variant
    stages: int
    replicas: int
    arrangement: Arrangement
    placing: Placing
    schedule: ScheduleName
    further: int
    chunks: int = 1

    @property
    def outer(self) -> Outer:
        """What side constraints see of it."""
        return Outer(self.variant, self.stages, self.replicas)

    @property
    def shape(self) -> Shape:
        """How many blocks it has, and how wide."""
        return Shape(self.variant.width, self.stages, self.replicas)

    @property
    def stride(self) -> int:
        """Positions on the line from one replica to the next."""
        return self.placing.stride

    @property
    def devices(self) -> int:
        """How many devices of the line its plans take."""
        return self.placing.used(self.shape)

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


AnyChoice: TypeAlias = SumChoice | WideChoice
"""An outer choice, of plans all of whose stages are alike, or of others."""


class Following(NamedTuple):
    """The next outer choice of a row: a bound of it and of all behind it, and one of its own."""

    bound: int
    own: int
    choice: AnyChoice


_Cursor: TypeAlias = "Iterator[Following]"


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
        self._heap: list[tuple[int, int, Variant | UnevenTables | _Cursor | AnyChoice]] = []
        for variant in tables.fitting:
            self._push(least_of_variant(tables, variant), variant)
        for forms in tables.uneven:
            self._push(least_of_forms(forms), forms)

    @property
    def least(self) -> int:
        """Ticks that every plan of a choice that is left takes at least; `NEVER` where none is."""
        return self._heap[0][0] if self._heap else NEVER

    def put(self, bound: int, choice: AnyChoice) -> None:
        """Put a choice back with a better bound."""
        self._push(bound, choice)

    def take(self, limit: int) -> tuple[int, AnyChoice] | None:
        """Return the choice with the least bound, and that, if it is below a limit; it is no longer left."""
        while self._heap and self._heap[0][0] < limit:
            bound, _, found = heapq.heappop(self._heap)
            if isinstance(found, SumChoice | WideChoice):
                return bound, found
            cursor = self._cursor(found) if isinstance(found, Variant | UnevenTables) else found
            following = next(cursor, None)
            if following is not None:
                self._push(max(bound, following.own), following.choice)
                self._push(max(bound, following.bound), cursor)
        return None

    def _cursor(self, found: Variant | UnevenTables) -> _Cursor:
        if isinstance(found, Variant):
            return choices_of(self.tables, found, every=self.every)
        by_devices = bool(self.tables.filters.coupling)
        each = wide_choices(found, every=self.every, by_devices=by_devices)
        return (Following(bound, bound, choice) for bound, choice in each)

    def _push(self, bound: int, item: Variant | UnevenTables | _Cursor | AnyChoice) -> None:
        heapq.heappush(self._heap, (bound, next(self._turns), item))


def least_of_variant(tables: Tables, variant: Variant) -> int:
    """Return a bound of all plans of a variant, for which no tables are needed: all devices share all computation.

    As ``m >= M / d`` and ``d * S`` is at most the number of blocks, ``W + (m - 1) * W / S >= W * M / blocks``. Where
    devices are of several classes, every block does a part of the work, each as fast as it can.
    """
    work = least_work(tables.problem, tables.scale, variant, tables.blocks(variant))
    return int(min(work * tables.problem.microbatches(variant) * SURE, HARD_LIMIT - 1.0))


def choices_of(tables: Tables, variant: Variant, *, every: bool = False) -> Iterator[Following]:
    """Yield the outer choices of a variant that are allowed (C4, C5, C9, C10, C15, C16, `admits`), by ascending bounds.

    Parameters
    ----------
    every
        Yield all placings and schedules. Otherwise one stands for all those in which stages see the same, unless a side
        constraint may tell them apart or, with several classes of devices, that takes long to say; and 1F1B for GPipe:
        that takes no less time or memory.
    """
    schedules, found = tables.problem.choices.schedules, list[_Cursor]()
    if schedules - {"interleaved"}:
        found.append(_with_runs(tables, variant, every=every))
    if "interleaved" in schedules:
        found.append(_with_chunks(tables, variant, every=every))
    return heapq.merge(*found, key=itemgetter(0))


def _with_runs(tables: Tables, variant: Variant, *, every: bool) -> _Cursor:
    """Yield those whose stages are runs of layers, or differences of downsets."""
    made, schedules = tables.of_variant(variant), sorted(tables.problem.choices.schedules - {"interleaved"})
    if "1f1b" in schedules and not every:
        schedules = ["1f1b"]
    apart = tables.filters.by_place or tables.filters.coupling or tables.problem.cluster.classes
    alike = not (every or apart)
    for stages, replicas, further, bound in zip(*map(np.ndarray.tolist, _numbers(tables, variant)), strict=True):
        if not tables.filters.outer(Outer(variant, stages, replicas)):
            continue
        seen, options = set[object](), made.options(replicas, stages)
        for arrangement in tables.problem.preset.arrangements:
            for placing in made.placings(stages, replicas, arrangement):
                sites = made.sites(stages, replicas, placing)
                sights = made.sights(sites, options) if alike else placing
                if sights not in seen:
                    seen.add(sights)
                    own = max(bound, least_on_classes(made, [site.classes for site in sites], further))
                    for schedule in schedules:
                        choice = SumChoice(variant, stages, replicas, arrangement, placing, schedule, further)
                        yield Following(bound, own, choice)


def _with_chunks(tables: Tables, variant: Variant, *, every: bool) -> _Cursor:
    """Yield those that are interleaved: several stages, and equal parts."""
    made, numbers, cuts = tables.of_variant(variant), _numbers(tables, variant), list[tuple[int, int, int, int]]()
    for stages, replicas, further in zip(*map(np.ndarray.tolist, numbers[:3]), strict=True):
        admitted = tables.filters.outer(Outer(variant, stages, replicas))
        if admitted and stages > 1:
            cuts += [(bound, stages, replicas, chunks) for chunks, bound in cut_bounds(made, stages, further + 1)]
    for bound, stages, replicas, chunks in sorted(cuts):
        seen, options = set[object](), made.options(replicas, stages)
        for arrangement in tables.problem.preset.arrangements:
            for placing in made.placings(stages, replicas, arrangement):
                if not stand_as_asked(made, Outer(variant, stages, replicas), placing):
                    continue
                around = frozenset(map(tuple, levels_around(made, stages, replicas, placing).tolist()))
                apart = every or tables.filters.coupling
                sights = placing if apart else (made.sights(made.sites(stages, replicas, placing), options), around)
                if sights not in seen:
                    seen.add(sights)
                    further = -(-made.microbatches // replicas) - 1
                    choice = SumChoice(variant, stages, replicas, arrangement, placing, "interleaved", further, chunks)
                    yield Following(bound, bound, choice)


def least_on_classes(tables: GroupedTables, classes: Sequence[frozenset[str]], further: int) -> int:
    """Return a bound of plans whose stages stand on some classes of devices each; 0 where there is one class."""
    if not classes[0]:
        return 0
    speeds = np.cumsum(np.sort(1 / np.array([tables.slowdown(each) for each in classes]))[::-1])
    least = ((np.arange(1, len(classes) + 1) + further) * (float(tables.work.sum()) / speeds)).min()
    return int(min(least * SURE, HARD_LIMIT / 2))


def stand_as_asked(tables: GroupedTables, outer: Outer, placing: Placing) -> bool:
    """Whether local side constraints (`admits_place`) admit all stages where they stand, whatever layers they have."""
    starts = placing.line.devices(np.array(placing.starts(outer.stages), dtype=np.int64)).tolist()
    for at, start in enumerate(starts):
        site = Site(outer.stages - at, np.array([start]), tables.width, placing.stride, placing.line)
        mask = tables.filters.place(outer, Run(np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)), site)
        if mask is not None and not mask.all():
            return False
    return True


def cut_bounds(tables: GroupedTables, stages: int, microbatches: int) -> Iterator[tuple[int, int]]:
    """Yield numbers of chunks of so many stages, with what the work of these takes at least (C16, D14)."""
    allowed, work = tables.problem.choices.chunks, tables.by_cut(tables.work)
    for chunks in range(2, tables.layers // stages + 1):
        ends = tables.graph.equal_parts(stages * chunks) if allowed is None or chunks in allowed else None
        if ends is not None:
            loads = np.diff(work[[0, *ends]]).reshape(chunks, stages).sum(axis=0)
            largest, total = int(loads.max()), int(loads.sum())
            short, long = sorted((microbatches * largest, total))
            bound = long - (largest - short) // chunks
            yield chunks, min(bound, HARD_LIMIT // 2)


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
