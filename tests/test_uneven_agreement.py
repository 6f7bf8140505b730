"""Solver, judge and reference agree where stages have tensor widths of their own."""

from __future__ import annotations

import pytest
from random_uneven import SMALL, Size, random_plan, random_problem
from seeds import seeds
from uneven_checks import check, judge_agrees

LARGER = Size(layers=4, devices=12)


@pytest.mark.parametrize("seed", seeds(60, 300))
def test_judge(seed: int) -> None:
    """The judge prices random plans as the definition does, and finds them legal but for memory and choices."""
    problem = random_problem(seed, LARGER)
    plan = random_plan(seed, problem)
    if plan is not None:
        judge_agrees(problem, plan)


@pytest.mark.parametrize("seed", seeds(30, 200))
def test_small(seed: int) -> None:
    """Every plan of a few layers on a few devices."""
    check(random_problem(seed, SMALL))
