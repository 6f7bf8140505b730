"""The optimality checker under preset `simulated`: it confirms optima, refutes what is above, and notices its faults.

That optima of small problems are those of all plans is in `test_simulated_agreement`, `test_schedules_agreement` and
`test_simulated_chunks`, where the checker is asked as well.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from injected import Fault, noticed, plus, tight, time_is_up_after, with_more, without_first, without_last
from random_branches import random_branched, random_branched_plan
from random_constraints import LOCAL_KINDS, random_constraints
from random_default import Size, random_plan, random_problem
from random_places import roomy
from random_schedules import scheduled
from seeds import seeds
from test_certificate_sums import FewStages, certified_and_refuted, claim_of, confirmed, outer_choices, run_problem
from test_chunks_agreement import chunked_problem, constrained_problem
from test_simulated_chunks import rivals

from nest.certificate import Outcome, check, played_check, played_plans, sum_check
from nest.certificate.played_choices import PlayedChoices
from nest.certificate.played_chunks import PlayedChunks, by_stages
from nest.certificate.played_passes import Passes, Shape, taken
from nest.certificate.played_paths import Paths
from nest.certificate.played_plans import PlayedPlans
from nest.certificate.played_stages import PlayedStages, Ways
from nest.certificate.sum_memory import Memory
from nest.cost.schedules import Schedule
from nest.evaluate import evaluate
from nest.pipeline import Pipeline, StageTimes, simulate
from nest.presets import SIMULATED, ScheduleName
from nest.problem import Problem
from nest.solve import solve
from nest.tables import Tables

SMALL = Size(layers=4, devices=8, levels=3, variants=1, batch=8)
MIDDLE = Size(layers=9, devices=40, levels=3, variants=2, batch=40)
BRANCHED = Size(layers=7, devices=24, levels=3, variants=1, batch=24)
WIDER = Size(layers=16, devices=64, levels=4, variants=2, batch=64)
PLAIN: tuple[ScheduleName, ...] = ("1f1b", "gpipe", "zb-h1")


def played(seed: int, problem: Problem) -> Problem:
    """Return a problem under some schedules without chunks that are played, every other one with several stages."""
    problem = scheduled(seed, problem.with_preset(SIMULATED)).with_preset(SIMULATED)
    if seed % 2:
        room = replace(problem.cluster, hbm_bytes=problem.cluster.hbm_bytes * 5)
        problem = replace(problem, cluster=room).with_choices(stages=frozenset(range(2, 7)))
    return problem


@pytest.mark.parametrize("seed", seeds(25, 400))
def test_larger(seed: int) -> None:
    """Problems of which no reference lists all plans."""
    confirmed(played(seed, random_problem(seed, MIDDLE, ugly=seed % 10 == 9)))


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_larger_that_branch(seed: int) -> None:
    """The same of models whose stages are differences of downsets."""
    confirmed(played(seed, random_branched(seed, BRANCHED)))


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_places(seed: int) -> None:
    """The same with devices to spare, so that plans may leave some idle."""
    confirmed(played(seed, roomy(seed)))


@pytest.mark.parametrize("seed", seeds(15, 300))
def test_chunks(seed: int) -> None:
    """Interleaved pipelines: of more layers on more devices, beside side constraints, and beside other schedules."""
    confirmed(chunked_problem(seed, WIDER).with_preset(SIMULATED))
    confirmed(constrained_problem(seed).with_preset(SIMULATED))
    confirmed(rivals(seed))


@pytest.mark.parametrize("seed", seeds(25, 300))
def test_side_constraints(seed: int) -> None:
    """Local ones leave out outer choices, stages and places."""
    problem = played(seed, random_problem(seed, SMALL))
    confirmed(problem.with_constraints(*random_constraints(seed, problem, LOCAL_KINDS)))


@pytest.mark.parametrize("schedule", PLAIN)
def test_each_number_of_stages(schedule: ScheduleName) -> None:
    """The best plan of each number of stages and replicas, and of no other, is confirmed and refuted."""
    planned = 0
    for seed in range(8):
        problem = random_problem(seed, MIDDLE).with_preset(SIMULATED).with_choices(schedules=frozenset({schedule}))
        problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=problem.cluster.hbm_bytes * 5))
        for stages, replicas in ((2, 1), (3, 2), (5, 1), (4, 4)):
            alone = {"stages": frozenset({stages}), "replicas": frozenset({replicas})}
            planned += confirmed(problem.with_choices(**alone)) is not None
    assert planned > 10


def test_accounts_for_every_outer_choice() -> None:
    """Of a proof every outer choice is accounted for, once for each schedule, and none is closed twice."""
    for seed in range(30):
        problem = played(seed, random_problem(seed, SMALL))
        verdict = check(problem, claim_of(solve(problem).objective_ticks))
        assert verdict.settled == verdict.choices == outer_choices(problem) * len(problem.choices.schedules)
        assert len(set(verdict.closed)) == len(verdict.closed)


def test_first_arguments_are_admissible() -> None:
    """No argument that looks at no stage rules out the outer choice of a legal plan that is faster than the value."""
    legal = Counter[ScheduleName]()
    for seed in range(60):
        branched = seed % 3 == 2
        problem = random_branched(seed) if branched else random_problem(seed, SMALL)
        problem = played(seed, problem).with_choices(schedules=frozenset(PLAIN))
        for again in range(6):
            plan = random_branched_plan(again, problem) if branched else random_plan(again, problem)
            plan = replace(plan, schedule=PLAIN[again % 3])
            verdict = evaluate(problem, plan)
            if verdict.legal and verdict.objective_ticks is not None:
                legal[plan.schedule] += 1
                tables = Tables.of(problem).of_variant(plan.variant)
                choices = PlayedChoices(tables, plan.schedule, verdict.objective_ticks + 1)
                found = choices.by_mean(np.array([len(plan.stages)]), np.array([plan.replicas]))
                assert len(choices.by_memory(found).stages) == 1
    assert min(legal[each] for each in PLAIN) > 15


def pipeline(rng: random.Random, stages: int, microbatches: int) -> Pipeline:
    """Return stages that take anything."""
    times = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(stages)]
    return Pipeline(tuple(StageTimes(each, back, weight=rng.randint(0, back)) for each, back in times), microbatches)


def columns(found: Pipeline, schedule: ScheduleName) -> Passes:
    """Return the passes of a pipeline as those of one column."""
    put_off = [each.weight if schedule == "zb-h1" else 0 for each in found.stages]
    rows = [each.forward for each in found.stages], [each.backward for each in found.stages], put_off
    forward, backward, weight = (np.array(each, dtype=np.int64)[:, None] for each in rows)
    return Passes(forward, backward - weight, weight)


@pytest.mark.parametrize("schedule", PLAIN)
def test_paths_are_no_longer_than_what_is_played(schedule: ScheduleName) -> None:
    """Neither by single stages, nor whatever the cuts, nor with a delay in the place of the last stages."""
    rng, tight = random.Random(schedule), 0
    for _ in range(300):
        stages, microbatches = rng.randint(1, 6), rng.randint(1, 9)
        found = pipeline(rng, stages, microbatches)
        whole, shape = simulate(found, Schedule(schedule)).makespan, Shape(Schedule(schedule), stages, microbatches)
        ticks, paths = columns(found, schedule), Paths(schedule, stages, microbatches)
        assert taken(shape, ticks)[0] == whole
        reach = [paths.of(at, *(each[at] for each in ticks)) for at in range(stages)]
        total = sum(int(each.passing[0]) for each in reach)
        waits = max(int(each.wait[0]) for each in reach) + max(int(each.second[0]) for each in reach)
        before = np.cumsum([0, *(int(each.passing[0]) for each in reach)])
        own = max(int(at + each.own[0]) for at, each in zip(before, reach, strict=False))
        assert max(total + waits, own, *(int(each.alone[0]) for each in reach)) <= whole
        tight += total + waits == whole
        assert paths.whatever_cut(*(each[:, 0].astype(float) for each in ticks)) <= whole * (1 + 1e-12)
        for first in range(1, stages):
            delay = np.array([total - int(before[first])])
            assert taken(shape, Passes(*(each[:first] for each in ticks)), delay)[0] <= whole
    assert tight > 20


def test_paths_through_chunks_are_no_longer_than_what_is_played() -> None:
    """And with equal chunks they are what is played."""
    rng = random.Random(0)
    for _ in range(200):
        stages, chunks, alike = rng.randint(2, 4), rng.randint(2, 3), rng.random() < 0.3
        microbatches = stages * rng.randint(1, 4) if alike else rng.randint(1, 4 * stages)
        shape = Shape(Schedule("interleaved", chunks), stages, microbatches)
        forward, backward = (
            np.full(stages * chunks, rng.randint(1, 9))
            if alike
            else np.array([rng.randint(0, 9) for _ in range(stages * chunks)])
            for _ in range(2)
        )
        times = [
            tuple(StageTimes(int(forward[part]), int(backward[part])) for part in range(at, stages * chunks, stages))
            for at in range(stages)
        ]
        whole = tuple(StageTimes(sum(one.forward for one in each), sum(one.backward for one in each)) for each in times)
        played_whole = simulate(Pipeline(whole, shape.microbatches, chunks=tuple(times)), shape.schedule).makespan
        passes = Passes(*(each[:, None] for each in (forward, backward, np.zeros_like(forward))))
        assert taken(shape, passes)[0] == played_whole
        longest = max(by_stages(shape, forward, backward))
        assert longest == played_whole if alike else longest <= played_whole


def test_what_ties_stages_together() -> None:
    """No plan that breaks it refutes a claim, and none that is too high is proven."""
    outcomes = Counter[Outcome]()
    for seed in range(0, 80, 2):
        problem = played(seed, random_problem(seed, SMALL))
        if problem.choices.stages is not None:
            continue
        tied = problem.with_constraints(FewStages(1))
        best = solve(problem.with_choices(stages=frozenset({1}))).objective_ticks
        verdict = check(tied, claim_of(best))
        assert verdict.outcome is not Outcome.REFUTED
        outcomes[verdict.outcome] += 1
        if best is not None:
            above = check(tied, best + 1)
            assert above.outcome is not Outcome.PROVEN
            assert above.better is None or len(above.better.stages) == 1
    assert min(outcomes[Outcome.PROVEN], outcomes[Outcome.UNDECIDED]) > 3


def test_deadline_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the deadline comes, no claim is called proven, and what was settled before is still known."""
    problem = next(
        each for each in (played(seed, random_problem(seed, MIDDLE)) for seed in count(1, 2)) if solve(each).plan
    )
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    stopped = check(problem, optimum, deadline=time.perf_counter())
    assert (stopped.outcome, stopped.settled, stopped.better) == (Outcome.UNDECIDED, 0, None)
    assert check(problem, optimum, deadline=time.perf_counter() + 3600).holds
    outcomes = set()
    for patience in (0, 1, 3, 9, 30, 100, 10_000):
        monkeypatch.setattr(sum_check.Claim, "watch", time_is_up_after(patience))
        verdict = check(problem, optimum)
        outcomes.add(verdict.outcome)
        assert (verdict.outcome is Outcome.PROVEN) == (verdict.settled == verdict.choices)
    assert outcomes == {Outcome.UNDECIDED, Outcome.PROVEN}


def test_certificates() -> None:
    """A plan is certified, another refuted by a better one, and an answer confirmed."""
    certified_and_refuted(random_problem(1, SMALL).with_preset(SIMULATED))


@pytest.mark.parametrize("file", ["llama3-8b_h100_64.toml", "bertlarge_a100_64.toml"])
def test_run(file: str) -> None:
    """Optima of runs are proven, and nothing above them."""
    problem, optimum = run_problem(file, SIMULATED)
    assert check(problem, optimum).holds
    assert check(problem, optimum + 1).outcome is Outcome.REFUTED


LONGER = ("mixtral-8x7b_h100_256.toml", "llama3-70b_h100_512.toml", "t5-11b_tpuv4_128.toml", "gpt3-175b_a100_1024.toml")


@pytest.mark.slow
@pytest.mark.parametrize("file", LONGER)
def test_more_runs(file: str) -> None:
    """The same of larger ones, the last two of which have plans of several stages."""
    test_run(file)


def _one_of_each(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Ways) -> Ways:
        found: Ways = method(self)
        return found.pick(np.unique(found.entry, return_index=True)[1])

    return wrong


FAULTS: dict[str, Fault] = {
    "an arrangement is forgotten": (sum_check, "apart", without_last),
    "a placing is forgotten": (played_check, "standings", without_last),
    "what is played takes a tick longer": (played_plans, "taken", plus(1)),
    "a stage waits a tick longer": (PlayedStages, "reach", with_more("wait")),
    "one way of each stage is enough": (Ways, "undominated", _one_of_each),
    "activations take a tick longer": (PlayedStages, "_activations", plus(1)),
    "pipelines are not begun": (PlayedPlans, "_further", lambda method: lambda *all_: method(*all_).pick(slice(0))),
    "memory is a quarter too small": (Memory, "spared", tight),
    "layers take more whatever the cuts": (
        PlayedChoices,
        "_takes",
        lambda method: lambda *all_: method(*all_) * 5 // 4,
    ),
}
"""Faults that make the checker rule out too much, or price otherwise than the judge."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that rules out too much confirms what is too high, or shows a plan that the judge prices otherwise."""
    noticed(FAULTS[fault], monkeypatch, _confirm_all)


def _confirm_all() -> None:
    for seed in range(300):
        confirmed(played(seed, random_problem(seed, SMALL)))
        confirmed(played(seed, random_branched(seed)))


FAULTS_OF_CHUNKS: dict[str, Fault] = {
    "an outer choice is forgotten": (sum_check, "chunked", without_first),
    "one that is fast enough is left out": (played_check, "fast_enough", without_last),
    "a way is forgotten": (PlayedChunks, "_ways", without_last),
    "there is less room to synchronise": (PlayedChunks, "_room", lambda method: lambda *each: method(*each) - 1),
}


@pytest.mark.parametrize("fault", FAULTS_OF_CHUNKS)
def test_a_fault_with_chunks_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of interleaved pipelines."""
    noticed(FAULTS_OF_CHUNKS[fault], monkeypatch, _confirm_all_chunked)


def _confirm_all_chunked() -> None:
    for seed in range(300):
        confirmed(chunked_problem(seed).with_preset(SIMULATED))
