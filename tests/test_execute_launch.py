"""Processes are started, waited for and ended: none outlives the command, whatever goes wrong."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from nest.errors import LimitReached
from nest.execute.launch import RankFailed, run_ranks

TESTS = Path(__file__).parent

LIMIT_S = 300
"""For what takes two seconds."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TESTS)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host end its processes itself, however busy the machine is."""
    monkeypatch.setattr("nest.execute.launch.GRACE_S", LIMIT_S)


def gone(directory: Path) -> bool:
    """Whether none of the processes that left their number is there any more, not even as a zombie."""
    numbers = [int(path.read_text()) for path in directory.glob("pid*")]
    assert numbers, "nobody left a number"
    return not any(Path(f"/proc/{number}").exists() for number in numbers)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_all_ranks_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each rank runs once; what they print goes to files of their own."""
    run_ranks("fault_ranks:greet", 3, tmp_path, LIMIT_S)
    assert sorted(path.name for path in tmp_path.glob("hello*")) == ["hello0", "hello1", "hello2"]
    assert capfd.readouterr() == ("", "")
    assert sorted((tmp_path / "2.log").read_text().splitlines()) == ["complained by 2", "said by 2"]


def test_hung_rank_is_named_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that hangs does not hang the command, which says which one it was and what it did."""
    wait = Popen.wait

    def wait_once_all_is_said(process: Popen[bytes], timeout_s: float | None = None) -> int:
        expected = [tmp_path / name for name in ("0.done", "1.doing", "2.done")]
        wait_until(lambda: all(path.exists() for path in expected))
        return wait(process, timeout_s)

    monkeypatch.setattr(Popen, "wait", wait_once_all_is_said)
    with pytest.raises(LimitReached, match=r"^stopped after 0.5 s: rank 1 waiting for Godot$"):
        run_ranks("fault_ranks:hang", 3, tmp_path, 0.5)
    assert gone(tmp_path)


def test_first_failure_is_named(tmp_path: Path) -> None:
    """Of several ranks that fail the one is named that brought the others about, in one line."""
    with pytest.raises(RankFailed, match=r"^rank 1 of 3, starting: ValueError: the first to fail$"):
        run_ranks("fault_ranks:fail", 3, tmp_path, LIMIT_S)
    assert gone(tmp_path)


def test_killed_rank_is_named(tmp_path: Path) -> None:
    """A rank that cannot say anything any more is named, too."""
    with pytest.raises(RankFailed, match=r"^rank 0 of 1, growing: ended by SIGKILL$"):
        run_ranks("fault_ranks:die", 1, tmp_path, LIMIT_S)


def test_host_that_cannot_start(tmp_path: Path) -> None:
    """What cannot even be imported is the last line of the host."""
    with pytest.raises(RankFailed, match="No module named 'no_such_module'"):
        run_ranks("no_such_module:main", 2, tmp_path, LIMIT_S)


def test_ranks_end_with_whoever_started_them(tmp_path: Path) -> None:
    """Not even a command that is killed leaves processes behind."""
    call = f"run_ranks('fault_ranks:hang', 2, Path({str(tmp_path)!r}), 600)"
    script = f"from pathlib import Path; from nest.execute.launch import run_ranks; {call}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    starter = Popen([sys.executable, "-c", script], env=environment)
    try:
        wait_until((tmp_path / "1.doing").exists)
    finally:
        starter.kill()
        starter.wait()
    wait_until(lambda: gone(tmp_path))
