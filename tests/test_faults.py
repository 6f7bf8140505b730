"""Small inputs on which the original solver fails: ours gives the true optimum of each, known by enumeration."""

from __future__ import annotations

import oracle
import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data, read

from nest.evaluate import evaluate
from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve

COLUMNS: dict[str, tuple[Preset, frozenset[int]]] = {
    "artifact": (ARTIFACT, frozenset({0})),
    "paper": (PAPER, frozenset({0})),
    "paper_zero": (PAPER, frozenset({0, 1, 2, 3})),
}
OPTIMA = read("faults/optimum.json")
CASES = [(name, column) for name in OPTIMA for column in COLUMNS]

pytestmark = needs_artifact_data


def problem_of(name: str, column: str) -> Problem:
    """Read an input as one column of the optima reads it."""
    preset, zero = COLUMNS[column]
    problem = read_problem(ARTIFACT_DATA / "faults" / f"{name}.json")
    return problem.with_preset(preset).with_choices(zero=zero)


@pytest.mark.parametrize(("name", "column"), CASES)
def test_true_optimum(name: str, column: str) -> None:
    """The value of the enumeration, by a plan that the judge finds legal and values the same."""
    problem, want = problem_of(name, column), OPTIMA[name][column]["value"]
    result = solve(problem)
    if want is None:
        assert result.status is Status.INFEASIBLE, (name, column, result)
        assert result.plan is None
        return
    assert result.status is Status.OPTIMAL, (name, column, result)
    assert result.objective == pytest.approx(want, rel=1e-9), (name, column, result)
    assert result.plan is not None
    verdict = evaluate(problem, result.plan)
    assert verdict.legal, (name, column, verdict)
    assert verdict.objective_ticks == result.objective_ticks == result.bound_ticks


@pytest.mark.parametrize(("name", "column"), CASES)
def test_reference_reproduces_the_enumeration(name: str, column: str) -> None:
    """The slow reference reads the definition as the enumeration did, in exact fractions of a second."""
    problem, want = problem_of(name, column), OPTIMA[name][column]["value"]
    got = oracle.best(problem, None).objective
    if want is None:
        assert got is None
    else:
        assert got is not None
        assert float(got) / problem.time_unit_s == pytest.approx(want, rel=1e-12), (name, column)
