"""Files that are of another kind than a command takes: one line says what each is, and who takes it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nest.cli.certify import certify_command
from nest.cli.evaluate import evaluate_command
from nest.cli.export import export_command
from nest.cli.report import report_command
from nest.cli.show import show_command
from nest.cli.simulate import simulate_command
from nest.cli.solve import solve_command
from nest.errors import InvalidProblem
from nest.files.kinds import KINDS

GRAPH = '{"schema": "nest.dag.result/1", "problem": "bert", "preset": "piper", "stages": []}'
SPLIT = '{"maxSizePerFPGA": 1, "maxFPGAs": 1, "maxCPUs": 0, "nodes": [NODE], "edges": []}'
NODE = '{"id": 1, "supportedOnFpga": 1, "cpuLatency": 1, "fpgaLatency": 1, "isBackwardNode": 0}'
COMMANDS = (
    (simulate_command, ("FILE",)),
    (evaluate_command, ("FILE",)),
    (show_command, ("FILE",)),
    (certify_command, ("FILE",)),
    (solve_command, ("FILE",)),
    (report_command, ("FILE", "--json")),
    (export_command, ("FILE", "--to", "megatron")),
)


def refused(command: click.Command, arguments: tuple[str, ...], path: Path) -> str:
    """Return what a command says of a file that it does not take."""
    typed = [str(path) if each == "FILE" else each for each in arguments]
    error = CliRunner().invoke(command, typed, standalone_mode=False).exception
    assert isinstance(error, InvalidProblem)
    return str(error)


@pytest.mark.parametrize(("command", "arguments"), COMMANDS, ids=lambda each: getattr(each, "name", ""))
def test_answers_about_graphs(command: click.Command, arguments: tuple[str, ...], tmp_path: Path) -> None:
    """The answer of ``nest solve`` about a graph had an unknown key "preset"."""
    path = tmp_path / "dag.json"
    path.write_text(GRAPH)
    said = refused(command, arguments, path)
    assert said.startswith(f'{path}: schema: "nest.dag.result/1": an answer of nest solve about a graph with branches')
    assert "its stages, loads and bound stand in it" in said


def test_graph_in_the_place_of_a_plan(tmp_path: Path) -> None:
    """An input of an earlier planner was a plan without a schema."""
    path = tmp_path / "graph.json"
    path.write_text(SPLIT.replace("NODE", NODE))
    said = refused(evaluate_command, ("FILE",), path)
    what = "an input of dnn-partitioning, a graph with branches"
    assert said == f"{path}: {what}; nest solve and nest show take it, other commands do not"


@pytest.mark.parametrize("schema", sorted(set(KINDS) - {"nest.problem", "nest.run", "nest.captured", "nest.layers"}))
def test_no_problem(schema: str, tmp_path: Path) -> None:
    """Every other file of ours is named, in JSON and in TOML."""
    path = tmp_path / "file"
    for text in (f'{{"schema": "{schema}/1", "x": 1}}', f'schema = "{schema}/1"\nx = 1\n'):
        path.write_text(text)
        said = refused(solve_command, ("FILE",), path)
        kind = KINDS[schema]
        what = f'schema: "{schema}/1": {kind.name}, not a problem'
        assert said == f'{path}: {what}; give a problem ("nest.problem/1"); {kind.use}'


def test_every_schema_is_known() -> None:
    """A kind of file that is added has a line."""
    package = Path(__file__).resolve().parents[1] / "nest"
    written = {name for file in package.rglob("*.py") for name in re.findall(r'"(nest\.[a-z.]+)/1"', file.read_text())}
    assert written - {"nest.ablation.journal"} == set(KINDS)
