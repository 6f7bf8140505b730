"""Layers: sublayers with norms and residual sums around them, in the orders that models use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from nest.families.architecture import Block, Component
from nest.families.operators import Exchange, Tensor
from nest.families.parts import RMS, Bench, Norm, norm_component

Order: TypeAlias = Literal["pre", "post", "after", "sandwich", "parallel", "parallel-shared"]
"""Where the norms are.

``pre``: before each sublayer (most decoders). ``post``: behind each residual sum (BERT). ``after``: behind each
sublayer, before its sum (OLMo-2). ``sandwich``: before and behind each sublayer (Gemma-2). ``parallel``: attention and
MLP read the same input through a norm each, and are summed at once (GPT-NeoX); ``parallel-shared``: through one norm
(GPT-J, Cohere).
"""


class Sublayer(Protocol):
    """What turns a tensor into one of the same width."""

    @property
    def kind(self) -> str:
        """What people read."""

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its components, of unique names that begin with ``name``."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a stack.

    Parameters
    ----------
    mixer
        What mixes tokens: attention, a state-space layer; None where a block has none.
    feed
        What follows: an MLP, experts; None where a block has none.
    cross
        Attention to another stack, between the two.
    order
        Where the norms are.
    norm
        What kind they are.
    dropout
        Whether the output of each sublayer is dropped in part, which keeps a mask.
    scalars
        Single numbers that it learns besides (gates of cross-attention layers).
    """

    mixer: Sublayer | None
    feed: Sublayer | None
    cross: Sublayer | None = None
    order: Order = "pre"
    norm: Norm = RMS
    dropout: bool = False
    scalars: int = 0

    @property
    def kind(self) -> str:
        """Kinds of its sublayers, as in ``attention+moe``."""
        return "+".join(sublayer.kind for _, sublayer in self._sublayers()) or "empty"

    def block(self, width: int) -> Block:
        """Return the layer as a block of that width."""
        parts = self._together(width) if self.order.startswith("parallel") else self._in_turn(width)
        components = tuple(parts)
        if self.scalars:
            bench = Bench("scalars", "norm")
            bench.learn("scalars", self.scalars)
            components = (*components, bench.done())
        return Block(self.kind, components, width)

    def _sublayers(self) -> Iterator[tuple[str, Sublayer]]:
        for name, sublayer in (("mixer", self.mixer), ("cross", self.cross), ("feed", self.feed)):
            if sublayer is not None:
                yield name, sublayer

    def _in_turn(self, width: int) -> Iterator[Component]:
        stream = Tensor("input", width)
        for name, sublayer in self._sublayers():
            source = stream
            if self.order in ("pre", "sandwich"):
                norm, source = norm_component(f"{name}_norm", self.norm, width, stream)
                yield norm
            yield from sublayer.build(name, width, source)
            if self.order in ("after", "sandwich"):
                yield norm_component(f"{name}_behind", self.norm, width, Tensor(f"{name}.out", width))[0]
            yield self._sum(name, width)
            stream = Tensor(f"{name}_sum.out", width)
            if self.order == "post":
                norm, stream = norm_component(f"{name}_norm", self.norm, width, stream)
                yield norm

    def _together(self, width: int) -> Iterator[Component]:
        stream = Tensor("input", width)
        norm, source = norm_component("norm", self.norm, width, stream)
        yield norm
        for at, (name, sublayer) in enumerate(self._sublayers()):
            if at and self.order == "parallel":
                norm, source = norm_component(f"{name}_norm", self.norm, width, stream)
                yield norm
            yield from sublayer.build(name, width, source)
        yield self._sum("layer", width)

    def _sum(self, name: str, width: int) -> Component:
        """Return the residual sum, behind the collective that tensor parallel needs there."""
        bench = Bench(f"{name}_sum", "residual")
        bench.add(Exchange("sum", "all-reduce", width))
        if self.dropout:
            mask = Tensor(f"{name}_sum.mask", width, element="mask")
            bench.work("dropout", "dropout", width, width, keeps=(mask,))
        bench.work("residual", "residual", 2 * width, width)
        return bench.done()
