"""Stages that are sharded inside: rules, files, what refuses them, and what is shown of such plans."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from random_inside import random_plan, random_problem
from rich.console import Console
from seeds import seeds
from uneven_checks import bounds_hold, parts_add_up

from nest.certificate import check as claimed
from nest.cluster import Cluster, DeviceClass, Level
from nest.constraints import EqualStages, MaxDevices
from nest.errors import InvalidPlan, InvalidProblem, OutOfScope
from nest.evaluate import evaluate
from nest.execute.shape import shape_of
from nest.explain import explain
from nest.export.base import Inexpressible, require_order
from nest.export.ranks import ranks_of
from nest.families import Hyperparameters, from_hyperparameters
from nest.files import apply_settings, read_plan, read_problem, write_plan, write_problem
from nest.forms import Form
from nest.graph import Edge, Layer, LayerGraph
from nest.hardware import cluster_named
from nest.milp import solve_cpsat
from nest.plan import UNSHARDED, Plan, Sharding, Stage, inside_stage
from nest.presets import DEFAULT, PAPER, SIMULATED
from nest.problem import Choices, Problem, Training, Variant
from nest.report.figures import PricedPlan
from nest.report.stage_table import stage_table
from nest.result import Status
from nest.runs import Run, problem_of
from nest.solve import solve

CLUSTER = Cluster(8, 10**9, (Level(4, 1e9, 0.0), Level(2, 1e8, 0.0)))
HEAVY = 18 * 10**7
"""Bytes of weights that do not fit a device with their gradients and the optimizer, which are 7 times as much."""


def model(sequences: int, weights: int = HEAVY) -> LayerGraph:
    """Return three layers, the last of which does not fit a device alone, and takes longer."""
    sizes, seconds = (10**6, 10**6, weights), (1.0, 1.0, 4.0)
    layers = (
        Layer(at, sequences * each, 2 * sequences * each, size, sequences * 10**5)
        for at, (each, size) in enumerate(zip(seconds, sizes, strict=True))
    )
    sent = sequences * 10**5
    return LayerGraph(tuple(layers), (Edge(0, 1, sent), Edge(1, 2, sent)))


def problem(weights: int = HEAVY, **choices: object) -> Problem:
    """Return a problem of two microbatches on one replica, without a plan unless stages are sharded inside."""
    graphs = {Variant(1, microbatch=each): model(each, weights) for each in (1, 2)}
    asked = Choices(replicas=frozenset({1}), microbatch=frozenset({2}))
    found = Problem("heavy", graphs, CLUSTER, Training(0, "adam", 4), asked, DEFAULT)
    return found.with_choices(**{"shard_inside": frozenset({1, 2, 4}), **choices})


def plan_of(*shardings: Sharding, starts: tuple[int, ...], **more: object) -> Plan:
    """Return a plan with a layer on each stage but the last, which has the others."""
    layers = [(at,) for at in range(len(shardings) - 1)] + [tuple(range(len(shardings) - 1, 3))]
    stages = (
        Stage(each, start, sharding.degree, sharding=sharding)
        for each, sharding, start in zip(layers, shardings, starts, strict=True)
    )
    made = Plan(Variant(1, microbatch=2), 1, 1, tuple(stages), "stage-major")
    return replace(made, **more)  # type: ignore[arg-type]


def rules(asked: Problem, plan: Plan) -> set[str]:
    """Return the names of the rules that a plan breaks."""
    return {violation.rule for violation in evaluate(asked, plan).violations}


TWICE, SPLIT = inside_stage(1, 2), inside_stage(1, 2, splits_batch=True)
GOOD = plan_of(UNSHARDED, UNSHARDED, TWICE, starts=(0, 1, 2))


def test_only_so_there_is_a_plan() -> None:
    """A layer too large for a device, on one replica: between the devices of its stage it fits."""
    found, none = solve(problem()), solve(problem(shard_inside=None))
    assert none.status is Status.INFEASIBLE
    assert found.status is Status.OPTIMAL
    assert found.plan is not None
    assert found.plan.stages[-1].sharding.kind == "stage"
    assert evaluate(problem(), found.plan).legal


def test_a_part_of_the_batch_each_is_faster() -> None:
    """Where all fits, the stage of the slow layer splits the batch, and nothing only holds shards."""
    small = 10**6
    whole, split = solve(problem(small)), solve(problem(small, splits_batch=True))
    assert whole.plan is not None
    assert split.plan is not None
    assert not whole.plan.sharded_inside
    assert split.plan.stages[-1].sharding.splits_batch
    assert (split.objective_ticks or 0) < (whole.objective_ticks or 0)
    free = solve(problem(small, splits_batch=None))
    assert free.objective_ticks == split.objective_ticks


@pytest.mark.parametrize(
    ("broken", "plan", "asked"),
    [
        (set(), GOOD, {}),
        (set(), plan_of(UNSHARDED, TWICE, starts=(0, 2)), {}),
        (set(), plan_of(UNSHARDED, SPLIT, starts=(0, 2)), {"splits_batch": True}),
        ({"sharding"}, GOOD, {"shard_inside": None}),
        ({"sharding"}, GOOD, {"shard_inside": frozenset({2})}),
        ({"sharding"}, GOOD, {"shard_inside": frozenset({1, 4})}),
        ({"sharding"}, GOOD, {"splits_batch": True}),
        ({"sharding"}, plan_of(UNSHARDED, SPLIT, starts=(0, 2)), {}),
        ({"sharding"}, GOOD, {"zero": frozenset({0, 3})}),
        ({"placement"}, plan_of(UNSHARDED, UNSHARDED, TWICE, starts=(0, 1, 3)), {}),
        ({"placement"}, replace(GOOD, replica_stride=2), {}),
        (set(), replace(GOOD, arrangement="replica-major", replica_stride=4), {}),
        ({"placement"}, replace(GOOD, arrangement="replica-major", replica_stride=5), {}),
        ({"devices"}, plan_of(UNSHARDED, UNSHARDED, inside_stage(1, 4), starts=(0, 4, 8)), {}),
        ({"memory"}, plan_of(UNSHARDED, UNSHARDED, inside_stage(3, 2), starts=(0, 1, 2)), {}),
    ],
)
def test_rules(broken: set[str], plan: Plan, asked: dict[str, object]) -> None:
    """Degrees and parts of the batch as the choices say, blocks at multiples of their width."""
    assert rules(problem(**asked), plan) == broken  # type: ignore[arg-type]


def test_block_and_nesting() -> None:
    """A block has so many times the devices, and these nest with the network."""
    short = replace(GOOD, stages=(*GOOD.stages[:2], replace(GOOD.stages[2], devices=1)))
    assert "block" in rules(problem(), short)
    thrice = plan_of(UNSHARDED, inside_stage(1, 3), starts=(0, 3))
    assert rules(problem(shard_inside=frozenset({1, 3})), thrice) == {"nesting"}


def test_sequences_that_do_not_divide() -> None:
    """Parts of a microbatch are whole sequences, and the model has their figures."""
    asked = problem(splits_batch=True, shard_inside=frozenset({1, 2, 3, 4}))
    with pytest.raises(InvalidPlan, match="3 parts of a microbatch of 2 sequences"):
        evaluate(asked, plan_of(UNSHARDED, inside_stage(3, 3, splits_batch=True), starts=(0, 3)))
    assert {form.inside for form in asked.stage_forms(Variant(1, microbatch=2))} == {1, 2}
    alone = replace(asked, graphs={Variant(1, microbatch=2): model(2)})
    assert alone.stage_forms(Variant(1, microbatch=2)) == (Form(Variant(1, microbatch=2)),)
    with pytest.raises(InvalidPlan, match="no costs"):
        evaluate(alone, plan_of(UNSHARDED, SPLIT, starts=(0, 2)))


def test_what_a_plan_may_say() -> None:
    """Only devices that are added to a stage split the batch."""
    with pytest.raises(InvalidPlan, match="splits the batch"):
        Sharding("replicas", 1, 2, splits_batch=True)


@pytest.mark.parametrize("splits", [False, True, None])
def test_files(tmp_path: Path, splits: bool | None) -> None:
    """Problems and plans are read as they were written, with how stages are sharded inside."""
    asked = problem(splits_batch=splits)
    result = solve(asked)
    assert result.plan is not None
    write_problem(asked, tmp_path / "problem.toml")
    assert read_problem(tmp_path / "problem.toml").choices == asked.choices
    for plan in (result.plan, plan_of(UNSHARDED, SPLIT, starts=(0, 2))):
        write_plan(plan, tmp_path / "plan.json")
        assert read_plan(tmp_path / "plan.json") == plan


def test_settings() -> None:
    """The command line takes lists, ranges and none to settle it, and says what would be right."""
    found = apply_settings(problem(), ["shard_inside=1..3", "splits_batch=any"]).choices
    assert (found.shard_inside, found.splits_batch) == (frozenset({1, 2, 3}), None)
    assert apply_settings(problem(), ["shard_inside=none"]).choices.shard_inside is None
    for text in ("shard_inside=any", "shard_inside=0", "splits_batch=maybe"):
        with pytest.raises(InvalidProblem, match=text.split("=", maxsplit=1)[0]):
            apply_settings(problem(), [text])


def test_refused_problems() -> None:
    """Presets that price no such stages, devices of several classes, models that branch, schedules with chunks."""
    mixed = replace(CLUSTER, own_class="new", classes=(DeviceClass("old", ((4, 8),), 10**9),))
    with pytest.raises(InvalidProblem, match="classes"):
        replace(problem(), cluster=mixed)
    for preset in (PAPER, SIMULATED):
        with pytest.raises(InvalidProblem, match=f"shard_inside.*preset '{preset.name}'"):
            replace(problem(), preset=preset, training=Training(4, "adam"))
    branched = LayerGraph(model(1).layers, (Edge(0, 2, 1), Edge(1, 2, 1)))
    with pytest.raises(InvalidProblem, match="branches"):
        replace(problem(), graphs=dict.fromkeys(problem().graphs, branched))
    with pytest.raises(InvalidProblem, match="shard_inside"):
        problem(schedules=frozenset({"1f1b", "interleaved"}))
    with pytest.raises(InvalidProblem, match="without shard_inside"):
        problem(shard_inside=None, splits_batch=True)


def test_the_programme_agrees() -> None:
    """CP-SAT has the same optimum, and the checker covers such problems."""
    assert solve_cpsat(problem()).objective == solve(problem()).objective_ticks
    assert claimed(problem(), 1).holds


def test_side_constraints() -> None:
    """Limits of devices hold; what looks at stages of one width is refused, by judge and solver."""
    found = solve(problem().with_constraints(MaxDevices(3))).plan
    assert found is not None
    assert found.used_devices <= 3
    equal = problem().with_constraints(EqualStages())
    with pytest.raises(OutOfScope, match="equal_stages"):
        solve(equal)
    with pytest.raises(OutOfScope, match="equal_stages"):
        evaluate(equal, GOOD)


def test_frameworks_refuse() -> None:
    """No framework shards inside a stage, and no tiny model runs such plans."""
    with pytest.raises(Inexpressible, match="sharded inside the stage"):
        require_order(GOOD, "Megatron-LM")
    with pytest.raises(InvalidPlan, match="inside a stage"):
        shape_of(problem(), GOOD)


def test_ranks() -> None:
    """Each device is one rank, with its place among those that share the state of its stage."""
    ranks = ranks_of(replace(GOOD, replicas=2, stages=GOOD.stages[2:]), CLUSTER)
    assert [(rank.place, rank.replica, rank.shard) for rank in ranks] == [(2, 0, 0), (3, 0, 1), (4, 1, 0), (5, 1, 1)]


def test_shown() -> None:
    """The table of stages says over how many devices, and whether these split the batch."""
    for plan, text in ((GOOD, "1 x2 inside"), (plan_of(UNSHARDED, SPLIT, starts=(0, 2)), "1 x2 split")):
        priced = PricedPlan.judged(problem(splits_batch=None), plan)
        assert priced is not None
        out = io.StringIO()
        Console(file=out, width=120).print(stage_table(priced))
        assert text in out.getvalue()


def test_reason() -> None:
    """Why there is no plan is said of the form that comes nearest, and what helps takes such plans into account."""
    none = problem(20 * HEAVY)
    reason = solve(none).reason
    assert reason is not None
    assert "sharded inside over 4" in reason
    explained = explain(none, time_limit_s=None)
    assert explained is not None
    assert {each.kind for each in explained.relaxations} >= {"memory"}
    assert not any("shard_inside" in text for text in explained.conflict)


def test_sizes_of_a_run() -> None:
    """A run has the figures of the parts into which stages may split a microbatch that is asked for."""
    tiny = Hyperparameters("llama", layers=2, hidden=64, heads=2, kv_heads=2, ffn=128, vocab=256, seq=64)
    choices = Choices(microbatch=frozenset({4}), shard_inside=frozenset({1, 2}), splits_batch=True)
    run = Run(from_hyperparameters(tiny), cluster_named("dgx-h100:4"), 64, 8, choices=choices)
    assert {variant.microbatch for variant in problem_of(run).problem.graphs} == {2, 4}
    whole = replace(run, choices=replace(choices, splits_batch=False))
    assert {variant.microbatch for variant in problem_of(whole).problem.graphs} == {4}


@pytest.mark.parametrize("seed", seeds(30, 60))
def test_parts_add_up(seed: int) -> None:
    """What loads, memory and an iteration consist of is the judge's, and the pipeline that is played has its loads."""
    asked = random_problem(seed)
    plan = random_plan(seed, asked)
    if plan is not None:
        parts_add_up(asked, plan)


@pytest.mark.parametrize("seed", seeds(30, 60))
def test_bounds(seed: int) -> None:
    """No outer choice has a plan below its bound, nor any below the bound of all, nor below what computing takes."""
    bounds_hold(random_problem(seed))
