"""One judge: `nest estimate` and the judge of problems say the same about the same plan."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nest.costing import Estimate, Layout, estimate_iteration, framework_named, network_of, placed, recipe_named
from nest.evaluate import Evaluation, evaluate
from nest.families import Architecture, Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.problem import Choices, Variant
from nest.runs import Run, plan_of, problem_of
from nest.solve import solve

SEQUENCE = 2048
PLAIN = "megatron-2021"
"""Hides no sums of gradients: what is left of them where it does is a rule of thumb in problems."""


def model(family: str) -> Architecture:
    """Return a model whose head is small beside its layers."""
    experts = {"experts": 8, "top_k": 2} if family == "moe" else {}
    return from_hyperparameters(
        Hyperparameters(family, 12, 4096, 32, 8, ffn=14336, vocab=8192, seq=SEQUENCE, tied=False, **experts)  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Both:
    """A plan as both price it; ``hop_s`` is a transfer between neighbouring stages."""

    judged: Evaluation
    estimate: Estimate
    hop_s: float
    head_bytes: int

    @property
    def judged_s(self) -> float:
        """Time of an iteration, which problems take without the optimizer's step."""
        assert self.judged.objective_ticks is not None
        return self.judged.scale.time.seconds(self.judged.objective_ticks)

    @property
    def estimated_s(self) -> float:
        """The same, less the transfers that an estimate adds at both ends of a pipeline, where nothing comes in."""
        loads = [stage.load for stage in self.estimate.stages]
        ends = [loads[0] - self.hop_s, *loads[1:-1], loads[-1] - self.hop_s] if len(loads) > 1 else loads
        further = round((self.estimate.pipeline_s - sum(loads)) / max(loads))
        return sum(ends) + further * max(ends) + self.estimate.sync_s


def priced(
    family: str,
    variant: Variant,
    layout: Layout,
    *,
    framework: str = PLAIN,
    recipe: str = "mixed",
    cluster: str = "dgx-h100:64",
) -> Both:
    """Price a plan both ways."""
    one = {name: frozenset({getattr(variant, name)}) for name in ("tensor", "expert", "context", "microbatch")}
    choices = Choices(sequence=variant.sequence, stage_recompute=frozenset({layout.recompute}), **one)  # type: ignore[arg-type]
    found = (recipe_named(recipe), framework_named(framework))
    run = Run(model(family), cluster_named(cluster), SEQUENCE, layout.global_batch, *found, choices=choices)
    problem = problem_of(run).problem
    setting = run.setting(variant)
    network = placed(network_of(run.hardware), setting, layout)
    estimate = estimate_iteration(run.model, run.hardware.device, setting, layout, recipe=run.recipe, network=network)
    graph = problem.graphs[variant]
    hop = network.transfer(float(graph.edges[1].bytes)) if layout.stages > 1 else 0.0
    judged = evaluate(problem, plan_of(run, problem, variant, layout))
    return Both(judged, estimate, hop, int(graph.layers[-1].activation_bytes))


PLANS = [
    ("llama", Variant(2, sequence=True), Layout(64, 8, 4)),
    ("llama", Variant(2, sequence=True, microbatch=2), Layout(64, 8, 4, zero=1)),
    ("llama", Variant(4, sequence=False), Layout(64, 8, 2, zero=1, recompute="full")),
    ("llama", Variant(2, context=2, sequence=True), Layout(64, 16, zero=1)),
    ("llama", Variant(2, context=2, sequence=True), Layout(64, 16, zero=2)),
    ("gpt", Variant(8, sequence=True), Layout(32, 2, 4, zero=1)),
    ("moe", Variant(2, 4, sequence=True), Layout(64, 4, 2, zero=1)),
    ("moe", Variant(1, 8, 2), Layout(64, 4, zero=2)),
]


CLUSTERS = ("dgx-h100:64", "dgx-b200:64", "mi300x:64", "l4:64", "gb200-nvl72:64", "tpu-v4:4x4x4")
"""Two generations of NVLink, a mesh whose pairs have a link each, PCIe, and a torus."""


@pytest.mark.parametrize(("family", "variant", "layout"), PLANS)
@pytest.mark.parametrize("recipe", ["mixed", "bf16"])
def test_the_same_time(family: str, variant: Variant, layout: Layout, recipe: str) -> None:
    """An iteration takes the same to the last tick, whichever way it is priced."""
    both = priced(family, variant, layout, recipe=recipe)
    assert both.judged_s == pytest.approx(both.estimated_s, rel=2e-9)


@pytest.mark.parametrize(("family", "variant", "layout"), PLANS)
@pytest.mark.parametrize("cluster", CLUSTERS[1:])
def test_the_same_time_on_other_links(family: str, variant: Variant, layout: Layout, cluster: str) -> None:
    """So it does on links of other kinds, with other protocols and limits on pairs."""
    both = priced(family, variant, layout, cluster=cluster)
    assert both.judged_s == pytest.approx(both.estimated_s, rel=2e-9)


@pytest.mark.parametrize(("family", "variant", "layout"), PLANS)
@pytest.mark.parametrize("framework", [PLAIN, "megatron-core"])
def test_the_same_memory(family: str, variant: Variant, layout: Layout, framework: str) -> None:
    """Every stage takes the same bytes, up to a byte of each rounded part.

    The last stage may take less in an estimate: when its layers need the most, the head's activations are free again.
    """
    both = priced(family, variant, layout, framework=framework)
    estimated = [stage.total for stage in both.estimate.memory]
    apart = [int(judged) - bytes_ for judged, bytes_ in zip(both.judged.memory_bytes, estimated, strict=True)]
    assert all(abs(each) <= 8 for each in apart[:-1])
    assert -8 <= apart[-1] <= both.head_bytes


@pytest.mark.parametrize(("family", "variant", "layout"), PLANS[:4])
def test_nearly_the_same_where_gradients_hide(family: str, variant: Variant, layout: Layout) -> None:
    """What hides of the sums of gradients is one part of them in problems, and depends on the stage in estimates."""
    both = priced(family, variant, layout, framework="megatron-core")
    assert both.judged_s == pytest.approx(both.estimated_s, rel=0.055)


@pytest.mark.parametrize("zero", [2, 3])
def test_no_layout_beats_what_shards_each_microbatch(zero: int) -> None:
    """Collectives of many bytes start once, not once for each byte: a bound that says so hides the best plans."""
    small = from_hyperparameters(Hyperparameters("gpt", layers=4, hidden=4096, heads=32, vocab=51200, seq=1024))
    run = Run(small, cluster_named("dgx-h100:16"), 1024, 64)
    problem = problem_of(run).problem
    own = plan_of(run, problem, Variant(1, microbatch=4), Layout(64, 16, 1, zero=zero))
    narrowed = problem.with_choices(zero=frozenset({zero}), tensor=frozenset({1}), context=frozenset({1}))
    result, verdict = solve(narrowed), evaluate(narrowed, own)
    assert verdict.legal
    assert result.objective_ticks is not None
    assert verdict.objective_ticks is not None
    assert result.objective_ticks <= verdict.objective_ticks
