"""Runs CP-SAT: its parameters, its solutions, its claim."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from ortools.sat.python import cp_model

from nest.milp.claim import NO_PATH, Claim
from nest.milp.cpsat_model import CpSatModel, build
from nest.milp.formulation import Formulation
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.tables import Tables

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


class _Incumbent(cp_model.CpSolverSolutionCallback):
    """The best solution so far, kept here because a solver can lose one at its time limit."""

    def __init__(self, made: CpSatModel) -> None:
        super().__init__()
        self.made = made
        self.objective: int | None = None
        self.plan: Plan | None = None

    def on_solution_callback(self) -> None:
        """Keep a solution if it is better."""
        objective = self.value(self.made.objective)
        if self.objective is None or objective < self.objective:
            choice = next(at for at, taken in enumerate(self.made.use) if self.boolean_value(taken))
            arcs = [at for at, taken in enumerate(self.made.arc) if self.boolean_value(taken)]
            self.objective, self.plan = objective, self.made.formulation.decode(choice, arcs)


def solve(problem: Problem, time_limit_s: float | None, hint: Plan | None) -> Claim:
    """Solve the programme of a problem."""
    formulation = Formulation(Tables.of(problem))
    if not formulation.choices:
        return NO_PATH
    made = build(formulation)
    if hint is not None:
        made.hint(hint)
    return run(made, time_limit_s)


def run(made: CpSatModel, time_limit_s: float | None) -> Claim:
    """Run CP-SAT on a programme.

    Raises
    ------
    RuntimeError
        If CP-SAT refuses the model, which is a fault of ours.
    """
    solver, incumbent = cp_model.CpSolver(), _Incumbent(made)
    for name, value in PARAMETERS.items():
        setattr(solver.parameters, name, value)
    if time_limit_s is not None:
        solver.parameters.max_time_in_seconds = max(time_limit_s, 0.0)
    found = solver.solve(made.model, incumbent)
    if found not in STATUSES:
        raise RuntimeError(f"CP-SAT says {solver.status_name(found)}: {made.model.validate()}")
    status = STATUSES[found]
    bounded = status in (Status.OPTIMAL, Status.FEASIBLE, Status.UNKNOWN)
    return Claim(
        status=Status.FEASIBLE if status is Status.UNKNOWN and incumbent.plan is not None else status,
        plan=incumbent.plan,
        objective=incumbent.objective,
        bound=int(solver.response_proto.inner_objective_lower_bound) if bounded else None,
        solver="CP-SAT",
        version=version("ortools"),
        parameters=PARAMETERS,
        wall_s=solver.wall_time,
        exact=True,
    )
