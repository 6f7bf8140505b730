"""Times of the layers of a module, those of one structure once, by the kinds that `nest capture` gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from nest.capture.build import tensors
from nest.capture.compose import Sized
from nest.capture.exported import exported
from nest.capture.fit import kind_names
from nest.capture.pieces import Piece, cut
from nest.capture.run import Asked, product_dtype, tokens_of
from nest.capture.trace import ExportFailed, Traced, trace
from nest.capture.units import units_of
from nest.costing import Measurement
from nest.errors import InvalidProblem
from nest.profile.timing import Timer, within_memory


@dataclass(frozen=True)
class ModuleProfile:
    """What is to be measured of a module.

    Parameters
    ----------
    asked
        The module.
    microbatches
        Sequences; multiples of the batch of its inputs.
    timer
        On which device, how often.
    """

    asked: Asked
    microbatches: tuple[int, ...]
    timer: Timer

    def measured(self) -> list[Measurement]:
        """Return the measurements.

        Raises
        ------
        InvalidProblem
            If torch cannot see through the module, a microbatch is no multiple of the batch of the inputs, or the
            device has not the memory.
        """
        try:
            sized = exported(self.asked.module, self.asked.inputs, 1, self.asked.dtype)
            with within_memory(self.timer.device):
                return [row for microbatch in self.microbatches for row in self._rows(sized, microbatch)]
        except ExportFailed as failure:
            remedy = "give inputs that it takes, and write it so that torch.export can see through it"
            raise InvalidProblem(self.asked.name, f"torch.export failed: {failure}", remedy) from None

    def _rows(self, sized: Sized, microbatch: int) -> Iterator[Measurement]:
        asked = self.asked
        if microbatch % asked.batch:
            what = f"{microbatch} is no multiple of the {asked.batch} sequences of the inputs"
            raise InvalidProblem("--microbatch", what, "give inputs of one sequence, or other microbatches")
        given = tensors(asked.inputs, microbatch // asked.batch, "meta", asked.dtype)
        traced = trace(asked.module, given, self.timer.device, fused=True)
        pieces = cut(traced, units_of(asked.module))
        for name, place in _first(sized).items():
            forward, backward = self._passes(traced, pieces[place], _wanted(sized))
            yield Measurement(
                name,
                microbatch,
                1,
                forward,
                backward,
                sequence=tokens_of(asked.inputs) or None,
                dtype=product_dtype(asked.module),
                source=f"nest profile, {self.timer.name}, torch {torch.__version__}",
            )

    def _passes(self, traced: Traced, piece: Piece, wanted: set[object]) -> tuple[float, float]:
        inputs = [self._drawn(piece, node, grad=node.name in wanted) for node in piece.inputs]
        weights = [self._weight(traced, node) for node in piece.weights]

        return self.timer.passes(lambda taken: piece.run(traced, taken, weights), inputs, weights)

    def _drawn(self, piece: Piece, node: Any, *, grad: bool) -> Any:
        """Return a value for an input: numbers at random, tokens from the table in which they are looked up."""
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype.is_floating_point:
            drawn = torch.randn(value.shape, dtype=value.dtype, device=self.timer.device)
            return drawn.requires_grad_(grad)
        tables = [user.args[0] for user in node.users if user in piece.nodes and "embedding" in str(user.target)]
        most = min((each.meta["val"].shape[0] for each in tables), default=1)
        return torch.randint(most, value.shape, device=self.timer.device).to(value.dtype)

    def _weight(self, traced: Traced, node: Any) -> Any:
        weight = traced.weights[node]
        value = torch.empty(weight.value.shape, dtype=weight.value.dtype, device=self.timer.device)
        value = value.normal_(0, 0.02) if value.dtype.is_floating_point else value.zero_()
        return value.requires_grad_(weight.parameter and weight.value.requires_grad)


def _first(sized: Sized) -> dict[str, int]:
    """Return the first layer of each kind, by name."""
    names = kind_names(sized.pieces)
    first: dict[str, int] = {}
    for at, piece in enumerate(sized.pieces):
        first.setdefault(names[piece.kind], at)
    return first


def _wanted(sized: Sized) -> set[object]:
    """Return the names of values that want a gradient."""
    pairs = (zip(piece.outputs, piece.measured.outputs, strict=True) for piece in sized.pieces)
    return {name for each in pairs for name, (_, _, wants) in each if wants}
