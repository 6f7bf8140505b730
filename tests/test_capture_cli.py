"""``nest capture`` as it is typed: what it prints and writes, and how it refuses."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nest.cli.capture import typed_settings
from nest.cli.program import run
from nest.cli.run_options import PINS

FACTORIES = """
import torch

def boom():
    raise ValueError("no weights here.")

def number():
    return 3

def odd(width=4):
    made = torch.nn.Linear(width, width)
    made.rate = torch.linspace(0, 1, 3)[1].item()
    return made
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a directory with a module of factories, good and bad."""
    (tmp_path / "factories.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("factories", None)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line with which a command is refused."""
    assert run(["capture", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize("command", ["capture", "profile"])
def test_without_torch(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever has no torch is told which extra to install."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    assert run([command, "mymodel:build", "--input", "1x2"]) == 2
    assert "pip install torch" in capsys.readouterr().err


def test_settings_are_values() -> None:
    """Whole numbers, numbers, truth and text."""
    typed = ("layers=4", "rate=0.5", "bias=False", "name=a=b")
    assert typed_settings(typed) == {"layers": 4, "rate": 0.5, "bias": False, "name": "a=b"}


CASES = (
    (("factories", "--input", "1x2"), "'factories' has no factory"),
    (("nothere:x", "--input", "1x2"), "nothere:x: cannot be imported: ModuleNotFoundError"),
    (("factories:nope", "--input", "1x2"), "factories:nope: cannot be imported: AttributeError"),
    (("factories:boom", "--input", "1x2"), "the factory raised ValueError: no weights here;"),
    (("factories:number", "--input", "1x2"), "the factory made 'int'"),
    (("factories:odd", "--input", "2x5"), "the module does not take 2x5:float32: RuntimeError"),
    (("factories:odd", "--input", "2x4", "--input", "2x4"), "the module does not take 2x4:float32, 2x4:float32"),
    (("factories:odd", "--input", "2x4", "--set", "depth=2"), "unexpected keyword argument 'depth'"),
    (("factories:odd", "--input", "2x4", "--set", "depth"), "'depth' is no NAME=VALUE"),
    (("factories:odd", "--input", "=2x4"), "none has a batch"),
    (("factories:odd", "--input", "two"), "'two' is no shape"),
    (("factories:odd",), "--input is missing"),
)


@pytest.mark.parametrize(
    ("arguments", "what"), CASES, ids=lambda case: " ".join(case) if isinstance(case, tuple) else ""
)
@pytest.mark.usefixtures("factories")
def test_refusals(arguments: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says what is wrong, and exit code 2."""
    pytest.importorskip("torch", reason="capturing needs torch: pip install torch")
    assert what in refused(capsys, *arguments)


def test_from_a_module_to_a_proven_plan(factories: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is captured and written is solved; --check compares with a run on the CPU; odd factories are noted."""
    pytest.importorskip("torch", reason="capturing needs torch: pip install torch")
    path = factories / "graph.json"
    typed = ["capture", "factories:odd", "--set", "width=8", "--input", "2x8", "-o", str(path), "--check", "--json"]
    assert run(typed) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"] == 72
    assert [row["off"] for row in facts["check"]] == [0, 0, 0, 0]
    assert facts["notes"] == ["The factory does not run on the meta device; it ran on the CPU."]
    asked = ["solve", "--model", str(path), "--cluster", "dgx-h100:8", "--global-batch", "8", "--json"]
    assert run(asked) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "optimal"
    values = {"recompute": ["none"], "schedule": ["1f1b"], "sequence_parallel": [], "chunks": ["2"]}
    for pin in PINS:  # each is an option of a captured module, too
        more = ["--schedule", "interleaved"] if pin == "chunks" else []
        code = run([*asked, *more, f"--{pin.replace('_', '-')}", *values.get(pin, ["1"])])
        assert (code == 0) == (pin not in ("chunks", "sequence_parallel")), pin
        assert "captured module" not in capsys.readouterr().err
