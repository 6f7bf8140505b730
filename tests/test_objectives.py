"""Objectives beside time, against every plan of small problems."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from math import inf
from typing import Any, NamedTuple

import pytest
from judging import judged
from random_problems import Size, placed_plan, random_problem, show_problem
from seeds import seeds

from nest.certificate import check
from nest.cluster import Cluster, Level
from nest.constraints import Constraint, MaxStages, MemoryHeadroom, ReservedDevices
from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.graph import Edge, Layer, LayerGraph
from nest.objectives import Claim, MemoryAtMost, Quantity, confirm_claims, frontier, least, period_s
from nest.objectives.search import Memory
from nest.objectives.sizes import sizes_between
from nest.plan import Plan, Sharding, inside_stage
from nest.problem import Problem, Training, Variant
from nest.result import Result, Status
from nest.solve import Disagreement, solve
from nest.units import NEVER

SMALL = Size(layers=4, devices=8, variants=2, microbatches=12)
SEEDS = range(80)
TIED = 9
"""A problem whose solver first finds a plan that needs more devices than another one as fast."""


class Tried(NamedTuple):
    """What a legal plan uses: devices, ticks, quanta of memory where it takes the most."""

    devices: int
    ticks: int
    memory: int


def plans(problem: Problem) -> Iterator[Plan]:
    """Yield every plan that lies on the devices, legal or not."""
    for variant in problem.variants:
        layers, blocks = len(problem.graphs[variant].layers), problem.cluster.devices // variant.width
        for stages in range(1, min(layers, blocks) + 1):
            for shardings in product(ways(problem, variant), repeat=stages):
                most = blocks // sum(sharding.degree for sharding in shardings)
                for replicas in range(1, min(most, problem.training.microbatches) + 1):
                    for cuts in combinations(range(1, layers), stages - 1):
                        yield placed_plan(problem, variant, [0, *cuts, layers], shardings, replicas)


def ways(problem: Problem, variant: Variant) -> list[Sharding]:
    """Return the ways to shard a stage."""
    zero, degrees = problem.choices.zero, problem.zero_degrees(variant.width)
    sharded = [inside_stage(each, degree) for each in sorted(zero - {0}) for degree in degrees]
    return [Sharding(), *sharded] if 0 in zero else sharded


def tried(problem: Problem) -> list[Tried]:
    """Return what every legal plan uses."""
    found = []
    for plan, verdict in judged(problem, plans(problem)):
        if verdict.legal:
            assert verdict.objective_ticks is not None
            memory = max(stage.memory for stage in verdict.stages)
            found.append(Tried(plan.replicas * plan.replica_stride, verdict.objective_ticks, memory))
    return found


def front_of(every: list[Tried]) -> list[tuple[int, int]]:
    """Return the devices and ticks of the plans that no plan beats in one without being worse in the other."""
    front: list[tuple[int, int]] = []
    for each in sorted(every):
        if not front or each.ticks < front[-1][1]:
            front.append((each.devices, each.ticks))
    return front


@cache
def case(seed: int) -> tuple[Problem, list[Tried]]:
    """Return a random problem, and what each of its legal plans uses."""
    problem = random_problem(seed, SMALL)
    return problem, tried(problem)


def constraints_of(seed: int, problem: Problem) -> list[Constraint]:
    """Return side constraints for a problem of a seed."""
    most = problem.cluster.devices
    devices = [ReservedDevices((most - 1 - seed % 3,))] if most > 3 else []
    return [*devices, MaxStages(2 + seed % 2), MemoryHeadroom(fraction=0.05 * (seed % 4))]


def check_front(problem: Problem, every: list[Tried]) -> None:
    """Assert that the front is complete and exact, and that the checker confirms it."""
    front = frontier(problem)
    shown = f"{show_problem(problem)}\n{front.points}"
    assert front.complete, shown
    assert [(point.devices, point.ticks) for point in front.points] == front_of(every), shown
    assert bool(front.reason) == (not every), shown
    assert all(point.proven for point in front.points), shown
    for point in front.points:
        verdict = evaluate(problem, point.plan)
        assert verdict.legal, shown
        assert verdict.objective_ticks == point.ticks, shown
        assert point.memory_bytes == max(verdict.memory_bytes), shown
    for claim in front.claims():
        assert check(claim.problem, claim.value).holds, f"{claim.text}\n{shown}"


def check_least(problem: Problem, every: list[Tried], quantity: Quantity) -> None:
    """Assert that the least is exact for the least, the middle and the largest time, and that the checker agrees."""
    time, times = scale_of(problem).time, sorted({each.ticks for each in every})
    for ticks in {times[0], times[len(times) // 2], times[-1]}:
        keeping = [(getattr(each, quantity), each.ticks) for each in every if each.ticks <= ticks]
        answer = least(problem, quantity, time.seconds(ticks))
        shown = f"{show_problem(problem)}\n{quantity} within {ticks}: {answer.used}, {answer.result}"
        assert answer.result.status is Status.OPTIMAL, shown
        assert answer.proven, shown
        assert (answer.used, answer.result.objective_ticks) == min(keeping), shown
        claims = list(answer.claims())
        assert len(claims) == (1 if min(keeping)[0] == answer.amounts.none + 1 else 2), shown
        for claim in claims:
            assert check(claim.problem, claim.value).holds, f"{claim.text}\n{shown}"


@pytest.mark.parametrize("seed", seeds(40, len(SEEDS)))
def test_front_is_that_of_every_plan(seed: int) -> None:
    """A point that is missing, one that is beaten, and one that no plan has."""
    check_front(*case(seed))


@pytest.mark.parametrize("quantity", ["devices", "memory"])
@pytest.mark.parametrize("seed", seeds(20, len(SEEDS)))
def test_least_is_that_of_every_plan(seed: int, quantity: Quantity) -> None:
    """An amount that is not the least, a plan that is not the fastest with it, and a proof that does not hold."""
    problem, every = case(seed)
    if every:
        check_least(problem, every, quantity)
    else:
        answer = least(problem, quantity, 1e9)
        assert (answer.result.status, answer.used, answer.proven) == (Status.INFEASIBLE, None, False)


@pytest.mark.parametrize("seed", range(12))
def test_side_constraints_are_kept(seed: int) -> None:
    """A problem's own side constraints are dropped for those of the search."""
    free, _ = case(seed)
    problem = free.with_constraints(*constraints_of(seed, free))
    every = tried(problem)
    check_front(problem, every)
    if every:
        check_least(problem, every, "devices")
        check_least(problem, every, "memory")


def test_problems_are_of_all_kinds() -> None:
    """The problems above have fronts of several points, and some have none."""
    fronts = [len(front_of(case(seed)[1])) for seed in SEEDS]
    assert sum(length == 0 for length in fronts) >= 5
    assert sum(length >= 3 for length in fronts) >= 5
    assert sum(scale_of(case(seed)[0]).quanta_per_byte > 1 for seed in SEEDS) >= 5


def test_equally_fast_plan_with_fewer_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the next plan is as fast, the point before it is none, and the least devices are bisected for."""
    module = sys.modules["nest.objectives.frontier"]
    narrow, calls = module.narrow, []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return narrow(*arguments)

    monkeypatch.setattr(module, "narrow", counted)
    check_front(*case(TIED))
    assert calls


@pytest.mark.parametrize("seed", range(30))
def test_better_than(seed: int) -> None:
    """A value to beat never hides a better plan, and never makes a problem infeasible that is not."""
    problem, _ = case(seed)
    best = solve(problem)
    if best.objective_ticks is None:
        assert solve(problem, better_than=10**9).status in (Status.INFEASIBLE, Status.NONE_BETTER)
        assert solve(problem, better_than=NEVER).status is Status.INFEASIBLE
        return
    ticks = best.objective_ticks
    assert solve(problem, better_than=ticks + 1).objective_ticks == ticks
    for value in {ticks, ticks // 2, 1, 0, -1}:
        none = solve(problem, better_than=min(value, ticks))
        assert (none.status, none.plan, none.objective_ticks) == (Status.NONE_BETTER, None, None)
        assert none.bound_ticks == max(0, min(value, ticks))
        assert none.reason == f"no plan takes less than {none.bound_ticks} ticks"


def test_better_than_for_a_programme() -> None:
    """A solver that does not know the value finds its optimum, and what is no better is left out."""
    best = solve(chain(), backend="cpsat")
    assert best.objective_ticks is not None
    assert solve(chain(), backend="cpsat", better_than=best.objective_ticks + 1).plan is not None
    none = solve(chain(), backend="cpsat", better_than=best.objective_ticks)
    assert (none.status, none.plan, none.bound_ticks) == (Status.NONE_BETTER, None, best.objective_ticks)


def test_stopped_with_a_value_to_beat() -> None:
    """A value to beat is neither a plan nor proven: the bound is what every plan takes at least."""
    best = solve(chain()).objective_ticks
    assert best is not None
    stopped = solve(chain(), time_limit_s=0.0, better_than=2 * best)
    assert (stopped.status, stopped.plan) == (Status.UNKNOWN, None)
    assert stopped.bound_ticks is not None
    assert stopped.bound_ticks <= best


def chain(layers: int = 4, devices: int = 4) -> Problem:
    """Return a chain of equal layers."""
    nodes = tuple(Layer(at, 1.0, 2.0, 10, 5) for at in range(layers))
    edges = tuple(Edge(at, at + 1, 100) for at in range(layers - 1))
    cluster = Cluster(devices, 1000, (Level(devices, 1e3, 0.0),))
    return Problem("small", {Variant(1): LayerGraph(nodes, edges)}, cluster, Training(8))


def test_time_is_met_to_the_tick() -> None:
    """A time that the fastest plan takes exactly is kept, and a tick less is not."""
    problem = chain()
    best = solve(problem)
    assert best.objective_s is not None
    assert least(problem, "devices", best.objective_s).result.plan is not None
    less = float(Fraction(best.objective_s) - best.time.tick)
    slow = least(problem, "devices", less)
    assert slow.result.status is Status.INFEASIBLE
    assert slow.result.reason == f"no plan takes at most {less:.15g} s: the fastest takes {best.objective_s:.10g} s"
    (claim,) = slow.claims()
    assert check(claim.problem, claim.value).holds
    assert slow.result.bound_ticks == best.objective_ticks


@pytest.mark.parametrize("value", [-1, inf, float("nan")])
def test_times_that_make_no_sense(value: float) -> None:
    """A time below 0, or none at all."""
    with pytest.raises(InvalidProblem, match="time_at_most_s"):
        least(chain(), "devices", value)


def test_throughput() -> None:
    """So many iterations in a second leave each the reciprocal of it."""
    assert period_s(0.3125) == 3.2
    for value in (0, -1, inf, 5e-324, float("nan")):
        with pytest.raises(InvalidProblem, match="iterations_per_s"):
            period_s(value)


@pytest.mark.parametrize("seed", [1, 5, 22, 24, 35])
def test_sizes_are_those_of_plans(seed: int) -> None:
    """What plans take is among the sizes at which the search asks, so that it asks but few times."""
    problem, every = case(seed)
    used = 1 + max(each.memory for each in every)
    value = 1 + max(each.ticks for each in every)
    sizes = sizes_between(problem, -1, used, value)
    assert sizes is not None
    assert {each.memory for each in every} <= set(sizes.tolist())
    assert sizes.tolist() == sorted(set(sizes.tolist()))


def test_sizes_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a list of sizes the memory is halved, with the same answer."""
    monkeypatch.setattr("nest.objectives.sizes.MOST_SIZES", 1)
    problem, every = case(24)
    assert sizes_between(problem, -1, 10**6, 10**12) is None
    check_least(problem, every, "memory")


def test_memory_limits_between_quanta() -> None:
    """Limits in tenths of a byte are met exactly; digits beyond those of a number are refused, not rounded."""
    problem, layer = chain(), Layer(0, 1.0, 2.0, 0.1, 0.3)
    tenths = replace(problem, graphs={Variant(1): LayerGraph((layer,), ())})
    memory = Memory(tenths, scale_of(tenths))
    assert [memory.constraint(at) for at in (0, 3, 10)] == [MemoryAtMost(0), MemoryAtMost(0.3), MemoryAtMost(1)]
    with pytest.raises(InvalidProblem, match="fewer digits"):
        memory.constraint(10**18 + 1)


def stopping(after: int) -> Any:
    """Return a solver that runs out of time after so many searches."""
    calls = []

    def stopped(problem: Problem, **options: Any) -> Result:
        calls.append(problem)
        return solve(problem, **{**options, "time_limit_s": None if len(calls) <= after else 0.0})

    return stopped


@pytest.mark.parametrize("after", range(6))
def test_front_that_ends_early(after: int) -> None:
    """With a limit there are fewer points, each of them a point of the front, and the last may lack a proof."""
    problem = chain(layers=6, devices=8)
    whole = frontier(problem)
    assert len(whole.points) > 3
    front = frontier(problem, search=stopping(after))
    known = len(front.points)
    assert known == min(after, len(whole.points))
    assert [point.devices for point in front.points] == [each.devices for each in whole.points[-known:] if known]
    if not front.complete:
        assert front.settled_from == (front.points[0].devices if known else 9)
        assert front.reason == "the time limit was reached before the search was complete"
        assert all(point.proven for point in front.points[1:])
    for claim in front.claims():
        assert check(claim.problem, claim.value).holds


@pytest.mark.parametrize(("more", "proven"), [(0, False), (1, True)])
def test_last_point_before_a_limit(more: int, proven: bool) -> None:
    """What a search that was stopped knows proves the point before it, or leaves open whether fewer are as fast."""
    first = solve(chain())
    assert first.objective_ticks is not None
    bound = first.objective_ticks + more
    stopped = replace(first, status=Status.UNKNOWN, plan=None, objective_ticks=None, bound_ticks=bound, reason="late")
    answers = iter([first, stopped])
    front = frontier(chain(), search=lambda *_, **__: next(answers))
    assert [point.proven for point in front.points] == [proven]
    assert (front.complete, front.reason) == (False, "late")


@pytest.mark.parametrize("after", range(5))
def test_least_that_ends_early(after: int) -> None:
    """With a limit the amount may be more than the least, and what is said to be too little is."""
    problem = chain(layers=6, devices=8)
    seconds = 60.0
    whole = least(problem, "devices", seconds)
    assert whole.used is not None
    answer = least(problem, "devices", seconds, search=stopping(after))
    if after == 0:
        assert (answer.result.status, answer.used) == (Status.UNKNOWN, None)
        return
    assert answer.used is not None
    assert answer.below is not None
    assert answer.below < whole.used <= answer.used
    assert answer.proven == (answer.result.status is Status.OPTIMAL)
    for claim in answer.claims():
        assert check(claim.problem, claim.value).holds


def test_claims_that_do_not_hold() -> None:
    """The checker contradicts a wrong claim with a plan, and nobody is left in the dark about it."""
    ticks = solve(chain()).objective_ticks
    assert ticks is not None
    assert [proof.outcome.value for proof in confirm_claims([Claim(chain(), ticks, "right")])] == ["proven"]
    with pytest.raises(Disagreement, match="wrong"):
        confirm_claims([Claim(chain(), ticks + 1, "wrong")])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_larger_problems(seed: int) -> None:
    """More layers and devices."""
    problem = random_problem(seed, Size(layers=5, devices=12, variants=2, microbatches=30))
    every = tried(problem)
    check_front(problem, every)
    if every:
        check_least(problem, every, "devices")
        check_least(problem, every, "memory")
