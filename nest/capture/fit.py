"""Figures at several batches as lines in the sequences of a microbatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nest.capture.captured import Affine, CapturedEdge, CapturedLayer, Figures, Kernel
from nest.capture.compose import Placed, Shares, Sized, compose
from nest.capture.recorder import Op

Layers: TypeAlias = tuple[tuple[CapturedLayer, ...], dict[str, Figures], tuple[CapturedEdge, ...]]


class Bent(Exception):
    """Something does not grow with the batch as a line."""


@dataclass(frozen=True)
class Fit:
    """A module at one or several batches.

    Parameters
    ----------
    batches
        Sequences of each.
    sized
        The module at each.
    """

    batches: tuple[int, ...]
    sized: tuple[Sized, ...]

    def layers(self) -> Layers:
        """Return layers, figures by kind, and edges.

        Raises
        ------
        Bent
            If the batches differ in structure, or a number is off its line.
        """
        if len({tuple(piece.kind for piece in each.pieces) for each in self.sized}) > 1:
            raise Bent
        shares = [compose(each) for each in self.sized]
        if len({tuple(each.sent) for each in shares}) > 1:
            raise Bent
        names = kind_names(self.sized[0].pieces)
        first = {piece.kind: at for at, piece in reversed(list(enumerate(self.sized[0].pieces)))}
        figures = {names[kind]: self._figures(first[kind]) for kind in sorted(first)}
        layers = tuple(self._layer(at, names, shares) for at in range(len(self.sized[0].pieces)))
        edges = (CapturedEdge(*ends, self._line([each.sent[ends] for each in shares])) for ends in shares[0].sent)
        return layers, figures, tuple(edges)

    def _layer(self, at: int, names: dict[int, str], shares: Sequence[Shares]) -> CapturedLayer:
        piece = self.sized[0].pieces[at]
        return CapturedLayer(
            piece.name or piece.label,
            names[piece.kind],
            shares[0].parameters[at],
            shares[0].tied[at],
            self._line([each.kept[at] for each in shares]),
            self._line([each.entering[at] for each in shares]),
            piece.block,
        )

    def _figures(self, at: int) -> Figures:
        measured = [each.pieces[at].measured for each in self.sized]
        return Figures(
            self._kernels([each.forward for each in measured]),
            self._kernels([each.backward for each in measured]),
            self._most([each.working_bytes for each in measured]),
        )

    def _kernels(self, passes: Sequence[Sequence[Op]]) -> tuple[Kernel, ...]:
        """Return the kernels of a pass; equal ones are counted, in the order of the first of them."""
        if len({tuple((op.name, op.work) for op in each) for each in passes}) > 1:
            raise Bent
        counts = Counter(self._kernel(ops) for ops in zip(*passes, strict=True))
        return tuple(
            Kernel(each.name, each.work, each.flops, each.bytes, each.shape, count) for each, count in counts.items()
        )

    def _kernel(self, ops: Sequence[Op]) -> Kernel:
        shape = (self._line(lengths) for lengths in zip(*(op.shape for op in ops), strict=True))
        flops, size = self._line([op.flops for op in ops]), self._line([op.bytes for op in ops])
        return Kernel(ops[0].name, ops[0].work, flops, size, tuple(shape))

    def _most(self, numbers: Sequence[int]) -> Affine:
        """Return a line through, or on and above, a number that is the larger of several: it may have kinks."""
        points = list(zip(self.batches, numbers, strict=True))
        return Affine(numbers[0], 0) if len(points) == 1 else Affine.through(points) or Affine.above(points)

    def _line(self, numbers: Sequence[int]) -> Affine:
        """Return the line through the numbers at each batch; that of a single batch is level."""
        if len(numbers) == 1:
            return Affine(numbers[0], 0)
        line = Affine.through(list(zip(self.batches, numbers, strict=True)))
        if line is None:
            raise Bent
        return line


def kind_names(pieces: Sequence[Placed]) -> dict[int, str]:
    """Return a name for each structure: what it is, with a number where several structures are that."""
    names: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for piece in pieces:
        if piece.kind not in names:
            seen[piece.label] += 1
            names[piece.kind] = piece.label if seen[piece.label] == 1 else f"{piece.label}-{seen[piece.label]}"
    return names
