"""Solver, judge and reference agree where stages may be sharded inside, with or without a part of the batch each."""

from __future__ import annotations

import oracle_default as oracle
import oracle_uneven
import pytest
from random_inside import SMALL, Size, random_plan, random_problem
from random_problems import show_plan, show_problem
from seeds import seeds
from test_uneven_agreement import FREE, check

from nest.evaluate import evaluate

LARGER = Size(layers=4, devices=12)


@pytest.mark.parametrize("seed", seeds(50, 400))
def test_judge(seed: int) -> None:
    """The judge prices random plans as the definition does, and finds them legal but for memory and choices."""
    problem = random_problem(seed, LARGER)
    plan = random_plan(seed, problem)
    if plan is None:
        return
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


@pytest.mark.parametrize("seed", seeds(50, 300))
def test_small(seed: int) -> None:
    """Every plan of a few layers on a few devices."""
    check(random_problem(seed, SMALL))
