"""Estimates of plans on several classes of devices, and under every schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from nest.cli.estimate import estimate_command
from nest.cli.exits import ExitCode
from nest.costing import Layout, Setting, recipe_named
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.presets import ScheduleName
from nest.problem import Choices
from nest.runs import Given, Run, estimate, problem_of

SMALL = Hyperparameters("gpt", layers=8, hidden=1024, heads=16, vocab=51200, seq=1024)
MIXED = cluster_named("dgx-a100:8+dgx-h100:8")
GPT = ("--family", "gpt", "--layers", "8", "--hidden", "1024", "--heads", "16", "--seq", "1024", "--global-batch", "32")
ON_MIXED = (*GPT, "--cluster", "dgx-a100:8+dgx-h100:8", "--pipeline", "4", "--tensor", "2")
ONE = frozenset({1})


def given(**changes: Any) -> Given:
    """Return a plan of four stages on two classes of devices."""
    layout = replace(Layout(32, 2, 4), **changes)
    return Given(from_hyperparameters(SMALL), MIXED, Setting(1024, 1, 2), layout, recipe_named("mixed"))


def typed(*arguments: str, code: int = ExitCode.OK) -> dict[str, Any]:
    """Return what an estimate prints for programs."""
    result = CliRunner().invoke(estimate_command, (*arguments, "--json"), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert result.return_value == code
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def refused(*arguments: str) -> str:
    """Return why an estimate is refused."""
    return str(CliRunner().invoke(estimate_command, arguments, standalone_mode=False).exception)


@pytest.mark.parametrize("first", ["", "h100-sxm"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_price_is_that_of_the_run(schedule: ScheduleName, first: str) -> None:
    """The plan costs the same in the problem that ``nest solve`` poses of the same model and cluster."""
    asked = given(schedule=schedule, first_class=first)
    choices = Choices(schedules=frozenset({schedule}), microbatch=ONE, context=ONE)
    run = Run(asked.model, MIXED, 1024, 32, choices=choices)
    verdict = evaluate(problem_of(run).problem, asked.plan)
    assert verdict.violations == ()
    assert verdict.objective_ticks is not None
    found = estimate(asked)
    assert found.iteration_s == pytest.approx(verdict.scale.time.seconds(verdict.objective_ticks), rel=1e-9)
    assert found.classes == (*("h100-sxm",) * 2, *("a100-80gb",) * 2)[:: 1 if first else -1]
    assert found.counts == (8, 8)


def test_first_class() -> None:
    """The head is heavier than the embedding: the order of the classes counts."""
    found = typed(*ON_MIXED)
    assert [stage["class"] for stage in found["stages"]] == ["a100-80gb"] * 2 + ["h100-sxm"] * 2
    turned = typed(*ON_MIXED, "--first-class", "h100")
    assert [stage["class"] for stage in turned["stages"]] == ["h100-sxm"] * 2 + ["a100-80gb"] * 2
    assert found["mfu"] == pytest.approx(found["model_flops"] / found["iteration_s"] / (8 * 312e12 + 8 * 989.4e12))
    assert "name one of a100-80gb, h100-sxm" in refused(*ON_MIXED, "--first-class", "t4")
    assert "priced for devices of one class" in refused(*ON_MIXED, "--schedule", "interleaved")
    assert "this preset takes devices of one class" in refused(*ON_MIXED, "--schedule", "zb-h1")
    assert "all devices are of one class" in refused(*GPT, "--cluster", "dgx-h100:8", "--first-class", "h100")


def test_schedules() -> None:
    """GPipe keeps all microbatches; interleaved has two chunks unless more are said, others have none."""
    plan = (*GPT, "--cluster", "dgx-h100:8", "--pipeline", "4")
    plain, wide, mixed = (typed(*plan, "--schedule", name) for name in ("1f1b", "gpipe", "interleaved"))
    assert wide["stages"][0]["memory"]["activations"] == 4 * plain["stages"][0]["memory"]["activations"]
    assert mixed["iteration_s"] < plain["iteration_s"] == wide["iteration_s"]
    assert mixed["iteration_s"] == typed(*plan, "--virtual", "2")["iteration_s"]
    assert "gpipe with 2 chunks" in refused(*plan, "--schedule", "gpipe", "--virtual", "2")
    assert "does not go with --schedule zb-h1" in refused(*plan, "--schedule", "zb-h1", "--recompute", "full")
    assert any("played" in note for note in typed(*plan, "--schedule", "zb-h1")["notes"])
    with pytest.raises(InvalidProblem, match="interleaved with 1 chunk"):
        Layout(8, schedule="interleaved")


def test_the_smaller_device_decides() -> None:
    """What fits on the larger devices does not fit where a stage stands on the smaller ones."""
    plan = (*GPT[:-1], "1024", "--pipeline", "2", "--microbatch", "16", "--cluster", "azure-ndv4:8+mi300x:8")
    found = typed(*plan)
    small, large = (stage["hbm_bytes"] - stage["memory_bytes"] for stage in found["stages"])
    assert found["largest_reserve_bytes"] == small < large
    broken = typed(*plan, "--reserve", str(small / 2**30 + 1), code=ExitCode.INFEASIBLE)
    assert [stage["memory_bytes"] > stage["hbm_bytes"] for stage in broken["stages"]] == [True, False]


def test_replicas_as_megatron_counts_them() -> None:
    """Expert ranks are among the replicas of Megatron-LM; here both count."""
    moe = ("--family", "moe", "--layers", "4", "--hidden", "1024", "--heads", "16", "--experts", "8", "--seq", "1024")
    plan = (*moe, "--global-batch", "32", "--cluster", "dgx-h100:16", "--expert", "4")
    said = refused(*plan, "--data", "16")
    assert "for --data 16 of Megatron-LM give --data 4" in said
    assert "Megatron-LM expert ranks are some of them):" in refused(*plan, "--data", "5")
