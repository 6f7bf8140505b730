"""What `nest solve` calls proven is never refuted by `nest certify` of its plan, whichever options were typed."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nest.cli.certify import certify_command
from nest.cli.exits import ExitCode
from nest.cli.frontier import frontier_command
from nest.cli.solve import solve_command
from nest.files import read_claimed_plan

RUN = """
schema = "nest.run/1"
cluster = "dgx-h100:4"
sequence = 2048
global_batch = 24

[model]
family = "gpt"
layers = 2
hidden = 2048
heads = 16
vocab = 51200
seq = 2048
"""
"""With a batch that is no power of two: of its microbatches half are unusual."""

PROFILE = """
[profile]
schema = "nest.profile/1"

[[profile.rows]]
kind = "attention+mlp"
microbatch = 2
tensor = 1
forward_ms = 0.5
backward_ms = 1.0
"""
"""Two sequences of which a layer takes less time than one by the model of costs."""

OPTIONS = (
    "",
    "--for megatron",
    "--for torchtitan",
    "--for deepspeed",
    "--for accelerate",
    "--minimize devices --time-at-most 0.5",
    "--minimize devices --time-at-most 0.2",
    "--minimize memory --time-at-most 0.3 --set zero=1 --set context=1 --set tensor=1",
    "--objective simulated",
    "--objective simulated --set schedules=zb-h1",
    "--set stage_tensor=1,2",
    "--set shard_inside=1,2",
    "--set schedules=1f1b,interleaved",
    "--backend cpsat --set zero=1 --set tensor=1 --set context=1 --set stages=1",
    "--for megatron --objective simulated",
    "--for megatron --set stages=2",
    "--for megatron --minimize devices --time-at-most 0.2",
    "--for megatron --minimize memory --time-at-most 0.3 --set zero=1 --set context=1 --set tensor=1",
    "--profile",
)


def has_floors(options: str) -> bool:
    """Whether floors of time say which variants are out of question."""
    return not any(each in options for each in ("minimize", "stage_tensor", "shard_inside", "cpsat", "--profile"))


def asked(command: click.Command, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Return exit code and document of a command."""
    result = CliRunner().invoke(command, [*map(str, arguments), "--json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), json.loads(result.stdout)


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run file, beside one with measured times."""
    path = tmp_path_factory.mktemp("run") / "run.toml"
    path.write_text(RUN)
    path.with_name("measured.toml").write_text(RUN + PROFILE)
    return path


def typed(options: str, run_path: Path) -> list[str | Path]:
    """Return a run and options as they are typed."""
    if options != "--profile":
        return [run_path, *options.split()]
    return [run_path.with_name("measured.toml")]


@pytest.mark.parametrize(
    ("options", "few"), [(each, few) for each in OPTIONS for few in (256, 0) if few == 0 or not has_floors(each)]
)
def test_never_refuted(options: str, few: int, run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all variants are tried all are asked about; where the usual ones are, these."""
    monkeypatch.setattr(import_module("nest.runs.contenders"), "FEW", few)  # a function has the same name
    plan = tmp_path / "plan.json"
    code, solved = asked(solve_command, *typed(options, run_path), "-o", plan)
    assert code == ExitCode.OK
    code, certified = asked(certify_command, plan)
    assert (code, certified["verdict"]) == (ExitCode.OK, "optimal")
    assert certified["all_tried"] == solved["all_tried"]
    assert ("tried" in read_claimed_plan(plan).provenance) == (not solved["all_tried"])
    assert solved["all_tried"] == (has_floors(options) or (few > 0 and "cpsat" not in options))
    if not solved["all_tried"]:
        assert asked(certify_command, plan, "--all")[1]["all_tried"]


@pytest.mark.parametrize("few", [256, 0])
def test_points_of_a_front(few: int, run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is the plan with the fewest devices that keeps its time, and none with as many is faster."""
    monkeypatch.setattr(import_module("nest.runs.contenders"), "FEW", few)
    _, front = asked(frontier_command, run_path, "--set", "zero=1", "-o", tmp_path)
    plans = sorted(tmp_path.iterdir())
    assert len(plans) == len(front["points"]) > 1
    for plan in plans:
        certified = asked(certify_command, plan)[1]
        assert certified["verdict"] == "optimal"
        assert certified["all_tried"] == front["all_tried"] == (few > 0)
