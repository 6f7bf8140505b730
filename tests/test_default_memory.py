"""What is known of memory before anything is searched under preset `default`: layers that fit nowhere, and bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_branches import BRANCHED, random_branched
from random_default import SMALL, random_problem
from seeds import seeds
from test_default_search import alone_in, single_choices

from nest.cluster import Cluster, Level
from nest.dp.agenda import settle_sums
from nest.dp.incumbent import Incumbent
from nest.dp.sum_outer import SumBounds
from nest.dp.sum_search import SumSearch
from nest.dp.watch import Watch
from nest.graph import Edge, Layer, LayerGraph, Recomputed
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Status
from nest.solve import solve
from nest.tables import GroupedTables, Tables, band_of
from nest.tables.alone import least_sharing, unfit
from nest.tables.repeated import Passing
from nest.units import NEVER

WIDE = replace(SMALL, layers=5, devices=24, variants=1)


def fitting(tables: GroupedTables, replicas: int) -> np.ndarray:
    """Return which layers are in some stage that fits with one microbatch in flight, however it shards."""
    band, found = band_of(tables, tables.layers), np.zeros(tables.layers, dtype=bool)
    for stages in (1, 2):
        for placing in tables.placings(stages, replicas, "stage-major")[:1]:
            holders = tables.sites(stages, replicas, placing)[0].holders
            for option in tables.options(replicas, stages):
                way = band.way(option, tables.shares(holders, option.together))
                fits = band.recomputation(way, Passing(1), band.valid).ticks < NEVER
                for first, end in zip(*band.cuts_of(np.nonzero(fits)), strict=True):
                    found[tables.between(int(first), int(end))] = True
    return found


@pytest.mark.parametrize("seed", seeds(60, 400))
@pytest.mark.parametrize("branches", [False, True])
def test_layers_that_fit_nowhere(seed: int, branches: bool) -> None:
    """A layer that is said to fit no device is in no stage that does, and few enough that share are found out."""
    problem = random_branched(seed, BRANCHED) if branches else random_problem(seed, WIDE)
    for cut in (1, 2, 4):
        tight = replace(problem, cluster=replace(problem.cluster, hbm_bytes=problem.cluster.hbm_bytes / cut))
        for tables in Tables.of(tight).grouped:
            least = least_sharing(tables)
            for replicas in range(1, min(tables.microbatches, tables.devices // tables.width) + 1):
                sharing = int(tables.most_sharing(np.array([replicas]))[0])
                none = unfit(tables, sharing)
                assert none.any() == (sharing < least)
                assert not (none & fitting(tables, replicas)).any()


@pytest.mark.parametrize("seed", seeds(40, 200))
def test_bounds_where_layers_branch(seed: int) -> None:
    """No bound by what stages hold exceeds the best plan of an outer choice."""
    for tables in Tables.of(random_branched(seed, replace(BRANCHED, layers=6, devices=12, levels=3))).grouped:
        bounds, found = SumBounds(tables), list(single_choices(tables))
        for _, within, _, choice in found[:: 1 + len(found) // 12]:
            alone = Incumbent()
            for each in SumSearch(tables, Watch(None, None, alone)).prepare(choice):
                each.settle()
            for rival in (NEVER, alone.objective + 1) if alone.found else ():
                assert bounds.filled(within, rival) <= alone.objective
                assert SumBounds(tables).filled(alone_in(choice), rival) <= alone.objective


def heavy(layers: int) -> Problem:
    """Return a model whose last layer has more weights than devices have memory, on very many of them."""
    graph = LayerGraph(
        tuple(Layer(at, 0.001, 0.002, 10**9 if at == layers - 1 else 10**6, 10**6) for at in range(layers)),
        tuple(Edge(at, at + 1, 10**6) for at in range(layers - 1)),
    )
    cluster = Cluster(4096, 10**9, (Level(8, 1e11, 0.0), Level(512, 1e10, 0.0)))
    return Problem("heavy", {Variant(1): graph}, cluster, Training(4096), Choices(), DEFAULT)


def test_nothing_is_searched_where_a_layer_fits_nowhere() -> None:
    """Not one outer choice is looked at: as many stages, replicas and ways to shard as there are change nothing."""
    problem, watch = heavy(80), Watch(None, None, Incumbent())
    settle_sums(Tables.of(problem), watch)
    assert (watch.total, watch.settled) == (0, 0)
    result = solve(problem)
    assert result.status is Status.INFEASIBLE
    assert "the stage that holds layer 79 needs at least" in (result.reason or "")


def test_a_copy_of_a_smaller_table() -> None:
    """A layer whose weights are a copy of more than its table has fits beside the table, and not alone."""
    layers = (Layer("a", 1.0, 1.0, 10, 1), Layer("b", 1.0, 1.0, 60, 1, tied_bytes=60))
    graph = LayerGraph(layers, (Edge("a", "b", 1),), "a")
    cluster = Cluster(2, 60, (Level(2, 1e9, 0.0),))
    problem = Problem("tied", {Variant(1): graph}, cluster, Training(1, "sgd"), Choices(zero=frozenset({0})), DEFAULT)
    assert solve(problem).plan is not None


def test_a_layer_that_would_keep_more() -> None:
    """Where every stage has to recompute, a layer that keeps more then fits where another of its stage does so."""
    again = (Recomputed("full", 1.0, 1),), (Recomputed("full", 1.0, 99),)
    layers = tuple(Layer(at, 1.0, 1.0, 10, 1, recomputed=each) for at, each in enumerate(again))
    graph = LayerGraph(layers, (Edge(0, 1, 1),))
    cluster = Cluster(2, 90, (Level(2, 1e9, 0.0),))
    choices = Choices(zero=frozenset({0}), stage_recompute=frozenset({"full"}))
    problem = Problem("keeps", {Variant(1): graph}, cluster, Training(1, "sgd"), choices, DEFAULT)
    plan = solve(problem).plan
    assert plan is not None
    assert [(stage.layers, stage.recomputed) for stage in plan.stages] == [((0, 1), 1)]
