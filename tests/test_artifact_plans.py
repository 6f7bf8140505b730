"""What the original solver's plans and its baselines are worth, and the figures of `docs/artifact_plans.md`."""

from __future__ import annotations

import json
import sys
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data
from random_problems import random_problem

from nest.evaluate import evaluate
from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "artifact_plans.md"

sys.path.insert(0, str(ROOT / "benchmarks"))  # scripts import each other as they do when they run

import artifact_plans  # noqa: E402
from price_range import SAME, Shape, price_range  # noqa: E402

INPUTS = sorted(path.stem for path in (ARTIFACT_DATA / "inputs").glob("*.json"))
QUICK = [
    "h100_spineLeaf__bertlarge_256",
    "h100_spineLeaf__llama2_128",
    "h100_spineLeaf__mixtral_128",
    "tpuv4_fatTree__gpt3_512",
    "tpuv4_fatTree__llama2_64",
    "tpuv4_fatTree__mixtral_64",
]
ALL = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in INPUTS]


@cache
def row_of(name: str) -> artifact_plans.Row:
    """Return what the script finds for an input."""
    runs = artifact_plans.runs_by_input(json.loads((ARTIFACT_DATA / "measured.json").read_text())["runs"])
    return artifact_plans.judge_input(ARTIFACT_DATA / "inputs" / f"{name}.json", runs.get(name))


def plan_of(name: str) -> artifact_plans.Judged:
    """Return what the script finds for the plan of an input whose run ended well."""
    plan = row_of(name).plan
    assert plan is not None
    return plan


@needs_artifact_data
@pytest.mark.parametrize("name", ALL)
def test_no_plan_is_better_than_the_proven_optimum(name: str) -> None:
    """Neither the original's, wherever it is cut, nor a baseline, under any evaluation; the former breaks no rule."""
    row = row_of(name)
    if row.plan is not None:
        plan = row.plan
        assert plan.own_ms == pytest.approx(plan.says_ms, rel=SAME)
        assert plan.least is not None
        assert plan.most is not None
        assert 1 <= plan.best <= plan.least <= plan.true <= plan.most
        assert plan.true <= plan.zero
        assert min(plan.own, plan.one_unit) >= 1
        assert plan.rules == ()
    for baseline in row.baselines:
        if baseline.rules == ():
            assert baseline.own is not None
            assert baseline.true is not None
            assert min(baseline.own, baseline.true) >= 1


@needs_artifact_data
@pytest.mark.parametrize("name", ALL)
def test_baselines_are_read_as_the_original_reads_them(name: str) -> None:
    """Priced with their stages reversed they cost what the original printed, and have no price where it had none."""
    row = row_of(name)
    for baseline in row.baselines if row.ended == "well" else ():
        assert baseline.reversed_ms == (baseline.recorded_ms and pytest.approx(baseline.recorded_ms, rel=SAME))


@needs_artifact_data
@pytest.mark.parametrize("name", ALL)
def test_the_page_shows_what_the_script_prints(name: str) -> None:
    """The rows of an input are in the page, word for word."""
    lines = PAGE.read_text().splitlines()
    row = row_of(name)
    assert artifact_plans.plan_table([row])[-1] in lines
    if row.baselines:
        assert artifact_plans.baseline_table([row])[-1] in lines


@needs_artifact_data
def test_the_mixed_units_cost_half_of_the_speed() -> None:
    """BERT-large on 256 H100: any plan that costs what the run says is 2.10 times slower than need be."""
    plan = plan_of("h100_spineLeaf__bertlarge_256")
    assert plan.own == pytest.approx(1, rel=SAME)
    assert plan.least == pytest.approx(2.1016, abs=5e-5)
    assert plan.most == pytest.approx(2.1016, abs=5e-5)


@needs_artifact_data
def test_the_returned_plan_of_llama3_is_not_the_valued_one() -> None:
    """The run says 43.518; its plan is worth 58.194, as plans of its shape can be, which are not better in truth."""
    problem = read_problem(ARTIFACT_DATA / "inputs" / "h100_spineLeaf__llama3_128.json").with_choices(
        zero=frozenset({0})
    )
    own, paper = problem.with_preset(ARTIFACT), problem.with_preset(PAPER)
    shape = Shape(artifact_plans.variant_of(problem, 1), 42, 3)
    best = artifact_plans.best_plan(shape.only(own))
    value = artifact_plans.milliseconds(own, artifact_plans.price(own, best))
    assert value == pytest.approx(43.518, abs=5e-4)
    optimum = artifact_plans.optimum_ticks(paper)
    bounds = price_range(shape, own, paper, 0.058194127520768)
    assert bounds is not None
    assert [each / optimum for each in bounds] == pytest.approx([1.2280, 1.2664], abs=5e-5)
    assert price_range(shape, own, paper, 0.0435) is None


@needs_artifact_data
def test_mixtral_on_more_devices() -> None:
    """On 1,024 H100 its plan is 7.8 % slower than the best of its own evaluation in one unit, and 15 % in truth."""
    _, ratios = artifact_plans.judge_wide(ARTIFACT_DATA / "inputs" / "h100_spineLeaf__mixtral_128.json")
    assert ratios["one unit"] == pytest.approx(1.078, abs=5e-4)
    assert ratios["judged"] == pytest.approx(1.151, abs=5e-4)


@needs_artifact_data
@pytest.mark.parametrize("devices", [64, 128, 256, 512, 1024])
def test_the_manual_baseline_of_llama2_is_the_optimum(devices: int) -> None:
    """It is printed as 1.25 times slower, and costs the same to the tick."""
    row = row_of(f"tpuv4_fatTree__llama2_{devices}")
    manual = next(baseline for baseline in row.baselines if baseline.name == "Manual")
    assert manual.reversed == pytest.approx(1.25, abs=5e-3)
    assert (manual.own, manual.true, manual.rules) == (1, 1, ())


@pytest.mark.parametrize(
    ("given", "layers", "cuts"),
    [
        ({"p": 4, "num_transformer_layers": 8}, 9, [0, 2, 4, 6, 9]),
        ({"p": 3, "num_transformer_layers": 8}, 9, [0, 3, 6, 9]),
        ({"p": 4, "num_transformer_layers": 5}, 6, [0, 2, 4, 5, 6]),
        ({"p": 5, "num_transformer_layers": 4, "layer_partition": [1, 1, 1, 1, 0]}, 6, [0, 1, 2, 3, 4, 6]),
    ],
)
def test_cuts_of_a_baseline(given: dict[str, object], layers: int, cuts: list[int]) -> None:
    """As many layers for each stage as divide the transformer's, the rest for the last."""
    assert artifact_plans.baseline_cuts(given, layers) == cuts


@pytest.mark.parametrize("seed", range(40))
def test_price_range_holds_for_every_plan(seed: int) -> None:
    """On small random problems, by trying all cuts of a shape, no plan of a value lies outside."""
    problem = random_problem(seed).with_choices(zero=frozenset({0}), stages=None, replicas=None)
    own, paper = problem.with_preset(ARTIFACT), problem.with_preset(PAPER)
    variant = problem.variants[0]
    layers, blocks = len(problem.graphs[variant]), problem.cluster.devices // variant.width
    for stages in range(1, min(layers, blocks) + 1):
        shape = Shape(variant, stages, min(blocks // stages, problem.training.microbatches))
        prices = _prices(own, paper, shape, layers)
        for value, true in prices.items():
            bounds = price_range(shape, own, paper, value)
            assert bounds is not None
            assert bounds[0] <= min(true)
            assert max(true) <= bounds[1]
        assert price_range(shape, own, paper, 0.999 * min(prices, default=1.0)) is None


def _prices(own: Problem, paper: Problem, shape: Shape, layers: int) -> dict[float, list[int]]:
    """Return the prices under ``paper`` of all legal plans of a shape, by what they cost under ``artifact``."""
    found: dict[float, list[int]] = {}
    for inner in combinations(range(1, layers), shape.stages - 1):
        plan = artifact_plans.cut_plan(own, shape, [0, *inner, layers])
        verdict, true = evaluate(own, plan), evaluate(paper, plan)
        if verdict.legal and verdict.objective_ticks is not None and true.objective_ticks is not None:
            found.setdefault(verdict.scale.time.seconds(verdict.objective_ticks), []).append(true.objective_ticks)
    return found
