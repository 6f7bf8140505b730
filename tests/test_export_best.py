"""The best plans that frameworks can run, and those nearest to plans that they cannot."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from export_cases import ENDS, ONE, SMALL, eight, judged, mixed, replica_major, small

from nest.certificate import check
from nest.certify import Finding, confirm_parts
from nest.constraints import Outer, ReservedDevices
from nest.errors import Infeasible, InvalidProblem
from nest.evaluate import evaluate
from nest.export import FRAMEWORKS, Framework, Inexpressible, best_for, exported, nearest, problem_for
from nest.export.base import require_order, require_whole_nodes
from nest.export.nearest import RunsOn
from nest.export.numbers import numbers_of
from nest.export.parts import AlikeSearch
from nest.families import from_hyperparameters
from nest.hardware import cluster_named
from nest.line import EVERY
from nest.objectives import Quantity, least
from nest.places import Shape, distinct_placings
from nest.plan import Plan
from nest.presets import DEFAULT
from nest.problem import Choices, Problem
from nest.result import Result, Status
from nest.runs import Run, problem_of
from nest.solve import solve
from nest.units import HARD_LIMIT

MEGATRON, TORCHTITAN, DEEPSPEED, ACCELERATE = FRAMEWORKS.values()


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_best_of_what_runs(framework: Framework) -> None:
    """The best plan for a framework is written as it is, and no outer choice of it has a better one of one type.

    In a single node all orders of ranks cost the same, so that each choice may be solved without them.
    """
    numbers = replace(SMALL, layers=4, seq=1024)
    few = Choices(tensor=frozenset({1, 2}), microbatch=frozenset({1, 2}), sequence=False)
    run = Run(from_hyperparameters(numbers), cluster_named("dgx-h100:8"), 1024, 12, choices=few)
    problem = problem_of(run).problem
    result = best_for(problem, run, framework).result
    assert result.status is Status.OPTIMAL
    assert result.plan is not None
    given = judged(run, problem, result.plan)
    assert framework.broken(exported(given, framework).text, given.world) == []
    assert result.objective_ticks == min(objectives(problem, run, framework)) == result.bound_ticks


def objectives(problem: Problem, run: Run, framework: Framework) -> list[int]:
    """Return the best objective of each outer choice and ZeRO type that a framework can run, by solving each alone."""
    model, found = numbers_of(run.model), []
    kinds = product(problem.graphs, range(1, 7), range(1, 9), sorted(framework.zeros))
    for variant, stages, replicas, zero in kinds:
        outer = Outer(variant, stages, replicas)
        if variant.width * stages * replicas > 8 or framework.zero_faults(zero, outer):
            continue
        allowed = problem.choices.stages or {stages}, problem.choices.replicas or {replicas}
        if stages not in allowed[0] or replicas not in allowed[1] or framework.faults(run, model, outer):
            continue
        pins = {name: frozenset({getattr(variant, name)}) for name in ("tensor", "context", "expert", "microbatch")}
        one = problem.with_choices(
            **pins,
            stages=frozenset({stages}),
            replicas=frozenset({replicas}),
            zero=frozenset({zero}),
        )
        result = solve(one)
        if result.objective_ticks is not None:
            found.append(result.objective_ticks)
    return found


def test_types_are_not_mixed() -> None:
    """Where stages would have types of their own, the best plan of each type is found, and the best of these."""
    one = frozenset({1})
    few = Choices(one, context=one, microbatch=one, sequence=False, stages=frozenset({2}), replicas=frozenset({4}))
    few = replace(few, stage_recompute=frozenset({"none"}))
    numbers, room = replace(SMALL, seq=1024), 77 * 2**30
    run = Run(from_hyperparameters(numbers), cluster_named("dgx-h100:8"), 1024, 32, reserve_bytes=room, choices=few)
    problem = problem_of(run).problem
    constraint = RunsOn(TORCHTITAN, run, numbers_of(run.model))
    free = solve(problem.with_constraints(constraint).with_choices(zero=TORCHTITAN.zeros))
    assert free.plan is not None
    assert len({stage.sharding.zero for stage in free.plan.stages}) == 2
    best = best_for(problem, run, TORCHTITAN).result
    assert best.plan is not None
    assert len({stage.sharding.zero for stage in best.plan.stages}) == 1
    assert (best.status, best.reason) == (Status.OPTIMAL, None)
    assert best.objective_ticks == min(objectives(problem, run, TORCHTITAN)) > (free.objective_ticks or 0)


TIGHT = [(16, 76.5, True), (16, 77.9, True), (16, 78.1, True), (32, 77.3, False), (32, 78.0, True), (32, 78.2, True)]
"""Batch, reserved GiB, and whether attention keeps what it can compute again: plans whose stages differ, mostly."""

SOME = [pytest.param(*each, marks=[] if at in (0, 2, 3) else pytest.mark.slow) for at, each in enumerate(TIGHT)]


def tight(batch: int, room: float, written: bool) -> tuple[Run, Problem]:
    """Return a run with little memory, and its problem."""
    one = frozenset({1})
    few = Choices(one, context=one, microbatch=frozenset({1, 2}), sequence=False)
    software = {"reserve_bytes": int(room * 2**30), "flash": False if written else None, "choices": few}
    numbers = replace(SMALL, layers=6, seq=1024)
    run = Run(from_hyperparameters(numbers), cluster_named("dgx-h100:8"), 1024, batch, **software)  # type: ignore[arg-type]
    return run, problem_of(run).problem


@pytest.mark.parametrize("framework", [MEGATRON, TORCHTITAN], ids=lambda each: each.name)
@pytest.mark.parametrize(("batch", "room", "written"), SOME)
def test_stages_that_are_alike(batch: int, room: float, written: bool, framework: Framework) -> None:
    """Of all ways to shard and to recompute that stages may have alike, each solved by itself, none is better."""
    run, problem = tight(batch, room, written)
    asked, best = problem_for(problem, run, framework), None
    kinds = sorted(asked.choices.stage_recompute or ())
    for zero, degree, kind, layers in product(sorted(asked.choices.zero), (2, 4, 8), kinds, range(1, 7)):
        if (zero == 0 and degree > 2) or (layers < 6 and kind not in framework.parts):
            continue
        pins = {"zero": zero, "stage_recompute": kind, "recomputed": 8 if layers == 6 else layers}
        pins |= {"zero_degree": degree} if zero else {}
        found = solve(asked.with_choices(**{name: frozenset({value}) for name, value in pins.items()}))
        if found.objective_ticks is not None:
            best = min(best or found.objective_ticks, found.objective_ticks)
    answer = best_for(problem, run, framework)
    result = answer.result
    assert result.objective_ticks == best
    assert all(check(part, best or HARD_LIMIT).holds for part in answer.parts)
    certificate = confirm_parts(asked, result, answer.parts)
    assert certificate.finding is (Finding.INFEASIBLE if best is None else Finding.OPTIMAL)
    if best is None:
        assert result.status is Status.INFEASIBLE
        return
    assert (result.status, result.bound_ticks) == (Status.OPTIMAL, best)
    assert result.plan is not None
    given = judged(run, problem_of(run).problem, result.plan)
    assert framework.broken(exported(given, framework).text, given.world) == []


def test_what_a_time_leaves_open() -> None:
    """Where parts are left, the best plan so far comes with the least of their bounds."""
    one = frozenset({1})
    few = Choices(one, context=one, microbatch=one, sequence=False)
    numbers, room = replace(SMALL, layers=6, seq=1024), int(76.5 * 2**30)
    run = Run(
        from_hyperparameters(numbers),
        cluster_named("dgx-h100:8"),
        1024,
        16,
        reserve_bytes=room,
        choices=few,
        flash=False,
    )
    problem = problem_of(run).problem
    search = AlikeSearch(problem_for(problem, run, MEGATRON), MEGATRON, None)
    first = search.best(time.perf_counter() + 1e-9)
    best = best_for(problem, run, MEGATRON).result
    assert first.status is not Status.OPTIMAL
    assert first.bound_ticks is None or first.bound_ticks <= (best.objective_ticks or 0)
    again = search.best(None)
    assert (again.status, again.objective_ticks) == (Status.OPTIMAL, best.objective_ticks)


@pytest.mark.parametrize(("batch", "room", "written"), TIGHT[:3])
def test_better_than(batch: int, room: float, written: bool) -> None:
    """A value to beat never hides a better plan, and where none beats it, that is not taken for having none."""
    run, problem = tight(batch, room, written)
    best = best_for(problem, run, MEGATRON).result
    if best.objective_ticks is None:
        assert best_for(problem, run, MEGATRON, better_than=10**9).result.status is not Status.OPTIMAL
        return
    ticks = best.objective_ticks
    assert best_for(problem, run, MEGATRON, better_than=ticks + 1).result.objective_ticks == ticks
    for value in (ticks, ticks // 2, 0):
        none = best_for(problem, run, MEGATRON, better_than=value).result
        assert (none.status, none.plan, none.objective_ticks) == (Status.NONE_BETTER, None, None)
        assert none.bound_ticks == value


WAYS = (2, 4, 8), (1, 2, 3, 4, 5, 8)
"""Degrees, and numbers of layers that recompute, of which 8 stands for all six."""


@pytest.mark.parametrize(
    ("quantity", "degrees", "numbers"),
    [("devices", *WAYS), ("memory", (2, 8), (2, 8)), pytest.param("memory", *WAYS, marks=pytest.mark.slow)],
)
def test_least_of_what_runs(quantity: Quantity, degrees: tuple[int, ...], numbers: tuple[int, ...]) -> None:
    """The least of what Megatron-LM can run, beside every way to shard and recompute that stages have in common."""
    run, problem = tight(16, 76.5, True)
    problem = problem.with_choices(zero=frozenset({1}), stage_recompute=frozenset({"none", "full"}))
    problem = problem.with_choices(zero_degree=frozenset(degrees), recomputed=frozenset(numbers))
    asked, allowed = problem_for(problem, run, MEGATRON), 0.02
    ways = []
    for degree, kind, number in product(degrees, ("none", "full"), numbers):
        if kind != "full" and number < 8:
            continue
        pins = {"zero_degree": degree, "stage_recompute": kind, "recomputed": number}
        ways.append(asked.with_choices(**{name: frozenset({value}) for name, value in pins.items()}))
    answers = [least(way, quantity, allowed) for way in ways]
    expected = min((each.used, each.result.objective_ticks) for each in answers if each.used is not None)

    def search(problem: Problem, **limits: Any) -> Result:
        return best_for(problem, run, MEGATRON, **limits).result

    found = least(problem, quantity, allowed, search=search, plans="plan that Megatron-LM can run")
    assert (found.used, found.result.objective_ticks) == expected
    assert found.proven
    assert all("no plan that Megatron-LM can run takes" in claim.text for claim in found.claims())


def test_numbers_that_a_framework_does_not_know() -> None:
    """A limit on the layers that recompute, below all of them, is nothing to ask of who recomputes all."""
    run, problem = small()
    few = problem.with_choices(recomputed=frozenset({2}))
    with pytest.raises(
        InvalidProblem, match=r"^choices.recomputed: at most 2: torchtitan recomputes 'full' in all layers"
    ):
        problem_for(few, run, TORCHTITAN)
    assert problem_for(few.with_choices(stage_recompute=frozenset({"none"})), run, TORCHTITAN)
    core = Choices(stage_recompute=frozenset({"selective"}))
    with pytest.raises(Infeasible, match="DeepSpeed recomputes none, full, of which the problem allows nothing"):
        problem_for(problem_of(replace(run, flash=False, choices=core)).problem, run, DEEPSPEED)


def test_nearest_keeps_what_it_can() -> None:
    """A plan that cannot be written keeps its variant, stages and replicas where some plan with them can."""
    given = eight(ONE, 16, ENDS)
    result = nearest(given.problem, given.run, mixed(given), MEGATRON)
    assert result.plan is not None
    assert (result.plan.variant, len(result.plan.stages), result.plan.replicas) == (ONE, 4, 16)
    assert len({stage.sharding for stage in result.plan.stages}) == 1
    other = nearest(given.problem, given.run, given.plan, DEEPSPEED)
    assert other.plan is not None
    assert (other.plan.variant, len(other.plan.stages), other.plan.replicas) == (ONE, 1, 64)


def test_nothing_runs() -> None:
    """Where a framework can run no plan of a problem, that is said."""
    one: dict[str, Any] = {name: frozenset({1}) for name in ("tensor", "context", "microbatch")}
    run, problem = small(zero=frozenset({1}), **one)
    with pytest.raises(Infeasible, match="Accelerate has ZeRO types 0, 2, 3, of which the problem allows none"):
        best_for(problem, run, ACCELERATE)
    run, problem = small(stages=frozenset({2}), **one)
    made = solve(problem).plan
    assert made is not None
    with pytest.raises(Inexpressible, match="problem: Accelerate can run no plan of it"):
        nearest(problem, run, made, ACCELERATE)


def test_judge_and_solver_agree_on_what_runs() -> None:
    """The side constraint of a framework is the judge's, too: a plan in another order of ranks breaks it."""
    given = eight(ONE, 16, ENDS)
    constrained = given.problem.with_constraints(RunsOn(MEGATRON, given.run, given.model))
    assert evaluate(constrained, given.plan).legal
    broken = evaluate(constrained, replica_major(given)).violations
    assert {violation.rule for violation in broken} == {"runs_on"}


def around(*down: int, nodes: int = 2, **choices: Any) -> tuple[Run, Problem]:
    """Return a small GPT on nodes of eight, some devices of which are down."""
    few = Choices(context=frozenset({1}), microbatch=frozenset({1}), sequence=False, **choices)
    cluster = cluster_named(f"dgx-h100:{8 * nodes}")
    run = Run(from_hyperparameters(SMALL), cluster, 2048, 32, choices=few)
    return run, problem_of(run).problem.with_constraints(ReservedDevices(down))


@pytest.mark.parametrize("framework", [MEGATRON, TORCHTITAN, DEEPSPEED], ids=lambda each: each.name)
@pytest.mark.parametrize("down", [(3,), (8, 20), (9, 10, 31)])
def test_whole_nodes_are_left_out(framework: Framework, down: tuple[int, ...]) -> None:
    """Of four nodes those without failures are used, as well as if there were no others."""
    run, problem = around(*down, nodes=4, tensor=frozenset({1}))
    result = best_for(problem, run, framework).result
    assert result.plan is not None
    given, broken = judged(run, problem, result.plan), {device // 8 for device in down}
    assert not broken & {place // 8 for place in given.places.tolist()}
    notes = exported(given, framework).notes
    assert any("start it on node" in note for note in notes) == (given.places.max() >= given.world)
    left = replace(run, hardware=cluster_named(f"dgx-h100:{8 * (4 - len(broken))}"))
    assert result.objective_s == best_for(problem_of(left).problem, left, framework).result.objective_s


def test_some_devices_of_the_only_node() -> None:
    """There no whole node has to be left out: the launcher is told which devices there are."""
    run, problem = around(1, nodes=1, tensor=frozenset({1}), replicas=frozenset({4}), stages=frozenset({1}))
    result = best_for(problem, run, MEGATRON).result
    assert result.plan is not None
    assert "start it with CUDA_VISIBLE_DEVICES=0,2,3,4" in exported(judged(run, problem, result.plan), MEGATRON).notes


def test_parts_of_nodes_are_refused() -> None:
    """A plan that leaves out a part of a node has no launcher, and the nearest one that has is written for it."""
    run, problem = around(3, tensor=frozenset({2}), replicas=frozenset({4}), stages=frozenset({1}), zero=frozenset({3}))
    free = solve(problem.with_choices(replicas=frozenset({7}))).plan
    assert free is not None
    with pytest.raises(Inexpressible, match=r"devices: 6 of the 8 devices of node 0.*--set down=0..7"):
        require_whole_nodes(judged(run, problem.with_choices(replicas=None), free), MEGATRON.title)
    near = nearest(problem.with_choices(replicas=None), run, free, MEGATRON)
    assert near.plan is not None
    assert near.plan.line.left_out == ((0, 8),)


def test_gaps_are_refused() -> None:
    """Neither replicas nor stages that leave devices idle have ranks of a framework: search and export agree on it."""
    run, problem = around(0, nodes=4, tensor=frozenset({2}), stages=frozenset({4}), replicas=frozenset({2}))
    problem = problem.with_constraints()
    made, constrained = solve(problem).plan, problem.with_constraints(RunsOn(MEGATRON, run, numbers_of(run.model)))
    assert made is not None
    refused = 0
    sizes = problem.cluster.group_sizes
    for arrangement, placing in distinct_placings(DEFAULT.arrangements, Shape(2, 4, 2), EVERY, 32, sizes):
        starts = zip(made.stages, placing.starts(4), strict=True)
        stages = tuple(replace(stage, first_device=at) for stage, at in starts)
        plan = replace(made, stages=stages, arrangement=arrangement, replica_stride=placing.stride)
        assert evaluate(problem, plan).legal
        broken = not evaluate(constrained, plan).legal
        assert broken == (not in_order(plan))
        refused += broken
    assert refused > 2


def in_order(plan: Plan) -> bool:
    """Whether the devices of a plan are in the order of the ranks of frameworks."""
    try:
        require_order(plan, "it")
    except Inexpressible:
        return False
    return True
