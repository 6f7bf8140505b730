"""Kernels as torch dispatches them, with their FLOPs and bytes, and the most memory that is in use at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from nest.capture.captured import Work

aten = torch.ops.aten


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return FLOPs, by shapes."""
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


CPU_ATTENTION: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""Fused attention on CPUs, which the registry of torch 2.13 leaves out, with its formulas for that of GPUs."""

FORMULAS = FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION).flop_registry
"""By operator, what takes its arguments and its result and returns FLOPs."""

BLOCK = 128
"""Queries that one processor takes at a time in fused attention (arXiv 2307.08691)."""


@dataclass(frozen=True, slots=True)
class Op:
    """One kernel at one batch; as `nest.capture.captured.Kernel`, with plain numbers."""

    name: str
    work: Work
    flops: int
    bytes: int
    shape: tuple[int, ...] = ()


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records what is dispatched while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and record it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if getattr(func, "namespace", "") not in {"prim", "prims"}:
            self._watch(result)
            if not _is_free(func):
                self.ops.extend(_kernels(func, args, kwargs, result))
        return result

    def restart(self) -> None:
        """Forget the kernels so far and the peak; what is live stays known."""
        self.ops = []
        self.peak = self.live

    def _watch(self, result: Any) -> None:
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._known:
                self._known.add(key)
                size = storage.nbytes()
                self.live += size
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self.live -= size
        self._known.discard(key)


def _tensors(tree: Any) -> Iterator[Any]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh"}
"""Operators without a kernel that are no views by their schema."""


def _is_free(func: Any) -> bool:
    """Whether an operator launches nothing: a view, or an allocation."""
    return bool(getattr(func, "is_view", False)) or func._schema.name.partition("::")[2] in FREE


def _kernels(func: Any, args: Any, kwargs: Any, result: Any) -> Iterator[Op]:
    packet = getattr(func, "_overloadpacket", func)
    name = str(packet)
    flops, moved = _flops(packet, args, kwargs, result), _moved(name, args, kwargs, result)
    if "attention" in name and flops:
        yield Op(name, "attention", flops, moved, _attention_shape(name, flops, args, kwargs))
    elif name == "aten.convolution_backward":
        yield from _convolution_backward(name, moved, args, flops)
    elif name.endswith("convolution"):
        yield Op(name, "product", flops, moved, _convolved(args[0], args[1], result, args[8], transposed=args[6]))
    elif flops and name in PRODUCTS:
        yield Op(name, "product", flops, moved, _product(*PRODUCTS[name](args)))
    else:
        yield Op(name, "moved", flops, moved)


PRODUCTS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "aten.mm": lambda args: (args[0], args[1]),
    "aten.bmm": lambda args: (args[0], args[1]),
    "aten.addmm": lambda args: (args[1], args[2]),
    "aten.baddbmm": lambda args: (args[1], args[2]),
}
"""The factors of a product among its arguments."""


def _product(left: Any, right: Any) -> tuple[int, ...]:
    count = left.shape[0] if left.dim() == 3 else 1
    return count, left.shape[-2], left.shape[-1], right.shape[-1]


def _convolved(image: Any, weight: Any, result: Any, groups: int, *, transposed: bool) -> tuple[int, ...]:
    """Return a convolution as products: rows are places of the result (of the image, where it is transposed)."""
    places = image if transposed else result
    rows = places.shape[0] * prod(places.shape[2:])
    if transposed:
        return groups, rows, weight.shape[0] // groups, weight.shape[1] * prod(weight.shape[2:])
    return groups, rows, weight.shape[1] * prod(weight.shape[2:]), weight.shape[0] // groups


def _convolution_backward(name: str, moved: int, args: Any, flops: int) -> Iterator[Op]:
    """Yield the products that make the gradients of image and weight, of those that are wanted."""
    grad, image, weight, *_, mask = args
    groups, rows, inner, columns = _convolved(image, weight, grad, args[9], transposed=args[7])
    wanted = [
        shape
        for shape, is_wanted in zip(((rows, columns, inner), (inner, rows, columns)), mask, strict=False)
        if is_wanted
    ]
    for at, shape in enumerate(wanted):
        part = flops // len(wanted)
        first = flops - part * (len(wanted) - 1)
        yield Op(name, "product", part if at else first, moved // len(wanted), (groups, *shape))


def _attention_shape(name: str, flops: int, args: Any, kwargs: Any) -> tuple[int, ...]:
    query = args[1] if name.endswith("backward") else args[0]
    batch, heads, length, width = query.shape
    causal = any(each is True for each in args) or kwargs.get("is_causal", False)
    return flops // 2 if causal else flops, width, batch * heads * -(-length // BLOCK)


def _flops(packet: Any, args: Any, kwargs: Any, result: Any) -> int:
    formula = FORMULAS.get(packet)
    return int(formula(*args, **kwargs, out_val=result)) if formula else 0


def _moved(name: str, args: Any, kwargs: Any, result: Any) -> int:
    """Return bytes read and written; a look-up reads the rows that it takes, and not the whole table."""
    written = sum(map(_size, _tensors(result)))
    if name in {"aten.embedding", "aten.gather", "aten.index", "aten.index_select"}:
        return 2 * written + sum(map(_size, _tensors(args[1:])))
    return written + sum(map(_size, _tensors((args, kwargs))))


def _size(tensor: Any) -> int:
    """Return the bytes of a tensor; where it repeats its storage, those of the storage."""
    return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))
