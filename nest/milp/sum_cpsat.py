"""Runs CP-SAT on programmes under the objective `sum`: outer choices in the order of their bounds, see `sum_search`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.metadata import version

from ortools.sat.python import cp_model

from nest.milp.claim import Claim
from nest.milp.cpsat_base import PARAMETERS, STATUSES, solver_with
from nest.milp.sum_cpsat_model import SumCpSat, build
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_hints import alone
from nest.milp.sum_plans import SumSolution, decode
from nest.milp.sum_search import Known, SumSearch
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.tables import Tables


class _Incumbent(cp_model.CpSolverSolutionCallback):
    """The last solution, which is the best; kept here because a solver can lose one at its time limit."""

    def __init__(self, made: SumCpSat) -> None:
        super().__init__()
        self.made = made
        self.solution: SumSolution | None = None

    def on_solution_callback(self) -> None:
        """Keep a solution."""
        use, arc = ([at for at, taken in enumerate(each) if self.boolean_value(taken)] for each in self._taken)
        self.solution = SumSolution(use[0], arc)

    @property
    def _taken(self) -> tuple[list[cp_model.IntVar], list[cp_model.IntVar]]:
        return self.made.use, self.made.arc


def solve(
    problem: Problem,
    time_limit_s: float | None,
    hint: Plan | None = None,
    at_least: int | None = None,
    *,
    first: bool = False,
) -> Claim:
    """Solve the programme of a problem; a plan that is known is claimed where none takes less."""
    tables = Tables.of(problem)
    engine = partial(ask, first=first)
    search = SumSearch(tables, engine, Known() if hint is None else start_of(tables, hint), time_limit_s)
    return search.run(at_least or 0, first=first)


def ask(made: SumFormulation, time_limit_s: float | None, *, first: bool = False) -> Claim:
    """Return what CP-SAT says of a programme."""
    return run(build(made), time_limit_s, first=first)


def start_of(tables: Tables, plan: Plan) -> Known:
    """Return a plan with what it takes; none where it is not legal."""
    made = alone(tables, plan)
    claim = None if made is None else ask(made, None)
    if claim is None or claim.plan is None or claim.objective is None:
        return Known()
    return Known(claim.objective, claim.plan)


def run(made: SumCpSat, time_limit_s: float | None, *, first: bool = False) -> Claim:
    """Run CP-SAT on a programme.

    Raises
    ------
    RuntimeError
        If CP-SAT refuses the model, which is a fault of ours.
    """
    solver, incumbent = solver_with(PARAMETERS, time_limit_s), _Incumbent(made)
    solver.parameters.stop_after_first_solution = first
    found = solver.solve(made.model, incumbent)
    if found not in STATUSES:
        raise RuntimeError(f"CP-SAT says {solver.status_name(found)}: {made.model.validate()}")
    status, solution = STATUSES[found], incumbent.solution
    claim = Claim(
        status=Status.FEASIBLE if status is Status.UNKNOWN and solution is not None else status,
        plan=None,
        objective=None,
        bound=None if status is Status.INFEASIBLE else int(solver.response_proto.inner_objective_lower_bound),
        solver="CP-SAT",
        version=version("ortools"),
        parameters=PARAMETERS,
        wall_s=solver.wall_time,
        exact=True,
    )
    if solution is None:
        return claim
    price = made.formulation.price(solution.arcs, solution.choice)
    return replace(claim, plan=decode(made.formulation, solution), objective=price)
