"""Interleaved plans for frameworks: the best of what runs, written, read again, and taken by the frameworks."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from export_cases import SMALL, judged
from test_export_installed import installed, megatron_config, one_process

from nest.certificate import check
from nest.cli.estimate import estimate_command
from nest.constraints import ReservedDevices
from nest.cost.schedules import Schedule
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.export import FRAMEWORKS, Assignment, Framework, Inexpressible, best_for, exported, problem_for
from nest.families import from_hyperparameters
from nest.families.formats.megatron_flags import flags_of_text
from nest.families.formats.megatron_layout import IN_TURN
from nest.hardware import cluster_named
from nest.pipeline.orders import passes
from nest.presets import ScheduleName
from nest.problem import Choices, Problem
from nest.result import Status
from nest.runs import Run, problem_of
from nest.solve import solve
from nest.units import HARD_LIMIT

__all__ = ["one_process"]  # a fixture

MEGATRON, TORCHTITAN = FRAMEWORKS["megatron"], FRAMEWORKS["torchtitan"]

INTERLEAVED: frozenset[ScheduleName] = frozenset({"interleaved"})
BOTH: frozenset[ScheduleName] = frozenset({"interleaved", "1f1b"})

RUNS: list[tuple[str, float, bool | None, frozenset[ScheduleName]]] = [
    ("dgx-h100:16", 70, False, INTERLEAVED),
    ("dgx-h100:8", 77.9, None, BOTH),
    ("dgx-h100:8", 78.2, False, INTERLEAVED),
]
"""Cluster, reserved GiB, whether attention is fused, and schedules: with little memory stages differ, mostly."""


def posed(
    cluster: str, room: float, flash: bool | None, schedules: frozenset[ScheduleName], **choices: Any
) -> tuple[Run, Problem]:
    """Return a small GPT whose stages may have chunks, and its problem."""
    few: dict[str, Any] = {"tensor": frozenset({1, 2}), "context": frozenset({1}), "microbatch": frozenset({1, 2})}
    given = Choices(**{**few, "stages": frozenset({2, 4}), "schedules": schedules, **choices})
    model = from_hyperparameters(replace(SMALL, layers=8, seq=1024))  # stages of two or four layers
    run = Run(model, cluster_named(cluster), 1024, 16, choices=given, reserve_bytes=int(room * 2**30), flash=flash)
    return run, problem_of(run).problem


def best_of(run: Run, problem: Problem, framework: Framework) -> Assignment:
    """Return the best plan that a framework can run, which it proves to be that."""
    result = best_for(problem, run, framework).result
    assert (result.status, result.bound_ticks) == (Status.OPTIMAL, result.objective_ticks)
    assert result.plan is not None
    return judged(run, problem, result.plan)


@pytest.mark.parametrize("framework", [MEGATRON, TORCHTITAN], ids=lambda each: each.name)
@pytest.mark.parametrize(("cluster", "room", "flash", "schedules"), RUNS)
def test_best(
    cluster: str, room: float, flash: bool | None, schedules: frozenset[ScheduleName], framework: Framework
) -> None:
    """Of all ways to shard and to recompute that stages may have alike, under each schedule, none is better."""
    one: dict[str, Any] = {name: frozenset({1}) for name in ("tensor", "microbatch")}
    run, problem = posed(cluster, room, flash, schedules, **one)
    asked, found = problem_for(problem, run, framework), []
    kinds = sorted(asked.choices.stage_recompute or ())
    for zero, degree, kind, layers, name in product(
        sorted(asked.choices.zero), (2, 4, 8), kinds, range(1, 9), schedules
    ):
        partly = kind in framework.parts and name == "1f1b"
        if (zero == 0 and degree > 2) or (layers < 8 and not partly):
            continue
        pins = {"zero": zero, "stage_recompute": kind, "recomputed": layers if layers < 8 else 10, "schedules": name}
        pins |= {"zero_degree": degree} if zero else {}
        best = solve(asked.with_choices(**{each: frozenset({value}) for each, value in pins.items()})).objective_ticks
        found += [] if best is None else [best]
    answer = best_for(problem, run, framework)
    result = answer.result
    assert result.objective_ticks == min(found, default=None)
    assert all(check(part, result.objective_ticks or HARD_LIMIT).holds for part in answer.parts)
    assert result.status is (Status.OPTIMAL if found else Status.INFEASIBLE)
    if result.plan is not None:
        given = judged(run, problem, result.plan)
        assert framework.broken(exported(given, framework).text, given.world) == []


CHUNKED: list[dict[str, Any]] = [
    {},
    {"chunks": frozenset({2}), "stage_recompute": frozenset({"full"})},
    {"stages": frozenset({4}), "tensor": frozenset({2}), "sequence": True, "zero": frozenset({1})},
    {"stages": frozenset({2}), "replicas": frozenset({2}), "microbatch": frozenset({2}), "zero": frozenset({0})},
]
"""What plans with chunks are made of."""


@pytest.mark.parametrize("choices", CHUNKED)
def test_round_trip(choices: dict[str, Any], tmp_path: Path) -> None:
    """Megatron-LM's arguments of a plan with chunks are estimated to take what the plan takes, byte by byte."""
    run, problem = posed("dgx-h100:16", 10, None, INTERLEAVED, **choices)
    given = best_of(run, problem, MEGATRON)
    assert given.plan.chunks > 1
    (tmp_path / "args.sh").write_text(exported(given, MEGATRON).text)
    typed = ("--model", tmp_path / "args.sh", "--cluster", "dgx-h100:16", "--reserve", "10", "--json")
    data = ("--data", given.plan.replicas)
    result = CliRunner().invoke(estimate_command, [str(each) for each in (*typed, *data)], standalone_mode=False)
    assert result.exception is None
    found = json.loads(result.output)
    assert found["iteration_s"] == pytest.approx(given.iteration_s, rel=1e-9)
    assert [stage["memory_bytes"] for stage in found["stages"]] == [
        stage.memory_bytes for stage in solve_again(problem, given)
    ]
    assert not [note for note in found["notes"] if "chunk" in note or "multiple" in note]


def solve_again(problem: Problem, given: Assignment) -> Any:
    """Return the stages of a plan with the judge's figures."""
    verdict = evaluate(problem, given.plan)
    return given.plan.with_figures(verdict.loads_s, verdict.memory_bytes).stages


@pytest.mark.parametrize("down", [3, 12])
def test_around_failed_devices(down: int) -> None:
    """Whole nodes are left out of plans with chunks, as of others."""
    wide: dict[str, Any] = {"stages": frozenset({2}), "replicas": frozenset({8}), "tensor": frozenset({1})}
    run, problem = posed("dgx-h100:24", 10, None, INTERLEAVED, **wide)
    given = best_of(run, problem.with_constraints(ReservedDevices([down])), MEGATRON)
    assert down // 8 not in {place // 8 for place in given.places.tolist()}
    assert exported(given, MEGATRON).notes[0].startswith("start it on nodes")


def test_layers_are_counted_by_chunk() -> None:
    """A limit on the layers of a stage that recompute, below all of them, is nothing to ask with chunks."""
    run, problem = posed("dgx-h100:8", 10, None, INTERLEAVED)
    with pytest.raises(InvalidProblem, match=r"recomputed: at most 2: Megatron-LM .* all layers of a stage of chunks"):
        problem_for(problem.with_choices(recomputed=frozenset({2})), run, MEGATRON)
    given = best_of(run, problem, MEGATRON)
    stages = tuple(replace(stage, recompute="full", recomputed=1) for stage in given.plan.stages)
    with pytest.raises(Inexpressible, match="recompute: 'full' in 1 layers of a stage of"):
        exported(replace(given, plan=replace(given.plan, stages=stages)), MEGATRON)


ODD: list[tuple[Framework, int, int, str | None]] = [
    (MEGATRON, 4, 8, None),
    (MEGATRON, 4, 13, None),
    (MEGATRON, 4, 3, "3 microbatches of each for 4 stages: Megatron-LM interleaves as many, or more"),
    (TORCHTITAN, 4, 10, None),
    (TORCHTITAN, 4, 3, None),
    (TORCHTITAN, 4, 13, "13 microbatches of each for 4 stages: PyTorch interleaves multiples of 3"),
]
"""Frameworks, stages, microbatches of a replica, and what is wrong with these."""


@pytest.mark.parametrize(("framework", "stages", "microbatches", "fault"), ODD)
def test_any_number_of_microbatches(framework: Framework, stages: int, microbatches: int, fault: str | None) -> None:
    """What a framework can interleave is written with the size of a group, if that is another; the rest is refused."""
    alone: dict[str, Any] = {name: frozenset({1}) for name in ("tensor", "microbatch", "replicas", "chunks")}
    alone |= {"stages": frozenset({stages}), "chunks": frozenset({2})}
    run, _ = posed("dgx-h100:8", 10, None, INTERLEAVED, **alone)
    run = replace(run, global_batch=microbatches)
    problem = problem_of(run).problem
    result = solve(problem_for(problem, run, framework))
    assert result.plan is not None
    given = judged(run, problem, result.plan)
    assert (best_for(problem, run, framework).result.plan is None) == (fault is not None)
    if fault:
        with pytest.raises(Inexpressible, match=f"replicas: {fault}"):
            exported(given, framework)
        return
    text = exported(given, framework).text
    assert framework.broken(text, given.world) == []
    if framework is MEGATRON:
        sizes = {8: None, 13: "7"}
        assert flags_of_text(text).get(IN_TURN) == sizes[microbatches]
        changed = text.replace(f"{IN_TURN} 7", f"{IN_TURN} 6")
        assert (changed != text) == bool(framework.broken(changed, given.world))


def test_order_of_pytorch() -> None:
    """Where its rounds divide the microbatches, PyTorch takes the passes in the order that is priced."""
    schedules = installed("torch.distributed.pipelining.schedules", "torch")
    for stages, chunks, microbatches in product((2, 3, 4, 5), (2, 3), range(1, 13)):
        if TORCHTITAN.turn_faults(stages, microbatches):
            continue
        made = object.__new__(schedules.ScheduleInterleaved1F1B)
        rounds = max(1, microbatches // stages)
        made.n_local_stages, made.pp_group_size, made._n_microbatches = chunks, stages, microbatches
        made.number_of_rounds, made.microbatches_per_round = rounds, microbatches // rounds
        for at in range(stages):
            theirs = [
                (each.computation_type.name, each.stage_index, each.microbatch_index)
                for each in made._calculate_single_rank_operations(at)
                if each is not None
            ]
            ours = passes(Schedule("interleaved", chunks), stages, at, microbatches)
            named = {"forward": "FORWARD", "backward": "FULL_BACKWARD"}
            assert theirs == [(named[each.kind], each.chunk * stages + at, each.microbatch) for each in ours]


@pytest.fixture
def block(request: pytest.FixtureRequest) -> Any:
    """Return what says how many layers Megatron-Core builds in a chunk, in a job of one process."""
    found = installed("megatron.core.transformer.transformer_block", "megatron-core 0.13 or later")
    request.getfixturevalue("one_process")
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("choices", CHUNKED)
def test_megatron_core(choices: dict[str, Any], block: Any) -> None:
    """Its configuration takes the chunks, of which it builds as many layers each; others do not divide a stage's."""
    run, problem = posed("dgx-h100:16", 10, None, INTERLEAVED, **choices)
    given = best_of(run, problem, MEGATRON)
    text = exported(given, MEGATRON).text
    each = int(str(flags_of_text(text)["--num-layers-per-virtual-pipeline-stage"]))
    assert each == 8 // len(given.plan.stages) // given.plan.chunks
    parallel = installed("megatron.core.parallel_state", "megatron-core")
    parallel.set_pipeline_model_parallel_rank(0)
    parallel.set_pipeline_model_parallel_world_size(len(given.plan.stages))

    def built(chunks: int) -> int:
        parallel.set_virtual_pipeline_model_parallel_world_size(chunks)
        config = megatron_config(text, virtual_pipeline_model_parallel_size=chunks)
        return int(block.get_num_layers_to_build(config, vp_stage=0))

    assert built(given.plan.chunks) == each
    with pytest.raises((AssertionError, ValueError)):
        built(3)


@pytest.mark.filterwarnings("ignore")
def test_torchtitan(tmp_path: Path) -> None:
    """Its manager reads the settings, and PyTorch has the schedule, which takes several parts on each rank."""
    manager = installed("torchtitan.config.manager", "torchtitan 0.2")
    run, problem = posed("dgx-h100:16", 10, None, INTERLEAVED)
    given = best_of(run, problem, TORCHTITAN)
    text = exported(given, TORCHTITAN).text
    schedules = installed("torch.distributed.pipelining.schedules", "torch")
    name = tomllib.loads(text)["parallelism"]["pipeline_parallel_schedule"]
    assert issubclass(schedules.get_schedule_class(name), schedules.PipelineScheduleMulti)
    (tmp_path / "job.toml").write_text(text)
    parallel = manager.ConfigManager().parse_args(["--job.config_file", str(tmp_path / "job.toml")]).parallelism
    assert len(parallel.module_fqns_per_model_part) == len(given.plan.stages) * given.plan.chunks
