"""Encoders over patches of images, and their projectors: the vision side of multimodal models."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nest.families.architecture import Architecture, Block, Component, Link, Stack, Stream
from nest.families.decoder import TEXT, Decoder, blocks_of
from nest.families.ends import Patches, last_norm
from nest.families.layers import Layer
from nest.families.operators import Rows
from nest.families.parts import Bench, Norm

VISION = "vision"
"""Name of a vision tower's stack and of its stream."""


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision tower.

    Parameters
    ----------
    width
        Of its residual stream.
    patches
        What makes vectors of patches.
    layers
        In order.
    tokens
        Patches of one image, class tokens included.
    norm
        The norm behind the last layer; None for none.
    behind
        What follows: a pooler, a classifier, a projector.
    merged
        Rows per patch that leave it: 1/4 where four patches become one.
    """

    width: int
    patches: Patches
    layers: tuple[Layer, ...]
    tokens: int
    norm: Norm | None = None
    behind: tuple[Block, ...] = ()
    merged: Rows = 1

    def stack(self) -> Stack:
        """Return it as a stack."""
        normed: tuple[Block, ...] = ()
        if self.norm:
            part: Component = last_norm(self.norm, self.width)
            normed = (Block("norm", (part,), self.width, layer=False),)
        blocks = (self.patches.block(), *blocks_of(self.layers, self.width), *normed, *self.behind)
        return Stack(VISION, VISION, blocks)

    def architecture(self, name: str, family: str, notes: tuple[str, ...] = ()) -> Architecture:
        """Return the tower as a model of its own."""
        stream = Stream(VISION, self.tokens)
        return Architecture(name, family, (stream,), (self.stack(),), sequence=self.tokens, notes=notes)


def multimodal(name: str, family: str, tower: Tower, decoder: Decoder, notes: tuple[str, ...] = ()) -> Architecture:
    """Return a tower that feeds a decoder: its first layer, or those that have cross-attention.

    One image per sequence is assumed; what the tower makes of it enters the decoder's stream in place of tokens.
    """
    vision, text = replace(tower.stack(), aside=True), decoder.stack()
    first = next(place for place, block in enumerate(text.blocks) if block.layer)
    crossing = [place + first for place, layer in enumerate(decoder.layers) if "cross_attention" in layer.kind]
    source, width = (VISION, len(vision.blocks) - 1), vision.blocks[-1].width
    links = tuple(Link(source, (TEXT, place), width, tower.merged) for place in crossing or [first])
    return Architecture(
        name,
        family,
        (Stream(VISION, tower.tokens), Stream(TEXT)),
        (vision, text),
        links,
        decoder.sequence,
        decoder.extras,
        (*decoder.notes, *notes, f"one image of {tower.tokens} patches per sequence"),
    )


def facing(
    name: str, family: str, tower: Tower, words: Stack, context: int, *, scalars: int = 1, notes: tuple[str, ...] = ()
) -> Architecture:
    """Return a tower over images and one over text that meet in products of what leaves them, as in CLIP.

    Parameters
    ----------
    words
        The tower over text; what leaves both is equally wide.
    context
        Tokens of a text.
    scalars
        Single numbers that the products are scaled and shifted by.
    """
    images = tower.stack()
    meeting = Bench("contrast", "head")
    meeting.learn("scale", scalars)
    join = Stack("contrast", TEXT, (Block("contrast", (meeting.done(),), 1, layer=False),))
    links = tuple(
        Link((each.name, len(each.blocks) - 1), ("contrast", 0), each.blocks[-1].width) for each in (images, words)
    )
    streams = (Stream(VISION, tower.tokens), Stream(TEXT, context))
    return Architecture(name, family, streams, (images, words, join), links, context, notes=notes)
