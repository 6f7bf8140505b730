"""What the class of a dense decoder fixes without any key saying so, one entry per ``model_type``.

Sizes are class defaults, which apply to nested tables only: a file of its own that lacks a size is refused. The facts
are those of the classes of Hugging Face transformers, or of the modelling file that the model's own repository brings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from nest.families.layers import Order
from nest.families.parts import LAYER, RMS, Norm

Rule: TypeAlias = bool | str
"""A fact of the class, or the key that decides it, false where absent; ``!key`` for one that is true where absent."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Facts of a class.

    Parameters
    ----------
    reader
        Name of the class, for notes and errors.
    tied
        Whether the head uses the embedding table unless ``tie_word_embeddings`` says otherwise.
    qkv_bias, out_bias, mlp_bias, head_bias
        Biases of the matrices.
    gated
        Whether the MLP has a gate.
    norm, order, qk_norm
        As in `Layer` and `Attention`.
    rotary, positions
        Whether positions rotate, and whether there is a table of them: rows beyond those of the sequence
        length (2 for OPT), or None for no table.
    embedding_norm
        A norm behind the embedding.
    feed_factor
        Width of the MLP over that of the model, where no key gives it; 0 where one must.
    feed_part
        What of the given width a matrix has: Qwen-1 gives the sum of gate and up.
    sliding
        0: no window. 1: all layers have it. n: all but every n-th.
    vocabulary, width, feed, layers, heads
        Class defaults for nested tables.
    kv_heads
        Class default, also for a file of its own; 0 for as many as heads.
    head_width
        Class default; 0 for width / heads.
    """

    reader: str
    tied: bool = False
    qkv_bias: Rule = False
    out_bias: Rule = False
    mlp_bias: Rule = False
    head_bias: Rule = False
    gated: bool = True
    norm: Norm = RMS
    order: Order = "pre"
    qk_norm: Literal["", "head", "full"] = ""
    rotary: bool = True
    positions: int | None = None
    embedding_norm: Norm | None = None
    feed_factor: int = 0
    feed_part: int = 1
    sliding: int = 0
    vocabulary: int | None = None
    width: int | None = None
    feed: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int = 0
    head_width: int = 0


_LLAMA = Traits(
    "LlamaConfig",
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    mlp_bias="mlp_bias",
    vocabulary=32000,
    width=4096,
    feed=11008,
    layers=32,
    heads=32,
)
_MISTRAL = Traits("MistralConfig", sliding=1, vocabulary=32000, width=4096, feed=14336, layers=32, heads=32, kv_heads=8)
_QWEN2 = Traits("Qwen2Config", qkv_bias=True, vocabulary=151936, width=4096, feed=22016, layers=32, heads=32)
_QWEN3 = Traits(
    "Qwen3Config",
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    qk_norm="head",
    head_width=128,
    vocabulary=151936,
    width=4096,
    feed=22016,
    layers=32,
    heads=32,
)
_GEMMA = Traits(
    "GemmaConfig",
    tied=True,
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    vocabulary=256000,
    width=3072,
    feed=24576,
    layers=28,
    heads=16,
    kv_heads=16,
    head_width=256,
)
_GEMMA2 = replace(
    _GEMMA,
    reader="Gemma2Config",
    order="sandwich",
    sliding=2,
    width=2304,
    feed=9216,
    layers=26,
    heads=8,
    kv_heads=4,
)
_GEMMA3 = replace(_GEMMA2, reader="Gemma3TextConfig", qk_norm="head", sliding=6, vocabulary=262208)
_OLMO2 = Traits("Olmo2Config", qkv_bias="attention_bias", out_bias="attention_bias", order="after", qk_norm="full")
_COHERE = Traits(
    "CohereConfig",
    tied=True,
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    norm=Norm(bias=False),
    order="parallel-shared",
)
_GPT2 = Traits(
    "GPT2Config",
    tied=True,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    gated=False,
    norm=LAYER,
    rotary=False,
    positions=0,
    feed_factor=4,
)
_NEOX = Traits(
    "GPTNeoXConfig",
    qkv_bias="!attention_bias",
    out_bias="!attention_bias",
    mlp_bias=True,
    gated=False,
    norm=LAYER,
    order="parallel",
)

TRAITS = {
    "llama": _LLAMA,
    "granite": replace(_LLAMA, reader="GraniteConfig"),
    "mistral": _MISTRAL,
    "qwen": replace(_QWEN2, reader="QWenConfig", feed_part=2),
    "qwen2": _QWEN2,
    "qwen3": _QWEN3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "phi3": replace(_LLAMA, reader="Phi3Config", qkv_bias=False, out_bias=False, mlp_bias=False, sliding=1),
    "baichuan": Traits("BaichuanConfig"),
    "internlm": Traits("InternLMConfig", qkv_bias="!bias", out_bias="!bias"),
    "internlm2": Traits("InternLM2Config", qkv_bias="!bias", out_bias="!bias"),
    "chatglm": Traits("ChatGLMConfig", qkv_bias="add_qkv_bias", out_bias="add_bias_linear", mlp_bias="add_bias_linear"),
    "olmo": Traits("OlmoConfig", qkv_bias="attention_bias", out_bias="attention_bias", norm=Norm(scale=False)),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, reader="Olmo3Config", sliding=4),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, reader="Cohere2Config", sliding=4),
    "stablelm": Traits("StableLmConfig", qkv_bias="use_qkv_bias", norm=LAYER),
    "starcoder2": Traits(
        "Starcoder2Config",
        tied=True,
        qkv_bias="!use_bias",
        out_bias="!use_bias",
        mlp_bias="!use_bias",
        gated=False,
        norm=LAYER,
        sliding=1,
        kv_heads=2,
    ),
    "phi": Traits(
        "PhiConfig",
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        head_bias=True,
        gated=False,
        norm=LAYER,
        order="parallel-shared",
    ),
    "nemotron": Traits(
        "NemotronConfig",
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias="mlp_bias",
        gated=False,
        norm=LAYER,
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, reader="GPTBigCodeConfig"),
    "gpt_neox": _NEOX,
    "gptj": Traits(
        "GPTJConfig",
        mlp_bias=True,
        head_bias=True,
        gated=False,
        norm=LAYER,
        order="parallel-shared",
        feed_factor=4,
    ),
    "falcon": Traits(
        "FalconConfig",
        tied=True,
        qkv_bias="bias",
        out_bias="bias",
        mlp_bias="bias",
        gated=False,
        norm=LAYER,
        feed_factor=4,
    ),
    "opt": replace(_GPT2, reader="OPTConfig", positions=2, feed_factor=0),
    "bloom": replace(_GPT2, reader="BloomConfig", positions=None, embedding_norm=LAYER),
    "mpt": Traits("MptConfig", tied=True, gated=False, norm=Norm(bias=False), rotary=False, feed_factor=4),
}
"""Dense decoders, by ``model_type``; falcon, OPT and MPT have rules of their own besides."""
