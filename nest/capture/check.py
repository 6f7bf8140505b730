"""What autograd really keeps, and the FLOPs that torch counts, of a module at work on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from nest.capture.build import describe, tensors
from nest.capture.captured import Captured
from nest.capture.inputs import Input
from nest.capture.measure import key, plain_kernels, saved_storages
from nest.capture.recorder import CPU_ATTENTION
from nest.errors import InvalidProblem


@dataclass(frozen=True, slots=True)
class Checked:
    """One figure, as captured and as measured."""

    what: str
    predicted: int
    measured: int

    @property
    def off(self) -> float:
        """By which part of the measured figure the prediction is off."""
        return (self.predicted - self.measured) / self.measured if self.measured else float(self.predicted != 0)


def check(captured: Captured, module: Any, inputs: Sequence[Input], dtype: str = "") -> tuple[Checked, ...]:
    """Run a module on the CPU, forward and backward, and compare.

    Parameters
    ----------
    captured
        At the batch of the inputs, with the kernels of CPUs (`nest.capture.run.Asked.fused` off).
    module
        With its weights on the CPU.

    Raises
    ------
    InvalidProblem
        If the module fails.
    """
    batch = captured.batch
    fixed = {key(each) for each in (*module.parameters(), *module.buffers())}
    saved: dict[int, int] = {}
    try:
        counted = FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION)
        with plain_kernels(), counted as forward, saved_storages(saved):
            results = module(*tensors(inputs, 1, "cpu", dtype))
        wanted = [each for each in tree_leaves(results) if isinstance(each, torch.Tensor) and each.requires_grad]
        with plain_kernels(), FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as backward:
            torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])
    except Exception as error:
        raise InvalidProblem(captured.name, f"it fails on the CPU: {describe(error)}", "mend it") from error
    kept = sum(size for storage, size in saved.items() if storage not in fixed)
    return (
        Checked("parameters", captured.parameters, sum(each.numel() for each in module.parameters())),
        Checked("forward FLOPs", captured.forward_flops.at(batch), forward.get_total_flops()),
        Checked("backward FLOPs", captured.backward_flops.at(batch), backward.get_total_flops()),
        Checked("bytes kept for the backward pass", captured.kept.at(batch), kept),
    )
