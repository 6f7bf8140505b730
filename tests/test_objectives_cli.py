"""Objectives beside time on the command line: what is printed and written, and what is refused."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nest.cli import run
from nest.cluster import Cluster, Level
from nest.files import read_plan, write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.objectives import Quantity, frontier, least
from nest.problem import Problem, Training, Variant
from nest.solve import solve

ROOT = Path(__file__).resolve().parents[1]


def chain(layers: int = 4, devices: int = 4) -> Problem:
    """Return a chain of equal layers."""
    nodes = tuple(Layer(at, 1.0, 2.0, 10, 5) for at in range(layers))
    edges = tuple(Edge(at, at + 1, 100) for at in range(layers - 1))
    cluster = Cluster(devices, 1000, (Level(devices, 1e3, 0.0),))
    return Problem("small", {Variant(1): LayerGraph(nodes, edges)}, cluster, Training(8))


@pytest.fixture
def problem_path(tmp_path: Path) -> Path:
    """Return a file with a problem whose front has several points."""
    path = tmp_path / "problem.toml"
    write_problem(chain(layers=6, devices=8), path)
    return path


@pytest.fixture
def hopeless_path(tmp_path: Path) -> Path:
    """Return a file with a problem that has no plan: no layer fits."""
    path = tmp_path / "hopeless.toml"
    write_problem(replace(chain(), cluster=Cluster(4, 1, (Level(4, 1e3, 0.0),))), path)
    return path


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the JSON object that a command printed, and nothing else."""
    streams = capsys.readouterr()
    assert streams.err == ""
    found = json.loads(streams.out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("quantity", ["devices", "memory"])
def test_solve_minimizes(
    quantity: Quantity, problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints, writes and proves what the function returns."""
    answer = least(chain(layers=6, devices=8), quantity, 60)
    asked = ["solve", str(problem_path), "--minimize", quantity, "--time-at-most", "60", "--certify"]
    assert run([*asked, "-o", str(tmp_path / "plan.json")]) == 0
    text = capsys.readouterr().out
    assert "optimal: proven, no plan with" in text
    assert text.count("confirmed by checker") == 2
    assert read_plan(tmp_path / "plan.json") == answer.result.plan
    assert run([*asked, "--json"]) == 0
    printed = document(capsys)
    assert printed["status"] == "optimal"
    minimized = printed["minimized"]
    assert (minimized["least"], minimized["too_little"]) == (answer.size, answer.size_below)
    assert [claim["checked"]["verdict"] for claim in minimized["claims"]] == ["proven", "proven"]
    assert minimized["proven"] is True


def test_throughput_is_a_time(problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Iterations per second ask for the same as the seconds of one."""
    asked = ["solve", str(problem_path), "--minimize", "devices", "--json"]
    assert run([*asked, "--throughput", "0.02"]) == 0
    first = document(capsys)["minimized"]
    assert run([*asked, "--time-at-most", "50"]) == 0
    assert document(capsys)["minimized"] == first


@pytest.mark.parametrize(("quantity", "seconds"), [("devices", "50"), ("memory", "50")])
def test_certify_asks_the_same(
    quantity: str, seconds: str, problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan with the least of something was refuted by plans that take more of it and are faster."""
    plan, better = tmp_path / "plan.json", tmp_path / "better.json"
    assert run(["solve", str(problem_path), "--minimize", quantity, "--time-at-most", seconds, "-o", str(plan)]) == 0
    capsys.readouterr()
    assert run(["certify", str(plan), "--json"]) == 0
    found = document(capsys)
    assert (found["verdict"], found["less"]["outcome"]) == ("optimal", "proven")
    assert run(["certify", str(plan), "--time-only"]) == 1
    capsys.readouterr()
    looser = plan.read_text().replace(f'"time_at_most_s": "{float(seconds)}"', '"time_at_most_s": "1e6"')
    plan.write_text(looser)
    assert run(["certify", str(plan), "-o", str(better)]) == 1
    text = capsys.readouterr().out
    assert "refuted: the plan above does with less" in text
    assert "Less       wrong: with at most" in text
    assert run(["certify", str(better)]) in (0, 1)
    plan.write_text(looser.replace('"minimized": "', '"minimized": "in'))
    assert run(["certify", str(plan)]) == 2
    assert "give devices or memory, and seconds; or --time-only" in capsys.readouterr().err


def test_no_plan_keeps_the_time(problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too little time is infeasible, with the time that the fastest plan takes."""
    asked = ["solve", str(problem_path), "--minimize", "devices", "--time-at-most", "3.2", "--certify"]
    assert run([*asked, "--json"]) == 3
    printed = document(capsys)
    taken = solve(chain(layers=6, devices=8)).objective_s
    assert printed["reason"] == f"no plan takes at most 3.2 s: the fastest takes {taken:.10g} s"
    assert [claim["checked"]["verdict"] for claim in printed["minimized"]["claims"]] == ["proven"]
    assert run(asked) == 3
    assert "Status     infeasible: no plan takes at most 3.2 s" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["solve", "frontier"])
def test_infeasible_problems_are_explained(
    command: str, hopeless_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No plan at all is infeasible, with the conflict; there is nothing to write or draw."""
    options = {
        "solve": ["--minimize", "devices", "--time-at-most", "9"],
        "frontier": ["--plot", str(tmp_path / "a.svg"), "--certify"],
    }
    assert run([command, str(hopeless_path), *options[command]]) == 3
    text = capsys.readouterr().out
    assert "infeasible" in text
    assert "Conflict" in text
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--minimize", "devices"], "takes one of --time-at-most and --throughput"),
        (["--minimize", "memory", "--time-at-most", "1", "--throughput", "1"], "takes one of"),
        (["--time-at-most", "3"], "--time-at-most goes with --minimize devices or memory"),
        (["--throughput", "3"], "--throughput goes with --minimize devices or memory"),
        (["--minimize", "devices", "--time-at-most", "-1"], "-1.0 is not a finite number of seconds above 0"),
        (["--minimize", "devices", "--throughput", "nan"], "not a finite number of iterations per second above 0"),
        (["--minimize", "devices", "--time-at-most", "3", "--backend", "cpsat"], "the dynamic program only"),
        (["--minimize", "energy", "--time-at-most", "3"], "'energy' is not one of"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], complaint: str, problem_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and the code of invalid input."""
    assert run(["solve", str(problem_path), *options]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1
    assert complaint in streams.err


def test_frontier(problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the front, and writes table, picture and plans."""
    pytest.importorskip("matplotlib")
    points = frontier(chain(layers=6, devices=8)).points
    files = ["--csv", str(tmp_path / "a.csv"), "--plot", str(tmp_path / "a.svg"), "-o", str(tmp_path / "plans")]
    assert run(["frontier", str(problem_path), *files, "--certify"]) == 0
    text = capsys.readouterr().out
    assert "complete: proven" in text
    assert f"{len(points) + 1 - (points[0].devices == 1)} of" in text
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [int(row["devices"]) for row in rows] == [point.devices for point in points]
    assert [int(row["objective_ticks"]) for row in rows] == [point.ticks for point in points]
    assert "<svg" in (tmp_path / "a.svg").read_text()
    written = [read_plan(path) for path in sorted((tmp_path / "plans").iterdir())]
    assert written == [point.plan for point in points]


def test_frontier_as_json(problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object under its schema, with plans, claims and versions."""
    points = frontier(chain(layers=6, devices=8)).points
    assert run(["frontier", str(problem_path), "--json", "--certify"]) == 0
    printed = document(capsys)
    assert printed["schema"] == "nest.frontier/1"
    assert printed["complete"] is True
    assert printed["provenance"]["nest"]
    assert [(each["devices"], each["objective_ticks"]) for each in printed["points"]] == [
        (point.devices, point.ticks) for point in points
    ]
    assert all(each["plan"]["schema"] == "nest.plan/1" for each in printed["points"])
    assert {claim["checked"]["verdict"] for claim in printed["claims"]} == {"proven"}


def test_frontier_without_time(problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit that leaves no point is no answer."""
    assert run(["frontier", str(problem_path), "--time-limit", "1e-9"]) == 4
    assert "unknown, no point found yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-o", "README"], "it is no directory"),
        (["-o", "no/where"], "No such file or directory"),
        (["--csv", "no/where.csv"], "No such file or directory"),
        (["--plot", "picture.pdf"], "is no .png and no .svg"),
        (["--csv", "a.svg", "--plot", "a.svg"], "is the file of --csv, too"),
        (["--time-limit", "0"], "not a finite number of seconds above 0"),
    ],
)
def test_files_that_cannot_be_written(
    options: list[str],
    complaint: str,
    problem_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line before anything is solved, and the code of invalid input."""
    monkeypatch.chdir(problem_path.parent)
    Path("README").touch()
    assert run(["frontier", str(problem_path), *options]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1
    assert complaint in streams.err


def shown(language: str) -> list[str]:
    """Return the blocks of a language on the page about objectives."""
    page = (ROOT / "docs" / "objectives.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)


def test_page_shows_what_comes_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary and the front on the page are those of its commands, but for the time that they took."""
    monkeypatch.chdir(ROOT)
    summary, front = shown("text")
    solving, walking = [block.splitlines()[0].removeprefix("$ nest ").split() for block in shown("console")]
    assert run(solving) == 0
    assert set(summary.splitlines()) <= set(capsys.readouterr().out.splitlines())
    assert run(walking) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith("Solver ")
    assert printed[:-1] == front.splitlines()[:-1]
