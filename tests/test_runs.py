"""Runs: which variants a model has on a cluster, what their graphs hold, and how runs are written."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nest.cluster import Level
from nest.costing import LayerCost, Layout, Recipe, framework_named, layer_costs, recipe_named
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.families import Architecture, Hyperparameters, describe, from_hyperparameters
from nest.files import apply_settings, read_problem, write_problem
from nest.hardware import Hardware, cluster_named
from nest.problem import Choices, Problem, Variant
from nest.result import Result, Status
from nest.runs import Given, Posed, Run, is_run, problem_of, read_run
from nest.runs import pose as posing
from nest.runs.run_document import run_document
from nest.solve import solve
from nest.tables.family import Family

GPT = Hyperparameters("gpt", 8, 1024, 16, vocab=51200, seq=2048)
LLAMA = Hyperparameters("llama", 8, 4096, 32, 8, ffn=14336, vocab=32000, seq=2048)
WIDE = Hyperparameters("llama", 4, 16384, 128, 8, ffn=53248, vocab=32000, seq=2048)
MOE = replace(LLAMA, family="moe", experts=8)
T5 = Hyperparameters("t5", 4, 1024, 16, seq=512)

ROUNDED = 3e-9
"""How far apart objectives may be that are rounded to different ticks."""

LLAVA = """
{"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064, "hidden_size": 1024,
  "num_hidden_layers": 4, "num_attention_heads": 16, "intermediate_size": 2816, "num_key_value_heads": 16},
 "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
  "num_hidden_layers": 6, "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "projection_dim": 768}}
"""

CLIP = """
{"embed_dim": 512, "vision_cfg": {"image_size": 224, "layers": 4, "width": 768, "patch_size": 32},
 "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 4}}
"""


def run_of(numbers: Hyperparameters | Architecture, cluster: str = "dgx-h100:16", **more: Any) -> Run:
    """Return a run with a sequence of 2,048 tokens and a batch of 32, unless others are given."""
    model = numbers if isinstance(numbers, Architecture) else from_hyperparameters(numbers)
    return Run(model, cluster_named(cluster), **{"sequence": 2048, "global_batch": 32, **more})


def widths(posed: Posed, name: str) -> list[int]:
    """Return the values of a width among the variants of a problem."""
    return sorted({getattr(variant, name) for variant in posed.problem.graphs})


def left_out(posed: Posed) -> str:
    """Return what was left out, in one text."""
    return "\n".join(map(str, posed.left_out))


def test_widths_are_those_that_divide() -> None:
    """Tensor and context parallel as far as there are devices, no experts, parts of the batch."""
    posed = problem_of(run_of(GPT))
    assert posed.tried.all_tried
    assert widths(posed, "tensor") == [1, 2, 4, 8, 16]
    assert widths(posed, "context") == [1, 2, 4, 8, 16]
    assert widths(posed, "expert") == [1]
    assert widths(posed, "microbatch") == [1, 2, 4, 8, 16, 32]
    assert not any(variant.sequence and variant.tensor == 1 for variant in posed.problem.graphs)
    assert any(variant.sequence for variant in posed.problem.graphs)
    for part in ("schedule interleaved", "width of single stages", "inside stages", "selective: fused attention"):
        assert part in left_out(posed)


def test_on_many_devices_few_tokens_are_left_out_and_said() -> None:
    """Widths that leave a device fewer than 1,024 tokens are not usual there; all can be had, or one besides."""
    run = run_of(GPT, "dgx-h100:128", global_batch=24)
    posed = problem_of(run)
    assert not posed.tried.all_tried
    assert (widths(posed, "context"), widths(posed, "tensor")) == ([1, 2], [1, 2, 4, 8, 16])
    assert "context widths above 2: a device would have fewer than 1024 tokens" in left_out(posed)
    assert widths(posed, "microbatch") == [1, 2, 4, 8]
    besides = problem_of(run, also=Variant(1, context=16, microbatch=3))
    assert (widths(besides, "context"), widths(besides, "microbatch")) == ([1, 2, 16], [1, 2, 3, 4, 8])
    assert not besides.tried.all_tried
    every = problem_of(run, every=True)
    assert widths(every, "context") == [2**power for power in range(8)]
    assert widths(every, "microbatch") == [1, 2, 3, 4, 6, 8, 12, 24]
    assert every.tried.all_tried


@pytest.mark.parametrize("bandwidths", [(100.0, 99.0), (100.0, 51.0), (100.0, 49.0, 20.0), (400.0, 100.0, 10.0, 1.0)])
def test_less_bandwidth_inside_is_no_better(bandwidths: tuple[float, ...]) -> None:
    """Which widths are tried does not depend on how fast levels are, so that the optimum only grows."""
    found = []
    for inner in bandwidths:
        hardware = cluster_named("dgx-h100:16")
        first, *others = hardware.cluster.levels
        levels = (replace(first, bandwidth_bytes_per_s=inner * 1e9), *others)
        slower = replace(hardware, cluster=replace(hardware.cluster, levels=levels))
        run = replace(run_of(WIDE, global_batch=1), hardware=slower)
        found.append(solve(problem_of(run).problem).objective_s or 0.0)
    assert all(before <= after * (1 + ROUNDED) for before, after in pairwise(found))


@pytest.mark.parametrize(
    ("cluster", "batch", "choices"),
    [
        ("dgx-h100:16", 1, Choices()),
        ("dgx-h100:32", 2, Choices()),
        ("dgx-h100:16", 2, Choices(zero=frozenset({0}), stages=frozenset({1}))),
    ],
)
def test_no_named_width_beats_the_free_choice(cluster: str, batch: int, choices: Choices) -> None:
    """Tensor parallel beyond the node is tried without being named, also where nothing else is faster or fits."""
    free, near, far = (
        solve(problem_of(run_of(WIDE, cluster, global_batch=batch, choices=replace(choices, tensor=tensor))).problem)
        for tensor in (None, frozenset({1, 2, 4, 8}), frozenset({16}))
    )
    assert free.objective_s is not None
    assert far.objective_s is not None
    assert free.objective_s <= far.objective_s * (1 + ROUNDED)
    assert near.objective_s is None or free.objective_s < near.objective_s


def test_what_does_not_divide_is_left_out_with_its_reason() -> None:
    """12 heads have no tensor width 8, and 24 sequences no microbatch of 16."""
    posed = problem_of(run_of(replace(GPT, hidden=768, heads=12), global_batch=24))
    assert widths(posed, "tensor") == [1, 2, 4]
    assert "tensor 8, 16: it does not divide the 12 heads" in left_out(posed)
    assert widths(posed, "microbatch") == [1, 2, 4, 8]


def test_key_value_heads_are_copied() -> None:
    """Eight key-value heads do not limit tensor parallel in a domain of 72 devices; what does not nest is left out."""
    posed = problem_of(run_of(replace(LLAMA, heads=72, hidden=4608, head_width=64, ffn=18432), "gb200-nvl72:72"))
    assert 24 in widths(posed, "tensor")
    assert 16 not in widths(posed, "tensor")


def test_experts_are_divided() -> None:
    """Expert widths are the divisors of the experts; an uneven one that is asked for is refused."""
    assert widths(problem_of(run_of(MOE)), "expert") == [1, 2, 4, 8]
    with pytest.raises(InvalidProblem, match="expert: 3: it does not divide the 8 experts"):
        problem_of(run_of(MOE, choices=Choices(expert=frozenset({3}))))
    with pytest.raises(InvalidProblem, match="the model has no routed experts"):
        problem_of(run_of(LLAMA, choices=Choices(expert=frozenset({2}))))


def test_what_is_named_is_tried() -> None:
    """A width beyond the node, few tokens a device, and selective recomputation are there if they are asked for."""
    asked = Choices(
        tensor=frozenset({16}), context=frozenset({8}), sequence=True, stage_recompute=frozenset({"selective"})
    )
    posed = problem_of(run_of(GPT, "dgx-h100:128", choices=asked))
    assert {(each.tensor, each.context, each.sequence) for each in posed.problem.graphs} == {(16, 8, True)}
    assert {each.recomputes for each in posed.problem.graphs.values()} == {frozenset({"selective"})}
    unfused = problem_of(run_of(GPT, flash=False)).problem
    assert {each.recomputes for each in unfused.graphs.values()} == {frozenset({"selective", "full"})}


def test_software_without_fused_attention() -> None:
    """What has none is priced without it, where nothing else is said, and may compute scores again."""
    old = framework_named("megatron-2022")
    posed = {flash: problem_of(run_of(GPT, flash=flash, framework=old)).problem for flash in (None, False, True)}
    assert posed[None] == posed[False] != posed[True]
    assert problem_of(run_of(GPT)).problem == problem_of(run_of(GPT, flash=True)).problem


def test_recomputation_keeps_less() -> None:
    """None keeps at least what selective does, and that at least what full does, in every layer."""
    graphs = problem_of(run_of(GPT, flash=False)).problem.graphs
    for graph in graphs.values():
        for layer in graph.layers[1:-1]:
            assert [each.kind for each in layer.recomputed] == ["selective", "full"]
            kept = [layer.activation_bytes, *(each.activation_bytes for each in layer.recomputed)]
            assert kept == sorted(kept, reverse=True)


def test_microbatches_that_no_device_holds_are_left_out() -> None:
    """Even one layer's tensors do not fit; the smallest microbatch stays, so that a solver says why nothing fits."""
    posed = problem_of(run_of(LLAMA, global_batch=1024))
    assert max(variant.microbatch for variant in posed.problem.graphs if variant.width == 1) < 1024
    assert "no device can hold what a single layer keeps" in left_out(posed)
    huge = problem_of(run_of(LLAMA, reserve_bytes=int(cluster_named("dgx-h100:8").cluster.hbm_bytes) - 2**20))
    assert widths(huge, "microbatch") == [1]
    assert solve(huge.problem).status is Status.INFEASIBLE


def test_graphs_hold_the_costs_of_layers() -> None:
    """Times, bytes and collectives are those of `nest.costing`, weights in the recipe's bytes, repeated ones apart."""
    run = run_of(MOE, recipe=recipe_named("fp32"), dtype="bf16")
    variant = Variant(2, 4, sequence=True)
    graph = problem_of(run).problem.graphs[variant]
    costs: tuple[LayerCost, ...] = layer_costs(run.model, run.hardware.device, run.setting(variant))["text"]
    layer, cost = graph.layers[1], costs[1]
    assert (layer.forward_s, layer.backward_s) == (cost.forward_s, cost.backward_s)
    (again,) = layer.recomputed
    assert (again.kind, again.repeated_s) == ("full", cost.forward_s)
    assert layer.parameter_bytes == 4 * cost.parameters.total
    assert layer.expert_parameter_bytes == 4 * cost.parameters.expert > 0
    assert again.activation_bytes == cost.kept.full < cost.kept.none == layer.activation_bytes
    assert again.working_bytes == layer.working_bytes + cost.kept.none - cost.kept.full
    assert {each.axis for each in layer.collectives} == {"tensor", "expert"}
    repeated = [each.bytes for each in again.collectives]
    assert repeated == [each.bytes for each in layer.collectives if each.when == "forward"]
    assert graph.layers[0].recomputed == graph.layers[-1].recomputed == ()
    assert graph.edges[0].bytes == 2048 * 4096 * 2 / 2  # a half each, the sequence is shared


def test_layers_that_are_alike_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deep model with hundreds of variants asks for each setting once, whatever is recomputed."""
    asked: list[object] = []

    def counting(*arguments: Any) -> Any:
        asked.append(arguments[2])
        return layer_costs(*arguments)

    monkeypatch.setattr(posing, "layer_costs", counting)
    posed = problem_of(run_of(replace(LLAMA, layers=126)))
    assert len(asked) == len(set(asked))
    assert len(asked) >= len(posed.problem.graphs)


def test_an_encoder_comes_before_its_decoder() -> None:
    """What the encoder makes goes to each layer of the decoder; nothing orders it and the decoder's embedding."""
    graph = next(iter(problem_of(run_of(T5, sequence=512)).problem.graphs.values()))
    kinds = [layer.kind for layer in graph.layers]
    end = max(at for at, kind in enumerate(kinds) if kind.startswith("encoder."))
    assert kinds[end + 1].startswith("decoder.embedding")
    assert [target for target, _ in graph.outgoing[end]] == [at for at, kind in enumerate(kinds) if "cross" in kind]
    assert graph.unordered_pair == (end, end + 1)
    assert len(Family.of(graph.before).sizes) == len(graph) + 1 + end + 1  # with the embedding, or without it so far


def test_a_tower_comes_before_the_decoder() -> None:
    """The projector feeds the first layer of text, and nothing orders it and the embedding of text."""
    model = describe(LLAVA).model
    posed = problem_of(run_of(model))
    graph = posed.problem.graphs[Variant(1)]
    last = max(at for at, layer in enumerate(graph.layers) if layer.kind.startswith("vision."))
    assert [(target, size > 0) for target, size in graph.outgoing[last]] == [(last + 2, True)]
    assert graph.unordered_pair == (last, last + 1)
    assert solve(posed.problem).status is Status.OPTIMAL


def test_towers_side_by_side() -> None:
    """Neither tower of CLIP looks at the other, and both meet in the contrast."""
    posed = problem_of(run_of(describe(CLIP).model, sequence=77))
    graph = posed.problem.graphs[Variant(1)]
    towers = [kind.partition(".")[0] for kind in (layer.kind for layer in graph.layers)]
    sides = towers.count("vision"), towers.count("text")
    assert len(Family.of(graph.before).sizes) == (sides[0] + 1) * (sides[1] + 1) + 1
    assert len(graph.incoming[-1]) == 2
    assert solve(posed.problem).status is Status.OPTIMAL


def test_a_stack_that_nothing_joins_is_refused() -> None:
    """Towers whose outputs never meet are two models."""
    model = replace(describe(CLIP).model, links=())
    with pytest.raises(InvalidProblem, match="stack 'vision' feeds no other stack, and none feeds it"):
        problem_of(run_of(model, sequence=77))


def test_a_head_uses_the_table_of_the_embedding_again() -> None:
    """The head of a GPT names the table; that of a llama has one of its own."""
    graph = problem_of(run_of(GPT)).problem.graphs[Variant(1)]
    assert graph.table == graph.layers[0].id
    assert [layer.tied_bytes for layer in graph.layers] == [0] * 9 + [2 * 51200 * 1024]
    assert graph.layers[-1].parameter_bytes >= 2 * 51200 * 1024
    own = problem_of(run_of(LLAMA)).problem.graphs[Variant(1)]
    assert own.table is None
    assert not any(layer.tied_bytes for layer in own.layers)


def test_copies_and_overlaps_follow_recipe_and_framework() -> None:
    """Mixed precision holds 6 and 2 bytes for each of the weight; what cannot be told by copies is refused."""
    training = problem_of(run_of(GPT, reserve_bytes=2**30)).problem.training
    assert training.copies is not None
    assert (training.copies.optimizer, training.copies.gradients) == (6, 2)
    assert (training.overhead_bytes, training.global_batch) == (2**30, 32)
    assert training.hides_gradients
    assert not problem_of(run_of(GPT, framework=framework_named("megatron-2021"))).problem.training.hides_gradients
    assert training.step_s_per_byte == pytest.approx(25 / (0.75 * cluster_named("dgx-h100:16").device.hbm_bytes_per_s))
    amp = problem_of(run_of(GPT, recipe=recipe_named("amp"))).problem.training.held
    assert (amp.optimizer, amp.gradients, amp.gathered, amp.summed) == (2, 1, 0.5, 1)
    with pytest.raises(InvalidProblem, match="recipe: 'odd' holds no whole multiple of the weights"):
        problem_of(run_of(GPT, recipe=Recipe("odd", 2, 3, 4, 8)))


def answer(run: Run) -> Result:
    """Return the proven optimum of a run."""
    result = solve(problem_of(run).problem)
    assert result.status is Status.OPTIMAL
    return result


def test_no_worse_than_a_layout_that_is_given() -> None:
    """The optimum takes no longer than every plan that fits, as the judge prices both."""
    run = run_of(LLAMA)
    problem, best = problem_of(run).problem, answer(run)

    for data, stages, zero in ((8, 1, 1), (4, 2, 1), (2, 4, 0), (1, 8, 0)):
        setting, layout = run.setting(Variant(2, sequence=True)), Layout(32, data, stages, zero=zero)
        given = evaluate(problem, Given(run.model, run.hardware, setting, layout, run.recipe).plan)
        assert given.legal
        assert given.objective_ticks is not None
        assert best.objective_ticks is not None
        assert given.objective_ticks >= best.objective_ticks


def slower(hardware: Hardware, **changes: float) -> Hardware:
    """Return the hardware with other figures of every level."""
    levels: tuple[Level, ...] = tuple(
        replace(level, **{name: getattr(level, name) * factor for name, factor in changes.items()})
        for level in hardware.cluster.levels
    )
    return replace(hardware, cluster=replace(hardware.cluster, levels=levels))


def test_worse_hardware_never_has_a_better_plan() -> None:
    """Less bandwidth, more latency, less memory, fewer devices."""
    run = run_of(replace(LLAMA, layers=16))
    best = answer(run).objective_s
    assert best is not None
    half = run.hardware.cluster.hbm_bytes // 2
    worse = [
        slower(run.hardware, bandwidth_bytes_per_s=0.5),
        slower(run.hardware, latency_s=3.0),
        replace(run.hardware, cluster=replace(run.hardware.cluster, hbm_bytes=half)),
        cluster_named("dgx-h100:15"),
        cluster_named("dgx-h100:8"),
    ]
    for hardware in worse:
        found = answer(replace(run, hardware=hardware)).objective_s
        assert found is not None
        assert found >= best * (1 - 1e-9)


def test_a_written_problem_is_the_same_problem(tmp_path: Path) -> None:
    """Solving the file finds the same plan, in as many ticks."""
    run = run_of(
        T5, "dgx-h100:8", sequence=512, choices=Choices(tensor=frozenset({1, 2}), microbatch=frozenset({1, 2}))
    )
    problem = problem_of(run).problem
    path = tmp_path / "problem.toml"
    write_problem(problem, path)
    again: Problem = read_problem(path)
    assert again.graphs == problem.graphs
    found, expected = solve(again), solve(problem)
    assert (found.plan, found.objective_ticks) == (expected.plan, expected.objective_ticks)


RUN = """
schema = "nest.run/1"
cluster = "dgx-h100:16"
sequence = 2048
global_batch = 32
reserve_gib = 1.5

[model]
family = "gpt"
layers = 8
hidden = 1024
heads = 16
vocab = 51200
seq = 2048

[choices]
tensor = [1, 2]
stages = "1..4"
sequence = false
"""


def written(folder: Path, text: str) -> Path:
    """Write a run file."""
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_a_run_file_is_read(tmp_path: Path) -> None:
    """Model and choices are as in our other files; the name is that of the file."""
    path = written(tmp_path, RUN)
    assert is_run(path)
    run = read_run(path)
    choices = Choices(tensor=frozenset({1, 2}), stages=frozenset({1, 2, 3, 4}), sequence=False)
    assert run == run_of(GPT, reserve_bytes=3 * 2**29, choices=choices, name="small")
    (tmp_path / "model.json").write_text(LLAVA)
    other = RUN[: RUN.index("[model]")] + 'model = "model.json"\n'
    assert read_run(written(tmp_path, other)).model == describe(LLAVA).model


def test_other_files_are_no_runs(tmp_path: Path) -> None:
    """Problems, models, and what is no file at all."""
    assert not is_run(tmp_path / "missing.toml")
    assert not is_run(written(tmp_path, 'schema = "nest.problem/1"\n'))
    assert not is_run(written(tmp_path, "nest.run/1 is no document"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sequence = 2048\n", "", "small.toml: sequence: missing"),
        ('"dgx-h100:16"', '"dgx-h100"', "small.toml: cluster: 'dgx-h100': there is no such file; give a name"),
        ("layers = 8", "layers = 0", "small.toml: model.layers: 0"),
        ('"1..4"', '"x"', "small.toml: choices.stages: 'x' is none of its values"),
        ("tensor =", "tenser =", "small.toml: choices.tenser: is no choice; did you mean 'tensor'?"),
        ("reserve_gib = 1.5", "reserve_gib = 200", "small.toml: reserve"),
        ("global_batch = 32", 'global_batch = 32\nrecipe = "x"', "small.toml: recipe: 'x' is none"),
        ('family = "gpt"', 'family = "gpt"\nx = 1', "small.toml: model.x: is no key of a model file"),
    ],
)
def test_a_wrong_run_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """One line with file, key and value."""
    assert old in RUN
    with pytest.raises(InvalidProblem) as caught:
        read_run(written(tmp_path, RUN.replace(old, new, 1)))
    assert message in str(caught.value).replace(str(tmp_path) + "/", "").replace('"', "'")


def test_sequence_parallel_by_its_name(tmp_path: Path) -> None:
    """The tokens of a sequence and whether it is shared have names of their own; the one for both is read, too."""
    text = (Path(__file__).parents[1] / "instances" / "llama3-8b_h100_64.toml").read_text()
    for name in ("sequence", "sequence_parallel"):
        run = read_run(written(tmp_path, f"{text}\n[choices]\n{name} = true\n"))
        assert (run.choices.sequence, run.sequence) == (True, 8192)
    with pytest.raises(InvalidProblem, match=r"choices.sequence_parallel: there is sequence already; give it once"):
        read_run(written(tmp_path, f"{text}\n[choices]\nsequence = true\nsequence_parallel = false\n"))
    document = run_document(run, {"family": "gpt"}, "dgx-h100:8")
    assert (document["sequence"], document["choices"]["sequence_parallel"]) == (8192, True)
    problem = problem_of(run).problem
    assert apply_settings(problem, ["sequence_parallel=any"]).choices.sequence is None
