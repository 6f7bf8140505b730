"""Weights: what a layer learns, and how devices can share it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod


class Split(Enum):
    """How tensor parallel cuts a matrix ``y = W x`` with ``W`` of shape (outputs, inputs), as Megatron-LM does.

    `COLUMN` cuts the outputs, `ROW` the inputs (the results are summed afterwards), `VOCABULARY` the rows of a table
    with one row per token of the vocabulary, and `REPLICATED` is whole on every device.
    """

    COLUMN = "column"
    ROW = "row"
    VOCABULARY = "vocabulary"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class Weight:
    """One learned array.

    Parameters
    ----------
    name
        Name within its component.
    shape
        Lengths of its axes: (outputs, inputs) of a matrix; of a routed weight, those of one expert.
    split
        How tensor parallel cuts it.
    parts
        Pieces into which it can be cut, as a matrix of keys has one per key-value head; wider tensor parallel keeps
        copies. 0 where any divisor of the axis will do.
    experts, chosen
        Routed experts that each have such an array, and how many of them one token passes; 0 where nothing is routed.
    tied
        Whether the array is the embedding table again: stored with it, used here, counted once.
    """

    name: str
    shape: tuple[int, ...]
    split: Split = Split.REPLICATED
    parts: int = 0
    experts: int = 0
    chosen: int = 0
    tied: bool = False

    @property
    def elements(self) -> int:
        """Numbers in it, all experts together, tied or not."""
        return prod(self.shape) * (self.experts or 1)

    @property
    def parameters(self) -> int:
        """Parameters that it adds to the model."""
        return 0 if self.tied else self.elements

    @property
    def active_parameters(self) -> int:
        """Parameters among them that one token passes."""
        return self.parameters // self.experts * self.chosen if self.experts else self.parameters

    @property
    def routed(self) -> bool:
        """Whether each expert has its own, so that expert parallel spreads it."""
        return self.experts > 0
