"""From ``module:factory`` to a module on the meta device, and its inputs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nest.capture.inputs import Input
from nest.errors import InvalidProblem


def find_factory(name: str) -> Callable[..., Any]:
    """Return what ``module:factory`` names; modules in the working directory are found, too.

    Raises
    ------
    InvalidProblem
        If there is no such module or factory.
    """
    module, _, factory = name.partition(":")
    if not (module and factory):
        raise InvalidProblem("module:factory", f"{name!r} has no factory", "give it as in mymodel:build")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in factory.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InvalidProblem(
            name, f"cannot be imported: {describe(error)}", "give a module and what is in it"
        ) from error
    if not callable(found):
        raise InvalidProblem(name, f"{factory!r} cannot be called", "give a function or a class that makes the module")
    return found  # type: ignore[no-any-return]


def build(name: str, settings: Mapping[str, object], dtype: str = "") -> tuple[Any, tuple[str, ...]]:
    """Return the module on the meta device, and what was odd about making it.

    Factories that look at values (``tensor.item()``) run on the CPU, and the module is moved.

    Raises
    ------
    InvalidProblem
        If the factory cannot be found, fails, or makes no module.
    """
    notes: tuple[str, ...] = ()
    factory = find_factory(name)
    try:
        with torch.device("meta"):
            module = _module(name, factory, settings)
    except InvalidProblem:
        module = _module(name, factory, settings).to("meta")
        notes = ("The factory does not run on the meta device; it ran on the CPU.",)
    module = module.to("meta")
    return (module.to(getattr(torch, dtype)) if dtype else module), notes


def build_real(name: str, settings: Mapping[str, object], dtype: str = "", device: str = "cpu") -> Any:
    """Return the module with its weights on a device; raises `InvalidProblem` as `build` does."""
    with torch.device(device):
        module = _module(name, find_factory(name), settings).to(device)
    return module.to(getattr(torch, dtype)) if dtype else module


def _module(name: str, factory: Callable[..., Any], settings: Mapping[str, object]) -> Any:
    try:
        made = factory(**settings)
    except Exception as error:
        raise InvalidProblem(
            name, f"the factory raised {describe(error)}", "mend it, or --set its arguments"
        ) from error
    if not isinstance(made, torch.nn.Module):
        raise InvalidProblem(name, f"the factory made {type(made).__name__!r}", "it should return a torch.nn.Module")
    return made


def tensors(inputs: Sequence[Input], factor: int, device: str, dtype: str = "") -> tuple[Any, ...]:
    """Return tensors of the inputs' shapes with so many times the batch; numbers are zero, or random where broken.

    Where the module was given a data type, inputs of float32 take it, too.
    """
    return tuple(_tensor(each, each.times(factor), device, dtype) for each in inputs)


def _tensor(given: Input, shape: tuple[int, ...], device: str, dtype: str) -> Any:
    kind = getattr(torch, dtype if dtype and given.dtype == "float32" else given.dtype)
    if kind.is_floating_point:
        return torch.randn(shape, dtype=kind, device=device)
    return torch.zeros(shape, dtype=kind, device=device)


def describe(error: BaseException) -> str:
    """Return an exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
