"""The problems of `instances/`: described by the index, and equal to the inputs that they come from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data

from nest.files import apply_settings, problem_schema, read_problem
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem
from nest.result import Status
from nest.runs import contenders, read_run
from nest.solve import solve

ROOT = Path(__file__).resolve().parents[1]
INSTANCES = ROOT / "instances"
INDEX: list[dict[str, Any]] = json.loads((INSTANCES / "index.json").read_text())

PROBLEMS = [entry for entry in INDEX if "default" not in entry["optimum"]]
RUNS = [entry for entry in INDEX if "default" in entry["optimum"]]

each_instance = pytest.mark.parametrize("entry", PROBLEMS, ids=lambda entry: entry["file"])
each_run = pytest.mark.parametrize("entry", RUNS, ids=lambda entry: entry["file"])


def input_of(entry: dict[str, Any]) -> str:
    """Return the name of the original solver's input that an instance comes from, which its source ends with."""
    return str(entry["source"].rpartition(" input ")[2])


def without_names(problem: Problem) -> Problem:
    """Return a problem without what only people read, its objective in seconds."""
    cluster = replace(
        problem.cluster, name="", levels=tuple(replace(level, name="") for level in problem.cluster.levels)
    )
    graphs = {
        variant: replace(graph, layers=tuple(replace(layer, kind="") for layer in graph.layers))
        for variant, graph in problem.graphs.items()
    }
    return replace(problem, name="", source="", cluster=cluster, graphs=graphs, time_unit_s=1.0)


def test_index_is_complete() -> None:
    """The index names every file, in order, and no other: five models at five sizes, five on H100, and runs."""
    assert [entry["file"] for entry in INDEX] == sorted(path.name for path in INSTANCES.glob("*.toml"))
    files = [entry["file"] for entry in PROBLEMS]
    assert sum("_tpuv4_" in file for file in files) == 25
    assert sum("_h100_" in file for file in files) == 5


@each_instance
def test_index_describes(entry: dict[str, Any]) -> None:
    """The index agrees with the file, which fits the published schema."""
    path = INSTANCES / entry["file"]
    problem = read_problem(path)
    assert problem.name == path.stem
    assert problem.cluster.devices == entry["devices"] == int(path.stem.rpartition("_")[2])
    assert entry["source"].startswith(problem.source)
    assert entry["optimum"].keys() == {"artifact", "paper", "paper_zero"}
    assert path.read_text().startswith(f"# {entry['model']} on {entry['devices']} ")
    jsonschema.validate(tomllib.loads(path.read_text()), problem_schema())


@each_instance
@pytest.mark.parametrize(
    ("name", "preset", "settings"),
    [("artifact", ARTIFACT, ["zero=none"]), ("paper", PAPER, ["zero=none"]), ("paper_zero", PAPER, ["zero=any"])],
    ids=["artifact", "paper", "paper_zero"],
)
def test_optimum_is_reproduced(entry: dict[str, Any], name: str, preset: Preset, settings: list[str]) -> None:
    """The solver proves each optimum that the index states, under the settings stated with it."""
    optimum = entry["optimum"][name]
    assert optimum["settings"] == settings
    result = solve(apply_settings(read_problem(INSTANCES / entry["file"]).with_preset(preset), settings))
    assert result.status is Status.OPTIMAL
    assert result.objective_s == pytest.approx(optimum["objective_s"], rel=1e-9)


@each_run
def test_index_describes_runs(entry: dict[str, Any]) -> None:
    """The index agrees with the file, and says where shape and sizes are from."""
    path = INSTANCES / entry["file"]
    run = read_run(path)
    assert run.name == path.stem
    assert run.hardware.cluster.devices == entry["devices"]
    assert path.stem.endswith((f"_{entry['devices']}", "_two_buildings"))
    assert run.source == entry["source"]
    assert run.model.name == entry["model"]
    assert path.read_text().startswith(f"# {entry['model']} on {entry['devices']} ")
    assert tomllib.loads(path.read_text())["model"]["source"].startswith("arXiv ")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(each, marks=[pytest.mark.slow] if each["devices"] > 64 else [], id=each["file"])
        for each in RUNS
        if each["optimum"]["default"]  # what is not proven yet has nothing to reproduce
    ],
)
def test_optimum_of_a_run_is_reproduced(entry: dict[str, Any]) -> None:
    """The solver proves the optimum of each run, and finds the plan that the index states."""
    result = solve(contenders(read_run(INSTANCES / entry["file"])).problem)
    known, plan = entry["optimum"]["default"], result.plan
    assert result.status is Status.OPTIMAL
    assert plan is not None
    assert result.objective_s == pytest.approx(known["objective_s"], rel=1e-9)
    assert len(plan.stages) == known["plan"]["stages"]
    assert plan.replicas == known["plan"]["replicas"]


@needs_artifact_data
@each_instance
def test_equal_to_the_input(entry: dict[str, Any]) -> None:
    """An instance is, but for names, the problem of the original solver's input."""
    problem = read_problem(INSTANCES / entry["file"])
    original = read_problem(ARTIFACT_DATA / "inputs" / input_of(entry))
    assert without_names(problem) == without_names(original)


@needs_artifact_data
@each_instance
def test_optimum_of_the_index(entry: dict[str, Any]) -> None:
    """The optimum in the index is the known one, in seconds instead of milliseconds."""
    optimum = json.loads((ARTIFACT_DATA / "optimum_no_zero.json").read_text())[Path(input_of(entry)).stem]
    assert entry["optimum"]["artifact"] == {"settings": ["zero=none"], "objective_s": optimum["value"] / 1000}


@needs_artifact_data
def test_written_by_the_script(tmp_path: Path) -> None:
    """The script writes exactly what is committed, and keeps the optima that the index has."""
    shutil.copy(INSTANCES / "index.json", tmp_path)
    script = [sys.executable, "benchmarks/make_instances.py", str(ARTIFACT_DATA / "inputs"), "--out", str(tmp_path)]
    subprocess.run(script, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    for name in ["index.json", *(entry["file"] for entry in PROBLEMS)]:
        assert (tmp_path / name).read_bytes() == (INSTANCES / name).read_bytes(), name
    assert len(list(tmp_path.iterdir())) == len(PROBLEMS) + 1
