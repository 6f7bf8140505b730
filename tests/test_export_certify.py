"""Certificates of plans that were found for a framework: the best of what it can run, not of all plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nest.certify import Finding
from nest.cli.certify import certify_command
from nest.cli.exits import ExitCode
from nest.cli.solve import solve_command
from nest.evaluate import evaluate
from nest.export import FRAMEWORKS, Inexpressible, certify_for
from nest.files import read_claimed_plan
from nest.runs import read_self_contained

SHAPE = ("--family", "gpt", "--layers", "6", "--hidden", "1024", "--heads", "16", "--vocab", "51200", "--seq", "2048")
TRAINED = (*SHAPE, "--cluster", "dgx-h100:16", "--global-batch", "32", "--microbatch", "1", "--context", "1")
FEW = ("--pipeline", "3", "--tensor", "1")
"""Three stages, each of which may shard for itself, except in frameworks."""


def asked(command: click.Command, *arguments: str | Path) -> tuple[int, str]:
    """Return exit code and output of a command."""
    result = CliRunner().invoke(command, [str(each) for each in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.stdout


@pytest.fixture(scope="module")
def plan_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a plan for Megatron-LM that is slower than the best of all plans."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    assert asked(solve_command, *TRAINED, *FEW, "--for", "megatron", "-o", path)[0] == ExitCode.OK
    return path


def test_the_best_for_a_framework(plan_path: Path) -> None:
    """It is certified among what the framework can run, as its file says, and refuted among all plans if asked so."""
    code, out = asked(certify_command, plan_path)
    assert code == ExitCode.OK
    assert "Among      plans that megatron can run; --for any asks about all" in out
    assert json.loads(asked(certify_command, plan_path, "--json")[1])["provenance"]["for"] == "megatron"
    code, out = asked(certify_command, plan_path, "--for", "any", "--json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (ExitCode.REFUTED, "refuted")
    assert document["better_ticks"] < document["objective_ticks"]
    assert "for" not in document["provenance"]


def test_worse_for_a_framework(plan_path: Path, tmp_path: Path) -> None:
    """One that the framework can run better is refuted by a plan that it can run, which is written for it."""
    worse, better = tmp_path / "worse.json", tmp_path / "better.json"
    assert asked(solve_command, *TRAINED, *FEW, "--data", "1", "--for", "megatron", "-o", worse)[0] == ExitCode.OK
    code, _ = asked(certify_command, worse, "--set", "replicas=any", "-o", better)
    assert code == ExitCode.REFUTED
    found = read_self_contained(better)
    assert found.provenance["for"] == "megatron"
    least = read_self_contained(plan_path)
    ticks = [evaluate(least.problem, each.plan).objective_ticks for each in (found, least)]
    assert ticks[0] == ticks[1]
    assert certify_for(found, FRAMEWORKS["megatron"]).finding is Finding.OPTIMAL


def test_what_is_refused(plan_path: Path, tmp_path: Path) -> None:
    """Provers that know no framework, frameworks that cannot run it, and problems without a plan: one line each."""
    with pytest.raises(click.UsageError, match="--with cpsat does not go with --for megatron"):
        asked(certify_command, plan_path, "--with", "checker,cpsat")
    with pytest.raises(Inexpressible, match=r"stages: 3: DeepSpeed.*; nest solve --for deepspeed finds what it runs"):
        asked(certify_command, plan_path, "--for", "deepspeed")
    problem = tmp_path / "problem.toml"
    problem.write_text("")
    with pytest.raises(click.UsageError, match="nest solve --for megatron --certify solves first"):
        asked(certify_command, problem, "--for", "megatron")


def test_broken_plans(plan_path: Path) -> None:
    """A plan that breaks a rule is illegal, whoever is to run it."""
    found = read_self_contained(plan_path)
    first, *others = found.plan.stages
    moved = replace(found, plan=replace(found.plan, stages=(replace(first, first_device=99), *others)))
    assert certify_for(moved, FRAMEWORKS["megatron"]).finding is Finding.ILLEGAL
    assert read_claimed_plan(plan_path).plan == found.plan
