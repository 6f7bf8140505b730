"""The search under the objective `simulated`: exact, by playing plans in the order of their bounds.

Plans that are good by `sum` come first, as they are found fast; each of them is played, and the best is what all others
have to beat. Then outer choices come in the order of their bounds, each settled by `simulated_search`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property, partial

from nest.dp.agenda import Agenda
from nest.dp.incumbent import Incumbent
from nest.dp.interleaved import ChunkWay, InterleavedChoice, InterleavedSearch
from nest.dp.makespans import Shape, makespans
from nest.dp.simulated_chunks import PlayedBounds, PlayedChunks
from nest.dp.simulated_outer import SimulatedBounds
from nest.dp.simulated_rows import passes_of
from nest.dp.simulated_search import PlayedChoice
from nest.dp.sum_outer import SumChoice
from nest.dp.sum_rows import Path, SumRows
from nest.dp.sum_search import Prepared, SumSearch, sum_plan
from nest.dp.watch import TimeUp, Watch
from nest.presets import ScheduleName
from nest.problem import Variant
from nest.tables import GroupedTables, Tables


def settle_simulated(tables: Tables, watch: Watch) -> None:
    """Leave the best plan with the incumbent of a search; raises `TimeUp` after its deadline."""
    start = Watch(_middle(watch.deadline), watch.report, Incumbent())
    try:
        _Sums(tables, start, watch.incumbent).settle()
    except TimeUp:
        watch.check()
    _Played(tables, watch).settle()


def _middle(deadline: float | None) -> float | None:
    """Return when half of the time that is left has passed."""
    now = time.perf_counter()
    return None if deadline is None else (now + max(deadline, now)) / 2


class _Sums(Agenda):
    """The search by `sum`, whose plans are played and offered to another incumbent, too."""

    def __init__(self, tables: Tables, watch: Watch, played: Incumbent) -> None:
        super().__init__(tables, watch)
        self.played = played

    @property
    def schedules(self) -> list[ScheduleName]:
        """All that are allowed without chunks: played, none stands for another."""
        return sorted(self.tables.problem.choices.schedules - {"interleaved"})

    def engine(self, variant: Variant, schedule: ScheduleName, chunks: int) -> SumSearch:
        """Return a search under `sum` that also plays what it finds."""
        tables = self.tables.of_variant(variant)
        if chunks > 1:
            return _ChunkEngine(tables, self.watch, chunks, self.played)
        return _SumEngine(tables, self.watch, schedule, self.played)


class _SumEngine(SumSearch):
    def __init__(self, tables: GroupedTables, watch: Watch, schedule: ScheduleName, played: Incumbent) -> None:
        super().__init__(tables, watch, schedule)
        self.played = played

    def prepare(self, choice: SumChoice) -> Iterator[Prepared]:
        """Yield the placings of a choice, as those whose plans are played."""
        for found in super().prepare(choice):
            yield _SumChoice(found.engine, found.choice, found.placing, found.sites)


class _SumChoice(Prepared):
    def evaluate(self, rows: SumRows, most: int) -> Path:
        """Offer a plan, and play it."""
        path = super().evaluate(rows, most)
        assert isinstance(self.engine, _SumEngine)
        shape = Shape(self.engine.schedule, self.choice.stages, self.choice.further + 1)
        taken = int(makespans(shape, passes_of(rows, path))[0]) + path.sync
        self.engine.played.keep(taken, partial(sum_plan, self, path.cuts, path.ways))
        return path


class _ChunkEngine(InterleavedSearch):
    def __init__(self, tables: GroupedTables, watch: Watch, chunks: int, played: Incumbent) -> None:
        super().__init__(tables, watch, chunks)
        self.played = played

    def prepare(self, choice: SumChoice) -> Iterator[Prepared]:
        """Yield the placings of a choice, as those whose plans are played."""
        for found in super().prepare(choice):
            yield _ChunkChoice(found.engine, found.choice, found.placing, found.sites)


class _ChunkChoice(InterleavedChoice):
    def offer(self, taken: int, chosen: list[ChunkWay]) -> None:
        """Offer a plan, and play it."""
        super().offer(taken, chosen)
        self._as_played.offer([each.sync for each in chosen])

    @cached_property
    def _as_played(self) -> PlayedChunks:
        assert isinstance(self.engine, _ChunkEngine)
        return PlayedChunks(self, self.engine.played)


class _Played(Agenda):
    """The search by what is played."""

    @property
    def schedules(self) -> list[ScheduleName]:
        """All that are allowed without chunks: played, none stands for another."""
        return sorted(self.tables.problem.choices.schedules - {"interleaved"})

    def engine(self, variant: Variant, schedule: ScheduleName, chunks: int) -> SumSearch:
        """Return a search of one schedule, with bounds of what is played."""
        tables = self.tables.of_variant(variant)
        if chunks > 1:
            return InterleavedSearch(tables, self.watch, chunks, PlayedBounds(tables, chunks))
        return SumSearch(tables, self.watch, schedule, SimulatedBounds(tables, schedule))

    def prepare(self, engine: SumSearch, choice: SumChoice, bound: int) -> None:
        """Enter a choice in each of its places at once: what is played depends on all that its stages see."""
        for prepared in engine.prepare(choice):
            self.add(max(bound, prepared.bound), partial(self._settle, prepared))

    def _settle(self, prepared: Prepared, bound: int) -> None:
        """Settle a choice, later if others promise more by the bound that its stages give."""
        played = _played(prepared)
        if played.bound <= max(bound, self.next_bound):
            played.settle()
        elif played.bound < self.watch.incumbent.objective:
            self.add(played.bound, lambda _: _played(prepared).settle())


def _played(prepared: Prepared) -> PlayedChoice | PlayedChunks:
    return (
        PlayedChunks(prepared, prepared.incumbent)
        if isinstance(prepared, InterleavedChoice)
        else PlayedChoice(prepared)
    )
