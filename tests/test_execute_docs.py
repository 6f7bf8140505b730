"""The example of the page on running plans, as it is printed there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from nest.cli import run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "run_a_plan.md"


def masked(text: str) -> list[str]:
    """Return lines without what differs from machine to machine: losses, differences, seconds."""
    return [re.sub(r"\d\.\d{6}|\d\.\de[+-]\d\d|[\d.]+ s$", "#", line) for line in text.splitlines()]


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands work as printed, and bytes are those on the page."""
    pytest.importorskip("torch", reason="plans run in PyTorch: pip install torch")
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    solve, execute = re.findall(r"^\$ nest (.*)$", page, flags=re.MULTILINE)
    assert run(shlex.split(solve)) == 0
    capsys.readouterr()
    assert run(shlex.split(execute)) == 0
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    assert masked(capsys.readouterr().out) == masked(shown)
