"""What side constraints refuse: figures that make no sense, and names that the problem does not have."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np

from nest.errors import InvalidProblem
from nest.graph import LayerId
from nest.problem import Problem, Variant
from nest.units import Ints, Number

_MOST_LISTED = 8
"""More values than this are not spelt out in a sentence."""


def exact(value: Number) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth."""
    return Fraction(repr(value))


def as_whole(where: str, value: object, least: int | None = None) -> int:
    """Return a whole number, also one of NumPy, as Python's own.

    Raises
    ------
    InvalidProblem
        Unless it is one, of ``least`` at least.
    """
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        raise InvalidProblem(where, f"{value!r}", f"give a whole number{'' if least is None else f' from {least}'}")
    return value


def as_number(where: str, value: object, least: Number = 0, below: Number = inf) -> Number:
    """Return a number, also one of NumPy, as Python's own.

    Raises
    ------
    InvalidProblem
        Unless it is an ``int`` or a ``float`` from ``least`` to below ``below``.
    """
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < below:
        what = f"a finite number from {least}" if below == inf else f"a number from {least} to below {below}"
        raise InvalidProblem(where, f"{value!r}", f"give {what}")
    return value


def as_switch(where: str, value: object) -> bool:
    """Return True or False; raises `InvalidProblem` where a value is neither."""
    value = _plain(value)
    if not isinstance(value, bool):
        raise InvalidProblem(where, f"{value!r}", "give True or False")
    return value


def as_some(where: str, values: object, example: str) -> tuple[Any, ...]:
    """Return values one by one, those of NumPy as Python's own.

    Parameters
    ----------
    example
        A list that would be right.

    Raises
    ------
    InvalidProblem
        If they are no list, or none, or one of them is there twice or is itself a list.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidProblem(where, f"{values!r}", f"give a list, as in {example}")
    found = tuple(_plain(value) for value in values)
    if not found:
        raise InvalidProblem(where, "nothing is listed", "give at least one")
    if any(isinstance(value, Iterable) and not isinstance(value, str) for value in found):
        raise InvalidProblem(where, f"{list(found)!r}", f"give a list of single values, as in {example}")
    if len(set(found)) < len(found):
        twice = next(value for value in found if found.count(value) > 1)
        raise InvalidProblem(where, f"{twice!r} is listed twice", "list each once")
    return found


def as_layers(where: str, values: object) -> tuple[LayerId, ...]:
    """Return ids of layers; raises `InvalidProblem` as `as_some` and `as_layer` do."""
    return tuple(as_layer(where, value) for value in as_some(where, values, "[0, 1]"))


def as_layer(where: str, value: object) -> LayerId:
    """Return the id of a layer; raises `InvalidProblem` where a value cannot be one."""
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidProblem(where, f"{value!r}", "give the id of a layer, a whole number or a string")
    return value


def as_level(where: str, value: object) -> int | str:
    """Return what names a level; raises `InvalidProblem` where a value cannot."""
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidProblem(where, f"{value!r}", "give the number of a level, from 0 for the innermost, or its name")
    return value


def _plain(value: object) -> object:
    """Return a number of NumPy as Python's own, which is written as people write it, and everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def require_layers(where: str, problem: Problem, layers: Iterable[LayerId]) -> None:
    """Raise `InvalidProblem` unless every variant of the model has these layers."""
    for name in layers:
        if any(name not in graph.index for graph in problem.graphs.values()):
            raise InvalidProblem(where, f"{name!r} is no layer", "name the id of a layer")


def places_of(problem: Problem, variant: Variant, layers: Iterable[LayerId]) -> Ints:
    """Return the places of layers in the order of a variant, ascending."""
    index = problem.graphs[variant].index
    return np.array(sorted(index[name] for name in layers), dtype=np.int64)


def group_size(where: str, problem: Problem, level: int | str) -> int:
    """Return how many devices a group of a level holds; raises `InvalidProblem` as `level_at` does."""
    return problem.cluster.group_sizes[level_at(where, problem, level)]


def level_at(where: str, problem: Problem, level: int | str) -> int:
    """Return the number of a level, which is given by its number, from 0 for the innermost, or by its name.

    Raises
    ------
    InvalidProblem
        If the cluster has no such level, or several.
    """
    names = [each.name for each in problem.cluster.levels]
    if isinstance(level, int) and not isinstance(level, bool) and 0 <= level < len(names):
        return level
    if isinstance(level, str) and names.count(level) == 1:
        return names.index(level)
    known = [f"{at} ({name!r})" if name else str(at) for at, name in enumerate(names)]
    what = f"{level!r} is {'the name of several levels' if level in names else 'no level of the cluster'}"
    raise InvalidProblem(where, what, f"the levels are {', '.join(known)}")


def listed(values: Iterable[object]) -> str:
    """Return values for people to read, as in ``'a', 'b' and 'c'``; of very many the first few."""
    found = [repr(value) for value in values]
    if len(found) > _MOST_LISTED:
        found = [*found[: _MOST_LISTED - 1], f"{len(found) - _MOST_LISTED + 1} more"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def counted(number: int, noun: str) -> str:
    """Return a number of things, as in ``1 stage`` and ``2 stages``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def written(value: Number) -> str:
    """Return a number for people to read, whole ones with separators."""
    return f"{int(value):,}" if value == value // 1 else repr(value)


def require_device(where: str, problem: Problem, device: int) -> None:
    """Raise `InvalidProblem` if a device is beyond the cluster."""
    if device >= problem.cluster.devices:
        last = problem.cluster.devices - 1
        raise InvalidProblem(where, f"there is no device {device}", f"the devices of the cluster are 0 to {last}")
