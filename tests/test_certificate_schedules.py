"""The optimality checker on other schedules than 1F1B: it confirms optima under them, and refutes what is above.

That optima of interleaved pipelines are those of all plans is in `test_chunks_agreement`, where it is asked as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import oracle_chunks as chunks
import oracle_default as oracle
import pytest
from injected import Fault, noticed, plus, tight, with_more, without_first, without_last
from random_branches import random_branched
from random_default import SMALL, Size, random_plan, random_problem
from random_places import roomy
from random_schedules import scheduled_problem
from seeds import seeds
from test_certificate_sums import BROAD, LARGE, claim_of, confirmed
from test_chunks_agreement import BOTH, chunked_problem

from nest.certificate import Outcome, check, sum_check
from nest.certificate.sum_choices import by_mean, by_memory
from nest.certificate.sum_chunks import Chunked, ChunkedStages, Cut, chunked
from nest.certificate.sum_memory import Memory
from nest.certificate.sum_stages import SumStages
from nest.evaluate import evaluate
from nest.presets import DEFAULT, ScheduleName
from nest.problem import Choices, Problem
from nest.solve import solve
from nest.tables import Tables
from nest.tables.repeated import Passing

GPIPE: frozenset[ScheduleName] = frozenset({"gpipe"})
EITHER: frozenset[ScheduleName] = frozenset({"1f1b", "gpipe"})


def gpipe(seed: int, size: Size = SMALL) -> Problem:
    """Return a problem whose microbatches are all in flight."""
    problem = (roomy(seed) if seed % 4 == 3 else random_problem(seed, size)).with_choices(schedules=GPIPE)
    room = problem.cluster.hbm_bytes * (1, 2, 5)[seed % 3]
    return replace(problem, cluster=replace(problem.cluster, hbm_bytes=room))


@pytest.mark.parametrize("seed", seeds(60, 600))
def test_gpipe(seed: int) -> None:
    """Optima of problems that allow GPipe alone are those of the checker, too."""
    confirmed(gpipe(seed))


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_gpipe_of_larger_problems(seed: int) -> None:
    """The same of more layers on more devices, and of models that branch."""
    confirmed(gpipe(seed, LARGE))
    confirmed(random_branched(seed, BROAD).with_choices(schedules=GPIPE))


def test_memory_of_gpipe_matters() -> None:
    """Where it has no room for what 1F1B does, its optimum is another, and no plan of 1F1B refutes it."""
    later = 0
    for seed in range(40):
        problem = gpipe(seed)
        found, plain = (solve(each).objective_ticks for each in (problem, problem.with_choices(schedules=EITHER)))
        assert check(problem, claim_of(found)).holds
        assert check(problem.with_choices(schedules=EITHER), claim_of(plain)).holds
        later += found != plain
    assert later >= 3


@pytest.mark.parametrize("seed", range(30))
def test_schedules_together(seed: int) -> None:
    """Under any schedules without chunks that are priced by the sum."""
    problem = replace(scheduled_problem(seed), choices=Choices(), preset=DEFAULT)
    names: tuple[frozenset[ScheduleName], ...] = (GPIPE, EITHER, frozenset({"1f1b"}))
    for schedules in names:
        confirmed(problem.with_choices(schedules=schedules))


def test_first_arguments_are_admissible_under_gpipe() -> None:
    """No argument that looks at no stage rules out the outer choice of a legal plan that is faster than the value."""
    legal = Counter[bool]()
    for seed in range(80):
        problem = gpipe(seed)
        for again in range(4):
            plan = replace(random_plan(again, problem), schedule="gpipe")
            verdict = evaluate(problem, plan)
            if verdict.legal and verdict.objective_ticks is not None:
                legal[len(plan.stages) > 1] += 1
                tables, value = Tables.of(problem).of_variant(plan.variant), verdict.objective_ticks + 1
                found = by_mean(tables, np.array([len(plan.stages)]), np.array([plan.replicas]), value)
                assert len(by_memory(tables, "gpipe", found, value).stages) == 1
    assert legal[True] > 20


@pytest.mark.parametrize("fault", ["too few in flight", "too many in flight"])
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that counts what is in flight otherwise has plans that the judge does not let stand, or misses some."""
    if fault == "too few in flight":
        monkeypatch.setattr(SumStages, "_passing", lambda self, at: Passing(min(at, _microbatches(self))))
    else:
        monkeypatch.setattr(SumStages, "_passing", lambda self, _: Passing(_microbatches(self) + 1))
    with pytest.raises(AssertionError):
        _confirm_all()


def _microbatches(stages: Any) -> int:
    return -(-int(stages.tables.microbatches) // int(stages.choice.replicas))


def _confirm_all() -> None:
    for seed in range(200):
        confirmed(gpipe(seed))


def test_a_fault_of_the_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first argument on memory is looked at, too."""
    noticed((Memory, "spared", tight), monkeypatch, _confirm_all)


WIDER = Size(layers=16, devices=64, levels=4, variants=2, batch=64)


@pytest.mark.parametrize("seed", seeds(50, 800))
def test_chunks(seed: int) -> None:
    """Optima of interleaved pipelines, alone and beside 1F1B."""
    problem = chunked_problem(seed)
    confirmed(problem)
    confirmed(problem.with_choices(schedules=BOTH))


@pytest.mark.parametrize("seed", seeds(20, 300))
def test_chunks_of_larger_problems(seed: int) -> None:
    """The same of more layers on more devices."""
    confirmed(chunked_problem(seed, WIDER))


def test_every_choice_with_chunks() -> None:
    """The best plan of each number of stages, replicas and chunks, and of no other, is confirmed and refuted."""
    planned = 0
    for seed in range(100):
        problem = chunked_problem(seed)
        for each in {(one.stages, one.replicas, one.chunks) for one in outer_chunked(problem)}:
            names = ("stages", "replicas", "chunks")
            alone = {name: frozenset({value}) for name, value in zip(names, each, strict=True)}
            planned += confirmed(problem.with_choices(**alone)) is not None
    assert planned > 40


def outer_chunked(problem: Problem) -> set[Chunked]:
    """Return the outer choices that the reference has; with one replica all arrangements are the same."""
    found = set()
    for each in chunks.choices(problem, oracle.Rounding(0)):
        outer, ends = each.costs.outer, tuple(end for _, end in each.runs)
        arrangement = outer.arrangement if outer.replicas > 1 else problem.preset.arrangements[0]
        found.add(Chunked(outer.variant, outer.stages, each.chunks, outer.replicas, arrangement, each.costs.m, ends))
    return found


def test_accounts_for_every_choice_with_chunks() -> None:
    """Of a proof each is accounted for, as many as the reference has, and none is closed twice."""
    for seed in range(40):
        problem = chunked_problem(seed)
        tables, expected = Tables.of(problem), outer_chunked(problem)
        found = [each for variant in tables.fitting for each in chunked(tables, variant)]
        assert len(found) == len(expected)
        assert set(found) == expected
        verdict = check(problem, claim_of(solve(problem).objective_ticks))
        assert verdict.settled == verdict.choices == len(expected)
        assert len(set(verdict.closed)) == len(verdict.closed)


def test_deadline_with_chunks() -> None:
    """A deadline that has passed settles nothing; the outer choices are counted."""
    problem = next(each for each in map(chunked_problem, count()) if solve(each).plan is not None)
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    stopped = check(problem, optimum, deadline=0.0)
    assert (stopped.outcome, stopped.settled, stopped.better) == (Outcome.UNDECIDED, 0, None)
    assert stopped.choices == len(outer_chunked(problem))


def _stop_at_once(method: Callable[..., Any]) -> Callable[..., Any]:
    asked = set[ChunkedStages]()

    def wrong(self: ChunkedStages, cap: int) -> Any:
        again = self in asked
        asked.add(self)
        return None if again else method(self, cap)

    return wrong


FAULTS: dict[str, Fault] = {
    "an outer choice is forgotten": (sum_check, "chunked", without_first),
    "a placing is forgotten": (sum_check, "standing", without_first),
    "one that is fast enough is left out": (sum_check, "fast_enough", without_last),
    "a way to shard is forgotten": (Cut, "ways", without_last),
    "recomputation takes a tick longer": (Cut, "cheapest", with_more("ticks")),
    "an iteration takes a tick longer": (Chunked, "takes", plus(1)),
    "no cap on synchronisation is tried but the first": (ChunkedStages, "_least", _stop_at_once),
}
"""Faults that make the checker rule out too much."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_with_chunks_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that rules out too much confirms what is too high, or shows a plan that the judge prices otherwise."""
    noticed(FAULTS[fault], monkeypatch, _confirm_all_chunked)


def _confirm_all_chunked() -> None:
    for seed in range(300):
        confirmed(chunked_problem(seed))
