"""The original solver's own 30 inputs: the true optimum of each under its own evaluation, and what the paper means."""

from __future__ import annotations

import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data, read

from nest.evaluate import evaluate
from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve

OPTIMA = read("optimum_no_zero.json")
NO_ZERO = frozenset({0})
ANY_ZERO = frozenset({0, 1, 2, 3})

pytestmark = needs_artifact_data
each_input = pytest.mark.parametrize("name", sorted(OPTIMA))


def read_input(name: str) -> Problem:
    """Read one of the inputs."""
    return read_problem(ARTIFACT_DATA / "inputs" / f"{name}.json")


def solved(problem: Problem) -> Result:
    """Solve, and assert that the judge finds the plan legal and values it the same, to the tick."""
    result = solve(problem)
    assert result.status is Status.OPTIMAL, result.reason
    assert result.plan is not None
    verdict = evaluate(problem, result.plan)
    assert verdict.legal, verdict.violations
    assert verdict.objective_ticks == result.objective_ticks == result.bound_ticks
    return result


@each_input
def test_optimum_under_the_artifacts_own_evaluation(name: str) -> None:
    """Without ZeRO the value is that of an exact method independent of the artifact and of this project."""
    result = solved(read_input(name).with_preset(ARTIFACT).with_choices(zero=NO_ZERO))
    assert result.objective == pytest.approx(OPTIMA[name]["value"], rel=1e-9)


@each_input
def test_zero_never_makes_the_best_plan_worse(name: str) -> None:
    """Under preset paper every plan without ZeRO is still a choice when ZeRO is one."""
    problem = read_input(name).with_preset(PAPER)
    without = solved(problem.with_choices(zero=NO_ZERO))
    free = solved(problem.with_choices(zero=ANY_ZERO))
    assert free.objective_ticks is not None
    assert without.objective_ticks is not None
    assert free.objective_ticks <= without.objective_ticks
