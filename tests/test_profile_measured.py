"""What `nest profile` measures: reference blocks of a model, and the layers of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from nest.cli.program import run
from nest.costing import Setting
from nest.costing.pricing import layer_costs
from nest.families import Hyperparameters, from_hyperparameters
from nest.files.profile_file import read_profile
from nest.hardware import device_named
from nest.profile import shape_of

torch = pytest.importorskip("torch", reason="profiling needs torch: pip install 'nest[torch]'")

from nest.profile.blocks import block_of, inputs_of  # noqa: E402

LLAMA = Hyperparameters("llama", layers=2, hidden=64, heads=4, kv_heads=2, ffn=96, vocab=101, seq=32)
GPT = Hyperparameters("gpt", layers=2, hidden=64, heads=4, vocab=101, seq=32)


@pytest.mark.parametrize("sizes", [LLAMA, GPT], ids=lambda sizes: sizes.family)
@pytest.mark.parametrize("tensor", [1, 2])
def test_reference_blocks_have_the_weights_of_the_model(sizes: Hyperparameters, tensor: int) -> None:
    """As many parameters as the model says a device has, and a result of the width of the model."""
    model = from_hyperparameters(sizes)
    costs = layer_costs(model, device_named("h100"), Setting(32, tensor=tensor, padding=0))[model.stacks[0].name]
    for at in (0, 1, len(costs) - 1):
        shape = shape_of(model.stacks[0].blocks[at], tensor)
        assert shape is not None
        module = block_of(shape, 32)
        inputs = inputs_of(shape, 32, 2, torch.float32, "cpu")
        held = sum(each.numel() for each in module.parameters())
        assert held == pytest.approx(costs[at].parameters.total + costs[at].tied, abs=64)  # an uneven vocabulary
        result = module(*inputs)
        result.sum().backward()
        assert tuple(result.shape) in {(2, 32, 64), ()}


def test_measures_a_model_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each kind, microbatch and width, which an estimate takes."""
    model = tmp_path / "model.toml"
    model.write_text(
        'family = "llama"\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\nffn = 96\nvocab = 101\nseq = 32\n'
    )
    table = tmp_path / "table.csv"
    typed = ["profile", "--model", str(model), "--microbatch", "1,2", "--tensor", "1,2", "--repeats", "2"]
    assert run([*typed, "--device", "cpu", "-o", str(table)]) == 0
    rows = read_profile(table).rows
    assert {(row.kind, row.microbatch, row.tensor) for row in rows} == {
        (kind, microbatch, tensor)
        for kind in ("embedding", "attention+mlp", "head")
        for microbatch in (1, 2)
        for tensor in (1, 2)
    }
    assert all(row.forward_s > 0 and row.backward_s > 0 and row.kept_bytes for row in rows)
    assert all((row.sequence, row.dtype) == (32, "bf16") for row in rows)
    capsys.readouterr()
    estimated = ["estimate", "--model", str(model), "--cluster", "dgx-h100:8", "--seq", "32", "--global-batch", "8"]
    assert run([*estimated, "--profile", str(table)]) == 0


def test_measures_a_module_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kinds are those of `nest capture`, so that the table goes with what it writes."""
    table, graph = tmp_path / "table.csv", tmp_path / "graph.json"
    typed = ["capture_modules:gpt", "--set", "layers=1", "--input", "1x32:int64"]
    assert run(["profile", *typed, "--microbatch", "1,2", "--repeats", "1", "--device", "cpu", "-o", str(table)]) == 0
    rows = read_profile(table).rows
    assert [row.kind for row in rows if row.microbatch == 2] == ["embedding", "gptblock", "head"]
    assert all((row.tensor, row.dtype, row.sequence, row.kept_bytes) == (1, "fp32", 32, None) for row in rows)
    assert run(["capture", *typed, "-o", str(graph)]) == 0
    solved = ["solve", "--model", str(graph), "--cluster", "dgx-h100:8", "--global-batch", "8", "--profile", str(table)]
    assert run([*solved, "--microbatch", "2"]) == 0
    assert "optimal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "give MODULE:FACTORY, or --model FILE"),
        (("m:f", "--model", "x"), "give MODULE:FACTORY, or --model FILE"),
        (("m:f", "--tensor", "2"), "--tensor, --seq and --vocab go with --model"),
        (("--model", "x", "--input", "1x2"), "--input and --set go with MODULE:FACTORY"),
        (("m:f", "--microbatch", "0"), "no list of whole numbers from 1"),
        (("capture_modules:looped", "--input", "1x32:int64"), "torch.export failed"),
        (("capture_modules:gpt", "--input", "2x32:int64"), "1 is no multiple of the 2 sequences"),
        (("capture_modules:gpt", "--input", "1x32:int64", "--device", "none"), "--device: 'none'"),
    ],
)
def test_refusals(arguments: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says what is wrong, and exit code 2."""
    assert run(["profile", *arguments]) == 2
    error = capsys.readouterr().err
    assert what in error
    assert error.count("\n") == 1
