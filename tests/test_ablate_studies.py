"""Studies of blinded solvers: sweeps, the journal, processes, and what the command prints, writes and refuses."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ablate_problems import ONE_LAYER, TWO_LEVELS, UNSHARDED, problem_of, timeless

from nest.ablate import BLINDINGS, FULL, Row, ablate, apply_point, digest, points_of
from nest.ablate.sweeps import parse_sweeps
from nest.ablate.tasks import Task, perform
from nest.cli import run
from nest.cluster import Level
from nest.constraints import EqualStages
from nest.errors import InvalidProblem
from nest.files import read_problem, write_problem
from nest.presets import ARTIFACT
from nest.problem import Problem, Variant
from nest.result import Status
from nest.solve import solve

ROOT = Path(__file__).resolve().parents[1]


def test_points_are_all_combinations() -> None:
    """The last key varies fastest, and without sweeps there is one point."""
    assert points_of({"a": [1, 2.5], "b": ["x"]}) == [(("a", "1"), ("b", "x")), (("a", "2.5"), ("b", "x"))]
    assert points_of({}) == [()]
    assert parse_sweeps(["zero=0;0,3", "hbm_gb=1, 2"]) == {"zero": ["0", "0,3"], "hbm_gb": ["1", " 2"]}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("hbm_gb", "0.5", {"hbm_bytes": 500_000_000}),
        ("hbm_gib", "2", {"hbm_bytes": 2**31}),
        ("devices", "3", {"devices": 3, "partial": True}),
        ("devices", "4", {"devices": 4, "partial": False}),
        ("bandwidth_x", "2", {"bandwidths": [200.0, 2.0]}),
        ("level.rack.bandwidth_x", "2", {"bandwidths": [100.0, 2.0]}),
        ("level[0].bandwidth_gb_per_s", "0.5", {"bandwidths": [5e8, 1.0]}),
        ("level.1.latency_us", "3", {"latencies": [0.0, 3e-6]}),
        ("latency_x", "0", {"latencies": [0.0, 0.0]}),
        ("microbatches", "9", {"microbatches": 9}),
        ("preset", "artifact", {"preset": "artifact"}),
        ("zero", "0,3", {"zero": {0, 3}}),
    ],
    ids=str,
)
def test_every_key_changes_its_figure(key: str, value: str, expected: dict[str, object]) -> None:
    """Each key changes what it names, exactly, and a point changes nothing else."""
    changed = apply_point(ONE_LAYER, ((key, value),))
    cluster = changed.cluster
    figures = {
        "hbm_bytes": cluster.hbm_bytes,
        "devices": cluster.devices,
        "partial": cluster.partial,
        "bandwidths": [level.bandwidth_bytes_per_s for level in cluster.levels],
        "latencies": [level.latency_s for level in cluster.levels],
        "microbatches": changed.training.microbatches,
        "preset": changed.preset.name,
        "zero": changed.choices.zero,
    }
    before = {"hbm_bytes": 1000, "devices": 4, "partial": False, "bandwidths": [100.0, 1.0], "latencies": [0.0, 0.0]}
    before |= {"microbatches": 4, "preset": "paper", "zero": {0}}
    assert figures == before | expected


def journaled(problem: Problem, path: Path) -> tuple[Row, ...]:
    """Return a study of two points that keeps a journal."""
    return ablate(problem, ["memory", "topology"], {"hbm_gb": [1, 2]}, journal=path)


def test_a_journal_spares_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run computes nothing and gives the same rows; one that lost its last row computes that one alone."""
    path = tmp_path / "study.jsonl"
    rows = journaled(ONE_LAYER, path)
    whole = path.read_text()
    done: list[Task] = []

    def counted(task: Task) -> Any:
        done.append(task)
        return perform(task)

    monkeypatch.setattr("nest.ablate.study.perform", counted)
    assert journaled(ONE_LAYER, path) == rows
    assert done == []
    for cut in (20, 1):  # in the middle of the last row, and right before its end of line
        path.write_text(whole[:-cut])
        done.clear()
        again = journaled(ONE_LAYER, path)
        assert len(done) == 1
        assert [timeless(row) for row in again] == [timeless(row) for row in rows]
        assert journaled(ONE_LAYER, path) == again
        assert len(done) == 1


def test_an_interrupt_keeps_finished_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was finished before Ctrl-C is in the journal, and the next run goes on from there."""
    problem_path, path, done = tmp_path / "problem.toml", tmp_path / "study.jsonl", list[Task]()
    write_problem(ONE_LAYER, problem_path)

    def interrupted(task: Task) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(task)
        return perform(task)

    monkeypatch.setattr("nest.ablate.study.perform", interrupted)
    arguments = ["ablate", str(problem_path), "--without", "memory,topology,sync", "--resume", str(path)]
    assert run(arguments) == 130
    assert path.read_text().count("\n") == 1 + 2
    monkeypatch.setattr("nest.ablate.study.perform", perform)
    assert run(arguments) == 0
    assert path.read_text().count("\n") == 1 + 4


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("some,other\nfile,1\n", "no journal"),
        ('{"schema":"nest.problem/1"}\n', "no journal"),
        ("cut short", "no journal"),
        ("{head}\nnonsense\n{}", "line 2"),
    ],
)
def test_other_files_are_no_journals(text: str, complaint: str, tmp_path: Path) -> None:
    """A file that is no journal is refused, and left as it is."""
    path = tmp_path / "study.jsonl"
    head = json.dumps({"schema": "nest.ablation.journal/1", "problem": digest(ONE_LAYER)})
    path.write_text(before := text.replace("{head}", head))
    with pytest.raises(InvalidProblem, match=complaint) as refused:
        journaled(ONE_LAYER, path)
    assert refused.value.source == str(path)
    assert path.read_text() == before


def test_the_journal_of_another_problem_is_refused(tmp_path: Path) -> None:
    """Rows of another problem, or of the same one under other settings, are not mixed in."""
    path = tmp_path / "study.jsonl"
    journaled(ONE_LAYER, path)
    with pytest.raises(InvalidProblem, match="another problem"):
        journaled(ONE_LAYER.with_choices(stages=frozenset({1})), path)


def test_digests_tell_problems_apart() -> None:
    """Equal problems have one digest, whatever the order of what has none; every figure counts."""
    graphs = {Variant(1): ONE_LAYER.graphs[Variant(1)], Variant(2): ONE_LAYER.graphs[Variant(1)]}
    both = replace(ONE_LAYER, graphs=graphs)
    assert digest(both) == digest(replace(both, graphs=dict(reversed(graphs.items()))))
    changed = [
        ONE_LAYER.with_choices(zero=frozenset({0, 1})),
        ONE_LAYER.with_preset(ARTIFACT),
        ONE_LAYER.with_constraints(EqualStages()),
        apply_point(ONE_LAYER, (("latency_x", "1"), ("hbm_gb", "1"))),
    ]
    assert len({digest(problem) for problem in [ONE_LAYER, *changed]}) == 5
    assert Task(ONE_LAYER, ONE_LAYER, 1.0).digest() != Task(ONE_LAYER, ONE_LAYER).digest()


def test_processes_give_the_same_rows(tmp_path: Path) -> None:
    """Rows come in their order from however many processes, and all of them are in the journal."""
    path = tmp_path / "study.jsonl"
    alone = ablate(ONE_LAYER, ["memory", "sync"], {"microbatches": [2, 4]})
    reports: list[tuple[int, int]] = []
    shared = ablate(
        ONE_LAYER,
        ["memory", "sync"],
        {"microbatches": [2, 4]},
        jobs=2,
        journal=path,
        report=lambda done, total: reports.append((done, total)),
    )
    assert [timeless(row) for row in shared] == [timeless(row) for row in alone]
    assert reports == [(done, 6) for done in range(7)]
    assert len(path.read_text().splitlines()) == 1 + 6


@pytest.fixture
def problem_path(tmp_path: Path) -> Path:
    """Return a file with the problem of one layer."""
    path = tmp_path / "problem.toml"
    write_problem(ONE_LAYER, path)
    return path


def test_json_and_csv(problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both hold every row, with the same figures; JSON also the plan and what it was made with."""
    table = tmp_path / "rows.csv"
    arguments = ["ablate", str(problem_path), "--without", "memory,topology", "--sweep", "microbatches=2,4"]
    assert run([*arguments, "--csv", str(table), "--json"]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    document = json.loads(streams.out)
    assert document["schema"] == "nest.ablation/1"
    assert document["provenance"].keys() >= {"nest", "python", "numpy"}
    assert list(document["blindings"]) == ["memory", "topology"]
    rows = document["rows"]
    assert [(row["point"]["microbatches"], row["blinding"]) for row in rows] == list(
        product(["2", "4"], [FULL, "memory", "topology"])
    )
    assert rows[5]["ratio"] == 23.15 / 6.1
    assert rows[5]["plan"]["replicas"] == 4
    records = list(csv.DictReader(StringIO(table.read_text())))
    assert [(record["microbatches"], record["blinding"]) for record in records] == list(
        product(["2", "4"], [FULL, "memory", "topology"])
    )
    for row, record in zip(rows, records, strict=True):
        assert (float(record["objective_s"]), float(record["ratio"])) == (row["objective_s"], row["ratio"])
        assert record["replicas"] == str(row["plan"]["replicas"])


def test_text_says_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person reads which stage does not fit, by how much, and what a solver believed."""
    path = tmp_path / "problem.toml"
    write_problem(problem_of(2, (Level(2, 10.0, 0.0),), hbm=30, microbatches=2, zero=UNSHARDED), path)
    assert run(["ablate", str(path), "--without", "memory"]) == 0
    streams = capsys.readouterr()
    text = " ".join(streams.out.split())
    assert "1x1x1 p1 d2 does not fit: stage 0 needs 40 B, a device has 30 B" in text
    assert "Overflow memory: stage 0 by 10 B" in text
    assert "memory: devices have unlimited memory" in text
    assert streams.err == ""


@pytest.mark.parametrize(
    ("sweep", "suffix", "start"),
    [
        ([], "png", b"\x89PNG"),
        (["microbatches=2,4"], "svg", b"<?xml"),
        (["preset=paper,artifact"], "svg", b"<?xml"),
        (["hbm_gb=1,2", "devices=2,4"], "svg", b"<?xml"),
    ],
)
def test_plot(problem_path: Path, tmp_path: Path, sweep: list[str], suffix: str, start: bytes) -> None:
    """A picture of its kind is written, with one point or many, over numbers or names."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"picture.{suffix}"
    options = [word for each in sweep for word in ("--sweep", each)]
    assert run(["ablate", str(problem_path), *options, "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(start)


def test_plot_without_matplotlib(
    problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package one line says how to get it, before anything is solved."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("nest.ablate.study.perform", lambda _: pytest.fail("it was solved first"))
    assert run(["ablate", str(problem_path), "--plot", str(tmp_path / "a.png")]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "pip install matplotlib" in streams.err
    assert streams.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--without", "topolgy"], 'did you mean "topology"?'),
        (["--without", "memory+zeros"], 'did you mean "zero"?'),
        (["--without", "memory,"], "choose among"),
        (["--sweep", "hbm_gbs=3"], 'did you mean "hbm_gb"?'),
        (["--sweep", "level.rak.bandwidth_x=1"], "node, rack"),
        (["--sweep", "level.rack.bandwith_x=1"], 'did you mean "level.rack.bandwidth_x"?'),
        (["--sweep", "level[2].bandwidth_x=1"], "the levels are 0 to 1"),
        (["--sweep", "hbm_gb"], "hbm_gb=16,24,32"),
        (["--sweep", "hbm_gb=1,,2"], "a value is empty"),
        (["--sweep", "hbm_gb=1,1"], '"1" is there twice'),
        (["--sweep", "hbm_gb=1", "--sweep", "hbm_gb=2"], "swept twice"),
        (["--sweep", "hbm_gb=much"], "no number"),
        (["--sweep", "hbm_gb=nan"], "no number"),
        (["--sweep", "hbm_gb=1e99999999999"], "no number"),
        (["--sweep", "hbm_gb=0"], "above 0"),
        (["--sweep", "devices=5"], "the cluster has 4 devices"),
        (["--sweep", "devices=1.5"], "no whole number"),
        (["--sweep", "microbatches=0"], "at least 1"),
        (["--sweep", "bandwidth_x=-1"], "no number"),
        (["--sweep", "zero=7"], "ZeRO types"),
        (["--sweep", "preset=papr"], "paper"),
        (["--plot", "a.pdf"], ".png"),
        (["--csv", "a.csv", "--resume", "a.csv"], "--resume"),
        (["--csv", "no/such/a.csv"], "cannot write"),
        (["--csv", "problem.toml"], "the problem itself"),
        (["-j", "0"], "x>=1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input(
    options: list[str],
    hint: str,
    problem_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is wrong is one line that says what would be right, before anything is solved."""
    monkeypatch.chdir(problem_path.parent)
    monkeypatch.setattr("nest.ablate.study.perform", lambda _: pytest.fail("it was solved first"))
    assert run(["ablate", problem_path.name, *options]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("nest: ")
    assert streams.err.count("\n") == 1
    assert hint in streams.err


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A problem without a plan exits with 3, as one point of a sweep it is a row."""
    path = tmp_path / "problem.toml"
    write_problem(problem_of(1, TWO_LEVELS, hbm=1, zero=UNSHARDED), path)
    assert run(["ablate", str(path), "--without", "zero,memory"]) == 3
    assert "infeasible" in capsys.readouterr().out
    assert run(["ablate", str(path), "--without", "none", "--sweep", "hbm_gb=0.00000001,1"]) == 0
    text = capsys.readouterr().out
    assert "infeasible" in text
    assert "optimal" in text


def test_a_limit_is_no_optimum(monkeypatch: pytest.MonkeyPatch, problem_path: Path) -> None:
    """The limit reaches the solver, a plan that is not proven says so, and none at all exits with 4."""
    limits = []

    def limited(problem: Problem, *, time_limit_s: float | None) -> Any:
        limits.append(time_limit_s)
        return replace(solve(problem), status=Status.UNKNOWN, objective_ticks=None, bound_ticks=None, plan=None)

    monkeypatch.setattr("nest.ablate.tasks.solve", limited)
    assert run(["ablate", str(problem_path), "--without", "none", "--time-limit", "1.5"]) == 4
    assert limits == [1.5]


def test_documentation_shows_what_comes_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table on the page is the one that its command prints."""
    page = (ROOT / "docs" / "ablations.md").read_text(encoding="utf-8")
    monkeypatch.chdir(ROOT)
    command = re.search(r"^\$ nest (ablate instances/.*)$", page, re.MULTILINE)
    shown = re.search(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert command is not None
    assert shown is not None
    assert run(command[1].split()) == 0
    assert capsys.readouterr().out == shown[1]


def test_every_blinding_and_key_is_described() -> None:
    """The page names every blinding, and no other."""
    page = (ROOT / "docs" / "ablations.md").read_text(encoding="utf-8")
    table = page.split("\n## Blindings\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(BLINDINGS)


def test_only_the_plot_loads_matplotlib() -> None:
    """A study without a picture does without the package."""
    script = "import nest.ablate, nest.report.ablation, nest.cli, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_instances_have_rows() -> None:
    """On an instance of the size of a paper a study takes no longer than a person waits."""
    problem = read_problem(ROOT / "instances" / "mixtral-8x7b_h100_128.toml")
    rows = {row.blinding: row for row in ablate(problem, ["memory", "topology"])}
    assert rows["memory"].outcome.overflows
    assert rows["topology"].ratio is not None
    assert rows["topology"].ratio > 1
