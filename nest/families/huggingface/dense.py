"""Dense decoders of Hugging Face, as their traits and the file say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from nest.errors import InvalidProblem
from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.feeds import Mlp
from nest.families.huggingface.traits import TRAITS, Rule, Traits
from nest.families.keys import (
    FEED,
    HEAD_WIDTH,
    HEADS,
    KV_HEADS,
    LAYERS,
    MOST_LAYERS,
    SEQUENCE,
    VOCABULARY,
    WIDTH,
    Keys,
)
from nest.families.layers import Layer, Order, Sublayer
from nest.families.parts import LAYER

ALIASES = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon", "yi": "llama", "Yi": "llama"}


def dense_decoder(keys: Keys, traits: Traits) -> Decoder:
    """Return a decoder whose layers all have an MLP."""
    width = width_of(keys, traits)
    mlp = Mlp(
        _feed_width(keys, traits, width), traits.gated, holds(keys, traits.mlp_bias), holds(keys, traits.mlp_bias)
    )
    return decoder_with(keys, traits, lambda _place: mlp)


def decoder_with(keys: Keys, traits: Traits, feed: Callable[[int], Sublayer]) -> Decoder:
    """Return a decoder; ``feed`` gives what follows attention in each layer, by its place from 0."""
    width = width_of(keys, traits)
    attention = attention_of(keys, traits, width)
    count = layer_count(keys, traits)
    sequence = keys.whole(*SEQUENCE) or 0
    layer = Layer(attention, None, order=traits.order, norm=traits.norm, dropout=has_dropout(keys))
    layers = tuple(
        replace(layer, mixer=windowed(attention, span), feed=feed(place))
        for place, span in enumerate(spans_of(keys, traits, count, sequence))
    )
    return Decoder(
        width,
        layers,
        keys.size(*VOCABULARY, default=traits.vocabulary),
        tied=keys.flag("tie_word_embeddings", traits.tied, noted=True),
        norm=traits.norm,
        positions=0 if traits.positions is None else keys.size(*SEQUENCE) + traits.positions,
        sequence=sequence,
        embedding_norm=traits.embedding_norm,
        dropout=has_dropout(keys),
        head_bias=holds(keys, traits.head_bias),
    )


def width_of(keys: Keys, traits: Traits) -> int:
    """Return the width of the model."""
    return keys.size(*WIDTH, default=traits.width)


def layer_count(keys: Keys, traits: Traits) -> int:
    """Return the number of layers."""
    return keys.size(*LAYERS, default=traits.layers, most=MOST_LAYERS)


def attention_of(keys: Keys, traits: Traits, width: int) -> Attention:
    """Return the attention of a layer without window."""
    heads = keys.size(*HEADS, default=traits.heads)
    qkv = holds(keys, traits.qkv_bias)
    return Attention(
        heads,
        kv_heads_of(keys, traits, heads),
        head_width_of(keys, traits, width, heads),
        query_bias=qkv,
        key_bias=qkv,
        value_bias=qkv,
        out_bias=holds(keys, traits.out_bias),
        qk_norm=traits.qk_norm,
        rotary=traits.rotary,
        dropout=keys.number(keys.named("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob") or "", 0) > 0,
    )


def windowed(attention: Attention, span: int) -> Attention:
    """Return attention over a window; 0 for none."""
    return replace(attention, span=span) if span else attention


def kv_heads_of(keys: Keys, traits: Traits, heads: int) -> int:
    """Return the key-value heads.

    Raises
    ------
    InvalidProblem
        If they do not divide the heads.
    """
    kv_heads = keys.whole(*KV_HEADS)
    if kv_heads is None and (keys.table.get("multi_query") is True or keys.table.get("multi_query_attention") is True):
        kv_heads = 1
    if kv_heads is None and not traits.kv_heads:
        if traits.gated:  # classes with a gate mostly know the key: a misspelt one shall not pass in silence
            keys.note(f"{keys.path(KV_HEADS[0])}: not in the file, as many as heads ({heads})")
        return heads
    if kv_heads is None:
        kv_heads = traits.kv_heads
        keys.note(f"{keys.path(KV_HEADS[0])}: not in the file, {kv_heads} by default of {keys.reader}")
    if heads % kv_heads:
        raise InvalidProblem(keys.path(KV_HEADS[0]), f"{kv_heads} does not divide {heads} heads", "give a divisor")
    return kv_heads


def head_width_of(keys: Keys, traits: Traits, width: int, heads: int) -> int:
    """Return the width of a head.

    Raises
    ------
    InvalidProblem
        If nothing gives it and the heads do not divide the width.
    """
    given = keys.whole(*HEAD_WIDTH) or traits.head_width
    if given:
        return given
    if width % heads:
        remedy = f"give {HEAD_WIDTH[0]}, or heads that divide the width"
        raise InvalidProblem(keys.path(HEADS[0]), f"{heads} heads do not divide the width {width}", remedy)
    return width // heads


def spans_of(keys: Keys, traits: Traits, count: int, sequence: int) -> list[int]:
    """Return the window of each layer, 0 for none.

    Raises
    ------
    InvalidProblem
        If a list of kinds has another length than there are layers.
    """
    window = keys.whole("sliding_window") or 0
    if not window or (sequence and window >= sequence) or not keys.flag("use_sliding_window", True):
        return [0] * count
    kinds = keys.items("layer_types")
    if kinds:
        _check_kinds(keys, kinds, count)
        return [window if kind == "sliding_attention" else 0 for kind in kinds]
    if traits.reader == "Qwen2Config":
        dense = keys.whole("max_window_layers", least=0) or 0
        return [0 if place < dense else window for place in range(count)]
    every = keys.whole("sliding_window_pattern") or traits.sliding
    return [window if every and (every == 1 or (place + 1) % every) else 0 for place in range(count)]


def _check_kinds(keys: Keys, kinds: object, count: int) -> None:
    found = len(kinds) if isinstance(kinds, list | tuple) else 0
    if found != count:
        raise InvalidProblem(keys.path("layer_types"), f"{found} kinds for {count} layers", "give one per layer")


def has_dropout(keys: Keys) -> bool:
    """Whether the outputs of sublayers are dropped in part."""
    name = keys.named("hidden_dropout", "resid_pdrop", "hidden_dropout_prob", "dropout", "dropout_rate")
    return name is not None and keys.number(name, 0) > 0


def holds(keys: Keys, rule: Rule) -> bool:
    """Return whether a rule holds in this file."""
    if isinstance(rule, bool):
        return rule
    return keys.flag(rule.removeprefix("!"), rule.startswith("!"), noted=rule.startswith("!"))


def _feed_width(keys: Keys, traits: Traits, width: int) -> int:
    given = keys.whole(*FEED)
    if given is None and traits.feed_factor:
        return traits.feed_factor * width
    if given is None:
        given = keys.size(*FEED, default=traits.feed)
    if traits.feed_part > 1:
        keys.note(f"{keys.path(FEED[0])}: {given} is the sum of gate and up, each {given // traits.feed_part} wide")
    return given // traits.feed_part


def falcon_decoder(keys: Keys, traits: Traits) -> Decoder:
    """Return a Falcon: with ``new_decoder_architecture``, or by the name RefinedWeb, it has two norms per layer."""
    new = keys.flag("new_decoder_architecture", keys.text("model_type") == "RefinedWeb")
    if not new and "num_kv_heads" not in keys and "n_head_kv" not in keys and keys.flag("multi_query", True):
        traits = replace(traits, kv_heads=1)
    parallel = keys.flag("parallel_attn", True)
    both = new and keys.whole("num_ln_in_parallel_attn") != 1
    together: Order = "parallel" if both else "parallel-shared"
    order: Order = together if parallel or new else "pre"
    return dense_decoder(keys, replace(traits, order=order, rotary=not keys.flag("alibi", False)))


def gptneox_decoder(keys: Keys, traits: Traits) -> Decoder:
    """Return a GPT-NeoX: attention and MLP in parallel unless the file says otherwise."""
    return dense_decoder(keys, replace(traits, order="parallel" if keys.flag("use_parallel_residual", True) else "pre"))


def opt_decoder(keys: Keys, traits: Traits) -> Decoder:
    """Return an OPT, whose table may be narrower than the model, and whose norms may stand behind (350m)."""
    before = keys.flag("do_layer_norm_before", True)
    decoder = dense_decoder(keys, replace(traits, order="pre" if before else "post"))
    table = keys.whole("word_embed_proj_dim") or decoder.width
    return replace(decoder, table_width=0 if table == decoder.width else table, norm=LAYER if before else None)


def mpt_decoder(keys: Keys, traits: Traits) -> Decoder:
    """Return an MPT; biases are absent with ``no_bias``, keys and values may have fewer heads."""
    biased = not keys.flag("no_bias", True)
    nested = keys.nested("attn_config") or Keys({}, notes=keys.notes)
    factor = int(keys.number("expansion_ratio", 4))
    if nested.flag("alibi", False) and keys.flag("learned_pos_emb", True):
        keys.note("alibi stands in for learned positions, whatever learned_pos_emb says")
    traits = replace(
        traits,
        kv_heads=nested.whole("kv_n_heads") or 0,
        qkv_bias=biased,
        out_bias=biased,
        mlp_bias=biased,
        norm=LAYER if biased else traits.norm,
        feed_factor=factor,
    )
    return dense_decoder(keys, traits)


def cohere_decoder(keys: Keys, traits: Traits) -> Decoder:
    """Return a Command R; the large ones norm queries and keys, each head with weights of its own."""
    return dense_decoder(keys, replace(traits, qk_norm="full" if keys.flag("use_qk_norm", False) else ""))


def stablelm_decoder(keys: Keys, traits: Traits) -> Decoder:
    """Return a StableLM; that of 12B has attention and MLP behind one norm, and norms its heads as Command R does."""
    order: Order = "parallel-shared" if keys.flag("use_parallel_residual", False) else "pre"
    norm: Literal["", "full"] = "full" if keys.flag("qk_layernorm", False) else ""
    return dense_decoder(keys, replace(traits, order=order, qk_norm=norm))


SPECIAL = {
    "falcon": falcon_decoder,
    "gpt_neox": gptneox_decoder,
    "opt": opt_decoder,
    "mpt": mpt_decoder,
    "cohere": cohere_decoder,
    "cohere2": cohere_decoder,
    "stablelm": stablelm_decoder,
}
"""Dense decoders with rules of their own."""


def read_dense(keys: Keys) -> Decoder | None:
    """Return the decoder of a file or of a nested table, or None if its type is no dense decoder."""
    name = keys.text("model_type")
    name = ALIASES.get(name, name)
    traits = TRAITS.get(name)
    return None if traits is None else SPECIAL.get(name, dense_decoder)(keys.read_by(traits.reader), traits)
