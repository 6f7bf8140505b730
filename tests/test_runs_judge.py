"""One judge: `nest estimate` of a plan, and the judge of the problem that a solver reads, say the same about it."""

from __future__ import annotations

import pytest

from nest.costing import Layout, framework_named, recipe_named
from nest.evaluate import evaluate
from nest.families import Architecture, Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.presets import ScheduleName
from nest.problem import Choices, Variant
from nest.runs import Given, Run, estimate, problem_of

SEQUENCE = 2048


def model(family: str) -> Architecture:
    """Return a small model of a family."""
    experts = {"experts": 8, "top_k": 2} if family == "moe" else {}
    return from_hyperparameters(
        Hyperparameters(family, 12, 4096, 32, 8, ffn=14336, vocab=8192, seq=SEQUENCE, **experts)  # type: ignore[arg-type]
    )


def check(
    family: str,
    variant: Variant,
    layout: Layout,
    *,
    framework: str = "megatron-core",
    recipe: str = "mixed",
    cluster: str = "dgx-h100:64",
) -> None:
    """Assert that an iteration takes the same to the last tick, and every stage the same bytes."""
    one = {name: frozenset({getattr(variant, name)}) for name in ("tensor", "expert", "context", "microbatch")}
    found = (recipe_named(recipe), framework_named(framework))
    name: ScheduleName = "interleaved" if layout.virtual > 1 else "1f1b"
    choices = Choices(sequence=variant.sequence, schedules=frozenset({name}), **one)  # type: ignore[arg-type]
    run = Run(
        model(family), cluster_named(cluster), SEQUENCE, layout.global_batch, *found, choices=choices, reserve_bytes=0
    )
    problem, given = problem_of(run).problem, Given(run.model, run.hardware, run.setting(variant), layout, run.recipe)
    judged, estimated = evaluate(problem, given.plan), estimate(given)
    assert judged.objective_ticks is not None
    assert not {"schedule", "chunks", "order"} & {each.rule for each in judged.violations}
    seconds = judged.scale.time.seconds(judged.objective_ticks)
    assert estimated.iteration_s == pytest.approx(seconds, rel=2e-9)
    assert [stage.total for stage in estimated.memory] == list(judged.memory_bytes)


PLANS = [
    ("llama", Variant(2, sequence=True), Layout(64, 8, 4)),
    ("llama", Variant(2, sequence=True, microbatch=2), Layout(64, 8, 4, zero=1)),
    ("llama", Variant(4, sequence=False), Layout(64, 8, 2, zero=1, recompute="full")),
    ("llama", Variant(2, context=2, sequence=True), Layout(64, 16, zero=1)),
    ("llama", Variant(2, context=2, sequence=True), Layout(64, 16, zero=2)),
    ("gpt", Variant(8, sequence=True), Layout(32, 2, 4, zero=1)),
    ("moe", Variant(2, 4, sequence=True), Layout(64, 4, 2, zero=1)),
    ("moe", Variant(1, 8, 2), Layout(64, 4, zero=2)),
    ("moe", Variant(1, 4, 2), Layout(64, 8, zero=3, recompute="full")),
    ("gpt", Variant(2), Layout(64, 8, 4, zero=3, recompute="full", recomputed=(1, 0, 3, 2))),
    ("gpt", Variant(4, sequence=True), Layout(32, 4, 4, 3, zero=1)),
    ("moe", Variant(2, 4, sequence=True), Layout(64, 4, 2, 2, zero=1, recompute="full", recomputed=(3, 1))),
]


FRAMEWORKS = (
    ("mixed", "megatron-core"),
    ("mixed-half", "megatron-2021"),
    ("amp", "fsdp"),
    ("bf16", "megatron-deepspeed"),
)

CLUSTERS = ("dgx-b200:64", "mi300x:64", "l4:64", "gb200-nvl72:64", "tpu-v4:4x4x4")
"""Two generations of NVLink, a mesh whose pairs have a link each, PCIe, and a torus."""


@pytest.mark.parametrize(("family", "variant", "layout"), PLANS)
@pytest.mark.parametrize(("recipe", "framework"), FRAMEWORKS)
def test_the_same(family: str, variant: Variant, layout: Layout, recipe: str, framework: str) -> None:
    """Whatever the software hides, sums, splits and holds, and whatever it stores of a weight."""
    check(family, variant, layout, recipe=recipe, framework=framework)


@pytest.mark.parametrize(("family", "variant", "layout"), PLANS)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_same_on_other_links(family: str, variant: Variant, layout: Layout, cluster: str) -> None:
    """So it is on links of other kinds, with other protocols and limits on pairs."""
    check(family, variant, layout, cluster=cluster)
