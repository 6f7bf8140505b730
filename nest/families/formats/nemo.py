"""NeMo launcher: YAML whose model table speaks Megatron's language; GPT-like models, and T5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nest.families.attention import Attention
from nest.families.description import Description, Stated, number
from nest.families.ends import Embedding, Head, norm_block
from nest.families.feeds import Mlp
from nest.families.formats.megatron import megatron_decoder
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.layers import Layer
from nest.families.pairs import SOURCE, Side, encoder_decoder
from nest.families.parts import LAYER, RMS
from nest.families.vocabulary import chosen, padded

SETTINGS = {
    "tensor": "tensor_model_parallel_size",
    "pipeline": "pipeline_model_parallel_size",
    "virtual": "virtual_pipeline_model_parallel_size",
    "context": "context_parallel_size",
    "expert": "expert_model_parallel_size",
    "microbatch": "micro_batch_size",
    "global_batch": "global_batch_size",
}

SOFTWARE = "megatron-core"
"""What NeMo trains with, by its name in `nest.costing`."""

ZERO = {"mcore_distributed_optim": 1, "distributed_fused_adam": 2}
"""What optimizers spread over the replicas; Apex's second one is the algorithm of ZeRO-2."""

PRECISIONS = {"bf16": "bf16", "16": "fp16", "fp16": "fp16", "32": "fp32"}
"""Data types of products, by what ``trainer.precision`` begins with."""

VALUES = {
    "--num-layers": "num_layers",
    "--hidden-size": "hidden_size",
    "--ffn-hidden-size": "ffn_hidden_size",
    "--num-attention-heads": "num_attention_heads",
    "--num-query-groups": "num_query_groups",
    "--kv-channels": "kv_channels",
    "--max-position-embeddings": "max_position_embeddings",
    "--make-vocab-size-divisible-by": "make_vocab_size_divisible_by",
    "--hidden-dropout": "hidden_dropout",
    "--attention-dropout": "attention_dropout",
    "--num-experts": "num_moe_experts",
    "--moe-router-topk": "moe_router_topk",
}
"""Keys of the model table, by the argument of Megatron-LM that they become."""


def read_nemo(table: Mapping[str, object], vocabulary: int | None) -> Description:
    """Return what a file of the NeMo launcher says.

    Raises
    ------
    InvalidProblem
        If a key is missing or wrong, or nothing says the vocabulary.
    """
    top = Keys(table, reader="NeMo")
    model = top.nested("model")
    if model is None:
        raise top.missing("model")
    settings = _settings(top, model)
    if "encoder" in model:
        return _t5(model, settings, vocabulary)
    flags = Keys(_flags(model), reader="NeMo", notes=top.notes)
    decoder = megatron_decoder(flags, vocabulary, number(settings, "tensor"))
    notes = _odd(settings, len(decoder.layers))
    built = decoder.architecture("", "megatron").with_notes(*top.notes, *notes)
    return Description("NeMo settings", built, settings, SOFTWARE)


def _settings(top: Keys, model: Keys) -> dict[str, Stated]:
    numbers = _numbers(top, model)
    said: dict[str, Stated] = {**numbers, **_kept(model), **_types(top, model)}
    if model.flag("sequence_parallel", False):
        said["sequence_parallel"] = True
    if model.flag("use_flash_attention", False):
        said["flash"] = True
    optimizer = (model.nested("optim") or Keys({})).text("name")
    if optimizer in ZERO:
        said["zero"] = ZERO[optimizer]
    return said


def _kept(model: Keys) -> dict[str, Stated]:
    """Return what layers compute again, and how many of each stage do."""
    kind = model.text("activations_checkpoint_granularity")
    if kind not in ("selective", "full"):
        return {}
    count = model.whole("activations_checkpoint_num_layers", least=0)
    if kind == "full" and count is not None and model.text("activations_checkpoint_method") == "block":
        chunks = model.whole("virtual_pipeline_model_parallel_size") or 1
        return {"recompute": kind, "recompute_layers": count * chunks}
    return {"recompute": kind}


def _types(top: Keys, model: Keys) -> dict[str, Stated]:
    """Return the data type of products."""
    precision = str((top.nested("trainer") or Keys({})).table.get("precision", "")).partition("-")[0]
    if model.flag("fp8", False):
        return {"dtype": "fp8"}
    return {"dtype": PRECISIONS[precision]} if precision in PRECISIONS else {}


def _numbers(top: Keys, model: Keys) -> dict[str, int]:
    found = {name: model.whole(key) for name, key in SETTINGS.items()}
    found["sequence"] = model.whole("encoder_seq_length", "seq_length")
    found["target_sequence"] = model.whole("seq_length_dec")
    data = model.nested("data")
    if found["target_sequence"] is None and data is not None:
        found["target_sequence"] = data.whole("seq_length_dec")
    settings = {name: value for name, value in found.items() if value is not None}
    trainer = top.nested("trainer")
    if trainer is not None and "num_nodes" in trainer and "devices" in trainer:
        settings["devices"] = trainer.size("num_nodes") * trainer.size("devices")
        one = settings.get("tensor", 1) * settings.get("pipeline", 1) * settings.get("context", 1)
        if settings["devices"] % one == 0:
            settings["data"] = settings["devices"] // one
    return settings


def _odd(settings: Mapping[str, Stated], layers: int) -> list[str]:
    chunks = number(settings, "pipeline") * number(settings, "virtual")
    notes = [f"{layers} layers do not divide over {chunks} chunks"] if layers % chunks else []
    step = number(settings, "data") * number(settings, "microbatch")
    batch = number(settings, "global_batch", step)
    if batch % step:
        notes.append(f"a batch of {batch} does not divide over {step}")
    return notes


def _flags(model: Keys) -> dict[str, object]:
    """Return the model table as arguments of Megatron-LM."""
    flags: dict[str, object] = {flag: str(model.table[name]) for flag, name in VALUES.items() if name in model}
    tokenizer = model.nested("tokenizer")
    flags["--tokenizer-model"] = tokenizer.text("type") if tokenizer else ""
    flags["--position-embedding-type"] = model.text("position_embedding_type", "learned_absolute")
    if "rms" in model.text("normalization").lower():
        flags["--normalization"] = "RMSNorm"
    switches = {
        "--group-query-attention": "num_query_groups" in model,
        "--swiglu": "glu" in model.text("activation"),
        "--disable-bias-linear": not model.flag("bias", True),
        "--untie-embeddings-and-output-weights": not model.flag("share_embeddings_and_output_weights", True),
    }
    return flags | {flag: True for flag, given in switches.items() if given}


def _t5(model: Keys, settings: Mapping[str, Stated], vocabulary: int | None) -> Description:
    """Return a T5 of Megatron: learned positions, biases, LayerNorm; both stacks share table and positions."""
    encoder, decoder = model.nested("encoder"), model.nested("decoder")
    if encoder is None or decoder is None:
        raise model.missing("decoder" if encoder else "encoder")
    tokenizer = model.nested("tokenizer") or Keys({})
    count = chosen(model, "vocab_size", vocabulary, (tokenizer.text("type"),))
    multiple = (model.whole("make_vocab_size_divisible_by") or 128) * number(settings, "tensor")
    rows, width = padded(count, multiple), encoder.size("hidden_size")
    norm = RMS if "rms" in encoder.text("normalization").lower() else LAYER
    learned = encoder.text("position_embedding_type", "learned_absolute") == "learned_absolute"
    positions = model.size("max_position_embeddings", "seq_length") if learned else 0
    if learned:
        model.note("both stacks use one table of tokens and one of positions")
    first = Side(
        width,
        (Embedding(rows, width, positions=positions).block(),),
        _layers(encoder, width, causal=False),
        (norm_block(norm, width),),
    )
    second = Side(
        width,
        (Embedding(rows, width, shared=True).block(),),
        _layers(decoder, width, causal=True),
        (Head(rows, width, tied=True, bias=True, norm=norm).block(),),
    )
    built = encoder_decoder("", "megatron_t5", first, second, sequence=number(settings, "sequence", 0))
    return Description("NeMo settings", built.with_notes(*model.notes), settings, SOFTWARE)


def _layers(side: Keys, width: int, *, causal: bool) -> tuple[Layer, ...]:
    heads = side.size("num_attention_heads")
    bias = side.flag("bias", True)
    attention = Attention(
        heads,
        heads,
        side.whole("kv_channels") or width // heads,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        out_bias=bias,
        rotary=False,
        causal=causal,
        dropout=side.number("attention_dropout", 0) > 0,
    )
    gated = side.text("activation", "gelu").endswith("glu")
    mlp = Mlp(side.size("ffn_hidden_size"), gated, bias, bias)
    cross = replace(attention, keys=SOURCE, keys_width=width, causal=False) if causal else None
    norm = RMS if "rms" in side.text("normalization").lower() else LAYER
    dropout = side.number("hidden_dropout", 0) > 0
    layer = Layer(attention, mlp, cross, norm=norm, dropout=dropout)
    return (layer,) * side.size("num_layers", most=MOST_LAYERS)
