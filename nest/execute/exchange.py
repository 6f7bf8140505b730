"""Exchanges of context and expert parallel, with their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


def gathered(part: Tensor, dim: int, group: Any) -> Tensor:
    """Return the parts of all ranks of a group, joined along a dimension; gradients are summed over the ranks."""
    whole: Tensor = _Gathered.apply(part, dim, group)
    return whole


def exchanged(rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
    """Return the rows that all ranks of a group send to this one, in the order of ranks.

    Parameters
    ----------
    rows
        Those for the first rank, for the second, ...
    sent, received
        How many go to each rank, and come from each.
    """
    arrived: Tensor = _Exchanged.apply(rows, sent, received, group)
    return arrived


class _Gathered(torch.autograd.Function):
    """An all-gather whose backward pass is a reduce-scatter."""

    @staticmethod
    def forward(context: Any, part: Tensor, dim: int, group: Any) -> Tensor:
        """Return the parts of all ranks of a group, joined along a dimension."""
        context.dim, context.group = dim, group
        parts = [torch.empty_like(part.contiguous()) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the own part of the sum of all ranks' gradients."""
        whole = gradients[0].contiguous()
        dist.all_reduce(whole, group=context.group)
        parts = whole.chunk(dist.get_world_size(context.group), context.dim)
        return parts[dist.get_rank(context.group)].contiguous(), None, None


class _Exchanged(torch.autograd.Function):
    """An all-to-all, whose backward pass is the one in the other direction."""

    @staticmethod
    def forward(context: Any, rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
        """Return the rows that other ranks sent, for those that were sent to them."""
        context.sent, context.received, context.group = sent, received, group
        return _all_to_all(rows, sent, received, group)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Send the gradients of rows back where these came from."""
        return _all_to_all(gradients[0], context.received, context.sent, context.group), None, None, None


def _all_to_all(rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
    arrived = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
    return arrived
