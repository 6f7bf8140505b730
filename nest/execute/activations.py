"""What stays between forward and backward passes, counted in the hooks through which autograd saves tensors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor


class Meter:
    """Counts bytes of saved tensors, each storage once; weights, buffers and tokens are no activations.

    Attributes
    ----------
    bytes, peak_bytes
        Held now, and at most so far.
    in_flight
        The most microbatches of which something was held at once.
    microbatch
        The one whose forward pass runs, to be set by whoever runs it.
    """

    def __init__(self) -> None:
        self.bytes = self.peak_bytes = self.in_flight = self.microbatch = 0
        self._storages: Counter[int] = Counter()
        self._microbatches: Counter[int] = Counter()

    def watch(self) -> Any:
        """Return a context in which saved tensors are counted."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: Tensor) -> Any:
        return tensor if _is_state(tensor) else Held(self, tensor)

    def take(self, key: int, size: int, microbatch: int) -> None:
        """Count a storage."""
        self._storages[key] += 1
        self._microbatches[microbatch] += 1
        if self._storages[key] == 1:
            self.bytes += size
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        self.in_flight = max(self.in_flight, len(self._microbatches))

    def free(self, key: int, size: int, microbatch: int) -> None:
        """Count a storage no longer."""
        self._storages[key] -= 1
        self._microbatches[microbatch] -= 1
        if not self._microbatches[microbatch]:
            del self._microbatches[microbatch]
        if not self._storages[key]:
            del self._storages[key]
            self.bytes -= size


class Held:
    """A saved tensor, counted as long as autograd holds it."""

    def __init__(self, meter: Meter, tensor: Tensor) -> None:
        storage = _local(tensor).untyped_storage()
        self.meter, self.tensor = meter, tensor
        self.counted = storage.data_ptr(), storage.nbytes(), meter.microbatch
        meter.take(*self.counted)

    def __del__(self) -> None:
        self.meter.free(*self.counted)


def _unpack(held: Any) -> Any:
    return held.tensor if isinstance(held, Held) else held


def _local(tensor: Tensor) -> Any:
    """Return what this rank has of a tensor, once it is there."""
    with torch.no_grad():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        return local.wait() if isinstance(local, AsyncCollectiveTensor) else local


def _is_state(tensor: Tensor) -> bool:
    """Whether a tensor is a weight, a view of one, or no activation: tokens, masks and what has no gradient."""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter) or not tensor.is_floating_point()
