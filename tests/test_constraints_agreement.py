"""`solve` under side constraints against the slow reference, which knows them by their definition alone."""

from __future__ import annotations

from collections import Counter

import oracle
import pytest
from random_constraints import LOCAL_KINDS, random_constraints
from random_problems import Size, random_problem
from seeds import seeds
from test_agreement import LARGER, NO_ZERO, SMALL, both_presets, check, no_other_is_better

from nest.constraints import Filters
from nest.presets import Preset
from nest.problem import Problem

MIDDLE = Size(layers=10, devices=64, levels=5, microbatches=100)
WIDER = Size(layers=8, devices=48, levels=5, microbatches=60)
PLACE_KINDS = ("within_level", "pin")


def constrained(seed: int, size: Size, kinds: tuple[str, ...] = LOCAL_KINDS, *, ugly: bool = False) -> Problem:
    """Return the random problem of a seed with random local constraints."""
    problem = random_problem(seed, size, ugly=ugly)
    return problem.with_constraints(*random_constraints(seed, problem, kinds))


@both_presets
@pytest.mark.parametrize("seed", seeds(30, 80, first=2000))
def test_without_zero(seed: int, preset: Preset) -> None:
    """Stages of equal width."""
    check(constrained(seed, SMALL).with_preset(preset).with_choices(zero=NO_ZERO), exact=True)


@both_presets
@pytest.mark.parametrize("seed", seeds(30, 80, first=2100))
def test_with_zero(seed: int, preset: Preset) -> None:
    """ZeRO inside the stages as each problem allows it."""
    check(constrained(seed, SMALL).with_preset(preset), exact=True)


@pytest.mark.parametrize("seed", range(2200, 2240))
def test_places(seed: int) -> None:
    """Nothing but constraints on where stages stand."""
    check(constrained(seed, SMALL, PLACE_KINDS), exact=True)


@pytest.mark.parametrize("seed", range(2300, 2330))
def test_figures_that_are_no_short_decimals(seed: int) -> None:
    """Figures of any length: as good as the reference's plan to the tick, and as its price but for rounding."""
    check(constrained(seed, SMALL, ugly=True), exact=False)


@pytest.mark.parametrize("seed", range(2400, 2440))
def test_no_other_plan_is_better(seed: int) -> None:
    """Where the reference is too slow, at least no random plan and no neighbour of the solver's plan is better."""
    no_other_is_better(constrained(seed, MIDDLE))


def test_constraints_matter() -> None:
    """Many of the problems above have another optimum without their constraints, or one at all; also by place."""
    seen: Counter[str] = Counter()
    for seed in (*range(2100, 2180), *range(2200, 2240)):
        problem = constrained(seed, SMALL, PLACE_KINDS if seed >= 2200 else LOCAL_KINDS)
        free = oracle.best(problem.with_constraints(), 12).objective
        bound = oracle.best(problem, 12).objective
        kind = "same" if free == bound else "none" if bound is None else "dearer"
        seen.update([kind] * (free is not None) + [f"{kind} by place"] * Filters(problem).by_place)
    assert min(seen["same"], seen["none"], seen["dearer"]) >= 12, seen
    assert min(seen["same by place"], seen["dearer by place"]) >= 5, seen


@pytest.mark.slow
@both_presets
@pytest.mark.parametrize("seed", range(3000, 3400))
def test_larger(seed: int, preset: Preset) -> None:
    """More layers, devices and levels, with ZeRO."""
    check(constrained(seed, LARGER).with_preset(preset), exact=True)


@pytest.mark.slow
@both_presets
@pytest.mark.parametrize("seed", range(3400, 3800))
def test_larger_without_zero(seed: int, preset: Preset) -> None:
    """Many more devices, stages of equal width."""
    check(constrained(seed, WIDER).with_preset(preset).with_choices(zero=NO_ZERO), exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3800, 4400))
def test_larger_places(seed: int) -> None:
    """Nothing but constraints on where stages stand, on more devices."""
    check(constrained(seed, LARGER, PLACE_KINDS), exact=True)
