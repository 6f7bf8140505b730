"""Puts outer choices under the objective `simulated` to a solver, one by one, and plays what it answers.

The programme of an outer choice has its path of stages, and says of an iteration no more than some of the chains of its
passes do (`played_paths`). What the solver finds is a bound of the choice, then. Its plan is played: the longest path
that shows is posted, so that the solver's next answer takes it into account, until there is no plan left that could be
better than the best one played. As there are finitely many paths, and each answer that is too low shows a new one, this
ends. Choices come in the order of their bounds, until none is below the best plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from nest.milp.claim import NO_PATH, Claim
from nest.milp.played_arcs import Layered, Stages, shape_of
from nest.milp.played_choices import Agenda, Pipelines, choices_of, least_by_paths
from nest.milp.played_paths import Player, Shape
from nest.milp.stopwatch import Stopwatch
from nest.milp.sum_choices import SumChoice
from nest.plan import Plan
from nest.problem import Variant
from nest.result import Status
from nest.tables import Tables
from nest.units import HARD_LIMIT, NEVER, Ints


class Answer(NamedTuple):
    """What a solver says of a programme: a bound, `NEVER` where there is no solution, and arcs of a solution."""

    bound: int
    arcs: list[int]
    complete: bool


class Programme(Protocol):
    """The programme of an outer choice in some solver."""

    def post_path(self, counts: Ints) -> None:
        """State that an iteration is no shorter than a path."""

    def ask(self, limit: int, time_limit_s: float | None) -> Answer:
        """Return the solution with the least objective, as far as it is below a limit."""


@dataclass(frozen=True)
class Engine:
    """A solver: what makes its programmes, and what a claim says of it."""

    build: Callable[[Stages], Programme]
    said: Claim


class PlayedSearch:
    """One search.

    Parameters
    ----------
    tables
        Of the problem.
    engine
        Which solver is asked.
    time_limit_s
        For all of it.
    """

    def __init__(self, tables: Tables, engine: Engine, time_limit_s: float | None) -> None:
        self.tables, self.engine = tables, engine
        self.watch = Stopwatch(time_limit_s)
        self.best, self.plan, self.open_, self.asked = NEVER, None, NEVER, False
        self._layered: dict[Variant, Layered] = {}
        self._players: dict[Shape, tuple[Player, list[Ints]]] = {}

    best: int
    plan: Plan | None

    def run(self, at_least: int = 0, *, first: bool = False) -> Claim:
        """Return what is found.

        Parameters
        ----------
        at_least
            Ticks of which it is known that no plan takes less.
        first
            Be content with any plan.
        """
        agenda = Agenda(self.tables)
        while max(agenda.least, at_least) < min(self.best, HARD_LIMIT):
            if self.watch.left_s == 0.0 or (first and self.plan is not None):
                break
            found = agenda.take()
            if found is not None and not found.played:
                agenda.put(found._replace(bound=self._played(found), played=True))
            elif found is not None:
                for choice in choices_of(self.tables, found):
                    self._settle(choice, found.bound)
        return self._claim(max(min(agenda.least, self.open_), at_least))

    def _played(self, found: Pipelines) -> int:
        """Return a better bound of outer choices wherever their blocks stand."""
        tables = self.tables.of_variant(found.variant)
        microbatches = -(-tables.microbatches // found.replicas)
        player, _ = self._player(Shape(found.schedule, found.stages, microbatches, found.chunks))
        return max(found.bound, least_by_paths(tables, found, player))

    def _settle(self, choice: SumChoice, bound: int) -> None:
        """Ask for the best plan of an outer choice, until none is below the best."""
        if self.watch.left_s == 0.0:
            self.open_ = min(self.open_, bound)
            return
        if choice.variant not in self._layered:
            self._layered[choice.variant] = Layered(self.tables.of_variant(choice.variant))
        stages = self._layered[choice.variant].below(choice, min(self.best, HARD_LIMIT))
        if stages is None:
            return
        player, known = self._player(shape_of(choice))
        programme, self.asked = self.engine.build(stages), True
        known += [] if known else player.starting()
        for counts in known:
            programme.post_path(counts)
        while bound < self.best:
            answer = programme.ask(min(self.best, HARD_LIMIT), self.watch.left_s)
            bound = max(bound, answer.bound)
            path = player.longest(self._ticks(stages, answer.arcs)) if answer.arcs else None
            if path is not None:
                self._keep(stages, answer.arcs, path.ticks)
            new = path is not None and not any((path.counts == each).all() for each in known)
            if path is not None and new:
                known.append(path.counts)
                programme.post_path(path.counts)
            if not answer.complete or (not new and bound < self.best):
                self.open_ = min(self.open_, bound)
                return

    def _player(self, shape: Shape) -> tuple[Player, list[Ints]]:
        """Return what plays pipelines of a shape, and the paths of them that are known."""
        if shape not in self._players:
            self._players[shape] = Player(shape), []
        return self._players[shape]

    def _ticks(self, stages: Stages, arcs: list[int]) -> Ints:
        inorder = sorted(arcs, key=lambda arc: int(stages.arcs.stage[arc]))
        found: Ints = stages.arcs.ticks[inorder]
        return found

    def _keep(self, stages: Stages, arcs: list[int], played: int) -> None:
        taken = played + int(stages.arcs.sync[arcs].max())
        if taken < min(self.best, HARD_LIMIT):
            self.best, self.plan = taken, stages.plan(arcs)

    def _claim(self, least: int) -> Claim:
        """Return what all answers come to."""
        if self.plan is not None:
            status = Status.OPTIMAL if least >= self.best else Status.FEASIBLE
        else:
            status = Status.INFEASIBLE if least >= HARD_LIMIT else Status.UNKNOWN
        return replace(
            self.engine.said if self.asked else NO_PATH,
            status=status,
            plan=self.plan,
            objective=None if self.plan is None else self.best,
            bound=None if status is Status.INFEASIBLE else min(least, self.best),
            wall_s=self.watch.used_s,
        )
