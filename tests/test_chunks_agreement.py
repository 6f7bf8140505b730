"""Solver, judge and reference agree on interleaved pipelines: as integers, where all plans can be tried."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import oracle_chunks as chunks
import oracle_default as oracle
import pytest
from random_default import Size, random_problem
from random_problems import show_plan, show_problem
from seeds import seeds

from nest.breakdown import load_parts, memory_parts
from nest.certificate import check as certify
from nest.cluster import Cluster, Level
from nest.constraints import (
    AllowedDegrees,
    Constraint,
    MaxDevices,
    MaxStages,
    MemoryHeadroom,
    Pin,
    ReservedDevices,
    SameSharding,
    Together,
    WithinLevel,
)
from nest.cost.schedule import summed
from nest.cost.schedules import Schedule, bubble, in_flight
from nest.dp.agenda import Agenda
from nest.dp.incumbent import Incumbent
from nest.dp.interleaved import InterleavedBounds, InterleavedSearch
from nest.dp.sum_outer import SumChoice, sum_choices, sum_ranges
from nest.dp.watch import Watch
from nest.errors import InvalidPlan, InvalidProblem
from nest.evaluate import evaluate, pipeline_of, sync_of
from nest.execute import Asked, prepare
from nest.files import apply_settings, read_plan, read_problem, write_plan, write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.pipeline import Pipeline, StageTimes, flights, simulate
from nest.presets import DEFAULT, ScheduleName
from nest.problem import Problem, Training, Variant
from nest.report.figures import PricedPlan
from nest.report.layout import Screen
from nest.report.space import plans_of
from nest.report.terminal import solution_text, terms_text
from nest.result import Status
from nest.solve import solve
from nest.tables import Tables
from nest.units import NEVER

SIZE = Size(layers=7, devices=8, levels=3, variants=1, batch=12)
BOTH: frozenset[ScheduleName] = frozenset({"1f1b", "interleaved"})
ALONE: frozenset[ScheduleName] = frozenset({"interleaved"})


def chunked_problem(seed: int, size: Size = SIZE) -> Problem:
    """Return a problem of a chain whose ends may ride along, and whose stages may have chunks."""
    rng = random.Random(f"chunks {seed}")
    for each in count():
        problem = random_problem(rng.randrange(10**9) + each, size)
        layers = len(next(iter(problem.graphs.values())))
        if layers >= 4 and problem.cluster.devices > 1:
            break
    ends = rng.choice([(True, False), (False, True)] if layers % 2 else [(False, False), (True, True)])
    graphs = {variant: _kinds(graph, *ends) for variant, graph in problem.graphs.items()}
    room = problem.cluster.hbm_bytes * rng.choice([1, 3, 10, 100])
    training = replace(problem.training, microbatches=rng.choice([1, 2, 3, 4, 5, 6, 7, 9, 12, 13]), global_batch=0)
    problem = replace(problem, graphs=graphs, training=training, cluster=replace(problem.cluster, hbm_bytes=room))
    allowed = rng.choice([None, None, frozenset({2}), frozenset({2, 3})])
    return problem.with_choices(schedules=ALONE, chunks=allowed, stages=None, replicas=None)


def _kinds(graph: LayerGraph, first: bool, last: bool) -> LayerGraph:
    """Return a graph whose ends may be of a kind of their own."""
    kinds = ["embedding" if first else "layer", *["layer"] * (len(graph) - 2), "head" if last else "layer"]
    layers = tuple(replace(layer, kind=kind) for layer, kind in zip(graph.layers, kinds, strict=True))
    return replace(graph, layers=layers)


def check(problem: Problem) -> bool:
    """Assert that `solve` finds the best interleaved plan; return whether there is one."""
    result = solve(problem)
    rounding = oracle.Rounding(result.time.exponent)
    best = chunks.best(problem, rounding)
    shown = f"{show_problem(problem)}\n{result}\n{show_plan(result.plan)}\n{best.objective} {show_plan(best.plan)}"
    assert result.status is (Status.INFEASIBLE if best.plan is None else Status.OPTIMAL), shown
    if result.plan is None or best.plan is None:
        return False
    verdict, rival = evaluate(problem, result.plan), evaluate(problem, best.plan)
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    assert verdict.legal, shown
    assert certify(problem, result.objective_ticks or 0).holds, shown
    assert rival.legal, f"{shown}\n{rival.violations}"
    slack = 1000 * problem.microbatches(result.plan.variant) if rounding.doubtful else 0
    assert result.objective_ticks is not None
    assert best.objective is not None
    assert abs(result.objective_ticks - best.objective) <= slack, shown
    return True


@pytest.mark.parametrize("seed", seeds(60, 150))
def test_best(seed: int) -> None:
    """Every interleaved plan of a few layers on a few devices."""
    check(chunked_problem(seed))


def constrained_problem(seed: int) -> Problem:
    """Return such a problem with side constraints that look at no layers."""
    problem, rng = chunked_problem(seed), random.Random(f"constraints {seed}")
    devices = problem.cluster.devices
    drawn: dict[str, Constraint] = {
        "stages": MaxStages(rng.choice([2, 2, 3])),
        "degrees": AllowedDegrees(rng.choice(["stages", "replicas"]), {rng.randint(1, 3), 2}),
        "devices": MaxDevices(rng.randint(2, devices)),
        "memory": MemoryHeadroom(fraction=rng.choice([0.1, 0.3, 0.6])),
        "place": WithinLevel("stage", 0),
        "down": ReservedDevices(rng.sample(range(devices), rng.choice([1, 1, 2]))),
    }
    kinds = rng.sample(["stages", "degrees", "memory", rng.choice(["devices", "place", "down", "down"])], 2)
    return problem.with_constraints(*(drawn[kind] for kind in kinds))


@pytest.mark.parametrize("seed", seeds(50, 200))
def test_beside_side_constraints(seed: int) -> None:
    """Those that look at the outer choice, at devices, memory and places leave out the same plans for all three."""
    check(constrained_problem(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_more(seed: int) -> None:
    """More layers and devices."""
    check(chunked_problem(seed, Size(layers=9, devices=12, levels=3, variants=2, batch=16)))


@pytest.mark.parametrize("seed", [2, 5, 13, 17])
def test_buffers_of_many_microbatches(seed: int) -> None:
    """Buffers hold every microbatch, also of those more than four times the stages, after which flights repeat."""
    problem = chunked_problem(seed)
    training = replace(problem.training, microbatches=20, buffers_boundaries=True)
    problem = replace(problem, training=training)
    check(problem.with_choices(replicas=frozenset({1}), stages=frozenset({2})))


def test_most_have_a_plan() -> None:
    """The problems are not all without one."""
    assert sum(solve(chunked_problem(seed)).plan is not None for seed in range(40)) >= 10


@pytest.mark.parametrize("seed", range(40))
def test_beside_others(seed: int) -> None:
    """With 1F1B allowed as well the answer is the better of the two."""
    problem = chunked_problem(seed)
    plain = problem.with_choices(schedules=frozenset({"1f1b"}), chunks=None)
    found = [solve(each).objective_ticks for each in (problem, plain)]
    known = [each for each in found if each is not None]
    assert solve(problem.with_choices(schedules=BOTH)).objective_ticks == (min(known) if known else None)


@pytest.mark.parametrize("seed", range(30))
def test_bounds(seed: int) -> None:
    """No bound of an outer choice is above its best plan."""
    problem = chunked_problem(seed)
    for tables in Tables.of(problem).grouped:
        for number in Agenda(Tables.of(problem), Watch(None, None, Incumbent())).chunks(tables.variant):
            for choice, bound in _bounded(InterleavedBounds(tables, number)):
                search = InterleavedSearch(tables, Watch(None, None, Incumbent()), number)
                for at, prepared in enumerate(search.prepare(choice)):
                    alone = Incumbent()
                    search = InterleavedSearch(tables, Watch(None, None, alone), number)
                    list(search.prepare(choice))[at].settle()
                    assert not alone.found or max(bound, prepared.bound, prepared.least(NEVER)) <= alone.objective


def _bounded(bounds: InterleavedBounds) -> Iterator[tuple[SumChoice, int]]:
    """Yield each outer choice with the larger of its bounds, alone and among others."""
    for ranges in sum_ranges(bounds):
        for row in range(len(ranges)):
            choices = sum_choices(bounds, ranges[row])
            for at in range(len(choices)):
                single = choices[at].single
                assert single is not None
                yield single, max(int(ranges.bounds[row]), int(choices.bounds[at]))


@pytest.mark.parametrize("seed", range(40))
def test_flights(seed: int) -> None:
    """What chunks keep at the moments that are looked at is what the formula says, and the most that passes show."""
    rng = random.Random(seed)
    stages, number = rng.randint(2, 5), rng.randint(2, 4)
    microbatches = rng.choice([stages * rng.randint(1, 9), rng.randint(1, 40)])
    sizes = [rng.randint(0, 9) for _ in range(number)]
    for at in range(stages):
        kept = flights(Schedule("interleaved", number), stages, at, microbatches)
        assert max(sum(each.kept) for each in kept) == in_flight(
            Schedule("interleaved", number), stages, at, microbatches
        )
        now, most = [0] * number, 0
        for kind, chunk in chunks.order(stages, number, at, microbatches):
            most = max(most, sum(map(int.__mul__, now, sizes)))
            now[chunk] += 1 if kind == "forward" else -1
        assert max(sum(map(int.__mul__, each.kept, sizes)) for each in kept) == most


def test_every_moment_counts_beside_buffers() -> None:
    """What is in buffers while little is kept may be more than what is kept: those moments are looked at, too."""
    most, every = (flights(Schedule("interleaved", 2), 2, 0, 8, every=each) for each in (False, True))
    assert set(most) < set(every)
    assert min(sum(each.kept) for each in every) == 1


@pytest.mark.parametrize("seed", range(40))
def test_objective_of_equal_stages_is_played(seed: int) -> None:
    """For equal stages the objective is what the schedule takes, for any number of microbatches."""
    rng = random.Random(seed)
    stages, number = rng.randint(2, 6), rng.randint(2, 4)
    forward, backward, microbatches = number * rng.randint(1, 9), number * rng.randint(1, 9), rng.randint(1, 30)
    load = forward + backward
    played = simulate(
        Pipeline((StageTimes(forward, backward),) * stages, microbatches), Schedule("interleaved", number)
    )
    assert played.makespan == summed(stages * load, load, microbatches, 0, number)
    idle = bubble(Schedule("interleaved", number), stages, microbatches, forward=forward, backward=backward)
    assert played.makespan == microbatches * load + idle


def test_equal_parts() -> None:
    """Ends of a kind of their own ride along, layers without a kind do not, and others have to divide."""
    kinds = ["embedding", *["layer"] * 8, "head"]
    edges = tuple(Edge(at, at + 1, 1) for at in range(9))
    graph = LayerGraph(tuple(Layer(at, 1.0, 2.0, 1, 1, kind=kind) for at, kind in enumerate(kinds)), edges)
    assert graph.equal_parts(4) == (3, 5, 7, 10)
    assert graph.equal_parts(3) is None
    assert graph.equal_parts(16) is None
    plain = LayerGraph(tuple(replace(layer, kind="") for layer in graph.layers), edges)
    assert plain.equal_parts(5) == (2, 4, 6, 8, 10)
    assert plain.equal_parts(4) is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"chunks": frozenset({1})}, "choices.chunks: 1 alone"),
        ({"schedules": frozenset({"1f1b"}), "chunks": frozenset({2})}, "choices.chunks: interleaved is not among"),
    ],
)
def test_choices_that_do_not_go_together(changed: dict[str, frozenset[int]], message: str) -> None:
    """Chunks without interleaving, and interleaving without chunks."""
    with pytest.raises(InvalidProblem, match=message):
        chunked_problem(1).with_choices(**changed)


@pytest.mark.parametrize(
    ("layers", "microbatches", "changed", "message"),
    [
        (7, 4, {}, "no two or more stages of two or more chunks that are allowed divide 7 layers"),
        (8, 4, {"stages": frozenset({3})}, "that are allowed divide 8 layers"),
        (8, 4, {"chunks": frozenset({3})}, "that are allowed divide 8 layers"),
        (8, 3, {"stages": frozenset({2})}, None),
        (8, 3, {"stages": frozenset({4}), "chunks": frozenset({2})}, None),
    ],
)
def test_why_there_is_none(layers: int, microbatches: int, changed: dict[str, Any], message: str | None) -> None:
    """What does not divide is said, and not taken for a lack of memory."""
    level = Level(8, 1e9, 1e-6)
    graph = LayerGraph(
        tuple(Layer(at, 1.0, 2.0, 1, 1) for at in range(layers)), tuple(Edge(at, at + 1, 1) for at in range(layers - 1))
    )
    training = Training(microbatches)
    problem = Problem("", {Variant(1): graph}, Cluster(8, 10**9, (level,)), training, preset=DEFAULT)
    result = solve(problem.with_choices(schedules=ALONE, **changed))
    assert (result.reason is None) == (message is None)
    assert message is None or message in (result.reason or "")


def test_terms_of_an_iteration_add_up() -> None:
    """A stage fills with one chunk: what is said of loads and of synchronisation makes the objective."""
    shown = 0
    for problem in map(chunked_problem, range(40)):
        plan = solve(problem).plan
        if plan is not None:
            priced = PricedPlan.of(problem, plan, evaluate(problem, plan))
            assert priced is not None
            sync = max(stage.sync for stage in priced.evaluation.stages)
            assert priced.sync_s == priced.seconds(sync)
            said = solution_text(problem, solve(problem), Screen(200))
            assert f"of {plan.chunks} chunks" in said
            assert terms_text(priced) in said
            shown += 1
    assert shown >= 10


@pytest.mark.parametrize("fault", ["none", "schedule", "number", "stages", "parts", "order"])
def test_rules(fault: str) -> None:
    """Each fault of a plan is named."""
    problem, plan = next(
        (problem, plan)
        for problem in map(chunked_problem, count())
        if (plan := solve(problem).plan) is not None and len(plan.stages) == 2 and len(plan.stages[0].layers) > 2
    )
    first, second = plan.stages
    changed = {
        "none": (problem, plan, None),
        "schedule": (problem, replace(plan, schedule="1f1b"), "chunks"),
        "number": (problem.with_choices(chunks=frozenset({plan.chunks + 1})), plan, "chunks"),
        "stages": (problem, replace(plan, stages=(first,)), "chunks"),
        "parts": (problem, replace(plan, chunks=plan.chunks + 7), "order"),
        "order": (
            problem,
            replace(plan, stages=(replace(first, layers=second.layers), replace(second, layers=first.layers))),
            "order",
        ),
    }[fault]
    broken = {each.rule for each in evaluate(changed[0], changed[1]).violations}
    assert (changed[2] in broken) if changed[2] else not broken
    assert problem.preset is DEFAULT


@pytest.mark.parametrize("seed", range(30))
def test_size_of_the_space(seed: int) -> None:
    """Plans with chunks are counted."""
    problem, counted, rounding = chunked_problem(seed), 0, oracle.Rounding(0)
    places = set()
    for each in chunks.choices(problem, rounding):
        outer = each.costs.outer
        assert outer.spot is not None
        key = outer.variant, outer.stages, outer.replicas, each.chunks, outer.spot.blocks
        if key not in places:
            places.add(key)
            counted += prod(len(list(chunks.inners(problem, each, at))) for at in range(each.stages))
    assert sum(plans_of(problem).values()) == counted


def test_reports_and_files(tmp_path: Path) -> None:
    """Plans with chunks survive a file, parts of their loads and memory add up, and nobody runs or exports them."""
    shown = 0
    for seed in range(40):
        problem = chunked_problem(seed)
        plan = solve(problem).plan
        if plan is None:
            continue
        write_plan(plan, tmp_path / "plan.json")
        assert read_plan(tmp_path / "plan.json") == plan
        write_problem(problem, tmp_path / "problem.toml")
        read = read_problem(tmp_path / "problem.toml")
        assert (read.choices.schedules, read.choices.chunks) == (ALONE, problem.choices.chunks)
        verdict = evaluate(problem, plan)
        priced = PricedPlan.of(problem, plan, verdict)
        assert priced is not None
        assert priced.sync_s == priced.seconds(sync_of(problem, verdict))
        loads = [parts.total for parts in load_parts(problem, plan, verdict)]
        assert loads == [stage.load for stage in verdict.stages]
        memory = [sum(parts.as_dict().values()) for parts in memory_parts(problem, plan, verdict)]
        assert memory == [stage.memory for stage in verdict.stages]
        assert simulate(pipeline_of(problem, plan, verdict), Schedule("interleaved", plan.chunks)).makespan > 0
        with pytest.raises(InvalidPlan, match="chunks on each stage are not executed"):
            prepare(problem, plan, Asked())
        shown += 1
    assert shown >= 10
    assert apply_settings(chunked_problem(0), ["chunks=2,4"]).choices.chunks == frozenset({2, 4})


@pytest.mark.parametrize("kind", ["together", "pin", "same_sharding"])
def test_layers_of_a_stage_are_no_row(kind: str) -> None:
    """Side constraints that take the layers of a stage for one row do not go with interleaving."""
    problem = chunked_problem(1)
    first = next(iter(problem.graphs.values())).layers[0].id
    looking = {
        "together": Together([first]),
        "pin": Pin((0, 0), layer=first),
        "same_sharding": SameSharding([first]),
    }
    with pytest.raises(InvalidProblem, match=f"'interleaved' beside side constraint '{kind}'"):
        problem.with_constraints(looking[kind])
