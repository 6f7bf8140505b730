"""The fewest layers that recompute, against trying every number; largest values of runs; how many plans there are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import oracle_plans
import pytest
from random_default import Size, random_problem

from nest.cli import run
from nest.cluster import Cluster, Level
from nest.files import read_plan, write_problem
from nest.graph import Edge, Layer, LayerGraph, Recomputed
from nest.presets import DEFAULT
from nest.problem import Problem, Training, Variant
from nest.report.space import plans_of
from nest.tables import prefix
from nest.tables.branched import BranchedRepeats, StageOrder
from nest.tables.family import Family
from nest.tables.repeated import Fewest, RangeMost, Repeating, Repeats, Stages
from nest.units import NEVER


class Layers:
    """Random layers: what they keep and need with and without recomputation, in no order of size."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self.kept, self.working, self.whole, self.ticks = (rng.integers(0, 9, count) for _ in range(4))
        self.able = rng.random(count) < 0.8
        kept, working = rng.integers(0, 7, count), rng.integers(0, 20, count)
        self.again = np.where(self.able, kept, self.kept), np.where(self.able, working, self.working)
        self.repeating = Repeating("full", self.able, np.where(self.able, self.ticks, 0), *self.again)
        self.moment = self.working + self.whole

    def check(self, repeats: Fewest, stages: Stages, layers: Sequence[Sequence[int]], *, last: bool) -> None:
        """Assert that as few recompute as make each stage fit, and what they add."""
        for flying in (1, 2, 5):
            found = repeats.fewest(stages, flying)
            added = repeats.added(prefix(self.ticks[self.able]), stages, found)
            for at, places in enumerate(layers):
                best = self.fewest(places, int(stages.room[at]), flying, last=last)
                ticks = sum(self.ticks[self.able_of(places, last=last)[:best]])
                assert (found[at], added[at]) == (best, ticks if best else NEVER)

    def able_of(self, places: Sequence[int], *, last: bool) -> list[int]:
        """Return those that can recompute, that which does first at the front."""
        able = [v for v in places if self.able[v]]
        return able[::-1] if last else able

    def fewest(self, places: Sequence[int], room: int, flying: int, *, last: bool) -> int:
        """Try every number of layers; 0 where none makes the stage fit."""
        able = self.able_of(places, last=last)
        for number in range(1, len(able) + 1):
            held = [(self.again if v in able[:number] else (self.kept, self.working)) for v in places]
            peak = most = 0
            for v, (kept, working) in zip(places, held, strict=True):
                peak += kept[v]  # of the microbatch that goes backward, layers behind have freed their part
                most = max(most, peak + self.whole[v] + working[v])
            if (flying - 1) * peak + most <= room:
                return number
        return 0


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_fewest_layers(seed: int, last: bool) -> None:
    """Whatever layers keep and need, also where memory grows with the number of layers that recompute."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    layers = Layers(rng, count)
    runs = np.array([(first, end) for first in range(count) for end in range(first + 1, count + 1)])
    kept = np.array([layers.kept[a:b].sum() for a, b in runs])
    stages = Stages(runs[:, 0], runs[:, 1], rng.integers(0, 60, len(runs)), kept)
    repeats = Repeats(layers.repeating, layers.kept, layers.moment, layers.whole, last=last)
    layers.check(repeats, stages, [range(first, end) for first, end in runs.tolist()], last=last)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("seed", "count"), [*((seed, 7) for seed in range(30)), (30, 66), (31, 130)])
def test_fewest_layers_where_they_branch(seed: int, count: int, last: bool) -> None:
    """Any stages of a graph with branches, its layers in order; also of more layers than a word has bits."""
    rng = np.random.default_rng(seed)
    layers, loose = Layers(rng, count), rng.random(count) < (0.6 if count < 64 else 0.03)
    before = [0 if at < 2 else 1 << at - (2 if loose[at] else 1) for at in range(count)]
    family = Family.of(before)
    found = family.stages(7)
    members = family.members[found.end] & ~family.members[found.first]
    places = [np.flatnonzero(row).tolist() for row in members]
    stages = Stages(found.first, found.end, rng.integers(0, 60, len(places)), members @ layers.kept)
    order = StageOrder(family, found)
    assert order.opening.tolist() == [each[0] for each in places]
    repeats = BranchedRepeats(order, layers.repeating, layers.kept, (layers.moment, layers.whole), last=last)
    layers.check(repeats, stages, places, last=last)


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
    total, seen = 0, set[object]()
    for outer in oracle_plans.outer_choices(problem):
        layers = len(problem.graphs[outer.variant])
        assert outer.spot
        if (outer.variant, outer.spot.blocks) in seen:
            continue
        seen.add((outer.variant, outer.spot.blocks))
        for inner in combinations(range(1, layers), outer.stages - 1):
            runs = pairwise([0, *inner, layers])
            total += len(list(product(*(list(oracle_plans.inners(problem, outer, run)) for run in runs))))
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
