"""The benchmarks over training runs: what they count, change and price."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nest.evaluate import evaluate
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.plan import over_replicas
from nest.problem import Choices, Problem
from nest.runs import Run, problem_of, read_run
from nest.solve import solve

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import calculon_grid
import freed_choices
import growth
import one_judge
import run_figures


@pytest.fixture(scope="module")
def run() -> Run:
    """Return a run that is quick to pose and to solve."""
    model = from_hyperparameters(Hyperparameters("gpt", layers=8, hidden=1024, heads=16, vocab=51200, seq=2048))
    return Run(model, cluster_named("dgx-h100:16"), 2048, 64, name="small")


@pytest.fixture(scope="module")
def problem(run: Run) -> Problem:
    """Return its problem."""
    return problem_of(run).problem


def test_executions_of_calculon() -> None:
    """As many as its own search goes through on these devices, batch and networks; no more of them are ours."""
    count = calculon_grid.counted()
    assert count.all == 1_693_208
    assert count.plans < count.covered < count.all


def test_superset_of_calculon() -> None:
    """The runs name every width and every microbatch of the grid."""
    choices = calculon_grid.documents()["superset, scores kept or again"]["choices"]
    assert choices["tensor"] == [1, 2, 4, 8, 16, 32]
    assert {1, 3, 6, 1536} <= set(choices["microbatch"])


def test_all_again_is_every_layer_recomputing(problem: Problem) -> None:
    """A plan that recomputes everything, and the same plan where the layers do so themselves, take the same."""
    flagged = freed_choices.all_again(problem)
    plan = solve(flagged).plan
    assert plan is not None
    able = [layer.id for layer in problem.graphs[plan.variant].layers if layer.recomputed]
    stages = tuple(
        replace(stage, recompute="full" if set(able) & set(stage.layers) else "none") for stage in plan.stages
    )
    there, here = evaluate(flagged, plan), evaluate(problem, replace(plan, stages=stages))
    assert there.legal
    assert here.legal
    assert [stage.memory for stage in there.stages] == [stage.memory for stage in here.stages]
    times = [each.scale.time.seconds(each.objective_ticks or 0) for each in (there, here)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_all_again_is_so_on_every_class() -> None:
    """Where devices are of several classes, the layers of each of them recompute."""
    few = Choices(tensor=frozenset({8}), context=frozenset({1}), microbatch=frozenset({1}))
    mixed = replace(read_run(freed_choices.INSTANCES / "llama3-70b_a100-h100_512.toml"), choices=few)
    for graph in freed_choices.all_again(problem_of(mixed).problem).graphs.values():
        assert graph.others
        assert not any(layer.recomputed for layers in (graph.layers, *dict(graph.others).values()) for layer in layers)


def test_freed_choices_gain(run: Run) -> None:
    """No choice loses by being freed, and all of them gain at least what the best one does."""
    row = freed_choices.row_of(run)
    assert row.unproven == 0
    assert min(row.ratios.values()) >= freed_choices.LEAST_RATIO
    assert row.ratios["all"] >= max(row.ratios.values()) * freed_choices.LEAST_RATIO


def test_rules_are_never_better(run: Run) -> None:
    """Every rule has a legal plan here, and none is faster than the optimum."""
    row = one_judge.row_of(run)
    assert all(ratio is not None and ratio >= 1 for ratio in one_judge.ratios(row)), row
    assert len(row.judged) == len(one_judge.RULES)


def test_what_does_not_fit_has_no_price(run: Run, problem: Problem) -> None:
    """A plan by a rule counts only if it is legal on the devices that there are."""
    small = replace(problem, cluster=replace(problem.cluster, hbm_bytes=2**28))
    assert one_judge.fsdp(one_judge.Case(run, small)).seconds is None
    assert one_judge.fsdp(one_judge.Case(run, problem)).seconds is not None


def test_plan_in_letters(problem: Problem) -> None:
    """Widths of 1 are left out, and recomputation of some layers is told from that of all."""
    plan = solve(problem).plan
    assert plan is not None
    stage = replace(plan.stages[0], recompute="full", recomputed=2, sharding=over_replicas(1, 2))
    variant = replace(plan.variant, tensor=4, context=1, expert=1, sequence=True, microbatch=2)
    text = run_figures.plan_of(replace(plan, variant=variant, replicas=3, stages=(stage,)))
    assert text == "t4 sp p1 d3 b2, ZeRO-1, full in part"


def test_series_differ_in_their_size_only() -> None:
    """Either the cluster or the number of layers changes from point to point."""
    for series in growth.SERIES:
        documents = [document for _, document in series.documents()]
        clusters = {document["cluster"] for document in documents}
        layers = {document["model"]["layers"] for document in documents}
        changing, fixed = (clusters, layers) if series.what == "devices" else (layers, clusters)
        assert (len(changing), len(fixed)) == (len(documents), 1)
