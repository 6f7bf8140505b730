"""Plans as arguments of Megatron-LM: what is written, read back, refused by its rules, and cannot be said."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from export_cases import CASES, INSTANCES, case, judged, plan, posed

from nest.cli.estimate import estimate_command
from nest.cost.groups import spread
from nest.costing import Layout, recipe_named
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.export import FRAMEWORKS, Assignment, Inexpressible, exported
from nest.export.layout import joined
from nest.export.megatron_model import model_flags, require_same_model
from nest.export.megatron_rules import broken_rules
from nest.export.numbers import numbers_of
from nest.families import Architecture, Hyperparameters, describe, from_hyperparameters
from nest.families.formats.megatron_flags import flags_of_text
from nest.families.formats.megatron_layout import parts_of_layout
from nest.hardware import cluster_named
from nest.plan import over_replicas
from nest.problem import Choices, Variant
from nest.runs import Given, Run, problem_of, read_run

MEGATRON = FRAMEWORKS["megatron"]
REAL = ("llama3-70b", "mixtral-8x7b", "deepseek-v3")

QWEN2 = """{"model_type": "qwen2", "vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 3,
"num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512, "tie_word_embeddings": true}"""

QWEN3 = """{"model_type": "qwen3", "vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 3, "head_dim": 64,
"num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512}"""

QWEN2_MOE = """{"model_type": "qwen2_moe", "vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 3,
"num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 512, "num_experts": 4,
"num_experts_per_tok": 2, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 256}"""

GEMMA2 = """{"model_type": "gemma2", "vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 4, "head_dim": 32,
"num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 512, "sliding_window": 128}"""

SMALL = Hyperparameters("moe", 3, 256, 8, 2, ffn=512, vocab=1001, seq=128, experts=4, expert_ffn=128)
LATENT = replace(SMALL, query_rank=64, latent_rank=32, plain_width=32, rotary_width=16, value_width=32)

MODELS = {
    "gpt": from_hyperparameters(Hyperparameters("gpt", 2, 256, 8, vocab=1000, seq=128)),
    "gpt-untied": from_hyperparameters(Hyperparameters("gpt", 2, 256, 8, vocab=1000, seq=128, tied=False)),
    "llama": from_hyperparameters(Hyperparameters("llama", 2, 256, 8, 4, ffn=512, vocab=1000, seq=128)),
    "wide-heads": from_hyperparameters(Hyperparameters("llama", 2, 256, 8, 4, head_width=64, vocab=1000, seq=128)),
    "moe": from_hyperparameters(SMALL),
    "moe-shared": from_hyperparameters(replace(SMALL, shared_ffn=192, dense_layers=1, correction=True)),
    "latent": from_hyperparameters(LATENT),
    "latent-plain-queries": from_hyperparameters(replace(LATENT, query_rank=0)),
    "qwen2": describe(QWEN2).model,
    "qwen3": describe(QWEN3).model,
    "qwen2-moe": describe(QWEN2_MOE).model,
}


def text_of(given: Assignment) -> str:
    """Return the arguments of a plan."""
    return exported(given, MEGATRON).text


def with_model(model: Architecture) -> Assignment:
    """Return a plan of another run, with this model in its place."""
    given = case("llama3-8b")
    return replace(given, run=replace(given.run, model=model, sequence=128))


@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str) -> None:
    """Llama-3 70B, Mixtral 8x7B and DeepSeek-V3 of 61 layers are accepted by the rules of Megatron-LM's parser."""
    given = case(name)
    text = text_of(given)
    assert broken_rules(flags_of_text(text), given.world) == []
    assert broken_rules(flags_of_text(text), given.world + 1) != []


@pytest.mark.parametrize("name", REAL)
def test_round_trip(name: str, tmp_path: Path) -> None:
    """Read as a model file, the arguments are the plan again: the same widths, stages, time and memory."""
    given = case(name)
    (tmp_path / "args.sh").write_text(text_of(given))
    cluster = given.run.hardware.cluster
    typed = ("--model", tmp_path / "args.sh", "--cluster", f"{cluster.name}", "--reserve", "4", "--json")
    result = CliRunner().invoke(estimate_command, [str(each) for each in typed], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    found = json.loads(result.output)
    assert found["iteration_s"] == pytest.approx(given.iteration_s, rel=1e-9)  # the tick of another problem
    memory = evaluate(given.problem, given.plan).memory_bytes
    assert [stage["memory_bytes"] for stage in found["stages"]] == list(memory)


def test_some_layers_recompute(tmp_path: Path) -> None:
    """The first layers of each stage are a block in Megatron-LM's words, and are read again as such."""
    run, problem = posed("llama3-8b_h100_64", Variant(1))
    made = plan(problem, Variant(1), 16, (9, 17, 25, 34), again="full", layers=3)
    text = text_of(judged(run, problem, made))
    assert "--recompute-granularity full\n  --recompute-method block\n  --recompute-num-layers 3\n" in text
    (tmp_path / "args.sh").write_text(text)
    typed = ("--model", tmp_path / "args.sh", "--cluster", "dgx-h100:64", "--reserve", "4", "--json")
    result = CliRunner().invoke(estimate_command, [str(each) for each in typed], standalone_mode=False)
    assert result.exception is None
    found = json.loads(result.output)
    assert (found["from_file"]["recompute"], found["from_file"]["recompute_layers"]) == ("full", 3)
    layout = Layout(run.global_batch, 16, 4, zero=1, recompute="full", recomputed=(3,) * 4, reserve=run.reserved_bytes)
    assert Given(run.model, run.hardware, run.setting(Variant(1)), layout, run.recipe).plan == made
    fewer = replace(made.stages[1], recomputed=2)
    with pytest.raises(
        Inexpressible, match=r"stage 1: recomputes 'full' in 2 layers, stage 0 in 3: Megatron-LM has one"
    ):
        text_of(judged(run, problem, replace(made, stages=(made.stages[0], fewer, *made.stages[2:]))))


def test_stages_with_fewer_layers_recompute_all_of_them() -> None:
    """A number of layers goes with stages that have fewer, and with those that have none that can."""
    run, problem = posed("llama3-8b_h100_64", Variant(1))
    made = plan(problem, Variant(1), 16, (1, 4, 18, 34), again="full", layers=5)
    assert [(stage.recompute, stage.recomputed) for stage in made.stages] == [
        ("none", None),
        ("full", None),
        ("full", 5),
        ("full", 5),
    ]
    assert "--recompute-num-layers 5" in text_of(judged(run, problem, made))


@pytest.mark.skipif(shutil.which("bash") is None, reason="what is written is sourced by bash")
def test_a_shell_reads_what_was_written(tmp_path: Path) -> None:
    """Lists and layouts have brackets, stars and bars, which a shell must not touch."""
    (tmp_path / "args.sh").write_text(text_of(case("deepseek-v3")))
    script = f'source {tmp_path}/args.sh; printf "%s\\n" "${{NEST_ARGS[@]}}"; echo $CUDA_DEVICE_MAX_CONNECTIONS'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    words = done.stdout.splitlines()
    assert words[words.index("--moe-layer-freq") + 1] == "([0]*3+[1]*58)"
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Ett|(t*4|)*14,t*3L"
    assert words[-1] == "1"
    assert not any("#" in word for word in words)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_the_same_read_back(name: str) -> None:
    """Whatever the arguments can say they say: biases, norms, grouped and latent attention, experts, tied heads."""
    given = with_model(MODELS[name])
    require_same_model(given, model_flags(given))


def test_models_that_are_not() -> None:
    """What the arguments cannot say is found, and named."""
    given = with_model(describe(GEMMA2).model)
    with pytest.raises(
        InvalidProblem, match=r"model: block \d \(.*attention\+mlp\) has .*, which Megatron-LM's arguments"
    ):
        require_same_model(given, model_flags(given))
    flags = model_flags(with_model(MODELS["llama"]))
    with pytest.raises(InvalidProblem, match="block 1"):
        require_same_model(with_model(MODELS["llama"]), {**flags, "--ffn-hidden-size": "1024"})


def test_models_without_numbers() -> None:
    """Models of two stacks, and parts of models, have no such numbers."""
    with pytest.raises(InvalidProblem, match="stacks encoder, decoder"):
        numbers_of(from_hyperparameters(Hyperparameters("t5", 2, 256, 8)))
    with pytest.raises(InvalidProblem, match="model: "):
        numbers_of(from_hyperparameters(Hyperparameters("bert", 2, 256, 8)))


@pytest.mark.parametrize(
    ("stages", "line"),
    [
        (["Ettt", "tt", "tt", "m", "L"], "Ettt|(tt|)*2,m|L"),
        (["Et*3", "t*4", "t*4L"], "Et*3|t*4|t*4L"),
        (["E", "tt", "tt", "tt"], "E|(tt|)*2,tt"),
        (["EtL"], "EtL"),
    ],
)
def test_layouts_are_short(stages: list[str], line: str) -> None:
    """Equal neighbours become a group with their number, and our reader takes them apart again."""
    assert joined(stages) == line
    if line.endswith("L"):
        written = tuple(part.replace("t*3", "ttt").replace("t*4", "tttt") for part in stages)
        assert parts_of_layout(line) == written


def test_even_stages_need_no_layout() -> None:
    """Equal stages are what Megatron-LM makes by itself; an embedding alone in a stage is none."""
    run, problem = posed("llama3-8b_h100_64", Variant(1))
    even = judged(run, problem, plan(problem, Variant(1), 16, (9, 17, 25, 34), again="full"))
    assert "--pipeline-model-parallel-layout" not in text_of(even)
    alone = judged(run, problem, plan(problem, Variant(1), 16, (1, 17, 33, 34), again="full"))
    assert "--pipeline-model-parallel-layout 'E|(t*16|)*2,L'" in text_of(alone)


GOOD = {
    "--num-layers": "16",
    "--hidden-size": "512",
    "--ffn-hidden-size": "1024",
    "--num-attention-heads": "8",
    "--group-query-attention": True,
    "--num-query-groups": "4",
    "--seq-length": "1024",
    "--max-position-embeddings": "1024",
    "--position-embedding-type": "rope",
    "--num-experts": "8",
    "--moe-grouped-gemm": True,
    "--tensor-model-parallel-size": "2",
    "--pipeline-model-parallel-size": "4",
    "--context-parallel-size": "2",
    "--expert-model-parallel-size": "2",
    "--expert-tensor-parallel-size": "2",
    "--sequence-parallel": True,
    "--micro-batch-size": "1",
    "--global-batch-size": "32",
    "--use-distributed-optimizer": True,
    "--overlap-grad-reduce": True,
    "--overlap-param-gather": True,
    "--bf16": True,
}
"""Arguments that break no rule on 64 devices."""

LAYOUT = "--pipeline-model-parallel-layout"
EACH = "--num-layers-per-virtual-pipeline-stage"
IN_TURN = "--microbatch-group-size-per-virtual-pipeline-stage"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"--num-layers": None}, "--num-layers: missing"),
        ({"--context-parallel-size": "3"}, "world size: 64 is no multiple"),
        ({"--seq-length": "1022"}, "--seq-length: 1022 is no multiple of twice"),
        ({"--max-position-embeddings": "512"}, "--max-position-embeddings: below"),
        ({"--global-batch-size": "30"}, "--global-batch-size: 30 is no multiple"),
        ({"--num-attention-heads": "9", "--kv-channels": "64"}, "--num-attention-heads: 9 is no multiple"),
        ({"--num-query-groups": "1"}, "--num-query-groups: 1 is no multiple"),
        ({"--ffn-hidden-size": "1023"}, "--ffn-hidden-size: 1023 is no multiple"),
        ({"--num-layers": "18"}, "--num-layers: 18 is no multiple of the 4 stages"),
        ({LAYOUT: "Et*5|t*5|t*6L"}, f"{LAYOUT}: 3 parts are no multiple"),
        ({LAYOUT: "Et*5|t*5|t*5|L"}, f"{LAYOUT}: it has 15 layers"),
        ({LAYOUT: "Et*5|t*5|t*6|mL"}, f"{LAYOUT}: it has 1 prediction modules"),
        ({LAYOUT: "Et*8|(t|)*6,ttL", "--global-batch-size": "8"}, f"{IN_TURN}: 4 is not from the 4 stages up"),
        ({LAYOUT: "t*16|||L"}, "give one E first"),
        ({LAYOUT: "E|t*16||L", "--num-virtual-stages-per-pipeline-rank": "2"}, "does not go with"),
        ({EACH: "3"}, f"{EACH}: 3 does not divide the 4 layers of a stage"),
        ({EACH: "2", "--global-batch-size": "8"}, f"{IN_TURN}: 4 is not from the 4 stages up"),
        ({EACH: "2", "--global-batch-size": "20"}, f"{IN_TURN}: 4 leaves 1 of 5 microbatches, fewer than stages"),
        ({EACH: "2", "--num-virtual-stages-per-pipeline-rank": "2"}, f"{EACH}: does not go with"),
        ({EACH: "16", "--pipeline-model-parallel-size": "1"}, f"{EACH}: takes several stages"),
        ({"--expert-model-parallel-size": "3"}, "--num-experts: 8 is no multiple"),
        ({"--num-experts": None, "--moe-grouped-gemm": None}, "--expert-model-parallel-size: there are no experts"),
        ({"--sequence-parallel": None}, "--sequence-parallel: missing"),
        ({"--bf16": None}, "--moe-grouped-gemm: takes bf16"),
        ({"--fp16": True}, "--bf16: does not go with --fp16"),
        ({"--moe-router-enable-expert-bias": True}, "takes --moe-router-score-function sigmoid"),
        ({"--moe-router-topk": "9"}, "--moe-router-topk: more than"),
        ({"--moe-layer-freq": "[1]*15"}, "--moe-layer-freq: not one entry"),
        ({"--recompute-granularity": "full"}, "--recompute-method: missing"),
        ({"--recompute-granularity": "selective", "--recompute-num-layers": "1"}, "selective takes neither"),
        ({"--use-distributed-optimizer": None}, "--overlap-param-gather: takes the distributed optimizer"),
        ({"--overlap-grad-reduce": None}, "--overlap-param-gather: takes --overlap-grad-reduce"),
        ({"--num-distributed-optimizer-instances": "3"}, "do not divide data x context"),
        ({"--use-megatron-fsdp": True}, "--use-megatron-fsdp: takes --ckpt-format"),
    ],
    ids=lambda each: each[:40] if isinstance(each, str) else "-".join(each)[:50],
)
def test_rules_are_checked(changes: dict[str, object], rule: str) -> None:
    """Each rule of Megatron-LM's parser that is broken is found."""
    assert broken_rules(GOOD, 64) == []
    flags = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    assert any(rule in line for line in broken_rules(flags, 64)), broken_rules(flags, 64)


def groups_of_experts(given: Assignment) -> dict[str, list[list[int]]]:
    """Return the ranks that share experts, and those with the same ones, as core's `parallel_state.py` numbers them.

    Within a stage tensor ranks of experts count up first, then expert ranks, then those that hold the same.
    """
    stages, expert = len(given.plan.stages), given.plan.variant.expert
    cut = given.plan.variant.tensor if given.run.cut_experts else 1
    each = given.world // stages
    place = {(x, y, z): x + cut * (y + expert * z) for x, y, z in product(range(cut), range(expert), range(each))}
    rest = range(each // cut // expert)
    shares = [[place[x, y, z] for y in range(expert)] for x, z in product(range(cut), rest)]
    holders = [[place[x, y, z] for z in rest] for x, y in product(range(cut), range(expert))]
    apart = [at * each for at in range(stages)]
    return {
        "ep": [[first + rank for rank in group] for first in apart for group in shares],
        "dp": [[first + rank for rank in group] for first in apart for group in holders],
    }


def own_groups(given: Assignment) -> dict[str, list[list[int]]]:
    """Return the same groups as the plan has them (C8, D12)."""
    plan, variant = given.plan, given.plan.variant
    shares: dict[tuple[int, ...], list[int]] = {}
    holders: dict[tuple[int, ...], list[int]] = {}
    axes = (range(variant.tensor), range(variant.context), range(variant.expert))
    for (at, stage), replica, x, y, z in product(enumerate(plan.stages), range(plan.replicas), *axes):
        rank = stage.first_device + replica * plan.replica_stride + x + variant.tensor * (y + variant.context * z)
        shares.setdefault((at, replica, x, y), []).append(rank)
        holders.setdefault((at, x, z), []).append(rank)
    return {"ep": list(shares.values()), "dp": list(holders.values())}


BESIDE_CONTEXT = [(Variant(1, 2, 4), 32, False), (Variant(1, 4, 2), 32, False), (Variant(2, 2, 2, True), 32, True)]
"""Variants, replicas, and whether experts are cut: expert ranks beside context ranks, in whole nodes."""


def beside_context(variant: Variant, replicas: int, cut: bool, ends: tuple[int, ...] = (34,)) -> Assignment:
    """Return a plan of a small Mixtral with expert ranks beside context ranks."""
    sizes = Hyperparameters("moe", 32, 1024, 16, 8, ffn=2048, vocab=32000, seq=4096, experts=8, top_k=2)
    choices = Choices(
        tensor=frozenset({variant.tensor}),
        expert=frozenset({variant.expert}),
        context=frozenset({variant.context}),
        microbatch=frozenset({variant.microbatch}),
        sequence=variant.sequence,
    )
    cluster = cluster_named("dgx-h100:256")
    run = Run(from_hyperparameters(sizes), cluster, 4096, 1024, choices=choices, cut_experts=cut)
    problem = problem_of(run).problem
    return judged(run, problem, plan(problem, variant, replicas // len(ends), ends, zero=1))


@pytest.mark.parametrize(("variant", "replicas", "cut"), BESIDE_CONTEXT)
@pytest.mark.parametrize("ends", [(34,), (17, 34)])
def test_experts_beside_context(
    variant: Variant, replicas: int, cut: bool, ends: tuple[int, ...], tmp_path: Path
) -> None:
    """Groups of experts are others in Megatron-LM, and lie as the plan's do, so that the time is that of the plan."""
    given = beside_context(variant, replicas, cut, ends)
    cluster, own = given.run.hardware.cluster, own_groups(given)
    for kind, groups in groups_of_experts(given).items():
        assert groups != own[kind] or kind == "dp"
        assert sorted(map(len, groups)) == sorted(map(len, own[kind]))
        assert {spread(cluster, group) for group in groups} == {spread(cluster, group) for group in own[kind]}
    text = text_of(given)
    assert broken_rules(flags_of_text(text), given.world) == []
    (tmp_path / "args.sh").write_text(text)
    typed = ("--model", tmp_path / "args.sh", "--cluster", cluster.name, "--json")
    result = CliRunner().invoke(estimate_command, [str(each) for each in typed], standalone_mode=False)
    assert result.exception is None
    assert json.loads(result.output)["iteration_s"] == pytest.approx(given.iteration_s, rel=1e-9)


def test_experts_beside_context_over_nodes() -> None:
    """A block over two nodes has expert ranks in both, Megatron-LM's groups keep to one: another plan."""
    given = beside_context(Variant(1, 8, 2), 16, cut=False)
    cluster = given.run.hardware.cluster
    spreads = [
        {spread(cluster, group) for group in groups["ep"]} for groups in (own_groups(given), groups_of_experts(given))
    ]
    assert spreads[0] != spreads[1]
    with pytest.raises(Inexpressible, match=r"expert: 8 beside context 2.*not all of a block is in one node"):
        text_of(given)


def test_groups_of_replicas_are_read_again(tmp_path: Path) -> None:
    """Several instances of the distributed optimizer were read as one over all ranks, which takes another time."""
    run, problem = posed("llama3-8b_h100_64", Variant(1))
    made = plan(problem, Variant(1), 16, (9, 17, 25, 34), again="full")
    narrow = tuple(replace(stage, sharding=over_replicas(1, 8)) for stage in made.stages)
    given = judged(run, problem, replace(made, stages=narrow))
    (tmp_path / "args.sh").write_text(text_of(given))
    typed = ("--model", tmp_path / "args.sh", "--cluster", "dgx-h100:64", "--reserve", "4", "--json")
    result = CliRunner().invoke(estimate_command, [str(each) for each in typed], standalone_mode=False)
    assert result.exception is None
    found = json.loads(result.output)
    assert (found["from_file"]["zero"], found["from_file"]["zero_groups"]) == (1, 2)
    assert found["iteration_s"] == pytest.approx(given.iteration_s, rel=1e-9)
    whole = judged(run, problem, made)
    assert whole.iteration_s != pytest.approx(given.iteration_s, rel=1e-9)


def test_devices_without_work_are_read_again(tmp_path: Path) -> None:
    """A plan that leaves nodes idle could not be estimated: all devices had to have work."""
    run, problem = posed("llama3-8b_h100_64", Variant(1))
    given = judged(run, problem, plan(problem, Variant(1), 32, (34,), again="full"))
    (tmp_path / "args.sh").write_text(text_of(given))
    typed = ["--model", str(tmp_path / "args.sh"), "--cluster", "dgx-h100:64", "--reserve", "4", "--json"]
    result = CliRunner().invoke(estimate_command, [*typed, "--data", "32"], standalone_mode=False)
    assert result.exception is None
    found = json.loads(result.output)
    assert found["iteration_s"] == pytest.approx(given.iteration_s, rel=1e-9)
    assert found["notes"][0] == "32 of the 64 devices have no work"
    with pytest.raises(click.UsageError, match="65 are 65 devices, and the cluster has 64"):
        estimate_command.main([*typed, "--data", "65"], standalone_mode=False)


def test_sharding_within_groups() -> None:
    """Type 1 over a part of the ranks makes several optimizer instances; types 2 and 3 make Megatron-FSDP."""
    given = case("llama3-8b")
    narrow = replace(given.plan.stages[0].sharding, degree=8)
    part = replace(given, plan=replace(given.plan, stages=(replace(given.plan.stages[0], sharding=narrow),)))
    assert "--num-distributed-optimizer-instances 8" in text_of(part)
    assert "--num-distributed-optimizer-instances" not in text_of(given)
    text = text_of(case("llama3-8b", zero=3))
    assert "--data-parallel-sharding-strategy optim_grads_params" in text
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS" in text
    run, problem = posed("llama3-8b_h100_64", Variant(1))
    plain = judged(run, problem, plan(problem, Variant(1), 16, (9, 17, 25, 34), zero=0, again="full"))
    assert "--use-distributed-optimizer" not in text_of(plain)


def test_software() -> None:
    """Data types and what is held decide on flags, and some have none."""
    given = case("mixtral-8x7b")
    eight = replace(given, run=replace(given.run, dtype="fp8"))
    assert "--fp8-format hybrid" in text_of(eight)
    half = replace(given, run=replace(given.run, recipe=recipe_named("mixed-half")))
    assert "--grad-reduce-in-bf16" in text_of(half)
    other = replace(given, run=replace(given.run, recipe=recipe_named("adam-8bit")))
    with pytest.raises(Inexpressible, match="recipe: 'adam-8bit' in bf16"):
        exported(other, MEGATRON)
    with pytest.raises(Inexpressible, match="expert: 8 in fp16"):
        exported(replace(given, run=replace(given.run, dtype="fp16")), MEGATRON)


def test_every_case_is_an_instance() -> None:
    """The cases are of the runs that they name."""
    for instance, _variant, _replicas, ends, _again in CASES.values():
        blocks = read_run(INSTANCES / f"{instance}.toml").model.stacks[0].blocks
        assert ends[-1] == len(blocks)
