"""Which outer choices and which arcs there are: everything that a rule forbids by itself is left out here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nest.problem import Problem
from nest.tables import Band, VariantTables
from nest.units import Ints

Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Arcs:
    """Stages at their places, in arrays of equal length.

    Attributes
    ----------
    variant, position, first, end
        Which stage: the ``position``-th from the end.
    parameters
        Quanta.
    """

    variant: Ints
    position: Ints
    first: Ints
    end: Ints
    parameters: Ints

    def __len__(self) -> int:
        return len(self.first)


def replicas_by_stages(problem: Problem, tables: VariantTables) -> dict[int, list[int]]:
    """Return the numbers of replicas to consider for each allowed number of stages (C4, C5, C10).

    Of the replicas with equal rounds the fewest are as good as any: their places are among those of the others, so no
    load is larger, and they synchronise in no more steps over no more levels.
    """
    blocks, choices = problem.cluster.devices // tables.width, problem.choices
    microbatches, found = problem.training.microbatches, {}
    for stages in range(1, min(tables.layers, blocks) + 1):
        if choices.stages is not None and stages not in choices.stages:
            continue
        fewest: dict[int, int] = {}
        for replicas in range(1, min(microbatches, blocks // stages) + 1):
            if choices.replicas is None or replicas in choices.replicas:
                fewest.setdefault(-(-microbatches // replicas), replicas)
        if fewest:
            found[stages] = list(fewest.values())
    return found


def reachable(band: Band, stages: Sequence[int]) -> list[Bools]:
    """Return which stages lie on a path to one of the allowed numbers of ``stages``, by position from the end.

    One pass forward keeps the arcs that the start reaches through arcs that fit (C11), one backward those that reach
    an end.
    """
    layers, fits = band.tables.layers, band.most_in_flight(0, 1)
    reached, masks = np.zeros(layers + 1, dtype=bool), []
    reached[layers] = True
    end = np.minimum(band.end, layers)
    for position in range(1, max(stages, default=0) + 1):
        mask = (fits >= position) & reached[end]
        masks.append(mask)
        reached = np.append(mask.any(axis=1), False)
        reached[0] = False
    wanted = np.zeros(layers + 1, dtype=bool)
    for position in range(len(masks), 0, -1):
        wanted[0] = position in stages
        mask = masks[position - 1] & wanted[:layers, None]
        masks[position - 1] = mask
        wanted = np.zeros(layers + 1, dtype=bool)
        wanted[end[mask]] = True
    return masks


def arcs_of(band: Band, variant: int, masks: list[Bools]) -> list[Ints]:
    """Return the columns of `Arcs` of one variant."""
    found = [np.nonzero(mask) for mask in masks]
    sizes = [len(first) for first, _ in found]
    position = np.repeat(np.arange(1, len(masks) + 1), sizes)
    first = np.concatenate([np.zeros(0, dtype=np.int64), *(first for first, _ in found)])
    column = np.concatenate([np.zeros(0, dtype=np.int64), *(column for _, column in found)])
    return [np.full(len(first), variant), position, first, first + column + 1, band.parameters[first, column]]
