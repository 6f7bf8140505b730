"""Which network levels the stages of a plan see, from their positions.

Stages lie on the line of devices from the last of the pipeline to the first. The ``q``-th from the end has its *exit*
boundary (to the stage after it in the pipeline) below it and its *entry* boundary above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import numpy as np

from nest.problem import Problem
from nest.units import Ints, distinct

Levels = TypeVar("Levels", bound=tuple[int, ...])

Pair: TypeAlias = tuple[int, int]
"""Levels of a stage's entry and exit boundary, in one replica."""

Pairs: TypeAlias = tuple[Pair, ...]
"""The pairs of one stage over all replicas that count."""

Profile: TypeAlias = tuple[Pairs, ...]
"""The pairs of the 1st, 2nd, ... stage from the end."""

NO_BOUNDARY = 0
"""Level of a boundary that is not there, across which nothing is sent."""


def replica_offsets(problem: Problem, replicas: int, stride: int) -> Ints:
    """Return the starts of the replicas that count, ascending, within the cluster's period."""
    if not problem.preset.all_replicas:
        return np.zeros(1, dtype=np.int64)
    return distinct(problem.cluster.starts(replicas, stride))


def boundary_levels(problem: Problem, offsets: Ints, lower: Ints, upper: Ints, width: Ints | int) -> Ints:
    """Return the level of boundaries, one row per replica offset.

    Parameters
    ----------
    lower, upper
        First devices of the blocks below and above each boundary, in replica 0.
    width
        Devices of the upper block.
    """
    last = upper if problem.preset.boundary == "first" else upper + width - 1
    return shifted_spans(problem, offsets, lower, last)


def shifted_spans(problem: Problem, offsets: Ints, low: Ints, high: Ints) -> Ints:
    """Return the span of device ranges, one row per replica offset."""
    levels = np.zeros((len(offsets), *np.broadcast(low, high).shape), dtype=np.int64)
    shift = offsets.reshape(-1, *([1] * (levels.ndim - 1)))
    for size in problem.cluster.group_sizes:
        if size > problem.cluster.period:
            break  # nothing crosses it, and beyond the period places may be counted from below 0
        levels += (shift + low) // size != (shift + high) // size
    return levels


def uniform_profile(problem: Problem, width: int, stages: int, offsets: Ints, *, monotone: bool) -> Profile:
    """Return the level pairs of the 1st, 2nd, ... stage from the end, all stages ``width`` devices wide.

    Parameters
    ----------
    monotone
        Transfers never get cheaper from one level to the next; pairs that another one dominates are then dropped.
    """
    lower = np.arange(stages - 1, dtype=np.int64) * width
    inner = boundary_levels(problem, offsets, lower, lower + width, width)
    none = np.full((len(offsets), 1), NO_BOUNDARY, dtype=np.int64)
    if len(offsets) == 1:
        levels = inner[0].tolist()
        return tuple((pair,) for pair in zip([*levels, NO_BOUNDARY], [NO_BOUNDARY, *levels], strict=True))
    entries = np.concatenate([inner, none], axis=1).T.tolist()
    exits = np.concatenate([none, inner], axis=1).T.tolist()
    return tuple(
        _pairs(zip(entry, out, strict=True), monotone=monotone) for entry, out in zip(entries, exits, strict=True)
    )


def _pairs(found: Iterable[Pair], *, monotone: bool) -> Pairs:
    return tuple(dearest(set(found)) if monotone else sorted(set(found)))


def dearest(found: set[Levels]) -> list[Levels]:
    """Return the tuples of levels of which no other one is at least as high in every place."""
    return sorted(one for one in found if not any(_dominates(other, one) for other in found))


def _dominates(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one != other and all(high >= low for high, low in zip(one, other, strict=True))
