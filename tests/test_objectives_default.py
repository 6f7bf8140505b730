"""Objectives beside time under preset `default`, against every plan of small problems."""

from __future__ import annotations

from functools import cache

import oracle_plans
import pytest
import random_default
from judging import judged
from seeds import seeds
from test_objectives import Tried, check_front, check_least, front_of

from nest.objectives import Quantity, least
from nest.problem import Problem
from nest.result import Status

TINY = random_default.Size(layers=3, devices=6, levels=2, variants=1, batch=6)
QUICK, ALL = 20, 40
MOST_PLANS = 20_000
"""Problems with more plans are left to the agreement tests."""


@cache
def case(seed: int) -> tuple[Problem, list[Tried] | None]:
    """Return a random problem, and what each of its legal plans uses, None where there are too many."""
    problem = random_default.random_problem(seed, TINY)
    found = []
    for count, (plan, verdict) in enumerate(judged(problem, oracle_plans.plans(problem))):
        if count >= MOST_PLANS:
            return problem, None
        if verdict.legal:
            assert verdict.objective_ticks is not None
            memory = max(stage.memory for stage in verdict.stages)
            found.append(Tried(plan.used_devices, verdict.objective_ticks, memory))
    return problem, found


@pytest.mark.parametrize("quantity", ["devices", "memory"])
@pytest.mark.parametrize("seed", seeds(QUICK, ALL))
def test_least_is_that_of_every_plan(seed: int, quantity: Quantity) -> None:
    """Memory could not be asked for at all; an amount that is not the least, and a proof that does not hold."""
    problem, every = case(seed)
    if every is None:
        pytest.skip("too many plans")
    if every:
        check_least(problem, every, quantity)
    else:
        assert least(problem, quantity, 1e9).result.status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", seeds(QUICK, ALL)[::3])
def test_front_is_that_of_every_plan(seed: int) -> None:
    """A point that is missing, one that is beaten, and one that no plan has."""
    problem, every = case(seed)
    if every is None:
        pytest.skip("too many plans")
    check_front(problem, every)


def test_problems_are_of_all_kinds() -> None:
    """The problems above have fronts of several points, and hardly any is left out."""
    tried = [every for _, every in map(case, range(QUICK)) if every is not None]
    assert len(tried) >= 15
    assert sum(len(front_of(every)) >= 2 for every in tried) >= 4
