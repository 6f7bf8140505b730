"""Solver, judge, checker and reference agree under preset `default`, on problems small enough to try all."""

from __future__ import annotations

from dataclasses import replace

import oracle_default as oracle
import oracle_plans
import pytest
from judging import judged
from random_default import SMALL, Size, random_plan, random_problem, with_whole_experts
from random_problems import show_plan, show_problem
from seeds import seeds

from nest.certificate import check as claimed
from nest.cluster import Cluster, Level
from nest.constraints import AllowedDegrees, Constraint, CutsAt, EqualStages, MaxDevices, MemoryHeadroom, Pin, Together
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan, Stage, over_replicas
from nest.presets import DEFAULT
from nest.problem import Choices, Copies, Problem, Training, Variant
from nest.result import Result, Status
from nest.solve import solve
from nest.units import HARD_LIMIT

TINY = Size(layers=3, devices=6, levels=2, variants=1, batch=6)
LARGER = Size(layers=5, devices=16, levels=3, variants=2)
LARGE = Size(layers=14, devices=120, levels=4, variants=4, batch=200)


def check(problem: Problem) -> Result:
    """Assert that `solve` finds the best objective there is, and a legal plan that has it."""
    result = solve(problem)
    rounding = oracle.Rounding(result.time.exponent)
    best = oracle.best(problem, rounding)
    shown = f"{show_problem(problem)}\n{result}\n{show_plan(result.plan)}\n{best.objective} {show_plan(best.plan)}"
    assert (result.plan is None) == (best.plan is None), shown
    if result.plan is None or best.plan is None:
        assert result.status is Status.INFEASIBLE, shown
        assert result.reason, shown
        assert claimed(problem, HARD_LIMIT).holds, shown
        return result
    assert result.status is Status.OPTIMAL, shown
    verdict, rival = evaluate(problem, result.plan), evaluate(problem, best.plan)
    assert verdict.legal, shown
    assert rival.legal, shown
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    assert result.objective_ticks is not None
    assert best.objective is not None
    assert rival.objective_ticks is not None
    assert result.objective_ticks <= rival.objective_ticks, shown
    slack = 1000 * problem.microbatches(result.plan.variant) if rounding.doubtful else 0
    assert abs(result.objective_ticks - best.objective) <= slack, shown
    assert claimed(problem, result.objective_ticks).holds, shown
    assert refuted_by(problem, result.objective_ticks + 1) == result.objective_ticks, shown
    return result


def refuted_by(problem: Problem, value: int) -> int | None:
    """Return what the legal plan takes with which the checker refutes a claim."""
    better = claimed(problem, value).better
    verdict = None if better is None else evaluate(problem, better)
    return verdict.objective_ticks if verdict is not None and verdict.legal else None


@pytest.mark.parametrize("seed", seeds(40, 160))
def test_small(seed: int) -> None:
    """Every plan of a few layers on a few devices."""
    check(random_problem(seed, SMALL))


@pytest.mark.parametrize("seed", seeds(20, 40, first=3000))
def test_numbers_of_layers_that_recompute(seed: int) -> None:
    """So many layers of each stage do, or all that can, and where nothing may be kept, one kind has to."""
    problem = random_problem(seed, SMALL)
    known = frozenset(kind for graph in problem.graphs.values() for kind in graph.recomputes)
    kinds = known if known and seed % 2 else None
    check(problem.with_choices(stage_recompute=kinds, recomputed=frozenset({1 + seed % 3}), hybrid=seed % 5 > 0))


@pytest.mark.parametrize("seed", range(1000, 1025))
def test_figures_that_are_no_short_decimals(seed: int) -> None:
    """Figures of any length: no worse than the reference's plan, to the tick."""
    check(random_problem(seed, SMALL, ugly=True))


@pytest.mark.parametrize("seed", seeds(30, 400))
def test_experts_that_tensor_ranks_hold_whole(seed: int) -> None:
    """Their gradients are summed over these ranks as well, which share what is spread."""
    check(with_whole_experts(60_000 + seed))


def test_gradients_of_whole_experts_by_hand() -> None:
    """Four ranks in two pairs, 8 bytes of weights, of which 6 are experts', at 1 byte/s for each rank.

    Dense ones are summed between the two replicas, 2 bytes of gradients there and back over half of them: 2 s. Experts'
    are summed over all four: 2 * 6 * 3 / 4 = 9 s, and over two, where each holds a part: 6 s.
    """
    layer = Layer(0, 1.0, 2.0, 8, 1, expert_parameter_bytes=6)
    variant = Variant(2, 1, 1, True)
    graph = LayerGraph((layer,), ())
    for whole, expected in ((False, 2 + 6), (True, 2 + 9)):
        training = Training(2, "sgd", copies=Copies(0, 1), whole_experts=whole)
        problem = Problem("pairs", {variant: graph}, Cluster(4, 100, (Level(4, 1.0, 0.0),)), training, preset=DEFAULT)
        plan = Plan(variant, 2, 2, (Stage((0,), 0, 2),), "stage-major")
        verdict = evaluate(problem, plan)
        assert verdict.legal
        assert verdict.scale.time.seconds(verdict.stages[0].sync) == pytest.approx(expected)
    sharded = replace(plan, stages=(replace(plan.stages[0], sharding=over_replicas(1, 2)),))
    held = replace(problem, training=replace(problem.training, copies=Copies(6, 1)))
    assert evaluate(held, sharded).memory_bytes == [2 * 8 + 1 + 6 * 2 // 2 + 6 * 6 // 4]


def test_slow_transfers_in_different_replicas() -> None:
    """A stage's entry is slow in one replica and its exit in the other: no stage waits for both, nor may a bound."""
    passes = tuple(Layer(at, 0.1, 0.2, 100_000, 0) for at in range(3))
    graph = LayerGraph(passes, tuple(Edge(at, at + 1, 1_000_000) for at in range(2)))
    cluster = Cluster(8, 10**9, (Level(2, 1e9, 0.0), Level(4, 1e6, 0.0)))
    wanted = Choices(stages=frozenset({3}), replicas=frozenset({2}), zero=frozenset({0}))
    problem = Problem("two replicas", {Variant(1): graph}, cluster, Training(2, "sgd"), wanted, DEFAULT)
    check(problem)
    check(random_problem(31740, LARGER))


def test_replicas_that_cross_at_different_boundaries() -> None:
    """Stages whose two boundaries are far in different replicas: no replica pays for both."""
    check(random_problem(2265, LARGER))


def test_larger_groups_may_hold_more() -> None:
    """Of what a stage holds that it gathers, a group of one rank holds nothing besides: it alone fits here."""
    experts = tuple(Layer(at, 0.1, 0.1, 1000, 0, "", 1000) for at in range(2))
    graph, cluster = LayerGraph(experts, (Edge(0, 1, 0),)), Cluster(8, 2000, (Level(8, 1e6, 0.0),))
    training = Training(8, "sgd", copies=Copies(0, 1, 0.5), holds_gathered=True, step_s_per_byte=1e-5)
    wanted = Choices(stages=frozenset({2}), replicas=frozenset({2}), zero=frozenset({3}))
    problem = Problem("experts", {Variant(1, 2): graph}, cluster, training, wanted, DEFAULT)
    for hbm_bytes, degree in ((2000, 2), (2500, 4)):
        plan = check(replace(problem, cluster=replace(cluster, hbm_bytes=hbm_bytes))).plan
        assert plan is not None
        assert [stage.sharding.degree for stage in plan.stages] == [degree, degree]


def test_no_room_for_a_split_transfer() -> None:
    """A variant that is wider than the cluster has no plan, and does no harm."""
    graph = LayerGraph((Layer(0, 0.1, 0.2, 1000, 0), Layer(1, 0.1, 0.2, 1000, 0)), (Edge(0, 1, 1000),))
    cluster, training = Cluster(2, 10**6, (Level(2, 1e6, 0.0),)), Training(4, "sgd", splits_transfers=True)
    for variants in ((3,), (1, 3)):
        graphs = {Variant(tensor): graph for tensor in variants}
        check(Problem("wide", graphs, cluster, training, preset=DEFAULT))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 3000))
def test_larger(seed: int) -> None:
    """More layers and devices."""
    check(random_problem(seed, LARGER, ugly=seed % 10 == 9))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_plan_is_better(seed: int) -> None:
    """Where the reference is too slow, at least no random plan is better."""
    problem = random_problem(seed, LARGE)
    result = solve(problem)
    for plan, verdict in judged(problem, (random_plan(again, problem) for again in range(40))):
        if verdict.legal:
            shown = f"{show_problem(problem)}\n{result}\nis worse than\n{show_plan(plan)}\n{verdict}"
            assert result.objective_ticks is not None, shown
            assert verdict.objective_ticks is not None, shown
            assert result.objective_ticks <= verdict.objective_ticks, shown


def constraints_of(problem: Problem) -> list[Constraint]:
    """Return a local constraint of each kind that looks at something else."""
    layers = next(iter(problem.graphs.values())).layers
    return [
        AllowedDegrees("stages", [1, 2]),
        MaxDevices(max(1, problem.cluster.devices // 2)),
        MemoryHeadroom(fraction=0.3),
        Together([layer.id for layer in layers[-2:]]),
        CutsAt([layers[0].id]),
        EqualStages(),
        Pin([0, problem.cluster.devices // 2], layer=layers[-1].id),
    ]


@pytest.mark.parametrize("seed", seeds(30, 60))
def test_local_side_constraints(seed: int) -> None:
    """The best of the plans that keep a side constraint, of all that the reference can list."""
    problem = random_problem(seed, TINY)
    every = constraints_of(problem)
    problem = problem.with_constraints(every[seed % len(every)])
    result = solve(problem)
    best: int | None = None
    for _, verdict in judged(problem, oracle_plans.plans(problem)):
        if verdict.legal and verdict.objective_ticks is not None:
            best = verdict.objective_ticks if best is None else min(best, verdict.objective_ticks)
    assert result.objective_ticks == best, f"{show_problem(problem)}\n{result}"
    assert result.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
    assert claimed(problem, HARD_LIMIT if best is None else best).holds
    assert best is None or refuted_by(problem, best + 1) == best


@pytest.mark.parametrize("seed", range(20))
def test_better_than(seed: int) -> None:
    """A value one above the optimum is beaten by the optimum alone, and the optimum itself by nothing."""
    problem = random_problem(seed, SMALL)
    optimum = solve(problem).objective_ticks
    if optimum is not None:
        assert solve(problem, better_than=optimum + 1).objective_ticks == optimum
        assert solve(problem, better_than=optimum).status is Status.NONE_BETTER


def test_problems_are_of_all_kinds() -> None:
    """The problems above have optima of every kind, and none."""
    seen: dict[str, int] = {}
    for seed in range(160):
        try:
            plan = solve(random_problem(seed, SMALL)).plan
        except InvalidProblem:
            continue
        kinds = {"none"}
        if plan is not None:
            kinds = {f"zero {stage.sharding.zero}" for stage in plan.stages}
            ranks = plan.replicas * plan.variant.context * plan.variant.expert
            kinds |= {"groups" for stage in plan.stages if 1 < stage.sharding.degree < ranks}
            kinds |= {stage.recompute for stage in plan.stages} - {"none"}
            kinds |= {"some layers" for stage in plan.stages if stage.recomputed is not None}
            kinds |= {plan.arrangement, f"stages {len(plan.stages)}", f"replicas {min(plan.replicas, 2)}"}
        for kind in kinds:
            seen[kind] = seen.get(kind, 0) + 1
    wanted = {"full", "selective", "some layers", "groups"}
    wanted |= {"none", "stage-major", "replica-major", "stages 1", "stages 2", "stages 3", "replicas 1", "replicas 2"}
    assert {kind for kind, count in seen.items() if count >= 2} >= wanted | {f"zero {zero}" for zero in range(4)}, seen
