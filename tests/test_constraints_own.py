"""Side constraints built in Python: values of a wrong type are refused, and hooks of one's own that answer nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_constraints import HALVES, PROBLEM, SINGLES, plan_of

from nest.ablate import ablate, digest
from nest.constraints import (
    AllowedDegrees,
    Apart,
    Budget,
    Constraint,
    CutsAt,
    DistinctStages,
    Divides,
    EqualStages,
    LevelTraffic,
    LocalConstraint,
    MaxDevices,
    MaxStages,
    MemoryHeadroom,
    Pin,
    ReservedDevices,
    SameSharding,
    Together,
    WithinLevel,
)
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.plan import Plan
from nest.solve import solve

WHOLE_NUMBERS: list[Callable[[Any], Constraint]] = [
    lambda value: AllowedDegrees("stages", [value]),
    lambda value: Divides(heads=value),
    MaxStages,
    MaxDevices,
    lambda value: ReservedDevices([value]),
    EqualStages,
    lambda value: Pin((0, value), stage=0),
    lambda value: Pin((0, 1), stage=value),
    DistinctStages,
]
NUMBERS: list[Callable[[Any], Constraint]] = [
    lambda value: MemoryHeadroom(fraction=value),
    lambda value: MemoryHeadroom(bytes=value),
    lambda value: LevelTraffic("rack", value),
    lambda value: Budget(value, 1),
    lambda value: Budget(1, watts_per_device=value),
]
LISTS: list[Callable[[Any], Constraint]] = [
    lambda values: AllowedDegrees("stages", values),
    ReservedDevices,
    Together,
    Apart,
    CutsAt,
    SameSharding,
    lambda values: EqualStages(counting=values),
    lambda values: Pin(values, stage=0),
]
LAYERS: list[Callable[[Any], Constraint]] = [
    lambda layer: Together([layer]),
    lambda layer: SameSharding([layer]),
    lambda layer: EqualStages(counting=[layer]),
    lambda layer: Pin((0, 1), layer=layer),
]
LEVELS: list[Callable[[Any], Constraint]] = [
    lambda level: WithinLevel("stage", level),
    lambda level: LevelTraffic(level, 1),
]


@pytest.mark.parametrize(
    ("builders", "wrong"),
    [
        (WHOLE_NUMBERS, ["1", 1.0, True, [1], np.float64(1)]),
        (NUMBERS, ["0", True, [0], -1, float("nan"), float("inf")]),
        (LISTS, ["ab", 3, [], [[1]], [0, 0, 0], [1.5]]),
        (LAYERS, [True, 1.0, [1], b"a"]),
        (LEVELS, [None, True, 1.0, ["rack"]]),
        ([lambda value: Divides(batch=value), lambda value: Divides(heads=1, replicate_kv=value)], [1, "no", None]),
        ([lambda value: Budget(1, 1, unit=value)], [5, None]),
    ],
)
def test_wrong_types_are_refused(builders: list[Callable[[Any], Constraint]], wrong: list[object]) -> None:
    """What a file could not hold is refused in one line that names the kind, not with an error from deep inside."""
    for build in builders:
        for value in wrong:
            with pytest.raises(InvalidProblem, match=r"^[a-z_]+(\.[a-z_]+)?: [^\n]+; [^\n]+$"):
                PROBLEM.with_constraints(build(value))


@pytest.mark.parametrize(
    ("builders", "value"), [(WHOLE_NUMBERS, np.int64(1)), (NUMBERS, np.float64(0.5)), (LEVELS, np.int64(1))]
)
def test_numbers_of_numpy_are_numbers(builders: list[Callable[[Any], Constraint]], value: np.generic) -> None:
    """A number from an array is as good as Python's own, and is written like it, without its type."""
    for build in builders:
        constraint = build(value)
        assert constraint == build(value.item())
        assert "np." not in constraint.text
        evaluate(PROBLEM.with_constraints(constraint), HALVES)


def test_huge_numbers() -> None:
    """Numbers that no 64 bits hold are numbers like others."""
    huge = 10**30
    assert evaluate(PROBLEM.with_constraints(MaxDevices(huge), MaxStages(huge)), HALVES).legal
    broken = PROBLEM.with_constraints(EqualStages(first_lighter=huge), Pin((0, 1), stage=huge))
    assert {each.rule for each in evaluate(broken, HALVES).violations} == {"equal_stages", "pin"}


def own(**hooks: object) -> LocalConstraint:
    """Return a constraint of a class that has some hooks."""
    members = {"kind": "own", "text": "something of one's own", **hooks}
    made: LocalConstraint = type("Own", (LocalConstraint,), members)()
    return made


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        ("admits", None),
        ("admits", 1),
        ("admits_run", None),
        ("admits_run", np.ones(3, dtype=bool)),
        ("admits_run", np.ones((1, 1), dtype=int)),
        ("admits_stage", 1.0),
        ("admits_stage", np.ones(3, dtype=bool)),
        ("admits_place", "yes"),
        ("admits_place", np.ones((2, 3, 5, 7), dtype=bool)),
        ("device_limit", -1),
        ("device_limit", 3.5),
        ("device_limit", None),
        ("memory_limit", float("nan")),
        ("memory_limit", "much"),
        ("memory_limit", -1),
    ],
)
def test_nonsense_answers(hook: str, answer: object) -> None:
    """A hook that answers nonsense is named, by solver and judge alike, with what it should return."""
    problem = PROBLEM.with_constraints(own(**{hook: lambda *_, **__: answer}))
    for ask in (solve, lambda problem: evaluate(problem, SINGLES)):
        with pytest.raises(InvalidProblem, match=rf"Own\.{hook} returned .*; return "):
            ask(problem)


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        ("admits", np.bool_(True)),
        ("admits_run", True),
        ("admits_stage", [True]),
        ("admits_place", np.bool_(True)),
        ("device_limit", np.int64(16)),
        ("memory_limit", np.float64(100)),
        ("memory_limit", float("inf")),
    ],
)
def test_plain_answers(hook: str, answer: object) -> None:
    """One answer for all stages, and numbers of NumPy, are answers; these leave nothing out."""
    result = solve(PROBLEM.with_constraints(own(**{hook: lambda *_, **__: answer})))
    assert result.objective_ticks == solve(PROBLEM).objective_ticks


def test_own_faults_stay_visible() -> None:
    """An error inside a hook comes out as it is, so that its author sees where."""

    def fail(*_: object) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        solve(PROBLEM.with_constraints(own(admits=fail)))


def test_without_effect() -> None:
    """A class that nobody would ask, as one with a misspelt hook, is refused instead of being kept by every plan."""

    class Neither(Constraint):
        kind = "neither"
        text = "nothing"

    for constraint, why in ((own(admit=lambda *_: False), "leaves nothing out"), (Neither(), "neither a local nor")):
        for ask in (solve, lambda problem: evaluate(problem, SINGLES)):
            with pytest.raises(InvalidProblem, match=why):
                ask(PROBLEM.with_constraints(constraint))


def test_blame() -> None:
    """A plan that needs more devices than there are breaks that rule, not every side constraint, too."""
    plan = plan_of("a|b|c|d", replicas=5)
    rules = {each.rule for each in evaluate(PROBLEM.with_constraints(MaxStages(4)), plan).violations}
    assert rules == {"devices", "replicas"}
    (violation,) = evaluate(PROBLEM.with_constraints(MaxStages(1)), HALVES).violations
    assert violation.message.endswith("with 2 stages and 1 replica is not allowed; asked for: at most 1 stage")


def test_studies_tell_own_constraints_apart() -> None:
    """A study tells constraints of one's own by class, source and values, and refuses what it could not tell apart."""
    assert len(ablate(PROBLEM.with_constraints(MaxStages(2)), ["sync"])) == 2
    with pytest.raises(InvalidProblem, match="cannot be told from others"):
        ablate(PROBLEM.with_constraints(own(admits=lambda *_: True)), ["sync"])
    assert digest(np.array([1, 2])) == digest([1, 2])
    assert digest(np.int64(1)) == digest(1) != digest(2)


@pytest.mark.parametrize(
    ("constraint", "plan", "words"),
    [
        (Together(["a", "c"]), HALVES, "stage 0 may not hold layers 'a' to 'b'; asked for: layers 'a' and 'c' share"),
        (EqualStages(), plan_of("a|bcd"), "stage 0, of 2, may not hold layer 'a'"),
        (Pin((1, 3), stage=1), HALVES, "stage 1 may not stand on device 0; asked"),
        (
            Pin((1, 3), stage=0),
            plan_of("abcd", replicas=2),
            "stage 0 may not stand on device 0, with 2 replicas 1 apart",
        ),
        (MemoryHeadroom(bytes=99), plan_of("abc|d"), "bytes on each device, 1 may be taken; asked for: 99 bytes of"),
        (MaxDevices(1), HALVES, "the plan uses 2 devices, 1 may be used; asked for: at most 1 device"),
        (ReservedDevices([1]), HALVES, "asked for: no plan takes device 1"),
        (LevelTraffic("node", 1e-3), HALVES, "asked for: at most 0.001 bytes of an iteration cross level 'node'"),
        (
            Budget(1e-3, 1e6, unit="€"),
            HALVES,
            "asked for: an iteration costs at most 0.001 €, a device 1,000,000 € per",
        ),
    ],
)
def test_messages(constraint: Constraint, plan: Plan, words: str) -> None:
    """The judge says what about the plan breaks a constraint, and what was asked for."""
    messages = [each.message for each in evaluate(PROBLEM.with_constraints(constraint), plan).violations]
    assert words in messages[0]
