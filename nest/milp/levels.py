"""Loads by position: which levels the replicas of an outer choice see there, from their places (C9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nest.problem import Problem
from nest.tables import Band
from nest.units import Ints

Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""Levels of the entry and the exit boundary of a stage, each pair that some replica sees."""


@dataclass(frozen=True, slots=True)
class LoadsAt:
    """Loads (D5) of the stages at one position from the end.

    Attributes
    ----------
    closing
        Whether this is the first stage of the pipeline, before which there is no boundary.
    tables, choices
        Each distinct table of loads by first layer and number of layers, and the outer choices that imply it.
    """

    position: int
    closing: bool
    tables: list[Ints]
    choices: list[list[int]]


def loads_by_position(band: Band, problem: Problem, chosen: Mapping[int, tuple[int, int]]) -> Iterator[LoadsAt]:
    """Yield the loads of a variant's stages at each position.

    Parameters
    ----------
    chosen
        Stages and replicas of the variant's outer choices, by their index.
    """
    groups: dict[tuple[int, bool], dict[Pairs, list[int]]] = {}
    known: dict[tuple[int, bytes], list[Pairs]] = {}
    for choice, (stages, replicas) in chosen.items():
        offsets = replica_offsets(problem, replicas, stages * band.tables.width)
        key = (stages, offsets.tobytes())
        if key not in known:
            known[key] = pairs_by_position(problem, band.tables.width, stages, offsets)
        for position, pairs in enumerate(known[key], start=1):
            groups.setdefault((position, position == stages), {}).setdefault(pairs, []).append(choice)
    loads: dict[Pairs, Ints] = {}
    for (position, closing), found in sorted(groups.items()):
        for pairs in found.keys() - loads.keys():
            loads[pairs] = slowest(band, pairs)
        yield LoadsAt(position, closing, [loads[pairs] for pairs in found], list(found.values()))


def slowest(band: Band, pairs: Pairs) -> Ints:
    """Return the load of every stage in the slowest of the replicas that see ``pairs``."""
    load: Ints = np.maximum.reduce([band.forward(entry) + band.backward(out) for entry, out in pairs])
    return load


def replica_offsets(problem: Problem, replicas: int, stride: int) -> Ints:
    """Return where the replicas that count start, as far as levels depend on it.

    Whether two devices share a group of a level below the top follows from their places within the largest such group.
    """
    if not problem.preset.all_replicas:
        return np.zeros(1, dtype=np.int64)
    sizes = problem.cluster.group_sizes
    return np.unique(np.arange(replicas, dtype=np.int64) * stride % (sizes[-2] if len(sizes) > 1 else 1))


def pairs_by_position(problem: Problem, width: int, stages: int, offsets: Ints) -> list[Pairs]:
    """Return the pairs of levels that the stages see, from the last of the pipeline on; 0 where nothing is sent."""
    lower = np.arange(stages - 1, dtype=np.int64) * width
    reach = 0 if problem.preset.boundary == "first" else width - 1
    low = offsets[:, None] + lower
    inner = problem.cluster.spans(low, low + width + reach)
    none = np.zeros((len(offsets), 1), dtype=np.int64)
    codes = np.concatenate([inner, none], axis=1) * problem.levels + np.concatenate([none, inner], axis=1)
    seen = np.zeros((stages, problem.levels**2), dtype=bool)
    seen[np.broadcast_to(np.arange(stages), codes.shape), codes] = True
    return [tuple(divmod(code, problem.levels) for code in np.flatnonzero(row).tolist()) for row in seen]
