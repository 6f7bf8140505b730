"""Mixtures of experts of Hugging Face whose attention is that of a dense decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nest.errors import InvalidProblem
from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.feeds import Experts, Mlp
from nest.families.huggingface.dense import decoder_with, layer_count
from nest.families.huggingface.traits import TRAITS, Traits
from nest.families.keys import CHOSEN, EXPERT_WIDTH, EXPERTS, FEED, SHARED, Keys
from nest.families.layers import Sublayer
from nest.families.parts import LAYER, Norm

_QWEN3 = replace(TRAITS["qwen3"], reader="Qwen3MoeConfig")
_LLAMA4 = replace(TRAITS["llama"], reader="Llama4TextConfig", qkv_bias="attention_bias", head_width=128, kv_heads=8)


def read_experts(keys: Keys) -> Decoder | None:
    """Return the decoder of a file or of a nested table, or None if its type is none of these."""
    found = READERS.get(keys.text("model_type"))
    if found is None:
        return None
    traits, read = found
    return read(keys.read_by(traits.reader), traits)


def counts(keys: Keys, experts: int | None = None, chosen: int | None = None) -> tuple[int, int]:
    """Return how many experts there are, and how many one token passes; class defaults as in `Keys.size`.

    Raises
    ------
    InvalidProblem
        If more are chosen than there are.
    """
    total, taken = keys.size(*EXPERTS, default=experts), keys.size(*CHOSEN, default=chosen)
    if taken > total:
        raise InvalidProblem(keys.path(CHOSEN[0]), f"{taken} of {total} experts", "give no more than there are")
    return total, taken


def _mixtral(keys: Keys, traits: Traits) -> Decoder:
    experts, chosen = counts(keys, 8, 2)
    expert = Mlp(keys.size(*FEED, default=14336))
    return decoder_with(keys, traits, lambda _place: Experts(experts, chosen, expert))


def _qwen(keys: Keys, traits: Traits) -> Decoder:
    dense = Mlp(keys.size(*FEED))
    routed = qwen_experts(keys)
    step = keys.whole("decoder_sparse_step") or 1
    plain = set(keys.items("mlp_only_layers"))
    if step == 1 and not plain:
        keys.note(f"{keys.path('intermediate_size')}: {dense.width} is not used, every layer has experts")
    return decoder_with(keys, traits, lambda place: dense if place in plain or (place + 1) % step else routed)


def qwen_experts(keys: Keys) -> Experts:
    """Return the experts of Qwen, with or without a shared one."""
    experts, chosen = counts(keys)
    width = keys.whole("shared_expert_intermediate_size", least=0)
    shared = Mlp(width) if width else None
    return Experts(experts, chosen, Mlp(keys.size(*EXPERT_WIDTH)), shared, shared_gate=shared is not None)


def _gpt_oss(keys: Keys, traits: Traits) -> Decoder:
    experts, chosen = counts(keys)
    expert = Mlp(keys.size(*FEED), bias=True, out_bias=True)
    keys.note("every expert, the router and the four attention matrices have biases; each head has a sink")
    decoder = decoder_with(keys, traits, lambda _place: Experts(experts, chosen, expert, router_bias=True))
    return with_attention(decoder, lambda attention: replace(attention, sinks=True))


def _llama4(keys: Keys, traits: Traits) -> Decoder:
    experts, chosen = counts(keys, 16, 1)
    expert, dense = Mlp(keys.size("intermediate_size")), Mlp(keys.size("intermediate_size_mlp"))
    keys.note("one shared expert per layer of experts, which no key announces")
    routed = Experts(experts, chosen, expert, shared=expert)
    step = keys.whole("interleave_moe_layer_step") or 1
    listed = set(keys.items("moe_layers")) or set(range(step - 1, layer_count(keys, traits), step))
    chunk = keys.whole("attention_chunk_size") or 0
    decoder = decoder_with(keys, traits, lambda place: routed if place in listed else dense)
    layers = tuple(
        replace(layer, mixer=_chunked(layer.mixer, chunk)) if (place + 1) % 4 else layer
        for place, layer in enumerate(decoder.layers)
    )
    return replace(decoder, layers=layers)


def _chunked(mixer: Sublayer | None, chunk: int) -> Sublayer | None:
    return replace(mixer, span=chunk, chunked=True) if isinstance(mixer, Attention) and chunk else mixer


def _dbrx(keys: Keys, traits: Traits) -> Decoder:
    attention, feed = keys.nested("attn_config"), keys.nested("ffn_config")
    if attention is None or feed is None:
        raise keys.missing("ffn_config" if attention else "attn_config")
    experts, chosen = counts(feed)
    expert = Mlp(feed.size("ffn_hidden_size"))
    traits = replace(traits, kv_heads=attention.size("kv_n_heads"))
    return decoder_with(keys, traits, lambda _place: Experts(experts, chosen, expert))


def _glm(keys: Keys, traits: Traits) -> Decoder:
    experts, chosen = counts(keys)
    expert, dense = Mlp(keys.size(*EXPERT_WIDTH)), Mlp(keys.size(*FEED))
    shared = keys.option(SHARED[0], 1, *SHARED[1:])
    routed = Experts(experts, chosen, expert, Mlp(shared * expert.width) if shared else None, correction=True)
    first = keys.option("first_k_dense_replace", 1)
    traits = replace(traits, qk_norm="head" if keys.flag("use_qk_norm", False) else "")
    return decoder_with(keys, traits, lambda place: dense if place < first else routed)


def with_attention(decoder: Decoder, change: Callable[[Attention], Attention]) -> Decoder:
    """Return a decoder with every attention changed."""
    layers = tuple(
        replace(layer, mixer=change(layer.mixer)) if isinstance(layer.mixer, Attention) else layer
        for layer in decoder.layers
    )
    return replace(decoder, layers=layers)


READERS: dict[str, tuple[Traits, Callable[[Keys, Traits], Decoder]]] = {
    "mixtral": (replace(TRAITS["mistral"], reader="MixtralConfig"), _mixtral),
    "phimoe": (
        Traits(
            "PhimoeConfig",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            head_bias="lm_head_bias",
            norm=LAYER,
            sliding=1,
            kv_heads=8,
        ),
        _mixtral,
    ),
    "qwen2_moe": (replace(TRAITS["qwen2"], reader="Qwen2MoeConfig"), _qwen),
    "qwen3_moe": (_QWEN3, _qwen),
    "olmoe": (
        Traits("OlmoeConfig", qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="full"),
        _mixtral,
    ),
    "gpt_oss": (
        Traits(
            "GptOssConfig",
            qkv_bias="!attention_bias",
            out_bias="!attention_bias",
            sliding=2,
            kv_heads=8,
            head_width=64,
        ),
        _gpt_oss,
    ),
    "llama4_text": (_LLAMA4, _llama4),
    "dbrx": (Traits("DbrxConfig", norm=Norm(bias=False)), _dbrx),
    "glm4_moe": (Traits("Glm4MoeConfig", qkv_bias="attention_bias", kv_heads=8), _glm),
}
