"""Variants that are ruled out before they are priced: never one that has a plan as fast as the best of the space."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from math import gcd

import pytest
from seeds import seeds

from nest.cost.scale import scale_of
from nest.costing import FRAMEWORKS
from nest.evaluate import evaluate
from nest.export import FRAMEWORKS as EXPORTED
from nest.export import best_for
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.presets import SIMULATED, ScheduleName
from nest.problem import Choices, Problem
from nest.result import Result
from nest.runs import Run, contenders, problem_of
from nest.runs.floors import Floors
from nest.runs.pose import Maker
from nest.solve import solve
from nest.tables import Tables
from nest.tables.speeds import least_work

MODELS = (
    Hyperparameters("gpt", 2, 768, 12, vocab=50257, seq=1024),
    Hyperparameters("llama", 2, 2048, 16, 4, ffn=5632, vocab=32000, seq=4096),
    Hyperparameters("moe", 1, 1024, 16, 8, ffn=3584, vocab=32000, seq=2048, experts=4),
    Hyperparameters("t5", 1, 512, 8, seq=512),
)
CLUSTERS = ("dgx-h100:4", "dgx-a100:6", "dgx-h100:4", "dgx-a100:8", "dgx-a100:8+dgx-h100:8")


def random_run(seed: int) -> Run:
    """Return a run of a small model, whose batch is seldom a power of two."""
    draw = random.Random(seed)
    numbers, batch = draw.choice(MODELS), draw.choice((5, 6, 8, 9, 12))
    sequence = draw.choice((128, 512, numbers.seq))
    framework = draw.choice(FRAMEWORKS)
    more = not framework.buffers_boundaries and draw.random() < 0.3
    schedules: frozenset[ScheduleName] = frozenset({"1f1b", "gpipe"} if more else {"1f1b"})
    zero = frozenset(draw.sample((0, 1, 2, 3), draw.randint(1, 4)))
    hardware = cluster_named(draw.choices(CLUSTERS, (4, 4, 2, 4, 1))[0])
    room = hardware.cluster.hbm_bytes
    return Run(
        from_hyperparameters(numbers),
        hardware,
        sequence,
        batch,
        framework=framework,
        context_kind=draw.choice(("ring", "gather")),
        imbalance=draw.choice((1.0, 1.3)) if numbers.family == "moe" else 1.0,
        reserve_bytes=int(room * draw.choice((0, 0, 0.9, 0.97))),
        choices=Choices(zero=zero, schedules=schedules, hybrid=False),
    )


SCHEDULES: tuple[tuple[ScheduleName, ...], ...] = (
    ("1f1b",),
    ("zb-h1",),
    ("1f1b", "zb-h1"),
    ("1f1b", "gpipe"),
    ("1f1b", "interleaved"),
)


def same(problem: Problem) -> Problem:
    """Return a problem as it is."""
    return problem


def roughly(problem: Problem, within: float) -> Result:
    """Solve a problem up to a part of its time."""
    return solve(problem, within=within)


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_no_floor_is_above_what_a_variant_takes(seed: int) -> None:
    """Of every variant: what the tables say of its passes alone, which no plan beats."""
    run = random_run(seed)
    maker = Maker(run, every=True)
    every = problem_of(run, every=True).problem
    scale, tables = scale_of(every), Tables.of(every)
    floors = Floors(every, maker.graph, run.global_batch, gcd(*maker.widths.microbatch[0]))
    found = {shape: (floors.without_exchanges(shape), floors.of(shape)) for shape in maker.shapes()}
    for variant in tables.fitting:
        alone, floor = found[replace(variant, microbatch=maker.widths.microbatch[0][0])]
        once, shared = tables.least_busy(variant)
        passes = least_work(every, scale, variant, tables.blocks(variant))
        ticks = every.microbatches(variant) * scale.time.seconds(1)
        assert alone.shared_s <= passes * ticks
        assert alone.shared_s <= floor.shared_s <= max(passes, shared) * ticks
        assert alone.once_s <= floor.once_s <= scale.time.seconds(once) / variant.microbatch


@pytest.mark.parametrize("seed", seeds(40, 400))
def test_the_best_plan_is_that_of_all_variants(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an integer, by the judge in the problem of all variants, however few are solved first."""
    monkeypatch.setattr(sys.modules["nest.runs.contenders"], "FIRST", 1 + seed % 4)  # a function has the same name
    run = random_run(seed)
    every = problem_of(run, every=True).problem
    expected = solve(every)
    posed = contenders(run, roughly, same)
    assert posed.tried.all_tried
    assert set(posed.problem.graphs) <= set(every.graphs)
    found = solve(posed.problem)
    assert found.status is expected.status
    if found.plan is not None:
        assert evaluate(every, found.plan).objective_ticks == expected.objective_ticks


@pytest.mark.parametrize("seed", seeds(10, 200))
def test_the_best_plan_for_a_framework(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of all variants which the framework can run, as an integer."""
    monkeypatch.setattr(sys.modules["nest.runs.contenders"], "FIRST", 1 + seed % 4)
    run, framework = random_run(seed), EXPORTED[sorted(EXPORTED)[seed % len(EXPORTED)]]
    run = run if len(run.model.stacks) == 1 else replace(run, model=from_hyperparameters(MODELS[0]))
    every = problem_of(run, every=True).problem
    expected = best_for(every, run, framework).result
    posed = contenders(run, lambda problem, within: best_for(problem, run, framework, within=within).result)
    found = best_for(posed.problem, run, framework).result
    assert posed.tried.all_tried
    assert found.status is expected.status
    if found.plan is not None:
        assert evaluate(every, found.plan).objective_ticks == expected.objective_ticks


@pytest.mark.parametrize("seed", seeds(10, 200))
def test_the_best_played_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of all variants, also where a microbatch passes on before all of its work is done."""
    monkeypatch.setattr(sys.modules["nest.runs.contenders"], "FIRST", 1 + seed % 4)
    schedules = frozenset(SCHEDULES[seed % len(SCHEDULES)])
    run = replace(random_run(seed), hardware=cluster_named(CLUSTERS[seed % 4]), framework=FRAMEWORKS[0])
    run = run if len(run.model.stacks) == 1 else replace(run, model=from_hyperparameters(MODELS[0]))

    def played(problem: Problem) -> Problem:
        return problem.with_preset(SIMULATED).with_choices(schedules=schedules)

    every = played(problem_of(run, every=True).problem)
    expected = solve(every)
    posed = contenders(run, roughly, played)
    found = solve(played(posed.problem))
    assert posed.tried.all_tried
    assert found.status is expected.status
    if found.plan is not None:
        assert evaluate(every, found.plan).objective_ticks == expected.objective_ticks
