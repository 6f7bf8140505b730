"""Puts outer choices under the objective `sum` to a solver, the best bound first, until none can have a better plan.

The programme of all of them is too large where they are many. So they are looked at in the order of their bounds: of
the first, its stages below some limit are found, which makes its bound better; if that is still the least, the solver
is asked for the best plan below a little more, of this choice and of others with bounds below. What the solver answers
holds for these: if there is no plan below the limit, the limit is a bound of each; if there is one, the best of them
is. The answer is *optimal* if each choice is so closed, by a bound that is no less than the best plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from nest.milp.claim import NO_PATH, Claim
from nest.milp.stopwatch import Stopwatch
from nest.milp.sum_choices import Agenda, AnyChoice
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_kinds import Stages
from nest.milp.sum_room import Room, bare_bound, narrowed, room_below
from nest.milp.sum_stages import kept_under
from nest.plan import Plan
from nest.result import Status
from nest.tables import Tables
from nest.units import HARD_LIMIT, NEVER

TOGETHER = 4000
"""Stages of the outer choices that are put to a solver together, unless one alone has more."""

FIRST_STEP = 0.005
"""By which part the first limit is above the least bound; each limit below which there is no plan doubles it."""

HORIZONS = (1.1, 1.5, 6.0)
"""How many times its bound the limit is below which the stages of an outer choice are found; then there is none."""

FIRST_LOOK = 1.5
"""How many times its bound an outer choice is bounded up to as if its stages had no memory and exchanged nothing."""

MOST_KEPT = 4_000_000
"""Stages of outer choices that are kept for reuse."""


class Engine(Protocol):
    """A solver of programmes."""

    def __call__(self, made: SumFormulation, time_limit_s: float | None) -> Claim:
        """Return what it says of the plans of a programme that take less than its limit."""


@dataclass(frozen=True, slots=True)
class Known:
    """A plan with its ticks, `NEVER` where there is none."""

    objective: int = NEVER
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The stages of an outer choice below a horizon, None where there is no plan; and the how-manieth horizon it is."""

    horizon: int
    turn: int
    room: Room | None


class SumSearch:
    """One search.

    Parameters
    ----------
    tables
        Of the problem.
    engine
        Which solver is asked.
    known
        A plan to start from.
    time_limit_s
        For all of it.
    """

    def __init__(self, tables: Tables, engine: Engine, known: Known, time_limit_s: float | None) -> None:
        self.tables, self.engine, self.best = tables, engine, known
        self.watch = Stopwatch(time_limit_s)
        self.agenda, self.step, self.claim = Agenda(tables), FIRST_STEP, NO_PATH
        self._stages = Stages(tables, kept_under(tables.filters))
        self._seen, self._kept = dict[AnyChoice, _Seen](), 0
        self._met, self._open, self._complete = set[AnyChoice](), NEVER, True

    def run(self, at_least: int = 0, *, first: bool = False) -> Claim:
        """Return what is found.

        Parameters
        ----------
        at_least
            Ticks of which it is known that no plan takes less.
        first
            Be content with any plan.
        """
        while max(self.agenda.least, at_least) < min(self.best.objective, HARD_LIMIT):
            if self.watch.left_s == 0.0 or (first and self.best.plan is not None):
                self._complete = False
                break
            rooms, limit = self._family()
            if rooms:
                self._ask(rooms, limit)
        return self._claim(at_least)

    def _family(self) -> tuple[list[Room], int]:
        """Return the outer choice with the least bound, and others, with their stages below a limit; and the limit.

        Empty where time is up, or all of it is closed.
        """
        rooms, size, limit = list[Room](), 0, min(self.best.objective, HARD_LIMIT)
        while size < TOGETHER and self.watch.left_s != 0.0 and (taken := self.agenda.take(limit)) is not None:
            bound, choice = taken
            if choice not in self._met:
                self._met.add(choice)
                self.agenda.put(max(bound, self._bare(bound, choice)), choice)
                continue
            room, horizon = self._room(bound, choice)
            bound = horizon if room is None else max(bound, room.least)
            if room is None or bound > self.agenda.least:
                self.agenda.put(bound, choice)
                continue
            if not rooms:
                limit = min(limit, bound + max(1, int(bound * self.step)))
            limit = min(limit, horizon)
            room = narrowed(room, self._stages.of(choice).cuts_of(choice), limit)
            if room.empty:
                self.agenda.put(limit, choice)
            else:
                rooms.append(room)
                size += room.size
        return rooms, limit

    def _bare(self, bound: int, choice: AnyChoice) -> int:
        """Return a better bound of an outer choice, before the ways of its stages are known."""
        limit = min(self.best.objective, HARD_LIMIT, int(bound * FIRST_LOOK) + 1)
        return bare_bound(self._stages.of(choice), choice, limit)

    def _room(self, bound: int, choice: AnyChoice) -> tuple[Room | None, int]:
        """Return the stages of an outer choice below a horizon above its bound, None where there is no plan; and that.

        What was found before is kept as long as there is room for it. A second look comes to the same.
        """
        seen, cap = self._seen.get(choice), self._cap(choice)
        if bound >= cap:
            return None, HARD_LIMIT
        if seen is not None and seen.room is not None and seen.horizon > bound:
            return seen.room, seen.horizon
        turn = 0 if seen is None else seen.turn + 1
        horizon = min(self.best.objective, HARD_LIMIT)
        if self.best.plan is None and turn < len(HORIZONS):
            horizon = min(horizon, int(bound * HORIZONS[turn]) + 1)
        horizon = min(horizon, cap)
        room = room_below(self._stages.of(choice), choice, horizon)
        self._kept += room.size
        if self._kept > MOST_KEPT:
            self._seen, self._kept = {}, room.size
        self._seen[choice] = _Seen(horizon, turn, None if room.empty else room)
        return None if room.empty else room, HARD_LIMIT if room.empty and horizon == cap else horizon

    def _cap(self, choice: AnyChoice) -> int:
        """Return the ticks that a plan of an outer choice has to stay below for what ties stages together."""
        tick, devices = self.tables.scale.time.tick, choice.devices
        found = (each.most_ticks(devices, tick) for each in self.tables.filters.coupling)
        return min([HARD_LIMIT, *(most + 1 for most in found if most is not None)])

    def _ask(self, rooms: list[Room], limit: int) -> None:
        """Put outer choices to the solver, and those back that it closes, or that are to be asked again.

        A solver that is exact to tolerances only may leave a gap. Below a better plan there may be none.
        """
        self.claim = claim = self.engine(SumFormulation(self.tables, rooms, limit), self.watch.left_s)
        better = claim.plan is not None and claim.objective is not None and claim.objective < self.best.objective
        if better:
            self.best = Known(claim.objective or 0, claim.plan)
        proven = limit if claim.status is Status.INFEASIBLE else min(claim.bound or 0, limit)
        self._complete &= claim.status in (Status.OPTIMAL, Status.INFEASIBLE)
        self.step *= 2 if claim.plan is None else 1
        for room in rooms:
            if better or proven >= min(limit, self.best.objective):
                self.agenda.put(max(proven, room.least), room.choice)
            else:
                self._open = min(self._open, max(proven, room.least))

    def _claim(self, at_least: int) -> Claim:
        """Return what all answers come to."""
        least, best = max(min(self.agenda.least, self._open), at_least), self.best
        status = Status.OPTIMAL if self._complete else Status.FEASIBLE
        if best.plan is None:
            status = Status.INFEASIBLE if least >= HARD_LIMIT else Status.UNKNOWN
        return replace(
            self.claim,
            status=status,
            plan=best.plan,
            objective=None if best.plan is None else best.objective,
            bound=None if status is Status.INFEASIBLE else min(least, best.objective),
            wall_s=self.watch.used_s,
        )
