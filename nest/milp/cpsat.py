"""Runs CP-SAT: its parameters, its solutions, its claim."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version

from ortools.sat.python import cp_model

from nest.milp.claim import NO_PATH, Claim
from nest.milp.cpsat_model import COUNTED, CpSatModel, build
from nest.milp.formulation import Formulation
from nest.milp.plans import Solution, decode
from nest.milp.space import Space
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.units import HARD_LIMIT

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

BELOW_LIMITS: Mapping[str, int] = {"linearization_level": 0}
"""What CP-SAT runs with besides, where it is asked below limits: there is little left for a linear relaxation."""

FIRST_STEP = 0.001
"""By which part the first limit is above what any plan takes at least. The next steps are twice as long, each."""

LONGEST_STEP, FAR = 6, 16
"""Steps are at most a sixth of the limit, up to 16 times what any plan takes at least; then each doubles the limit."""

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
            made = self.made
            solution = Solution(self._taken(made.use)[0], *map(self._taken, (made.arc, made.option, made.place)))
            self.objective, self.plan = objective, decode(made.formulation, solution)

    def _taken(self, variables: Sequence[cp_model.IntVar]) -> list[int]:
        """Return the places of the variables that are true."""
        return [at for at, taken in enumerate(variables) if self.boolean_value(taken)]


def solve(problem: Problem, time_limit_s: float | None, hint: Plan | None) -> Claim:
    """Solve the programme of a problem.

    Where stages may shard the programme grows fast with what a plan may take, so that it is asked below one limit after
    the other: if there is no plan below a limit, none takes less; if there is, the best of them is the best of all.
    """
    space, begin = Space.of(problem), time.perf_counter()
    proven, claim = None, NO_PATH
    for below in limits(space):
        formulation = Formulation(space, below)
        if formulation.choices:
            made = build(formulation, proven)
            if hint is not None:
                made.hint(hint)
            left = None if time_limit_s is None else time_limit_s - (time.perf_counter() - begin)
            claim = run(made, left)
        if formulation.choices and claim.status is not Status.INFEASIBLE:
            break
        proven = below
    bound = max(claim.bound or 0, proven or 0) if claim.status is not Status.INFEASIBLE else None
    return replace(claim, bound=bound, wall_s=time.perf_counter() - begin)


def limits(space: Space) -> Iterator[int | None]:
    """Yield the limits on the objective to ask below, ascending; the last one is none."""
    least = space.least_objective if space.sharded else HARD_LIMIT
    step = max(1, int(least * FIRST_STEP))
    limit = least + step
    while limit < COUNTED // 2:
        yield limit
        step = limit if limit > FAR * least else min(2 * step, max(1, limit // LONGEST_STEP))
        limit += step
    yield None


def run(made: CpSatModel, time_limit_s: float | None) -> Claim:
    """Run CP-SAT on a programme.

    Raises
    ------
    RuntimeError
        If CP-SAT refuses the model, which is a fault of ours.
    """
    solver, incumbent = cp_model.CpSolver(), _Incumbent(made)
    parameters = {**PARAMETERS, **(BELOW_LIMITS if made.formulation.below is not None else {})}
    for name, value in parameters.items():
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
        parameters=parameters,
        wall_s=solver.wall_time,
        exact=True,
    )
