"""How long a function of tensors and its backward pass take on a device."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import torch

from nest.capture.build import describe
from nest.capture.measure import key, saved_storages
from nest.errors import InvalidProblem

Call: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
"""From tensors to tensors."""


@dataclass(frozen=True, slots=True)
class Timer:
    """Times on one device.

    Parameters
    ----------
    device
        As torch names it.
    warm
        Runs before the first that counts: they choose kernels and fill caches.
    repeats
        Runs of which the median counts.
    """

    device: str
    warm: int = 3
    repeats: int = 10

    @property
    def name(self) -> str:
        """What the device is, for people to read."""
        if self.device.startswith("cuda"):
            return str(torch.cuda.get_device_name(self.device))
        return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"

    def passes(self, call: Call, inputs: Sequence[Any], weights: Sequence[Any]) -> tuple[float, float]:
        """Return the median seconds of a forward and of a backward pass, gradients not added to earlier ones.

        Parameters
        ----------
        call
            Runs forward and returns the results.
        inputs, weights
            What it takes, copied for each run, since it may write in place; tensors that it reads besides.
        """
        times = [self._once(call, inputs, weights) for _ in range(self.warm + self.repeats)][self.warm :]
        forward, backward = zip(*times, strict=True)
        return median(forward), median(backward)

    def _once(self, call: Call, inputs: Sequence[Any], weights: Sequence[Any]) -> tuple[float, float]:
        copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in inputs]
        started = self._now()
        wanted = [each for each in call(copies) if isinstance(each, torch.Tensor) and each.requires_grad]
        between = self._now()
        grads = [torch.ones_like(each) for each in wanted]
        ready = self._now()
        if wanted:
            torch.autograd.backward(wanted, grads)
        ended = self._now()
        for each in (*inputs, *weights):
            if isinstance(each, torch.Tensor):
                each.grad = None
        return between - started, ended - ready

    def _now(self) -> float:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)
        return perf_counter()


@contextmanager
def within_memory(device: str) -> Iterator[None]:
    """Turn a device's lack of memory into an answer.

    Raises
    ------
    InvalidProblem
        Naming the device, where torch could not allocate what is measured.
    """
    try:
        yield
    except (
        MemoryError,
        RuntimeError,
    ) as error:  # torch has an error of its own for GPUs only, which is the latter, too
        if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
            raise
        remedy = "give shorter sequences or smaller microbatches"
        raise InvalidProblem("--device", f"{device!r} has not enough memory: {describe(error)}", remedy) from None


def kept_bytes(call: Call, inputs: Sequence[Any], weights: Sequence[Any]) -> int:
    """Return what autograd keeps of one forward pass, weights and buffers apart, each storage once."""
    saved: dict[int, int] = {}
    with saved_storages(saved):
        results = call(inputs)
    fixed = {key(each) for each in weights}
    del results
    return sum(size for storage, size in saved.items() if storage not in fixed)


def device_at_hand(asked: str) -> str:
    """Return the device to measure on: what is asked for, else a GPU where there is one.

    Raises
    ------
    InvalidProblem
        If torch has no such device.
    """
    device = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidProblem(
            "--device", f"{device!r}: {describe(error)}", "give cpu, or cuda where there is one"
        ) from error
    return device
