"""What commands say of a run where plans that are in the space were left out: the same words everywhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nest.cli.certify import certify_command
from nest.cli.exits import ExitCode
from nest.cli.frontier import frontier_command
from nest.cli.report import report_command
from nest.cli.solve import solve_command
from nest.errors import InvalidProblem
from nest.runs import EVERY_PLAN, LeftOut, Tried

RUN = """
schema = "nest.run/1"
cluster = "dgx-h100:72"
sequence = 2048
global_batch = 24

[model]
family = "gpt"
layers = 2
hidden = 1024
heads = 16
vocab = 51200
seq = 2048

[choices]
tensor = [1]
zero = [1]
stages = [1]
"""
"""On more than 64 devices, with a batch that is no power of two: context widths and microbatches are left out."""

LEFT_OUT = ("context widths above 2", "microbatches that are no powers of two")
FASTER = "no plan of those tried is faster"
SPACE = "no plan of the space is faster"
NONE = "infeasible, all of those tried: "


def asked(command: click.Command, *arguments: str | Path, code: ExitCode = ExitCode.OK) -> str:
    """Return what a command prints, in one line, once it is sure that it exits with a code."""
    result = CliRunner().invoke(command, [str(each) for each in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert result.return_value == code
    return " ".join(result.stdout.split())


def document(command: click.Command, *arguments: str | Path, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """Return what a command prints for programs."""
    return json.loads(asked(command, *arguments, "--json", code=code))  # type: ignore[no-any-return]


def says(text: str, words: str) -> None:
    """Check the words, and what was left out."""
    assert words in text
    assert all(each in text.partition("Not tried")[2] for each in LEFT_OUT)


def notes(found: dict[str, Any]) -> None:
    """Check what a document says of what was left out."""
    assert not found["all_tried"]
    assert all(any(each in line for line in found["left_out"]) for each in LEFT_OUT)


@pytest.fixture(autouse=True)
def usual_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the usual variants alone tried where no floors are known, however few there are."""
    monkeypatch.setattr(sys.modules["nest.runs.contenders"], "FEW", 0)  # a function has the same name


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run file."""
    path = tmp_path_factory.mktemp("run") / "run.toml"
    path.write_text(RUN)
    return path


@pytest.fixture(scope="module")
def plan_path(run_path: Path) -> Path:
    """Return the best plan of those tried."""
    path = run_path.with_name("plan.json")
    asked(solve_command, run_path, "-o", path)
    return path


def test_words() -> None:
    """Choices that are off, or that do not fit, are no less than the space."""
    assert Tried((LeftOut("expert 2", "there are none"),)).plan == EVERY_PLAN.plan == "plan"
    assert EVERY_PLAN.document() == {}
    some = Tried((LeftOut("context 4", "time", possible=True),))
    assert (some.plan, some.among, some.infeasible) == (
        "plan of those tried",
        "of those tried",
        "infeasible, all of those tried",
    )


def test_solve_says_the_bound(run_path: Path) -> None:
    """No plan of the space is faster, also for a framework, or where the time is played; with own widths none tried."""
    for options in ((), ("--for", "megatron"), ("--objective", "simulated")):
        assert SPACE in asked(solve_command, run_path, *options)
    text = asked(solve_command, run_path, "--set", "stage_tensor=1")
    says(text, FASTER)
    says(text, "no plan of those tried takes less")


def test_certify(run_path: Path, plan_path: Path) -> None:
    """All of the space is asked about: of a plan, of a run that is solved first, of a problem that is given besides."""
    for arguments in ((plan_path,), (run_path,), (plan_path, "--problem", run_path)):
        assert SPACE in asked(certify_command, *arguments)
        assert document(certify_command, *arguments)["all_tried"]


def test_solve_and_certify(run_path: Path) -> None:
    """The checker is asked about all variants, also those that the solver never had costs of."""
    found = document(solve_command, run_path, "--certify")
    assert found["all_tried"]
    assert "confirmed by checker" in asked(solve_command, run_path, "--certify")


def test_certify_for(run_path: Path) -> None:
    """Of a plan for a framework, too."""
    path = run_path.with_name("for.json")
    assert SPACE in asked(solve_command, run_path, "--for", "megatron", "-o", path)
    assert SPACE in asked(certify_command, path)
    assert document(certify_command, path)["all_tried"]
    assert "confirmed by checker" in asked(solve_command, run_path, "--for", "megatron", "--certify")


def test_no_plan_for_a_framework(run_path: Path) -> None:
    """That none is legal is about all."""
    down = (run_path, "--for", "megatron", "--set", "down=0..71")
    assert document(solve_command, *down, code=ExitCode.INFEASIBLE)["all_tried"]


@pytest.mark.parametrize("quantity", ["devices", "memory"])
def test_minimize(quantity: str, run_path: Path) -> None:
    """The least is that of those tried, and that none is fast enough is about them."""
    least = (run_path, "--minimize", quantity, "--time-at-most")
    says(asked(solve_command, *least, "1"), "proven, no plan of those tried with")
    found = document(solve_command, *least, "1")
    notes(found)
    assert all("no plan of those tried takes" in claim["text"] for claim in found["minimized"]["claims"])
    says(asked(solve_command, *least, "1e-7", code=ExitCode.INFEASIBLE), f"{NONE}no plan of those tried takes at most")
    notes(document(solve_command, *least, "1e-7", code=ExitCode.INFEASIBLE))


def test_frontier(run_path: Path) -> None:
    """A front is that of those tried, its claims too, and so is that there is none."""
    says(asked(frontier_command, run_path), "complete: proven, no plan of those tried is faster without more devices")
    found = document(frontier_command, run_path)
    notes(found)
    assert all("no plan of those tried" in claim["text"] for claim in found["claims"])
    down = (run_path, "--set", "down=0..71")
    says(asked(frontier_command, *down, code=ExitCode.INFEASIBLE), NONE)
    notes(document(frontier_command, *down, code=ExitCode.INFEASIBLE))


def test_report(plan_path: Path) -> None:
    """The page and its document."""
    page = plan_path.with_name("page.html")
    notes(document(report_command, plan_path, "--runners-up", "0", "-o", page))
    text = page.read_text()
    for words in (FASTER, "proven optimal of those tried", *LEFT_OUT):
        assert words in text
    assert "of the space is" not in text


def test_written_problems(run_path: Path, tmp_path: Path) -> None:
    """A problem that was written by ``--write-problem`` forgot what the run had left out; so did its plans.

    Variants that have no fastest plan are possible there: the file may be asked for the fewest devices, too.
    """
    problem, plan = tmp_path / "problem.toml", tmp_path / "plan.json"
    of_run = document(solve_command, run_path, "--write-problem", problem)
    of_file = document(solve_command, problem, "-o", plan)
    assert of_run["all_tried"]
    assert of_file["left_out"] == of_run["left_out"]
    assert not of_file["all_tried"]
    assert any("combinations" in line for line in of_file["left_out"])
    assert FASTER in asked(solve_command, problem)
    assert FASTER in asked(certify_command, plan)
    assert FASTER in asked(certify_command, problem)
    again = tmp_path / "again.toml"
    assert document(solve_command, problem, "--write-problem", again)["all_tried"] is False
    assert "left_out = [" in again.read_text()
    problem.write_text(problem.read_text().replace("possible = true", "possible = 3"))
    with pytest.raises(InvalidProblem, match=r"left_out\[[0-9]\].possible: 3; give true or false"):
        asked(solve_command, problem)
