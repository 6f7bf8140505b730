"""The optimality checker confirms optima, refutes anything above them, and agrees with the exhaustive search."""

from __future__ import annotations

import ast
from pathlib import Path

import oracle
import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data, read
from random_problems import Size, random_problem

import nest.certificate
from nest.certificate import check
from nest.evaluate import evaluate
from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem
from nest.solve import solve

SMALL = Size(layers=5, devices=16)


def confirm(problem: Problem, optimum: int) -> None:
    """Assert that the optimum is confirmed, and that a claim one tick higher is refuted by a plan with the optimum."""
    assert check(problem, optimum).holds
    refuted = check(problem, optimum + 1)
    assert not refuted.holds
    assert refuted.better is not None
    verdict = evaluate(problem, refuted.better)
    assert verdict.legal
    assert verdict.objective_ticks == optimum


@pytest.mark.parametrize("preset", [ARTIFACT, PAPER], ids=lambda preset: preset.name)
@pytest.mark.parametrize("seed", range(5000, 5080))
def test_random_problems(seed: int, preset: Preset) -> None:
    """The checker's answer is that of the exhaustive search, with which it shares no code."""
    problem = random_problem(seed, SMALL).with_preset(preset)
    result = solve(problem)
    best = oracle.best(problem, result.time.exponent)
    if best.plan is None:
        assert check(problem, 2**62).holds
    else:
        judged = evaluate(problem, best.plan).objective_ticks
        assert judged is not None
        confirm(problem, judged)


@needs_artifact_data
@pytest.mark.parametrize("name", read("faults/optimum.json"))
def test_faults(name: str) -> None:
    """The optima of the small inputs that show the original's faults are confirmed with ZeRO free."""
    problem = read_problem(ARTIFACT_DATA / "faults" / f"{name}.json")
    objective = solve(problem).objective_ticks
    assert objective is not None
    confirm(problem, objective)


@needs_artifact_data
@pytest.mark.parametrize("name", read("optimum_no_zero.json"))
def test_artifact_inputs(name: str) -> None:
    """The optima of the original solver's inputs are confirmed without ZeRO under preset artifact."""
    path = ARTIFACT_DATA / "inputs" / f"{name}.json"
    problem = read_problem(path).with_preset(ARTIFACT).with_choices(zero=frozenset({0}))
    objective = solve(problem).objective_ticks
    assert objective is not None
    assert check(problem, objective).holds
    assert not check(problem, objective + 1).holds


def test_shares_no_code_with_solvers() -> None:
    """The checker imports nothing from a solver."""
    tree = ast.parse(Path(nest.certificate.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [module for module in modules if module and module.startswith(("nest.dp", "nest.solve", "nest.milp"))]
