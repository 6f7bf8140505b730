"""The optimality checker on other schedules than 1F1B: it confirms optima under them, and refutes what is above."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from random_branches import random_branched
from random_default import SMALL, Size, random_plan, random_problem
from random_places import roomy
from random_schedules import scheduled_problem
from seeds import seeds
from test_certificate_sums import BROAD, LARGE, claim_of, confirmed

from nest.certificate import check
from nest.certificate.sum_choices import by_mean, by_memory
from nest.certificate.sum_memory import Memory
from nest.certificate.sum_stages import SumStages
from nest.evaluate import evaluate
from nest.presets import DEFAULT, ScheduleName
from nest.problem import Choices, Problem
from nest.solve import solve
from nest.tables import Tables

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
    for seed in range(60):
        problem = gpipe(seed)
        found, plain = (solve(each).objective_ticks for each in (problem, problem.with_choices(schedules=EITHER)))
        assert check(problem, claim_of(found)).holds
        assert check(problem.with_choices(schedules=EITHER), claim_of(plain)).holds
        later += found != plain
    assert later >= 5


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
        monkeypatch.setattr(SumStages, "_flying", lambda self, at: min(at, _microbatches(self)))
    else:
        monkeypatch.setattr(SumStages, "_flying", lambda self, _: _microbatches(self) + 1)
    with pytest.raises(AssertionError):
        _confirm_all()


def _microbatches(stages: Any) -> int:
    return -(-int(stages.tables.microbatches) // int(stages.choice.replicas))


def _confirm_all() -> None:
    for seed in range(200):
        confirmed(gpipe(seed))


def test_a_fault_of_the_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first argument on memory is looked at, too."""
    spared = Memory.spared

    def tight(self: Memory, *arguments: Any) -> Any:
        self.room = self.room * 3 // 4
        return spared(self, *arguments)

    monkeypatch.setattr(Memory, "spared", tight)
    with pytest.raises(AssertionError):
        _confirm_all()
