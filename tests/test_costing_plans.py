"""Estimates of given plans: memory of arXiv 2205.05198, sharding, schedules, chunks, state on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest
from costing_models import FAMILIES, bare_gpt, small

from nest.cluster import Cluster, Level
from nest.costing import (
    LayerCost,
    Layout,
    Recipe,
    Recompute,
    Setting,
    framework_named,
    layer_costs,
    recipe_named,
    split_parts,
)
from nest.costing.frameworks import MEGATRON_2021, MEGATRON_2022
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.families import Architecture
from nest.hardware import Hardware, cluster_named, device_named
from nest.runs import Estimate, Given, StageMemory, estimate

A100 = device_named("a100-80gb")
MIXED = recipe_named("mixed")
GIB = 2**30

FIGURE_1 = {  # layers, hidden, heads, stages, chunks, microbatch; state, activations of tensor parallel, of the paper
    "22B": ((48, 6144, 64, 1, 1, 4), 45.5625, 59.25, 9.5625),
    "175B": ((96, 12288, 96, 8, 3, 1), 45.5625, 66.84375, 12.3515625),
    "530B": ((105, 20480, 128, 35, 3, 1), 31.640625, 114.0234375, 23.076171875),
    "1T": ((128, 25600, 160, 64, 1, 1), 32.958984375, 131.25, 26.5625),
}

FIGURE_7 = {  # per cent of tensor parallel alone, read off the figure: sequence parallel, selective, both, full
    "22B": (66.84, 49.42, 16.18, 7.64),
    "175B": (62.04, 56.53, 18.49, 8.71),
    "530B": (58.31, 62.04, 20.27, 9.42),
    "1T": (58.31, 62.04, 20.27, 9.42),
}


def first_stage(name: str, recompute: Recompute, *, sequence_parallel: bool) -> StageMemory:
    """Return the memory of the first stage of a model of figure 1, matrices alone."""
    layers, hidden, heads, stages, virtual, microbatch = FIGURE_1[name][0]
    setting = Setting(
        2048, microbatch, 8, sequence_parallel=sequence_parallel, flash=False, dtype="fp16", framework=MEGATRON_2022
    )
    layout = Layout(10 * stages * microbatch, 1, stages, virtual, recompute=recompute)
    hardware = cluster_named(f"selene:{8 * stages}")
    return estimate(Given(bare_gpt(layers, hidden, heads), hardware, setting, layout, MIXED)).memory[0]


@pytest.mark.parametrize("name", FIGURE_1)
def test_figure_1_of_2205_05198(name: str) -> None:
    """Weights, gradients and optimizer, and activations with and without what the paper adds, to the last digit."""
    _, state, plain, paper = FIGURE_1[name]
    assert first_stage(name, "none", sequence_parallel=False).state == state * GIB
    assert first_stage(name, "none", sequence_parallel=False).activations == plain * GIB
    assert first_stage(name, "selective", sequence_parallel=True).activations == paper * GIB


@pytest.mark.parametrize("name", FIGURE_7)
def test_figure_7_of_2205_05198(name: str) -> None:
    """Every bar of the figure, within what reading it off allows."""
    kinds: tuple[Recompute, ...] = ("none", "selective", "selective", "full")
    plain = first_stage(name, "none", sequence_parallel=False).activations
    for recompute, shared, per_cent in zip(kinds, (True, False, True, False), FIGURE_7[name], strict=True):
        found = 100 * first_stage(name, recompute, sequence_parallel=shared).activations / plain
        assert found == pytest.approx(per_cent, abs=0.15)


PLAIN = Setting(1024, 1, flash=False, dtype="fp16", framework=MEGATRON_2022)


def flat(bytes_per_s: float = 1e15, latency_s: float = 0.0, devices: int = 16) -> Hardware:
    """Return A100 on one level."""
    level = Level(devices, bytes_per_s, latency_s)
    cluster = Cluster(devices, A100.hbm_bytes, (level,), "flat")
    return Hardware(A100, cluster, cluster_named("dgx-a100:16").facts[:1])


def blocks_of(family: str, setting: Setting) -> list[LayerCost]:
    """Return all blocks of a small model."""
    return [block for stack in layer_costs(small(family), A100, setting).values() for block in stack]


def estimated(
    model: Architecture,
    layout: Layout,
    setting: Setting = PLAIN,
    *,
    hardware: Hardware | None = None,
    recipe: Recipe = MIXED,
) -> Estimate:
    """Return an estimate, on a network that takes no time if none is given."""
    return estimate(Given(model, hardware or flat(), setting, layout, recipe))


def test_a_tied_table_is_stored_on_both_ends() -> None:
    """One stage holds it once; two hold it twice, and add up its gradients."""
    model = small("gpt")
    one, two = (estimated(model, Layout(4, stages=stages), hardware=flat(100e9)) for stages in (1, 2))
    table = 51200 * 1024
    assert sum(stage.weights for stage in two.memory) - one.memory[0].weights == 2 * table
    assert two.sync_s == pytest.approx(4 * table / 100e9)  # of two ranks each sends half, and half of the sum
    assert one.sync_s == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_every_stage_keeps_less_the_more_it_computes_again(family: str, stages: int) -> None:
    """None >= selective >= full in bytes at every stage; the other way round in time."""
    kinds: tuple[Recompute, ...] = ("none", "selective", "full")
    found = [estimated(small(family), Layout(8, stages=stages, recompute=kind)) for kind in kinds]
    for more, less in pairwise(found):
        assert all(there.total >= here.total for there, here in zip(more.memory, less.memory, strict=True))
        assert less.iteration_s >= more.iteration_s


def test_what_is_computed_again_is_there_for_a_moment() -> None:
    """Full recomputation needs all activations of one layer besides the inputs of all."""
    found = estimated(bare_gpt(4, 1024, 16), Layout(1, recompute="full")).memory[0]
    kept = layer_costs(bare_gpt(4, 1024, 16), A100, PLAIN)["text"][1].kept
    assert found.working >= kept.none - kept.full


def test_1f1b_takes_m_plus_s_less_one_loads() -> None:
    """Equal stages: (m + S - 1) loads; with v chunks (m + (S - 1) / v); one stage has no bubble."""
    model, m = bare_gpt(8, 1024, 16), 16
    whole = estimated(model, Layout(m)).pipeline_s / m
    four = estimated(model, Layout(m, stages=4))
    assert four.pipeline_s == pytest.approx((m + 3) * whole / 4, rel=1e-5)
    assert estimated(model, Layout(m, stages=4, virtual=2)).pipeline_s == pytest.approx((m + 1.5) * whole / 4, rel=1e-5)


def test_the_slowest_stage_sets_the_pace() -> None:
    """Six layers and two: the one with six works all the time, the other fills once."""
    model = bare_gpt(8, 1024, 16)
    equal, uneven = (estimated(model, Layout(16, stages=2, layers=layers)) for layers in ((4, 4), (6, 2)))
    assert uneven.pipeline_s == pytest.approx(equal.stages[0].load / 4 * (16 * 6 + 2))


def test_gradients_are_summed_over_all_that_hold_them() -> None:
    """All-reduce of the recipe's bytes; all but the last of four layers hide where the framework hides them."""
    model = bare_gpt(4, 1024, 16)
    parameters, slow = 4 * 12 * 1024**2, flat(1e12)
    plain = replace(PLAIN, framework=MEGATRON_2021)
    alone, summed = (estimated(model, Layout(8, data), plain, hardware=slow) for data in (1, 2))
    assert alone.sync_s == 0
    assert summed.sync_s == pytest.approx(4 * parameters / 1e12)
    spread = estimated(model, Layout(8, 2, zero=1), plain, hardware=slow)
    assert spread.sync_s == pytest.approx((4 + 2) * parameters / 2 / 1e12)
    hiding = replace(PLAIN, framework=replace(MEGATRON_2022, hides_gradients=True))
    hidden = estimated(model, Layout(8, 2), hiding, hardware=slow)
    assert hidden.sync_s == pytest.approx((1 - 0.9 * 3 / 4) * summed.sync_s)


def test_experts_are_summed_over_fewer_ranks() -> None:
    """Expert ranks hold the same dense parameters, and each their own experts."""
    setting = replace(PLAIN, expert=4, framework=MEGATRON_2021)
    found = estimated(small("moe"), Layout(4), setting, hardware=flat(1e12, devices=4))
    dense = sum(block.parameters.dense for block in blocks_of("moe", setting))
    assert found.sync_s == pytest.approx(2 * 4 * dense * 3 / 4 / 1e12)
    assert found.devices == 4


@pytest.mark.parametrize("layout", [Layout(16, 4, 2), Layout(16, 8, zero=1), Layout(16, 8, zero=3)])
def test_a_worse_network_never_helps(layout: Layout) -> None:
    """Half the bandwidth, ten times the latency: no iteration gets shorter."""
    setting = replace(PLAIN, tensor=2)
    best = estimated(small("llama"), layout, setting, hardware=flat(200e9, 1e-6)).iteration_s
    for hardware in (flat(100e9, 1e-6), flat(200e9, 1e-5)):
        assert estimated(small("llama"), layout, setting, hardware=hardware).iteration_s >= best


def test_gathered_weights_hide_behind_computation() -> None:
    """Type 3 costs next to nothing on a fast network, and is bound by a slow one."""
    model = small("llama")
    whole = estimated(model, Layout(8, 8)).iteration_s
    fast = estimated(model, Layout(8, 8, zero=3), hardware=flat(1e15)).iteration_s
    slow = estimated(model, Layout(8, 8, zero=3), hardware=flat(1e9)).iteration_s
    assert fast <= whole * 1.01
    assert slow > 2 * whole


def test_type_3_in_a_pipeline_keeps_weights_for_the_iteration() -> None:
    """Gathered once, and held: 2 bytes of weights and 4 of gradients for each parameter of the stage."""
    one, two = (estimated(bare_gpt(4, 1024, 16), Layout(8, 4, stages=stages, zero=3)).memory[0] for stages in (1, 2))
    parameters = 4 * 12 * 1024**2
    assert (one.weights, one.gradients) == (2 * parameters // 4, 4 * parameters // 4)
    assert (two.weights, two.gradients) == (2 * parameters // 2 * 5 // 4, 4 * parameters // 2 * 5 // 4)


def test_optimizer_state_can_be_with_the_host() -> None:
    """Half of it takes half of the memory, and the time to fetch it and bring it back."""
    model = bare_gpt(4, 1024, 16)
    here, there = (estimated(model, Layout(8, offloaded=share)) for share in ((), (0.5,)))
    assert 2 * there.memory[0].optimizer == here.memory[0].optimizer
    moved = 12 * 4 * 12 * 1024**2
    assert there.step_s - here.step_s == pytest.approx(moved / A100.pcie_bytes_per_s)


def test_parts_add_up() -> None:
    """Memory and time are those of the judge, whatever a plan is made of."""
    setting = replace(PLAIN, tensor=2, context=2, expert=2)
    layout = Layout(16, 1, 2, zero=1, recompute="full", recomputed=(1, 2))
    given = Given(small("moe"), flat(1e11), setting, layout, MIXED)
    found, judged = estimate(given), evaluate(given.problem, given.plan)
    assert judged.objective_ticks is not None
    assert found.iteration_s == pytest.approx(judged.scale.time.seconds(judged.objective_ticks))
    assert [stage.total for stage in found.memory] == list(judged.memory_bytes)
    assert [time.load for time in found.stages] == pytest.approx(judged.loads_s)
    assert [stage.recomputed for stage in given.plan.stages] == [1, None]
    assert not judged.violations


def test_chunks_send_more_often() -> None:
    """Two chunks: stages receive twice as often, and the ends of the pipeline once more, from each other."""
    model, slow = bare_gpt(8, 1024, 16), flat(1e9)
    one, two = (estimated(model, Layout(16, stages=4, virtual=chunks), hardware=slow) for chunks in (1, 2))
    hop = one.stages[1].transfer / 2
    assert [stage.transfer / hop for stage in one.stages] == pytest.approx([1, 2, 2, 1])
    assert [stage.transfer / hop for stage in two.stages] == pytest.approx([3, 4, 4, 3])


def test_chunks_of_unequal_layers() -> None:
    """Layers may be given by stage or by chunk; what interleaving asks for besides is said, and the price is there."""
    model, slow = bare_gpt(8, 1024, 16), flat(1e9)
    by_stage = Layout(6, stages=2, virtual=2, layers=(3, 5))
    by_part = replace(by_stage, layers=(2, 3, 1, 2))
    one, two = (estimated(model, layout, hardware=slow) for layout in (by_stage, by_part))
    assert one == two
    assert "the 4 parts are not equal: equal ones end at 2, 4, 6, 8" in one.notes
    assert one.notes[0] == estimated(model, replace(by_part, layers=(1, 2, 2, 3)), hardware=slow).notes[0]
    assert not estimated(model, Layout(5, stages=2, virtual=2), hardware=slow).notes
    assert not estimated(model, Layout(1, stages=2, virtual=2), hardware=slow).notes
    with pytest.raises(InvalidProblem, match="layers: 3 numbers"):
        replace(by_part, layers=(2, 3, 3))


def test_the_last_layers_of_chunks_may_be_computed_again() -> None:
    """They are those of the last chunks, of which fewer microbatches are kept than of the first."""
    model, layout = bare_gpt(8, 1024, 16), Layout(16, stages=2, virtual=2, recompute="full", recomputed=(2, 2))
    last = replace(PLAIN, framework=replace(PLAIN.framework, recomputes_last=True))
    first, behind = (estimated(model, layout, setting).memory[0] for setting in (PLAIN, last))
    kept = layer_costs(model, A100, PLAIN)[model.stacks[0].name][0].kept
    # at the peak, the start of the first backward pass of chunk 0, four microbatches of it and one of chunk 1 are kept
    assert (behind.total - first.total) % (kept.none - kept.full) == 0
    assert behind.total > first.total


def test_stages_may_keep_what_crosses_boundaries() -> None:
    """Of every microbatch: what was sent, its gradient, and what comes in, but for those in flight.

    The first stage receives before its second chunk alone, of which three are in flight at the most crowded moment.
    """
    model, tensor = bare_gpt(8, 1024, 16), 2 * PLAIN.sequence * 1024
    buffering = replace(PLAIN, framework=replace(PLAIN.framework, buffers_boundaries=True))
    for chunks, tensors in ((1, [32, 32 + 13, 32 + 14, 15 + 16]), (2, [64 + 13, 64 + 23, 64 + 25, 27 + 48])):
        layout = Layout(16, stages=4, virtual=chunks)
        less, more = (estimated(model, layout, setting) for setting in (PLAIN, buffering))
        found = [after.total - before.total for before, after in zip(less.memory, more.memory, strict=True)]
        assert found == [count * tensor for count in tensors]


def test_the_last_layers_may_be_computed_again() -> None:
    """They come first in the backward pass: one of four has all of its tensors while the others keep theirs."""
    model, layout = bare_gpt(4, 1024, 16), Layout(8, recompute="full", recomputed=(1,))
    last = replace(PLAIN, framework=replace(PLAIN.framework, recomputes_last=True))
    first, behind = (estimated(model, layout, setting).memory[0] for setting in (PLAIN, last))
    kept = layer_costs(model, A100, PLAIN)[model.stacks[0].name][0].kept
    assert behind.total - first.total == kept.none - kept.full
    assert replace(behind, working=first.working) == first


def test_too_few_devices_are_refused() -> None:
    """One line that says how many there are."""
    with pytest.raises(InvalidProblem, match="devices: 32, and the cluster has 16"):
        estimated(small("gpt"), Layout(32, 32))


def test_ends_stay_with_their_layers() -> None:
    """The embedding goes with the first layers, the head with the last, however they are split."""
    costs = blocks_of("gpt", PLAIN)
    for layers in ((), (1, 3), (3, 1)):
        first, last = split_parts(costs, Layout(4, stages=2, layers=layers))
        assert first[0].kind == "embedding"
        assert last[-1].kind == "head"
        assert sum(block.repeats for block in first) == (layers[0] if layers else 2)


def test_names_lead_to_recipes_and_frameworks() -> None:
    """18 bytes of mixed precision, 8 of pure bf16; unknown names say what there is."""
    assert [recipe_named(name).total for name in ("mixed", "mixed-half", "bf16", "fp32")] == [18, 16, 8, 16]
    for ask in (recipe_named, framework_named):
        with pytest.raises(InvalidProblem, match="'nothing' is none; one of"):
            ask("nothing")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout(0), "global_batch: 0"),
        (lambda: Layout(8, stages=2, layers=(4,)), "layers: 1 numbers"),
        (lambda: Layout(8, virtual=2), "virtual: 2 chunks of one stage"),
        (lambda: Layout(8, offloaded=(2.0,)), "offloaded"),
        (lambda: Layout(8, zero=4), "zero: 4"),
        (lambda: Recipe("x", -1, 0, 0, 0), "recipe.weights: -1"),
        (lambda: estimated(bare_gpt(4, 64, 4), Layout(8, stages=2, layers=(1, 1))), "the model has 4 layers"),
        (lambda: estimated(bare_gpt(1, 64, 4), Layout(8, stages=2)), "stages: 2 for 1 layers"),
    ],
)
def test_bad_plans_are_refused(make: Callable[[], object], message: str) -> None:
    """One line that names what is wrong."""
    with pytest.raises(InvalidProblem, match=message):
        make()


def test_more_chunks_than_layers_are_refused() -> None:
    """A chunk without a layer is no chunk."""
    cost = SimpleNamespace(repeats=1)
    layout = Layout(8, stages=4, virtual=3)
    with pytest.raises(InvalidProblem, match="virtual: 12 for 8 layers"):
        split_parts(cast("list[LayerCost]", [cost] * 8), layout)
    layout = Layout(8, stages=2, virtual=2, layers=(5, 0, 2, 1))
    with pytest.raises(InvalidProblem, match="layers: none for chunk 1; give each chunk a layer"):
        split_parts(cast("list[LayerCost]", [cost] * 8), layout)
