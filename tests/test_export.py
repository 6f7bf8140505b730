"""Plans as files of frameworks: what each is told, what it cannot run, what is nearest, and tables of ranks."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from export_cases import ENDS, INSTANCES, ONE, case, eight, mixed, replica_major

from nest.cli.estimate import estimate_command
from nest.cli.evaluate import evaluate_command
from nest.cli.exits import ExitCode
from nest.cli.export import export_command
from nest.cli.program import run as run_program
from nest.cli.solve import solve_command
from nest.cluster import Cluster, Level
from nest.constraints import Outer
from nest.errors import InvalidPlan, InvalidProblem
from nest.export import (
    FRAMEWORKS,
    Assignment,
    Framework,
    Inexpressible,
    exported,
    ranks_of,
)
from nest.export.numbers import numbers_of
from nest.files import read_claimed_plan, read_plan
from nest.plan import Plan, Stage, inside_stage, over_replicas
from nest.problem import Variant

MEGATRON, TORCHTITAN, DEEPSPEED, ACCELERATE = FRAMEWORKS.values()
INSTANCE = Path(__file__).parents[1] / "instances" / "llama2-7b_tpuv4_64.toml"


def test_torchtitan() -> None:
    """Degrees, stages by the names of their modules, and the batch of a rank that a pipeline takes at once."""
    given = eight(ONE, 16, ENDS)
    tables = tomllib.loads(exported(given, TORCHTITAN).text)
    parallelism, training = tables["parallelism"], tables["training"]
    assert tables["model"] == {"name": "llama3", "flavor": "8B"}
    assert (parallelism["data_parallel_replicate_degree"], parallelism["data_parallel_shard_degree"]) == (1, 16)
    assert parallelism["fsdp_reshard_after_forward"] == "always"
    assert parallelism["module_fqns_per_model_part"][0] == ["tok_embeddings", *(f"layers.{at}" for at in range(8))]
    assert parallelism["module_fqns_per_model_part"][3][-3:] == ["layers.31", "norm", "output"]
    assert training["local_batch_size"] == 512 // 16
    assert tables["activation_checkpoint"]["mode"] == "full"
    narrow = tuple(replace(stage, sharding=over_replicas(3, 4)) for stage in given.plan.stages)
    parallelism = tomllib.loads(exported(replace(given, plan=replace(given.plan, stages=narrow)), TORCHTITAN).text)[
        "parallelism"
    ]
    assert (parallelism["data_parallel_replicate_degree"], parallelism["data_parallel_shard_degree"]) == (4, 4)


def test_torchtitan_models_are_told_apart() -> None:
    """Mixtral has the width, layers and heads of Llama-3 8B, and is no model of torchtitan."""
    export = exported(case("mixtral-8x7b", zero=2), TORCHTITAN)
    tables = tomllib.loads(export.text)
    assert "model" not in tables
    assert any("no model of torchtitan has these numbers" in note for note in export.notes)
    assert (tables["parallelism"]["expert_parallel_degree"], tables["parallelism"]["data_parallel_shard_degree"]) == (
        8,
        256,
    )
    deep = tomllib.loads(exported(case("deepseek-v3", zero=2), TORCHTITAN).text)
    assert deep["model"] == {"name": "deepseek_v3", "flavor": "671B"}


def test_deepspeed() -> None:
    """The batch is what ranks take at a time, times the steps of accumulation, times the ranks."""
    export = exported(eight(ONE, 64, (34,), zero=2), DEEPSPEED)
    settings = json.loads(export.text)
    assert settings["train_batch_size"] == 512 == 64 * settings["gradient_accumulation_steps"]
    assert settings["zero_optimization"] == {"stage": 2}
    assert "--num_nodes 8 --num_gpus 8" in export.launch
    assert any("gradient_checkpointing" in note for note in export.notes)


def test_deepspeed_has_no_groups_of_shards() -> None:
    """It shards over all ranks; with tensor parallel it counts the batch in another way than its rule says."""
    given = eight(ONE, 64, (34,))
    narrow = replace(given.plan.stages[0], sharding=over_replicas(3, 8))
    with pytest.raises(Inexpressible, match="stage 0: ZeRO over 8 of 64 ranks: DeepSpeed shards over all"):
        exported(replace(given, plan=replace(given.plan, stages=(narrow,))), DEEPSPEED)
    export = exported(eight(Variant(2), 32, (34,), zero=2), DEEPSPEED)
    settings = json.loads(export.text)
    assert settings["tensor_parallel"] == {"autotp_size": 2}
    assert "train_batch_size" not in settings
    assert 32 * settings["train_micro_batch_size_per_gpu"] * settings["gradient_accumulation_steps"] == 512
    assert any("a step takes 512 sequences" in note for note in export.notes)


def test_accelerate() -> None:
    """Type 3 reshards after the forward pass, type 2 does not; a part of the ranks makes a mesh of two axes."""
    given = eight(ONE, 64, (34,))
    settings = yaml.safe_load(exported(given, ACCELERATE).text)
    assert settings["fsdp_config"]["fsdp_reshard_after_forward"] is True
    assert settings["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert (settings["num_machines"], settings["num_processes"]) == (8, 64)
    assert "parallelism_config" not in settings
    two = yaml.safe_load(exported(eight(ONE, 64, (34,), zero=2), ACCELERATE).text)
    assert two["fsdp_config"]["fsdp_reshard_after_forward"] is False
    narrow = replace(given.plan.stages[0], sharding=over_replicas(3, 8))
    part = yaml.safe_load(exported(replace(given, plan=replace(given.plan, stages=(narrow,))), ACCELERATE).text)
    sizes = part["parallelism_config"]
    assert (sizes["parallelism_config_dp_replicate_size"], sizes["parallelism_config_dp_shard_size"]) == (8, 8)


def uneven(given: Assignment) -> Plan:
    """Return the plan with a stage that computes nothing again."""
    first, second, *rest = given.plan.stages
    return replace(given.plan, stages=(first, replace(second, recompute="none"), *rest))


def inside(given: Assignment) -> Plan:
    """Return the plan with a stage that is sharded inside."""
    first, *rest = given.plan.stages
    return replace(given.plan, stages=(replace(first, devices=2, sharding=inside_stage(3, 2)), *rest))


def idle(given: Assignment) -> Plan:
    """Return the plan with an idle device behind each replica."""
    return replace(given.plan, replica_stride=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (mixed, r"stage 1: ZeRO type 1 over 16 ranks, stage 0 has type 3 over 16: torchtitan has one setting"),
        (uneven, r"stage 1: recomputes 'none', stage 0 'full': torchtitan has one setting for all stages"),
        (replica_major, r"stage 1: begins at device 1 \(replica-major\), in torchtitan at 16"),
        (inside, r"stage 0: 2 devices in a replica, where the widths make 1: sharded inside the stage"),
        (idle, r"replica_stride: 2 devices from one replica to the next, in torchtitan 1"),
    ],
)
def test_what_no_framework_says(change: Callable[[Assignment], Plan], message: str) -> None:
    """Stages that differ, and devices in another order, are refused by stage and value."""
    given = eight(ONE, 16, ENDS)
    with pytest.raises(Inexpressible, match=f"{message}.*--approximate") as caught:
        exported(replace(given, plan=change(given)), TORCHTITAN)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("framework", "name", "outer", "where"),
    [
        (MEGATRON, "llama3-8b", Outer(Variant(16), 1, 4), "tensor: 16 does not divide the 8 key-value heads"),
        (MEGATRON, "llama3-8b", Outer(Variant(1), 1, 3), "replicas: 3 sequences at a time"),
        (MEGATRON, "llama3-8b", Outer(Variant(2, context=3), 1, 4), "context: 3: twice as much"),
        (MEGATRON, "llama3-8b", Outer(Variant(4), 5, 1), "devices: 20: the last node of 8 is used in part"),
        (MEGATRON, "mixtral-8x7b", Outer(Variant(2), 1, 4), "sequence: false: experts beside tensor parallel"),
        (MEGATRON, "mixtral-8x7b", Outer(Variant(1, 4, 4), 1, 4), "expert: 4 beside context 4"),
        (MEGATRON, "mixtral-8x7b", Outer(Variant(2, 2, 1, True), 1, 4), "expert: 2 beside tensor 2"),
        (TORCHTITAN, "llama3-8b", Outer(Variant(2), 1, 4), "sequence: false: torchtitan's tensor parallel"),
        (TORCHTITAN, "mixtral-8x7b", Outer(Variant(2, 2, 1, True), 1, 4), "expert: 2 beside tensor 2: torchtitan's"),
        (TORCHTITAN, "mixtral-8x7b", Outer(Variant(1, 4, 4), 1, 4), "expert: 4 beside context 4: torchtitan's experts"),
        (TORCHTITAN, "mixtral-8x7b", Outer(Variant(1, 2, 4), 1, 4), "expert: 2 is no multiple of context 4"),
        (TORCHTITAN, "deepseek-v3", Outer(Variant(1, context=2), 1, 4), "context: 2: torchtitan's deepseek_v3 671B"),
        (DEEPSPEED, "llama3-8b", Outer(Variant(1), 2, 4), "stages: 2: DeepSpeed's settings make at most 1"),
        (DEEPSPEED, "llama3-8b", Outer(Variant(2, sequence=True), 1, 4), "sequence: true"),
        (DEEPSPEED, "llama3-8b", Outer(Variant(1, context=2), 1, 4), "context: 2"),
        (ACCELERATE, "mixtral-8x7b", Outer(Variant(1, 8), 1, 4), "expert: 8: Accelerate's settings make at most 1"),
    ],
    ids=lambda each: each.name if isinstance(each, Framework) else str(each)[:40],
)
def test_widths_that_do_not_go(framework: Framework, name: str, outer: Outer, where: str) -> None:
    """Widths that a framework has no setting for, or whose groups it makes of other ranks."""
    run = case(name).run
    faults = framework.faults(run, numbers_of(run.model), outer)
    assert any(f"{fault.where}: {fault.what}".startswith(where) for fault in faults), faults


@pytest.mark.parametrize(
    ("framework", "zero", "outer"),
    [
        (MEGATRON, 2, Outer(Variant(1), 2, 4)),
        (TORCHTITAN, 1, Outer(Variant(1), 1, 4)),
        (TORCHTITAN, 0, Outer(Variant(1), 2, 4)),
        (TORCHTITAN, 0, Outer(Variant(1, context=2), 1, 1)),
        (DEEPSPEED, 3, Outer(Variant(2), 1, 4)),
        (ACCELERATE, 1, Outer(Variant(1), 1, 4)),
        (ACCELERATE, 0, Outer(Variant(1, context=2), 1, 4)),
    ],
)
def test_zero_types_that_do_not_go(framework: Framework, zero: int, outer: Outer) -> None:
    """Each framework has its own ZeRO types, and where it has them."""
    assert framework.zero_faults(zero, outer)
    assert not framework.zero_faults(3 if zero < 3 else 2, replace(outer, stages=1))


def test_recomputation_of_a_part() -> None:
    """Only Megatron-LM computes the core of attention again, or some of the layers of each stage."""
    partly = [name for name, each in FRAMEWORKS.items() if not each.recompute_faults("full", 3)]
    assert partly == ["megatron"]
    given = eight(ONE, 16, ENDS, layers=3)
    with pytest.raises(
        Inexpressible, match="recompute: 'full' in 3 layers of a stage: torchtitan computes all of them"
    ):
        exported(given, TORCHTITAN)
    assert [name for name, each in FRAMEWORKS.items() if not each.recompute_faults("selective")] == ["megatron"]
    assert not any(each.recompute_faults(kind) for each in FRAMEWORKS.values() for kind in ("none", "full"))


@pytest.mark.parametrize(
    ("framework", "replace_", "rule"),
    [
        (TORCHTITAN, ("data_parallel_shard_degree = 64", "data_parallel_shard_degree = 32"), "the degrees make 32"),
        (TORCHTITAN, ("seq_len = 8192", "seq_len = 8191"), "seq_len"),
        (TORCHTITAN, ("global_batch_size = 512", "global_batch_size = 500"), "global_batch_size"),
        (TORCHTITAN, ("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 2"), "module_fqns_per_model_part"),
        (DEEPSPEED, ('"train_batch_size": 512', '"train_batch_size": 500'), "train_batch_size"),
        (DEEPSPEED, ('"stage": 3', '"stage": 3}, "tensor_parallel": {"autotp_size": 2'), "AutoTP"),
        (DEEPSPEED, ('"stage": 3', '"stage": 3, "mics_shard_size": 3'), "mics_shard_size"),
        (ACCELERATE, ("num_processes: 64", "num_processes: 63"), "num_processes"),
        (ACCELERATE, ("num_machines: 8", "num_machines: 7"), "num_machines"),
    ],
    ids=lambda each: each.name if isinstance(each, Framework) else str(each)[:40],
)
def test_rules_are_checked(framework: Framework, replace_: tuple[str, str], rule: str) -> None:
    """What is written is read again, and a file that the framework would refuse is found."""
    text = exported(eight(ONE, 64, (34,)), framework).text
    assert framework.broken(text, 64) == []
    assert replace_[0] in text
    assert any(rule in line for line in framework.broken(text.replace(*replace_), 64))


CLUSTER = Cluster(12, 2**30, (Level(4, 1e9, 0.0), Level(3, 1e8, 0.0)))


def test_ranks_of_a_plan() -> None:
    """Each device that works is one rank: replicas by the stride, inside a block tensor, context, expert, shard."""
    stages = (
        Stage((0,), 4, 4, sharding=inside_stage(3, 2)),
        Stage((1,), 0, 2),
    )
    ranks = ranks_of(Plan(Variant(1, context=2), 1, 6, stages), CLUSTER)
    assert [rank.place for rank in ranks] == [0, 1, 4, 5, 6, 7]
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3, 4, 5]
    assert [(rank.host, rank.device, rank.stage) for rank in ranks[:3]] == [(0, 0, 1), (0, 1, 1), (1, 0, 0)]
    assert [(rank.shard, rank.context) for rank in ranks[2:]] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_ranks_of_replicas() -> None:
    """Arrangement and stride decide who is whose neighbour."""
    given = eight(ONE, 16, ENDS)
    ranks = ranks_of(given.plan, given.run.hardware.cluster)
    assert [(rank.stage, rank.replica) for rank in ranks] == [(at // 16, at % 16) for at in range(64)]
    other = ranks_of(replica_major(given), given.run.hardware.cluster, tuple(f"gpu{at}" for at in range(64)))
    assert [(rank.stage, rank.replica) for rank in other] == [(at % 4, at // 4) for at in range(64)]
    assert other[9].name == "gpu9"


def run(command: click.Command, *arguments: str | Path) -> tuple[int, str, str]:
    """Return exit code and what a command writes to both streams."""
    result = CliRunner().invoke(command, [str(each) for each in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.stdout, result.stderr


GPT = ("--family", "gpt", "--layers", "8", "--hidden", "1024", "--heads", "16", "--vocab", "51200", "--seq", "2048")
ASKED = (*GPT, "--cluster", "dgx-h100:16", "--global-batch", "32", "--microbatch", "1", "--context", "1")


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan file alone is enough, wherever it lies; what was solved for a framework needs nothing else."""
    plan_path = tmp_path / "plan.json"
    run(solve_command, *ASKED, "--for", "megatron", "-o", plan_path)
    monkeypatch.chdir("/")
    code, out, err = run(export_command, plan_path, "--to", "megatron", "-o", tmp_path / "args.sh")
    assert (code, out) == (ExitCode.OK, "")
    assert err.startswith(f"Start with  source {tmp_path / 'args.sh'} && torchrun")
    assert "--num-layers 8" in (tmp_path / "args.sh").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    rows = list(csv.DictReader(run(export_command, plan_path, "--to", "ranks")[1].splitlines()))
    assert len(rows) == 16
    assert json.loads(run(export_command, plan_path, "--to", "ranks", "--json")[1])[3]["rank"] == 3
    run(export_command, plan_path, "--to", "ranks", "-o", tmp_path / "ranks.json")
    assert len(json.loads((tmp_path / "ranks.json").read_text())) == 16


def test_command_approximates(tmp_path: Path) -> None:
    """What the difference costs is said, in both judged times."""
    plan_path = tmp_path / "plan.json"
    run(solve_command, *ASKED, "--pipeline", "2", "--zero", "1", "-o", plan_path)
    with pytest.raises(Inexpressible, match=r"stage 1: begins at device 1 .*in DeepSpeed at 8; give --approximate"):
        run(export_command, plan_path, "--to", "deepspeed")
    with pytest.raises(Inexpressible, match=r"plan\.json: problem: DeepSpeed can run no plan of it"):
        run(export_command, plan_path, "--to", "deepspeed", "--approximate")
    run(solve_command, *ASKED, "--data", "2", "--tensor", "1", "-o", plan_path)
    before = read_plan(plan_path)
    document = json.loads(run(export_command, plan_path, "--to", "accelerate", "--approximate", "--json")[1])
    settings = yaml.safe_load(document["text"])
    assert settings["num_processes"] == 2 * len(before.stages) if document["approximated"] is None else 2
    err = run(export_command, plan_path, "--to", "torchtitan", "--approximate")[2]
    assert "Start with" in err


def test_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A problem of costs says nothing of the model: one line, exit code 2; its ranks are written all the same."""
    plan_path = tmp_path / "plan.json"
    run(solve_command, INSTANCE, "--set", "zero=none", "-o", plan_path)
    assert run_program(["export", str(plan_path), "--to", "megatron"]) == ExitCode.INVALID
    assert "problem: the plan's problem is a file of costs" in capsys.readouterr().err
    assert run(export_command, plan_path, "--to", "ranks")[0] == ExitCode.OK
    document = json.loads(plan_path.read_text())
    document["stages"][0]["first_device"] += 1
    plan_path.write_text(json.dumps(document))
    with pytest.raises(InvalidPlan, match="a file of costs"):
        run(export_command, plan_path, "--to", "torchtitan")


def test_broken_plans_are_refused(tmp_path: Path) -> None:
    """A plan that breaks a rule is not written for anybody."""
    plan_path = tmp_path / "plan.json"
    run(solve_command, *ASKED, "-o", plan_path)
    document = json.loads(plan_path.read_text())
    document["stages"][0]["first_device"] += 1
    plan_path.write_text(json.dumps(document))
    with pytest.raises(InvalidPlan, match=r"plan\.json: plan: it breaks rule "):
        run(export_command, plan_path, "--to", "megatron")


def test_solving_for_a_framework(tmp_path: Path) -> None:
    """Only runs say what a model is, and what else is to be the least is another question."""
    with pytest.raises(click.UsageError, match="--backend cpsat does not go with --for megatron"):
        run(solve_command, *ASKED, "--for", "megatron", "--backend", "cpsat")
    least = ("--minimize", "devices", "--time-at-most", "1")
    with pytest.raises(click.UsageError, match="--certify does not go with --minimize devices and --for megatron"):
        run(solve_command, *ASKED, "--for", "megatron", "--certify", *least)
    assert "no plan that Megatron-LM can run takes" in run(solve_command, *ASKED, "--for", "megatron", *least)[1]
    assert "Proof      confirmed by checker" in run(solve_command, *ASKED, "--for", "megatron", "--certify")[1]
    with pytest.raises(InvalidPlan.__mro__[1], match="--for: the problem does not say what the model is"):
        run(solve_command, INSTANCE, "--for", "megatron")
    code, out, _ = run(solve_command, *ASKED, "--for", "deepspeed", "-o", tmp_path / "plan.json")
    assert code == ExitCode.OK
    assert "the best that DeepSpeed can run" in out
    claimed = read_claimed_plan(tmp_path / "plan.json")
    assert len(claimed.plan.stages) == 1
    assert claimed.origin is not None


def test_plans_with_technologies(tmp_path: Path) -> None:
    """A price in the choices made a plan file that nothing read; links that were chosen are named, and read again."""
    plan_path, args = tmp_path / "plan.json", tmp_path / "args.sh"
    instance = INSTANCES / "llama3-70b_two_buildings.toml"
    pinned = ("tensor=2", "context=1", "microbatch=1", "stages=4", "replicas=32", "zero=1", "sequence=true")
    pins = [f"--set={name}" for name in (*pinned, "stage_recompute=full")]
    assert run(solve_command, instance, *pins, "--for", "megatron", "-o", plan_path)[0] == ExitCode.OK
    code, _, notes = run(export_command, plan_path, "--to", "megatron", "-o", args)
    assert code == ExitCode.OK
    (chosen,) = read_plan(plan_path).technologies
    assert f"the links of the network are to be {chosen}" in notes
    judged = json.loads(run(evaluate_command, plan_path, "--json")[1])
    cluster = INSTANCES / "clusters" / "two_buildings_h100_256.toml"
    typed = ("--model", args, "--cluster", cluster, "--reserve", "4", "--json")
    for given, said in ((), "missing"), (("--technologies", "9 waves"), "9 waves"):
        with pytest.raises(InvalidProblem, match=f"--technologies: {said}; give one for each of campus 8 waves or 32"):
            run(estimate_command, *typed, *given)
    found = json.loads(run(estimate_command, *typed, "--technologies", chosen)[1])
    assert found["iteration_s"] == pytest.approx(judged["objective"], rel=1e-9)
