"""Solver, judge and reference agree where the network has menus: time first, then price, on random small problems."""

from __future__ import annotations

import oracle_default
import oracle_technologies as oracle
import pytest
from random_default import Size
from random_problems import show_plan, show_problem
from random_technologies import random_menus
from seeds import seeds

from nest.evaluate import evaluate
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve

TINY = Size(layers=3, devices=6, levels=3, variants=1, batch=6)


def check(problem: Problem) -> Result:
    """Assert that `solve` finds the least time there is and the least price of it, with a legal plan that has both."""
    result = solve(problem)
    doubtful = 0

    def every_plan(plain: Problem) -> tuple[int, Plan] | None:
        nonlocal doubtful
        rounding = oracle_default.Rounding(result.time.exponent)
        found = oracle_default.best(plain, rounding)
        doubtful += rounding.doubtful
        return None if found.objective is None or found.plan is None else (found.objective, found.plan)

    best = oracle.best(problem, every_plan)
    shown = f"{show_problem(problem)}\n{result}\n{show_plan(result.plan)}\n{best.objective} {show_plan(best.plan)}"
    assert (result.plan is None) == (best.plan is None), shown
    if result.plan is None or best.plan is None:
        assert result.status is Status.INFEASIBLE, shown
        assert result.reason, shown
        return result
    assert result.status is Status.OPTIMAL, shown
    verdict, rival = evaluate(problem, result.plan), evaluate(problem, best.plan)
    assert verdict.legal, (verdict.violations, shown)
    assert rival.legal, (rival.violations, shown)
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    assert rival.objective_ticks is not None
    assert best.objective is not None
    assert result.objective_ticks is not None
    assert result.objective_ticks <= rival.objective_ticks, shown
    if not doubtful:
        assert result.objective_ticks == best.objective, shown
        assert problem.cluster.price(problem.cluster.named(result.plan.technologies) or ()) == best.price, shown
    return result


@pytest.mark.parametrize("seed", seeds(50, 100))
def test_tiny(seed: int) -> None:
    """Every plan with every choice."""
    check(random_menus(seed, TINY))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_more(seed: int) -> None:
    """More of them."""
    check(random_menus(seed, TINY))
