"""What figures consist of: parts add up to the judge's figures exactly, and each is what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import random_default
import random_problems

from nest.breakdown import compute_limit, iteration_parts, load_parts, memory_parts, uplinks
from nest.breakdown.load import LoadParts
from nest.cluster import Cluster, Level
from nest.evaluate import Evaluation, evaluate
from nest.graph import Collective, Edge, Layer, LayerGraph, Recomputed
from nest.plan import Plan, Stage, over_replicas
from nest.presets import ARTIFACT, DEFAULT, PAPER
from nest.problem import Copies, Problem, Training, Variant
from nest.solve import solve
from nest.units import Number

SEEDS = range(60)


def judged(seed: int, preset: str) -> tuple[Problem, Plan, Evaluation] | None:
    """Return a random plan that has a price, under a preset."""
    if preset == "default":
        problem = random_default.random_problem(seed, ugly=seed % 2 == 0)
        plan = random_default.random_plan(seed, problem)
    else:
        problem = random_problems.random_problem(seed, ugly=seed % 2 == 0)
        problem = problem.with_preset(ARTIFACT if preset == "artifact" else PAPER)
        plan = random_problems.random_plan(seed, problem)
    evaluation = evaluate(problem, plan)
    return None if evaluation.objective_ticks is None else (problem, plan, evaluation)


@pytest.mark.parametrize("preset", ["default", "paper", "artifact"])
@pytest.mark.parametrize("seed", SEEDS)
def test_parts_add_up(seed: int, preset: str) -> None:
    """Loads in ticks, memory in quanta, the iteration in ticks: nothing is lost, and nothing below zero makes it up."""
    found = judged(seed, preset)
    if found is None:
        pytest.skip("the plan of this seed has no price")
    problem, plan, evaluation = found
    loads, held = load_parts(problem, plan, evaluation), memory_parts(problem, plan, evaluation)
    assert [each.total for each in loads] == [stage.load for stage in evaluation.stages]
    assert [each.total for each in held] == [stage.memory for stage in evaluation.stages]
    iteration = iteration_parts(problem, plan, evaluation, loads)
    assert iteration.total == evaluation.objective_ticks
    for parts in ([each.as_dict() for each in loads], [each.as_dict() for each in held], [iteration.as_dict()]):
        assert min(min(each.values()) for each in parts) >= 0, parts
    assert compute_limit(problem)[0] <= iteration.total
    assert all(0 <= link.ticks <= iteration.total for link in uplinks(problem, plan, evaluation, loads))


@pytest.mark.parametrize("seed", SEEDS)
def test_working_memory_is_that_of_the_peak(seed: int) -> None:
    """What is left of a stage's memory is its peak, less what microbatches in flight keep (C11)."""
    found = judged(seed, "default")
    if found is None:
        pytest.skip("the plan of this seed has no price")
    problem, plan, evaluation = found
    graph, copies, stages = problem.graphs[plan.variant], problem.training.held, len(plan.stages)
    for stage, parts in zip(plan.stages, memory_parts(problem, plan, evaluation), strict=True):
        zero, each = stage.sharding.zero, problem.copy_ranks(plan.variant, 1)[0]
        together = stage.sharding.degree // each if zero else plan.replicas
        dense, expert = (ranks > 1 for ranks in problem.copy_ranks(plan.variant, together))
        held = zero == 3 and stages > 1 and problem.training.holds_gathered
        times = 0 if held else (copies.gradients if zero >= 2 else 0) + (copies.gathered if zero == 3 else 0)
        layers = [graph.layers[graph.index[name]] for name in stage.layers]
        kept: Number = 0
        peak: Number = 0
        for layer, again in zip(layers, stage.repeats(layers, last=problem.training.recomputes_last), strict=True):
            apart = layer.expert_parameter_bytes
            shared = (layer.parameter_bytes - apart) * dense + apart * expert
            kept += (again or layer).activation_bytes
            peak = max(peak, kept + (again or layer).working_bytes + times * shared)
        assert parts.working == (peak - kept) * evaluation.scale.quanta_per_byte


def small() -> tuple[Problem, Plan]:
    """Return two stages of a tensor pair, two replicas, and a layer with a collective on each.

    Level 0 joins pairs at 100 bytes/s, level 1 everything at 10 bytes/s, without latencies.
    """
    sums = Collective("all-reduce", 100, "tensor", "forward")
    layers = (
        Layer("a", 2.0, 3.0, 10, 5, collectives=(sums,), working_bytes=7),
        Layer("b", 2.0, 3.0, 10, 5, recomputed=(Recomputed("full", 1.0, 5),)),
    )
    graph = LayerGraph(layers, (Edge("a", "b", 20),))
    cluster = Cluster(8, 10_000, (Level(2, 100.0, 0.0, "pair"), Level(4, 10.0, 0.0, "all")))
    training = Training(microbatches=8, copies=Copies(6, 2), overhead_bytes=100)
    problem = Problem("small", {Variant(2): graph}, cluster, training, preset=DEFAULT)
    sharded = over_replicas(1, 2)
    stages = (Stage(("a",), 0, 2, sharding=sharded), Stage(("b",), 4, 2, "full", sharded))
    return problem, Plan(Variant(2), 2, 2, stages, "stage-major")


def test_loads_by_hand() -> None:
    """Two of 100 bytes sum in 1 s in a pair, 20 bytes cross the upper level in 2 s, twice a microbatch in all."""
    problem, plan = small()
    evaluation = evaluate(problem, plan)
    assert evaluation.legal
    tick = evaluation.scale.time.ticks(1.0)
    loads = load_parts(problem, plan, evaluation)
    assert loads[0] == LoadParts(compute=5 * tick, tensor=1 * tick, transfer=2 * tick)
    assert loads[1] == LoadParts(compute=5 * tick, recompute=1 * tick, transfer=2 * tick)
    parts = iteration_parts(problem, plan, evaluation, loads)
    assert (parts.compute, parts.tensor, parts.transfer) == (20 * tick, 4 * tick, 8 * tick)
    assert parts.communication == 12 * tick
    assert parts.bubble == 8 * tick, "the other stage fills once"
    assert parts.sync == evaluation.stages[0].sync > 0


def test_memory_by_hand() -> None:
    """10 bytes of weights, twice as many of gradients, half of six times as many of optimizer; stage 0 keeps two."""
    problem, plan = small()
    parts = memory_parts(problem, plan, evaluate(problem, plan))
    assert list(parts[0].as_dict().values()) == [10, 20, 30, 10, 7, 100, 0]
    assert list(parts[1].as_dict().values()) == [10, 20, 30, 5, 0, 100, 0]


def test_compute_limit_by_hand() -> None:
    """8 microbatches of 10 s on two devices each, spread over 8 devices; the better of two variants counts."""
    problem, plan = small()
    tick = evaluate(problem, plan).scale.time.ticks(1.0)
    assert compute_limit(problem) == (20 * tick, Variant(2))
    whole = LayerGraph((Layer("a", 4.0, 4.0, 1, 1), Layer("b", 4.0, 4.0, 1, 1)), (Edge("a", "b", 1),))
    both = replace(problem, graphs={**problem.graphs, Variant(1): whole})
    tick = evaluate(both, plan).scale.time.ticks(1.0)
    assert compute_limit(both) == (16 * tick, Variant(1))


def test_links_by_hand() -> None:
    """Each pair sends up what crosses the boundary and what replicas exchange, and nothing of its own collectives."""
    problem, plan = small()
    evaluation = evaluate(problem, plan)
    tick = evaluation.scale.time.ticks(1.0)
    links = uplinks(problem, plan, evaluation, load_parts(problem, plan, evaluation))
    assert [(link.level, link.group) for link in links] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert {link.ticks for link in links} == {8 * tick + evaluation.stages[0].sync}


def test_no_best_plan_is_below_the_limit() -> None:
    """The limit holds for optima, which come nearest to it."""
    for seed in range(12):
        problem = random_default.random_problem(seed)
        result = solve(problem)
        if result.objective_ticks is not None:
            assert compute_limit(problem)[0] <= result.objective_ticks
