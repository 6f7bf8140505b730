"""Bytes that an iteration sends over each level: counted by hand, by the reference, and as a budget of the solver."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import islice, pairwise, product

import numpy as np
import oracle_chunks
import oracle_crossing
import oracle_default as oracle
import oracle_plans
import pytest
import random_inside
import random_uneven
from judging import judged
from oracle_groups import Group
from random_branches import BRANCHED, cuttings, orders, random_branched, reordered
from random_default import SMALL, Size, random_plan, random_problem
from random_places import idle_plan, roomy, spoilt
from random_problems import show_plan, show_problem
from seeds import seeds
from test_chunks_agreement import BOTH, chunked_problem

from nest.cluster import Cluster, Level
from nest.constraints import Filters, LevelTraffic
from nest.cost.exchanges import Exchanges
from nest.evaluate import crossing, evaluate
from nest.graph import Collective, Edge, Layer, LayerGraph
from nest.plan import Plan, Stage, over_replicas
from nest.presets import DEFAULT, PAPER
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Status
from nest.solve import solve

NET = Cluster(8, 1e12, (Level(2, 1e9, 1e-6, "node"), Level(4, 1e8, 1e-5, "rack")))
COUPLED = Size(layers=3, devices=6, levels=2, variants=1, batch=6)
WIDER = Size(layers=3, devices=12, levels=3, variants=2, batch=6)


def chain(*layers: Layer, size: float = 100) -> LayerGraph:
    """Return a chain whose edges have so many bytes."""
    edges = tuple(Edge(one.id, two.id, size) for one, two in pairwise(layers))
    return LayerGraph(layers, edges)


def problem_of(variant: Variant, graph: LayerGraph, microbatches: int = 4) -> Problem:
    """Return a problem under `default` on two levels."""
    return Problem("crossing", {variant: graph}, NET, Training(microbatches, "sgd"), Choices(), DEFAULT)


def test_ring_by_hand() -> None:
    """Three devices of three nodes: each of three hops carries two thirds of the bytes, twice for an all-reduce."""
    exchanges = Exchanges(problem_of(Variant(1), chain(Layer("a", 1, 1, 0, 0))))
    where = exchanges.spread([0, 2, 4])
    for level in (0, 1):
        assert exchanges.sent_over(level, "all-gather", where, np.array([600.0])).tolist() == [1200]
    assert exchanges.sent_over(0, "ring", exchanges.spread([0, 1, 2]), np.array([600.0])).tolist() == [3 * 2 * 600]
    assert exchanges.sent_over(1, "ring", exchanges.spread([0, 1, 2]), np.array([600.0])).tolist() == [2 * 2 * 600]


def test_plan_by_hand() -> None:
    """Two stages in two replicas: boundaries, all-reduces in layers and of gradients, level by level."""
    summed = Collective("all-reduce", 60, "tensor", "forward")
    first, last = (Layer(name, 1, 1, weights, 0, collectives=(summed,)) for name, weights in (("a", 1000), ("b", 3000)))
    problem = problem_of(Variant(2), chain(first, last))
    stages = tuple(Stage((name,), start, 2) for name, start in (("a", 0), ("b", 4)))
    plan = Plan(Variant(2), 2, 2, stages, arrangement="stage-major")
    assert evaluate(problem, plan).legal
    microbatches = 2
    boundary = 2 * 2 * 2 * 100  # both ways, in both replicas, from two devices
    inside = 2 * 2 * 2 * 60  # of both stages, in both replicas, two devices that send all bytes of theirs
    gradients = 2 * (2 * 1000 + 2 * 3000)  # two devices of each stage, and their counterparts
    assert crossing(problem, plan) == (
        microbatches * (boundary + inside) + gradients,
        microbatches * boundary + gradients,
    )
    assert crossing(problem.with_preset(PAPER), plan) == ()


def test_sharded_weights_by_hand() -> None:
    """Type 3 gathers weights twice for each microbatch and scatters gradients; type 1 does either once."""
    problem = problem_of(Variant(1), chain(Layer("a", 1, 1, 800, 0)))
    for zero, each in ((3, 3 * 4), (2, 4 + 1), (1, 2)):
        stages = (Stage(("a",), 0, 1, sharding=over_replicas(zero, 2)),)
        sent = each if zero == 1 else each // 2 if zero == 3 else 2 + 1
        plan = Plan(Variant(1), 2, 1, stages, arrangement="stage-major")
        assert crossing(problem, plan) == (sent * 800, 0), zero


@pytest.mark.parametrize("seed", seeds(60, 300))
def test_judge(seed: int) -> None:
    """The judge counts as the reference does, which lists the members of every group of random plans."""
    problem = random_problem(seed, SMALL) if seed % 3 else (roomy if seed % 2 else spoilt)(seed)
    for again in range(3):
        plan = random_plan(again, problem) if seed % 3 else idle_plan(again, problem)
        if plan is None or not _counted(problem, plan):
            continue
        found, (wanted, doubtful) = crossing(problem, plan), oracle_crossing.crossing(problem, plan)
        assert found == wanted or doubtful, f"{show_problem(problem)}\n{show_plan(plan)}"


@pytest.mark.parametrize("seed", seeds(20, 300))
def test_reference_of_own_widths(seed: int) -> None:
    """The same of plans whose stages have tensor widths of their own, or are sharded inside."""
    drawn = random_inside if seed % 2 else random_uneven
    problem = drawn.random_problem(seed, random_uneven.Size(layers=4, devices=12))
    for again in range(seed, seed + 4):
        plan = drawn.random_plan(again, problem)
        if plan is not None and _counted(problem, plan):
            found, (wanted, doubtful) = crossing(problem, plan), oracle_crossing.crossing(problem, plan)
            assert found == wanted or doubtful, f"{show_problem(problem)}\n{show_plan(plan)}"


def _counted(problem: Problem, plan: Plan) -> bool:
    verdict = evaluate(problem, plan)
    misplaced = {"nesting", "placement", "devices"} & {each.rule for each in verdict.violations}
    return verdict.objective_ticks is not None and not misplaced


def test_reference_tells_algorithms_apart() -> None:
    """Where several are as fast and send something else, the reference says so."""
    slow = Cluster(4, 1, (Level(2, 1e6, 0.0), Level(2, 1e6, 0.0)))
    assert Group(slow, [0, 1, 2, 3]).sent_over(1, "all-gather", Fraction(400)) == (2 * 300, True)


MANY = 600
"""Problems with more plans than this are left out."""


def limited(seed: int, problem: Problem, plans: Iterable[Plan]) -> tuple[Problem, int | None] | None:
    """Return a problem whose best plan sends more than its budget, and what the best that keeps it takes; or None."""
    rng, every = random.Random(f"traffic {seed}"), list(islice(plans, MANY + 1))
    level = rng.randrange(len(problem.cluster.levels))
    if len(every) > MANY:
        return None
    legal = [(verdict, plan) for plan, verdict in judged(problem, every) if verdict.legal]
    sent = [(each.objective_ticks or 0, crossing(problem, plan, each.scale)[level]) for each, plan in legal]
    least = min((each for _, each in sent), default=0)
    if not sent or min(sent)[1] == least:
        return None
    budget = rng.choice([each for _, each in sent if each < min(sent)[1]]) + rng.choice([0, 0.5])
    if rng.random() < 0.1:
        budget = max(least - 1, 0)
    wanted = min((ticks for ticks, each in sent if each <= budget), default=None)
    return problem.with_constraints(*problem.constraints, LevelTraffic(level, budget)), wanted


def agree(seed: int, problem: Problem, plans: Iterable[Plan]) -> None:
    """Assert that the solver finds the best of the plans that keep a budget which the best of all breaks."""
    found = limited(seed, problem, plans)
    if found is None:
        return
    budgeted, wanted = found
    result = solve(budgeted)
    shown = f"{show_problem(budgeted)}\n{result}\n{wanted}"
    assert (result.objective_ticks, result.backend) == (wanted, "cpsat"), shown
    assert result.status is (Status.INFEASIBLE if wanted is None else Status.OPTIMAL), shown


@pytest.mark.parametrize("seed", seeds(30, 1500))
def test_budget(seed: int) -> None:
    """All plans of a few layers, counted by the judge."""
    problem = random_problem(seed, COUPLED)
    agree(seed, problem, oracle_plans.plans(problem))


@pytest.mark.parametrize("seed", seeds(10, 300))
def test_budget_of_wider(seed: int) -> None:
    """Wider variants on three levels."""
    problem = random_problem(7000 + seed, WIDER).with_choices(zero=frozenset({0, 3}), stages=frozenset({1, 2}))
    agree(seed, problem, oracle_plans.plans(problem))


@pytest.mark.parametrize("seed", seeds(10, 300))
def test_budget_where_devices_are_idle(seed: int) -> None:
    """Placings with gaps, and around devices that are down: which one it is decides what crosses a level."""
    problem = (spoilt if seed % 2 else roomy)(seed).with_choices(zero=frozenset({0, 2}))
    agree(seed, problem, oracle_plans.plans(problem))


@pytest.mark.parametrize("seed", seeds(10, 100))
def test_budget_where_layers_branch(seed: int) -> None:
    """Stages that are differences of downsets: a budget of bytes looks at no runs."""
    problem = random_branched(seed, BRANCHED).with_choices(zero=frozenset({0, 3}))
    agree(seed, problem, branched_plans(problem))


@pytest.mark.parametrize("seed", seeds(25, 600))
def test_budget_of_chunks(seed: int) -> None:
    """Interleaved pipelines, alone or beside 1F1B: chunks send at boundaries of their own, and around the pipeline."""
    problem = chunked_problem(seed, Size(layers=5, devices=6, levels=2, variants=1, batch=8))
    if seed % 3 == 0:
        problem = problem.with_choices(schedules=BOTH)
    agree(seed, problem, [*chunked_plans(problem), *(oracle_plans.plans(problem) if seed % 3 == 0 else ())])


@pytest.mark.parametrize("seed", seeds(40, 300))
def test_judge_of_chunks(seed: int) -> None:
    """The judge counts as the reference does where stages have chunks."""
    problem = chunked_problem(seed)
    for plan in islice(chunked_plans(problem), 3):
        found, (wanted, doubtful) = crossing(problem, plan), oracle_crossing.crossing(problem, plan)
        assert found == wanted or doubtful, f"{show_problem(problem)}\n{show_plan(plan)}"


def chunked_plans(problem: Problem) -> Iterator[Plan]:
    """Yield every interleaved plan of a problem."""
    for chunked in oracle_chunks.choices(problem, oracle.Rounding(0)):
        stages = (list(oracle_chunks.inners(problem, chunked, at)) for at in range(chunked.stages))
        for picked in product(*stages):
            yield oracle_chunks.plan_of(chunked, list(picked))


def branched_plans(problem: Problem) -> Iterator[Plan]:
    """Yield every plan of a problem whose layers branch."""
    for order in orders(next(iter(problem.graphs.values()))):
        changed = reordered(problem, order)
        for outer in oracle_plans.outer_choices(changed):
            for runs in cuttings(order, outer.stages):
                for picked in product(*(list(oracle_plans.inners(changed, outer, run)) for run in runs)):
                    yield oracle_plans.plan_of(changed, outer, runs, list(picked))


def test_several_budgets() -> None:
    """Each level may have its own, and a decimal one holds to the byte below it."""
    problem = random_problem(5, COUPLED).with_constraints(LevelTraffic(0, 10.5), LevelTraffic(0, 3))
    assert Filters(problem).crossed == ((0, 10), (0, 3))
    assert Filters(problem.with_preset(PAPER)).crossed == ()
