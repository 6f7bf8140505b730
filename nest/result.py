"""What a solver answers: status, objective, bound and plan are separate facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeAlias

from nest.plan import Plan
from nest.units import TimeScale


class Status(StrEnum):
    """How far the search came.

    ``OPTIMAL`` only with a bound equal to the objective as integers; ``FEASIBLE`` and ``UNKNOWN`` when a limit was
    reached, with and without a plan; ``NONE_BETTER`` when a plan had to be better than a value, and none is.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NONE_BETTER = "none better"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a search: outer choices settled of those in question, and the best objective so far."""

    settled: int
    total: int
    best_ticks: int | None


Report: TypeAlias = Callable[[Progress], None]
"""Called by a solver now and then."""


@dataclass(frozen=True, slots=True)
class Result:
    """Answer to a problem.

    Parameters
    ----------
    objective_ticks, bound_ticks
        Judged objective of the plan, and proven lower bound; None where there is none.
    time
        Tick.
    time_unit_s
        Unit of `objective`, in seconds.
    backend
        Which solver answered.
    wall_s
        How long it took.
    reason
        Why there is no plan, or why the search stopped.
    plan
        With the judge's figures; None where there is none.
    choice
        Why it was this solver, in a few words; empty where nobody chose.
    """

    status: Status
    objective_ticks: int | None
    bound_ticks: int | None
    time: TimeScale
    time_unit_s: float
    backend: str
    wall_s: float
    reason: str | None = None
    plan: Plan | None = None
    choice: str = ""

    @property
    def objective(self) -> float | None:
        """Objective in the input's own unit of time."""
        if self.objective_ticks is None:
            return None
        return float(self.objective_ticks * self.time.tick / Fraction(repr(self.time_unit_s)))

    @property
    def objective_s(self) -> float | None:
        """Objective in seconds."""
        return None if self.objective_ticks is None else self.time.seconds(self.objective_ticks)
