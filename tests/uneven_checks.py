"""What solver, judge, checker and reference are to agree on where stages have widths of their own."""

from __future__ import annotations

import oracle_default as oracle
import oracle_uneven
from random_problems import show_plan, show_problem

from nest.breakdown import compute_limit, iteration_parts, load_parts, memory_parts, uplinks
from nest.certificate import check as certify
from nest.dp.incumbent import Incumbent
from nest.dp.uneven_outer import UnevenBounds, uneven_choices
from nest.dp.uneven_search import UnevenSearch, least_uneven
from nest.dp.watch import Watch
from nest.evaluate import evaluate
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result, Status
from nest.simulate import pipeline_of
from nest.solve import solve
from nest.tables import Tables
from nest.units import NEVER

FREE = {"memory", "sharding", "recompute", "replicas", "stages", "variant"}
"""Rules that random plans may break: all but those of places and order."""


def best_of_all(problem: Problem, rounding: oracle.Rounding) -> oracle.Best:
    """Return the best of the plans of one variant, and of those of several."""
    found = [oracle.best(problem, rounding), oracle_uneven.best(problem, rounding)]
    return min(found, key=lambda best: (best.objective is None, best.objective or 0))


def check(problem: Problem) -> Result:
    """Assert that `solve` finds the best objective there is, and a legal plan that has it."""
    result = solve(problem)
    rounding = oracle.Rounding(result.time.exponent)
    best = best_of_all(problem, rounding)
    shown = f"{show_problem(problem)}\n{result}\n{show_plan(result.plan)}\n{best.objective} {show_plan(best.plan)}"
    assert (result.plan is None) == (best.plan is None), shown
    if result.plan is None or best.plan is None:
        assert result.status is Status.INFEASIBLE, shown
        return result
    assert result.status is Status.OPTIMAL, shown
    verdict, rival = evaluate(problem, result.plan), evaluate(problem, best.plan)
    assert verdict.legal, f"{verdict.violations}{shown}"
    assert rival.legal, f"{rival.violations}{shown}"
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    assert certify(problem, result.objective_ticks or 0).holds, shown
    assert best.objective is not None
    slack = 1000 * problem.microbatches(result.plan.variant) if rounding.doubtful else 0
    assert abs((result.objective_ticks or 0) - best.objective) <= slack, shown
    return result


def judge_agrees(problem: Problem, plan: Plan) -> None:
    """Assert that the judge prices a plan as the definition does, and finds it legal but for memory and choices."""
    verdict = evaluate(problem, plan)
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    objective, figures = oracle_uneven.price(problem, plan, rounding)
    shown = f"{show_problem(problem)}\n{show_plan(plan)}\n{verdict}\n{figures}"
    assert {each.rule for each in verdict.violations} <= FREE, shown
    if not rounding.doubtful:
        assert [(each.load, each.sync) for each in verdict.stages] == [(each.load, each.sync) for each in figures], (
            shown
        )
        assert verdict.objective_ticks == objective, shown
    assert [float(each) for each in verdict.memory_bytes] == [float(each.memory) for each in figures], shown


def parts_add_up(asked: Problem, plan: Plan) -> None:
    """Assert that what loads, memory and an iteration consist of is the judge's, and that a pipeline has its loads."""
    verdict = evaluate(asked, plan)
    parts = load_parts(asked, plan, verdict)
    assert [each.total for each in parts] == [stage.load for stage in verdict.stages]
    assert [each.total for each in memory_parts(asked, plan, verdict)] == [stage.memory for stage in verdict.stages]
    assert iteration_parts(asked, plan, verdict, parts).total == verdict.objective_ticks
    assert all(each.ticks >= 0 for each in uplinks(asked, plan, verdict, parts))
    played = pipeline_of(asked, plan, verdict)
    assert [stage.load for stage in played.stages] == [stage.load for stage in verdict.stages]


def bounds_hold(asked: Problem) -> None:
    """Assert that no outer choice has a plan below its bound, the bound of all or what computing alone takes."""
    tables = Tables.of(asked)
    least, limit = least_uneven(tables), compute_limit(asked)[0]
    for each in tables.uneven:
        bounds = UnevenBounds(each)
        for choice in uneven_choices(each):
            incumbent = Incumbent()
            UnevenSearch(each).settle(choice, Watch(None, None, incumbent))
            assert bounds.objective(choice) <= incumbent.objective
            assert max(least, limit) <= incumbent.objective or incumbent.objective == NEVER
