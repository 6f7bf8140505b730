"""Solver, judge, checker and reference agree on objective `simulated`: as integers, where all plans can be tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle_default as oracle
import oracle_schedules as schedules
import pytest
from judging import judged
from played_checks import check
from random_default import Size, random_plan, random_problem
from random_problems import show_plan, show_problem
from seeds import seeds

from nest.cost.schedules import Schedule
from nest.dp.simulated_outer import SimulatedBounds
from nest.dp.sum_outer import sum_choices, sum_ranges
from nest.errors import InvalidProblem
from nest.evaluate import evaluate, pipeline_of, sync_of
from nest.pipeline import simulate
from nest.presets import DEFAULT, SIMULATED, ScheduleName
from nest.result import Status
from nest.solve import solve
from nest.tables import Tables
from nest.tables.exchanged import least_exchanged
from nest.tables.ways import way_of

SMALL = Size(layers=4, devices=8, levels=3, variants=1, batch=8)
LARGER = Size(layers=5, devices=12, levels=3, variants=2)


@pytest.mark.parametrize("seed", seeds(40, 120))
def test_small(seed: int) -> None:
    """Every plan of a few layers on a few devices."""
    check(random_problem(5000 + seed, SMALL).with_preset(SIMULATED))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(600))
def test_larger(seed: int) -> None:
    """More layers and devices."""
    check(random_problem(seed, LARGER, ugly=seed % 10 == 9).with_preset(SIMULATED))


@pytest.mark.parametrize("seed", seeds(40, 120))
def test_price_of_a_plan(seed: int) -> None:
    """Judge, player and reference say the same of a random plan, legal or not."""
    problem = random_problem(seed, LARGER).with_preset(SIMULATED)
    plan = random_plan(seed + 1, problem)
    try:
        verdict = evaluate(problem, plan)
    except InvalidProblem:
        return
    if verdict.objective_ticks is None:
        return
    pipeline = pipeline_of(problem, plan, verdict)
    assert simulate(pipeline, Schedule("1f1b")).makespan + sync_of(problem, verdict) == verdict.objective_ticks
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    expected = schedules.price(problem, plan, rounding)
    assert rounding.doubtful or expected == verdict.objective_ticks, f"{show_problem(problem)}\n{show_plan(plan)}"


@pytest.mark.parametrize("schedule", SIMULATED.schedules)
@pytest.mark.parametrize("seed", seeds(8, 30))
def test_bounds_of_outer_choices(seed: int, schedule: ScheduleName) -> None:
    """No plan takes less than the bounds of its outer choice say."""
    problem = random_problem(seed, LARGER).with_preset(SIMULATED).with_choices(schedules=frozenset({schedule}))
    plans = [replace(random_plan(at, problem), schedule=schedule) for at in range(60)]
    try:
        verdicts = list(judged(problem, plans))
    except InvalidProblem:
        return
    tables = Tables.of(problem)
    for variant in tables.fitting:
        bounds = SimulatedBounds(tables.of_variant(variant), schedule)
        for ranges in sum_ranges(bounds):
            within = [sum_choices(bounds, ranges[row]) for row in range(len(ranges))]
            for row, choices, at in ((row, each, at) for row, each in enumerate(within) for at in range(len(each))):
                choice = choices[at].single
                assert choice is not None
                key = variant, choice.stages, choice.replicas, choice.arrangement
                for plan, verdict in verdicts:
                    if verdict.legal and key == (plan.variant, len(plan.stages), plan.replicas, plan.arrangement):
                        assert verdict.objective_ticks is not None
                        first = max(int(ranges.bounds[row]), int(choices.bounds[at]))
                        beaten = verdict.objective_ticks + 1
                        filled = max(bounds.filled(each, beaten) for each in (ranges[row], choices[at]))
                        own, shape = tables.of_variant(variant), (choice.stages, choice.replicas)
                        placings = own.placings(*shape, choice.arrangement)
                        sites = [own.sites(*shape, each) for each in placings]
                        refined = min(
                            (bounds.refined(choice, each, verdict.objective_ticks + 1) for each in sites), default=0
                        )
                        assert max(first, filled, refined) <= verdict.objective_ticks


@pytest.mark.parametrize("seed", range(60))
def test_least_exchanges_are_no_more_than_exchanges(seed: int) -> None:
    """A library's time to launch counts once for a call: not for each byte, as a rate had it."""
    tables, nothing = Tables.of(random_problem(seed, LARGER)), (np.zeros(1, dtype=np.int64),) * 2
    for each in tables.grouped:
        for replicas in (2, 3, 4):
            if 2 * replicas * each.width <= each.devices:
                for option in each.options(replicas, 2):
                    for site in each.sites(2, replicas, each.placings(2, replicas, "stage-major")[0]):
                        taken = way_of(each, option, each.shares(site.holders, option.together), nothing).least
                        assert (least_exchanged(each, [option])[0][0] <= taken).all()


@pytest.mark.parametrize("seed", range(15))
def test_better_than(seed: int) -> None:
    """A value one above the optimum is beaten by the optimum alone, and the optimum itself by nothing."""
    problem = random_problem(seed, SMALL).with_preset(SIMULATED)
    optimum = solve(problem).objective_ticks
    if optimum is not None:
        assert solve(problem, better_than=optimum + 1).objective_ticks == optimum
        assert solve(problem, better_than=optimum).status is Status.NONE_BETTER


def test_a_limit_is_said() -> None:
    """Without time there is no plan, or one whose bound is below it: never a claim that it is the best."""
    problem = random_problem(5, Size(layers=14, devices=64, levels=3, variants=1, batch=60)).with_preset(SIMULATED)
    best = solve(problem)
    for limit_s in (0.0, 0.01, 0.03):
        found = solve(problem, time_limit_s=limit_s)
        assert found.bound_ticks is not None
        assert best.objective_ticks is not None
        assert found.bound_ticks <= best.objective_ticks
        if found.objective_ticks is not None:
            assert found.objective_ticks >= best.objective_ticks


def test_sum_and_simulation_differ() -> None:
    """Under some problems the best plan by `sum` is not the best, and in no problem is it better than the best."""
    faster = 0
    for seed in range(60):
        problem = random_problem(seed, replace(LARGER, layers=7, variants=1))
        problem = problem.with_choices(stages=frozenset({3, 4, 5}), zero=frozenset({0}), replicas=None)
        plan = solve(problem.with_preset(DEFAULT)).plan
        if plan is None:
            continue
        ticks = evaluate(problem.with_preset(SIMULATED), plan).objective_ticks
        best = solve(problem.with_preset(SIMULATED)).objective_ticks
        assert ticks is not None
        assert best is not None
        assert best <= ticks
        faster += best < ticks
    assert faster >= 3
