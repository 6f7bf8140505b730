"""Where the command line writes: files, pipes and terminals, also those that are full, closed or gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT, PROGRAM, best_plan, chain, complaint, nest, problem_path

from nest.cli import run
from nest.files import read_plan, write_problem

__all__ = ["problem_path"]  # a fixture


@pytest.mark.parametrize("output", ["missing/plan.json", ".", "problem.toml", "file/plan.json", "loop"])
def test_unwritable_output(
    problem_path: Path, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that cannot be written, or must not be, is refused before anything is solved."""
    folder = problem_path.parent
    (folder / "file").touch()
    (folder / "loop").symlink_to("loop")
    before = problem_path.read_text()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("nest.solve.solve", lambda *_, **__: pytest.fail("it was solved first"))
    assert run(["solve", str(problem_path), "-o", output]) == 2
    assert output in complaint(capsys)
    assert problem_path.read_text() == before
    assert sorted(path.name for path in folder.iterdir()) == ["file", "loop", "problem.toml"]


def test_failed_write_is_no_success(
    problem_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up while the solver works is an error with the file's name."""

    def full(_plan: object, path: Path, *_more: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("nest.files.write_plan", full)
    assert run(["solve", str(problem_path), "-o", str(problem_path.with_name("plan.json"))]) == 2
    assert "plan.json: No space left on device" in complaint(capsys)


def test_special_files_are_written_to(problem_path: Path) -> None:
    """A device is no file to be replaced."""
    assert run(["solve", str(problem_path), "-o", os.devnull]) == 0
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("arguments", [["show"], ["show", "--json"], ["solve"], ["solve", "--json"]], ids=" ".join)
def test_broken_pipe_is_silent(arguments: list[str], problem_path: Path) -> None:
    """A reader that goes away ends the program as a signal would, with no word about it."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = nest(*arguments, problem_path, capture_output=False, stdout=write_end, stderr=subprocess.PIPE)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


def test_broken_pipe_of_help() -> None:
    """Help that nobody reads is silent too."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", '"$@" --help | true', "bash", *PROGRAM],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode in (0, 141)


def test_plan_is_written_though_nobody_reads(problem_path: Path, tmp_path: Path) -> None:
    """The file of -o does not depend on who reads standard output."""
    target = tmp_path / "out.json"
    command = f'"$@" solve {problem_path} -o {target} | head -c 1'
    subprocess.run(["bash", "-c", command, "bash", *PROGRAM], env=ENVIRONMENT, capture_output=True, check=True)
    assert read_plan(target) == best_plan()


@pytest.mark.parametrize("arguments", [["show"], ["solve", "--json"]], ids=" ".join)
def test_closed_output(arguments: list[str], problem_path: Path) -> None:
    """Without a standard output there is nothing to print to, which is no fault."""
    command = f'"$@" {" ".join(arguments)} {problem_path} >&-'
    done = subprocess.run(
        ["bash", "-c", command, "bash", *PROGRAM], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_output(problem_path: Path) -> None:
    """An answer that could not be printed is no success."""
    with Path("/dev/full").open("w") as full:
        done = nest("show", problem_path, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "nest: standard output: No space left on device\n")


def test_interrupt_is_quiet(problem_path: Path) -> None:
    """Ctrl-C ends the program with 130 and without a word."""
    script = (
        "import signal, time, nest.solve\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job starts with it ignored
        "def wait(*_, **__):\n"
        "    print('waiting', flush=True)\n"
        "    time.sleep(600)\n"
        "nest.solve.solve = wait\n"
        "from nest.cli import main\n"
        "main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "solve", str(problem_path)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=300) == ("", "")
    assert process.returncode == 130


def test_terminal_gets_colours(problem_path: Path) -> None:
    """On a terminal there are colours, unless NO_COLOR is set, and on a narrow one narrow lines."""
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    assert "\x1b[32m" in on_terminal(environment, "solve", problem_path)
    assert "\x1b[32m" not in on_terminal({**environment, "NO_COLOR": "1"}, "solve", problem_path)


def on_terminal(environment: dict[str, str], *arguments: str | Path) -> str:
    """Return what the program prints to a terminal."""
    main_end, other_end = os.openpty()
    try:
        done = nest(*arguments, env=environment, capture_output=False, stdout=other_end, stderr=other_end)
        assert done.returncode == 0
        return os.read(main_end, 1 << 16).decode()
    finally:
        os.close(main_end)
        os.close(other_end)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding(encoding: str, problem_path: Path) -> None:
    """A terminal that cannot show a character gets another, not an error."""
    done = nest("solve", problem_path, env={**ENVIRONMENT, "PYTHONIOENCODING": encoding}, errors="replace")
    assert (done.returncode, done.stderr) == (0, "")
    assert "optimal" in done.stdout


def test_output_into_a_pipe_by_its_name(tmp_path: Path) -> None:
    """What standard output leads to has no path beside which a file could be made."""
    problem = tmp_path / "chain.toml"
    write_problem(chain(), problem)
    ran = subprocess.run(
        [*PROGRAM, "solve", str(problem), "-o", "/dev/stdout"], env=ENVIRONMENT, capture_output=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b'"schema": "nest.plan/1"' in ran.stdout
