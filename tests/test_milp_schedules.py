"""The mathematical programme of preset `default` under other schedules than 1F1B: both models agree with the solver."""

from __future__ import annotations

import pytest
from random_branches import BRANCHED, random_branched
from random_default import Size
from seeds import seeds
from test_certificate_schedules import EITHER, GPIPE, gpipe
from test_milp_sums import MODELS, agree, ask, near

from nest.evaluate import evaluate
from nest.milp import sum_cpsat_model
from nest.milp.sum_formulation import SumFormulation
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
    wanted, made = solve(problem).objective_ticks, SumFormulation.whole(problem)
    for module, run in MODELS:
        claim = ask(module, run, made)
        assert near(claim.objective, wanted, 0 if module is sum_cpsat_model else 1e-12)
        assert claim.plan is None or evaluate(problem, claim.plan).legal


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_gpipe_of_larger_problems(seed: int) -> None:
    """More layers and devices."""
    problem = gpipe(seed, Size(layers=8, devices=32, levels=3, variants=2, batch=32))
    agree(problem, solve(problem).objective_ticks)
