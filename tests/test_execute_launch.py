"""Processes are started, waited for and ended: none outlives the command, whatever goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nest.errors import LimitReached
from nest.execute.launch import RankFailed, run_ranks

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TESTS)


def gone(directory: Path) -> bool:
    """Whether none of the processes that left their number is there any more, not even as a zombie."""
    numbers = [int(path.read_text()) for path in directory.glob("pid*")]
    assert numbers, "nobody left a number"
    return not any(Path(f"/proc/{number}").exists() for number in numbers)


def test_all_ranks_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each rank runs once; what they print goes to files of their own."""
    run_ranks("fault_ranks:greet", 3, tmp_path, 60)
    assert sorted(path.name for path in tmp_path.glob("hello*")) == ["hello0", "hello1", "hello2"]
    assert capfd.readouterr() == ("", "")
    assert sorted((tmp_path / "2.log").read_text().splitlines()) == ["complained by 2", "said by 2"]


def test_hung_rank_is_named_and_ended(tmp_path: Path) -> None:
    """A rank that hangs does not hang the command, which says which one it was and what it did."""
    started = time.monotonic()
    with pytest.raises(LimitReached, match=r"^stopped after 2 s: rank 1 waiting for Godot$"):
        run_ranks("fault_ranks:hang", 3, tmp_path, 2)
    assert time.monotonic() - started < 10
    assert gone(tmp_path)


def test_first_failure_is_named(tmp_path: Path) -> None:
    """Of several ranks that fail the one is named that brought the others about, in one line."""
    with pytest.raises(RankFailed, match=r"^rank 1 of 3, starting: ValueError: the first to fail$"):
        run_ranks("fault_ranks:fail", 3, tmp_path, 60)
    assert gone(tmp_path)


def test_killed_rank_is_named(tmp_path: Path) -> None:
    """A rank that cannot say anything any more is named, too."""
    with pytest.raises(RankFailed, match=r"^rank 0 of 1, growing: ended by SIGKILL$"):
        run_ranks("fault_ranks:die", 1, tmp_path, 60)


def test_host_that_cannot_start(tmp_path: Path) -> None:
    """What cannot even be imported is the last line of the host."""
    with pytest.raises(RankFailed, match="No module named 'no_such_module'"):
        run_ranks("no_such_module:main", 2, tmp_path, 60)


def test_ranks_end_with_whoever_started_them(tmp_path: Path) -> None:
    """Not even a command that is killed leaves processes behind."""
    call = f"run_ranks('fault_ranks:hang', 2, Path({str(tmp_path)!r}), 600)"
    script = f"from pathlib import Path; from nest.execute.launch import run_ranks; {call}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    starter = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        until = time.monotonic() + 20
        while not (tmp_path / "1.doing").exists() and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        starter.kill()
        starter.wait()
    while not gone(tmp_path) and time.monotonic() < until:
        time.sleep(0.02)
    assert gone(tmp_path)
