"""MaxText: YAML of sizes with ``base_`` before them; which decoder they belong to is a name of its code."""

from __future__ import annotations

from collections.abc import Mapping

from nest.errors import InvalidProblem
from nest.families.description import Description
from nest.families.huggingface.multimodal import read_decoder
from nest.families.keys import Keys

DECODERS = {
    "llama2": "llama",
    "default": "llama",
    "mistral": "llama",
    "mixtral": "mixtral",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3_moe",
}
"""Type of Hugging Face by MaxText's ``decoder_block``."""

NAMES = {
    "hidden_size": "base_emb_dim",
    "num_hidden_layers": "base_num_decoder_layers",
    "num_attention_heads": "base_num_query_heads",
    "num_key_value_heads": "base_num_kv_heads",
    "intermediate_size": "base_mlp_dim",
    "moe_intermediate_size": "base_moe_mlp_dim",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "num_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "sliding_window": "sliding_window_size",
    "tie_word_embeddings": "logits_via_embedding",
}
"""MaxText's names, by those of Hugging Face."""


def read_maxtext(table: Mapping[str, object]) -> Description:
    """Return what a file of MaxText says; a vision tower that it may have is off unless ``use_multimodal``.

    Raises
    ------
    InvalidProblem
        If a key is missing or wrong, or the decoder is not known.
    """
    keys = Keys(table, reader="MaxText")
    block = keys.text("decoder_block", "llama2")
    if block not in DECODERS:
        raise InvalidProblem("decoder_block", f"{block!r} is not known", f"one of {', '.join(DECODERS)}")
    for name in ("base_emb_dim", "base_num_decoder_layers", "base_num_query_heads", "base_mlp_dim", "vocab_size"):
        keys.size(name)
    inner: dict[str, object] = {ours: table[theirs] for ours, theirs in NAMES.items() if theirs in table}
    inner |= {"model_type": DECODERS[block], "tie_word_embeddings": keys.flag("logits_via_embedding", False)}
    decoder = read_decoder(Keys(inner, reader="MaxText", notes=keys.notes))
    assert decoder is not None, "every decoder block has a type"
    if "vision_encoder_block" in keys:
        keys.note("the vision tower is not counted: MaxText leaves it out unless use_multimodal is set")
    return Description("MaxText model", decoder.architecture("", block).with_notes(*keys.notes))
