"""``nest estimate`` and ``nest validate``: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nest.cli import run as program
from nest.cli.estimate import estimate_command
from nest.cli.exits import ExitCode
from nest.cli.validate import validate_command
from nest.errors import InvalidProblem
from nest.problem import RECOMPUTE
from nest.validation import Table, compare, table_named

GPT = ("--family", "gpt", "--layers", "48", "--hidden", "6144", "--heads", "64", "--vocab", "51200")
PLAN = (*GPT, "--cluster", "selene:8", "--seq", "2048", "--global-batch", "4", "--microbatch", "4", "--tensor", "8")

ARGUMENTS = """
--num-layers 48 --hidden-size 6144 --num-attention-heads 64 --seq-length 2048 --max-position-embeddings 2048
--tensor-model-parallel-size 8 --micro-batch-size 4 --global-batch-size 4 --padded-vocab-size 51200
--attention-dropout 0.1 --hidden-dropout 0.1
"""


WIDE = (*GPT, "--seq", "2048", "--global-batch", "128")
MOE = (
    *("--family", "moe", "--layers", "4", "--hidden", "1024", "--heads", "16", "--experts", "4"),
    *("--cluster", "selene:8", "--seq", "2048", "--global-batch", "8"),
)


def run(command: click.Command, *arguments: str) -> tuple[int, str]:
    """Return exit code and output of a command."""
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.output


def document(command: click.Command, *arguments: str) -> dict[str, Any]:
    """Return what a command prints for programs."""
    return json.loads(run(command, *arguments, "--json")[1])  # type: ignore[no-any-return]


def test_a_published_iteration() -> None:
    """22B with selective recomputation and sequence parallel takes 1.10 s (arXiv 2205.05198, table 5)."""
    more = ("--dtype", "fp16", "--recompute", "selective", "--sequence-parallel", "--framework", "megatron-2022")
    found = document(estimate_command, *PLAN, *more)
    assert found["iteration_s"] == pytest.approx(1.10, rel=0.03)
    assert found["tflops_per_device"] == pytest.approx(found["model_flops"] / found["iteration_s"] / 8e12)
    assert found["mfu"] == pytest.approx(0.415, abs=0.015)
    assert "Megatron-LM" in found["convention"]
    assert found["fits"] is True
    stage = found["stages"][0]
    parts = stage["memory"]
    assert stage["memory_bytes"] == sum(parts.values()) - parts["stepping"]
    assert found["largest_reserve_bytes"] == found["hbm_bytes"] - stage["memory_bytes"]


def test_a_row_of_a_search() -> None:
    """The command of docs/costs.md: 72 layers of BLOOM's search, by software without fused attention."""
    page = (Path(__file__).parents[1] / "docs" / "costs.md").read_text()
    (command,) = (line for line in page.splitlines() if line.startswith("$ nest estimate --cluster jean-zay:384"))
    typed = command.split()[3:]
    found = document(estimate_command, *typed)
    table = table_named("bloom")
    assert isinstance(table, Table)
    cases = [case for case in table.cases() if case.seconds == 117.07]
    assert [compare(case).estimate.iteration_s for case in cases] == [pytest.approx(found["iteration_s"], rel=1e-12)]
    assert document(estimate_command, *typed, "--no-flash")["iteration_s"] == found["iteration_s"]
    assert document(estimate_command, *typed, "--flash")["iteration_s"] < 0.98 * found["iteration_s"]


@pytest.mark.parametrize(
    "asked",
    [
        (*WIDE, "--cluster", "dgx-h100:64", "--tensor", "2", "--pipeline", "4"),
        (*WIDE, "--cluster", "dgx-a100:64", "--tensor", "8", "--pipeline", "4", "--sequence-parallel", "--zero", "1"),
        (*WIDE, "--cluster", "dgx-a100:64", "--tensor", "8", "--framework", "megatron-2022", "--zero", "3"),
        (*MOE, "--expert", "2", "--vocab", "51200"),
    ],
)
def test_what_is_computed_again_is_not_kept(asked: tuple[str, ...]) -> None:
    """None needs at least what selective does, and that at least what full does, at every stage, whatever is asked."""
    found = [document(estimate_command, *asked, "--recompute", kind) for kind in RECOMPUTE]
    assert len({(each["flash"], each["framework"]) for each in found}) == 1
    for stages in zip(*(each["stages"] for each in found), strict=True):
        none, selective, full = (stage["memory_bytes"] for stage in stages)
        assert none >= selective >= full
    assert found[0]["iteration_s"] <= found[1]["iteration_s"] <= found[2]["iteration_s"]


@pytest.mark.parametrize(("stages", "said"), [("1", False), ("2", True)])
def test_what_is_gathered_in_a_pipeline_is_said(stages: str, said: bool) -> None:
    """Type 3 may need more memory than type 2 in a pipeline, and why is in the notes."""
    notes = document(estimate_command, *WIDE, "--cluster", "dgx-h100:64", "--zero", "3", "--pipeline", stages)["notes"]
    assert any("ZeRO-3 gathers stay whole" in note for note in notes) == said


def test_a_plan_of_megatron_arguments(tmp_path: Path) -> None:
    """Widths and sizes of the file are taken from it; what is typed goes first."""
    path = tmp_path / "run.sh"
    path.write_text(ARGUMENTS)
    from_file = document(estimate_command, "--model", str(path), "--cluster", "selene:8")
    typed = document(estimate_command, *PLAN, "--framework", "megatron-core")
    assert from_file["framework"] == "megatron-core"
    assert from_file["iteration_s"] == typed["iteration_s"]
    smaller = document(estimate_command, "--model", str(path), "--cluster", "selene:8", "--microbatch", "1")
    assert smaller["stages"][0]["memory_bytes"] < from_file["stages"][0]["memory_bytes"]


def test_what_does_not_fit_says_so() -> None:
    """Exit code 3, and how much is too much; a reserve counts."""
    code, text = run(estimate_command, *GPT, "--cluster", "selene:1", "--seq", "2048", "--global-batch", "1")
    assert code == ExitCode.INFEASIBLE
    assert "does not fit" in text
    code, text = run(estimate_command, *PLAN, "--reserve", "40")
    assert code == ExitCode.INFEASIBLE


def test_text_has_a_row_for_each_kind_of_stage() -> None:
    """Equal neighbours share a row; plan, time and memory are below."""
    wide = (*GPT, "--cluster", "selene:64", "--seq", "2048", "--global-batch", "64", "--tensor", "8", "--pipeline", "4")
    code, text = run(estimate_command, *wide)
    assert code == ExitCode.OK
    for part in ("4 stages, 2 replicas with 32 microbatches of 1", "TFLOP/s a device", "fits, with "):
        assert part in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cluster", "selene:8"), "give one of --model and --family"),
        (("--family", "gpt", "--layers", "4", "--cluster", "selene:8"), "--family needs --hidden"),
        ((*GPT, "--cluster", "selene:8", "--seq", "2048"), "--global-batch is missing"),
        ((*PLAN, "--data", "2"), "are 16 devices, and the cluster has 8"),
        ((*PLAN, "--pipeline", "3"), "are 24 devices, and the cluster has 8: change a width"),
        ((*PLAN, "--recompute-layers", "2"), "--recompute-layers goes with --recompute selective or full"),
        ((*PLAN, "--zero-groups", "2"), "--zero-groups goes with --zero 1, 2 or 3"),
        ((*PLAN, "--top-k", "2"), "--top-k goes with --family moe"),
        ((*PLAN, "--reserve", "inf"), "--reserve inf: give a number"),
        ((*PLAN, "--reserve", "nan"), "--reserve nan: give a number"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], message: str) -> None:
    """What is missing, or does not make up the devices."""
    with pytest.raises(click.UsageError, match=message):
        run(estimate_command, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*PLAN[:-2], "--recipe", "x"), "recipe: 'x' is none"),
        ((*PLAN, "--framework", "x"), "framework: 'x' is none"),
        ((*PLAN, "--dtype", "fp8"), "no rate for 'fp8'"),
        (("--model", "missing.json", "--cluster", "selene:8"), "missing.json"),
        ((*WIDE, "--cluster", "selene:9", "--tensor", "3"), "tensor: 3: it does not divide the 64 heads"),
        ((*WIDE, "--cluster", "selene:128", "--tensor", "128"), "tensor: 128: it does not divide the 64 heads"),
        ((*WIDE, "--cluster", "selene:8", "--expert", "8"), "expert: 8: the model has no routed experts"),
        ((*GPT, "--cluster", "selene:8", "--seq", "2048", "--global-batch", "4"), "take 8 at a time"),
        ((*MOE, "--expert", "8"), "expert: 8: it does not divide the 4 experts"),
        ((*PLAN, "--imbalance", "2"), "imbalance: 2: the model has no routed experts"),
        ((*PLAN, "--capacity", "1.5"), "capacity: 1.5: the model has no routed experts"),
        ((*PLAN, "--seq", "2047", "--sequence-parallel"), "sequence: 2047 tokens, which tensor x context 8 do not"),
    ],
)
def test_wrong_values_are_refused(arguments: tuple[str, ...], message: str) -> None:
    """One line that names the value, and what would be right."""
    with pytest.raises(InvalidProblem, match=message):
        run(estimate_command, *arguments)


def test_widths_of_models_that_cannot_be_planned(tmp_path: Path) -> None:
    """A tower beside a decoder is no chain, but can be estimated; so can more devices than key-value heads."""
    clip = tmp_path / "clip.json"
    text = {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 2}
    image = {"image_size": 224, "layers": 2, "width": 768, "patch_size": 32}
    clip.write_text(json.dumps({"embed_dim": 512, "vision_cfg": image, "text_cfg": text}))
    sizes = ("--cluster", "selene:8", "--global-batch", "8")
    assert run(estimate_command, "--model", str(clip), *sizes, "--tensor", "4")[0] == ExitCode.OK
    with pytest.raises(InvalidProblem, match="tensor: 8: it does not divide the 12 heads"):
        run(estimate_command, "--model", str(clip), *sizes, "--tensor", "8")
    few = (
        "--family",
        "llama",
        "--layers",
        "2",
        "--hidden",
        "1024",
        "--heads",
        "16",
        "--kv-heads",
        "2",
        "--seq",
        "1024",
    )
    assert run(estimate_command, *few, *sizes, "--tensor", "8")[0] == ExitCode.OK


def test_a_length_that_the_model_has_itself(tmp_path: Path) -> None:
    """Patches of an image are as many as they are: another length is refused, theirs counts."""
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 12, "intermediate_size": 3072}
    path.write_text(json.dumps({"model_type": "vit", **sizes, "image_size": 224, "patch_size": 16}))
    vit = ("--model", str(path), "--cluster", "selene:8", "--global-batch", "8")
    assert "8 sequences of 197 tokens, bf16" in run(estimate_command, *vit)[1]
    assert document(estimate_command, *vit, "--seq", "197")["sequence"] == 197
    with pytest.raises(click.UsageError, match="--seq 4096: the model has sequences of 197 tokens; leave it out"):
        run(estimate_command, *vit, "--seq", "4096")


def test_a_rate_above_the_peak_is_explained() -> None:
    """Where scores are all, the half that a mask saves counts by the convention: 101 % of an A100."""
    long = ("--family", "llama", "--layers", "1", "--hidden", "1024", "--heads", "8", "--cluster", "selene:1")
    text = run(estimate_command, *long, "--seq", str(2**24), "--global-batch", "1")[1]
    assert "more than the peak only because masked scores" in " ".join(text.split())
    assert "more than the peak" not in run(estimate_command, *PLAN)[1]


def test_validation_in_text_and_json() -> None:
    """Averages for all tables asked for; rows with what was measured, predicted, and fitted."""
    code, text = run(validate_command, "recomputation")
    assert code == ExitCode.OK
    assert "megatron-22B full *" in text
    assert "arXiv 2205.05198" in text
    table = document(validate_command, "mist")["tables"][0]
    assert table["time"]["mean"] < 0.05
    assert [row["fitted"] for row in table["rows"]].count(True) == 3
    assert len(table["rows"][2]["memory_errors"]) == 4


TREE = """
SwitchName=top Switches=leaf[1-2]
SwitchName=leaf1 Nodes=n[1-2]
SwitchName=leaf2 Nodes=n[3-4]
"""


def test_a_network_as_its_scheduler_describes_it(tmp_path: Path) -> None:
    """A topology.conf is read where a cluster is asked for, with what it leaves open beside it."""
    path = tmp_path / "topology.conf"
    path.write_text(TREE)
    asked = (*GPT, "--seq", "2048", "--global-batch", "32", "--tensor", "8", "--cluster", str(path))
    with pytest.raises(click.UsageError, match="describes a network: say of which devices with --device NAME, or --li"):
        run(estimate_command, *asked)
    with pytest.raises(InvalidProblem, match="gpus_per_node: not given for 4 nodes"):
        run(estimate_command, *asked, "--like", "dgx-a100")
    with pytest.raises(InvalidProblem, match="name a system that the cluster is like, as in like=dgx-h100"):
        run(estimate_command, *asked, "--device", "a100-80gb", "--gpus-per-node", "8")
    found = document(estimate_command, *asked, "--like", "dgx-a100", "--gpus-per-node", "8")
    assert (found["cluster"], found["devices"]) == ("topology.conf", 32)
    with pytest.raises(click.UsageError, match="--device goes with a file of a network"):
        run(estimate_command, *PLAN, "--device", "a100-80gb")


def test_a_batch_that_does_not_divide_is_said() -> None:
    """Two replicas of 4 sequences at a time take 40 for a batch of 36, in text and for programs; 32 is even."""
    wide = (*GPT, "--cluster", "selene:16", "--seq", "2048", "--microbatch", "4", "--tensor", "8")
    said = "2 x 1 x 4 (replicas x expert x microbatch) do not divide a batch of 36: its time is that of 40 sequences"
    assert said in document(estimate_command, *wide, "--global-batch", "36")["notes"]
    assert said in " ".join(run(estimate_command, *wide, "--global-batch", "36")[1].split())
    assert not any(
        "do not divide" in note for note in document(estimate_command, *wide, "--global-batch", "32")["notes"]
    )


def test_what_programs_read() -> None:
    """The keys that other programs rely on, and that the largest reserve is the largest: a little more does not fit."""
    plan = (*PLAN, "--recompute", "full")
    found = document(estimate_command, *plan)
    assert found["model"] == "gpt"
    assert found["parameters"]["total"] == sum(found["parameters"]["per_component"].values())
    assert found["active_parameters"] == found["parameters"]["total"]
    assert {"iteration_s", "tflops_per_device", "fits"} <= set(found)
    assert all(stage["memory_bytes"] > 0 for stage in found["stages"])
    gib = found["largest_reserve_bytes"] / 2**30
    assert document(estimate_command, *plan, "--reserve", str(gib))["fits"] is True
    assert document(estimate_command, *plan, "--reserve", str(gib + 1e-6))["fits"] is False
    routed = document(estimate_command, *MOE)
    assert routed["active_parameters"] < routed["parameters"]["total"]


def test_the_answer_as_a_file(tmp_path: Path) -> None:
    """What programs read may be written beside what people do; a place that cannot be written is refused first."""
    path = tmp_path / "estimate.json"
    text = run(estimate_command, *PLAN, "-o", str(path))[1]
    assert text.startswith("Stage")
    assert json.loads(path.read_text()) == document(estimate_command, *PLAN)
    with pytest.raises(click.BadParameter, match="cannot write"):
        run(estimate_command, *PLAN, "-o", str(tmp_path / "none" / "estimate.json"))


def test_no_more_layers_recompute_than_there_are() -> None:
    """A stage may have fewer layers than recompute, but not every one."""
    wide = (*GPT, "--cluster", "selene:16", "--seq", "2048", "--global-batch", "16", "--tensor", "8", "--pipeline", "2")
    plan = (*wide, "--stage-layers", "20,28", "--recompute", "full")
    assert document(estimate_command, *plan, "--recompute-layers", "28") == document(estimate_command, *plan)
    with pytest.raises(InvalidProblem, match="recompute_layers: 29 layers of a stage, and no stage has more than 28"):
        run(estimate_command, *plan, "--recompute-layers", "29")


def test_layers_of_each_stage() -> None:
    """They may be given, and have to be those of the model."""
    wide = (*GPT, "--cluster", "selene:16", "--seq", "2048", "--global-batch", "16", "--tensor", "8", "--pipeline", "2")
    loads = [stage["load_s"] for stage in document(estimate_command, *wide, "--stage-layers", "12,36")["stages"]]
    assert loads[1] > 2.5 * loads[0]
    with pytest.raises(InvalidProblem, match="layers: 47 in all stages; the model has 48"):
        run(estimate_command, *wide, "--stage-layers", "11,36")
    with pytest.raises(click.UsageError, match="'a,b' is no list of whole numbers; give one as in 10,11,11,8"):
        run(estimate_command, *wide, "--stage-layers", "a,b")


def test_usage_errors_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong and where to read on are not glued together, whether or not the message ends in a full stop."""
    assert program(["estimate", *GPT, "--cluster", "selene:8", "--device", "h100"]) == ExitCode.INVALID
    assert "--cluster selene:8 is none; see 'nest estimate --help'\n" in capsys.readouterr().err
    assert program(["estimate", *GPT]) == ExitCode.INVALID
    assert "Missing option '--cluster'; see 'nest estimate --help'\n" in capsys.readouterr().err


def test_a_typed_run_has_one_preset(capsys: pytest.CaptureFixture[str]) -> None:
    """Other presets do not price what is typed, and the message says what to do."""
    asked = ["solve", *GPT, "--cluster", "selene:8", "--seq", "2048", "--global-batch", "8", "--preset"]
    assert program([*asked, "paper"]) == ExitCode.INVALID
    assert "leave --preset out, or give PROBLEM, a file with figures for 'paper'" in capsys.readouterr().err
