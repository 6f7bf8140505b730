"""Plans side by side, and the page on the command line: what is printed, written and refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from page_problems import trained

from nest.cli import run
from nest.evaluate import evaluate
from nest.files import write_plan, write_problem
from nest.plan import Plan
from nest.problem import Problem
from nest.report.compare import Compared, comparison_document, comparison_text, differing
from nest.report.layout import Screen
from nest.solve import solve

INSTANCE = Path(__file__).resolve().parents[1] / "instances" / "gpt3-175b_h100_128.toml"


def best(problem: Problem, **choices: frozenset[int]) -> Plan:
    """Return the best plan of a problem with choices."""
    plan = solve(problem.with_choices(**choices)).plan
    assert plan is not None
    return plan


@pytest.fixture(scope="module")
def pair() -> list[Compared]:
    """Return the best plan of a problem, and that with eight stages."""
    problem = trained()
    plans = (best(problem), best(problem, stages=frozenset({8})))
    assert [len(plan.stages) for plan in plans] == [4, 8]
    return [Compared(f"{at}.json", problem, plan) for at, plan in enumerate(plans)]


def rows(text: str) -> dict[str, tuple[bool, list[str]]]:
    """Return the rows of a comparison by name: whether they are marked, and their cells."""
    table = re.sub(r"s +(<? ?[\d.]+ %)", r"s \1", text.partition("─\n")[2]).splitlines()
    parts = [(line[0] == "≠", [part for part in line[2:].split("  ") if part.strip()]) for line in table]
    return {cells[0].strip(): (marked, [cell.strip() for cell in cells[1:]]) for marked, cells in parts}


def test_rows_that_differ_are_marked(pair: list[Compared]) -> None:
    """Just those, and each has the figures of its own plan."""
    found = rows(comparison_text(pair, Screen()))
    for name, (marked, cells) in found.items():
        assert len(cells) == 2, name
        assert marked == (cells[0] != cells[1]), name
    assert found["Stages"] == (True, [str(len(each.plan.stages)) for each in pair])
    assert found["Devices in use"][1] == [str(each.plan.used_devices) for each in pair]
    assert not found["Sequence parallel"][0]
    assert not found["Microbatch"][0]
    ticks = [each.evaluation.objective_ticks for each in pair]
    assert ticks[0] is not None
    assert ticks[1] is not None
    assert found["against A"][1] == ["+0.00 %", f"{100 * (ticks[1] / ticks[0] - 1):+.2f} %"]


def test_ones_are_no_switches(pair: list[Compared]) -> None:
    """A width of one is a number, and whether the sequence is shared a word."""
    found = rows(comparison_text(pair, Screen()))
    assert found["Context"][1] == ["1", "1"]
    assert found["Sequence parallel"][1] == ["no", "no"]


def test_other_problems_are_said(pair: list[Compared]) -> None:
    """Names aside, what prices plans has to be the same; what they may choose may differ without a warning."""
    problem = pair[0].problem
    renamed = replace(pair[1], problem=replace(problem, name="other", source="elsewhere"))
    assert differing([pair[0], renamed]) == []
    assert "the same for all" in comparison_text([pair[0], renamed], Screen())
    chosen = replace(pair[1], problem=problem.with_choices(stages=frozenset({1})))
    assert differing([pair[0], chosen]) == ["choices"]
    assert "Beware" not in comparison_text([pair[0], chosen], Screen())
    slower = replace(pair[1], problem=replace(problem, training=replace(problem.training, overlap_tax=0.5)))
    assert differing([pair[0], slower]) == ["training"]
    assert "Beware" in comparison_text([pair[0], slower], Screen())


def test_many_plans_are_several_tables(pair: list[Compared]) -> None:
    """No line is wider than the screen, and each plan has its column."""
    text = comparison_text([pair[0], pair[1]] * 4, Screen(80))
    assert max(map(len, text.splitlines())) <= 80
    heads = [line.split() for line in text.splitlines() if re.fullmatch(r" +[A-Z]( +[A-Z])*", line)]
    assert [letter for line in heads for letter in line] == list("ABCDEFGH")


def test_document(pair: list[Compared]) -> None:
    """Programs get what `nest evaluate` says, by plan; nothing in it is no JSON."""
    document = json.loads(json.dumps(comparison_document(pair), allow_nan=False))
    assert document["schema"] == "nest.comparison/1"
    assert document["differing"] == []
    for each, plan in zip(document["plans"], pair, strict=True):
        assert each["objective_ticks"] == plan.evaluation.objective_ticks
        assert each["choices"]["stages"] == len(plan.plan.stages)
        spent = sum(each["iteration"]["spent_s"].values())
        assert spent == pytest.approx(each["iteration"]["iteration_s"])
        for stage in each["stages"]:
            assert sum(stage["load_parts_s"].values()) == pytest.approx(stage["load_s"])
            assert sum(stage["memory_parts_bytes"].values()) == pytest.approx(stage["memory_bytes"])


@pytest.fixture
def files(pair: list[Compared], tmp_path: Path) -> tuple[Path, list[Path]]:
    """Return files of the problem and of both plans, which do not carry it."""
    problem, plans = tmp_path / "problem.toml", [tmp_path / f"plan{at}.json" for at in range(2)]
    write_problem(pair[0].problem, problem)
    for path, each in zip(plans, pair, strict=True):
        write_plan(each.plan, path)
    return problem, plans


def test_command(files: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]) -> None:
    """Plans that carry nothing are judged by --problem; text and JSON; a rule that is broken is exit code 3."""
    problem, plans = files
    assert run(["compare", *map(str, plans), "--problem", str(problem)]) == 0
    assert "≠ Iteration" in capsys.readouterr().out
    assert run(["compare", *map(str, plans), "--problem", str(problem), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["plans"]) == 2
    assert run(["compare", *map(str, plans), "--problem", str(problem), "--set", "stages=1"]) == 3
    assert "Broken   A  stages" in capsys.readouterr().out


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_compare(count: int, files: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]) -> None:
    """One plan alone is no comparison, and a plan without a problem is refused by name."""
    problem, plans = files
    assert run(["compare", *map(str, plans[:count]), "--problem", str(problem)]) == 2
    assert run(["compare", *map(str, plans)]) == 2
    assert "plan0.json" in capsys.readouterr().err.splitlines()[-1]


def test_plans_carry_their_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `nest solve -o` writes is enough for all of it: compare, report, and the pictures for a paper."""
    plans = [tmp_path / "a.json", tmp_path / "b.json"]
    assert run(["solve", str(INSTANCE), "-o", str(plans[0])]) == 0
    assert run(["solve", str(INSTANCE), "--set", "stages=16", "-o", str(plans[1])]) == 0
    capsys.readouterr()
    assert run(["compare", *map(str, plans)]) == 0
    assert "which prices none" in " ".join(capsys.readouterr().out.split())
    page, picture = tmp_path / "page.html", tmp_path / "plan.svg"
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    assert run(["report", str(plans[0]), "-o", str(page), "--svg", str(picture), "--runners-up", "1"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "proven optimal" in text
    assert "nest simulate" in text
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


def test_report_of_a_broken_plan(files: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """It is drawn with what it breaks, and the exit code says so; one without a price is refused."""
    problem, plans = files
    page = tmp_path / "page.html"
    arguments = ["report", str(plans[0]), "--problem", str(problem), "-o", str(page), "--judge-only"]
    assert run([*arguments, "--set", "stages=1"]) == 3
    assert "breaks stages" in page.read_text(encoding="utf-8")


def test_report_as_json(
    files: tuple[Path, list[Path]], pair: list[Compared], capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs get what the page shows: the judge's figures, the pipeline, changes, runners-up and the verdict."""
    problem, plans = files
    assert run(["report", str(plans[0]), "--problem", str(problem), "--json", "--runners-up", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "nest.report/1"
    assert document["objective_ticks"] == pair[0].evaluation.objective_ticks
    assert len(document["pipeline"]["stages"]) == len(document["stages"]) == 4
    assert len(document["changes"]) == 10
    assert len(document["runners_up"]) == 1
    assert document["certificate"]["verdict"] == "optimal"
    assert document["looked_at"] >= len(document["searched"])


def test_report_refuses(
    files: tuple[Path, list[Path]], pair: list[Compared], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing to write, a picture of another kind, a plan without a price: one line each, and no file."""
    problem, plans = files
    start = ["report", str(plans[0]), "--problem", str(problem)]
    assert run(start) == 2
    assert "-o report.html" in capsys.readouterr().err
    assert run([*start, "--png", str(tmp_path / "plan.svg")]) == 2
    assert "is no .png" in capsys.readouterr().err
    assert run([*start, "-o", str(plans[0])]) == 2
    lost = replace(pair[0].plan, stages=pair[0].plan.stages[1:])
    assert evaluate(pair[0].problem, lost).objective_ticks is None
    write_plan(lost, plans[0])
    page = tmp_path / "page.html"
    assert run([*start, "-o", str(page)]) == 2
    assert "cover" in capsys.readouterr().err.splitlines()[-1]
    assert not page.exists()


def test_details_and_runners_up_on_the_command_line(
    files: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands that print a plan show what loads and memory consist of, and the next best choices."""
    problem, plans = files
    options = ["--details", "--runners-up", "2"]
    assert run(["evaluate", str(plans[0]), "--problem", str(problem), *options]) == 0
    judged = capsys.readouterr().out
    assert run(["solve", str(problem), *options]) == 0
    solved = capsys.readouterr().out
    for text in (judged, solved):
        assert "What one microbatch keeps each stage busy with:" in text
        assert "What each device holds:" in text
        assert text.count("The best plans of other widths") == 1
        assert max(map(len, text.splitlines())) <= 100
    assert judged.partition("Problem ")[0] == solved.partition("Problem ")[0]
    for command in (["solve", str(problem)], ["report", str(plans[0]), "--problem", str(problem)]):
        assert run([*command, "--runners-up", "99999"]) == 2
        assert "<=x<=100" in capsys.readouterr().err
    assert run(["solve", str(problem), "--runners-up", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (runner,) = document["runners_up"]
    assert runner["proven"]
    assert runner["objective_ticks"] >= document["objective_ticks"]
