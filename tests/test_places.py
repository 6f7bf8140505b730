"""Replicas and stages that leave devices idle (C9): solver, judge and reference agree, as integers."""

from __future__ import annotations

import random
from itertools import pairwise

import oracle_default as oracle
import pytest
from oracle_places import spots
from random_default import Size, random_problem
from random_problems import show_plan, show_problem
from test_default_agreement import check

from nest.evaluate import evaluate
from nest.plan import Plan
from nest.problem import Problem

ROOMY = Size(layers=3, devices=16, levels=3, variants=1, batch=6)
"""Few layers and replicas on many devices, so that most plans leave some idle."""


def idle_plan(seed: int, problem: Problem) -> Plan | None:
    """Return a plan in any of its places, None where the variant does not fit; memory may be broken."""
    rng = random.Random(seed)
    variant = rng.choice(list(problem.graphs))
    layers, room = len(problem.graphs[variant]), problem.cluster.devices // variant.width
    if not room or not oracle.nests(problem.cluster, variant):
        return None
    stages = rng.randint(1, min(layers, room))
    replicas = rng.randint(1, max(1, min(room // stages, oracle.microbatches(problem, variant))))
    spot = rng.choice(list(spots(problem.cluster, variant.width, stages, replicas)))
    outer = oracle.Outer(variant, stages, replicas, spot.arrangement, spot)
    runs = list(pairwise([0, *sorted(rng.sample(range(1, layers), stages - 1)), layers]))
    free = problem.with_choices(zero=frozenset({0, 1, 2, 3}), zero_degree=None, stage_recompute=None)
    return oracle.plan_of(problem, outer, runs, [rng.choice(list(oracle.inners(free, outer, run))) for run in runs])


@pytest.mark.parametrize("seed", range(200))
def test_best_place(seed: int) -> None:
    """Every plan in every place."""
    check(random_problem(seed, ROOMY))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5000, 8000))
def test_best_place_of_many(seed: int) -> None:
    """Every plan in every place, of more problems."""
    check(random_problem(seed, ROOMY))


@pytest.mark.parametrize("seed", range(200))
def test_prices(seed: int) -> None:
    """A plan that leaves devices idle is placed by the rules, and takes what the reference says."""
    problem = random_problem(seed, ROOMY)
    plan = idle_plan(seed, problem)
    if plan is None:
        return
    verdict = evaluate(problem, plan)
    shown = f"{show_problem(problem)}\n{show_plan(plan)}\n{verdict}"
    assert not {each.rule for each in verdict.violations} & {"block", "placement", "devices"}, shown
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    objective, _ = oracle.price(problem, plan, rounding)
    assert verdict.objective_ticks is not None
    slack = 100 * (1 + problem.microbatches(plan.variant)) if rounding.doubtful else 0
    assert abs(verdict.objective_ticks - objective) <= slack, shown
