"""The scripts of `benchmarks/`: their helpers compute what they say, and each script starts."""

from __future__ import annotations

import json
import math
import runpy
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nest.presets import ARTIFACT

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(path.name for path in BENCHMARKS.glob("*.py") if "def parser" in path.read_text())

sys.path.insert(0, str(BENCHMARKS))  # scripts import each other as they do when they run

import artifact_inputs  # noqa: E402
import fill_index  # noqa: E402
import long_chain  # noqa: E402
import measure  # noqa: E402
import reduced_memory  # noqa: E402


def run_of(name: str, code: int, wall_s: float = 2.0, build: str = "-O3") -> dict[str, Any]:
    """Return a run of the original solver as its file has it."""
    return {"input": name, "build": build, "wall_s": wall_s, "exit": code}


def test_there_are_scripts() -> None:
    """None of the tests below is empty."""
    assert len(SCRIPTS) >= 4


@pytest.mark.parametrize("script", [*SCRIPTS, "make_instances.py"])
def test_help(script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each script starts and says what it does."""
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.syspath_prepend(BENCHMARKS)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage:")


def test_script_starts_by_itself() -> None:
    """So does one in a process of its own, where nothing is imported before."""
    done = measure.in_process([sys.executable, str(BENCHMARKS / SCRIPTS[0]), "--help"], 600)
    assert done.exit == 0
    assert done.output.startswith("usage:")


def test_geometric_mean() -> None:
    """A root of a product; none of nothing."""
    assert measure.geometric_mean([1, 10, 100]) == pytest.approx(10)
    assert measure.geometric_mean([]) is None


def test_growth_exponent() -> None:
    """The exponent of a power, whatever its factor."""
    assert measure.growth_exponent([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert measure.growth_exponent([4, 4], [1, 2]) is None


def test_best_of() -> None:
    """All runs count, up to the budget of time."""
    calls = count(1)
    seconds, answer = measure.best_of(3, lambda: next(calls))
    assert answer == 3
    assert 0 <= seconds < 1
    _, answer = measure.best_of(3, lambda: next(calls), budget_s=-1)
    assert answer == 4


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (measure.Target("fast", 0.3, 0.3, "s"), "PASS"),
        (measure.Target("fast", 0.31, 0.3, "s"), "FAIL"),
        (measure.Target("ratio", 299.0, 300, at_least=True), "FAIL"),
        (measure.Target("ratio", 301.0, 300, at_least=True), "PASS"),
        (measure.Target("unknown", None, 1), "----"),
    ],
)
def test_targets(target: measure.Target, verdict: str) -> None:
    """A target is met at its limit and on the right side of it, never without a figure."""
    assert target.line().startswith(f"{verdict}  {target.name}: ")


def test_whole_process() -> None:
    """Memory and time are those of the command alone, and its output is its own."""
    done = measure.in_process([sys.executable, "-c", "x = bytearray(50_000_000); print('one'); print('two')"], 600)
    assert done.output == "one\ntwo\n"
    assert done.exit == 0
    assert 50 < done.peak_mb < 100
    assert done.cpu_s > 0


def test_whole_process_ends_at_the_limit() -> None:
    """A command that takes too long is ended, and says so."""
    done = measure.in_process([sys.executable, "-c", "import time; time.sleep(600)"], 0.5)
    assert done.killed
    assert 0.5 <= done.seconds < 300


def test_runs_of_the_original() -> None:
    """The fastest build counts, and of its runs one that ended well."""
    runs = [
        run_of("slow", 0, 9.0, build="as shipped (-O0)"),
        run_of("well", 143, 5.0),
        run_of("well", 0, 4.0),
        run_of("well", 139, 3.0),
        run_of("killed", 143),
        run_of("crashed", 139),
    ]
    found = artifact_inputs.original_runs(runs)
    assert {name: each.ended for name, each in found.items()} == {
        "well": "well",
        "killed": "killed",
        "crashed": "crashed",
    }
    assert found["well"].wall_s == 4.0


def test_ratios() -> None:
    """A killed run bounds the ratio from below and does not count in the mean; a crashed one says nothing."""
    originals = artifact_inputs.original_runs([run_of("well", 0), run_of("killed", 137), run_of("crashed", 139)])
    seconds = {"well": 0.01, "killed": 0.01, "crashed": 0.01, "unknown": 0.01}
    assert artifact_inputs.ratios(seconds, originals) == [pytest.approx(200)]
    spelt = [originals.get(name, artifact_inputs.NO_RUN).spell(0.01) for name in seconds]
    assert spelt == ["200", "> 200", "crashed", "no run"]


def test_errors_and_gains() -> None:
    """Relative errors and gains, also where one of the two has no plan."""
    assert artifact_inputs.relative_error(2.0, 4.0) == 0.5
    assert artifact_inputs.relative_error(None, 4.0) == math.inf
    assert artifact_inputs.relative_error(2.0, None) is None
    assert artifact_inputs.gain(1.01, 1.0) == pytest.approx(10)
    assert artifact_inputs.gain(None, 1.0) == math.inf
    assert artifact_inputs.gain(1.0, None) is None


def test_long_chain() -> None:
    """A case becomes the problem that it describes, the same each time, and its text describes it again."""
    case = long_chain.Case(layers=12, fanouts=(2, 3), microbatches=7, fit=6.0, kinds=2)
    assert long_chain.case_of(case.text) == case
    problem = long_chain.problem_of(case)
    assert problem == long_chain.problem_of(case)
    assert problem.preset == ARTIFACT
    assert problem.cluster.devices == case.devices == 6
    times = [layer.forward_s for graph in problem.graphs.values() for layer in graph.layers]
    assert len(times) == 12
    assert times == times[:2] * 6
    assert len(set(times)) == 2
    assert long_chain.solve_case(case)["status"] == "optimal"


def test_random_settings() -> None:
    """They differ, are the same each time, and can be repeated from their text."""
    drawn = long_chain.random_settings(20)
    assert drawn == long_chain.random_settings(20)
    assert len(set(drawn.values())) == 20
    assert [long_chain.case_of(case.text) for case in drawn.values()] == list(drawn.values())


def test_small_steps() -> None:
    """Steps lie between what fits nothing and twice what fits without ZeRO."""

    def pair(memory: int, *statuses: str) -> reduced_memory.Pair:
        plan = reduced_memory.Summary(1, 1, 1, 1, "")
        without, free = (
            reduced_memory.Outcome(reduced_memory.Case("x", memory), status, plan=plan if status == "optimal" else None)
            for status in statuses
        )
        return without, free

    pairs = [
        pair(800, "optimal", "optimal"),
        pair(400, "optimal", "optimal"),
        pair(200, "infeasible", "optimal"),
        pair(100, "infeasible", "infeasible"),
    ]
    steps = reduced_memory.small_steps(pairs)
    assert len(steps) == reduced_memory.STEPS
    assert 100 < min(steps) < 200 < max(steps) < 800


def test_published_plans() -> None:
    """The paper's own plans use as many devices as it says."""
    found = []
    for published in reduced_memory.PUBLISHED:
        problem = reduced_memory.problem_of(reduced_memory.Case(published.instance, published.hbm_bytes))
        found.append(reduced_memory.Summary.of(reduced_memory.published_plan(published, problem)).devices)
    assert found == [641, 980]


def test_less_memory() -> None:
    """Where no layer fits without ZeRO, there is a reason, and with ZeRO a plan."""
    case = reduced_memory.Case("mixtral-8x7b_tpuv4_1024", 16 * reduced_memory.GIB)
    without = reduced_memory.solve_case(replace(case, setting=reduced_memory.NONE))
    assert (without["status"], without["plan"]) == ("infeasible", None)
    assert without["reason"]
    free = reduced_memory.solve_case(case)
    assert free["status"] == "optimal"
    assert "ZeRO-3" in free["plan"]["shardings"]


def test_fill_index(tmp_path: Path) -> None:
    """An entry gets what is proven, and a wrong known optimum is a fault."""
    path = ROOT / "instances" / "llama2-7b_tpuv4_64.toml"
    entry = next(
        each for each in json.loads((ROOT / "instances" / "index.json").read_text()) if each["file"] == path.name
    )
    filled = entry | {"optimum": entry["optimum"] | {"paper": None, "paper_zero": None}}
    assert fill_index.fill(filled, path.parent) == []
    assert filled == entry
    wrong = entry["optimum"]["artifact"] | {"objective_s": 1.0}
    assert len(fill_index.check(path, wrong)) == 1
    (tmp_path / "index.json").write_text(json.dumps([entry]))
    command = [sys.executable, str(BENCHMARKS / "fill_index.py"), "--instances", str(tmp_path), "--only", "none"]
    done = measure.in_process(command, 60)
    assert done.exit == 0
    assert json.loads((tmp_path / "index.json").read_text()) == [entry]
