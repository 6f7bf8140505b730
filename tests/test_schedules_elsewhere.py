"""Who takes schedules but 1F1B, and who says that they do not: exports, execution, the checker, counts of plans."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from itertools import pairwise

import oracle_default as oracle
import oracle_plans
import oracle_schedules as schedules
import pytest
from export_cases import ENDS, ONE, eight
from oracle_groups import decimal
from random_branches import BRANCHED, random_branched
from random_schedules import scheduled_problem

from nest.certificate import check
from nest.errors import Infeasible, InvalidPlan
from nest.execute import Asked, prepare
from nest.export import FRAMEWORKS, Assignment, Framework, Inexpressible, exported, problem_for
from nest.families.formats.megatron_flags import flags_of_text
from nest.plan import over_replicas
from nest.presets import DEFAULT, SIMULATED, Preset, ScheduleName
from nest.problem import Problem
from nest.report.space import plans_of
from nest.solve import solve

TORCHTITAN = FRAMEWORKS["torchtitan"]


def test_torchtitan_has_gpipe() -> None:
    """The schedule of the plan is that of the file."""
    given = eight(ONE, 16, ENDS)
    names: dict[ScheduleName, str] = {"1f1b": "1F1B", "gpipe": "GPipe"}
    for name, said in names.items():
        plan = replace(given.plan, schedule=name)
        tables = tomllib.loads(exported(replace(given, plan=plan), TORCHTITAN).text)
        assert tables["parallelism"]["pipeline_parallel_schedule"] == said


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        *((each, "zb-h1") for each in FRAMEWORKS.values()),
        *((each, "gpipe") for each in FRAMEWORKS.values() if each is not TORCHTITAN),
        *((FRAMEWORKS[name], "interleaved") for name in ("deepspeed", "accelerate")),
    ],
)
def test_schedules_that_frameworks_do_not_have(framework: Framework, name: ScheduleName) -> None:
    """They refuse the plan, and the problem that allows nothing else."""
    given = eight(ONE, 16, ENDS)
    with pytest.raises(Inexpressible, match=f"schedule: '{name}': {framework.title} is written with 1f1b"):
        exported(replace(given, plan=replace(given.plan, schedule=name)), framework)
    problem = given.problem.with_preset(DEFAULT if name == "interleaved" else SIMULATED)
    with pytest.raises(Infeasible, match=r"is written with 1f1b.*, of which the problem allows nothing"):
        problem_for(problem.with_choices(schedules=frozenset({name})), given.run, framework)
    asked = problem_for(problem.with_choices(schedules=frozenset({name, "1f1b"})), given.run, framework)
    assert asked.choices.schedules == {"1f1b"}


def chunked() -> Assignment:
    """Return a plan of four stages with two chunks of four layers each; embedding and head ride along."""
    given = eight(ONE, 16, ENDS)
    graph = given.problem.graphs[ONE]
    ends = graph.equal_parts(8)
    assert ends == (5, 9, 13, 17, 21, 25, 29, 34)
    runs = list(pairwise([0, *ends]))
    stages = tuple(
        replace(stage, layers=tuple(graph.layers[place].id for run in runs[at::4] for place in range(*run)))
        for at, stage in enumerate(given.plan.stages)
    )
    return replace(given, plan=replace(given.plan, stages=stages, schedule="interleaved", chunks=2))


def test_chunks_in_megatron() -> None:
    """Equal chunks are a number of layers, others a layout; what recomputes in part is refused."""
    given = chunked()
    alike = tuple(replace(stage, sharding=over_replicas(1, 16)) for stage in given.plan.stages)
    given = replace(given, plan=replace(given.plan, stages=alike))
    flags = flags_of_text(exported(given, FRAMEWORKS["megatron"]).text)
    assert flags["--num-layers-per-virtual-pipeline-stage"] == "4"
    assert flags["--pipeline-model-parallel-size"] == "4"
    part = tuple(replace(stage, recompute="full", recomputed=1) for stage in alike)
    with pytest.raises(Inexpressible, match="of a stage of 2 chunks: Megatron-LM counts in each chunk"):
        exported(replace(given, plan=replace(given.plan, stages=part)), FRAMEWORKS["megatron"])


def test_chunks_in_torchtitan() -> None:
    """Chunks are parts of their own, in the order of the pipeline."""
    parallelism = tomllib.loads(exported(chunked(), TORCHTITAN).text)["parallelism"]
    assert parallelism["pipeline_parallel_schedule"] == "Interleaved1F1B"
    parts = parallelism["module_fqns_per_model_part"]
    assert len(parts) == 8
    assert parts[0] == ["tok_embeddings", *(f"layers.{at}" for at in range(4))]
    assert parts[4] == [f"layers.{at}" for at in range(16, 20)]
    assert parts[7][-2:] == ["norm", "output"]


def test_zero_bubbles_are_not_executed() -> None:
    """PyTorch's schedules here are 1F1B and GPipe; another has to be asked for."""
    problem = problem_with_plan()
    plan = solve(problem).plan
    assert plan is not None
    with pytest.raises(InvalidPlan, match="schedule: 'zb-h1' is not executed; give --schedule 1f1b or gpipe"):
        prepare(problem, replace(plan, schedule="zb-h1"), Asked(processes=64))
    job = prepare(problem, replace(plan, schedule="zb-h1"), Asked(processes=64, schedule="gpipe", blocks=8)).job
    assert job.shape.schedule == "gpipe"


def problem_with_plan() -> Problem:
    """Return a problem of a chain under preset `default`."""
    problem = scheduled_problem(7).with_choices(schedules=frozenset({"1f1b"})).with_preset(DEFAULT)
    return replace(problem, cluster=replace(problem.cluster, hbm_bytes=10**15))


@pytest.mark.parametrize("preset", [DEFAULT, SIMULATED], ids=lambda each: each.name)
def test_checker(preset: Preset) -> None:
    """Its proof is of all schedules that are allowed, by formula or played."""
    both = problem_with_plan().with_preset(preset).with_choices(schedules=frozenset({"1f1b", "gpipe"}))
    objective = solve(both).objective_ticks
    assert objective is not None
    assert check(both, objective).outcome.value == "proven"
    assert check(both, objective + 1).better is not None


@pytest.mark.parametrize("seed", range(40))
def test_size_of_the_space(seed: int) -> None:
    """Plans are counted for each schedule, those of ZB-H1 without recomputation."""
    problem = scheduled_problem(seed)
    problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=10**15))
    places = {
        (each.variant, each.stages, each.replicas, each.spot.blocks): each
        for each in oracle_plans.outer_choices(problem)
        if each.spot
    }
    counted = 0
    for outer in places.values():
        for name in problem.choices.schedules:
            costs = schedules.Passes(problem, outer, oracle.Rounding(0), name)
            counted += schedules.ways(costs, outer)
    assert sum(plans_of(problem).values()) == counted


def test_branches_under_zero_bubbles() -> None:
    """Downsets take schedules that put passes off; the largest memory makes them legal somewhere."""
    for seed in range(8):
        problem = random_branched(seed, replace(BRANCHED, layers=4)).with_preset(SIMULATED)
        room = decimal(problem.cluster.hbm_bytes) * 100
        problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=int(room)))
        plan = solve(problem.with_choices(schedules=frozenset({"zb-h1"}))).plan
        if plan is not None:
            assert plan.schedule == "zb-h1"
            return
    pytest.fail("none had a plan")
