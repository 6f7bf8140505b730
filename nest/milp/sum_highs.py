"""Runs HiGHS on programmes under the objective `sum`: outer choices in the order of their bounds, see `sum_search`."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

from nest.milp.claim import Claim
from nest.milp.highs import ENDED, bound_of, solved
from nest.milp.stopwatch import Stopwatch
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_plans import SumSolution, decode
from nest.milp.sum_pyomo_model import SumPyomo, build
from nest.milp.sum_search import Known, SumSearch
from nest.problem import Problem
from nest.result import Status
from nest.tables import Tables


def solve(problem: Problem, time_limit_s: float | None) -> Claim:
    """Solve the programme of a problem."""
    return replace(SumSearch(Tables.of(problem), ask, Known(), time_limit_s).run(), exact=False)


def ask(made: SumFormulation, time_limit_s: float | None) -> Claim:
    """Return what HiGHS says of a programme."""
    return run(build(made), time_limit_s)


def run(made: SumPyomo, time_limit_s: float | None) -> Claim:
    """Run HiGHS on a programme; errors are those of `nest.milp.highs.run`."""
    watch = Stopwatch(time_limit_s)
    found, parameters = solved(made, time_limit_s)
    status, formulation = ENDED[found.termination_condition], made.formulation
    solution = None if found.best_feasible_objective is None else _solution(made, found)
    most = max(further for further, _ in formulation.by_pace) + len(formulation.by_position) + 1
    return Claim(
        status=Status.FEASIBLE if status is Status.UNKNOWN and solution is not None else status,
        plan=None if solution is None else decode(formulation, solution),
        objective=None if solution is None else formulation.price(solution.arcs, solution.choice),
        bound=None if status is Status.INFEASIBLE else bound_of(made, found.best_objective_bound, most),
        solver="HiGHS through Pyomo",
        version=f"{version('highspy')}, {version('pyomo')}",
        parameters=parameters,
        wall_s=watch.used_s,
        exact=False,
    )


def _solution(made: SumPyomo, found: object) -> SumSolution:
    """Return a solution, whose binaries are whole up to the tolerance."""
    found.solution_loader.load_vars()  # type: ignore[attr-defined]
    choice = max(made.use, key=lambda at: made.use[at].value)
    return SumSolution(choice, [at for at in made.arc if made.arc[at].value > 0.5])
