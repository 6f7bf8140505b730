"""Blinded solvers: plans that are worse or do not fit, worked by hand, and the truth about random problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest
from ablate_problems import ONE_LAYER, TWO_LEVELS, UNSHARDED, problem_of
from random_problems import Size, placed_plan, random_problem

from nest.ablate import BLINDINGS, FULL, Row, Verdict, ablate, blinding_named
from nest.cluster import Level
from nest.constraints import EqualStages, WithinLevel
from nest.evaluate import evaluate
from nest.graph import Layer, LayerGraph
from nest.plan import Plan, inside_stage
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem, Variant
from nest.solve import solve

TINY = Size(layers=3, devices=5, levels=3, variants=1, microbatches=6)


def rows_of(problem: Problem, *names: str, **sweeps: list[str | int | float]) -> dict[str, Row]:
    """Return the rows of a study by blinding."""
    return {row.blinding: row for row in ablate(problem, names, sweeps)}


def seconds(row: Row) -> float:
    """Return the judged objective of a row, which is a whole number of ticks and therefore exact as a decimal."""
    objective = row.outcome.objective
    assert objective is not None
    return float(objective)


def test_without_memory_it_does_not_fit() -> None:
    """Two replicas of everything take 8 s and 40 bytes, two stages 9 s and 20; a device has 30."""
    rows = rows_of(problem_of(2, (Level(2, 10.0, 0.0),), hbm=30, microbatches=2, zero=UNSHARDED), "memory")
    assert (seconds(rows[FULL]), rows["memory"].outcome.believed_s) == (9, 8.0)
    outcome = rows["memory"].outcome
    assert (outcome.verdict, outcome.objective, rows["memory"].ratio) == (Verdict.BROKEN, None, None)
    assert [(each.stage, each.needed_bytes, each.device_bytes) for each in outcome.overflows] == [(0, 40, 30)]
    assert [each.excess_bytes for each in outcome.overflows] == [10]
    assert [violation.rule for violation in outcome.violations] == ["memory"]


def test_memory_that_suffices_is_worth_nothing() -> None:
    """With 40 bytes the same plan is the best, and seeing memory gains nothing."""
    row = rows_of(problem_of(2, (Level(2, 10.0, 0.0),), hbm=40, microbatches=2, zero=UNSHARDED), "memory")["memory"]
    assert (row.ratio, row.hides, seconds(row)) == (1.0, True, 8)


@pytest.mark.parametrize(
    ("name", "believed", "judged"),
    [
        ("topology", 3.15, 23.15),  # 4 replicas, over 2 halvings at 100 bytes/s
        ("topology-worst", 12.0, 12.0),  # 1 replica: 2 would take 6 + 10 + 2 x 10
        ("sync", 3.0, 23.15),  # 4 replicas for nothing
    ],
)
def test_what_the_network_is_worth(name: str, believed: float, judged: float) -> None:
    """A flat network and a free synchronisation make too many replicas, a slow one too few."""
    rows = rows_of(ONE_LAYER, name)
    assert seconds(rows[FULL]) == 6.1
    assert (rows[name].outcome.believed_s, seconds(rows[name])) == (believed, judged)
    assert rows[name].ratio == float(Fraction(str(judged)) / Fraction("6.1"))


def test_without_placement_a_replica_straddles() -> None:
    """Of two replicas of two stages, on nodes of three, the second lies across.

    Alone a replica takes 3.01 s x 3. The two are believed to take 3.01 s x 2 + 0.01 s of synchronisation; in truth
    the transfers of the second take 2 s, and its load is 5 s.
    """
    levels = (Level(3, 1000.0, 0.0), Level(2, 10.0, 0.0))
    rows = rows_of(problem_of(2, levels, hbm=20, microbatches=2, edge=10, zero=UNSHARDED), "placement")
    assert seconds(rows[FULL]) == 9.03
    assert rows["placement"].outcome.believed_s == 6.03
    assert seconds(rows["placement"]) == 10.01


def test_without_zero_it_is_slower() -> None:
    """One stage that shards its gradients takes 6 s + 1 s for the ring, two take (1 + 1 + 2) s x 2."""
    rows = rows_of(problem_of(2, (Level(2, 10.0, 0.0),), hbm=30, microbatches=1, edge=10), "zero")
    assert (seconds(rows[FULL]), seconds(rows["zero"])) == (7, 8)


def test_without_zero_there_may_be_no_plan() -> None:
    """One layer of 20 bytes fits two devices of 15 only when it is sharded."""
    row = rows_of(problem_of(1, (Level(2, 10.0, 0.0),), hbm=15), "zero")["zero"]
    assert (row.outcome.verdict, row.outcome.plan, row.ratio) == (Verdict.INFEASIBLE, None, None)
    assert row.outcome.reason is not None
    assert "needs at least 20 bytes" in row.outcome.reason


def test_without_recompute_is_judged_without() -> None:
    """A first stage that need not repeat its pass takes 3 s instead of 4, in a problem that does not ask for it."""
    rows = rows_of(
        problem_of(2, (Level(2, 10.0, 0.0),), stages=frozenset({2}), zero=UNSHARDED, recompute="full"), "recompute"
    )
    assert (seconds(rows[FULL]), seconds(rows["recompute"])) == (4 * 5, 3 * 5)
    assert rows["recompute"].ratio == 0.75


def heavy_first() -> Problem:
    """Return a chain of layers of 3, 1, 1 and 1 s forward for two stages."""
    problem = problem_of(4, (Level(2, 10.0, 0.0),), replicas=frozenset({1}), zero=UNSHARDED)
    graph = problem.graphs[Variant(1)]
    layers = tuple(replace(layer, forward_s=0.0 if layer.id else 4.0) for layer in graph.layers)
    return replace(problem, graphs={Variant(1): replace(graph, layers=layers)})


def test_uneven_stages_are_worth_something() -> None:
    """Layers of 6, 2, 2 and 2 s: stages of 6 and 6 take 30 s, equal ones of 8 and 4 take 40 s."""
    rows = rows_of(heavy_first(), "uneven")
    assert (seconds(rows[FULL]), seconds(rows["uneven"])) == (30, 40)


def test_equal_stages_count_the_most_frequent_kind() -> None:
    """An embedding goes with the first stage, and is not one of the layers that are shared out."""
    problem = problem_of(5, (Level(2, 10.0, 0.0),), stages=frozenset({2}), zero=UNSHARDED)
    graph = problem.graphs[Variant(1)]
    layers = tuple(replace(layer, kind="block" if layer.id else "embedding") for layer in graph.layers)
    believed = blinding_named("uneven").believe(replace(problem, graphs={Variant(1): replace(graph, layers=layers)}))
    assert believed.constraints == (EqualStages(counting=[1, 2, 3, 4]),)
    plan = solve(believed).plan
    assert plan is not None
    assert [stage.layers for stage in plan.stages] == [(0, 1, 2), (3, 4)]


def test_joined_blindings_hide_both() -> None:
    """Without memory and ZeRO the believed problem lacks both, and the plan is judged with both."""
    believed = blinding_named("memory + zero").believe(ONE_LAYER.with_choices(zero=frozenset({0, 3})))
    assert (believed.choices.zero, believed.cluster.hbm_bytes) == (frozenset({0}), 2**62)
    row = rows_of(ONE_LAYER, "topology+sync")["topology+sync"]
    assert seconds(row) == 23.15


def test_blindings_that_hide_nothing() -> None:
    """Where there is nothing to hide the problem stays as it is, and the row repeats the full one."""
    flat = problem_of(2, (Level(4, 10.0, 0.0),), zero=UNSHARDED).with_preset(ARTIFACT)
    names = ("topology", "topology-worst", "placement", "zero", "recompute")
    for name, row in rows_of(flat, *names).items():
        assert not row.hides
        assert row.outcome is row.full, name


def test_constraints_on_levels_are_hidden_with_the_levels() -> None:
    """A constraint that names a level is no part of a flat network, and the judge still asks for it."""
    problem = problem_of(1, TWO_LEVELS, hbm=7, replicas=frozenset({1})).with_constraints(WithinLevel("stage", "node"))
    believed = blinding_named("topology").believe(problem)
    assert believed.constraints == ()
    row = rows_of(problem, "topology")["topology"]
    assert row.full.verdict is Verdict.INFEASIBLE  # 20 bytes over two devices are more than 7, over four they are 5
    assert "within_level" in [violation.rule for violation in row.outcome.violations]


def test_a_blinding_may_contradict_the_problem() -> None:
    """What cannot be believed is a row that says so, not an error."""
    graphs = {
        Variant(1): problem_of(1, TWO_LEVELS).graphs[Variant(1)],
        Variant(2): LayerGraph((Layer("other", 1.0, 2.0, 10, 0),), ()),
    }
    row = rows_of(replace(ONE_LAYER, graphs=graphs), "uneven")["uneven"]
    assert row.outcome.verdict is Verdict.REFUSED
    assert "no layer" in str(row.outcome.reason)


@pytest.mark.parametrize("seed", range(60))
def test_no_blinded_plan_beats_the_optimum(seed: int) -> None:
    """In truth no plan of a blinded solver is better than the full optimum, nor legal where there is no plan."""
    names = [name for name in BLINDINGS if name != "recompute"]
    for row in ablate(random_problem(seed), names):
        assert row.outcome.proven or row.outcome.verdict is Verdict.REFUSED
        if row.full.objective is None:
            assert row.outcome.verdict is not Verdict.LEGAL
        elif row.outcome.objective is not None:
            assert row.outcome.objective >= row.full.objective


def plans_of(problem: Problem) -> Iterator[Plan]:
    """Yield every plan that the devices have room for."""
    (variant,) = problem.variants
    layers = len(problem.graphs[variant])
    kinds = [inside_stage(0, 1)]
    kinds += [inside_stage(zero, degree) for zero in (1, 2, 3) for degree in problem.zero_degrees(variant.width)]
    for count in range(1, layers + 1):
        for inner in combinations(range(1, layers), count - 1):
            for shardings in product(kinds, repeat=count):
                used = variant.width * sum(sharding.degree for sharding in shardings)
                for replicas in range(1, problem.cluster.devices // used + 1):
                    yield placed_plan(problem, variant, [0, *inner, layers], shardings, replicas)


@pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)
@pytest.mark.parametrize("name", ["placement", "sync", "topology-worst", "placement+sync"])
def test_believed_problems_are_solved_exactly(name: str, preset: Any) -> None:
    """Presets and networks that only blindings make are solved to the optimum, too: the judge prices every plan."""
    found = []
    for seed in range(12):
        believed = blinding_named(name).believe(random_problem(seed, TINY).with_preset(preset))
        judged = [evaluate(believed, plan) for plan in plans_of(believed)]
        best = min([each.objective_ticks for each in judged if each.legal and each.objective_ticks], default=None)
        assert solve(believed).objective_ticks == best, seed
        found.append(best)
    assert len(found) - found.count(None) > 6
