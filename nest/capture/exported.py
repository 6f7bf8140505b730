"""A module at one batch, through `torch.export`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nest.capture.build import tensors
from nest.capture.compose import Placed, Sized
from nest.capture.inputs import Input
from nest.capture.measure import Measured, measure
from nest.capture.pieces import Piece, cut
from nest.capture.trace import Traced, trace
from nest.capture.units import units_of

KERNELS_OF = "cpu"
"""Device whose kernels are taken: of those that autograd records without hardware, the ones that fuse attention."""


def exported(module: Any, inputs: Sequence[Input], factor: int, dtype: str, *, fused: bool = True) -> Sized:
    """Capture a module on the meta device at so many times the batch.

    Parameters
    ----------
    fused
        As in `nest.capture.trace.trace`.

    Raises
    ------
    ExportFailed
        If torch cannot see through it.
    """
    traced = trace(module, tensors(inputs, factor, "meta", dtype), KERNELS_OF, fused=fused)
    pieces = cut(traced, units_of(module))
    given = {node.name: size_of(value) for node, value in traced.given.items() if hasattr(value, "numel")}
    return Sized(tuple(_Measuring(module, traced).placed(pieces)), given)


class _Measuring:
    """Measures pieces in order, those of one structure once."""

    def __init__(self, module: Any, traced: Traced) -> None:
        self.module, self.traced = module, traced
        self._made: dict[tuple[object, ...], tuple[int, Measured]] = {}
        self._grads: dict[Any, bool] = {}
        self._constant = _constants(traced)

    def placed(self, pieces: Sequence[Piece]) -> list[Placed]:
        """Return what each piece is, needs and makes, in their order."""
        return [self._placed(piece, at, len(pieces)) for at, piece in enumerate(pieces)]

    def _placed(self, piece: Piece, at: int, count: int) -> Placed:
        kind, measured = self._measured(piece)
        self._grads.update(zip(piece.outputs, (wants for *_, wants in measured.outputs), strict=True))
        weights = [self.traced.weights[node] for node in piece.weights]
        return Placed(
            piece.name,
            label(self.module, piece.name, [str(node.target) for node in piece.nodes], at, count),
            kind,
            piece.block,
            tuple(node.name for node in piece.inputs),
            tuple(node.name for node in piece.outputs),
            tuple(size_of(node.meta["val"]) for node in piece.outputs),
            {each.name: each.value.numel() for each in weights if each.parameter},
            measured,
            frozenset(node.name for node in piece.outputs if node in self._constant),
        )

    def _measured(self, piece: Piece) -> tuple[int, Measured]:
        grads = [self._grads.get(node, False) for node in piece.inputs]
        signature = piece.signature(self.traced, grads)
        if signature not in self._made:
            self._made[signature] = len(self._made), measure(piece, self.traced, grads, KERNELS_OF)
        return self._made[signature]


def label(module: Any, path: str, operators: Sequence[str], at: int, count: int) -> str:
    """Return what a layer is, for people to read: the class of its submodule, or its part of the whole."""
    if "+" in path or (not path and count > 1):
        looks_up = any(name.startswith("aten.embedding") for name in operators)
        return "embedding" if looks_up else "stem" if not at else "head" if at == count - 1 else "middle"
    try:
        return str(type(module.get_submodule(path)).__name__).lower()
    except AttributeError:
        return "block" if at else "stem"


def size_of(value: Any) -> int:
    """Return the bytes of a tensor as it is sent; 0 for what is none."""
    return int(value.numel() * value.element_size()) if hasattr(value, "element_size") else 0


def _constants(traced: Traced) -> set[Any]:
    """Return the nodes that depend on no input and no parameter."""
    found = {node for node, weight in traced.weights.items() if not weight.parameter} | set(traced.inner)
    for node in traced.nodes:
        if all(each in found for each in node.all_input_nodes):
            found.add(node)
    return found
