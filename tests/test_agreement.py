"""`solve` against the slow reference: the best objective of every plan of hundreds of small problems."""

from __future__ import annotations

from fractions import Fraction

import oracle
import pytest
from judging import judged
from random_problems import Size, neighbours, random_plan, random_problem, show_plan, show_problem
from seeds import seeds

from nest.evaluate import evaluate
from nest.plan import Plan
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve

SMALL = Size(layers=5, devices=16)
LARGER = Size(layers=6, devices=20, levels=5)
WIDE = Size(layers=9, devices=72, levels=5, microbatches=100)
LARGE = Size(layers=16, devices=200, levels=5, microbatches=500)
NO_ZERO = frozenset({0})

both_presets = pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)


def case(problem: Problem, result: Result, best: oracle.Best) -> str:
    """Return the case, what was got and what was wanted."""
    lines = [show_problem(problem), f"solved: {result.status.value} {result.objective_ticks} ({result.reason})"]
    for name, plan in (("solved", result.plan), ("reference", best.plan)):
        lines.append(f"{name}: {show_plan(plan)}")
        lines.append(f"  judged: {_terms(problem, plan)}")
    return "\n".join([*lines, f"reference: {best.objective}"])


def _terms(problem: Problem, plan: Plan | None) -> str:
    if plan is None:
        return "-"
    verdict = evaluate(problem, plan)
    return "\n    ".join([f"{verdict.objective_ticks} {verdict.violations}", *map(str, verdict.stages)])


def check(problem: Problem, *, exact: bool) -> Result:
    """Assert that `solve` finds the best objective there is, and a legal plan that has it."""
    result = solve(problem)
    best = oracle.best(problem, result.time.exponent)
    shown = case(problem, result, best)
    assert (result.plan is None) == (best.plan is None), shown
    if result.plan is None or best.plan is None:
        assert result.status is Status.INFEASIBLE, shown
        assert result.objective_ticks is None and result.bound_ticks is None, shown  # noqa: PT018
        assert result.reason, shown
        return result
    assert result.status is Status.OPTIMAL, shown
    verdict = evaluate(problem, result.plan)
    assert verdict.legal, shown
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    rival = evaluate(problem, best.plan)
    assert rival.legal, shown
    assert rival.objective_ticks is not None and result.objective_ticks is not None, shown  # noqa: PT018
    assert result.objective_ticks <= rival.objective_ticks, shown
    slack = 0 if exact else oracle.slack(problem, result.plan)
    assert abs(Fraction(best.objective or 0) - result.objective_ticks) <= slack, shown
    return result


@both_presets
@pytest.mark.parametrize("seed", seeds(40, 150))
def test_without_zero(seed: int, preset: Preset) -> None:
    """Stages of equal width."""
    check(random_problem(seed, SMALL).with_preset(preset).with_choices(zero=NO_ZERO), exact=True)


@both_presets
@pytest.mark.parametrize("seed", seeds(40, 150))
def test_with_zero(seed: int, preset: Preset) -> None:
    """ZeRO inside the stages as each problem allows it."""
    check(random_problem(seed, SMALL).with_preset(preset), exact=True)


@pytest.mark.parametrize("seed", seeds(40, 100))
def test_figures_that_are_no_short_decimals(seed: int) -> None:
    """Figures of any length: as good as the reference's plan to the tick, and as its price but for rounding."""
    check(random_problem(seed, SMALL, ugly=True), exact=False)


def no_other_is_better(problem: Problem) -> None:
    """Assert that no random plan and no neighbour of the solver's plan is better than that."""
    result = solve(problem)
    others = [random_plan(again, problem) for again in range(50)]
    if result.plan is not None:
        others += neighbours(problem, result.plan)
    for plan, verdict in judged(problem, others):
        if verdict.legal:
            shown = f"{show_problem(problem)}\n{result}\nis worse than\n{show_plan(plan)}\n{verdict}"
            assert result.objective_ticks is not None, shown
            assert verdict.objective_ticks is not None, shown
            assert result.objective_ticks <= verdict.objective_ticks, shown


@both_presets
@pytest.mark.parametrize("seed", seeds(25, 40))
def test_no_other_plan_is_better(seed: int, preset: Preset) -> None:
    """Where the reference is too slow, at least no random plan and no neighbour of the solver's plan is better."""
    no_other_is_better(random_problem(seed, LARGE).with_preset(preset))


@pytest.mark.slow
@both_presets
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_larger_without_zero(seed: int, preset: Preset) -> None:
    """Many more layers and devices, stages of equal width."""
    check(random_problem(seed, WIDE).with_preset(preset).with_choices(zero=NO_ZERO), exact=True)


@pytest.mark.slow
@both_presets
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_larger_with_zero(seed: int, preset: Preset) -> None:
    """More layers, devices and levels, with ZeRO."""
    check(random_problem(seed, LARGER).with_preset(preset), exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_larger_figures_that_are_no_short_decimals(seed: int) -> None:
    """More layers, devices and levels, figures of any length."""
    check(random_problem(seed, LARGER, ugly=True), exact=False)


def test_problems_are_of_all_kinds() -> None:
    """The problems above have optima with few and many stages and replicas, with and without ZeRO, and none."""
    seen: dict[str, int] = {}
    for seed in range(150):
        plan = oracle.best(random_problem(seed, SMALL), 12).plan
        kinds = {"none"} if plan is None else _kinds(plan)
        for kind in kinds:
            seen[kind] = seen.get(kind, 0) + 1
    assert {kind for kind, count in seen.items() if count >= 5} >= {
        *("none", "stages 1", "stages 2", "stages 3+", "replicas 1", "replicas 2+", "pipelines"),
        *("zero 0", "zero 1", "zero 2", "zero 3", "unlike stages"),
    }, seen


def _kinds(plan: Plan) -> set[str]:
    shardings = {stage.sharding for stage in plan.stages}
    stages = len(plan.stages)
    kinds = {f"stages {stages}" if stages < 3 else "stages 3+", "replicas 1" if plan.replicas == 1 else "replicas 2+"}
    kinds |= {f"zero {sharding.zero}" for sharding in shardings}
    if stages > 1 and plan.replicas > 1:
        kinds.add("pipelines")
    return kinds | ({"unlike stages"} if len(shardings) > 1 else set())
