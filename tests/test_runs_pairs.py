"""What levels cost a plan: its price by the pairs of devices that it uses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nest.cli.solve import solve_command
from nest.evaluate import evaluate
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import Hardware, Pairs, Torus, cluster_named
from nest.networks import fat_tree, grid, level_network, ring
from nest.problem import Choices
from nest.runs import Run, pair_gap, problem_of
from nest.solve import solve

MODEL = from_hyperparameters(Hyperparameters("gpt", layers=8, hidden=1024, heads=16))

TORUS = """
schema = "nest.cluster/1"
device = "tpu-v4"
torus = { shape = "4x4", bandwidth_gb_per_s = 45, latency_us = 1 }
"""


def posed(hardware: Hardware, **choices: int) -> Run:
    """Return a run with settled choices."""
    pins = {name: frozenset({value}) for name, value in choices.items()}
    return Run(MODEL, hardware, 2048, 64, choices=Choices(**pins))  # type: ignore[arg-type]


def test_pairs_twice_as_fast_are_levels_twice_as_fast() -> None:
    """Where every pair has half the latency and twice the bandwidth of its level, the price is that of such levels."""
    plain = cluster_named("dgx-h100:16")
    places = np.arange(16)
    spans = plain.cluster.spans(places[:, None], places[None, :])
    speed = 2 * np.array(plain.cluster.path_bandwidths)[spans]
    delay = np.array([level.latency_s for level in plain.cluster.levels])[spans] / 2
    hardware = replace(plain, pairs=Pairs(speed, delay))
    problem = problem_of(posed(hardware, stages=2, tensor=4)).problem
    plan = solve(problem).plan
    assert plan is not None
    found = pair_gap(problem, plan, hardware)
    assert found is not None
    levels = tuple(
        replace(level, bandwidth_bytes_per_s=2 * level.bandwidth_bytes_per_s, latency_s=level.latency_s / 2)
        for level in problem.cluster.levels
    )
    faster = evaluate(replace(problem, cluster=replace(problem.cluster, levels=levels)), plan)
    assert faster.objective_ticks is not None
    assert found.pairs_s == pytest.approx(faster.scale.time.seconds(faster.objective_ticks), rel=1e-8)
    assert found.share > 0
    assert f"levels cost {100 * found.share:.1f} % more" in found.text
    assert pair_gap(problem, plan, plain) is None


@pytest.mark.parametrize(
    "network",
    [
        ring(8, 25e9, 5e-6),
        grid(Torus((2, 4), (False, False), 25e9, 5e-6)),
        grid(Torus((4, 4), (True, True), 25e9, 5e-6)),
        fat_tree((4, 4), (25e9, 12e9), (5e-6, 15e-6)),
    ],
    ids=["ring", "mesh", "torus", "fat tree"],
)
@pytest.mark.parametrize("choices", [{}, {"stages": 4}, {"tensor": 2, "stages": 2}, {"replicas": 2}])
def test_levels_are_never_optimistic(network: object, choices: dict[str, int]) -> None:
    """No plan takes longer by the pairs that it uses than on levels that take the worst of all pairs."""
    levelling = level_network(network, 32 * 2**30)  # type: ignore[arg-type]
    plain = cluster_named("dgx-h100:8")
    facts = (plain.facts[0],) * len(levelling.cluster.levels)
    hardware = Hardware(plain.device, levelling.cluster, facts, levelling.order, pairs=levelling.pairs)
    problem = problem_of(posed(hardware, **choices)).problem
    plan = solve(problem).plan
    assert plan is not None
    found = pair_gap(problem, plan, hardware)
    assert found is not None
    assert found.share >= -1e-9


def test_solve_reports_the_gap(tmp_path: Path) -> None:
    """On a torus of 16 chips, in text and for programs; not where only levels are known."""
    path = tmp_path / "torus.toml"
    path.write_text(TORUS)
    shape = ("--family", "gpt", "--layers", "8", "--hidden", "1024", "--heads", "16", "--vocab", "51200")
    asked = (*shape, "--seq", "2048", "--global-batch", "64", "--tensor", "4", "--pipeline", "2")
    text = CliRunner().invoke(solve_command, (*asked, "--cluster", str(path)), standalone_mode=False).output
    assert "by the slowest pairs that the plan uses, each alone on the network: levels cost" in text
    printed = CliRunner().invoke(solve_command, (*asked, "--cluster", str(path), "--json"), standalone_mode=False)
    found = json.loads(printed.output)
    assert found["pairs_s"] * (1 + found["level_gap"]) == pytest.approx(found["objective"])
    named = CliRunner().invoke(solve_command, (*asked, "--cluster", "dgx-h100:16", "--json"), standalone_mode=False)
    assert "pairs_s" not in json.loads(named.output)
