"""The inputs of dnn-partitioning and Piper: every proven optimum, and what the judge says to plans of others."""

from __future__ import annotations

from typing import Any

import pytest
from ancestors_data import case_name, needs_ancestors, optima, problem_of

from nest.dag import DagStage, judge, solve_dag
from nest.dag.load import Load
from nest.result import Status

pytestmark = needs_ancestors

CASES = optima()
TOLERANCE = 1e-6
SLOW = {"LayerGraphs__gnmt_inference.json"}
"""Seconds rather than parts of one."""

PARAMETERS = [
    pytest.param(case, id=case_name(case), marks=[pytest.mark.slow] if case["file"] in SLOW else []) for case in CASES
]


@pytest.mark.parametrize("case", PARAMETERS)
def test_optimum(case: dict[str, Any]) -> None:
    """The values were proven by two to four methods that are independent of this project."""
    result = solve_dag(problem_of(case))
    if case["value"] == "infeasible":
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL, result.reason
    assert result.complete
    assert result.value == pytest.approx(case["value"], rel=TOLERANCE)


def test_there_are_cases() -> None:
    """Both suites, an infeasible case, and the one that Piper misses."""
    assert len(CASES) == 12
    assert {case["suite"] for case in CASES} == {"dnn-partitioning", "piper"}
    assert [case["value"] for case in CASES].count("infeasible") == 1
    assert any(case.get("piper_value", 0) > case["value"] * 1.02 for case in CASES if case["value"] != "infeasible")


def test_split_of_others_is_priced_as_they_say() -> None:
    """The judge agrees with the published optimum on the value of its own plan."""
    case = next(case for case in CASES if "split" in case)
    problem = problem_of(case)
    kinds = {"accelerator": "accelerator", "cpu": "cpu"}
    plan = tuple(
        DagStage(tuple(part["nodes"]), kinds[part["device"]], (kinds[part["device"]],) * len(part["nodes"]))
        for part in case["split"]
    )
    verdict = judge(problem, plan)
    assert verdict.violations == ()
    assert Load(problem).value(verdict.objective) == pytest.approx(case["value"], rel=TOLERANCE)


def test_stages_of_others_are_priced_as_they_say() -> None:
    """Time and memory of each stage of the plan that Piper's own evaluation confirmed."""
    case = next(case for case in CASES if case["file"] == "resnet.json")
    problem = problem_of(case)
    plan = tuple(
        DagStage(
            tuple(part["nodes"]),
            "device",
            tuple(part["TMPCids"][str(node)] for node in part["nodes"]),
            part["t"],
            part["d"],
        )
        for part in case["stages"]
    )
    verdict, load = judge(problem, plan), Load(problem)
    assert verdict.violations == ()
    assert [load.value(price.load) for price in verdict.prices] == pytest.approx(
        [part["time"] for part in case["stages"]]
    )
    assert [price.memory / load.bytes_scale for price in verdict.prices] == pytest.approx(
        [part["mem"] for part in case["stages"]]
    )
