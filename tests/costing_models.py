"""Models and networks for tests of costs."""

from __future__ import annotations

from nest.families import Architecture, Hyperparameters, from_hyperparameters
from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.feeds import Mlp
from nest.families.layers import Layer
from nest.families.parts import Norm

BARE = Norm(bias=False, scale=False)
"""A norm that learns nothing, so that a layer has the 12 h^2 parameters of formulas and no more."""


def bare_gpt(layers: int, hidden: int, heads: int) -> Architecture:
    """Return the layers of a GPT with dropout, matrices alone: no biases, no embedding, no head."""
    attention = Attention(heads, heads, hidden // heads, rotary=False, dropout=True)
    layer = Layer(attention, Mlp(4 * hidden, gated=False), norm=BARE, dropout=True)
    return Decoder(hidden, (layer,) * layers, 0, norm=None).architecture("bare", "gpt")


def small(family: str) -> Architecture:
    """Return a small model of a family."""
    experts = {"experts": 8, "top_k": 2, "expert_ffn": 512, "shared_ffn": 512} if family == "moe" else {}
    return from_hyperparameters(
        Hyperparameters(family, 4, 1024, 16, 0 if family in ("bert", "t5") else 4, seq=1024, **experts)  # type: ignore[arg-type]
    )


FAMILIES = ("gpt", "llama", "moe", "bert", "t5")
