"""``nest solve`` without a problem file: a model, a cluster and a batch as they are typed, or from a run file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nest.cli.estimate import estimate_command
from nest.cli.evaluate import evaluate_command
from nest.cli.exits import ExitCode
from nest.cli.show import show_command
from nest.cli.solve import solve_command
from nest.errors import InvalidProblem
from nest.runs import variants

GPT = ("--family", "gpt", "--layers", "8", "--hidden", "1024", "--heads", "16", "--vocab", "51200", "--seq", "2048")
ASKED = (*GPT, "--cluster", "dgx-h100:16", "--global-batch", "32")

ARGUMENTS = """
--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048
--tensor-model-parallel-size 8 --micro-batch-size 4 --global-batch-size 32 --padded-vocab-size 51200
--attention-dropout 0.1 --hidden-dropout 0.1
"""

RUN = """
schema = "nest.run/1"
cluster = "dgx-h100:16"
sequence = 2048
global_batch = 32

[model]
family = "gpt"
layers = 8
hidden = 1024
heads = 16
vocab = 51200
seq = 2048
"""


def run(*arguments: str, command: click.Command = solve_command) -> tuple[int, str]:
    """Return exit code and output of a command."""
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.output


def document(*arguments: str) -> dict[str, Any]:
    """Return what ``nest solve`` prints for programs."""
    return json.loads(run(*arguments, "--json")[1])  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tensor", "1", "--sequence-parallel"), "sequence_parallel: no tensor width above 1 that is left divides"),
        (("--imbalance", "2"), "imbalance: 2: the model has no routed experts"),
    ],
)
def test_what_leaves_no_variant_is_named(arguments: tuple[str, ...], message: str) -> None:
    """Widths that are too wide together are not confused with a sequence that cannot be shared."""
    with pytest.raises(InvalidProblem, match=message):
        run(*ASKED, *arguments)


def test_stages_of_their_own_beside_typed_widths(tmp_path: Path) -> None:
    """A typed microbatch or tensor width is the plan's: what single stages may be has figures, too, and is kept."""
    typed, plan = (*ASKED, "--pipeline", "2", "--context", "1", "--data", "1"), tmp_path / "plan.json"
    inside = ("--set", "shard_inside=4", "--set", "splits_batch=true", "--zero", "1", "--set", "tensor=1")
    set_alone = document(*typed, *inside, "--set", "microbatch=32")
    given = document(*typed, *inside, "--microbatch", "32", "--output", str(plan))
    assert given["plan"]["stages"][0]["sharding"]["splits_batch"]
    assert given["objective"] == pytest.approx(set_alone["objective"], rel=1e-9)
    again = run(str(plan), "--json", command=evaluate_command)[1]
    assert json.loads(again)["objective_ticks"] == given["objective_ticks"]
    own = (*typed, "--set", "stage_tensor=1,2,4", "--microbatch", "8")
    wider = document(*own, "--tensor", "4")
    assert wider["objective"] == pytest.approx(document(*own, "--set", "tensor=4")["objective"], rel=1e-9)


def test_stages_of_their_own_beside_widths_of_a_run_file(tmp_path: Path) -> None:
    """A setting is the same as a line of the file, also in the plan that is read again."""
    own = "[choices]\nmicrobatch = [32]\nzero = [1]\nstages = [2]\ncontext = [1]\ntensor = [1]\nreplicas = [1]\n"
    inside = "shard_inside = [4]\nsplits_batch = true\n"
    alone, whole, plan = tmp_path / "alone.toml", tmp_path / "whole.toml", tmp_path / "plan.json"
    alone.write_text(RUN + own)
    whole.write_text(RUN + own + inside)
    given = document(str(alone), "--set", "shard_inside=4", "--set", "splits_batch=true", "--output", str(plan))
    assert given["plan"]["stages"][0]["sharding"]["splits_batch"]
    assert given["objective_ticks"] == document(str(whole))["objective_ticks"]
    again = run(str(plan), "--json", command=evaluate_command)[1]
    assert json.loads(again)["objective_ticks"] == given["objective_ticks"]


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_reserve_is_a_number(value: str) -> None:
    """No internal error."""
    with pytest.raises(click.UsageError, match=f"--reserve {value}: give a number"):
        run(*ASKED, "--reserve", value)


def test_a_plan_without_a_problem_file() -> None:
    """The plan is proven, and what was not tried is said, in text and in JSON."""
    code, text = run(*ASKED)
    assert code == ExitCode.OK
    assert "optimal: proven" in text
    assert "Not tried  recompute selective" in text
    found = document(*ASKED)
    assert found["all_tried"]
    assert found["status"] == "optimal"
    assert any("fused attention" in each for each in found["left_out"])


def test_microbatches_that_are_no_powers_of_two_are_tried() -> None:
    """24 sequences have microbatches of 3, 6, 12: the proof is about them, too, as if all were named."""
    asked = (*GPT, "--cluster", "dgx-h100:8", "--global-batch", "24")
    assert "no plan of the space is faster" in run(*asked)[1]
    found, named = document(*asked), document(*asked, "--set", "microbatch=1,2,3,4,6,8,12,24")
    assert found["all_tried"]
    assert any("but" in each and "combinations" in each for each in found["left_out"])
    assert found["objective"] == pytest.approx(named["objective"], rel=1e-8)


def test_before_it_is_infeasible_all_widths_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that needs a context width which is usually left out is found."""
    monkeypatch.setattr(variants, "FEW_DEVICES", 1)
    asked = (*ASKED, "--tensor", "1", "--microbatch", "32", "--recompute", "none", "--pipeline", "1", "--reserve", "70")
    assert document(*asked, "--set", "context=1,2")["status"] == "infeasible"
    assert document(*asked)["plan"]["context"] > 2


def test_what_is_typed_settles_the_choice() -> None:
    """Every width that is typed is that of the plan, and no other plan is faster than the free one."""
    free = document(*ASKED)
    pins = ("--tensor", "2", "--pipeline", "2", "--data", "4", "--microbatch", "2", "--sequence-parallel")
    found = document(*ASKED, *pins, "--context", "1", "--expert", "1", "--recompute", "full", "--zero", "1")
    plan = found["plan"]
    assert (plan["tensor"], plan["sequence"], plan["microbatch"], plan["replicas"]) == (2, True, 2, 4)
    assert [(stage["recompute"], stage["sharding"]["zero"]) for stage in plan["stages"]] == [("full", 1)] * 2
    assert found["objective"] >= free["objective"]


def test_the_same_from_every_kind_of_input(tmp_path: Path) -> None:
    """Typed numbers, arguments of Megatron-LM (whose widths are not settled), a run file, and the problem written."""
    typed = document(*ASKED, "--write-problem", str(tmp_path / "problem.toml"), "-o", str(tmp_path / "plan.json"))
    (tmp_path / "pretrain.sh").write_text(ARGUMENTS)
    (tmp_path / "run.toml").write_text(RUN)
    others = [
        document("--model", str(tmp_path / "pretrain.sh"), "--cluster", "dgx-h100:16"),
        document(str(tmp_path / "run.toml")),
        document(str(tmp_path / "problem.toml")),
    ]
    for other in others:
        assert other["objective_ticks"] == typed["objective_ticks"]
        assert other["plan"] == typed["plan"]
    code, _ = run(str(tmp_path / "run.toml"), str(tmp_path / "plan.json"), command=evaluate_command)
    assert code == ExitCode.OK
    code, text = run(str(tmp_path / "run.toml"), command=show_command)
    assert code == ExitCode.OK
    assert "dgx-h100:16" in text


CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}


def test_a_checkout_is_its_config(tmp_path: Path) -> None:
    """A folder with a config.json is the model in every place that takes one, and what is typed says so."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    more = ("--cluster", "dgx-h100:16", "--seq", "2048", "--global-batch", "32")
    (tmp_path / "run.toml").write_text(RUN.partition("[model]")[0] + 'model = "checkout"\n')
    wanted = document("--model", str(folder / "config.json"), *more)
    code, text = run("--model", str(folder), *more, "-o", str(tmp_path / "plan.json"))
    assert code == ExitCode.OK
    assert f"{folder}: a folder; the model is its config.json" in text
    assert document(str(tmp_path / "run.toml"))["objective_ticks"] == wanted["objective_ticks"]
    assert "Problem    llama on dgx-h100:16 on" in run(str(tmp_path / "plan.json"), command=evaluate_command)[1]
    assert "llama" in run(str(folder), command=show_command)[1]
    assert run("--model", str(folder), *more, command=estimate_command)[0] == ExitCode.OK


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"run.toml": 'model = "layers.csv"', "layers.csv": "layer,forward_ms\n"},
            "nest solve --model layers.csv --clu",
        ),
        ({"run.toml": 'model = "empty"'}, "there is no such file"),
        ({"run.toml": None}, "a model, and no problem: it says nothing of a cluster; nest solve --model .* takes it"),
    ],
)
def test_a_file_in_the_wrong_place(files: dict[str, str | None], message: str, tmp_path: Path) -> None:
    """Measured layers in a run file, and a model in the place of a problem, are told where they belong."""
    for name, text in files.items():
        whole = json.dumps(CONFIG) if text is None else text
        (tmp_path / name).write_text(RUN.partition("[model]")[0] + whole if "model =" in whole else whole)
    with pytest.raises(InvalidProblem, match=message):
        run(str(tmp_path / "run.toml"))


def test_settings_narrow_a_run(tmp_path: Path) -> None:
    """``--set`` works on runs as on problems."""
    (tmp_path / "run.toml").write_text(RUN)
    found = document(str(tmp_path / "run.toml"), "--set", "stages=3", "--set", "zero=none")
    assert len(found["plan"]["stages"]) == 3


def test_no_plan_says_what_needs_the_memory() -> None:
    """Exit code 3, the reason in bytes, and what helps."""
    model = ("--family", "llama", "--layers", "8", "--hidden", "16384", "--heads", "128", "--seq", "2048")
    more = ("--cluster", "dgx-h100:1", "--global-batch", "1", "--zero", "0")
    code, text = run(*model, *more)
    assert code == ExitCode.INFEASIBLE
    for part in ("infeasible", "GiB", "Helps"):
        assert part in text


def test_the_checker_confirms() -> None:
    """A run is solved and certified in one go."""
    code, text = run(*ASKED, "--certify")
    assert code == 0
    assert "confirmed by checker" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give PROBLEM, or --model"),
        (("problem.toml", "--tensor", "2"), "--tensor goes with --model"),
        (("problem.toml", "--cluster", "x"), "--cluster goes with --model"),
        (GPT, "--cluster is missing"),
        ((*GPT, "--cluster", "dgx-h100:8"), "--global-batch is missing"),
        ((*ASKED, "--model", "x.json"), "give one of --model and --family"),
        ((*ASKED, "--expert-tensor", "4", "--tensor", "2"), "--expert-tensor 4: give 1 or the tensor width 2"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], message: str) -> None:
    """What is missing, and what does not go together."""
    with pytest.raises(click.UsageError, match=message):
        run(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tensor", "3"), "tensor: 3: it does not divide the 16 heads"),
        (("--context", "3"), "context: 3: it does not divide the 2048 tokens"),
        (("--expert", "2"), "expert: 2: the model has no routed experts"),
        (("--microbatch", "5"), "microbatch: 5: it does not divide the batch of 32"),
        (("--tensor", "16", "--context", "2"), "the narrowest, are 32 devices, and the cluster has 16"),
        (("--reserve", "100"), "reserve: "),
    ],
)
def test_wrong_values_are_refused(arguments: tuple[str, ...], message: str) -> None:
    """One line that names the width and what it should divide."""
    with pytest.raises(InvalidProblem, match=message):
        run(*ASKED, *arguments)
