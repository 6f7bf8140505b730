"""Times of a model's blocks, by reference blocks in their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nest.costing import Measurement
from nest.errors import InvalidProblem
from nest.families import Architecture, Block
from nest.profile.blocks import block_of, inputs_of
from nest.profile.shapes import Shape, shape_of
from nest.profile.timing import Timer, kept_bytes, within_memory

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class ModelProfile:
    """What is to be measured of a model.

    Parameters
    ----------
    model
        The model.
    sequence, microbatches, tensors
        Tokens of a sequence; sequences, and widths of tensor parallel.
    dtype
        One of `DTYPES`.
    timer
        On which device, how often.
    """

    model: Architecture
    sequence: int
    microbatches: tuple[int, ...]
    tensors: tuple[int, ...]
    dtype: str
    timer: Timer

    def measured(self) -> tuple[list[Measurement], list[str]]:
        """Return the measurements, and the kinds of blocks that have no reference block.

        Raises
        ------
        InvalidProblem
            If a width does not divide a model, the device has not the memory, or no block has a reference block.
        """
        shapes: list[tuple[str, int, Shape]] = []  # all of them before the first is measured
        missing: list[str] = []
        for name, block in self._blocks():
            if shape_of(block, 1) is None:
                missing.append(name)
                continue
            for tensor in self.tensors:
                shape = shape_of(block, tensor)
                assert shape is not None, "widths change no kind"
                shapes.append((name, tensor, shape))
        if not shapes:
            what = f"none of its blocks ({', '.join(missing)}) has a reference block"
            raise InvalidProblem("--model", what, "profile a module of yours, as in nest profile mymodel:block")
        with within_memory(self.timer.device):
            rows = [self._row(*each, microbatch) for each in shapes for microbatch in self.microbatches]
        return rows, missing

    def _blocks(self) -> Iterator[tuple[str, Block]]:
        """Yield one block of each kind, named by its stack where there are several."""
        stacks = self.model.stacks
        seen: set[tuple[str, str]] = set()
        for stack in stacks:
            for block in stack.blocks:
                if (stack.name, block.kind) not in seen:
                    seen.add((stack.name, block.kind))
                    yield (f"{stack.name}.{block.kind}" if len(stacks) > 1 else block.kind), block

    def _row(self, name: str, tensor: int, shape: Shape, microbatch: int) -> Measurement:
        module, inputs = self._made(shape, microbatch)
        weights = list(module.parameters())

        def call(taken: Sequence[Any]) -> Sequence[Any]:
            """Return the outputs of the module."""
            return (module(*taken),)

        kept = kept_bytes(call, inputs, [*weights, *module.buffers()])
        forward, backward = self.timer.passes(call, inputs, weights)
        source = f"nest profile, {self.timer.name}, torch {torch.__version__}"
        return Measurement(
            name,
            microbatch,
            tensor,
            forward,
            backward,
            sequence=self.sequence,
            dtype=self.dtype,
            kept_bytes=kept,
            source=source,
        )

    def _made(self, shape: Shape, microbatch: int) -> tuple[Any, tuple[Any, ...]]:
        dtype, device = DTYPES[self.dtype], self.timer.device
        module = block_of(shape, self.sequence).to(device=device, dtype=dtype)
        return module, inputs_of(shape, self.sequence, microbatch, dtype, device)
