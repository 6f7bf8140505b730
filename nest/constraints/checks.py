"""What side constraints refuse: figures that make no sense, and names that the problem does not have."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import inf

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


def require_whole(where: str, value: int, least: int) -> None:
    """Raise `InvalidProblem` unless a value is a whole number from ``least`` on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidProblem(where, f"{value!r}", f"give a whole number from {least}")


def require_number(where: str, value: Number, least: Number = 0) -> None:
    """Raise `InvalidProblem` unless a value is a finite number from ``least`` on."""
    if not least <= value < inf:
        raise InvalidProblem(where, f"{value!r}", f"give a finite number from {least}")


def require_some(where: str, values: Iterable[object]) -> None:
    """Raise `InvalidProblem` if there is no value, or one of them twice."""
    found = list(values)
    if not found:
        raise InvalidProblem(where, "nothing is listed", "give at least one")
    if len(set(found)) < len(found):
        twice = next(value for value in found if found.count(value) > 1)
        raise InvalidProblem(where, f"{twice!r} is listed twice", "list each once")


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


def require_device(where: str, problem: Problem, device: int) -> None:
    """Raise `InvalidProblem` if a device is beyond the cluster."""
    if device >= problem.cluster.devices:
        last = problem.cluster.devices - 1
        raise InvalidProblem(where, f"there is no device {device}", f"the devices of the cluster are 0 to {last}")
