"""The optimality checker confirms optima, refutes anything above them, and agrees with the exhaustive search."""

from __future__ import annotations

import ast
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracle
import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data, read
from injected import Fault, noticed, plus, time_is_up_after, without_last
from pace import is_within
from random_constraints import COUPLING_KINDS, LOCAL_KINDS, random_constraints
from random_problems import Size, random_problem
from seeds import seeds

import nest.certificate
from nest.certificate import Outcome, check
from nest.certificate.choices import OuterChoices
from nest.certificate.closure import Closure
from nest.certificate.family import Setting
from nest.certificate.stages import Stages
from nest.cost.scale import scale_of
from nest.evaluate import evaluate
from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem
from nest.solve import solve
from nest.units import HARD_LIMIT

SMALL = Size(layers=5, devices=16)
PLACE_KINDS = ("within_level", "pin")
NO_ZERO, ANY_ZERO = frozenset({0}), frozenset({0, 1, 2, 3})


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
@pytest.mark.parametrize("seed", seeds(40, 80, first=5000))
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


@needs_artifact_data
@pytest.mark.parametrize("name", ["h100_spineLeaf__llama3_128", "h100_spineLeaf__bertlarge_256"])
def test_many_outer_choices_close_to_the_optimum(name: str) -> None:
    """The inputs on which load, synchronisation and places are traded the most."""
    problem = read_problem(ARTIFACT_DATA / "inputs" / f"{name}.json").with_preset(PAPER)
    objective = solve(problem).objective_ticks
    assert objective is not None
    confirm(problem, objective)


@pytest.mark.slow
@needs_artifact_data
@pytest.mark.parametrize("zero", [NO_ZERO, ANY_ZERO], ids=["none", "free"])
@pytest.mark.parametrize("preset", [ARTIFACT, PAPER], ids=lambda preset: preset.name)
@pytest.mark.parametrize("name", read("optimum_no_zero.json"))
def test_all_artifact_inputs(name: str, preset: Preset, zero: frozenset[int]) -> None:
    """Each optimum is confirmed within five seconds of the processor's time, and what is higher refuted."""
    problem = read_problem(ARTIFACT_DATA / "inputs" / f"{name}.json").with_preset(preset).with_choices(zero=zero)
    objective = solve(problem).objective_ticks
    assert objective is not None
    assert is_within(5, lambda: check(problem, objective))
    confirm(problem, objective)


@pytest.mark.parametrize("preset", [ARTIFACT, PAPER], ids=lambda preset: preset.name)
@pytest.mark.parametrize("kinds", [LOCAL_KINDS, PLACE_KINDS], ids=["all", "by place"])
def test_side_constraints(kinds: tuple[str, ...], preset: Preset) -> None:
    """Local constraints are kept exactly: the best plan that keeps them is confirmed, and found."""
    feasible = 0
    for seed in range(5000, 5030):
        problem = random_problem(seed, SMALL).with_preset(preset)
        problem = problem.with_constraints(*random_constraints(seed, problem, kinds))
        objective = solve(problem).objective_ticks
        if objective is None:
            assert check(problem, HARD_LIMIT).holds
        else:
            confirm(problem, objective)
            feasible += 1
    assert feasible >= 10


def test_coupling_constraints() -> None:
    """No plan that breaks a coupling constraint refutes a claim, and none that is too high is proven."""
    outcomes = Counter[Outcome]()
    for seed in range(5000, 5060):
        problem = random_problem(seed, SMALL)
        problem = problem.with_constraints(*random_constraints(seed, problem, COUPLING_KINDS))
        best = oracle.best(problem, scale_of(problem).time.exponent).plan
        objective = evaluate(problem, best).objective_ticks if best else HARD_LIMIT
        assert objective is not None
        claimed = check(problem, objective)
        assert claimed.outcome is not Outcome.REFUTED
        outcomes[claimed.outcome] += 1
        if best is not None:
            above = check(problem, objective + 1)
            assert above.outcome is not Outcome.PROVEN
            assert above.better is None or evaluate(problem, above.better).legal
    assert outcomes[Outcome.PROVEN] > 20
    assert outcomes[Outcome.UNDECIDED] > 0


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
        monkeypatch.setattr(OuterChoices, "watch", time_is_up_after(patience))
        verdict = check(problem, optimum)
        if verdict.holds:
            break
        assert verdict.outcome is Outcome.UNDECIDED
        assert verdict.settled < verdict.choices
        settled.add(verdict.settled)
    assert verdict.holds
    assert len(settled) > 2


def _each_one_more(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: [row + 1 for row in method(*arguments)]


MUTATIONS: dict[str, Fault] = {
    "a height of the replicas is forgotten": (Setting, "families", without_last),
    "half of a family is forgotten": (Setting, "parts", without_last),
    "half of the synchronisations is forgotten": (Setting, "_by_sync", without_last),
    "the cap on loads is one tick too low": (Setting, "load_cap", plus(-1)),
    "every stage synchronises one tick longer": (Setting, "sync", plus(1)),
    "every stage takes one tick longer": (Stages, "load", plus(1)),
    "stages fit one microbatch less": (Closure, "_usable", plus(-1)),
    "too many blocks are asked for": (Closure, "fewest", _each_one_more),
    "the mean is one tick too high": (OuterChoices, "_least_load", plus(1)),
    "the least sync is one tick too high": (OuterChoices, "least_sync", plus(1)),
    "one number of replicas is forgotten": (OuterChoices, "fewest_replicas", without_last),
}
"""Faults that make the checker rule out too much."""


@pytest.mark.parametrize("fault", MUTATIONS)
def test_a_wrong_closure_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that rules out too much confirms a claim that is too high, on one of the problems above at least."""
    noticed(MUTATIONS[fault], monkeypatch, _confirm_all)


def _confirm_all() -> None:
    for seed in range(5000, 5080):
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
