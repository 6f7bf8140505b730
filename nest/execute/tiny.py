"""The model that stands in for the plan's: a decoder of the same number of layers, small enough for a few processes."""

from __future__ import annotations

from dataclasses import dataclass

from nest.errors import InvalidProblem
from nest.families import Architecture
from nest.families.attention import Attention
from nest.families.decoder import Decoder
from nest.families.feeds import Experts, Mlp
from nest.families.layers import Layer
from nest.families.parts import LAYER

ENDS = 2
"""Layers that are no blocks: the embedding comes first, the head last."""

CHOSEN = 2
"""Experts that a token passes."""

MOST_BLOCKS = 2000
"""More are not trained: it would take hours."""


@dataclass(frozen=True, slots=True)
class Tiny:
    """A decoder-only transformer in fp32: LayerNorm, biases but for the keys, GELU, fixed positions, an untied head.

    With experts each token passes two of them in every block, whatever that does to the balance of the load.

    The gradient of a key's bias is zero but for rounding, which Adam would blow up to whole steps; hence there is none.

    Parameters
    ----------
    blocks
        Layers between embedding and head.
    hidden, heads, ffn, vocab
        Width, heads, width of the MLP, tokens of the vocabulary.
    sequence
        Tokens of a sequence.
    experts
        Routed experts of a block; 0 for an MLP instead.

    Raises
    ------
    InvalidProblem
        If there is no block, or there are too many to train on this machine.
    """

    blocks: int
    hidden: int = 64
    heads: int = 4
    ffn: int = 256
    vocab: int = 128
    sequence: int = 32
    experts: int = 0

    def __post_init__(self) -> None:
        if self.blocks > MOST_BLOCKS:
            what = f"{self.blocks} between embedding and head"
            raise InvalidProblem("layers", what, f"give at most {MOST_BLOCKS} with --layers")
        if self.blocks < 1:
            what = f"{self.layers}, and the tiny model has an embedding, at least one block and a head"
            raise InvalidProblem("layers", what, "give a number of blocks with --layers")

    @property
    def layers(self) -> int:
        """Layers as plans count them, embedding and head included."""
        return self.blocks + ENDS

    def architecture(self) -> Architecture:
        """Return the model as `nest.costing` prices it."""
        attention = Attention(
            self.heads,
            self.heads,
            self.hidden // self.heads,
            query_bias=True,
            value_bias=True,
            out_bias=True,
            rotary=False,
        )
        mlp = Mlp(self.ffn, gated=False, bias=True, out_bias=True)
        layer = Layer(attention, Experts(self.experts, CHOSEN, mlp) if self.experts else mlp, norm=LAYER)
        return Decoder(self.hidden, (layer,) * self.blocks, self.vocab, norm=LAYER).architecture("tiny", "tiny")
