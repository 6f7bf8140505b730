"""The judge under preset `default`, against figures worked out by hand, and against the reference on random plans."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import oracle_default as oracle
import oracle_plans
import pytest
from random_default import random_plan, random_problem
from seeds import seeds

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.evaluate import Evaluation, evaluate
from nest.graph import Collective, Edge, Layer, LayerGraph, Recomputed
from nest.plan import Plan, over_replicas
from nest.presets import DEFAULT, PAPER, Arrangement
from nest.problem import Choices, Copies, Problem, Training, Variant

CLUSTER = Cluster(8, 1000, (Level(2, 100.0, 0.01, "near"), Level(2, 10.0, 0.1, "far"), Level(2, 1.0, 1.0, "farthest")))
CHAIN = LayerGraph(
    tuple(Layer(name, 1.0, 2.0, 10, 4) for name in "abcd"), (Edge("a", "b", 5), Edge("b", "c", 5), Edge("c", "d", 5))
)
NARROW = Variant(1)


def problem_of(
    variant: Variant = NARROW, graph: LayerGraph = CHAIN, cluster: Cluster = CLUSTER, **training: object
) -> Problem:
    """Return a problem of one variant with four microbatches and plain SGD, unless said otherwise."""
    given = {"microbatches": 4, **training} if "global_batch" not in training else training
    return Problem("by hand", {variant: graph}, cluster, Training(**given), preset=DEFAULT)  # type: ignore[arg-type]


def plan_of(
    problem: Problem,
    cuts: list[int],
    replicas: int = 1,
    arrangement: Arrangement = "stage-major",
    zeros: tuple[int, ...] = (),
) -> Plan:
    """Return the plan with these cuts, ``[0, cut, ..., layers]``."""
    (variant,) = problem.graphs
    runs = list(pairwise(cuts))
    outer = oracle_plans.Outer(variant, len(runs), replicas, arrangement)
    return oracle_plans.plan_of(
        problem, outer, runs, [oracle_plans.Inner(zero, replicas) for zero in zeros or [0] * len(runs)]
    )


def judged(problem: Problem, plan: Plan) -> Evaluation:
    """Return the verdict on a legal plan."""
    verdict = evaluate(problem, plan)
    assert verdict.violations == ()
    return verdict


def seconds(verdict: Evaluation, ticks: int | None) -> float:
    """Return ticks in seconds."""
    assert ticks is not None
    return verdict.scale.time.seconds(ticks)


def loads(verdict: Evaluation) -> list[float]:
    """Return the loads in seconds."""
    return [seconds(verdict, stage.load) for stage in verdict.stages]


def syncs(verdict: Evaluation) -> list[float]:
    """Return the synchronisations in seconds."""
    return [seconds(verdict, stage.sync) for stage in verdict.stages]


def test_one_stage() -> None:
    """Four layers of 3 s: 12 s for each of 4 microbatches, nothing to send, nobody to synchronise with."""
    problem = problem_of()
    verdict = judged(problem, plan_of(problem, [0, 4]))
    assert loads(verdict) == [12.0]
    assert seconds(verdict, verdict.objective_ticks) == 48.0
    assert verdict.memory_bytes == [4 * 2 * 10 + 4 * 4]


@pytest.mark.parametrize(
    ("arrangement", "hop", "sync"),
    [("stage-major", 0.1 + 5 / 10, 2 * 0.01 + 20 / 100), ("replica-major", 0.01 + 5 / 100, 2 * 0.1 + 20 / 10)],
)
def test_two_stages_across_levels(arrangement: Arrangement, hop: float, sync: float) -> None:
    """Two stages of two replicas on devices 0 to 3, neighbours by stage or by replica.

    By stage, a stage's replicas are a pair of devices, and its boundary is far; by replica it is the other way round.
    An all-reduce of two ranks sends all 20 bytes once, in two steps. Each stage takes 6 s and one hop; 2 microbatches a
    replica.
    """
    problem = problem_of()
    plan = plan_of(problem, [0, 2, 4], 2, arrangement)
    verdict = judged(problem, plan)
    assert [stage.first_device for stage in plan.stages] == ([0, 2] if arrangement == "stage-major" else [0, 1])
    assert plan.replica_stride == (1 if arrangement == "stage-major" else 2)
    assert loads(verdict) == pytest.approx([6 + hop, 6 + hop])
    assert syncs(verdict) == pytest.approx([sync, sync])
    assert seconds(verdict, verdict.objective_ticks) == pytest.approx(3 * (6 + hop) + sync)


def test_unequal_stages() -> None:
    """Loads add up once, the largest counts for the three further microbatches: 3.06 + 9.06 + 3 * 9.06 s."""
    problem = problem_of()
    verdict = judged(problem, plan_of(problem, [0, 1, 4]))
    assert loads(verdict) == pytest.approx([3.06, 9.06])
    assert seconds(verdict, verdict.objective_ticks) == pytest.approx(3.06 + 4 * 9.06)


def test_worst_replica_counts() -> None:
    """Three stages a replica, next to each other: the second boundary of replica 0 is far, both of replica 1 differ.

    Replica 0 is on devices 0, 1, 2 and replica 1 on 3, 4, 5: boundaries 0-1 near, 1-2 far, 3-4 farthest, 4-5 near.
    """
    problem = problem_of()
    near, far, farthest = 0.06, 0.6, 1 + 5.0
    verdict = judged(problem, plan_of(problem, [0, 1, 2, 4], 2, "replica-major"))
    assert loads(verdict) == pytest.approx([3 + farthest, 3 + max(near + far, farthest + near), 6 + max(far, near)])


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero_types(zero: int) -> None:
    """One stage on four devices: weights of 10 bytes a layer, gradients of 20, an optimizer of 60.

    A group of four is two pairs. Halving scatters ``b`` bytes in ``0.01 + b / 2 / 100`` and ``0.1 + b / 4 / 10`` s, and
    gathers them in as much; a ring has 4 - 1 steps, two of them far, and crosses with two links: slower by latency.
    """

    def half(size: float) -> float:
        return 0.01 + size / 200 + 0.1 + size / 40

    weights, gradients = half(10), half(20)
    each_microbatch = {0: 0.0, 1: 0.0, 2: 4 * gradients, 3: 4 * (2 * weights + gradients)}[zero]
    once_a_time = {0: 2 * half(80), 1: half(80) + half(40), 2: half(40), 3: 0.0}[zero]
    memory = {
        0: 4 * 90,
        1: 4 * 30 + 4 * 60 / 4,
        2: 4 * 10 + 4 * 80 / 4 + 20,
        3: 4 * 90 / 4 + 10 + 20,
    }[zero]
    problem = problem_of(copies=Copies(6, 2))
    verdict = judged(problem, plan_of(problem, [0, 4], 4, zeros=(zero,)))
    assert loads(verdict) == pytest.approx([12 + each_microbatch])
    assert syncs(verdict) == pytest.approx([once_a_time])
    assert verdict.memory_bytes == [memory + 4 * 4]
    assert seconds(verdict, verdict.objective_ticks) == pytest.approx(12 + each_microbatch + once_a_time)


def test_experts_have_fewer_copies() -> None:
    """With two expert ranks and two replicas dense weights have four copies, an expert's two, two devices apart."""
    variant = Variant(1, expert=2)
    layer = Layer("a", 1.0, 2.0, 30, 0, "", 20)
    problem = problem_of(variant, LayerGraph((layer,), ()))
    plan = plan_of(problem, [0, 1], 2)
    dense = 2 * (0.01 + 10 / 200 + 0.1 + 10 / 40)
    expert = 2 * (0.1 + 20 / 20)
    assert syncs(judged(problem, plan)) == pytest.approx([dense + expert])
    sharded = judged(problem, plan_of(problem, [0, 1], 2, zeros=(3,)))
    assert sharded.memory_bytes == [2 * 10 / 4 + 2 * 20 / 2 + 2 * 30]


def test_skip_edge_is_passed_on() -> None:
    """Layer `a` feeds `b` with 3 bytes and `c` with 5 of the same tensor, `b` feeds `c` with 2: 5 cross, then 7."""
    graph = LayerGraph(CHAIN.layers[:3], (Edge("a", "b", 3), Edge("a", "c", 5), Edge("b", "c", 2)))
    problem = problem_of(graph=graph)
    verdict = judged(problem, plan_of(problem, [0, 1, 2, 3]))
    first, second = 0.01 + 5 / 100, 0.1 + 7 / 10
    assert loads(verdict) == pytest.approx([3 + first, 3 + first + second, 3 + second])


@pytest.mark.parametrize(("microbatches", "in_flight"), [(1, [1, 1, 1]), (2, [2, 2, 1]), (4, [3, 2, 1])])
def test_in_flight(microbatches: int, in_flight: list[int]) -> None:
    """A stage keeps no more microbatches than a replica has, and no more than stages follow, itself included."""
    problem = problem_of(microbatches=microbatches)
    verdict = judged(problem, plan_of(problem, [0, 1, 2, 4]))
    layers = [1, 1, 2]
    assert verdict.memory_bytes == [20 * n + 4 * n * f for n, f in zip(layers, in_flight, strict=True)]


def test_working_memory_and_overhead() -> None:
    """What is in use for a moment counts once, when later layers have freed what they kept; overhead on every device.

    In the second stage layer `d` has its 2 bytes in use while all 8 are kept, `c` its 3 bytes when 4 are left.
    """
    layers = tuple(replace(layer, working_bytes=size) for layer, size in zip(CHAIN.layers, (1, 9, 3, 2), strict=True))
    problem = problem_of(graph=LayerGraph(layers, CHAIN.edges), overhead_bytes=100)
    assert judged(problem, plan_of(problem, [0, 2, 4])).memory_bytes == [40 + 16 + 9 + 100, 40 + 8 + 2 + 100]


def test_recomputation_of_some_layers() -> None:
    """The first layers of a stage that can recompute do: they add their time, and keep less of each microbatch.

    Of the second stage only the last layer can. The first has two microbatches of a layer's 4 bytes in flight, and of
    the other's 1; what is recomputed is whole for a moment: of the first stage when the other layer is done.
    """
    again = (Recomputed("full", 0.5, 1, 3),)
    layers = tuple(replace(layer, recomputed=() if at == 2 else again) for at, layer in enumerate(CHAIN.layers))
    problem = problem_of(graph=LayerGraph(layers, CHAIN.edges))
    first, last = plan_of(problem, [0, 2, 4]).stages
    plan = replace(
        plan_of(problem, [0, 2, 4]),
        stages=(replace(first, recompute="full", recomputed=1), replace(last, recompute="full")),
    )
    verdict = judged(problem, plan)
    assert loads(verdict) == pytest.approx([6.56, 6.56])
    assert verdict.memory_bytes == [40 + 2 * (1 + 4), 40 + 4 + 1 + 3]


def test_groups_of_replicas_that_share_weights() -> None:
    """Two pairs of neighbours, each with all weights: halves are summed within a pair, and shares across the pairs.

    Of 40 bytes a pair reduce-scatters 20 on the innermost level; each half of them is summed with that of the other
    pair, ten of twenty bytes each way; then the pair gathers 20 bytes.
    """
    problem = problem_of()
    shared = plan_of(problem, [0, 4], 4)
    plan = replace(shared, stages=(replace(shared.stages[0], sharding=over_replicas(1, 2)),))
    verdict = judged(problem, plan)
    within, across = 0.01 + 20 / 100, 2 * 0.1 + 2 * 20 / 2 / 10
    assert syncs(verdict) == pytest.approx([2 * within + across])


def test_collectives_of_layers() -> None:
    """An all-reduce over a pair sends all 10 bytes once; what computation hides of it costs it a tenth.

    Backward, a ring over the same pair is one transfer of 10 bytes. Forward 0.05 of 0.12 s are hidden.
    """
    collectives = (
        Collective("all-reduce", 10, "tensor", "forward", 0.05),
        Collective("ring", 10, "tensor", "backward"),
    )
    variant, layer = Variant(2), replace(CHAIN.layers[0], collectives=collectives)
    problem = problem_of(variant, LayerGraph((layer,), ()), overlap_tax=0.1)
    verdict = judged(problem, plan_of(problem, [0, 1]))
    reduced, passed = 0.02 + 10 / 100, 0.01 + 10 / 100
    assert loads(verdict) == pytest.approx([3 + (reduced - 0.05 + 0.005) + passed])
    assert seconds(verdict, verdict.stages[0].forward) == pytest.approx(1 + reduced - 0.045)


def test_axes_have_their_own_groups() -> None:
    """Tensor ranks are neighbours, context ranks two apart, expert ranks four apart."""
    variant = Variant(2, 2, 2)
    kinds = [Collective("all-gather", 8, axis, "forward") for axis in ("tensor", "context", "expert")]
    times = [0.01 + 4 / 100, 0.1 + 4 / 10, 1 + 4 / 1]
    for each, time in zip(kinds, times, strict=True):
        problem = problem_of(variant, LayerGraph((replace(CHAIN.layers[0], collectives=(each,)),), ()))
        assert loads(judged(problem, plan_of(problem, [0, 1]))) == pytest.approx([3 + time])


def test_batch_fills_slots_of_all_expert_ranks() -> None:
    """A slot carries 3 sequences on each of 2 expert ranks: 20 sequences take 4 slots, 2 for each of two replicas."""
    variant = Variant(1, 2, microbatch=3)
    problem = problem_of(variant, global_batch=20)
    assert problem.microbatches(variant) == 4
    verdict = judged(problem, plan_of(problem, [0, 4], 2))
    assert seconds(verdict, verdict.objective_ticks) == pytest.approx(24 + syncs(verdict)[0])


def test_what_the_other_presets_do_not_know() -> None:
    """They count microbatches, and recompute all stages or none; under `default` each stage chooses for itself."""
    with pytest.raises(InvalidProblem, match=r"training\.global_batch: 20 under preset 'paper'"):
        problem_of(global_batch=20).with_preset(PAPER)
    with pytest.raises(InvalidProblem, match=r"choices\.recompute: 'full' under preset 'default'"):
        problem_of().with_choices(recompute="full")
    with pytest.raises(InvalidProblem, match="full alone, and no layer can compute that again"):
        problem_of().with_choices(stage_recompute=frozenset({"full"}))
    with pytest.raises(InvalidProblem, match=r"choices\.recompute: 'selective'"):
        Choices(recompute="selective")


@pytest.mark.parametrize("seed", seeds(60, 250))
def test_judge_equals_reference(seed: int) -> None:
    """On random plans both have the same price, and the same bytes.

    To the tick, unless some time lies so near the middle between two ticks that floating point cannot tell.
    """
    problem = random_problem(seed, ugly=seed % 4 == 3)
    for again in range(2):
        plan = random_plan(2 * seed + again, problem)
        verdict = evaluate(problem, plan)
        if verdict.objective_ticks is None:  # wider than the cluster
            continue
        rounding = oracle.Rounding(verdict.scale.time.exponent)
        objective, figures = oracle.price(problem, plan, rounding)
        slack = 100 if rounding.doubtful else 0
        memory = [Fraction(stage.memory, verdict.scale.quanta_per_byte) for stage in verdict.stages]
        assert memory == [each.memory for each in figures]
        for stage, each in zip(verdict.stages, figures, strict=True):
            assert abs(stage.load - each.load) <= slack
            assert abs(stage.sync - each.sync) <= slack
        assert abs(verdict.objective_ticks - objective) <= slack * (1 + problem.microbatches(plan.variant))


def test_most_random_plans_are_compared_to_the_tick() -> None:
    """The comparison above is exact more often than not."""
    exact = 0
    for seed in range(100):
        problem = random_problem(seed)
        plan = random_plan(2 * seed, problem)
        verdict = evaluate(problem, plan)
        if verdict.objective_ticks is not None:
            rounding = oracle.Rounding(verdict.scale.time.exponent)
            oracle.price(problem, plan, rounding)
            exact += not rounding.doubtful
    assert exact >= 60
