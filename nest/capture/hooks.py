"""A module at one batch, watched at work: for modules that `torch.export` cannot see through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from nest.capture.build import describe, tensors
from nest.capture.compose import Placed, Sized
from nest.capture.exported import label, size_of
from nest.capture.inputs import Input
from nest.capture.measure import Measured, key, run_measured
from nest.capture.units import Unit, units_of
from nest.errors import InvalidProblem


@dataclass(frozen=True)
class Call:
    """One call of a submodule, with its tensors."""

    unit: Unit
    module: Any
    inputs: tuple[Any, ...]
    form: Any
    outputs: tuple[Any, ...]

    @property
    def leaves(self) -> list[int]:
        """Places of the tensors among its arguments."""
        return [at for at, value in enumerate(self.inputs) if isinstance(value, torch.Tensor)]

    @property
    def signature(self) -> tuple[object, ...]:
        """What calls of one structure share: the class, and the shapes of weights and tensors."""
        weights = tuple((name, tuple(each.shape)) for name, each in self.module.named_parameters())
        given = tuple(
            (*each.shape, str(each.dtype), each.requires_grad) for each in map(self.inputs.__getitem__, self.leaves)
        )
        return type(self.module).__name__, weights, given


def hooked(name: str, module: Any, inputs: Sequence[Input], factor: int, dtype: str) -> Sized:
    """Capture a module on the CPU at so many times the batch, by what enters and leaves its submodules.

    Raises
    ------
    InvalidProblem
        If it does not take the inputs, or calls no submodule.
    """
    given = tensors(inputs, factor, "cpu", dtype)
    calls: list[Call] = []
    with _watching(module, units_of(module), calls):
        try:
            result = module(*given)
        except Exception as error:
            what = f"the module does not take {', '.join(map(str, inputs))}: {describe(error)}"
            raise InvalidProblem(name, what, "give --input for each of its tensors, in order") from error
    if not calls:
        raise InvalidProblem(
            name, "it calls none of its submodules", "write it so that torch.export can see through it"
        )
    del result
    return _Calls(module, given).sized(calls)


@contextmanager
def _watching(module: Any, units: dict[str, Unit], calls: list[Call]) -> Iterator[None]:
    handles = []
    for path, unit in units.items():
        inner = module.get_submodule(path)

        def seen(inner: Any, args: Any, kwargs: Any, output: Any, unit: Unit = unit) -> None:
            """Put down a call of a submodule, as hooks of torch are called."""
            leaves, form = tree_flatten((args, kwargs))
            outputs = tuple(each for each in tree_leaves(output) if isinstance(each, torch.Tensor))
            calls.append(Call(unit, inner, tuple(leaves), form, outputs))

        handles.append(inner.register_forward_hook(seen, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Calls:
    """Puts calls together; a tensor that no call made was made behind the one before, or before the first."""

    def __init__(self, module: Any, given: Sequence[Any]) -> None:
        self.module = module
        self.names: dict[int, str] = {key(each): f"given {at}" for at, each in enumerate(given)}
        self.sizes: dict[object, int] = {self.names[key(each)]: size_of(each) for each in given}
        self._made: dict[tuple[object, ...], tuple[int, Measured]] = {}

    def sized(self, calls: Sequence[Call]) -> Sized:
        """Return what each call is, needs and makes, in their order, and sizes of tensors by name."""
        return Sized(tuple(self._placed(call, at, len(calls)) for at, call in enumerate(calls)), self.sizes)

    def _placed(self, call: Call, at: int, count: int) -> Placed:
        inputs = tuple(self._taken(call.inputs[place]) for place in call.leaves)
        outputs = tuple(self.names.setdefault(key(each), f"output {len(self.names)}") for each in call.outputs)
        if call.signature not in self._made:
            self._made[call.signature] = len(self._made), _measured(call)
        return Placed(
            call.unit.path,
            label(self.module, call.unit.path, (), at, count),
            self._made[call.signature][0],
            call.unit.block,
            inputs,
            outputs,
            tuple(size_of(each) for each in call.outputs),
            {name: each.numel() for name, each in _names(self.module, call.module).items()},
            self._made[call.signature][1],
        )

    def _taken(self, value: Any) -> str:
        if key(value) not in self.names:
            self.names[key(value)] = f"between {len(self.names)}"
            self.sizes[self.names[key(value)]] = value.untyped_storage().nbytes()
        return self.names[key(value)]


def _names(module: Any, inner: Any) -> dict[str, Any]:
    """Return the parameters of a submodule by their first name in the module."""
    first: dict[int, str] = {}
    for name, each in module.named_parameters(remove_duplicate=False):
        first.setdefault(id(each), name)
    return {first[id(each)]: each for each in inner.parameters()}


def _measured(call: Call) -> Measured:
    leaves = [_leaf(call.inputs[place]) for place in call.leaves]
    weights = [*call.module.parameters(), *call.module.buffers()]

    def run(inputs: Sequence[Any]) -> list[Any]:
        """Call the module with other tensors in the places of those that it took; return the tensors that it gives."""
        values = list(call.inputs)
        for place, value in zip(call.leaves, inputs, strict=True):
            values[place] = value
        args, kwargs = tree_unflatten(values, call.form)
        return [each for each in tree_leaves(call.module(*args, **kwargs)) if isinstance(each, torch.Tensor)]

    return run_measured(run, leaves, weights)


def _leaf(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad)
