"""What the programmes in Pyomo have in common: units of time, and sums that tolerances do not change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyomo.environ as pyo

from nest.constraints.programme import Term
from nest.milp.coupled import Coupled
from nest.milp.sights import Indices

Expression: TypeAlias = Any
"""Pyomo has no types."""

LARGEST = 1e7
"""Largest objective for which times are counted in whole units."""

HALF = 0.5
"""By how much a sum of whole numbers may be above its limit: it is kept exactly, whatever the tolerance breaks."""

LARGEST_BROKEN = 1e5
"""Largest objective where they are not: rounding must stay far below the tolerances of a solver."""


class InUnits:
    """Base of the programmes: binaries, and times in units.

    Parameters
    ----------
    formulation
        With ``common_tick`` and ``largest_objective``.

    Attributes
    ----------
    use, arc
        Whether an outer choice and an arc are taken, by their index in the formulation.
    unit
        Ticks of a unit.
    objective
        Units of an iteration.
    """

    objective: Expression

    def __init__(self, formulation: Any) -> None:
        self.formulation = formulation
        whole = formulation.common_tick
        few = formulation.largest_objective / whole <= LARGEST
        self.unit = whole if few else formulation.largest_objective / LARGEST_BROKEN
        self.model = model = pyo.ConcreteModel()
        model.use = pyo.Var(range(len(formulation.choices)), domain=pyo.Binary)
        model.arc = pyo.Var(range(len(formulation.arcs)), domain=pyo.Binary)
        model.rules = pyo.ConstraintList()
        self.use, self.arc = model.use, model.arc

    def post(self, constraint: Expression) -> None:
        """Add a constraint."""
        self.model.rules.add(constraint)

    def arcs(self, chosen: Indices, times: Iterable[float] | None = None) -> Expression:
        """Return the sum of some arcs, each as often as ``times`` says."""
        if times is None:
            return pyo.quicksum(self.arc[at] for at in chosen)
        return pyo.quicksum(time * self.arc[at] for at, time in zip(chosen, times, strict=True))

    def in_units(self, ticks: Iterable[int]) -> list[float]:
        """Return ticks in units."""
        return [each / self.unit for each in ticks]


class PyomoBase(InUnits, Coupled):
    """Base of the programmes in which side constraints tie stages together."""

    def __init__(self, formulation: Any) -> None:
        super().__init__(formulation)
        self.model.set_of = pyo.VarList(domain=pyo.Binary)
        self.model.flags = pyo.VarList(domain=pyo.Binary)
        self.model.numbers = pyo.VarList(domain=pyo.NonNegativeIntegers)

    def either(self, literals: Sequence[Expression]) -> Expression:
        """Return a new binary that says that one of some binaries is 1, of which no more than one is."""
        made = self.model.set_of.add()
        self.post(pyo.quicksum(literals) == made)
        return made

    def flag(self) -> Expression:
        """Return a new binary."""
        return self.model.flags.add()

    def number(self, most: int) -> Expression:
        """Return a new whole number from 0 to ``most``."""
        made = self.model.numbers.add()
        made.setub(most)
        return made

    def largest(self, variable: Expression) -> int:
        """Return the end of the domain of a variable."""
        return int(variable.ub)

    def post_sum(self, terms: Sequence[Term], most: int, given: Sequence[Expression], reach: tuple[int, int]) -> None:
        """Post ``sum <= most`` where all of ``given`` are 1, as a sum that the tolerances of a solver do not change."""
        if max(reach[1] - reach[0], abs(most)) > LARGEST:
            raise OverflowError(f"a sum up to {reach[1]} is not exact in floating point")
        slack = (reach[1] - most) * pyo.quicksum(1 - each for each in given)
        self.post(pyo.quicksum(times * variable for times, variable in terms) - slack <= most + HALF)

    def limit_objective(self, ticks: int, given: Iterable[Expression] = ()) -> None:
        """Post that an iteration takes so many ticks at most where all binaries of ``given`` are 1."""
        if self.unit != self.formulation.common_tick:
            raise OverflowError("times are not counted in whole ticks in floating point")
        most = ticks // self.formulation.common_tick
        slack = max(self.objective.ub - most, 0) * pyo.quicksum(1 - each for each in given)
        self.post(self.objective - slack <= most + HALF)


def variant(made: PyomoBase) -> None:
    """C1: one outer choice, of an allowed variant."""
    made.post(pyo.quicksum(made.use.values()) == 1)


def least(made: PyomoBase) -> None:
    """State a consequence, for speed: what each outer choice takes at least."""
    ticks = made.in_units(made.formulation.least_objectives)
    made.post(made.objective >= pyo.quicksum(ticks[at] * made.use[at] for at in made.use))
