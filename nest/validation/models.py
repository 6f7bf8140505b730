"""The models that were measured, by the names that the tables give them."""

from __future__ import annotations

from dataclasses import replace

from nest.families import Architecture, Hyperparameters, from_hyperparameters
from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.feeds import Mlp
from nest.families.layers import Layer
from nest.families.parts import LAYER, Norm

LLAMA3 = {
    "8b": Hyperparameters("llama", 32, 4096, 32, 8, ffn=14336, vocab=128256),
    "70b": Hyperparameters("llama", 80, 8192, 64, 8, ffn=28672, vocab=128256),
    "405b": Hyperparameters("llama", 126, 16384, 128, 8, ffn=53248, vocab=128256),
}
"""Llama 3 and 3.1 (arXiv 2407.21783, table 3)."""

LATENT = Hyperparameters("moe", 60, 5120, 128, experts=160, dense_layers=1, query_rank=1536, latent_rank=512)

CUT = {
    "llama3_70b": LLAMA3["70b"],
    "llama3_405b": Hyperparameters("llama", 126, 16384, 128, 16, ffn=53248, vocab=128256),
    "deepseekv2": replace(
        LATENT, hidden=5120, ffn=12288, vocab=102400, experts=160, top_k=6, expert_ffn=1536, shared_ffn=3072
    ),
    "deepseekv3": replace(
        LATENT, hidden=7168, ffn=18432, vocab=129280, experts=256, top_k=8, expert_ffn=2048, shared_ffn=2048
    ),
}
"""Models of which the measurements on B200 take a few layers; 16 key-value heads of the 405B as its authors have it."""

MPT = {
    "70b": (8192, 80, 64),
    "30b": (7168, 48, 56),
    "13b": (5120, 40, 40),
    "7b": (4096, 32, 32),
    "3b": (2560, 32, 20),
    "1b": (2048, 24, 16),
    "760m": (1536, 24, 12),
    "350m": (1024, 24, 16),
    "125m": (768, 12, 12),
}
"""Width, layers and heads of MPT by size (llm-foundry); with them the parameters are those that it prints."""


def gpt(layers: int, hidden: int, heads: int, vocabulary: int, sequence: int = 2048) -> Architecture:
    """Return a GPT with dropout, as Megatron-LM trains it."""
    return from_hyperparameters(Hyperparameters("gpt", layers, hidden, heads, vocab=vocabulary, seq=sequence))


def plain_gpt(layers: int, hidden: int, heads: int, vocabulary: int, sequence: int, *, ffn: int = 0) -> Architecture:
    """Return a GPT without dropout."""
    attention = Attention(
        heads,
        heads,
        hidden // heads,
        query_bias=True,
        key_bias=True,
        value_bias=True,
        out_bias=True,
        rotary=False,
    )
    layer = Layer(attention, Mlp(ffn or 4 * hidden, gated=False, bias=True, out_bias=True), norm=LAYER)
    decoder = Decoder(
        hidden, (layer,) * layers, vocabulary, tied=True, norm=LAYER, positions=sequence, sequence=sequence
    )
    return decoder.architecture("", "gpt")


def mpt(size: str, sequence: int) -> Architecture:
    """Return an MPT model."""
    hidden, layers, heads = MPT[size]
    return plain_gpt(layers, hidden, heads, 50368, sequence)


def bare_gpt(layers: int, hidden: int, heads: int) -> Architecture:
    """Return the layers of a GPT with dropout, matrices alone: no biases, no embedding, no head."""
    norm = Norm(bias=False, scale=False)
    attention = Attention(heads, heads, hidden // heads, rotary=False, dropout=True)
    layer = Layer(attention, Mlp(4 * hidden, gated=False), norm=norm, dropout=True)
    return Decoder(hidden, (layer,) * layers, 0, norm=None).architecture("", "gpt")
