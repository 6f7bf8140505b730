"""Every kind of side constraint beside every feature of the space: the optimum of all plans, or one clear line."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count, islice

import pytest
from feature_problems import FEATURES
from judging import judged
from random_problems import show_problem

from nest.constraints import (
    KINDS,
    AllowedDegrees,
    Apart,
    Budget,
    Constraint,
    CutsAt,
    DistinctStages,
    Divides,
    EqualStages,
    LevelTraffic,
    MaxDevices,
    MaxStages,
    MemoryHeadroom,
    Pin,
    ReservedDevices,
    SameSharding,
    Together,
    WithinLevel,
)
from nest.errors import NestError
from nest.evaluate import crossing
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result
from nest.solve import solve

MANY = 120
"""Problems with more plans than this are left out."""

COUPLING = {"level_traffic", "budget", "distinct_stages", "same_sharding"}
ROWS = {"together", "apart", "cuts_at", "equal_stages", "pin", "distinct_stages", "same_sharding"}
"""Kinds that ask which layers are in a stage, or which stage it is, taking its layers for one row."""

MAY_BE_REFUSED: Mapping[str, set[str]] = {
    "simulated": COUPLING,
    "interleaved": ROWS,
    "stage_tensor": set(KINDS) - {"max_devices", "memory_headroom"},
    "branches": ROWS,
}
"""Kinds that are refused beside a feature; coupling ones only where the best plan of all breaks them."""


@dataclass(frozen=True)
class Case:
    """A problem with its legal plans, the fastest first, and what an iteration of that takes in seconds."""

    problem: Problem
    plans: list[Plan]
    iteration_s: float


@cache
def case(feature: str, turn: int) -> Case:
    """Return the first problem of a feature, from a seed on, that has few plans and some legal ones."""
    for seed in count(100 * turn):
        problem = FEATURES[feature].problem(seed)
        plans = list(islice(FEATURES[feature].plans(problem), MANY + 1))
        verdicts = list(judged(problem, plans)) if 4 <= len(plans) <= MANY else []
        legal = [(verdict.objective_ticks or 0, plan) for plan, verdict in verdicts if verdict.legal]
        if len({ticks for ticks, _ in legal}) > 2 and problem.cluster.devices > 2:
            best = min(ticks for ticks, _ in legal)
            legal.sort(key=lambda each: each[0])
            return Case(problem, [plan for _, plan in legal], verdicts[0][1].scale.time.seconds(best))
    raise AssertionError(feature)


def drawn(kind: str, rng: random.Random, made: Case) -> Constraint:
    """Return a constraint of a kind, mostly one that the best plan of all breaks."""
    problem, best = made.problem, made.plans[0]
    ids, devices = [layer.id for layer in problem.graphs[best.variant].layers], problem.cluster.devices
    some = sorted(rng.sample(ids, min(2, len(ids))), key=ids.index)
    level = rng.randrange(len(problem.cluster.levels))
    sent, used = crossing(problem, best)[level], best.used_devices
    drawing: dict[str, Callable[[], Constraint]] = {
        "allowed_degrees": lambda: AllowedDegrees("stages", {len(best.stages) % 3 + 1}),
        "divides": lambda: Divides(heads=2, batch=True),
        "max_stages": lambda: MaxStages(max(1, len(best.stages) - 1)),
        "max_devices": lambda: MaxDevices(max(1, used - 1)),
        "reserved_devices": lambda: ReservedDevices([rng.randrange(devices)]),
        "memory_headroom": lambda: MemoryHeadroom(fraction=rng.choice([0.1, 0.3, 0.5])),
        "together": lambda: Together(some),
        "apart": lambda: Apart(some),
        "cuts_at": lambda: CutsAt(some),
        "equal_stages": lambda: EqualStages(0, 1),
        "within_level": lambda: WithinLevel("stage", 0),
        "pin": lambda: Pin((0, rng.randrange(devices)), stage=-1),
        "level_traffic": lambda: LevelTraffic(level, max(0, sent - 1)),
        "budget": lambda: Budget(made.iteration_s * used * rng.choice([0.7, 0.9]), rate_per_device_s=1),
        "distinct_stages": lambda: DistinctStages(1),
        "same_sharding": lambda: SameSharding(some),
    }
    return drawing[kind]()


def answered(made: Case, kind: str, seed: str) -> tuple[Problem, Result] | str:
    """Return a problem with one more constraint and what the solver says of it, or the line that refuses it."""
    try:
        asked = drawn(kind, random.Random(seed), made)
        problem = made.problem.with_constraints(*made.problem.constraints, asked)
        return problem, solve(problem)
    except NestError as error:
        return str(error)


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 6))])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feature", FEATURES)
def test_pair(feature: str, kind: str, turn: int) -> None:
    """The solver finds the best of all plans that the judge finds legal, or refuses in a line that names the kind."""
    made = case(feature, turn)
    found = answered(made, kind, f"{feature} {kind} {turn}")
    if isinstance(found, str):
        assert kind in MAY_BE_REFUSED.get(feature, set()), found
        assert "\n" not in found
        assert kind in found
        return
    problem, result = found
    plans = list(FEATURES[feature].plans(problem)) if kind == "reserved_devices" else made.plans
    legal = (verdict for _, verdict in judged(problem, plans) if verdict.legal)
    wanted = min((verdict.objective_ticks or 0 for verdict in legal), default=None)
    shown = f"{show_problem(problem)}\n{result}"
    assert result.objective_ticks == wanted, shown
    assert wanted is None or result.bound_ticks == wanted, shown


def test_kinds_are_all() -> None:
    """A new kind of side constraint has to be tried beside all features."""
    made = case("chains", 0)
    assert [drawn(kind, random.Random(0), made).kind for kind in KINDS] == list(KINDS)
