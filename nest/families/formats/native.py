"""Parameter files that model repositories bring themselves: DeepSeek's, Llama's."""

from __future__ import annotations

from collections.abc import Mapping

from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.description import Description
from nest.families.feeds import Mlp
from nest.families.huggingface.deepseek import decoder_of
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.layers import Layer
from nest.families.vocabulary import chosen

DEEPSEEK = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "inter_dim",
    "moe_intermediate_size": "moe_inter_dim",
    "first_k_dense_replace": "n_dense_layers",
    "num_experts_per_tok": "n_activated_experts",
}
"""DeepSeek's own names, by those of its Hugging Face class; all others are alike."""


def read_deepseek_native(table: Mapping[str, object]) -> Description:
    """Return what DeepSeek's own file says; V3 corrects the load of experts, and scores them by a sigmoid."""
    keys = Keys(table, reader="DeepSeek's own format")
    for name in DEEPSEEK.values():
        keys.size(name)
    renamed = {ours: table[theirs] for ours, theirs in DEEPSEEK.items()}
    inner = Keys({**table, **renamed, "tie_word_embeddings": False}, reader=keys.reader, notes=keys.notes)
    decoder = decoder_of(inner, correction=keys.text("score_func") == "sigmoid")
    return Description("DeepSeek parameters", decoder.architecture("", "deepseek").with_notes(*keys.notes))


def read_llama_native(table: Mapping[str, object], vocabulary: int | None) -> Description:
    """Return what Llama's ``params.json`` says: the width of the MLP follows from three of its keys.

    Two thirds of four times the width, times ``ffn_dim_multiplier``, up to a multiple of ``multiple_of``. A
    vocabulary of -1 is the tokenizer's.
    """
    keys = Keys({key: value for key, value in table.items() if value != -1}, reader="Llama's own format")
    width, heads = keys.size("dim"), keys.size("n_heads")
    multiple = keys.size("multiple_of")
    hidden = int(int(8 * width / 3) * keys.number("ffn_dim_multiplier", 1))
    attention = Attention(heads, keys.whole("n_kv_heads") or heads, width // heads)
    decoder = Decoder(
        width,
        (Layer(attention, Mlp(-(-hidden // multiple) * multiple)),) * keys.size("n_layers", most=MOST_LAYERS),
        chosen(keys, "vocab_size", vocabulary, ()),
    )
    return Description("Llama parameters", decoder.architecture("", "llama").with_notes(*keys.notes))
