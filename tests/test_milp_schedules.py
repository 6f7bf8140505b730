"""The mathematical programme of preset `default` under other schedules than 1F1B: both models agree with the solver."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count, islice

import oracle_chunks as chunks
import oracle_default as oracle
import pytest
from random_branches import BRANCHED, random_branched
from random_default import Size
from seeds import seeds
from sum_programmes import MODELS, agree, ask, rules_agree, step_slowly
from test_certificate_schedules import EITHER, GPIPE, gpipe
from test_chunks_agreement import ALONE, BOTH, chunked_problem, constrained_problem

from nest.evaluate import evaluate
from nest.milp import solve_cpsat
from nest.milp.scope import require_scope
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_plans import NOTHING, encode
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve


@pytest.mark.parametrize("seed", seeds(40, 300))
def test_gpipe(seed: int) -> None:
    """Problems whose microbatches are all in flight, and such as let 1F1B do as well."""
    problem = gpipe(seed)
    agree(problem, solve(problem).objective_ticks)
    if seed % 4 == 0:
        either = problem.with_choices(schedules=EITHER)
        agree(either, solve(either).objective_ticks)


@pytest.mark.parametrize("seed", seeds(15, 60))
def test_gpipe_where_layers_branch(seed: int) -> None:
    """Stages that are differences of downsets."""
    problem = random_branched(seed, BRANCHED).with_choices(schedules=GPIPE)
    agree(problem, solve(problem).objective_ticks)


@pytest.mark.parametrize("seed", range(20))
def test_consequences_lose_nothing(seed: int) -> None:
    """The programme of the rules alone, all outer choices under both schedules in one model, has the same optimum."""
    problem = gpipe(seed, Size(layers=3, devices=8, levels=2, variants=1, batch=8)).with_choices(schedules=EITHER)
    rules_agree(problem)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_gpipe_of_larger_problems(seed: int) -> None:
    """More layers and devices."""
    problem = gpipe(seed, Size(layers=8, devices=32, levels=3, variants=2, batch=32))
    agree(problem, solve(problem).objective_ticks)


@pytest.mark.parametrize("seed", seeds(25, 400))
def test_chunks(seed: int) -> None:
    """Interleaved pipelines, alone and beside 1F1B."""
    for schedules in (ALONE, BOTH):
        problem = chunked_problem(seed).with_choices(schedules=schedules)
        agree(problem, solve(problem).objective_ticks)


@pytest.mark.parametrize("seed", seeds(30, 200))
def test_chunks_beside_side_constraints(seed: int) -> None:
    """The same where devices, memory or places are limited, devices are reserved, or outer choices are left out."""
    problem = constrained_problem(seed)
    agree(problem, solve(problem).objective_ticks, ("cpsat",))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_chunks_of_larger_problems(seed: int) -> None:
    """More layers and devices."""
    problem = chunked_problem(seed, Size(layers=16, devices=64, levels=4, variants=2, batch=64))
    agree(problem, solve(problem).objective_ticks)


TINY = Size(layers=5, devices=6, levels=2, variants=1, batch=8)


@pytest.mark.parametrize("seed", range(30))
def test_consequences_lose_nothing_with_chunks(seed: int) -> None:
    """All outer choices in one model, chunks beside other schedules, and all ways of all stages."""
    problem = chunked_problem(seed, TINY).with_choices(schedules=BOTH)
    rules_agree(problem)


@pytest.mark.parametrize("seed", range(300, 330))
def test_small_steps_with_chunks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where outer choices are asked one by one, limits and horizons are near, and nothing is kept."""
    step_slowly(monkeypatch)
    problem = chunked_problem(seed).with_choices(schedules=BOTH)
    agree(problem, solve(problem).objective_ticks, ("cpsat",))


def any_plan(seed: int, problem: Problem) -> Plan | None:
    """Return a random interleaved plan of a problem, which may not fit the memory."""
    rng, rounding = random.Random(seed), oracle.Rounding(0)
    choices = list(islice(chunks.choices(problem, rounding), 200))
    if not choices:
        return None
    chosen = rng.choice(choices)
    inner = [list(chunks.inners(problem, chosen, at)) for at in range(chosen.stages)]
    return chunks.plan_of(chosen, [rng.choice(each) for each in inner]) if all(inner) else None


def test_plans_with_chunks() -> None:
    """A plan that fits has the price of the judge in both models, and is decoded to itself; no other is a solution."""
    legal = Counter[bool]()
    for seed in range(150):
        problem = chunked_problem(seed, TINY)
        plan = any_plan(seed, problem)
        if plan is None:
            continue
        verdict, made = evaluate(problem, plan), SumFormulation.whole(problem)
        solution = encode(made, plan)
        legal[verdict.legal] += 1
        for module, run in MODELS if verdict.legal or legal[False] < 20 else ():
            claim = ask(module, run, made, solution or NOTHING)
            assert (claim.status is Status.INFEASIBLE) == (not verdict.legal)
            assert claim.objective == (verdict.objective_ticks if verdict.legal else None)
            assert claim.plan is None or (claim.plan.chunks, claim.plan.schedule) == (plan.chunks, "interleaved")
            assert claim.plan is None or encode(made, claim.plan) == solution
    assert min(legal[True], legal[False]) > 5


def test_a_plan_with_chunks_to_start_from() -> None:
    """It is priced by its own programme, and claimed where no plan takes less."""
    problem = next(each for each in map(chunked_problem, count()) if solve(each).plan is not None)
    require_scope(problem)
    result = solve(problem)
    claim = solve_cpsat(problem, hint=result.plan, at_least=result.objective_ticks)
    assert (claim.status, claim.objective) == (Status.OPTIMAL, result.objective_ticks)
    assert claim.plan is not None
    assert result.plan is not None
    assert [stage.layers for stage in claim.plan.stages] == [stage.layers for stage in result.plan.stages]
