"""What is left to do under the objective `sum`: outer choices in the order of their bounds, until no bound can win."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from nest.dp.interleaved import InterleavedSearch
from nest.dp.sum_outer import (
    SumChoice,
    SumChoices,
    SumRange,
    busy_of_variant,
    least_of_variant,
    sum_choices,
    sum_ranges,
)
from nest.dp.sum_search import Prepared, SumSearch
from nest.dp.watch import Watch
from nest.presets import ScheduleName
from nest.problem import Variant
from nest.tables import Tables
from nest.units import NEVER, Ints

A_LITTLE = 4
"""A bound is asked to be higher by this part of itself."""


def settle_sums(tables: Tables, watch: Watch) -> None:
    """Leave the best plan with the incumbent of a search; raises `TimeUp` after its deadline."""
    Agenda(tables, watch).settle()


class Agenda:
    """What is left to do, each with a bound of the objective, by which it comes; what comes may leave more to do.

    A variant makes way for itself with the collectives of its layers; that for its tables and its outer choices in the
    order of their first bounds; a choice for itself
    with a bound by memory; that for itself in each of its places, with a bound by the devices there; that for itself
    with a bound from all that its stages see, if none before sees the same; and that is settled.
    """

    def __init__(self, tables: Tables, watch: Watch) -> None:
        self.tables, self.watch = tables, watch
        self._heap: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        for variant in tables.fitting:
            for schedule in self.schedules:
                self.add(least_of_variant(tables, variant), partial(self._weigh, variant, schedule, 1))
            for chunks in self.chunks(variant):
                self.add(least_of_variant(tables, variant), partial(self._weigh, variant, "interleaved", chunks))

    @property
    def schedules(self) -> list[ScheduleName]:
        """Those to try without chunks: GPipe takes as long as 1F1B by `sum`, and never less memory."""
        allowed = self.tables.problem.choices.schedules - {"interleaved"}
        return ["1f1b"] if "1f1b" in allowed else sorted(allowed)

    def chunks(self, variant: Variant) -> list[int]:
        """Return how many chunks a stage may have: two or more stages have as many each."""
        problem = self.tables.problem
        if "interleaved" not in problem.choices.schedules:
            return []
        allowed, graph = problem.choices.chunks, problem.graphs[variant]
        divide = len(graph) - sum(graph.riding)
        numbers = (each for each in range(2, divide // 2 + 1) if divide % each == 0)
        return [each for each in numbers if allowed is None or each in allowed]

    def settle(self) -> None:
        """Do what is left, until no bound can win."""
        watch = self.watch
        while self.next_bound < watch.incumbent.objective:
            bound, _, step = heapq.heappop(self._heap)
            watch.bound = bound
            watch.check()
            step(bound)

    @property
    def next_bound(self) -> int:
        """The least bound of what is left, `NEVER` where nothing is."""
        return self._heap[0][0] if self._heap else NEVER

    def add(self, bound: int, step: Callable[[int], None]) -> None:
        """Enter what is to be done, and a bound of what may come of it."""
        self._count += 1
        heapq.heappush(self._heap, (bound, self._count, step))

    def engine(self, variant: Variant, schedule: ScheduleName, chunks: int) -> SumSearch:
        """Return what settles the outer choices of a variant, a schedule and a number of chunks."""
        tables = self.tables.of_variant(variant)
        if chunks > 1:
            return InterleavedSearch(tables, self.watch, chunks)
        return SumSearch(tables, self.watch, schedule)

    def prepare(self, engine: SumSearch, choice: SumChoice, bound: int) -> None:
        """Enter a choice, for each of its placings with what its stages see."""
        seen = set[object]()
        for prepared in engine.prepare(choice):
            self.watch.check()
            self._place(prepared, seen, bound)

    def _place(self, prepared: Prepared, seen: set[object], bound: int) -> None:
        """Enter a choice in one of its places, with its bound by the devices there or a little better one to go on."""
        best = self.watch.incumbent.objective
        asked = min(best, bound + bound // A_LITTLE + 1)
        bound = max(bound, prepared.least(asked))
        self.add(bound, partial(self._place if asked <= bound < best else self._look, prepared, seen))

    def _look(self, prepared: Prepared, seen: set[object], bound: int) -> None:
        """Enter a choice in one of its places with the bound from all that its stages see, if none before sees that."""
        if prepared.sights not in seen:
            seen.add(prepared.sights)
            self.add(max(bound, prepared.bound), partial(self._settle, prepared))

    def _weigh(self, variant: Variant, schedule: ScheduleName, chunks: int, bound: int) -> None:
        least = busy_of_variant(self.tables, variant, in_turn=schedule != "zb-h1")
        self.add(max(bound, least), partial(self._open, variant, schedule, chunks))

    def _open(self, variant: Variant, schedule: ScheduleName, chunks: int, _: int) -> None:
        engine = self.engine(variant, schedule, chunks)
        for ranges in sum_ranges(engine.bounds):
            self.watch.total += int(ranges.sizes.sum())
            self._begin(engine, ranges)

    def _begin(self, engine: SumSearch, choices: SumChoices) -> None:
        self._next(engine, choices, np.argsort(choices.bounds, kind="stable"), 0)

    def _next(self, engine: SumSearch, choices: SumChoices, order: Ints, turn: int) -> None:
        if turn < len(order):
            bound = int(choices.bounds[order[turn]])
            self.add(bound, lambda bound: self._consider(engine, choices, order, turn, bound))

    def _consider(self, engine: SumSearch, choices: SumChoices, order: Ints, turn: int, bound: int) -> None:
        self._next(engine, choices, order, turn + 1)
        row = int(order[turn])
        self._fill(engine, choices[row], int(choices.sizes[row]), bound)

    def _fill(self, engine: SumSearch, chosen: SumRange, size: int, bound: int) -> None:
        """Enter some choices with their bound by memory, or with one that is a little better and this still to do.

        What that bound is takes longer to say than that it is no less than something.
        """
        single, best = chosen.single, self.watch.incumbent.objective
        asked = min(best, bound + bound // A_LITTLE + 1)
        bound = max(bound, engine.bounds.filled(chosen, asked))
        if asked <= bound < best:
            self.add(bound, partial(self._fill, engine, chosen, size))
            return
        if bound >= best or single:
            self.watch.settled += size
        if single and self.watch.trace:
            self.watch.trace.came_up(engine.named(single), bound, fits=bound < best)
        if bound < best:
            self.add(bound, partial(self.prepare, engine, single) if single else partial(self._split, engine, chosen))

    def _settle(self, prepared: Prepared, _: int) -> None:
        incumbent, trace = self.watch.incumbent, self.watch.trace
        before = incumbent.objective
        prepared.settle()
        if trace:
            better = incumbent.objective < before
            trace.settled(prepared.engine.named(prepared.choice), incumbent.objective if better else None)

    def _split(self, engine: SumSearch, chosen: SumRange, bound: int) -> None:
        choices = sum_choices(engine.bounds, chosen)
        self._begin(engine, replace(choices, bounds=np.maximum(choices.bounds, bound)))
