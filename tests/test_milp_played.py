"""The mathematical programme of preset `simulated`: CP-SAT, HiGHS and the dynamic program agree, and the reference."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import oracle_default as oracle
import oracle_schedules as schedules
import pytest
from random_branches import random_branched
from random_constraints import LOCAL_KINDS, random_constraints
from random_default import SMALL, Size, random_problem
from random_places import roomy
from random_schedules import scheduled, scheduled_problem
from seeds import seeds
from sum_programmes import agree
from test_certificate_sums import FewStages
from test_chunks_agreement import constrained_problem
from test_simulated_chunks import played_problem, rivals

from nest.certify import Finding, certify
from nest.cost.schedules import Schedule
from nest.errors import InvalidProblem, OutOfScope
from nest.milp import played_arcs, solve_cpsat, solve_pyomo
from nest.milp.played_cpsat import PlayedCpSat
from nest.milp.played_paths import Player, Shape
from nest.milp.played_search import PlayedSearch
from nest.pipeline import Pipeline, StageTimes, simulate
from nest.presets import SIMULATED, ScheduleName
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve

MIDDLE = Size(layers=7, devices=24, levels=3, variants=1, batch=24)
PLAIN: tuple[ScheduleName, ...] = ("1f1b", "gpipe", "zb-h1")


def played(seed: int, problem: Problem) -> Problem:
    """Return a problem under some schedules without chunks that are played."""
    return scheduled(seed, problem.with_preset(SIMULATED)).with_preset(SIMULATED)


def both(seed: int, problem: Problem) -> None:
    """Assert that CP-SAT finds the optimum of the dynamic program, and for every fourth seed HiGHS as well."""
    agree(problem, solve(problem).objective_ticks, ("cpsat",) if seed % 4 else ("cpsat", "pyomo"))


@pytest.mark.parametrize("seed", seeds(40, 300))
def test_agreement(seed: int) -> None:
    """Two to four layers, all ZeRO types, recomputation, widths, nets, under any schedules without chunks."""
    both(seed, scheduled_problem(seed).with_preset(SIMULATED))


@pytest.mark.parametrize("seed", seeds(30, 200))
def test_agreement_with_the_reference(seed: int) -> None:
    """Every plan of a few layers on a few devices, priced by the reference."""
    problem = scheduled_problem(7000 + seed).with_preset(SIMULATED)
    found = solve(problem, backend="cpsat")
    rounding = oracle.Rounding(found.time.exponent)
    best = schedules.best(problem, rounding).objective
    assert rounding.doubtful or found.objective_ticks == best
    assert (found.status is Status.INFEASIBLE) == (best is None)


@pytest.mark.parametrize("seed", seeds(20, 150))
def test_branches_places_and_side_constraints(seed: int) -> None:
    """Stages that are differences of downsets, devices to spare, and local side constraints."""
    both(seed, played(seed, random_branched(seed)))
    both(seed, played(seed, roomy(seed)))
    problem = played(seed, random_problem(seed, SMALL))
    both(seed, problem.with_constraints(*random_constraints(seed, problem, LOCAL_KINDS)))


@pytest.mark.parametrize("seed", seeds(25, 200))
def test_chunks(seed: int) -> None:
    """Interleaved pipelines, alone, beside other schedules and beside side constraints."""
    both(seed, played_problem(seed))
    both(seed, rivals(seed))
    both(seed, constrained_problem(seed).with_preset(SIMULATED))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_larger(seed: int) -> None:
    """More layers and devices."""
    problem = played(seed, random_problem(seed, MIDDLE))
    agree(problem, solve(problem).objective_ticks, ("cpsat",))


def pipeline(rng: random.Random, shape: Shape) -> tuple[Pipeline, Any]:
    """Return stages that take anything, and their passes by stage and column."""
    chunks, rows, times = shape.chunks, [], []
    for _ in range(shape.stages):
        ahead, back = ([rng.randint(0, 9) for _ in range(chunks)] for _ in range(2))
        late = rng.randint(0, back[0]) if shape.schedule == "zb-h1" else 0
        rows.append([*ahead, *back] if chunks > 1 else [ahead[0], back[0] - late, late])
        times.append([StageTimes(one, two, weight=late) for one, two in zip(ahead, back, strict=True)])
    whole = tuple(
        StageTimes(sum(one.forward for one in each), sum(one.backward for one in each), weight=each[0].weight)
        for each in times
    )
    by_chunk = tuple(map(tuple, times)) if chunks > 1 else ()
    return Pipeline(whole, shape.microbatches, chunks=by_chunk), np.array(rows, dtype=np.int64)


@pytest.mark.parametrize("schedule", [*PLAIN, "interleaved"])
def test_longest_path_is_what_is_played(schedule: ScheduleName) -> None:
    """It takes as long as the simulator says, by its counts as well, and no other pipeline takes less along it."""
    rng = random.Random(schedule)
    for _ in range(60):
        stages, chunks = rng.randint(2, 5), rng.randint(2, 3) if schedule == "interleaved" else 1
        microbatches = rng.randint(1, 3 * stages if chunks > 1 else 9)
        shape = Shape(schedule, stages, microbatches, chunks)
        player, known = Player(shape), list[Any]()
        for _ in range(4):
            played_one, ticks = pipeline(rng, shape)
            path = player.longest(ticks)
            assert (
                path.ticks
                == simulate(played_one, Schedule(schedule, chunks)).makespan
                == int((path.counts * ticks).sum())
            )
            known.append(path.counts)
            assert all(int((each * ticks).sum()) <= path.ticks for each in (*known, *player.starting()))


def test_what_ties_stages_together_is_refused() -> None:
    """In one line that names it, by both; and so is a plan to start from."""
    problem = random_problem(1, SMALL).with_preset(SIMULATED)
    for ask_for in (solve_cpsat, solve_pyomo):
        with pytest.raises(OutOfScope, match=r"does not keep what ties stages together \(few_stages\)"):
            ask_for(problem.with_constraints(FewStages(1)))
    plan = solve(problem).plan
    with pytest.raises(OutOfScope, match="no plan to start from"):
        solve_cpsat(problem, hint=plan)


def test_limits_are_said() -> None:
    """Without time nothing is claimed but a bound; the first plan is no more than that."""
    problem = random_problem(1, SMALL).with_preset(SIMULATED)
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    stopped = solve_cpsat(problem, time_limit_s=0.0)
    assert (stopped.status, stopped.plan) == (Status.UNKNOWN, None)
    assert stopped.bound is not None
    assert stopped.bound <= optimum
    first = solve_cpsat(problem, first=True)
    assert first.objective is not None
    assert first.objective >= optimum
    assert solve_cpsat(problem, at_least=optimum).status is Status.OPTIMAL


def test_a_proof_by_cpsat() -> None:
    """CP-SAT is a prover of plans that are played."""
    problem = random_problem(1, SMALL).with_preset(SIMULATED)
    plan = solve(problem).plan
    assert plan is not None
    assert certify(problem, plan, provers=["checker", "cpsat"]).finding is Finding.OPTIMAL


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "paths are too long": (
        PlayedCpSat,
        "post_path",
        lambda method: lambda self, counts: method(self, counts + (counts > 0)),
    ),
    "a way is lost": (played_arcs, "_undominated", lambda method: lambda arcs: method(arcs).pick(slice(1, None))),
    "the first answer is the last": (PlayedSearch, "_keep", lambda _: lambda *_: None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a rule says too much, or too little, the answer is another than the dynamic program's."""
    wanted = [(problem, solve(problem).objective_ticks) for problem in map(played_small, range(40))]
    owner, name, wrong = FAULTS[fault]
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    with pytest.raises((AssertionError, InvalidProblem)):
        _agree_all(wanted)


def _agree_all(wanted: list[tuple[Problem, int | None]]) -> None:
    for problem, optimum in wanted:
        agree(problem, optimum, ("cpsat",))


def played_small(seed: int) -> Problem:
    """Return a small problem that is played."""
    return scheduled_problem(seed).with_preset(SIMULATED)
