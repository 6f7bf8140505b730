"""The optimality checker confirms optima, refutes anything above them, and agrees with the exhaustive search."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oracle
import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data, read
from random_problems import Size, random_problem

import nest.certificate
from nest.certificate import Outcome, check
from nest.certificate.choices import OuterChoices, TimeUp
from nest.certificate.closure import Question, _Closure, _Limits
from nest.evaluate import evaluate
from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem
from nest.solve import solve
from nest.units import HARD_LIMIT

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


@pytest.mark.parametrize("preset", [ARTIFACT, PAPER], ids=lambda preset: preset.name)
def test_counts_every_outer_choice(preset: Preset) -> None:
    """Of a proof every outer choice is accounted for, once, whichever argument ruled it out."""
    for seed in range(5000, 5030):
        problem = random_problem(seed, SMALL).with_preset(preset)
        verdict = check(problem, solve(problem).objective_ticks or HARD_LIMIT)
        assert verdict.holds
        assert verdict.settled == verdict.choices
        assert len({(each.variant, each.stages, each.replicas) for each in verdict.closed}) == len(verdict.closed)


def test_deadline() -> None:
    """A deadline that has passed settles nothing; one that never comes changes nothing."""
    problem = random_problem(5001, SMALL)
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    stopped = check(problem, optimum, deadline=time.perf_counter())
    assert (stopped.outcome, stopped.settled, stopped.better) == (Outcome.UNDECIDED, 0, None)
    assert stopped.choices > 0
    assert check(problem, optimum, deadline=time.perf_counter() + 3600).holds


def test_deadline_within_a_closure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the deadline comes, no claim is called proven, and what was settled before is still known."""
    problem = random_problem(5015, SMALL)
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    settled = set()
    for patience in range(1000):
        times = iter(range(patience))
        monkeypatch.setattr(OuterChoices, "watch", lambda _, times=times: _stop_at_the_end(times))
        verdict = check(problem, optimum)
        if verdict.holds:
            break
        assert verdict.outcome is Outcome.UNDECIDED
        assert verdict.settled < verdict.choices
        settled.add(verdict.settled)
    assert verdict.holds
    assert len(settled) > 2


def _stop_at_the_end(times: Iterator[int]) -> None:
    if next(times, None) is None:
        raise TimeUp


def _forget_last(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: method(*arguments)[:-1]


def _one_more(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: method(*arguments) + 1


def _one_less(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: method(*arguments) - 1


def _top_alone(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: method(*arguments)[-1:]


MUTATIONS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "a group of strides is forgotten": (Question, "_alike", _forget_last),
    "windows are one layer too short": (_Closure, "window", _forget_last),
    "stages fit one microbatch less": (_Limits, "most", _one_less),
    "too many blocks are asked for": (OuterChoices, "fewest_blocks", _one_more),
    "the mean is one tick too high": (OuterChoices, "_least_load", _one_more),
    "the least sync is one tick too high": (OuterChoices, "_least_sync", _one_more),
    "one number of replicas is forgotten": (OuterChoices, "fewest_replicas", _forget_last),
    "a level is forgotten": (OuterChoices, "_levels_from", _top_alone),
}
"""Faults that make the checker rule out too much."""


@pytest.mark.parametrize("fault", MUTATIONS)
def test_a_wrong_closure_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that rules out too much confirms a claim that is too high, on one of the problems above at least."""
    owner, name, wrong = MUTATIONS[fault]
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    with pytest.raises(AssertionError):
        _confirm_all(range(5000, 5080))


def _confirm_all(seeds: range) -> None:
    for seed in seeds:
        for preset in (ARTIFACT, PAPER):
            problem = random_problem(seed, SMALL).with_preset(preset)
            objective = solve(problem).objective_ticks
            if objective is not None:
                confirm(problem, objective)


def test_shares_no_code_with_solvers() -> None:
    """The checker imports nothing from a solver."""
    modules = set()
    for file in Path(nest.certificate.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "nest.tables" in modules
    assert not [module for module in modules if module and module.startswith(("nest.dp", "nest.solve", "nest.milp"))]
