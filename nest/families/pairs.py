"""Encoder-decoders, and encoders alone: two stacks, of which the second looks at the first in every layer."""

from __future__ import annotations

from dataclasses import dataclass

from nest.families.architecture import Architecture, Block, Link, Stack, Stream
from nest.families.decoder import TEXT, blocks_of
from nest.families.layers import Layer

SOURCE = "source"
"""Name of the encoder's stream, to which cross-attention looks."""

ENCODER, DECODER = "encoder", "decoder"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two stacks: what comes before its layers, the layers, what comes behind."""

    width: int
    before: tuple[Block, ...]
    layers: tuple[Layer, ...]
    behind: tuple[Block, ...] = ()

    def stack(self, name: str, stream: str) -> Stack:
        """Return it as a stack."""
        return Stack(name, stream, (*self.before, *blocks_of(self.layers, self.width), *self.behind))


def encoder_decoder(
    name: str,
    family: str,
    encoder: Side,
    decoder: Side,
    *,
    sequence: int = 0,
    source_tokens: int | None = None,
    notes: tuple[str, ...] = (),
) -> Architecture:
    """Return a model of an encoder and a decoder, whose layers each look at the end of the encoder."""
    first, second = encoder.stack(ENCODER, SOURCE), decoder.stack(DECODER, TEXT)
    end = (ENCODER, len(first.blocks) - 1)
    links = tuple(
        Link(end, (DECODER, place), encoder.width) for place, block in enumerate(second.blocks) if block.layer
    )
    streams = (Stream(SOURCE, source_tokens), Stream(TEXT))
    return Architecture(name, family, streams, (first, second), links, sequence, notes=notes)
