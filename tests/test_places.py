"""Replicas and stages that leave devices idle (C9): solver, judge and reference agree, as integers."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import oracle_default as oracle
import pytest
from oracle_places import cells, groups, reserved, spots
from random_default import Size, random_problem
from random_problems import show_plan, show_problem
from test_default_agreement import check

from nest.cluster import Cluster, Level
from nest.constraints import ReservedDevices
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

ROOMY = Size(layers=3, devices=16, levels=3, variants=1, batch=6)
"""Few layers and replicas on many devices, so that most plans leave some idle."""

LEAST = 7
"""Devices that there are at least."""


def idle_plan(seed: int, problem: Problem) -> Plan | None:
    """Return a plan in any of its places, None where the variant does not fit; memory may be broken."""
    rng = random.Random(seed)
    variant = rng.choice(list(problem.graphs))
    layers, room = len(problem.graphs[variant]), problem.cluster.devices // variant.width
    if not room or not oracle.nests(problem.cluster, variant):
        return None
    stages = rng.randint(1, min(layers, room))
    replicas = rng.randint(1, max(1, min(room // stages, oracle.microbatches(problem, variant))))
    found = list(spots(problem.cluster, variant.width, stages, replicas, reserved(problem)))
    if not found:
        return None
    spot = rng.choice(found)
    outer = oracle.Outer(variant, stages, replicas, spot.arrangement, spot)
    runs = list(pairwise([0, *sorted(rng.sample(range(1, layers), stages - 1)), layers]))
    free = problem.with_choices(zero=frozenset({0, 1, 2, 3}), zero_degree=None, stage_recompute=None)
    return oracle.plan_of(problem, outer, runs, [rng.choice(list(oracle.inners(free, outer, run))) for run in runs])


def roomy(seed: int) -> Problem:
    """Return a problem of a seed; most have few stages and replicas, and room in memory."""
    drawn = (random_problem(each, ROOMY) for each in range(seed, seed + 10**6, 10**4))
    problem = next(each for each in drawn if each.cluster.devices >= LEAST)
    rng = random.Random(f"places {seed}")
    if rng.random() < 0.7:
        problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=1e12))
    wanted = rng.choice([(None, None), ({1}, {2, 3}), ({2}, None), ({2}, {2}), ({2, 3}, {2, 3})])
    stages, replicas = (None if each is None else frozenset(each) for each in wanted)
    return problem.with_choices(stages=stages, replicas=replicas)


def spoilt(seed: int) -> Problem:
    """Return a problem with devices that are down: single ones, or a whole group."""
    problem, rng = roomy(seed), random.Random(f"down {seed}")
    devices = problem.cluster.devices
    size = rng.choice([1, 1, 1, *(size for size in groups(problem.cluster) if size < devices)])
    picked = [rng.randrange(-(-devices // size)) for _ in range(rng.choice([1, 1, 2, 3]))]
    down = {each for group in picked for each in range(group * size, min((group + 1) * size, devices))}
    return problem.with_constraints(ReservedDevices(sorted(down)))


@pytest.mark.parametrize("seed", range(150))
def test_best_place(seed: int) -> None:
    """Every plan in every place."""
    check(roomy(seed))


@pytest.mark.parametrize("seed", range(200))
def test_best_place_around_devices_that_are_down(seed: int) -> None:
    """Every plan in every place on every line of devices."""
    check(spoilt(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5000, 7000))
def test_best_place_of_many(seed: int) -> None:
    """Every plan in every place, of more problems."""
    check(roomy(seed) if seed % 2 else spoilt(seed))


@pytest.mark.parametrize("seed", range(200))
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
