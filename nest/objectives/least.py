"""The least of something with which an iteration still takes no longer than asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Literal, TypeAlias

from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.objectives.claim import Claim
from nest.objectives.search import Amounts, Clock, Devices, Memory, Search, narrow
from nest.problem import Problem
from nest.result import Report, Result, Status
from nest.solve import solve
from nest.units import HARD_LIMIT, Number

Quantity: TypeAlias = Literal["devices", "memory"]
"""What shall be the least: devices of all replicas together, or bytes on each device of the fullest stage."""

QUANTITIES: dict[Quantity, type[Amounts]] = {"devices": Devices, "memory": Memory}


@dataclass(frozen=True)
class Least:
    """The least of a quantity that keeps a time.

    Parameters
    ----------
    quantity
        ``"devices"`` of all replicas together, or ``"memory"`` on each device of the fullest stage.
    time_at_most_s, value
        What an iteration may take in seconds, as asked for, and the least number of ticks that is too long.
    result
        With the fastest of the plans that keep the time with so little. ``OPTIMAL`` if both are proven: no plan with
        less keeps the time, and none with as much is faster. ``INFEASIBLE`` with the reason if no plan keeps it at all.
    used
        Of the plan, in whole devices, or in the quanta of memory; None without a plan.
    below
        With so much, and with anything less, it is proven that no plan keeps the time.
    plans
        What is said of all plans that were searched, in a few words: ``"plan"``, or what else they have to be.
    """

    quantity: Quantity
    time_at_most_s: Number
    value: int
    amounts: Amounts
    result: Result
    used: int | None = None
    below: int | None = None
    plans: str = "plan"

    @property
    def proven(self) -> bool:
        """Whether less is proven to be too little."""
        return self.used is not None and self.below == self.used - 1

    @property
    def impossible(self) -> bool:
        """Whether there is no plan at all, however long it takes."""
        return self.result.status is Status.INFEASIBLE and self.result.bound_ticks is None

    @property
    def size(self) -> Number | None:
        """What the plan uses: devices, or bytes on each device of the fullest stage."""
        return None if self.used is None else self.amounts.size(self.used)

    @property
    def size_below(self) -> Number | None:
        """Devices or bytes of which it is proven that they are too few; None where nothing is ruled out."""
        return None if self.below is None or self.below <= self.amounts.none else self.amounts.size(self.below)

    def claims(self) -> Iterator[Claim]:
        """Yield what is proven: that with less no plan keeps the time, and that with as much none is faster.

        Where no plan keeps the time at all, that none does.
        """
        ticks, kept = self.result.objective_ticks, f"no {self.plans} takes at most {seconds_text(self.time_at_most_s)}"
        if self.used is None or self.below is None or ticks is None:
            if self.result.status is Status.INFEASIBLE:
                yield Claim(self.amounts.problem, self.value, kept)
            return
        if self.size_below is not None:
            text = f"with at most {amount_text(self.quantity, self.size_below)}, {kept}"
            yield Claim(self.amounts.limited(self.below), self.value, text)
        if self.result.status is Status.OPTIMAL:
            taken = f"no {self.plans} takes less than {self.result.objective_s:.10g} s"
            text = f"with at most {amount_text(self.quantity, self.amounts.size(self.used))}, {taken}"
            yield Claim(self.amounts.limited(self.used), ticks, text)


def least(
    problem: Problem,
    quantity: Quantity,
    time_at_most_s: Number,
    *,
    time_limit_s: float | None = None,
    report: Report | None = None,
    search: Search = solve,
    plans: str = "plan",
) -> Least:
    """Find the least of a quantity with which an iteration takes at most a time, and the fastest plan with so little.

    Parameters
    ----------
    quantity
        ``"devices"`` or ``"memory"``, see `Least`.
    time_at_most_s
        In seconds, to the tick.
    time_limit_s
        For all searches together.
    report
        Called with the progress of each search.
    search, plans
        Finds the best plan of a problem, `nest.solve.solve` unless not all plans of it will do; what they are then.

    Raises
    ------
    InvalidProblem
        If the time is no finite number from 0, or as `nest.solve.solve` does.
    """
    if not 0 <= time_at_most_s < inf:
        raise InvalidProblem("time_at_most_s", f"{time_at_most_s!r}", "give a finite number of seconds from 0")
    clock, scale = Clock(time_limit_s, report, search), scale_of(problem)
    amounts = QUANTITIES[quantity](problem, scale)
    value = min(Fraction(repr(time_at_most_s)) // scale.time.tick + 1, HARD_LIMIT)
    fastest = clock.solve(problem)
    if fastest.plan is None or fastest.objective_ticks is None or fastest.objective_ticks >= value:
        return Least(
            quantity,
            time_at_most_s,
            value,
            amounts,
            _too_slow(fastest, time_at_most_s, value, clock, plans),
            plans=plans,
        )
    found = narrow(amounts, fastest, fastest.plan, value, clock)
    result = replace(found.result, wall_s=clock.passed_s)
    if not found.settled:
        result = replace(result, status=Status.FEASIBLE, reason="the time limit was reached before less was ruled out")
    return Least(quantity, time_at_most_s, value, amounts, result, found.used, found.below, plans)


def period_s(iterations_per_s: Number) -> Number:
    """Return the seconds that an iteration may take for so many iterations in a second.

    Raises
    ------
    InvalidProblem
        If that is no finite number above 0, or so small that the seconds are none.
    """
    if not (0 < iterations_per_s < inf and 1 / iterations_per_s < inf):
        raise InvalidProblem(
            "iterations_per_s", f"{iterations_per_s!r}", "give a finite number above 0, and not too small to count"
        )
    return 1 / iterations_per_s


def amount_text(quantity: Quantity, size: Number) -> str:
    """Return an amount for people to read, as in ``3 devices`` and ``1,024 bytes on each device``."""
    unit = "device" if quantity == "devices" else "byte"
    return f"{size:,} {unit}{'' if size == 1 else 's'}{'' if quantity == 'devices' else ' on each device'}"


def seconds_text(seconds: Number) -> str:
    """Return a time as it was asked for."""
    return f"{seconds:.15g} s"


def _too_slow(fastest: Result, time_at_most_s: Number, value: int, clock: Clock, plans: str) -> Result:
    """Return what is known if the fastest plan that was found does not keep the time."""
    if fastest.plan is None:
        return replace(fastest, wall_s=clock.passed_s)
    which = "fastest" if fastest.status is Status.OPTIMAL else "fastest found"
    taken, asked = f"the {which} takes {fastest.objective_s:.10g} s", seconds_text(time_at_most_s)
    status, reason = Status.UNKNOWN, f"{taken}, and the time limit was reached before {asked} was ruled out"
    if fastest.bound_ticks is not None and fastest.bound_ticks >= value:
        status, reason = Status.INFEASIBLE, f"no {plans} takes at most {asked}: {taken}"
    return replace(fastest, status=status, reason=reason, objective_ticks=None, plan=None, wall_s=clock.passed_s)
