"""Runners-up, changes of the problem, and the search once more: against solving each choice by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import random_default
import random_problems

from nest.alternatives import CHANGES, looked_at, runners_up, sensitivity
from nest.alternatives.runners import OtherChoices, outer_of
from nest.cluster import Cluster, Level
from nest.constraints import Outer
from nest.evaluate import evaluate
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan
from nest.presets import PAPER
from nest.problem import Problem, Training, Variant
from nest.result import Status
from nest.solve import solve

SEEDS = (1, 5, 10, 11, 13, 14)
"""Those of random problems that have a plan."""

NAMES = [(change.figure, change.value) for change in CHANGES]


def drawn(seed: int) -> Problem:
    """Return a random problem, under one preset or the other."""
    if seed % 2:
        return random_problems.random_problem(seed).with_preset(PAPER)
    return random_default.random_problem(seed)


def best_of_each(problem: Problem) -> dict[Outer, int]:
    """Return the objective of the best plan of each outer choice, each solved by itself."""
    found: dict[Outer, int] = {}
    for variant in problem.variants:
        known: frozenset[Outer] = frozenset()
        alone = problem.with_choices(
            tensor=frozenset({variant.tensor}),
            expert=frozenset({variant.expert}),
            context=frozenset({variant.context}),
            microbatch=frozenset({variant.microbatch}),
            sequence=variant.sequence,
        )
        while True:
            result = solve(alone.with_constraints(*problem.constraints, OtherChoices(known)))
            if result.plan is None or result.objective_ticks is None:
                break
            outer = outer_of(result.plan)
            found[outer] = result.objective_ticks
            known |= {outer}
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_runners_up_are_the_next_best(seed: int) -> None:
    """They are those of a list of all outer choices by their best plan, without a gap, and none of them twice."""
    problem = drawn(seed)
    result = solve(problem)
    assert result.plan is not None
    every = best_of_each(problem)
    assert every[outer_of(result.plan)] == result.objective_ticks
    found, complete = runners_up(problem, result.plan, 4)
    others = sorted(ticks for outer, ticks in every.items() if outer != outer_of(result.plan))
    assert [each.objective_ticks for each in found] == others[:4]
    assert complete == (len(others) >= 4)
    assert len({each.outer for each in found}) == len(found)
    for each in found:
        assert each.proven
        assert every[each.outer] == each.objective_ticks == evaluate(problem, each.plan).objective_ticks


def test_no_time_no_runners_up() -> None:
    """A limit that has passed finds nothing, and says that this is not all."""
    problem = chain()
    plan = solve(problem).plan
    assert plan is not None
    assert runners_up(problem, plan, 2, time_limit_s=0.0) == ((), False)


def chain() -> Problem:
    """Return four equal layers on pairs of devices, of which every second link is slow."""
    layers = tuple(Layer(at, 1.0, 2.0, 10, 5) for at in range(4))
    edges = tuple(Edge(at, at + 1, 100) for at in range(3))
    cluster = Cluster(8, 1000, (Level(2, 1e3, 0.0, "pair"), Level(4, 1e2, 0.0, "all")))
    return Problem("chain", {Variant(1): LayerGraph(layers, edges)}, cluster, Training(16))


def solved(problem: Problem) -> Plan:
    """Return the best plan of a problem."""
    plan = solve(problem).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_are_judged_and_solved(seed: int) -> None:
    """A plan's time is the judge's under the change; the best plan there is the solver's, and never slower."""
    problem = drawn(seed)
    result = solve(problem)
    assert result.plan is not None
    for row in sensitivity(problem, result.plan, time_limit_s=600.0):
        changed = row.change.apply(problem)
        evaluation = evaluate(changed, result.plan)
        assert row.broken == tuple(dict.fromkeys(each.rule for each in evaluation.violations))
        if evaluation.objective_ticks is not None:
            assert row.plan_s == evaluation.scale.time.seconds(evaluation.objective_ticks)
        assert row.best_s == solve(changed).objective_s
        assert row.status in (Status.OPTIMAL, Status.INFEASIBLE)
        if not row.broken:
            assert row.plan_s is not None
            assert row.best_s is not None
            assert row.best_s <= row.plan_s


def test_changes_by_hand() -> None:
    """Each changes its figure alone, and work says by how much times are to be compared."""
    problem = chain()
    rows = {(row.change.figure, row.change.value): row for row in sensitivity(problem, solved(problem))}
    assert list(rows) == NAMES
    assert {row.status for row in rows.values()} == {None}, "without time nothing is searched"
    assert rows["batch", "double"].work == 2
    levels = {name: change.apply(problem).cluster for name, change in zip(NAMES, CHANGES, strict=True)}
    assert levels["device memory", "+25 %"].hbm_bytes == 1250
    inside = levels["bandwidth inside nodes", "half"].levels
    assert [level.bandwidth_bytes_per_s for level in inside] == [5e2, 1e2]
    between = levels["bandwidth between nodes", "double"].levels
    assert [level.bandwidth_bytes_per_s for level in between] == [1e3, 2e2]


def test_changes_that_do_not_go_with_a_problem_are_left_out() -> None:
    """A single level has nothing between its groups, and half of an odd batch is no batch."""
    problem = replace(chain(), training=Training(15), cluster=Cluster(8, 1000, (Level(8, 1e3, 0.0),)))
    figures = [(row.change.figure, row.change.value) for row in sensitivity(problem, solved(problem))]
    left_out = set(NAMES) - set(figures)
    assert left_out == {("bandwidth between nodes", "half"), ("bandwidth between nodes", "double"), ("batch", "half")}


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed % 2 == 0])
def test_search_tells_what_it_looks_at(seed: int) -> None:
    """Each outer choice comes up once, its bound is none too high, and the last of the best plans is the optimum."""
    problem = random_default.random_problem(seed)
    every, looked = best_of_each(problem), looked_at(problem)
    outers = [Outer(each.variant, each.choice.stages, each.choice.replicas) for each in looked]
    whole = {(outer, each.choice.arrangement, each.schedule) for outer, each in zip(outers, looked, strict=True)}
    assert looked
    assert len(whole) == len(looked)
    assert [each.bound_ticks for each in looked] == sorted(each.bound_ticks for each in looked)
    for outer, each in zip(outers, looked, strict=True):
        assert (each.value_ticks is not None) == (each.fate == "best so far")
        if each.value_ticks is not None:
            assert each.bound_ticks <= every[outer] <= each.value_ticks
    assert min(each.value_ticks for each in looked if each.value_ticks is not None) == min(every.values())


def test_searches_of_which_nothing_is_told() -> None:
    """Those of other presets, whose engines know no such steps."""
    assert not looked_at(random_problems.random_problem(1).with_preset(PAPER))
