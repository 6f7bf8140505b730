"""What a layer costs: formulas of arXiv 2205.05198, parameters by bucket, collectives, kernels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from costing_models import FAMILIES, bare_gpt, small

from nest.costing import Buckets, LayerCost, Setting, layer_costs, model_flops
from nest.costing.framework import RECOMPUTE, Framework
from nest.costing.frameworks import MEGATRON_2022
from nest.costing.kernels import Kernels
from nest.errors import InvalidProblem
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import device_named

A100 = device_named("a100-80gb")
PLAIN = Setting(1024, 2, flash=False, dtype="fp16", padding=0, framework=MEGATRON_2022)


def layer_of(family: str, setting: Setting) -> LayerCost:
    """Return the last layer of a small model."""
    blocks = [block for stack in layer_costs(small(family), A100, setting).values() for block in stack]
    return [block for block in blocks if block.repeats][-1]


@pytest.mark.parametrize("t", [1, 2, 8])
def test_activations_of_a_layer_are_those_of_2205_05198(t: int) -> None:
    """Table 2 of the paper, every row: with and without sequence parallel, for each kind of recomputation."""
    s, b, h, a = 1024, 3, 2048, 16
    model = bare_gpt(1, h, a)
    sbh, scores = s * b * h, Fraction(5 * a * s, h)
    plain = Setting(s, b, t, flash=False, dtype="fp16")
    kept = layer_costs(model, A100, plain)["text"][0].kept
    assert kept.none == sbh * (10 + Fraction(24, t) + scores / t)
    assert kept.selective == sbh * (10 + Fraction(24, t))
    shared = layer_costs(model, A100, replace(plain, sequence_parallel=True))["text"][0].kept
    assert shared.none == sbh * (34 + scores) / t
    assert shared.selective == sbh * Fraction(34, t)


def test_full_recomputation_keeps_the_input() -> None:
    """2 s b h for each layer; a layer's input is what the block before it sends."""
    for shards, sequence_parallel in ((1, False), (4, True)):
        setting = replace(PLAIN, tensor=4, sequence_parallel=sequence_parallel)
        assert layer_of("gpt", setting).kept.full == 2 * 1024 * 2 * 1024 // shards


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("flash", [False, True])
def test_less_is_kept_the_more_is_computed_again(family: str, flash: bool) -> None:
    """None keeps at least what selective keeps, and that at least what full keeps, at every block."""
    for stack in layer_costs(small(family), A100, replace(PLAIN, flash=flash)).values():
        for block in stack:
            assert block.kept.none >= block.kept.selective >= block.kept.full >= 0
            assert 0 <= block.repeated_s("selective") <= block.repeated_s("full") <= block.forward_s


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_wider_is_never_more(family: str, sequence_parallel: bool) -> None:
    """A wider tensor or context group never needs more bytes on a device, nor more parameters."""
    narrow = replace(PLAIN, sequence_parallel=sequence_parallel)
    for wide in (replace(narrow, tensor=2), replace(narrow, tensor=32), replace(narrow, context=4)):
        before, after = layer_of(family, narrow), layer_of(family, wide)
        for kind in RECOMPUTE:
            assert after.kept.of(kind) <= before.kept.of(kind)
        assert after.parameters.total <= before.parameters.total
        assert after.working_bytes <= before.working_bytes


def test_key_heads_are_copied_where_they_do_not_suffice() -> None:
    """Four key-value heads on eight devices: each holds one whole, and keeps it."""
    at4, at8 = (layer_of("llama", replace(PLAIN, tensor=t)) for t in (4, 8))
    hidden, head, ffn = 1024, 64, 2816
    assert at4.parameters.sharded == hidden * (4 * head + 2 * head + 4 * head) + 3 * hidden * ffn // 4
    assert at8.parameters.sharded == hidden * (2 * head + 2 * head + 2 * head) + 3 * hidden * ffn // 8


def test_parameters_come_in_three_buckets() -> None:
    """Attention and shared expert are cut, router and norms are whole, experts are on one of e devices."""
    hidden, ffn = 1024, 512
    experts = 8 * 3 * hidden * ffn
    at1 = layer_of("moe", replace(PLAIN, padding=0)).parameters
    assert at1 == Buckets(hidden * (1024 + 256 + 256 + 1024) + 3 * hidden * ffn, 2 * hidden + hidden * 8, experts)
    assert layer_of("moe", replace(PLAIN, tensor=2)).parameters == replace(at1, sharded=at1.sharded // 2)
    assert layer_of("moe", replace(PLAIN, expert=4)).parameters == replace(at1, expert=experts // 4)
    both = replace(PLAIN, tensor=2, expert=4, expert_tensor=2)
    assert layer_of("moe", both).parameters == Buckets(at1.sharded // 2, at1.replicated, experts // 8)


def test_routed_activations_do_not_shrink_with_more_expert_ranks() -> None:
    """Each rank brings its own tokens: what its experts receive stays, and grows with the imbalance."""
    one, four = layer_of("moe", PLAIN), layer_of("moe", replace(PLAIN, expert=4))
    assert one.kept == four.kept
    uneven = layer_of("moe", replace(PLAIN, expert=4, imbalance=1.5)).kept
    routed = 2 * 1024 * 2 * 2 * (1024 + 2 * 512 + 512)  # tokens x chosen x bytes x (in, gate and up, product)
    assert uneven.none - four.kept.none == routed // 2
    dropped = layer_of("moe", replace(PLAIN, expert=4, capacity=0.5)).kept
    assert four.kept.none - dropped.none == routed // 2


@pytest.mark.parametrize("family", FAMILIES)
def test_known_costs_change_nothing(family: str) -> None:
    """Blocks that are known from another expert width cost what they cost alone; those with experts are not taken."""
    model, known = small(family), dict[tuple[int, int, Setting], LayerCost]()
    for expert in (1, 2, 4) if family == "moe" else (1, 2):
        setting = replace(PLAIN, expert=expert, flash=True)
        assert layer_costs(model, A100, setting, known=known) == layer_costs(model, A100, setting)
    assert known


def test_experts_share_tokens_only_with_sequence_parallel() -> None:
    """Two devices of one tensor group take half of the rows each if the sequence is shared, all of them if not."""
    assert PLAIN.routed(2) == replace(PLAIN, tensor=2).routed(2) == 2
    shared = replace(PLAIN, tensor=2, sequence_parallel=True)
    assert shared.routed(2) == 1
    assert replace(shared, expert_tensor=2).routed(2) == 2


def test_collectives_of_tensor_parallel() -> None:
    """Two sums forward and two backward; with sequence parallel, gather and scatter instead, and one gather again."""
    size = 2 * 1024 * 2 * 1024
    assert layer_of("gpt", PLAIN).collectives() == ()
    plain = layer_of("gpt", replace(PLAIN, tensor=4)).collectives()
    assert [(each.kind, each.size, each.phase) for each in plain] == 2 * [
        ("all-reduce", size, "forward"),
        ("all-reduce", size, "backward"),
    ]
    shared = layer_of("gpt", replace(PLAIN, tensor=4, sequence_parallel=True)).collectives()
    for phase, kinds in (("forward", (2, 2)), ("backward", (4, 2))):
        found = [each.kind for each in shared if each.phase == phase]
        assert (found.count("all-gather"), found.count("reduce-scatter")) == kinds
    assert {each.size for each in shared} == {size}


def test_recomputation_repeats_collectives() -> None:
    """A whole layer repeats its forward collectives in the backward pass; the attention core has none of tensor."""
    layer = layer_of("gpt", replace(PLAIN, tensor=4))
    assert len(layer.collectives("full")) == len(layer.collectives()) + 2
    assert layer.collectives("selective") == layer.collectives()
    ring = layer_of("llama", replace(PLAIN, context=4))
    assert [(each.kind, each.size) for each in ring.collectives()] == [("ring", 524288), ("ring", 1048576)]
    assert len(ring.collectives("selective")) == 3


@pytest.mark.parametrize(("kind", "found"), [("gather", 3), ("exchange", 2)])
def test_context_parallel_has_three_kinds(kind: str, found: int) -> None:
    """Gathered keys are gathered again and their gradients scattered; heads are exchanged there and back."""
    layer = layer_of("llama", replace(PLAIN, context=4, context_kind=kind))  # type: ignore[arg-type]
    assert len(layer.collectives()) == found
    assert {each.axis for each in layer.collectives()} == {"context"}


def test_experts_exchange_their_rows() -> None:
    """Dispatch and combine in both passes, each with all rows of the rank; cut experts gather and scatter besides."""
    rows = [each for each in layer_of("moe", replace(PLAIN, expert=4)).collectives() if each.axis == "expert"]
    assert [(each.kind, each.size) for each in rows] == 4 * [("all-to-all", 2 * 1024 * 2 * 2 * 1024)]
    wide = replace(PLAIN, tensor=2, sequence_parallel=True, expert=4, expert_tensor=2)
    cut = [each.kind for each in layer_of("moe", wide).collectives() if each.size == 2 * 1024 * 2 * 2 * 1024]
    assert (cut.count("all-gather"), cut.count("reduce-scatter")) == (2, 2)


def test_head_keeps_fp32_logits() -> None:
    """Four bytes a logit, padded and cut by the vocabulary, beside the two copies of its input."""
    model = from_hyperparameters(Hyperparameters("gpt", 1, 1024, 16, vocab=50257, seq=1024))
    head = layer_costs(model, A100, replace(PLAIN, tensor=4, padding=128))["text"][-1]
    rows = 2 * 1024
    assert head.kept.none == rows * (50688 // 4 * 4 + 2 * 2 * 1024)
    assert head.tied == 50688 // 4 * 1024
    assert head.parameters.sharded == 0


def test_model_flops_of_streams() -> None:
    """An encoder of 512 tokens and a decoder of 128: each product counts with the tokens of its own input."""
    layers, h, s, t, vocabulary = 12, 768, 512, 128, 30592
    numbers = Hyperparameters("t5", layers, h, 12, vocab=vocabulary, seq=s, ffn=4 * h)
    encoder = s * layers * (24 * h * h + 4 * s * h)
    own, cross = t * (8 * h * h + 4 * t * h), t * (4 * h * h + 4 * s * h) + s * 4 * h * h
    decoder = layers * (own + cross + t * 16 * h * h)
    found = model_flops(from_hyperparameters(numbers), 8, s, lengths=(("text", t),))
    assert found == 3 * 8 * (encoder + decoder + t * 2 * h * vocabulary)


def test_model_flops_of_gpt() -> None:
    """72 B s l h^2 (1 + s / (6 h) + V / (12 l h)), arXiv 2205.05198, equation 9, to the last operation."""
    batch, s, layers, h, vocabulary = 8, 2048, 4, 1024, 51200
    model = from_hyperparameters(Hyperparameters("gpt", layers, h, 16, vocab=vocabulary))
    formula = 72 * batch * s * layers * h**2 * (1 + Fraction(s, 6 * h) + Fraction(vocabulary, 12 * layers * h))
    assert model_flops(model, batch, s) == formula


def test_operators_add_up_to_the_flops_that_count() -> None:
    """With one product a time, an ideal device would take the model's FLOPs over its peak, and never less."""
    model = from_hyperparameters(Hyperparameters("gpt", 2, 4096, 32, vocab=51200))
    costs = layer_costs(model, A100, replace(PLAIN, sequence=2048))["text"]
    seconds = sum(block.forward_s + block.backward_s for block in costs)
    assert seconds > model_flops(model, 2, 2048) / A100.peak("fp16")


def test_waves_of_tiles() -> None:
    """One tile more than processors takes a second wave; more of the same wave is free."""
    kernels = Kernels.of(A100, MEGATRON_2022)

    def seconds(tiles: int) -> float:
        return kernels.product(128 * tiles, 16384, 128, "fp16", moved=0) - kernels.efficiency.launch_s

    assert seconds(108) == seconds(100)
    assert 1.5 < seconds(109) / seconds(108) <= 2


def test_odd_lengths_starve_the_matrix_units() -> None:
    """A head of 150 costs several times one of 152 (measured for BLOOM: 94 against 120 TFLOP/s)."""
    kernels = Kernels.of(A100, MEGATRON_2022)
    odd, even = (kernels.product(2048, width, 2048, "bf16", batch=12) for width in (150, 152))
    assert odd > 2 * even
    rows = kernels.product(1024, 1229, 1024, "bf16", widths=(1024, 1024))
    assert rows < 1.1 * kernels.product(1024, 1232, 1024, "bf16")


def test_a_product_is_bound_by_memory_where_it_is_thin() -> None:
    """One row against a large matrix takes the time to read the matrix."""
    kernels = Kernels.of(A100, MEGATRON_2022)
    read = 2 * 16384**2 / (A100.hbm_bytes_per_s * kernels.efficiency.memory)
    assert kernels.product(1, 16384, 16384, "bf16") == pytest.approx(read, rel=0.02)


def test_flash_skips_what_is_masked() -> None:
    """A causal mask halves the operations of fused attention, and memory does not grow with the square."""
    short, long = (layer_of("llama", replace(PLAIN, sequence=s, flash=True)) for s in (4096, 8192))
    assert long.kept.none == 2 * short.kept.none
    causal, both = (
        next(
            each.forward_s
            for each in layer_of(family, replace(PLAIN, sequence=8192, flash=True)).operators
            if each.core
        )
        for family in ("gpt", "bert")
    )
    assert 0.45 < causal / both < 0.6


def test_slower_parts_never_make_a_layer_faster() -> None:
    """Less bandwidth, less peak: no operator gets faster."""
    weak = replace(A100, hbm_bytes_per_s=A100.hbm_bytes_per_s / 2)
    setting = replace(PLAIN, flash=True)
    for device in (weak, device_named("v100")):
        before = layer_costs(small("gpt"), A100, setting)["text"]
        after = layer_costs(small("gpt"), device, setting)["text"]
        for one, two in zip(before, after, strict=True):
            assert two.forward_s >= one.forward_s
            assert two.backward_s >= one.backward_s


def test_fp8_is_for_products_of_layers() -> None:
    """The head stays in bf16, and a device without fp8 says so."""
    h100 = device_named("h100")
    bf16, fp8 = (layer_costs(small("llama"), h100, replace(PLAIN, dtype=dtype))["text"] for dtype in ("bf16", "fp8"))
    assert fp8[-1].forward_s == bf16[-1].forward_s
    with pytest.raises(InvalidProblem, match="no rate for 'fp8'"):
        layer_costs(small("llama"), A100, replace(PLAIN, dtype="fp8"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor": 0}, "tensor: 0"),
        ({"dtype": "int3"}, "dtype: 'int3' is none"),
        ({"expert_tensor": 3}, "expert_tensor: 3"),
        ({"context": 3}, "sequence: 1024 tokens"),
        ({"imbalance": 0.5}, "imbalance 0.5"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, object], message: str) -> None:
    """One line that names the setting."""
    with pytest.raises(InvalidProblem, match=message):
        replace(PLAIN, **change)  # type: ignore[arg-type]


def test_bad_streams_and_frameworks_are_refused() -> None:
    """A length for a stream that the model has not; a negative time."""
    with pytest.raises(InvalidProblem, match="no stream 'sound'"):
        layer_costs(small("t5"), A100, replace(PLAIN, lengths=(("sound", 8),)))
    with pytest.raises(InvalidProblem, match="host_s"):
        Framework("x", host_s=-1.0)


def test_streams_may_have_lengths_of_their_own() -> None:
    """A decoder beside an encoder of half the length: only the encoder's blocks get smaller."""
    plain = layer_costs(small("t5"), A100, PLAIN)
    short = layer_costs(small("t5"), A100, replace(PLAIN, lengths=(("source", 512),)))
    assert short["encoder"][1].kept.full * 2 == plain["encoder"][1].kept.full
    assert short["decoder"][1].kept.full == plain["decoder"][1].kept.full


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_lost_on_one_device(family: str) -> None:
    """Without padding and widths, the buckets of all blocks hold the model's parameters, each once."""
    model = small(family)
    trained = sum(extra.stack.parameters for extra in model.extras if extra.trained)
    blocks = [block for stack in layer_costs(model, A100, PLAIN).values() for block in stack]
    assert sum(block.parameters.total for block in blocks) == model.parameters + trained
