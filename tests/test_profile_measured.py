"""What `nest profile` measures: reference blocks of a model, and the layers of a module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nest.cli.program import run
from nest.costing import Setting
from nest.costing.pricing import layer_costs
from nest.errors import InvalidProblem
from nest.families import Hyperparameters, from_hyperparameters
from nest.files.profile_file import read_profile
from nest.hardware import device_named
from nest.profile import shape_of

torch = pytest.importorskip("torch", reason="profiling needs torch: pip install torch")

from nest.profile.blocks import block_of, inputs_of  # noqa: E402
from nest.profile.timing import Timer, device_at_hand, within_memory  # noqa: E402

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


class Queue:
    """A stand-in for a GPU: what is launched takes its time only when somebody waits for the device.

    The clock goes on by as much then, and hardly at all otherwise.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.open_s = 0.0, 0.0
        self.waited: list[str] = []
        monkeypatch.setattr("nest.profile.timing.perf_counter", self.clock)
        monkeypatch.setattr(torch.cuda, "synchronize", self.wait)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"stand-in for {device}")

    def launch(self, seconds: float) -> None:
        """Put work into the queue."""
        self.open_s += seconds

    def wait(self, device: str) -> None:
        """Wait for the device."""
        self.waited.append(device)
        self.now, self.open_s = self.now + self.open_s, 0.0

    def clock(self) -> float:
        """Return the time."""
        return self.now


def test_waits_for_a_gpu_at_each_end_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run behind the program: a pass that nobody waits for would take no time, or the next one's."""
    queue = Queue(monkeypatch)

    def call(inputs: Sequence[Any]) -> list[Any]:
        queue.launch(3.0)
        result = inputs[0] * 2
        result.register_hook(lambda _: queue.launch(5.0))
        return [result]

    timer = Timer("cuda:1", warm=1, repeats=3)
    weight = torch.ones(2, requires_grad=True)
    assert timer.passes(call, [weight], []) == (3.0, 5.0)
    assert queue.waited == ["cuda:1"] * 4 * 4
    assert timer.name == "stand-in for cuda:1"
    assert weight.grad is None


def test_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the device of choice unless another is asked for, and one that fails to answer is refused in one line."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *_, device: asked.append(device))
    assert device_at_hand("") == "cuda"
    assert device_at_hand("cpu") == "cpu"
    assert asked == ["cuda", "cpu"]
    monkeypatch.undo()
    with pytest.raises(InvalidProblem, match=r"--device.*give cpu, or cuda where there is one"):
        device_at_hand("cuda:77")


def test_too_little_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sequence that no memory holds is no fault of ours, and widths are looked at before anything is measured."""
    model = tmp_path / "model.toml"
    model.write_text(
        'family = "llama"\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\nffn = 96\nvocab = 101\nseq = 32\n'
    )
    typed = ["profile", "--model", str(model), "--device", "cpu", "--seq", str(10**13), "--repeats", "1"]
    assert run(typed) == 2
    assert "--device: 'cpu' has not enough memory" in capsys.readouterr().err
    assert run([*typed, "--tensor", "1,3"]) == 2
    assert "--tensor: 3 does not divide the 4 heads" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="else"), within_memory("cpu"):
        raise RuntimeError("something else")
