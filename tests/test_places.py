"""Replicas and stages that leave devices idle (C9): solver, judge and reference agree, as integers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import oracle_default as oracle
import pytest
from oracle_places import cells, groups, reserved, spot_of
from random_places import idle_plan, roomy, spoilt
from random_problems import show_plan, show_problem
from seeds import seeds
from test_default_agreement import check

from nest.cluster import Cluster, Level
from nest.constraints import Pin, ReservedDevices, WithinLevel
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.export.ranks import ranks_of
from nest.files import read_plan, write_plan
from nest.graph import Edge, Layer, LayerGraph
from nest.line import Line
from nest.plan import Plan
from nest.presets import DEFAULT
from nest.problem import Problem, Training, Variant
from nest.result import Status
from nest.solve import solve


@pytest.mark.parametrize("seed", seeds(50, 150))
def test_best_place(seed: int) -> None:
    """Every plan in every place."""
    check(roomy(seed))


@pytest.mark.parametrize("seed", seeds(50, 200))
def test_best_place_around_devices_that_are_down(seed: int) -> None:
    """Every plan in every place on every line of devices."""
    check(spoilt(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5000, 7000))
def test_best_place_of_many(seed: int) -> None:
    """Every plan in every place, of more problems."""
    check(roomy(seed) if seed % 2 else spoilt(seed))


@pytest.mark.parametrize("seed", seeds(50, 200))
def test_prices(seed: int) -> None:
    """A plan that leaves devices idle or out is placed by the rules, and takes what the reference says."""
    problem = spoilt(seed) if seed % 2 else roomy(seed)
    plan = idle_plan(seed, problem)
    if plan is None:
        return
    verdict = evaluate(problem, plan)
    shown = f"{show_problem(problem)}\n{show_plan(plan)}\n{verdict}"
    wrong = {"block", "placement", "devices", "reserved_devices"}
    assert not {each.rule for each in verdict.violations} & wrong, shown
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    objective, _ = oracle.price(problem, plan, rounding)
    assert verdict.objective_ticks is not None
    slack = 100 * (1 + problem.microbatches(plan.variant)) if rounding.doubtful else 0
    assert abs(verdict.objective_ticks - objective) <= slack, shown


def test_optima_stand_everywhere() -> None:
    """The problems above have optima with and without gaps, in both arrangements, around devices that are down."""
    seen = Counter[str]()
    for seed in range(150):
        for problem in (roomy(seed), spoilt(seed)):
            try:
                plan = solve(problem).plan
            except InvalidProblem:
                continue
            if plan is not None:
                gap = plan.used_devices > len(plan.stages) * plan.replicas * plan.variant.width
                seen[f"{plan.arrangement}, {'with' if gap else 'without'} gaps"] += 1
                last = max(int(plan.starts(at).max()) for at in range(len(plan.stages)))
                seen["around"] += any(first < last for first, _ in plan.line.left_out)
                seen["whole groups"] += len(plan.line.left_out) > 0 and plan.line != _lines(problem, plan)[0]
    assert min(seen.values()) >= 2, seen
    assert len(seen) == 6, seen


def _lines(problem: Problem, plan: Plan) -> list[Line]:
    devices, down = problem.cluster.devices, reserved(problem)
    return [Line.around(down, cell, devices) for cell in cells(problem.cluster, plan.variant.width)]


def broken_node() -> Problem:
    """Return a problem of four nodes of two devices, one device of the second of which is down."""
    layers = tuple(Layer(at, 1.0, 2.0, 100, 10) for at in range(2))
    graph = LayerGraph(layers, (Edge(0, 1, 100),))
    cluster = Cluster(8, 10**6, (Level(2, 1e9, 0.0), Level(4, 1e3, 0.0)))
    problem = Problem("broken", {Variant(1): graph}, cluster, Training(3, "sgd"), preset=DEFAULT)
    wanted = problem.with_choices(stages=frozenset({2}), replicas=frozenset({3}), zero=frozenset({0}))
    return wanted.with_constraints(ReservedDevices([2]))


def test_plan_leaves_out_a_node(tmp_path: Path) -> None:
    """Replicas stay inside nodes if the whole broken node is left out; the file of the plan says so."""
    problem = broken_node()
    plan = solve(problem).plan
    assert plan is not None
    assert plan.line == Line(((2, 4),))
    assert [plan.starts(at).tolist() for at in range(2)] == [[0, 4, 6], [1, 5, 7]]
    assert plan.used_devices == 6
    write_plan(plan, tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["left_out"] == [[2, 3]]
    assert replace(read_plan(tmp_path / "plan.json"), stages=plan.stages) == plan
    assert {rank.place for rank in ranks_of(plan, problem.cluster)} == {0, 1, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        (Line(((2, 3),)), set[str]()),
        (Line(), {"placement", "reserved_devices"}),
        (Line(((0, 4),)), {"placement", "devices"}),
        (Line(((2, 3), (5, 6))), {"placement"}),
    ],
)
def test_wrong_line(line: Line, rules: set[str]) -> None:
    """A plan leaves out blocks or groups that hold a device that is down, and nothing else."""
    problem = broken_node()
    plan = solve(problem).plan
    assert plan is not None
    moved = replace(plan, line=line)
    firsts = [int(line.devices(np.array(at))) for at in range(2)]
    stages = tuple(replace(stage, first_device=first) for stage, first in zip(plan.stages, firsts, strict=True))
    assert {each.rule for each in evaluate(problem, replace(moved, stages=stages)).violations} == rules


def test_nothing_is_left() -> None:
    """Where every block holds a device that is down there is no plan, and the reason names the constraint."""
    result = solve(broken_node().with_constraints(ReservedDevices(range(8))))
    assert result.status is Status.INFEASIBLE
    assert "no plan takes device" in str(result.reason)


@pytest.mark.parametrize("seed", seeds(50, 200))
def test_within_level(seed: int) -> None:
    """Each stage of a plan around devices that are down lies in one group of the level, in every replica, or not."""
    problem = spoilt(seed) if seed % 4 else roomy(seed)
    plan = idle_plan(seed, problem)
    if plan is None:
        return
    level = seed % problem.levels
    size, width = groups(problem.cluster)[level], plan.variant.width
    blocks = [first for row in spot_of(plan, problem.cluster.devices).blocks for first in row]
    asked = problem.with_constraints(*problem.constraints, WithinLevel("stage", level))
    broken = {each.rule for each in evaluate(asked, plan).violations}
    assert ("within_level" in broken) == any(first // size != (first + width - 1) // size for first in blocks)


@pytest.mark.parametrize("seed", range(60))
def test_pinned_around_devices_that_are_down(seed: int) -> None:
    """A stage that is pinned to some devices: the solver finds the best plan of those in which it stands there."""
    problem = spoilt(seed)
    last = problem.cluster.devices - 1
    result = solve(problem.with_constraints(*problem.constraints, Pin((last // 3, last), stage=-1)))
    free = solve(problem)
    if result.plan is not None:
        stage = result.plan.stages[-1]
        assert stage.first_device >= last // 3
        assert (result.objective_ticks or 0) >= (free.objective_ticks or 0)
        assert evaluate(problem, result.plan).legal
