"""The space as a mathematical programme, solved by CP-SAT and, through Pyomo, by HiGHS.

`space` has what plans consist of, `formulation` the index sets and coefficients, without a solver; `cpsat_model` and
`pyomo_model` post the same rules in the same order under the same names; `cpsat` and `highs` run them. The modules
``sum_...`` do the same for preset `default`, whose outer choices `sum_search` puts to either solver, and modules named
``played_...`` for preset `simulated`. Packages of solvers are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from nest.errors import SolverUnavailable
from nest.milp.claim import Claim
from nest.milp.scope import family_of, require_scope
from nest.plan import Plan
from nest.problem import Problem

__all__ = ["Claim", "solve_cpsat", "solve_pyomo"]

PACKAGES = frozenset({"ortools", "pyomo", "highspy"})


def solve_cpsat(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    hint: Plan | None = None,
    at_least: int | None = None,
    first: bool = False,
) -> Claim:
    """Solve a problem with CP-SAT, in whole ticks.

    Parameters
    ----------
    hint
        A plan to start from; if it is legal, what is claimed is no worse, whatever the time.
    at_least
        Ticks of which it is known that no plan takes less. The claim then rests on that.
    first
        Be content with the first plan that is found.

    Raises
    ------
    OutOfScope
        If the problem has another preset, a side constraint that cannot be posted, or too many ticks for 64 bits; if
        its schedules are played, and a plan is given to start from.
    SolverUnavailable
        If OR-Tools is not installed.
    """
    solve = _module("cpsat", problem).solve
    claim: Claim = solve(problem, time_limit_s, hint, at_least, first=first)
    return claim


def solve_pyomo(problem: Problem, *, time_limit_s: float | None = None) -> Claim:
    """Solve a problem with Pyomo and HiGHS, in floating point.

    Raises
    ------
    OutOfScope
        If the problem has another preset, or a side constraint that cannot be posted.
    SolverUnavailable
        If Pyomo or HiGHS is not installed.
    """
    claim: Claim = _module("highs", problem).solve(problem, time_limit_s)
    return claim


def _module(name: str, problem: Problem) -> ModuleType:
    """Return the module that runs a solver on the programme under the objective of a problem."""
    require_scope(problem)
    try:
        return import_module(f"nest.milp.{family_of(problem.preset)}{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        raise SolverUnavailable(f"{package} is not installed; pip install {package}") from error
