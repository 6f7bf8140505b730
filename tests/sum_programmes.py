"""The mathematical programme under the objective `sum` in both models: asked, and compared with an optimum."""

from __future__ import annotations

from typing import Any

import pytest
from random_problems import show_plan, show_problem

from nest.evaluate import evaluate
from nest.milp import Claim, sum_cpsat, sum_cpsat_model, sum_highs, sum_pyomo_model, sum_search
from nest.milp.claim import NO_PATH
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_plans import SumSolution
from nest.problem import Problem
from nest.result import Status
from nest.solve import Backend, solve

BACKENDS: tuple[Backend, ...] = ("cpsat", "pyomo")
MODELS: tuple[tuple[Any, Any], ...] = ((sum_cpsat_model, sum_cpsat.run), (sum_pyomo_model, sum_highs.run))

both_models = pytest.mark.parametrize(("module", "run"), MODELS, ids=BACKENDS)


def agree(problem: Problem, wanted: int | None, backends: tuple[Backend, ...] = BACKENDS) -> None:
    """Assert that both models find an optimum, as an integer, or that there is none."""
    shown = f"{show_problem(problem)}\nwanted: {wanted}"
    for backend in backends:
        found = solve(problem, backend=backend)
        said = f"{shown}\n{backend}: {found.status} {found.objective_ticks} >= {found.bound_ticks}, {found.reason}"
        assert found.backend == backend
        exact = backend == "cpsat" or found.status is not Status.FEASIBLE
        assert near(found.objective_ticks, wanted, 0 if exact else 1e-12), f"{said}\n{show_plan(found.plan)}"
        assert (found.status is Status.INFEASIBLE) == (wanted is None), said
        assert (found.reason is not None) == (found.status is not Status.OPTIMAL), said
        assert not exact or found.bound_ticks == wanted, said
        assert found.bound_ticks is None or (wanted is not None and found.bound_ticks <= wanted), said


def near(found: int | None, wanted: int | None, part: float) -> bool:
    """Whether an objective is the wanted one, up to a part of it, which is below what floating point tells apart."""
    return found == wanted if found is None or wanted is None else wanted <= found <= wanted * (1 + part)


def ask(module: Any, run: Any, made: SumFormulation, solution: SumSolution | None = None) -> Claim:
    """Ask a solver for a programme, fixed to a solution where one is given."""
    if not made.choices:
        return NO_PATH
    model = module.build(made)
    if solution is not None:
        model.take(solution)
    claim: Claim = run(model, None)
    return claim


def rules_agree(problem: Problem) -> None:
    """Assert that the rules alone, of all outer choices and ways in one model, have the optimum of a problem."""
    wanted, made = solve(problem).objective_ticks, SumFormulation.whole(problem)
    for module, run in MODELS:
        claim = ask(module, run, made)
        part = 0 if module is sum_cpsat_model else 1e-12
        assert near(claim.objective, wanted, part), f"{show_problem(problem)}\n{claim}\n{wanted}"
        assert claim.plan is None or evaluate(problem, claim.plan).legal


def step_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have outer choices asked one by one, with limits and horizons that are near, and nothing kept."""
    for name, value in (("TOGETHER", 1), ("FIRST_STEP", 1e-3), ("HORIZONS", (1.01, 1.02, 1.5)), ("MOST_KEPT", 5)):
        monkeypatch.setattr(sum_search, name, value)
