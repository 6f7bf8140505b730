"""What the programmes in CP-SAT have in common: sums of literals and ticks that stay within 64 bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ortools.sat.python import cp_model

from nest.constraints.programme import Term
from nest.errors import OutOfScope
from nest.milp.coupled import Coupled
from nest.milp.sights import Indices
from nest.result import Status

COUNTED = 2**61
"""Sums of ticks stay below, so that a difference of some of them is within the 64 bits of CP-SAT."""


PARAMETERS: Mapping[str, int] = {
    "cp_model_presolve": False,
    "presolve_inclusion_work_limit": 0,
    "num_workers": 1,
    "cp_model_probing_level": 0,
    "symmetry_level": 0,
}
"""What CP-SAT runs with.

The first two are for correctness. With its default presolve OR-Tools 9.15.6755 calls wrong optima optimal and feasible
models infeasible (issues 5293 and 5274 of google/or-tools); the work limit alone, the remedy given there, leaves about
one wrong answer in two thousand of this programme. The others are for speed: probing, symmetries and a second worker
cost more than they save.
"""

STATUSES = {
    cp_model.OPTIMAL: Status.OPTIMAL,
    cp_model.FEASIBLE: Status.FEASIBLE,
    cp_model.INFEASIBLE: Status.INFEASIBLE,
    cp_model.UNKNOWN: Status.UNKNOWN,
}


class CpSatBase(Coupled):
    """Base of the programmes.

    Parameters
    ----------
    formulation
        With outer choices and arcs.

    Attributes
    ----------
    use, arc
        Whether an outer choice and an arc are taken, by their index in the formulation.
    objective
        Ticks of an iteration.
    """

    objective: cp_model.IntVar

    def __init__(self, formulation: Any) -> None:
        self.formulation, self.model = formulation, cp_model.CpModel()
        self.use = self.bools("use", len(formulation.choices))
        self.arc = self.bools("arc", len(formulation.arcs))

    def bools(self, name: str, count: int) -> list[cp_model.IntVar]:
        """Return so many new literals, called by a name and a number from 0 on."""
        return [self.model.new_bool_var(f"{name}{at}") for at in range(count)]

    def either(self, literals: Sequence[cp_model.IntVar]) -> cp_model.IntVar:
        """Return a new literal that one of some literals is 1, of which no more than one is."""
        made = self.model.new_bool_var("")
        self.model.add(cp_model.LinearExpr.sum(list(literals)) == made)
        return made

    def flag(self) -> cp_model.IntVar:
        """Return a new literal."""
        return self.model.new_bool_var("")

    def number(self, most: int) -> cp_model.IntVar:
        """Return a new whole number from 0 to ``most``."""
        if most >= COUNTED:
            raise OverflowError(f"a number up to {most} does not fit 64 bits")
        return self.model.new_int_var(0, most, "")

    def largest(self, variable: cp_model.IntVar) -> int:
        """Return the end of the domain of a variable."""
        return int(max(self.model.proto.variables[variable.index].domain))

    def post_sum(
        self, terms: Sequence[Term], most: int, given: Sequence[cp_model.IntVar], reach: tuple[int, int]
    ) -> None:
        """Post ``sum <= most`` where all of ``given`` are 1."""
        if max(-reach[0], reach[1], abs(most)) >= COUNTED:
            raise OverflowError(f"a sum up to {reach[1]} does not fit 64 bits")
        variables, times = [variable for _, variable in terms], [each for each, _ in terms]
        held = self.model.add(cp_model.LinearExpr.weighted_sum(variables, times) <= most)
        if given:
            held.only_enforce_if(given)

    def limit_objective(self, ticks: int, given: Iterable[cp_model.IntVar] = ()) -> None:
        """Post that an iteration takes so many ticks at most where all literals of ``given`` are 1."""
        self.at_most([(1, self.objective)], ticks, given)

    def arcs(self, chosen: Indices, times: Iterable[int] | None = None) -> cp_model.LinearExprT:
        """Return the sum of some arcs, each as often as ``times`` says."""
        taken = [self.arc[at] for at in chosen]
        return cp_model.LinearExpr.sum(taken) if times is None else cp_model.LinearExpr.weighted_sum(taken, list(times))


def require_counted(ticks: int) -> None:
    """Raise `OutOfScope` where sums of ticks could leave the 64 bits of CP-SAT."""
    if ticks >= COUNTED:
        raise OutOfScope("times", "the ticks of this problem are too many for CP-SAT", "use the dynamic program")


def parts(ticks: Sequence[int]) -> Iterator[slice]:
    """Cut ticks, at most one of which applies, into parts that add up to less than CP-SAT can count."""
    begin, total = 0, 0
    for at, each in enumerate(ticks):
        if total + each >= COUNTED:
            yield slice(begin, at)
            begin, total = at, 0
        total += each
    yield slice(begin, len(ticks))


def solver_with(parameters: Mapping[str, int], time_limit_s: float | None) -> cp_model.CpSolver:
    """Return CP-SAT with some parameters."""
    solver = cp_model.CpSolver()
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    if time_limit_s is not None:
        solver.parameters.max_time_in_seconds = max(time_limit_s, 0.0)
    return solver


def variant(made: CpSatBase) -> None:
    """C1: one outer choice, of an allowed variant: ``sum use = 1``."""
    made.model.add_exactly_one(made.use)
