"""Rows of an ablation: what a solver found that did not see everything, and what it is worth in truth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from nest.ablate.sweeps import Point
from nest.evaluate import Violation
from nest.plan import Plan
from nest.units import Number, TimeScale

FULL = "full"
"""Name of the row whose solver sees everything."""


class Verdict(StrEnum):
    """What became of a blinded solver's plan.

    ``LEGAL`` and ``BROKEN``: it keeps the rules of the problem in which it is judged, or does not. ``INFEASIBLE``: the
    solver believes that there is no plan, which it proved. ``UNKNOWN``: it found none within the limit. ``REFUSED``:
    it cannot be asked, as what it would believe is no problem.
    """

    LEGAL = "legal"
    BROKEN = "broken"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Overflow:
    """A stage that needs more memory on each of its devices than they have, in bytes."""

    stage: int
    needed_bytes: Number
    device_bytes: Number

    @property
    def excess_bytes(self) -> Number:
        """By how much it does not fit."""
        return self.needed_bytes - self.device_bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a solver found in the problem that it believes in, and what the judge says of it in another one.

    Parameters
    ----------
    proven
        The solver proved its answer, a plan or that there is none; else the time was up.
    believed_s
        Objective that the solver believes in, in seconds; None without a plan.
    objective_ticks, time
        Judged objective of a legal plan, and the tick; None otherwise.
    violations, overflows
        Rules that the plan breaks, and the stages that do not fit.
    reason
        Why there is no plan.
    wall_s
        How long the solver took.
    """

    verdict: Verdict
    proven: bool = True
    believed_s: float | None = None
    objective_ticks: int | None = None
    time: TimeScale | None = None
    plan: Plan | None = None
    violations: tuple[Violation, ...] = ()
    overflows: tuple[Overflow, ...] = ()
    reason: str | None = None
    wall_s: float = 0.0

    @property
    def objective(self) -> Fraction | None:
        """Judged objective in seconds, exactly; None unless the plan is legal."""
        if self.objective_ticks is None or self.time is None:
            return None
        return self.objective_ticks * self.time.tick


@dataclass(frozen=True, slots=True)
class Row:
    """One blinding at one point of the sweeps, beside the full optimum there.

    Parameters
    ----------
    point
        Keys and values of the sweeps; empty without any.
    blinding
        Its name, `FULL` for none.
    outcome, full
        Of the blinded solver, and of the one that sees everything.
    hides
        Whether the blinding changes the problem at this point at all.
    """

    point: Point
    blinding: str
    outcome: Outcome
    full: Outcome
    hides: bool

    @property
    def ratio(self) -> float | None:
        """Judged objective over that of the full problem's plan; None where either has no legal plan."""
        mine, best = self.outcome.objective, self.full.objective
        if mine is None or best is None:
            return None
        if best == 0:
            return 1.0 if mine == 0 else None
        return float(mine / best)
