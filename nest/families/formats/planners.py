"""Model files of other planners: calculon, SimuMax, llm-analysis."""

from __future__ import annotations

from collections.abc import Mapping

from nest.errors import InvalidProblem
from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.description import Description
from nest.families.feeds import Experts, Mlp
from nest.families.huggingface.deepseek import decoder_of
from nest.families.huggingface.dense import read_dense
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.layers import Layer
from nest.families.parts import LAYER
from nest.families.vocabulary import padded


def read_calculon(table: Mapping[str, object], vocabulary: int | None) -> Description:
    """Return what a file of calculon says: blocks of a GPT, without vocabulary and positions."""
    keys = Keys(table, reader="calculon")
    width, heads = keys.size("hidden"), keys.size("attn_heads")
    attention = Attention(
        heads,
        heads,
        keys.size("attn_size"),
        query_bias=True,
        key_bias=True,
        value_bias=True,
        out_bias=True,
        rotary=False,
        dropout=True,
    )
    mlp = Mlp(keys.size("feedforward"), gated=False, bias=True, out_bias=True)
    layer = Layer(attention, mlp, norm=LAYER, dropout=True)
    sequence = keys.size("seq_size")
    if vocabulary is None:
        keys.note("the format has no vocabulary and no positions: blocks alone are counted; --vocab N adds them")
    decoder = Decoder(
        width,
        (layer,) * keys.size("num_blocks", most=MOST_LAYERS),
        vocabulary or 0,
        tied=True,
        norm=LAYER if vocabulary else None,
        positions=sequence if vocabulary else 0,
        sequence=sequence,
        dropout=True,
    )
    model = decoder.architecture("", "gpt").with_notes(*keys.notes)
    return Description("calculon model", model, {"sequence": sequence})


def read_simumax(table: Mapping[str, object]) -> Description:
    """Return what a file of SimuMax says: a dense model, one with experts, with or without latent attention."""
    keys = Keys(table, reader="SimuMax")
    name = keys.text("model_name")
    if keys.text("attention_type") == "mla":
        decoder = decoder_of(_as_deepseek(keys), correction=False)
        keys.note("no key tells of biases that balance the experts' load; none are counted")
    else:
        decoder = _grouped(keys)
    model = decoder.architecture(name, keys.text("model_type", "dense")).with_notes(*keys.notes)
    return Description("SimuMax model", model)


def _as_deepseek(keys: Keys) -> Keys:
    """Return the keys in DeepSeek's words; shared experts have a width, and no number."""
    width = keys.size("moe_ffn_hidden_size")
    shared = keys.whole("moe_shared_expert_intermediate_size", least=0) or 0
    table = {
        "hidden_size": keys.size("hidden_size"),
        "num_hidden_layers": keys.size("layer_num", most=MOST_LAYERS),
        "num_attention_heads": keys.size("head_num"),
        "intermediate_size": keys.size("intermediate_size"),
        "moe_intermediate_size": width,
        "n_shared_experts": _whole_share(keys, shared, width),
        "first_k_dense_replace": keys.option("dense_layers", 0),
        "n_routed_experts": keys.size("expert_num"),
        "num_experts_per_tok": keys.size("topk"),
        "qk_nope_head_dim": keys.size("qk_head_dim"),
        "qk_rope_head_dim": keys.size("qk_pos_emb_head_dim"),
        "v_head_dim": keys.size("v_head_dim"),
        "q_lora_rank": keys.whole("q_lora_rank", least=0) or 0,
        "kv_lora_rank": keys.size("kv_lora_rank"),
        "vocab_size": keys.size("vocab_size"),
        "tie_word_embeddings": False,
    }
    return Keys(table, reader=keys.reader, notes=keys.notes)


def _whole_share(keys: Keys, shared: int, width: int) -> int:
    """Return how many experts of a width all shared ones are together."""
    if shared % width:
        name = "moe_shared_expert_intermediate_size"
        raise InvalidProblem(keys.path(name), f"{shared} is no multiple of {width}", "give whole experts")
    return shared // width


def _grouped(keys: Keys) -> Decoder:
    width, heads = keys.size("hidden_size"), keys.size("head_num")
    bias = keys.flag("add_qkv_bias", False)
    attention = Attention(
        heads,
        keys.whole("kv_head_num") or heads,
        keys.whole("head_size") or width // heads,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        qk_norm="head" if keys.flag("qk_layernorm", False) else "",
    )
    gated = keys.flag("use_swiglu", True)
    dense = Layer(attention, Mlp(keys.size("intermediate_size"), gated))
    layer = dense
    if (keys.whole("expert_num") or 1) > 1:
        expert = Mlp(keys.whole("moe_ffn_hidden_size") or keys.size("intermediate_size"), gated)
        shared = keys.whole("moe_shared_expert_intermediate_size", least=0) or 0
        merged = Mlp(shared, gated) if shared else None
        layer = Layer(attention, Experts(keys.size("expert_num"), keys.size("topk"), expert, merged))
    count = keys.size("layer_num", most=MOST_LAYERS)
    leading = min(keys.whole("dense_layers", least=0) or 0, count)
    rows = padded(keys.size("vocab_size"), keys.whole("make_vocab_size_divisible_by") or 1)
    return Decoder(width, (*(dense,) * leading, *(layer,) * (count - leading)), rows)


def read_llm_analysis(table: Mapping[str, object]) -> Description:
    """Return what a file of llm-analysis says, as the class of its type would build it from these numbers."""
    keys = Keys(table, reader="llm-analysis")
    sequence = keys.whole("max_seq_len") or 0
    inner = {
        "model_type": keys.text("model_type"),
        "hidden_size": keys.size("hidden_dim"),
        "num_hidden_layers": keys.size("num_layers", most=MOST_LAYERS),
        "num_attention_heads": keys.size("n_head"),
        "num_key_value_heads": keys.whole("num_key_value_heads"),
        "intermediate_size": keys.size("ffn_embed_dim"),
        "vocab_size": keys.size("vocab_size"),
        "max_position_embeddings": sequence or None,
    }
    decoder = read_dense(Keys(inner, reader=keys.reader, notes=keys.notes))
    if decoder is None:
        raise keys.missing("model_type")
    keys.note("the format knows no narrower embedding and no place of norms: OPT-350m comes out too big")
    model = decoder.architecture(keys.text("name"), keys.text("model_type")).with_notes(*keys.notes)
    return Description("llm-analysis model", model, {"sequence": sequence} if sequence else {})
