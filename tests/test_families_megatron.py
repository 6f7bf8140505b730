"""What arguments of Megatron-LM say besides the model: widths, data types, stages, and what overrides them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from model_files import refusal

from nest.cli.estimate import estimate_command
from nest.cli.solve import solve_command
from nest.families import describe
from nest.families.formats.megatron_layout import parts_of_layout

SHAPE = "--num-layers 8 --hidden-size 64 --num-attention-heads 8 --max-position-embeddings 128 --vocab-size 128"
LARGE = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--vocab-size 51200 --micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size 2 "
    "--pipeline-model-parallel-size 4 --sequence-parallel --bf16 --use-distributed-optimizer "
    "--attention-backend flash --recompute-granularity full --recompute-method block --recompute-num-layers 1"
)
CLUSTER = ("--cluster", "dgx-h100:16")


def settings(more: str) -> dict[str, Any]:
    """Return what is read of some flags beside a shape."""
    return dict(describe(f"{SHAPE} {more}").settings)


def notes(more: str) -> str:
    """Return the notes about them."""
    return "\n".join(describe(f"{SHAPE} {more}").model.notes)


def estimated(path: Path, text: str, *more: str) -> dict[str, Any]:
    """Return the estimate of a file with that text."""
    path.write_text(text)
    return document(estimate_command, "--model", str(path), *CLUSTER, *more)


def document(command: click.Command, *arguments: str) -> dict[str, Any]:
    """Return what a command prints for programs."""
    result = CliRunner().invoke(command, (*arguments, "--json"), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return json.loads(result.output)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", {"recompute": "full"}),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
            {"recompute": "full", "recompute_layers": 3},
        ),
        ("--recompute-activations", {"recompute": "selective"}),
        ("--recompute-granularity selective", {"recompute": "selective"}),
        ("--recompute-granularity selective --recompute-modules core_attn mlp", {"recompute": "selective"}),
        ("--recompute-granularity selective --recompute-modules moe", {}),
        ("--checkpoint-activations", {"recompute": "full"}),
        ("--sequence-parallel", {"sequence_parallel": True}),  # without effect unless a tensor width is typed
        ("--sequence-parallel --tensor-model-parallel-size 2", {"tensor": 2, "sequence_parallel": True}),
        ("--use-distributed-optimizer", {"zero": 1}),
        ("--use-torch-fsdp2", {"zero": 3}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"zero": 2}),
        ("--data-parallel-sharding-strategy optim_grads", {}),  # means something with FSDP only
        ("--zero-stage 0", {"zero": 0}),
        ("--bf16", {"dtype": "bf16", "recipe": "mixed"}),
        ("--bf16 --grad-reduce-in-bf16", {"dtype": "bf16", "recipe": "mixed-half"}),
        ("--fp16", {"dtype": "fp16", "recipe": "mixed-half"}),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", {"dtype": "fp16", "recipe": "mixed"}),
        ("--bf16 --fp8-format hybrid", {"dtype": "fp8", "recipe": "mixed"}),
        ("--bf16 --fp8-format e4m3 --fp8-param-gather", {"dtype": "fp8", "recipe": "mixed-fp8"}),
        ("--bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", {"dtype": "bf16", "recipe": "adam-bf16"}),
        ("--bf16 --exp-avg-dtype fp8", {"dtype": "bf16", "recipe": "mixed"}),
        ("--attention-backend flash", {"flash": True}),
        ("--attention-backend auto", {}),
        ("--attention-backend unfused", {"flash": False}),
        ("--use-flash-attn", {"flash": True}),
        ("--transformer-impl local", {"flash": False}),
        ("--context-parallel-size 2 --cp-comm-type a2a", {"context": 2, "context_kind": "exchange"}),
        ("--num-experts 4 --expert-model-parallel-size 2", {"expert": 2}),
        ("--num-experts 4 --tensor-model-parallel-size 2", {"tensor": 2, "expert_tensor": 2}),
        (
            "--num-experts 4 --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1",
            {"tensor": 2, "expert_tensor": 1},
        ),
        ("--make-vocab-size-divisible-by 64", {"padding": 64}),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2", {"pipeline": 2, "virtual": 2}),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4", {"pipeline": 2, "virtual": 4}),
        (
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --recompute-granularity full "
            "--recompute-method block --recompute-num-layers 1",
            {"pipeline": 2, "virtual": 2, "recompute": "full", "recompute_layers": 2},
        ),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 "
            "--decoder-last-pipeline-num-layers 3",
            {"pipeline": 4, "stage_layers": (1, 2, 2, 3)},
        ),
        (
            "--pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 4",
            {"pipeline": 3, "stage_layers": (4, 2, 2)},
        ),
        (
            "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
            "--account-for-loss-in-pipeline-split",
            {"pipeline": 2},
        ),
        (
            "--pipeline-model-parallel-size 5 --account-for-embedding-in-pipeline-split "
            "--account-for-loss-in-pipeline-split",
            {"pipeline": 5, "stage_layers": (1, 2, 2, 2, 1)},
        ),
        (
            "--pipeline-model-parallel-size 5 --pp-partition-method 'type:transformer|embedding'",
            {"pipeline": 5, "stage_layers": (1, 2, 2, 2, 1)},
        ),
        (
            "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout 'Et*3|t*5|L'",
            {"pipeline": 3, "stage_layers": (3, 5, 0)},
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et,(t|)*3,t*4L'",
            {"pipeline": 2, "virtual": 2, "stage_layers": (2, 1, 1, 4)},
        ),
    ],
)
def test_settings(flags: str, found: dict[str, Any]) -> None:
    """Each flag by what the parser of Megatron-LM makes of it, worked out by hand."""
    assert settings(flags) == found


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        ("--recompute-granularity selective --recompute-modules moe", "--recompute-modules moe: only core_attn"),
        ("--recompute-granularity full --recompute-num-layers 4", "--recompute-num-layers 4: each layer keeps its"),
        ("--micro-batch-size 1", "neither --bf16 nor --fp16"),
        ("--bf16 --exp-avg-dtype fp8", "moments of fp32 and fp8: counted as recipe mixed has them"),
        ("--cp-comm-type a2a+p2p", "--cp-comm-type a2a+p2p: not read"),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1",
            "8 layers cannot be divided over 4 stages as the arguments say",
        ),
        (
            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3",
            "chunks of 3 layers do not make up 8 layers over 2 stages",
        ),
    ],
)
def test_what_is_not_taken_is_noted(flags: str, note: str) -> None:
    """Nothing that would change the plan is passed over in silence."""
    assert note in notes(flags)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Et*3|(tt|)*2,m|L", ("Ettt", "tt", "tt", "m", "L")),
        ("E|(t|)*3,L", ("E", "t", "t", "t", "L")),
        ("E,tL", ("EtL",)),
        ("E(t*2|)*2t,L", ("Ett", "tt", "tL")),
    ],
)
def test_layouts(text: str, parts: tuple[str, ...]) -> None:
    """Groups and letters are repeated, commas mean nothing."""
    assert parts_of_layout(text) == parts


@pytest.mark.parametrize(
    ("layout", "line"),
    [
        ("Et*8|x|L", "is no layout; give one as in"),
        ("E(t(t)*2)*2|L", "is no layout"),
        ("Et*999999|t*999999L", "is no layout"),
        ("t*8|EL", "give one E first and one L last"),
        ("Et*7|L", "7 layers; the model has 8"),
        ("Et*4|t*3|tL", "3 parts for 2 stages; give a multiple of the stages"),
    ],
)
def test_wrong_layouts(layout: str, line: str) -> None:
    """A layout that Megatron-LM would refuse is refused, by name."""
    found = refusal(f"{SHAPE} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout '{layout}'")
    assert found.startswith("--pipeline-model-parallel-layout: ")
    assert line in found


def test_estimate_takes_what_the_file_says(tmp_path: Path) -> None:
    """The same figures as with everything typed; what was taken is echoed; what is typed goes first."""
    path = tmp_path / "run.sh"
    read = estimated(path, LARGE)
    shape = LARGE.partition("--micro-batch-size")[0]
    typed = ("--tensor", "2", "--pipeline", "4", "--zero", "1", "--sequence-parallel", "--recompute", "full")
    plain = estimated(path, shape, *typed, "--recompute-layers", "1", "--global-batch", "32")
    for name in ("iteration_s", "stages", "tflops_per_device", "largest_reserve_bytes"):
        assert read[name] == plain[name]
    assert read["from_file"]["recompute_layers"] == 1
    assert read["from_file"]["zero"] == 1
    assert plain["from_file"] == {"sequence": 2048}
    bare = estimated(path, LARGE, "--recompute", "none", "--zero", "0")
    assert bare["stages"][0]["memory_bytes"] > read["stages"][0]["memory_bytes"]
    assert {"recompute", "zero"} & set(bare["from_file"]) == set()


def test_stages_of_a_layout(tmp_path: Path) -> None:
    """A head alone in the last stage, which hands nothing wider than a layer does to its neighbour."""
    path = tmp_path / "run.sh"
    shape = LARGE.replace("--recompute-granularity full --recompute-method block --recompute-num-layers 1", "")
    found = estimated(path, f"{shape} --pipeline-model-parallel-layout 'Ett|ttt|ttt|L'")
    assert found["from_file"]["stage_layers"] == [2, 3, 3, 0]
    last, middle = found["stages"][3], found["stages"][1]
    assert 0 < last["time"]["transfer"] < middle["time"]["transfer"]  # nothing comes back to it
    assert 0 < last["memory"]["weights"] != middle["memory"]["weights"]
    typed = estimated(path, shape, "--stage-layers", "2,3,3,0")
    assert typed["iteration_s"] == found["iteration_s"]
    wider = estimated(path, f"{shape} --pipeline-model-parallel-layout 'Ett|ttt|ttt|L'", "--pipeline", "2")
    assert "stage_layers" not in wider["from_file"]


def test_solve_takes_software_and_leaves_widths_open(tmp_path: Path) -> None:
    """Data type, recipe and fused attention are the file's; its widths are free, and the problem says what is what."""
    path = tmp_path / "run.sh"
    path.write_text(LARGE.replace("--bf16", "--fp16").replace("--attention-backend flash", "--transformer-impl local"))
    problem = tmp_path / "problem.toml"
    arguments = ("--model", str(path), "--cluster", "dgx-h100:8", "--write-problem", str(problem))
    read = document(solve_command, *arguments)
    typed = document(
        solve_command, *arguments[:4], "--dtype", "fp16", "--recipe", "mixed-half", "--no-flash", "--padding", "128"
    )
    assert read["objective_ticks"] == typed["objective_ticks"]
    usual = document(solve_command, *arguments[:4], "--dtype", "bf16", "--recipe", "mixed", "--flash")
    assert read["objective_ticks"] != usual["objective_ticks"]
    text = problem.read_text()
    assert read["source"] in text
    assert "taken unless typed: global_batch 32, sequence 2048, dtype fp16, recipe mixed-half, no flash" in text
    assert "left open: tensor 2, pipeline 4, microbatch 1" in text


def test_variables_without_a_value() -> None:
    """A flag whose value is a variable that nothing assigns counts as not given, whatever it is for."""
    text = f"{SHAPE} --tensor-model-parallel-size $TP --recompute-granularity $KIND --fp16"
    found = describe(text)
    assert dict(found.settings) == {"dtype": "fp16", "recipe": "mixed-half"}
    assert "--tensor-model-parallel-size: $TP has no value in the file" in found.model.notes


@pytest.mark.parametrize(
    "start",
    [
        "python pretrain_gpt.py",
        "torchrun --nproc_per_node 8 --nnodes 16 pretrain_gpt.py",
        "python -m torch.distributed.launch --nnodes 2 train/pretrain_gpt.py",
    ],
)
@pytest.mark.parametrize("joint", [" ", " \\\n  "])
def test_whole_command_lines(start: str, joint: str) -> None:
    """What people typed, on one line or on several: the program is no value of the launcher's last flag."""
    sizes = ("--num-layers 2", "--hidden-size 64", "--num-attention-heads 4", "--max-position-embeddings 32")
    flags = (*sizes, "--padded-vocab-size 128", "--tensor-model-parallel-size 2")
    found = describe(joint.join((start, *flags)) + "\n")
    assert found.model == describe("\n".join(flags)).model
    assert found.settings["tensor"] == 2


@pytest.mark.parametrize(("typed", "shared"), [((), False), (("--tensor", "2"), True)])
def test_shared_sequence_of_a_file(typed: tuple[str, ...], shared: bool, tmp_path: Path) -> None:
    """A flag that has no effect at the file's tensor width has one at the width that is typed, and is listed then."""
    sized = f"{SHAPE} --seq-length 128 --micro-batch-size 1 --global-batch-size 16 --bf16"
    found = estimated(tmp_path / "args.sh", f"{sized} --sequence-parallel", *typed)
    plain = estimated(tmp_path / "plain.sh", sized, *typed)
    assert ("sequence_parallel" in found["from_file"]) == shared
    assert (found["stages"] == plain["stages"]) != shared


def test_variables_without_values() -> None:
    """A count that a variable has was said to be missing, and the variable was lost."""
    script = "pretrain_gpt.py " + SHAPE.replace("8 --hidden", "$LAYERS --hidden", 1)
    assert refusal(script) == "--num-layers: $LAYERS has no value in the file; write the number in its place"
    width = "pretrain_gpt.py " + SHAPE.replace("size 64", "size ${WIDTH}", 1)
    assert refusal(width) == "--hidden-size: ${WIDTH} has no value in the file; write the number in its place"
    assert describe(f"LAYERS=${{1:-6}}\n{script}").model.layers == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SHAPE} --decoder-num-layers 4", "--decoder-num-layers: given, and goes with an encoder and a decoder"),
        (f"{SHAPE} --decoder-seq-length 32", "--decoder-seq-length: given, and goes with an encoder and a decoder"),
        (f"{SHAPE} --encoder-num-layers 4", "--encoder-num-layers: given beside --num-layers; give one of them"),
        (f"python pretrain_t5.py {SHAPE}", "arguments of pretrain_t5.py, which trains no decoder"),
        (f"# as pretrain_gpt.py\npython pretrain_bert.py {SHAPE}", "or --family bert with its numbers"),
    ],
)
def test_no_decoder(text: str, said: str) -> None:
    """An encoder beside the decoder was left out in silence."""
    assert said in refusal(text)


def test_encoder_alone() -> None:
    """Megatron-LM has other names for the same layers and sequence where there is no decoder beside them."""
    renamed = SHAPE.replace("--num-layers", "--encoder-num-layers") + " --encoder-seq-length 96"
    found = describe(f"# unlike pretrain_t5.py\n{renamed}")
    assert (found.model.layers, found.settings["sequence"]) == (8, 96)
