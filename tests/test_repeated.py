"""The fewest layers that recompute, against trying every number; largest values of runs; how many plans there are."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import oracle_default as oracle
import pytest
from random_default import Size, random_problem

from nest.cli import run
from nest.cluster import Cluster, Level
from nest.files import read_plan, write_problem
from nest.graph import Edge, Layer, LayerGraph, Recomputed
from nest.presets import DEFAULT
from nest.problem import Problem, Training, Variant
from nest.report.space import plans_of
from nest.tables.repeated import RangeMost, Repeating, Repeats, Stages
from nest.units import NEVER


@pytest.mark.parametrize("seed", range(40))
def test_fewest_layers(seed: int) -> None:
    """Whatever layers keep and need, also where memory grows with the number of layers that recompute."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    kept, working, whole, ticks = (rng.integers(0, 9, count) for _ in range(4))
    able = rng.random(count) < 0.8
    again = np.where(able, rng.integers(0, 7, count), kept), np.where(able, rng.integers(0, 20, count), working)
    repeating = Repeating("full", able, np.where(able, ticks, 0), *again)
    runs = np.array([(first, end) for first in range(count) for end in range(first + 1, count + 1)])
    stages = Stages(
        runs[:, 0], runs[:, 1], rng.integers(0, 60, len(runs)), np.array([kept[a:b].sum() for a, b in runs])
    )
    repeats = Repeats(repeating, kept, working + whole, whole)
    for flying in (1, 2, 5):
        found = repeats.fewest(stages, flying)
        added = repeats.added(stages.first, found)
        for at, (first, end) in enumerate(runs.tolist()):
            places = [place for place in range(first, end) if able[place]]
            best = 0
            for number in range(len(places), 0, -1):
                repeated = places[:number]
                held = sum(again[0][v] if v in repeated else kept[v] for v in range(first, end))
                most = max(whole[v] + (again[1][v] if v in repeated else working[v]) for v in range(first, end))
                best = number if flying * held + most <= stages.room[at] else best
            assert found[at] == best
            assert added[at] == (sum(ticks[v] for v in places[:best]) if best else NEVER)


def test_largest_values_of_runs() -> None:
    """Of all runs of some numbers, the empty ones included."""
    values = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
    table = RangeMost(values)
    for first, end in combinations(range(len(values) + 1), 2):
        assert table.most(np.array([first]), np.array([end]))[0] == max(values[first:end])
    assert table.most(np.array([11]), np.array([11]))[0] == 0


@pytest.mark.parametrize("seed", range(30))
def test_plans_are_counted(seed: int) -> None:
    """As many as the reference lists, what stages shard and recompute included."""
    problem = random_problem(seed, Size(layers=4, devices=6, levels=2, variants=1, batch=5))
    total = 0
    for outer in oracle.outer_choices(problem):
        layers = len(problem.graphs[outer.variant])
        if outer.arrangement == "replica-major" and (outer.stages == 1 or outer.replicas == 1):
            continue
        for inner in combinations(range(1, layers), outer.stages - 1):
            runs = pairwise([0, *inner, layers])
            total += len(list(product(*(list(oracle.inners(problem, outer, run)) for run in runs))))
    assert sum(plans_of(problem).values()) == total


def test_table_says_how_many_layers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of two layers that can recompute one does: it is in the file of the plan, and in the table of the stages."""
    again = (Recomputed("full", 1.0, 10),)
    layers = tuple(Layer(name, 1.0, 2.0, 0, 60, recomputed=again) for name in "ab")
    graph = LayerGraph(layers, (Edge("a", "b", 0),))
    cluster = Cluster(1, 100, (Level(1, 1.0, 0.0),))
    write_problem(
        Problem("two layers", {Variant(1): graph}, cluster, Training(4), preset=DEFAULT), tmp_path / "two.toml"
    )
    assert run(["solve", str(tmp_path / "two.toml"), "-o", str(tmp_path / "plan.json")]) == 0
    assert "full 1/2" in capsys.readouterr().out
    (stage,) = read_plan(tmp_path / "plan.json").stages
    assert (stage.recompute, stage.recomputed) == ("full", 1)
    assert run(["evaluate", str(tmp_path / "two.toml"), str(tmp_path / "plan.json")]) == 0
