"""Decoders of Hugging Face whose layers differ in kind: state-space layers, linear attention, pruned blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nest.errors import InvalidProblem
from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.feeds import Beside, Experts, Linear, Mlp
from nest.families.huggingface.deepseek import with_prediction
from nest.families.huggingface.dense import attention_of, decoder_with, layer_count, width_of
from nest.families.huggingface.experts import counts, qwen_experts
from nest.families.huggingface.traits import TRAITS, Traits
from nest.families.keys import EXPERT_WIDTH, SHARED, Keys
from nest.families.layers import Layer, Sublayer
from nest.families.parts import RMS
from nest.families.recurrent import DeltaRule, Mamba, Mamba2


def read_hybrid(keys: Keys) -> Decoder | None:
    """Return the decoder of a file or of a nested table, or None if its type is none of these."""
    found = READERS.get(keys.text("model_type"))
    if found is None:
        return None
    traits, read = found
    return read(keys.read_by(traits.reader), traits)


def _jamba(keys: Keys, traits: Traits) -> Decoder:
    experts, chosen = counts(keys, 16, 2)
    dense = Mlp(keys.size("intermediate_size"))
    routed = Experts(experts, chosen, dense)
    period, offset = keys.option("expert_layer_period", 2, least=1), keys.option("expert_layer_offset", 1)
    decoder = decoder_with(keys, traits, lambda place: routed if place % period == offset else dense)
    period, offset = keys.option("attn_layer_period", 8, least=1), keys.option("attn_layer_offset", 4)
    mamba = Mamba(
        keys.option("mamba_expand", 2, least=1) * decoder.width,
        keys.option("mamba_d_state", 16, least=1),
        keys.option("mamba_d_conv", 4, least=1),
        _rank(keys, "mamba_dt_rank", decoder.width),
        conv_bias=keys.flag("mamba_conv_bias", True),
        bias=keys.flag("mamba_proj_bias", False),
        normed=True,
    )
    return _mixed(decoder, lambda place, own: own if place % period == offset else mamba)


def _mamba(keys: Keys, traits: Traits) -> Decoder:
    width = width_of(keys, traits)
    inner = keys.whole("intermediate_size") or keys.option("expand", 2, least=1) * width
    mamba = Mamba(
        inner,
        keys.option("state_size", 16, least=1),
        keys.option("conv_kernel", 4, least=1),
        _rank(keys, "time_step_rank", width),
        conv_bias=keys.flag("use_conv_bias", True),
        bias=keys.flag("use_bias", False),
    )
    tied = keys.flag("tie_word_embeddings", traits.tied, noted=True)
    layers = (Layer(mamba, None),) * layer_count(keys, traits)
    return Decoder(width, layers, keys.size("vocab_size"), tied=tied)


def _rank(keys: Keys, name: str, width: int) -> int:
    """Return the width of the latent of step sizes; ``auto`` is a sixteenth of the model's."""
    if keys.table.get(name) in (None, "auto"):
        return -(-width // 16)
    return keys.size(name)


def _nemotron_h(keys: Keys, traits: Traits) -> Decoder:
    width, count = width_of(keys, traits), layer_count(keys, traits)
    pattern = keys.text("hybrid_override_pattern")
    if not pattern:
        raise keys.missing("hybrid_override_pattern")
    kinds = _pattern_kinds(keys, traits, width, pattern)
    strange = sorted(set(pattern) - set(kinds))
    if len(pattern) != count or strange:
        what = f"no layer is called {strange[0]!r}" if strange else f"{len(pattern)} letters for {count} layers"
        raise InvalidProblem(keys.path("hybrid_override_pattern"), what, f"one of {', '.join(sorted(kinds))} per layer")
    return Decoder(
        width,
        tuple(kinds[letter] for letter in pattern),
        keys.size("vocab_size"),
        tied=keys.flag("tie_word_embeddings", False, noted=True),
        sequence=keys.whole("max_position_embeddings") or 0,
    )


def _pattern_kinds(keys: Keys, traits: Traits, width: int, pattern: str) -> dict[str, Layer]:
    bias = keys.flag("mlp_bias", False)
    kinds = {
        "M": Layer(_mamba2(keys), None),
        "*": Layer(attention_of(keys, traits, width), None),
        "-": Layer(None, Mlp(keys.size("intermediate_size"), gated=False, bias=bias, out_bias=bias)),
    }
    if "E" in pattern:
        experts, chosen = counts(keys)
        expert = Mlp(keys.size(*EXPERT_WIDTH), gated=False)
        shared = keys.whole("moe_shared_expert_intermediate_size") or 0
        merged = Mlp(shared * keys.option(SHARED[0], 1, *SHARED[1:]), gated=False) if shared else None
        kinds["E"] = Layer(None, Experts(experts, chosen, expert, merged, correction=True))
    return kinds


def _mamba2(keys: Keys) -> Mamba2:
    return Mamba2(
        keys.size("mamba_num_heads"),
        keys.size("mamba_head_dim"),
        keys.size("n_groups"),
        keys.size("ssm_state_size"),
        keys.option("conv_kernel", 4, least=1),
        conv_bias=keys.flag("use_conv_bias", True),
        bias=keys.flag("mamba_proj_bias", False),
    )


def _qwen3_next(keys: Keys, traits: Traits) -> Decoder:
    routed = qwen_experts(keys)
    decoder = decoder_with(keys, traits, lambda _place: routed)
    rule = DeltaRule(
        keys.size("linear_num_key_heads"),
        keys.size("linear_key_head_dim"),
        keys.size("linear_num_value_heads"),
        keys.size("linear_value_head_dim"),
        keys.option("linear_conv_kernel_dim", 4, least=1),
    )
    listed = keys.items("layer_types")
    interval = keys.option("full_attention_interval", 4, least=1)
    full = [kind == "full_attention" for kind in listed] or [
        not (place + 1) % interval for place in range(len(decoder.layers))
    ]
    mixed = _mixed(
        decoder, lambda place, own: replace(own, gated=True) if full[place] and isinstance(own, Attention) else rule
    )
    keys.note("the published checkpoint has a module of multi-token prediction, which no key announces")
    return with_prediction(mixed, 1)


def _nas(keys: Keys, traits: Traits) -> Decoder:
    listed = keys.items("block_configs")
    width, count = width_of(keys, traits), layer_count(keys, traits)
    if len(listed) != count:
        what = f"{len(listed)} blocks for {count} layers"
        raise InvalidProblem(keys.path("block_configs"), what, "give one per layer")
    holder = Keys({f"block_configs[{at}]": block for at, block in enumerate(listed)}, reader=keys.reader)
    blocks = [block for at in range(count) if (block := holder.nested(f"block_configs[{at}]"))]
    heads = keys.size("num_attention_heads")
    layers = tuple(Layer(_nas_mixer(block, traits, width, heads), _nas_feed(block, width)) for block in blocks)
    silent = sum(layer.mixer is None for layer in layers)
    keys.note(f"{silent} of {count} blocks have no attention; widths of the MLPs follow from ffn_mult per block")
    return Decoder(
        width,
        layers,
        keys.size("vocab_size"),
        tied=keys.flag("tie_word_embeddings", False, noted=True),
        sequence=keys.whole("max_position_embeddings") or 0,
    )


def _nas_mixer(block: Keys, traits: Traits, width: int, heads: int) -> Sublayer | None:
    attention = block.nested("attention")
    if attention is None:
        raise block.missing("attention")
    if attention.flag("no_op", False):
        return None
    if attention.flag("replace_with_linear", False):
        return Linear()
    shared = Keys(
        {"num_attention_heads": heads, "num_key_value_heads": heads // attention.size("n_heads_in_group")},
        attention.where,
        traits.reader,
    )
    return attention_of(shared, traits, width)


def _nas_feed(block: Keys, width: int) -> Sublayer | None:
    """Return the MLP: two thirds of ``2 * ffn_mult * width``, rounded up to a multiple of 256, as the class does."""
    feed = block.nested("ffn")
    if feed is None:
        raise block.missing("ffn")
    if feed.flag("no_op", False):
        return None
    if feed.flag("replace_with_linear", False):
        return Linear()
    if "ffn_mult" not in feed:
        raise feed.missing("ffn_mult")
    return Mlp(-(-int(2 * feed.number("ffn_mult", 0) * width / 3) // 256) * 256)


def _gemma4(keys: Keys, traits: Traits) -> Decoder:
    dense = Mlp(keys.size("intermediate_size"))
    feed: Sublayer = dense
    if keys.flag("enable_moe_block", False):
        experts, chosen = counts(keys)
        width = width_of(keys, traits)
        routed = Experts(experts, chosen, Mlp(keys.size(*EXPERT_WIDTH)), router_scales=(width, experts))
        feed = Beside(dense, routed, RMS)
    for name in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if keys.whole(name, least=0):
            raise InvalidProblem(keys.path(name), f"{keys.table[name]} is not supported", "0 is")
    decoder = decoder_with(keys, traits, lambda _place: feed)
    keys.note("one norm after attention, and three besides the usual two around MLP and experts")
    return _mixed(decoder, lambda _place, own: own if _has_window(own) else _global(keys, own))


def _has_window(mixer: Sublayer | None) -> bool:
    return isinstance(mixer, Attention) and mixer.span > 0


def _global(keys: Keys, mixer: Sublayer | None) -> Sublayer | None:
    """Return attention over everything, which has heads of its own kind in Gemma 4."""
    if not isinstance(mixer, Attention):
        return mixer
    return replace(
        mixer,
        head_width=keys.whole("global_head_dim") or mixer.head_width,
        kv_heads=keys.whole("num_global_key_value_heads") or mixer.kv_heads,
        shared_values=keys.flag("attention_k_eq_v", False),
    )


def _mixed(decoder: Decoder, choose: Callable[[int, Sublayer | None], Sublayer | None]) -> Decoder:
    """Return the decoder with the mixer of each layer chosen by its place, and from the one it has."""
    layers = (replace(layer, mixer=choose(place, layer.mixer)) for place, layer in enumerate(decoder.layers))
    return replace(decoder, layers=tuple(layers))


READERS: dict[str, tuple[Traits, Callable[[Keys, Traits], Decoder]]] = {
    "jamba": (Traits("JambaConfig", rotary=False, kv_heads=8), _jamba),
    "mamba": (Traits("MambaConfig", tied=True), _mamba),
    "nemotron_h": (
        Traits("NemotronHConfig", qkv_bias="attention_bias", out_bias="attention_bias", rotary=False, kv_heads=8),
        _nemotron_h,
    ),
    "qwen3_next": (replace(TRAITS["qwen3"], reader="Qwen3NextConfig", kv_heads=2, head_width=256), _qwen3_next),
    "nemotron-nas": (Traits("DeciLMConfig"), _nas),
    "gemma4_text": (replace(TRAITS["gemma3_text"], reader="Gemma4TextConfig"), _gemma4),
}
