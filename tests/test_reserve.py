"""What runs keep free of each device: 5 % where nobody says how much, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nest.capture import Affine, Captured, CapturedEdge, CapturedLayer, Figures, Wanted, write_captured
from nest.cli import run
from nest.cluster import Cluster, DeviceClass, Level
from nest.constraints import EqualStages
from nest.costing import recipe_named
from nest.explain import explain
from nest.families import Hyperparameters, from_hyperparameters
from nest.files import read_problem
from nest.files.cluster_file import read_cluster
from nest.hardware import cluster_named
from nest.problem import Choices, Problem
from nest.result import Status
from nest.runs import Run, default_reserve_bytes, problem_of, read_run, read_self_contained
from nest.solve import solve

MIB = 2**20
MODEL = from_hyperparameters(Hyperparameters("gpt", layers=8, hidden=1024, heads=16, vocab=51200, seq=2048))
TYPED = ["--family", "gpt", "--layers", "8", "--hidden", "1024", "--heads", "16", "--vocab", "51200"]
TYPED += ["--seq", "2048", "--global-batch", "4"]
ONE = Choices(**{name: frozenset({1}) for name in ("tensor", "context", "expert", "microbatch")})  # type: ignore[arg-type]
CARD = """
schema = "nest.cluster/1"
devices = 2
levels = [{{ name = "host", fanout = 2, bandwidth_gb_per_s = 25, latency_us = 6 }}]

[device]
name = "card"
hbm_gib = {gib}
hbm_gb_per_s = 900
bf16_tflops = 120
"""


def small(**more: Any) -> Run:
    """Return a small run on 2 devices of 80 GB."""
    return Run(MODEL, cluster_named("dgx-h100:2"), 2048, 4, choices=ONE, **more)


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    """Return exit code and JSON of a command."""
    code = run([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def card(folder: Path, gib: float) -> Path:
    """Write a cluster of two devices with so much memory."""
    path = folder / "card.toml"
    path.write_text(CARD.format(gib=gib), encoding="utf-8")
    return path


def test_five_per_cent_in_whole_mib() -> None:
    """4 GiB of 80, nothing of a toy, and of several classes 5 % of the most, so that none has less than its own."""
    level = (Level(4, 1e9, 0.0),)
    assert default_reserve_bytes(Cluster(4, 80 * 2**30, level)) == 4 * 2**30
    assert default_reserve_bytes(Cluster(4, 30 * MIB, level)) == MIB
    assert default_reserve_bytes(Cluster(4, 1000, level)) == 0
    big = DeviceClass("big", ((2, 4),), 80 * 2**30)
    assert default_reserve_bytes(Cluster(4, 40 * 2**30, level, own_class="small", classes=(big,))) == 4 * 2**30


def test_runs_keep_it() -> None:
    """A run that says nothing keeps it, one that says 0 nothing; the problem has the number."""
    hbm = int(small().hardware.cluster.hbm_bytes)
    assert small().reserved_bytes == hbm * 5 // 100 // MIB * MIB
    assert problem_of(small()).problem.training.overhead_bytes == small().reserved_bytes
    assert problem_of(small(reserve_bytes=0)).problem.training.overhead_bytes == 0
    assert problem_of(small()).tried.document() | {"left_out": 0} == {
        "left_out": 0,
        "all_tried": True,
        "reserve_bytes": small().reserved_bytes,
        "reserve_is_default": True,
    }


def test_run_files_keep_it_and_what_is_written_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without the key has the default; what is written of it carries the number, and stays as it is."""
    path, plan, problem = (tmp_path / name for name in ("run.toml", "plan.json", "problem.toml"))
    table = 'family = "gpt"\nlayers = 8\nhidden = 1024\nheads = 16\nvocab = 51200\nseq = 2048\n'
    head = 'schema = "nest.run/1"\ncluster = "dgx-h100:2"\nsequence = 2048\nglobal_batch = 4\n'
    path.write_text(f"{head}[model]\n{table}", encoding="utf-8")
    assert read_run(path).reserve_bytes is None
    code, found = document(capsys, "solve", path, "-o", plan, "--write-problem", problem)
    assert (code, found["reserve_bytes"], found["reserve_is_default"]) == (0, small().reserved_bytes, True)
    carried = read_self_contained(plan)
    assert carried.run is not None
    assert carried.run.reserve_bytes == small().reserved_bytes
    assert read_problem(problem).training.overhead_bytes == small().reserved_bytes
    assert document(capsys, "certify", plan)[1]["reserve_is_default"] is False
    path.write_text(f"{head}reserve_gib = 0\n[model]\n{table}", encoding="utf-8")
    assert read_run(path).reserve_bytes == 0


def test_answers_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    """By default with what takes it away, typed without; nothing of it where there is none."""
    default = "Reserve    3.95 GiB of each device (default 5 %); --reserve 0 or reserve_gib = 0 for none\n"
    for more, line in (((), default), (("--reserve", "2"), "Reserve    2 GiB of each device\n")):
        assert run(["solve", *TYPED, "--cluster", "dgx-h100:2", *more]) == 0
        assert line in capsys.readouterr().out
    assert run(["solve", *TYPED, "--cluster", "dgx-h100:2", "--reserve", "0"]) == 0
    assert "Reserve" not in capsys.readouterr().out


def test_what_only_the_default_rules_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason names the reserve, and the first thing that helps is the largest with which there is a plan."""
    typed = ["solve", *TYPED, "--microbatch", "1", "--tensor", "1", "--context", "1", "--recompute", "none"]
    typed += ["--pipeline", "1", "--data", "2", "--zero", "0"]
    size = document(capsys, "estimate", *TYPED, "--cluster", "dgx-h100:2")[1]["stages"][0]["memory_bytes"]
    tight = card(tmp_path, (size + 64 * MIB) / 2**30)
    assert document(capsys, *typed, "--cluster", tight, "--reserve", "0")[0] == 0
    code, found = document(capsys, *typed, "--cluster", tight)
    assert (code, found["reserve_is_default"]) == (3, True)
    assert "beside the reserve of " in found["reason"]
    helps = {each["kind"]: each["text"] for each in found["explanation"]["relaxations"]}
    assert next(iter(helps)) == "reserve"
    assert "keep at most 6" in helps["reserve"]


def largest(problem: Problem) -> int:
    """Return the largest reserve that an explanation names, after checking that a byte more has no plan."""
    found = explain(problem, time_limit_s=None)
    assert found is not None
    (reserve,) = (each for each in found.relaxations if each.kind == "reserve")
    kept = int(reserve.problem.training.overhead_bytes)
    assert solve(reserve.problem).status is Status.OPTIMAL
    more = replace(problem, training=replace(problem.training, overhead_bytes=kept + 1))
    assert solve(more).status is Status.INFEASIBLE
    return kept


def test_the_largest_reserve() -> None:
    """It is as large as can be: from the memory that lacks, and by search where a constraint is kept; 0 may be all."""
    problem = problem_of(small(reserve_bytes=78 * 2**30)).problem
    kept = largest(problem)
    assert kept >= largest(problem.with_constraints(EqualStages())) > 0
    needed = problem.cluster.hbm_bytes - kept
    exact = replace(problem, cluster=problem.cluster.with_memory(needed))
    assert largest(exact) == 0


def test_no_reserve_helps() -> None:
    """What fits without a reserve neither is told to keep none."""
    run = small()
    problem = replace(problem_of(run).problem, cluster=run.hardware.cluster.with_memory(2**29))
    found = explain(problem, time_limit_s=None)
    assert found is not None
    assert "reserve" not in {each.kind for each in found.relaxations}


def test_captured_modules_keep_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On small devices, too; the answer names it."""
    figures = {"layer": Figures((), (), Affine(0, MIB))}
    layers = tuple(CapturedLayer(f"h.{at}", "layer", MIB, 0, Affine(0, MIB), Affine(0, MIB), False) for at in range(2))
    edges = (CapturedEdge(0, 1, Affine(0, MIB)),)
    captured = Captured("m:build", ("1x8",), 1, True, "bf16", 8, "export", layers, figures, edges, "2.13.0")
    wanted = Wanted(read_cluster("l4:2"), 4, recipe_named("mixed"))
    assert wanted.reserved_bytes == default_reserve_bytes(wanted.hardware.cluster) > 2**30
    path = tmp_path / "graph.json"
    write_captured(captured, path)
    typed = ("solve", "--model", path, "--cluster", "l4:2", "--global-batch", "4")
    found = document(capsys, *typed)[1]
    assert (found["reserve_bytes"], found["reserve_is_default"]) == (wanted.reserved_bytes, True)
    assert "left_out" not in found
    assert document(capsys, *typed, "--reserve", "1")[1]["reserve_bytes"] == 2**30


def test_estimates_add_nothing_and_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory is what tensors take; what is left is said, with a warning where it is less than the default reserve."""
    typed = ["estimate", *TYPED, "--data", "2"]
    code, roomy = document(capsys, *typed, "--cluster", "dgx-h100:2")
    size = max(stage["memory_bytes"] for stage in roomy["stages"])
    assert (code, roomy["tight"], roomy["reserve_bytes"]) == (0, False, 0)
    assert roomy["default_reserve_bytes"] == small().reserved_bytes
    tight = card(tmp_path, size * 1.04 / 2**30)
    code, found = document(capsys, *typed, "--cluster", tight)
    assert (code, found["fits"], found["tight"]) == (0, True, True)
    assert max(stage["memory_bytes"] for stage in found["stages"]) == size
    assert run([*typed, "--cluster", str(tight)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "tight: frameworks and communication take 2 to 14 GiB besides (docs/costs.md)" in text
    assert document(capsys, *typed, "--cluster", card(tmp_path, size * 0.99 / 2**30))[1]["tight"] is False
