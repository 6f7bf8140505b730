"""Runs the command line, on a small problem in a file, and takes apart what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nest.cluster import Cluster, Level
from nest.files import write_plan, write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan
from nest.problem import Problem, Training, Variant
from nest.solve import solve

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = [sys.executable, "-c", "from nest.cli import main; main()"]
INHERITED = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NEST"))}
ENVIRONMENT = {**INHERITED, "PYTHONPATH": str(ROOT)}
"""Without settings of the developer's own: unbuffered output, for one, hides what a broken pipe leaves in a buffer."""


def chain(layers: int = 4) -> Problem:
    """Return a chain of equal layers on four devices."""
    nodes = tuple(Layer(at, 1.0, 2.0, 10, 5) for at in range(layers))
    edges = tuple(Edge(at, at + 1, 100) for at in range(layers - 1))
    graph = LayerGraph(nodes, edges)
    return Problem("small", {Variant(1): graph}, Cluster(4, 1000, (Level(4, 1e3, 0.0),)), Training(8))


@pytest.fixture
def problem_path(tmp_path: Path) -> Path:
    """Return a file with a problem that has a plan."""
    path = tmp_path / "problem.toml"
    write_problem(chain(), path)
    return path


@pytest.fixture
def hopeless_path(tmp_path: Path) -> Path:
    """Return a file with a problem that has none: no layer fits."""
    path = tmp_path / "hopeless.toml"
    write_problem(replace(chain(), cluster=Cluster(4, 1, (Level(4, 1e3, 0.0),))), path)
    return path


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    """Return a file with the best plan."""
    path = tmp_path / "plan.json"
    write_plan(best_plan(), path)
    return path


def best_plan() -> Plan:
    """Return the best plan of the chain, judged."""
    plan = solve(chain()).plan
    assert plan is not None
    return plan


def nest(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program as a process of its own, with both streams piped."""
    command = [*PROGRAM, *map(str, arguments)]
    settings = {"env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 600}
    return subprocess.run(command, check=False, **{**settings, **options})


def one_object(text: str) -> dict[str, Any]:
    """Parse a text that is one JSON object and nothing else."""
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a failed command printed: one line on standard error, nothing on standard output."""
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("nest: ")
    assert streams.err.count("\n") == 1
    return streams.err
