"""The optimizer's step, by what is spread over the ranks that hold copies: Adam, which works number by number."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.tensor import DTensor

from nest.execute.ranks import Copies

ADAM = {"lr": 1e-3, "eps": 1e-6}
"""A larger ``eps`` than usual: with 1e-8 a gradient of 1e-8 is a whole step, and so is a part of its rounding."""


class Step(Protocol):
    """A step of the optimizer."""

    adam: Any

    def take(self) -> None:
        """Sum gradients over the copies, change the weights, and set gradients back."""


def step_of(weights: list[nn.Parameter], zero: int, copies: Copies | None, share: int) -> Step:
    """Return the step of weights for a ZeRO type.

    Parameters
    ----------
    copies
        The ranks with copies of the weights; None for one.
    share
        By which sums of gradients are divided: all ranks with data of their own.
    """
    if copies is None or copies.shared * copies.groups == 1:
        return WholeStep(weights, None, share)
    if copies.shared > 1 and zero >= 2:
        return SpreadStep(weights, share / (copies.shared * copies.groups))
    if copies.shared > 1 and zero == 1:
        return ShardedStep(weights, copies, share)
    return WholeStep(weights, copies.every, share)


def moment_bytes(step: Step) -> int:
    """Return the bytes of the moments that this rank holds."""
    states = step.adam.state.values()
    return sum(local(state[name]).nbytes for state in states for name in ("exp_avg", "exp_avg_sq"))


class SpreadStep:
    """ZeRO types 2 and 3: FSDP2 has spread weights and gradients, of which it made the mean over the copies.

    That of an expert has still to be divided by its ranks, which bring data of their own without having a copy.
    """

    def __init__(self, weights: list[nn.Parameter], rest: float) -> None:
        self.weights, self.rest = weights, rest
        self.adam = torch.optim.AdamW(weights, **ADAM)

    def take(self) -> None:
        """Step."""
        for weight in self.weights:
            if weight.grad is not None:
                weight.grad /= self.rest
        self.adam.step()
        self.adam.zero_grad()


class WholeStep:
    """ZeRO type 0: every rank has all gradients summed, and all moments."""

    def __init__(self, weights: list[nn.Parameter], copies: Any, share: int) -> None:
        self.weights, self.copies, self.share = weights, copies, share
        self.adam = torch.optim.AdamW(weights, **ADAM)

    def take(self) -> None:
        """Step."""
        for weight in self.weights:
            gradient = local_gradient(weight)
            if self.copies is not None:
                dist.all_reduce(gradient, group=self.copies)
            _set_gradient(weight, gradient / self.share)
        self.adam.step()
        self.adam.zero_grad()


class ShardedStep:
    """ZeRO type 1: each rank has the moments of an equal part of all numbers, of which it makes the new weights.

    Where several groups of ranks share the weights, those that have the same part sum its gradients besides.
    """

    def __init__(self, weights: list[nn.Parameter], copies: Copies, share: int) -> None:
        self.weights, self.copies, self.share = weights, copies, share
        whole = self._padded([local(weight) for weight in weights])
        self.part = nn.Parameter(whole.chunk(copies.shared)[dist.get_rank(copies.within)].clone())
        self.adam = torch.optim.AdamW([self.part], **ADAM)

    def take(self) -> None:
        """Step."""
        whole = self._padded([local_gradient(weight) for weight in self.weights])
        self.part.grad = torch.empty_like(self.part)
        dist.reduce_scatter_tensor(self.part.grad, whole, group=self.copies.within)
        if self.copies.groups > 1:
            dist.all_reduce(self.part.grad, group=self.copies.across)
        self.part.grad /= self.share
        self.adam.step()
        dist.all_gather_into_tensor(whole, self.part.detach(), group=self.copies.within)
        at = 0
        for weight in self.weights:
            there = local(weight)
            there.copy_(whole[at : at + there.numel()].view_as(there))
            at += there.numel()
            weight.grad = None

    def _padded(self, tensors: list[Tensor]) -> Tensor:
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        return nn.functional.pad(flat, (0, -flat.numel() % self.copies.shared))


def local(tensor: Tensor) -> Tensor:
    """Return what this rank has of a tensor, as memory that can be written."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_gradient(weight: nn.Parameter) -> Tensor:
    """Return what this rank has of a weight's gradient, summed over the tensor ranks where these have parts of it."""
    gradient = weight.grad
    if isinstance(gradient, DTensor) and isinstance(weight, DTensor):
        gradient = gradient.redistribute(placements=weight.placements)
    return local(torch.zeros_like(weight) if gradient is None else gradient)  # an expert that no token chose has none


def _set_gradient(weight: nn.Parameter, gradient: Tensor) -> None:
    if isinstance(weight, DTensor):
        weight.grad = DTensor.from_local(
            gradient, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape, stride=weight.stride()
        )
    else:
        weight.grad = gradient
