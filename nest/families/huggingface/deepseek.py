"""DeepSeek-V2 and V3, and models of their classes (Kimi-K2): latent attention, shared experts, leading dense layers."""

from __future__ import annotations

from dataclasses import replace

from nest.families.architecture import Block, Extra, Stack
from nest.families.attention import LatentAttention
from nest.families.decoder import TEXT, Decoder
from nest.families.feeds import Experts, Mlp
from nest.families.huggingface.experts import counts
from nest.families.keys import (
    EXPERT_WIDTH,
    FEED,
    HEADS,
    LAYERS,
    MOST_LAYERS,
    SEQUENCE,
    SHARED,
    VOCABULARY,
    WIDTH,
    Keys,
)
from nest.families.layers import Layer
from nest.families.parts import RMS, Bench
from nest.families.weights import Split

TYPES = {"deepseek_v2": "DeepseekV2Config", "deepseek_v3": "DeepseekV3Config", "kimi_k2": "DeepseekV3Config"}


def read_deepseek(keys: Keys) -> Decoder | None:
    """Return the decoder of a file or of a nested table, or None if its type is none of these."""
    reader = TYPES.get(keys.text("model_type"))
    if reader is None:
        return None
    keys = keys.read_by(reader)
    usual = "noaux_tc" if reader == "DeepseekV3Config" else ""  # the class of V3 knows no other method
    decoder = decoder_of(keys, correction=keys.text("topk_method", usual) == "noaux_tc")
    return with_prediction(decoder, keys.whole("num_nextn_predict_layers", least=0, most=MOST_LAYERS) or 0)


def decoder_of(keys: Keys, *, correction: bool) -> Decoder:
    """Return the decoder; ``correction`` says whether each expert has a bias that balances the load."""
    width = keys.size(*WIDTH)
    attention = latent_attention(keys)
    dense, routed = Mlp(keys.size(*FEED)), _experts(keys, correction=correction)
    first, every = keys.option("first_k_dense_replace", 0), keys.whole("moe_layer_freq") or 1
    count = keys.size(*LAYERS, most=MOST_LAYERS)
    layers = tuple(
        Layer(attention, routed if place >= first and place % every == 0 else dense) for place in range(count)
    )
    return Decoder(
        width,
        layers,
        keys.size(*VOCABULARY),
        tied=keys.flag("tie_word_embeddings", False, noted=True),
        sequence=keys.whole(*SEQUENCE) or 0,
    )


def latent_attention(keys: Keys) -> LatentAttention:
    """Return the attention; ``num_key_value_heads`` says nothing about it."""
    rank = keys.whole("q_lora_rank", least=0) or 0
    if "num_key_value_heads" in keys:
        keys.note(f"{keys.path('num_key_value_heads')}: without meaning, keys and values come from the latent")
    return LatentAttention(
        keys.size(*HEADS),
        rank,
        keys.size("kv_lora_rank"),
        keys.size("qk_nope_head_dim"),
        keys.size("qk_rope_head_dim"),
        keys.size("v_head_dim"),
        bias=keys.flag("attention_bias", False),
    )


def _experts(keys: Keys, *, correction: bool) -> Experts:
    experts, chosen = counts(keys)
    width = keys.size(*EXPERT_WIDTH)
    shared = keys.option(SHARED[0], 0, *SHARED[1:])
    merged = Mlp(shared * width) if shared else None
    return Experts(experts, chosen, Mlp(width), merged, correction=correction)


def with_prediction(decoder: Decoder, modules: int) -> Decoder:
    """Return the decoder with ``modules`` of multi-token prediction outside of it (arXiv 2412.19437, section 2.2).

    Each has two norms, a matrix that joins the hidden state with the next token's embedding, a layer like the last, and
    a norm; embedding and head are those of the model.
    """
    if not modules:
        return decoder
    block = prediction_block(decoder.width, decoder.layers[-1])
    stack = Stack("prediction", TEXT, (block,) * modules)
    why = f"multi-token prediction, {modules} of them, not counted; shares embedding and head with the model"
    return replace(decoder, extras=(*decoder.extras, Extra(stack, why)))


def prediction_block(width: int, layer: Layer) -> Block:
    """Return one module of multi-token prediction."""
    joined = Bench("join", "prediction")
    for name in ("state_norm", "token_norm", "last_norm"):
        joined.norm(name, RMS, width, joined.tensor(name, width))
    joined.product("join", 2 * width, width, Split.COLUMN, joined.tensor("joined", 2 * width))
    inner = layer.block(width)
    return Block(f"prediction:{inner.kind}", (joined.done(), *inner.components), width)
