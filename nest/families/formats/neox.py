"""GPT-NeoX: YAML, or JSON with comments, of its own words; biases and two norms per layer by default."""

from __future__ import annotations

from collections.abc import Mapping

from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.description import Description, Stated
from nest.families.feeds import Mlp
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.layers import Layer, Order
from nest.families.parts import LAYER, RMS
from nest.families.vocabulary import chosen, padded

READER = "GPT-NeoX"

SETTINGS = {
    "tensor": "model_parallel_size",
    "pipeline": "pipe_parallel_size",
    "microbatch": "train_micro_batch_size_per_gpu",
    "global_batch": "train_batch_size",
    "sequence": "seq_length",
}

TYPES = {"fp16": "fp16", "bf16": "bf16"}
"""Tables that switch a data type on."""


def read_neox(table: Mapping[str, object], vocabulary: int | None) -> Description:
    """Return what a file of GPT-NeoX says; hyphens in its keys stand for underscores.

    Raises
    ------
    InvalidProblem
        If a key is missing or wrong, or nothing says the vocabulary.
    """
    keys = Keys({name.replace("-", "_"): value for name, value in table.items()}, reader=READER)
    numbers = {name: value for name, key in SETTINGS.items() if (value := keys.whole(key)) is not None}
    model = _decoder(keys, vocabulary, numbers.get("tensor", 1)).architecture("", "gpt_neox")
    model = model.with_notes(*keys.notes)
    return Description("GPT-NeoX settings", model, numbers | _training(keys), "megatron-deepspeed")


def _training(keys: Keys) -> dict[str, Stated]:
    """Return what layers compute again, what is spread, and the data type of products."""
    found: dict[str, Stated] = {}
    if keys.flag("checkpoint_activations", False):
        found["recompute"] = "full"
    spread = keys.nested("zero_optimization")
    if spread is not None:
        found["zero"] = spread.whole("stage", least=0, most=3) or 0
    for name, key in TYPES.items():
        table = keys.nested(key)
        if table is not None and table.flag("enabled", False):
            found["dtype"] = name
    return found


def _decoder(keys: Keys, vocabulary: int | None, tensor: int) -> Decoder:
    width = keys.size("hidden_size")
    norm = LAYER if keys.text("norm", "layernorm") == "layernorm" else RMS
    layer = Layer(
        _attention(keys, width),
        _mlp(keys, width),
        order=_order(keys),
        norm=norm,
        dropout=_rate(keys, "hidden_dropout"),
    )
    learned = keys.text("pos_emb", "learned") == "learned"
    positions = keys.size("max_position_embeddings", "seq_length")
    names = (keys.text("vocab_file"), keys.text("tokenizer_type"))
    count = chosen(keys, "padded_vocab_size", vocabulary, names)
    rows = padded(count, (keys.whole("make_vocab_size_divisible_by") or 128) * tensor)
    if rows != count:
        keys.note(f"vocabulary {count} padded to {rows}")
    return Decoder(
        width,
        (layer,) * keys.size("num_layers", most=MOST_LAYERS),
        rows,
        tied=not keys.flag("no_weight_tying", False),
        norm=norm,
        positions=positions if learned else 0,
        sequence=positions,
        dropout=layer.dropout,
    )


def _order(keys: Keys) -> Order:
    """Return where the norms are: GPT-J's residual has two of them unless they are tied."""
    if not keys.flag("gpt_j_residual", False):
        return "pre"
    return "parallel-shared" if keys.flag("gpt_j_tied", False) else "parallel"


def _attention(keys: Keys, width: int) -> Attention:
    heads = keys.size("num_attention_heads")
    bias = keys.flag("use_bias_in_attn_linear", True)
    return Attention(
        heads,
        keys.whole("num_kv_heads") or heads,
        width // heads,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        out_bias=bias,
        rotary=keys.text("pos_emb") == "rotary",
        dropout=_rate(keys, "attention_dropout"),
    )


def _mlp(keys: Keys, width: int) -> Mlp:
    gated = keys.text("mlp_type") == "llama" or keys.text("activation") in ("swiglu", "geglu")
    bias = keys.flag("use_bias_in_mlp", not gated)
    if gated:
        return Mlp(keys.size("intermediate_size"), True, bias, bias)
    return Mlp(keys.whole("intermediate_size") or 4 * width, False, bias, bias)


def _rate(keys: Keys, name: str) -> bool:
    return keys.number(name, 0.1 if name not in keys.table else 0) > 0
