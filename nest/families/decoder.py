"""Decoders: embedding, layers, head, in one stack over one stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from nest.families.architecture import Architecture, Block, Extra, Stack, Stream
from nest.families.ends import Embedding, Head, norm_block
from nest.families.layers import Layer
from nest.families.parts import RMS, Norm

TEXT = "text"
"""Name of a decoder's stack and of its stream."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder-only model before it is taken apart.

    Parameters
    ----------
    width
        Of the residual stream.
    layers
        In order.
    vocabulary
        Rows of the embedding table; 0 where the file holds none, which leaves out embedding and head.
    tied
        Whether the head uses that table.
    norm
        The kind of the last norm; None where there is none.
    positions
        Rows of a table of learned positions; 0 for none.
    sequence
        The longest sequence; 0 if nothing says so.
    embedding_norm, dropout, table_width, head_bias
        As in `Embedding` and `Head`.
    further_rows
        Rows that the embedding table has and the head has not (special tokens of Llama-3.2-Vision).
    extras, notes
        As in `Architecture`.
    """

    width: int
    layers: tuple[Layer, ...]
    vocabulary: int
    tied: bool = False
    norm: Norm | None = RMS
    positions: int = 0
    sequence: int = 0
    embedding_norm: Norm | None = None
    dropout: bool = False
    table_width: int = 0
    head_bias: bool = False
    further_rows: int = 0
    extras: tuple[Extra, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def stack(self) -> Stack:
        """Return it as a stack."""
        blocks = tuple(blocks_of(self.layers, self.width))
        if not self.vocabulary:
            behind = (norm_block(self.norm, self.width),) if self.norm else ()
            return Stack(TEXT, TEXT, (*blocks, *behind))
        embedding = Embedding(
            self.vocabulary + self.further_rows,
            self.width,
            table_width=self.table_width,
            positions=self.positions,
            norm=self.embedding_norm,
            dropout=self.dropout,
        )
        head = Head(self.vocabulary, self.width, self.tied, self.head_bias, self.norm, self.table_width)
        return Stack(TEXT, TEXT, (embedding.block(), *blocks, head.block()))

    def architecture(self, name: str, family: str) -> Architecture:
        """Return it as a model of one stack."""
        return Architecture(
            name,
            family,
            (Stream(TEXT),),
            (self.stack(),),
            sequence=self.sequence,
            extras=self.extras,
            notes=self.notes,
        )


def blocks_of(layers: tuple[Layer, ...], width: int) -> list[Block]:
    """Return a block for each layer; equal layers share one, since most models have few kinds of them."""
    made = {layer: layer.block(width) for layer in dict.fromkeys(layers)}
    return [made[layer] for layer in layers]
