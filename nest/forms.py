"""What a stage is of: the variant whose figures its layers have, and how far it is sharded inside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """A way to spread each layer over devices, for which the model gives its costs.

    Parameters
    ----------
    tensor, expert, context
        Widths: devices that share each layer's matrices, its experts, its sequence.
    sequence
        Whether the ``tensor`` devices also share the sequence between the matrices.
    microbatch
        Sequences of one microbatch on one rank.
    """

    tensor: int
    expert: int = 1
    context: int = 1
    sequence: bool = False
    microbatch: int = 1

    def __str__(self) -> str:
        widths = f"tensor={self.tensor} expert={self.expert} context={self.context}"
        return f"({widths} sequence={str(self.sequence).lower()} microbatch={self.microbatch})"

    @property
    def width(self) -> int:
        """Devices of one stage before sharding."""
        return self.tensor * self.expert * self.context

    def with_tensor(self, tensor: int) -> Variant:
        """Return the same variant with another tensor width; a single rank shares no sequence with others."""
        return replace(self, tensor=tensor, sequence=self.sequence and tensor > 1)

    @property
    def units(self) -> tuple[int, ...]:
        """Neighbouring devices within which tensor, context and expert groups lie, above 1 and ascending."""
        through = (self.tensor, self.tensor * self.context, self.width)
        return tuple(sorted({unit for unit in through if unit > 1}))


class Form(NamedTuple):
    """What a stage is of, where stages of a plan may differ.

    Parameters
    ----------
    variant
        That of its figures: with the tensor width of the stage, and the sequences that each of its ranks takes.
    inside
        How many times as many devices it takes, between which it is sharded; 1 where it is not sharded inside.
    splits
        Whether these devices share the sequences of a microbatch, too, and do not only hold shards.
    """

    variant: Variant
    inside: int = 1
    splits: bool = False

    @property
    def width(self) -> int:
        """Devices of a stage."""
        return self.variant.width * self.inside

    @property
    def computing(self) -> int:
        """Devices of a stage that compute: the first, where the others only hold shards."""
        return self.width if self.splits else self.variant.width

    @property
    def whole(self) -> Variant:
        """The same variant with all sequences of the microbatch: that of a plan all of whose stages are as wide."""
        sequences = self.variant.microbatch * (self.inside if self.splits else 1)
        return replace(self.variant, microbatch=sequences)

    @property
    def units(self) -> tuple[int, ...]:
        """Neighbouring devices within which groups of a stage lie, above 1 and ascending."""
        return tuple(sorted({*self.variant.units, self.width} - {1}))
