"""What one piece does and keeps, found by running it under autograd on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from nest.capture.pieces import Piece
from nest.capture.recorder import Op, Recorder
from nest.capture.trace import Traced, quiet

Source: TypeAlias = tuple[Literal["input", "own"], int]
"""Whose storage it is: that of an input, or one made here, by its number."""


@dataclass(frozen=True)
class Measured:
    """One piece at one batch.

    Parameters
    ----------
    forward, backward
        Kernels of both passes.
    kept
        Bytes of the storages that autograd keeps, by whose they are; parameters and buffers are not among them.
    outputs
        Of each output: whose storage it is (None: that of a weight), bytes of the storage, whether it wants a gradient.
    working_bytes
        As in `nest.capture.captured.Figures`.
    """

    forward: tuple[Op, ...]
    backward: tuple[Op, ...]
    kept: dict[Source, int]
    outputs: tuple[tuple[Source | None, int, bool], ...]
    working_bytes: int


def measure(piece: Piece, traced: Traced, grads: Sequence[bool], device: str) -> Measured:
    """Run a piece forward and backward.

    Parameters
    ----------
    grads
        Whether each input wants a gradient.
    device
        Whose kernels run; no memory of it is used.
    """
    with quiet(), FakeTensorMode(allow_non_fake_inputs=True):
        leaves = [_like(node.meta["val"], device, grad=grad) for node, grad in zip(piece.inputs, grads, strict=True)]
        weights = [_weight(traced, node, device) for node in piece.weights]
        return run_measured(lambda inputs: piece.run(traced, inputs, weights), leaves, weights)


def run_measured(call: Callable[[Sequence[Any]], list[Any]], leaves: Sequence[Any], weights: Sequence[Any]) -> Measured:
    """Run a function of tensors forward and backward; its weights are not counted among what it keeps."""
    inputs = [leaf.clone() if _wants(leaf) else leaf for leaf in leaves]  # a leaf cannot be written in place
    saved: dict[int, int] = {}
    recorder = Recorder()
    with plain_kernels(), recorder, saved_storages(saved):
        results = call(inputs)
    sources: dict[int, Source] = {
        key(each): ("input", at) for at, each in reversed(list(enumerate(inputs))) if _is_tensor(each)
    }
    fixed = {key(each) for each in weights}
    kept = {_source(sources, each): size for each, size in saved.items() if each not in fixed}
    outputs = tuple(_output(each, sources, fixed) for each in results)
    forward, live = tuple(recorder.ops), recorder.live
    recorder.restart()
    wanted = [each for each in results if _wants(each)]
    del results
    with plain_kernels(), recorder:
        _backward(wanted, weights)
    return Measured(forward, tuple(recorder.ops), kept, outputs, max(recorder.peak - live, 0))


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Let CPUs run recurrent layers as products: their fused kernel shows neither FLOPs nor what it keeps.

    The public way, `torch.backends.mkldnn.flags`, warns of settings that nobody changes.
    """
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def saved_storages(saved: dict[int, int]) -> Any:
    """Return a context in which bytes of what autograd keeps are put down by storage."""

    def pack(tensor: Any) -> Any:
        """Put down the bytes of a storage; the tensor is kept as it is."""
        saved[key(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def key(tensor: Any) -> int:
    """Return what tells a tensor's storage from others that are alive."""
    return int(tensor.untyped_storage()._cdata)


def _backward(results: list[Any], weights: Sequence[Any]) -> None:
    """Run the backward pass, gradients of weights gone as soon as they are made, as where a buffer takes them."""
    if not results:
        return
    hooks = [each.register_post_accumulate_grad_hook(_forget) for each in weights if _wants(each)]
    grads = [torch.empty_like(each) for each in results]
    torch.autograd.backward(results, grads)
    for hook in hooks:
        hook.remove()


def _forget(weight: Any) -> None:
    weight.grad = None


def _source(sources: dict[int, Source], storage: int) -> Source:
    return sources.setdefault(storage, ("own", len(sources)))


def _output(value: Any, sources: dict[int, Source], fixed: set[int]) -> tuple[Source | None, int, bool]:
    if not _is_tensor(value):
        return None, 0, False
    storage = key(value)
    source = None if storage in fixed else _source(sources, storage)
    return source, value.untyped_storage().nbytes(), bool(value.requires_grad)


def _wants(value: Any) -> bool:
    return _is_tensor(value) and bool(value.requires_grad)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _weight(traced: Traced, node: Any, device: str) -> Any:
    weight = traced.weights[node]
    return _like(weight.value, device, grad=weight.parameter and weight.value.requires_grad)


def _like(value: Any, device: str, *, grad: bool) -> Any:
    """Return a tensor of the same shape, strides and data type without data; what is no tensor stays."""
    if not _is_tensor(value):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return made.requires_grad_(grad)
