"""A captured module: layers with their work, what they keep and send, all by the sequences of a microbatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal, TypeAlias

from nest.errors import InvalidProblem

Work: TypeAlias = Literal["product", "attention", "moved"]
"""What bounds a kernel: the matrix units, fused attention, or memory alone."""


@dataclass(frozen=True, slots=True)
class Affine:
    """A number that grows with the sequences of a microbatch.

    Parameters
    ----------
    fixed
        Part that does not depend on them.
    each
        What every sequence adds.
    """

    fixed: int
    each: int

    @classmethod
    def through(cls, points: Sequence[tuple[int, int]]) -> Affine | None:
        """Return the line through points (sequences, number), the first two of which make it; None if one is off it.

        A number is off it, too, where its line has no whole coefficients.
        """
        (one, low), (two, high) = points[:2]
        slope = Fraction(high - low, two - one)
        if slope.denominator != 1:
            return None
        line = cls(low - int(slope) * one, int(slope))
        return line if all(line.at(at) == number for at, number in points) else None

    @classmethod
    def above(cls, points: Sequence[tuple[int, int]]) -> Affine:
        """Return a line on or above all points, as steep as the last two: for the larger of several growing numbers."""
        (one, low), (two, high) = points[-2:]
        slope = ceil(Fraction(high - low, two - one))
        return cls(max(number - slope * at for at, number in points), slope)

    def at(self, microbatch: int) -> int:
        """Return the number for a microbatch of so many sequences."""
        return self.fixed + self.each * microbatch

    def __add__(self, other: Affine) -> Affine:
        """Return the sum."""
        return Affine(self.fixed + other.fixed, self.each + other.each)


NOTHING = Affine(0, 0)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Kernels of one kind and size.

    Parameters
    ----------
    name
        Operator, as in ``aten.mm``.
    work
        What bounds it.
    flops
        As `torch.utils.flop_counter` counts them.
    bytes
        Read and written, every tensor once.
    shape
        Of a product: how many, rows, inner, columns. Of attention: operations that count (of a causal mask the lower
        half), width of a head, blocks of 128 queries. Else empty.
    count
        How many such kernels.
    """

    name: str
    work: Work
    flops: Affine
    bytes: Affine
    shape: tuple[Affine, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """What layers of one structure do.

    Parameters
    ----------
    forward, backward
        Kernels of both passes.
    working_bytes
        The most that the backward pass has in use at a time on top of what was kept, weight gradients one at a time.
    """

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    working_bytes: Affine

    @property
    def forward_flops(self) -> Affine:
        """FLOPs of the forward pass."""
        return _flops(self.forward)

    @property
    def backward_flops(self) -> Affine:
        """FLOPs of the backward pass."""
        return _flops(self.backward)


def _flops(kernels: Sequence[Kernel]) -> Affine:
    each = [Affine(kernel.count * kernel.flops.fixed, kernel.count * kernel.flops.each) for kernel in kernels]
    return sum(each, NOTHING)


@dataclass(frozen=True, slots=True)
class CapturedLayer:
    """One layer.

    Parameters
    ----------
    name
        Where it is in the module.
    kind
        Whose `Figures` it has.
    parameters, tied
        Numbers in its parameters: those that no earlier layer has, and those that one has.
    kept
        Bytes kept for the backward pass, of storages that no earlier layer keeps.
    entering
        The same where blocks compute again and keep only what enters them.
    repeats
        Whether recomputation repeats it, as it does the blocks of a row.
    """

    name: str
    kind: str
    parameters: int
    tied: int
    kept: Affine
    entering: Affine
    repeats: bool


@dataclass(frozen=True, slots=True)
class CapturedEdge:
    """Tensors from one place in the order of layers to a later one; no bytes where it only says what runs first."""

    source: int
    target: int
    bytes: Affine


@dataclass(frozen=True)
class Captured:
    """A module as layers.

    Parameters
    ----------
    name
        Module and factory.
    inputs
        As given.
    batch
        Sequences of the smallest batch that was captured.
    linear
        Whether everything is affine in the sequences; if not, the figures are those of `batch` alone.
    dtype
        Of the matrix products.
    sequence
        Tokens of a sequence, 0 if inputs have none.
    how
        ``export``, or ``hooks`` on submodules.
    layers, figures, edges
        In the order in which they run; by kind; ascending.
    torch
        Version that captured it.
    notes
        What was assumed or left out, one sentence each.

    Raises
    ------
    InvalidProblem
        If there is no layer, a layer is of no kind, or an edge leads nowhere.
    """

    name: str
    inputs: tuple[str, ...]
    batch: int
    linear: bool
    dtype: str
    sequence: int
    how: Literal["export", "hooks"]
    layers: tuple[CapturedLayer, ...]
    figures: dict[str, Figures]
    edges: tuple[CapturedEdge, ...]
    torch: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidProblem("layers", "there is none", "give at least one")
        for at, layer in enumerate(self.layers):
            if layer.kind not in self.figures:
                raise InvalidProblem(f"layers[{at}].kind", f"{layer.kind!r} has no figures", "name one of `figures`")
        for at, edge in enumerate(self.edges):
            if not 0 <= edge.source < edge.target < len(self.layers):
                what = f"{edge.source} -> {edge.target}"
                raise InvalidProblem(f"edges[{at}]", what, f"give places from 0 to {len(self.layers) - 1}, ascending")

    @property
    def parameters(self) -> int:
        """Numbers in all parameters, shared ones counted once."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def kept(self) -> Affine:
        """Bytes that the whole module keeps for its backward pass."""
        return sum((layer.kept for layer in self.layers), NOTHING)

    @property
    def forward_flops(self) -> Affine:
        """FLOPs of the forward pass."""
        return sum((self.figures[layer.kind].forward_flops for layer in self.layers), NOTHING)

    @property
    def backward_flops(self) -> Affine:
        """FLOPs of the backward pass."""
        return sum((self.figures[layer.kind].backward_flops for layer in self.layers), NOTHING)
