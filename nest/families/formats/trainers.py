"""llm-foundry, OLMo and nanotron: YAML with the model in a table of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.description import Description, Stated
from nest.families.feeds import Experts, Mlp
from nest.families.huggingface.dense import mpt_decoder, read_dense
from nest.families.huggingface.traits import TRAITS
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.layers import Layer, Sublayer
from nest.families.parts import LAYER, RMS, Norm

STRATEGIES = {"NO_SHARD": 0, "SHARD_GRAD_OP": 2, "FULL_SHARD": 3}
"""ZeRO types by the sharding strategies of FSDP."""

PRECISIONS = {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "fp8", "fp32": "fp32"}
"""Data types of products by ``precision``."""


def read_foundry(table: Mapping[str, object]) -> Description:
    """Return what a file of llm-foundry says: an MPT, by default with biases and learned positions."""
    keys = Keys(table, reader="llm-foundry")
    model = keys.nested("model", reader="llm-foundry's MPTConfig")
    if model is None:
        raise keys.missing("model")
    biased = not model.flag("no_bias", False, noted=True)
    inner = Keys({**model.table, "no_bias": not biased}, model.where, model.reader, notes=model.notes)
    decoder = mpt_decoder(inner, TRAITS["mpt"])
    attention = model.nested("attn_config") or Keys({})
    rotated = attention.flag("alibi", False) or attention.flag("rope", False)
    if not rotated and model.flag("learned_pos_emb", True, noted=True):
        decoder = replace(decoder, positions=decoder.sequence)
    found = _sizes(keys, sequence="max_seq_len", **BATCHES) | _of_fsdp(keys, "fsdp_config")
    sharded = keys.nested("fsdp_config")
    if sharded is not None and sharded.flag("activation_checkpointing", False):
        found["recompute"] = "full"
    made = decoder.architecture("", "mpt").with_notes(*model.notes)
    return Description("llm-foundry settings", made, found, "fsdp")


def read_olmo(table: Mapping[str, object]) -> Description:
    """Return what a file of OLMo says; with a gate, ``mlp_ratio`` is the sum of gate and up over the width."""
    keys = Keys(table, reader="OLMo")
    model = keys.nested("model")
    if model is None:
        raise keys.missing("model")
    width = model.size("d_model")
    layer = Layer(_olmo_attention(model, width), _olmo_feed(model, width), norm=_olmo_norm(model))
    rows = model.whole("embedding_size") or model.size("vocab_size")
    if rows != model.size("vocab_size"):
        keys.note(f"model.embedding_size: {rows} rows of the table, more than vocab_size")
    decoder = Decoder(
        width,
        (layer,) * model.size("n_layers", most=MOST_LAYERS),
        rows,
        tied=model.flag("weight_tying", True, noted=True),
        norm=layer.norm,
        positions=0 if model.flag("rope", False) or model.flag("alibi", False) else model.size("max_sequence_length"),
        sequence=model.whole("max_sequence_length") or 0,
    )
    settings = _sizes(keys, **BATCHES) | _of_fsdp(keys, "fsdp")
    made = decoder.architecture("", "olmo").with_notes(*keys.notes)
    return Description("OLMo settings", made, settings, "fsdp")


BATCHES = {"global_batch": "global_train_batch_size", "microbatch": "device_train_microbatch_size"}
"""Batch sizes by the keys that both have for them."""


def _sizes(keys: Keys, **names: str) -> dict[str, Stated]:
    """Return the sizes that are numbers: a microbatch may be found at the start (``auto``)."""
    whole = {name: keys.whole(key) for name, key in names.items() if keys.table.get(key) != "auto"}
    return {name: value for name, value in whole.items() if value is not None}


def _of_fsdp(keys: Keys, table: str) -> dict[str, Stated]:
    """Return the data type of products, and the ZeRO type that the strategy in a table is."""
    precision, found = keys.text("precision"), dict[str, Stated]()
    if precision in PRECISIONS:
        found["dtype"] = PRECISIONS[precision]
    sharded = keys.nested(table)
    if sharded is None:
        return found
    strategy = sharded.text("sharding_strategy", "FULL_SHARD")
    if strategy in STRATEGIES:
        return found | {"zero": STRATEGIES[strategy]}
    keys.note(f"{table}.sharding_strategy {strategy}: not read; --zero and --zero-groups decide")
    return found


def _olmo_attention(model: Keys, width: int) -> Attention:
    heads = model.size("n_heads")
    kv_heads = model.whole("n_kv_heads") or (1 if model.flag("multi_query_attention", False) else heads)
    bias = model.flag("include_bias", True)
    normed = model.flag("attention_layer_norm", False)
    return Attention(
        heads,
        kv_heads,
        width // heads,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        out_bias=bias,
        qk_norm="full" if normed else "",
        norm=_olmo_norm(model),
        rotary=model.flag("rope", False),
    )


def _olmo_norm(model: Keys) -> Norm:
    kind = RMS if model.text("layer_norm_type", "default") == "rms" else LAYER
    scale = model.flag("layer_norm_with_affine", True)
    return replace(kind, scale=scale, bias=kind.bias and scale and model.flag("bias_for_layer_norm", False))


def _olmo_feed(model: Keys, width: int) -> Sublayer:
    gated = model.text("activation_type", "swiglu") == "swiglu"
    summed = model.whole("mlp_hidden_size") or int(model.number("mlp_ratio", 4) * width)
    bias = model.flag("include_bias", True)
    mlp = Mlp(summed // 2 if gated else summed, gated, bias, bias)
    if model.text("block_type") != "moe":
        return mlp
    model.note(f"each expert is {mlp.width} wide: {summed} is the sum of gate and up")
    return Experts(model.size("moe_num_experts"), model.size("moe_top_k"), mlp)


def read_nanotron(table: Mapping[str, object]) -> Description:
    """Return what a file of nanotron says: a Llama in the words of Hugging Face."""
    keys = Keys(table, reader="nanotron")
    outer = keys.nested("model")
    inner = None if outer is None else outer.nested("model_config")
    if inner is None:
        raise keys.missing("model.model_config")
    named = {**inner.table, "model_type": "llama"}
    decoder = read_dense(Keys(named, inner.where, notes=keys.notes))
    assert decoder is not None, "llama is a dense decoder"
    settings = _nanotron_settings(keys)
    if settings.get("sequence", decoder.sequence) != decoder.sequence:
        keys.note(f"sequences have {settings['sequence']} tokens; max_position_embeddings is {decoder.sequence}")
    return Description("nanotron settings", decoder.architecture("", "llama").with_notes(*keys.notes), settings)


def _nanotron_settings(keys: Keys) -> dict[str, int]:
    tokens, widths = keys.nested("tokens"), keys.nested("parallelism")
    places = {
        "sequence": (tokens, "sequence_length"),
        "microbatch": (tokens, "micro_batch_size"),
        "tensor": (widths, "tp"),
        "pipeline": (widths, "pp"),
        "data": (widths, "dp"),
        "expert": (widths, "expert_parallel_size"),
    }
    found = {name: table.whole(key) for name, (table, key) in places.items() if table is not None}
    return {name: value for name, value in found.items() if value is not None}
