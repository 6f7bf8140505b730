"""The judge against the slow reference, on random plans, legal and broken."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import oracle
import pytest
from random_problems import Size, broken_plan, random_plan, random_problem, show_plan, show_problem
from seeds import seeds

from nest.errors import InvalidPlan
from nest.evaluate import Evaluation, evaluate
from nest.plan import Plan, Stage
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem, Variant

SIZE = Size(layers=7, devices=40, levels=5)


def priced(problem: Problem, plan: Plan) -> bool:
    """Whether a plan is whole enough to have a price: all layers in order, every device on the cluster."""
    names = [name for stage in plan.stages for name in stage.layers]
    if names != [layer.id for layer in problem.graphs[plan.variant].layers] or not all(s.layers for s in plan.stages):
        return False
    devices = [
        stage.first_device + replica * plan.replica_stride + at
        for stage in plan.stages
        for replica in range(plan.replicas)
        for at in range(stage.devices)
    ]
    widest = all(stage.devices > 0 for stage in plan.stages)
    return widest and bool(devices) and min(devices) >= 0 and max(devices) < problem.cluster.devices


def check(problem: Problem, plan: Plan) -> Evaluation:
    """Assert that judge and reference give a plan the same figures, tick by tick, quantum by quantum."""
    got = evaluate(problem, plan)
    shown = f"{show_problem(problem)}\n{show_plan(plan)}\ngot {got}"
    assert (got.objective_ticks is not None) == priced(problem, plan), shown
    if got.objective_ticks is None:
        assert not got.legal, shown
        return got
    want = oracle.price(problem, plan, got.scale.time.exponent)
    quantum = Fraction(1, got.scale.quanta_per_byte)
    assert [stage.load for stage in got.stages] == list(want.loads), f"{shown}\nwant {want}"
    assert [stage.sync for stage in got.stages] == list(want.syncs), f"{shown}\nwant {want}"
    assert [stage.memory * quantum for stage in got.stages] == list(want.memory), f"{shown}\nwant {want}"
    assert got.objective_ticks == want.objective, f"{shown}\nwant {want}"
    return got


@pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)
@pytest.mark.parametrize("seed", seeds(40, 200))
def test_figures_of_a_plan(seed: int, preset: Preset) -> None:
    """Plans that keep to the definition's places have the reference's figures."""
    problem = random_problem(seed, SIZE).with_preset(preset)
    for again in range(3):
        check(problem, random_plan(1000 * seed + again, problem))


@pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)
@pytest.mark.parametrize("seed", seeds(40, 200))
def test_figures_of_a_broken_plan(seed: int, preset: Preset) -> None:
    """A plan is priced as it stands, whatever rule it breaks, or not at all."""
    problem = random_problem(seed, SIZE).with_preset(preset)
    for again in range(5):
        check(problem, broken_plan(1000 * seed + again, problem))


@pytest.mark.parametrize("seed", range(100))
def test_figures_that_are_no_short_decimals(seed: int) -> None:
    """With any figures the two agree to the few ticks that floating-point rounding can be off."""
    problem = random_problem(seed, SIZE, ugly=True)
    plan = random_plan(seed, problem)
    got = evaluate(problem, plan)
    if got.objective_ticks is not None:
        want = oracle.price(problem, plan, got.scale.time.exponent)
        assert abs(Fraction(want.objective) - got.objective_ticks) <= oracle.slack(problem, plan), (
            show_problem(problem),
            got,
        )


def test_random_plans_are_of_all_kinds() -> None:
    """The plans above are legal, too large, and broken in every other way, each in many cases."""
    seen: dict[str, int] = {}
    for seed in range(200):
        problem = random_problem(seed, SIZE)
        verdict = evaluate(problem, random_plan(seed, problem))
        kinds = {"legal"} if verdict.legal else {violation.rule for violation in verdict.violations}
        broken = {violation.rule for violation in evaluate(problem, broken_plan(seed, problem)).violations}
        for kind in kinds | broken:
            seen[kind] = seen.get(kind, 0) + 1
    rules = {"cover", "replicas", "recompute", "sharding", "block", "placement", "devices", "memory", "legal"}
    assert {kind for kind, count in seen.items() if count >= 10} >= rules, seen


def test_figures_in_seconds_and_bytes() -> None:
    """What a report prints is the judge's ticks and quanta, in seconds and bytes."""
    problem = random_problem(3, SIZE)
    verdict = evaluate(problem, random_plan(3, problem))
    tick = float(Fraction(10) ** -verdict.scale.time.exponent)
    assert verdict.loads_s == pytest.approx([stage.load * tick for stage in verdict.stages], rel=1e-15)
    per_byte = verdict.scale.quanta_per_byte
    assert verdict.memory_bytes == pytest.approx([stage.memory / per_byte for stage in verdict.stages], rel=1e-15)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"variant": Variant(64)}, "plan"),
        ({"stages": ()}, "stages"),
        ({"stages": (Stage(("nowhere",), 0, 1),)}, "stages[0].layers"),
    ],
    ids=["variant", "no stage", "layer"],
)
def test_no_plan_of_this_problem(change: dict[str, object], where: str) -> None:
    """What names things that the problem does not have is no plan, and the error says where."""
    problem = random_problem(3, SIZE)
    plan = replace(random_plan(3, problem), **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidPlan) as caught:
        evaluate(problem, plan)
    assert caught.value.where == where
