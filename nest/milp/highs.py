"""Runs HiGHS on the programme in Pyomo: its parameters, its solution, its claim."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from pyomo.contrib.appsi.base import TerminationCondition
from pyomo.contrib.appsi.solvers.highs import Highs

from nest.errors import SolverUnavailable
from nest.milp.claim import NO_PATH, Claim
from nest.milp.formulation import Formulation
from nest.milp.plans import Solution, decode
from nest.milp.pyomo_base import InUnits
from nest.milp.pyomo_model import PyomoModel, build
from nest.milp.space import Space
from nest.milp.stopwatch import Stopwatch
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status

TOLERANCE = 1e-8
"""By how much a rule may be off, in units, and a binary from a whole number."""

PARAMETERS: Mapping[str, float | int] = {
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
    "mip_feasibility_tolerance": TOLERANCE,
    "primal_feasibility_tolerance": TOLERANCE,
    "threads": 1,
}
"""What HiGHS runs with: no gap, and finer tolerances than its own."""

AGAIN: Mapping[str, str] = {"presolve": "off"}
"""What HiGHS runs with besides, where it gives up: after presolve it may find its own solution to be off too much."""

ENDED = {
    TerminationCondition.optimal: Status.OPTIMAL,
    TerminationCondition.infeasible: Status.INFEASIBLE,
    TerminationCondition.infeasibleOrUnbounded: Status.INFEASIBLE,  # nothing here is unbounded
    TerminationCondition.maxTimeLimit: Status.UNKNOWN,
}


def solve(problem: Problem, time_limit_s: float | None) -> Claim:
    """Solve the programme of a problem."""
    formulation = Formulation(Space.of(problem))
    return run(build(formulation), time_limit_s) if formulation.choices else NO_PATH


def run(made: PyomoModel, time_limit_s: float | None) -> Claim:
    """Run HiGHS on a programme.

    Raises
    ------
    SolverUnavailable
        If HiGHS is not installed.
    RuntimeError
        If HiGHS ends in a way that it should not.
    """
    watch = Stopwatch(time_limit_s)
    found, parameters = solved(made, time_limit_s)
    rounds = max(made.formulation.by_rounds)
    status = ENDED[found.termination_condition]
    plan = None if found.best_feasible_objective is None else _decode(made, found)
    return Claim(
        status=Status.FEASIBLE if status is Status.UNKNOWN and plan is not None else status,
        plan=plan,
        objective=None if plan is None else round(found.best_feasible_objective * made.unit),
        bound=None if status is Status.INFEASIBLE else bound_of(made, found.best_objective_bound, rounds),
        solver="HiGHS through Pyomo",
        version=f"{version('highspy')}, {version('pyomo')}",
        parameters=parameters,
        wall_s=watch.used_s,
        exact=False,
    )


def solved(made: InUnits, time_limit_s: float | None) -> tuple[Any, dict[str, float | int | str]]:
    """Return what HiGHS says, where it gives up asked again without presolve, and its parameters; errors as `run`."""
    watch, parameters = Stopwatch(time_limit_s), dict[str, float | int | str](PARAMETERS)
    found = _solved(made, parameters, time_limit_s)
    if found.termination_condition not in ENDED:
        parameters |= AGAIN
        found = _solved(made, parameters, watch.left_s)
    if found.termination_condition not in ENDED:
        raise RuntimeError(f"HiGHS ended with {found.termination_condition}")
    return found, parameters


def _solved(made: InUnits, parameters: Mapping[str, float | int | str], time_limit_s: float | None) -> Any:
    """Return what HiGHS says under some parameters."""
    solver = Highs()
    if not solver.available():
        raise SolverUnavailable("highspy is not installed; pip install highspy")
    solver.config.load_solution = False
    solver.config.time_limit = time_limit_s
    solver.highs_options = dict(parameters)
    return solver.solve(made.model)


def _decode(made: PyomoModel, found: Any) -> Plan:
    """Return the plan of a solution, whose binaries are whole up to the tolerance."""
    found.solution_loader.load_vars()
    choice = max(made.use, key=lambda at: made.use[at].value)
    taken = ([at for at in each if each[at].value > 0.5] for each in (made.arc, made.option, made.place))
    return decode(made.formulation, Solution(choice, *taken))


def bound_of(made: InUnits, claimed: float | None, most: int) -> int | None:
    """Return a claimed bound in ticks, rounded up to the next value that an objective can have.

    Before that it is lowered by what the tolerances can make of it: of a rule, ``most`` times, and of a binary.
    """
    if claimed is None or not math.isfinite(claimed):
        return None
    formulation, step = made.formulation, made.formulation.common_tick
    low = claimed - TOLERANCE * (most + formulation.largest_objective / made.unit)
    return int(max(0, math.ceil(low * (made.unit / step))) * step)
