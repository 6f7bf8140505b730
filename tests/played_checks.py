"""What solver, judge, checker and reference are to agree on under any schedule, played or not."""

from __future__ import annotations

import oracle_default as oracle
import oracle_schedules as schedules
from random_problems import show_plan, show_problem
from test_default_agreement import refuted_by

from nest.certificate import check as claimed
from nest.evaluate import evaluate
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve
from nest.units import HARD_LIMIT


def check(problem: Problem) -> Result:
    """Assert that `solve` finds the shortest iteration there is, and a legal plan that has it."""
    result = solve(problem)
    rounding = oracle.Rounding(result.time.exponent)
    best = schedules.best(problem, rounding)
    shown = f"{show_problem(problem)}\n{result}\n{show_plan(result.plan)}\n{best.objective} {show_plan(best.plan)}"
    assert result.status is (Status.INFEASIBLE if best.plan is None else Status.OPTIMAL), shown
    if result.plan is None or best.plan is None:
        assert claimed(problem, HARD_LIMIT).holds, shown
        return result
    verdict = evaluate(problem, result.plan)
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    assert verdict.legal, shown
    assert evaluate(problem, best.plan).legal, shown
    slack = 1000 * problem.microbatches(result.plan.variant) if rounding.doubtful else 0
    assert result.objective_ticks is not None
    assert best.objective is not None
    assert abs(result.objective_ticks - best.objective) <= slack, shown
    assert claimed(problem, result.objective_ticks).holds, shown
    assert refuted_by(problem, result.objective_ticks + 1) == result.objective_ticks, shown
    return result
