"""Solver, judge, checker, player and reference agree on interleaved pipelines that are played: as integers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

import numpy as np
import oracle_chunks as interleaved
import oracle_chunks_played as chunks
import oracle_default as oracle
import oracle_schedules as schedules
import pytest
from random_default import Size
from random_problems import show_plan, show_problem
from seeds import seeds
from test_chunks_agreement import chunked_problem
from test_default_agreement import refuted_by

from nest.breakdown import load_parts
from nest.certificate import check as claimed
from nest.cost.schedules import Schedule
from nest.dp.agenda import Agenda
from nest.dp.chunk_pace import ChunkPace
from nest.dp.incumbent import Incumbent
from nest.dp.interleaved import InterleavedChoice, InterleavedSearch
from nest.dp.makespans import Played, Shape, makespans
from nest.dp.simulated_chunks import PlayedBounds, PlayedChunks, PlayedWay, played_ways
from nest.dp.sum_outer import sum_choices, sum_ranges
from nest.dp.watch import Watch
from nest.errors import InvalidProblem
from nest.evaluate import evaluate, pipeline_of, sync_of
from nest.graph import LayerGraph
from nest.pipeline import Pipeline, StageTimes, simulate
from nest.plan import Plan
from nest.presets import DEFAULT, SIMULATED, ScheduleName
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve
from nest.tables import Tables
from nest.units import HARD_LIMIT, LONGEST

SMALL = Size(layers=5, devices=6, levels=3, variants=1, batch=8)
SHARDED = Size(layers=7, devices=20, levels=3, variants=1, batch=12)
PLAIN: frozenset[ScheduleName] = frozenset({"1f1b", "gpipe", "zb-h1"})


def played_problem(seed: int) -> Problem:
    """Return a problem that allows interleaved plans alone, which are played."""
    return chunked_problem(seed).with_preset(SIMULATED)


def check(problem: Problem) -> str:
    """Assert that `solve` finds the shortest iteration there is; return the schedule of its plan."""
    result = solve(problem)
    rounding = oracle.Rounding(result.time.exponent)
    rivals = [chunks.best(problem, rounding)]
    if plain := problem.choices.schedules - {"interleaved"}:
        rivals.append(schedules.best(problem.with_choices(schedules=plain, chunks=None), rounding))
    known = [(each.objective, each.plan) for each in rivals if each.objective is not None and each.plan is not None]
    shown = f"{show_problem(problem)}\n{result}\n{show_plan(result.plan)}\n{rivals}"
    assert result.status is (Status.OPTIMAL if known else Status.INFEASIBLE), shown
    if result.plan is None:
        assert claimed(problem, HARD_LIMIT).holds, shown
        return ""
    verdict = evaluate(problem, result.plan)
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    assert verdict.legal, shown
    best, plan = min(known, key=lambda each: each[0])
    assert evaluate(problem, plan).legal, shown
    slack = 1000 * problem.microbatches(result.plan.variant) if rounding.doubtful else 0
    assert result.objective_ticks is not None
    assert abs(result.objective_ticks - best) <= slack, shown
    assert claimed(problem, result.objective_ticks).holds, shown
    assert refuted_by(problem, result.objective_ticks + 1) == result.objective_ticks, shown
    return result.plan.schedule


@pytest.mark.parametrize("seed", seeds(30, 300))
def test_best(seed: int) -> None:
    """Every interleaved plan of a few layers on a few devices."""
    check(played_problem(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_more(seed: int) -> None:
    """More layers and devices."""
    size = Size(layers=9, devices=12, levels=3, variants=2, batch=16)
    check(chunked_problem(seed, size).with_preset(SIMULATED))


def rivals(seed: int) -> Problem:
    """Return a problem in which interleaved plans have other schedules beside them, most of them with two stages."""
    rng = random.Random(f"rivals {seed}")
    names = frozenset(rng.sample(sorted(PLAIN), rng.randint(1, 3))) | {"interleaved"}
    problem = chunked_problem(seed, SMALL).with_preset(SIMULATED)
    if rng.random() < 0.7:
        graphs = {variant: alike(rng, graph) for variant, graph in problem.graphs.items()}
        room = problem.cluster.hbm_bytes * 10
        problem = replace(problem, graphs=graphs, cluster=replace(problem.cluster, hbm_bytes=room))
    problem = replace(problem, training=replace(problem.training, microbatches=rng.choice([2, 2, 4])))
    stages = rng.choice([None, frozenset({2}), frozenset({2}), frozenset({2, 3})])
    return problem.with_choices(schedules=names, stages=stages, zero=frozenset(rng.sample(range(4), 2)))


def alike(rng: random.Random, graph: LayerGraph) -> LayerGraph:
    """Return a graph that sends nothing, whose layers take much the same: one in which chunks are worth it."""
    first = graph.layers[1]
    layers = (replace(each, forward_s=first.forward_s, backward_s=first.backward_s) for each in graph.layers)
    layers = (replace(each, forward_s=each.forward_s * rng.choice([1, 1, 2])) for each in layers)
    return replace(graph, layers=tuple(layers), edges=tuple(replace(edge, bytes=0) for edge in graph.edges))


@pytest.mark.parametrize("seed", seeds(40, 150))
def test_beside_others(seed: int) -> None:
    """With all schedules allowed the answer is the best of all."""
    check(rivals(seed))


def test_each_schedule_may_win() -> None:
    """Of these problems some are won by interleaved plans, and some by others."""
    plans = (solve(rivals(seed)).plan for seed in range(40))
    won = [plan.schedule for plan in plans if plan is not None]
    assert 2 <= won.count("interleaved") < len(won)


def random_chunks(problem: Problem, rng: random.Random) -> Plan | None:
    """Return an interleaved plan whose stages choose at random, whether it fits or not."""
    outer = list(interleaved.choices(problem, oracle.Rounding(0)))
    if not outer:
        return None
    one = rng.choice(outer)
    known = [list(interleaved.inners(problem, one, at)) for at in range(one.stages)]
    return interleaved.plan_of(one, [rng.choice(each) for each in known]) if all(known) else None


@pytest.mark.parametrize("seed", seeds(60, 300))
def test_price_of_a_plan(seed: int) -> None:
    """Judge, player and reference say the same of a random plan, and chunks together take what their stage does."""
    problem = played_problem(seed)
    plan = random_chunks(problem, random.Random(seed))
    if plan is None:
        return
    try:
        verdict = evaluate(problem, plan)
    except InvalidProblem:
        return
    pipeline = pipeline_of(problem, plan, verdict)
    assert [sum(each.load for each in stage) for stage in pipeline.chunks] == list(pipeline.loads)
    assert [parts.total for parts in load_parts(problem, plan, verdict)] == list(pipeline.loads)
    run = simulate(pipeline, Schedule("interleaved", plan.chunks))
    assert run.makespan + sync_of(problem, verdict) == verdict.objective_ticks
    assert run.busy == tuple(pipeline.microbatches * load for load in pipeline.loads)
    assert evaluate(problem.with_preset(DEFAULT), plan).stages == verdict.stages
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    expected = chunks.price(problem, plan, rounding)
    assert rounding.doubtful or expected == verdict.objective_ticks, f"{show_problem(problem)}\n{show_plan(plan)}"


@pytest.mark.parametrize("seed", range(60))
def test_many_pipelines_at_once(seed: int) -> None:
    """Played as waves, event by event and by the reference, pipelines take the same, and no less than their bounds."""
    rng = random.Random(seed)
    stages, number, most = rng.randint(2, 5), rng.randint(2, 4), rng.choice([1, 3, 100])
    microbatches, parts = rng.choice([stages * rng.randint(1, 4), rng.randint(1, 23)]), stages * number
    forward, backward = np.array([[[rng.randint(0, most) for _ in range(parts)] for _ in range(6)] for _ in range(2)])
    shape = Shape("interleaved", stages, microbatches, number)
    found = makespans(shape, Played(forward, backward, np.zeros_like(forward)))
    pace = ChunkPace(stages, number, np.full(6, microbatches))
    both = [each.reshape(6, number, stages) for each in (forward, backward)]
    assert (pace.by_load(*both) <= pace.least(*both)).all()
    assert (pace.least(*both).max(axis=1) <= found).all()
    for ticks, *passes in zip(found.tolist(), *both, strict=True):
        times = [tuple(map(tuple, np.stack(passes)[:, :, at].T.tolist())) for at in range(stages)]
        pipeline = Pipeline(
            tuple(StageTimes(*map(sum, zip(*each, strict=True))) for each in times),
            microbatches,
            chunks=tuple(tuple(StageTimes(*one) for one in each) for each in times),
        )
        assert simulate(pipeline, Schedule("interleaved", number)).makespan == ticks
        assert chunks.played(stages, number, times, microbatches) == ticks


def test_bounds_of_equal_stages_are_played() -> None:
    """Where all chunks take the same, the bound is what is played: bounds are as tight as they can be there."""
    for stages, number, microbatches in ((2, 2, 2), (4, 3, 4), (4, 2, 20), (3, 5, 6), (4, 2, 13), (4, 3, 3), (5, 2, 1)):
        same = np.full((1, number, stages), 7), np.full((1, number, stages), 12)
        forward, backward = (each.reshape(1, -1) for each in same)
        shape = Shape("interleaved", stages, microbatches, number)
        taken = makespans(shape, Played(forward, backward, np.zeros_like(forward)))
        assert ChunkPace(stages, number, np.array([microbatches])).least(*same).max() == taken[0]


@pytest.mark.parametrize("seed", range(40))
def test_bounds(seed: int) -> None:
    """No bound of an outer choice is above its best plan, nor that of its stages' ways."""
    problem = played_problem(seed)
    tables = Tables.of(problem)
    for grouped in tables.grouped:
        for number in Agenda(tables, Watch(None, None, Incumbent())).chunks(grouped.variant):
            bounds = PlayedBounds(grouped, number)
            for ranges in sum_ranges(bounds):
                for row in range(len(ranges)):
                    choices = sum_choices(bounds, ranges[row])
                    for at in range(len(choices)):
                        single = choices[at].single
                        assert single is not None
                        alone = Incumbent()
                        search = InterleavedSearch(grouped, Watch(None, None, alone), number, bounds)
                        least = max(int(ranges.bounds[row]), int(choices.bounds[at]))
                        for prepared in search.prepare(single):
                            assert isinstance(prepared, InterleavedChoice)
                            own = Incumbent()
                            PlayedChunks(prepared, own).settle()
                            played = PlayedChunks(prepared, Incumbent())
                            bounds_of_all = least, prepared.bound, played.first, played.bound
                            assert not own.found or max(bounds_of_all) <= own.objective


def sharding_problem(seed: int) -> Problem:
    """Return a problem whose stages may shard in ways of which none is the best in loads and synchronisation."""
    rng = random.Random(f"sharding {seed}")
    drawn = (chunked_problem(1000 * seed + each, SHARDED) for each in count())
    problem = next(each for each in drawn if each.cluster.devices >= 4 * next(iter(each.graphs)).width)
    training = replace(problem.training, microbatches=rng.choice([4, 12, 12]), hides_gradients=rng.random() < 0.5)
    room = problem.cluster.hbm_bytes * rng.choice([1, 20, 20])
    problem = replace(problem, training=training, cluster=replace(problem.cluster, hbm_bytes=room), preset=SIMULATED)
    return problem.with_choices(
        zero=frozenset(rng.sample(range(4), 3)), replicas=frozenset({2}), stages=frozenset({2, 3})
    )


@pytest.mark.parametrize("seed", seeds(20, 300))
def test_several_ways(seed: int) -> None:
    """Stages that may shard in several ways."""
    check(sharding_problem(seed))


def test_stages_choose() -> None:
    """In these some stages have several ways worth trying: the search has to branch, and plays what is left open."""
    several = sum(any(len(each) > 1 for each in ways) for seed in range(60) for ways in ways_of(sharding_problem(seed)))
    assert several >= 30


def ways_of(problem: Problem) -> Iterator[list[list[PlayedWay]]]:
    """Yield what the stages of each outer choice with two chunks may choose."""
    for tables in Tables.of(problem).grouped:
        bounds = PlayedBounds(tables, 2)
        search = InterleavedSearch(tables, Watch(None, None, Incumbent()), 2, bounds)
        for ranges in sum_ranges(bounds):
            for choices in (sum_choices(bounds, ranges[row]) for row in range(len(ranges))):
                for single in (choices[at].single for at in range(len(choices))):
                    assert single is not None
                    for prepared in search.prepare(single):
                        assert isinstance(prepared, InterleavedChoice)
                        yield played_ways(prepared, LONGEST)


def test_never_above_the_best_by_sum() -> None:
    """The optimum is never above the simulated time of the optimum by `sum`, and below it in some problems."""
    shorter = compared = 0
    for problem in [each(seed) for seed in range(40) for each in (played_problem, sharding_problem)]:
        plan = solve(problem.with_preset(DEFAULT)).plan
        if plan is not None:
            ticks, best = evaluate(problem, plan).objective_ticks, solve(problem)
            assert ticks is not None
            assert best.objective_ticks is not None
            assert best.objective_ticks <= ticks
            compared, shorter = compared + 1, shorter + (best.objective_ticks < ticks)
    assert compared >= 20, compared
    assert shorter >= 1, shorter


def test_better_than_and_limits() -> None:
    """A value one above the optimum is beaten by it alone, itself by nothing; without time nothing is claimed."""
    found = ((problem, solve(problem).objective_ticks) for problem in map(played_problem, count()))
    for problem, optimum in islice(((problem, ticks) for problem, ticks in found if ticks is not None), 6):
        assert solve(problem, better_than=optimum + 1).objective_ticks == optimum
        assert solve(problem, better_than=optimum).status is Status.NONE_BETTER
        limited = solve(problem, time_limit_s=0.0)
        assert limited.bound_ticks is not None
        assert limited.bound_ticks <= optimum


def test_chunks_of_a_pipeline() -> None:
    """Chunks have to take what their stages take; with another number of them the stages' times are divided."""
    stages = StageTimes(3, 5), StageTimes(4, 4)
    whole = Pipeline(stages, 2, chunks=((StageTimes(1, 3), StageTimes(2, 2)), (StageTimes(4, 0), StageTimes(0, 4))))
    apart = simulate(replace(whole, chunks=()), Schedule("interleaved", 2))
    own = simulate(whole, Schedule("interleaved", 2))
    assert own.makespan != apart.makespan
    assert own.busy == apart.busy == (16, 16)
    assert simulate(whole, Schedule("1f1b")).makespan == simulate(replace(whole, chunks=()), Schedule("1f1b")).makespan
    for wrong in (
        ((StageTimes(3, 5),), (StageTimes(4, 3),)),
        ((StageTimes(3, 5), StageTimes(0, 0)), (StageTimes(4, 4),)),
    ):
        with pytest.raises(InvalidProblem, match="chunks do not take what their stages take"):
            Pipeline(stages, 2, chunks=wrong)
