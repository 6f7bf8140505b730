"""The two paths of a plan: which arcs there are for its layers, and which for its places."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nest.milp.fits import Fits
from nest.milp.nearest import Room
from nest.tables import Band
from nest.units import Ints

Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Arcs:
    """Stages by their layers, in arrays of equal length.

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


@dataclass(frozen=True, slots=True)
class Places:
    """Stages by the blocks of replica 0 that they take, in arrays of equal length.

    Attributes
    ----------
    variant, position
        Which stage: the ``position``-th from the end.
    start, degree
        Blocks of the variant's width: the first one, and how many.
    """

    variant: Ints
    position: Ints
    start: Ints
    degree: Ints

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Options:
    """Ways to shard a stage, in arrays of equal length.

    Attributes
    ----------
    variant, position
        Which stage: the ``position``-th from the end.
    zero, degree
        ZeRO type and degree; 0 and 1 is no sharding.
    """

    variant: Ints
    position: Ints
    zero: Ints
    degree: Ints

    def __len__(self) -> int:
        return len(self.zero)


def reachable(fits: Fits, stages: Collection[int]) -> list[Bools]:
    """Return which stages lie on a path to one of the allowed numbers of ``stages``, by position from the end.

    One pass forward keeps the arcs that the start reaches through arcs that fit (C11), one backward those that reach
    an end.
    """
    layers = fits.band.tables.layers
    reached, masks = np.zeros(layers + 1, dtype=bool), []
    reached[layers] = True
    end = np.minimum(fits.band.end, layers)
    for position in range(1, max(stages, default=0) + 1):
        mask = fits.any(position) & reached[end]
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


def options_of(fits: Fits, variant: int, masks: Sequence[Bools]) -> list[Ints]:
    """Return the columns of `Options` of one variant: those that suit any of its arcs."""
    found = list[tuple[int, int, int]]()
    for position, mask in enumerate(masks, start=1):
        suits = fits.at(position) & mask
        found += [(position, *way) for row, way in enumerate(fits.shardings) if suits[row].any()]
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return [np.full(len(found), variant), *columns.T]


def places_of(
    variant: int, degrees: Sequence[Collection[int]], ends: Collection[tuple[int, int]], room: Room
) -> list[Ints]:
    """Return the columns of `Places` of one variant: what lies on a path from block 0 to one of the ends (C9).

    Parameters
    ----------
    degrees
        That the stages of the 1st, 2nd, ... position may have.
    ends
        Pairs of position and block at which a replica may end.
    room
        Where the stages of each position may start and end.
    """
    most = max((block for _, block in ends), default=0)
    reached = [np.arange(most + 1) == 0]
    for position, allowed in enumerate(degrees, start=1):
        reached[-1][: room.starts.get(position, 0)] = False
        after = np.zeros(most + 1, dtype=bool)
        for degree in allowed:
            after[degree:] |= reached[-1][: max(most + 1 - degree, 0)]
        after[room.ends.get(position, most) + 1 :] = False
        reached.append(after)
    wanted, found = np.zeros(most + 1, dtype=bool), list[list[Ints]]()
    for position in range(len(degrees), 0, -1):
        wanted[[block for at, block in ends if at == position]] = True
        before = np.zeros(most + 1, dtype=bool)
        for degree in sorted(degrees[position - 1]):
            start = np.flatnonzero(reached[position - 1][: max(most + 1 - degree, 0)] & wanted[degree:])
            before[start] = True
            found.append([np.full(len(start), each) for each in (variant, position)])
            found[-1] += [start, np.full(len(start), degree)]
        wanted = before
    empty = [np.zeros(0, dtype=np.int64)]
    return [np.concatenate(empty + [part[name] for part in reversed(found)]) for name in range(4)]
