"""Stages under the objective `sum`, each in a way to shard and to recompute, and those of them that no other beats."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from nest.units import NEVER, Ints, distinct

Kept: TypeAlias = Literal["every", "sharding", "fastest"]
"""Which ways of a stage are kept, see `nest.milp.sum_stages.StageWays`."""


class Ways(NamedTuple):
    """Stages, each in a way to shard and to recompute: columns of equal length.

    Attributes
    ----------
    first, end
        Cuts before and behind.
    load, sync
        Ticks for each microbatch, and once per iteration.
    option, kind, layers
        Place among the options of the outer choice, place of what is recomputed in `GroupedTables.repeating` from 1, or
        0 for nothing, and in how many layers.
    sent
        Bytes of an iteration, a column for each of `nest.constraints.Filters.crossed`.
    """

    first: Ints
    end: Ints
    load: Ints
    sync: Ints
    option: Ints
    kind: Ints
    layers: Ints
    sent: Ints

    def pick(self, chosen: np.ndarray) -> Ways:
        """Return those that a mask or indices pick."""
        at = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        return Ways(*(column[at] for column in self))

    @classmethod
    def together(cls, parts: list[Ways], columns: int = 0) -> Ways:
        """Return the stages of all parts; with so many columns of bytes where there is none."""
        none = np.zeros((0, columns), dtype=np.int64)
        every = parts or [cls._make([*[none[:, :0].ravel()] * (len(cls._fields) - 1), none])]
        return cls._make(np.concatenate(columns) for columns in zip(*every, strict=True))


def undominated(ways: Ways, cuts: int) -> Ways:
    """Return for each stage the ways than which no other is better in one figure and no worse in the others."""
    stage = ways.first * cuts + ways.end
    if ways.sent.size:
        return _undominated_by_bytes(ways, stage)
    order = np.lexsort((ways.sync, ways.load, stage))
    stage, sync = stage[order], ways.sync[order]
    ranks = np.searchsorted(distinct(sync), sync)
    begins = np.concatenate([np.ones(1, dtype=bool), stage[1:] != stage[:-1]])[: len(stage)]
    ranks -= np.cumsum(begins) * (1 + ranks.max(initial=0))  # of each stage all are below those of the one before
    before = np.concatenate([np.full(1, NEVER), np.minimum.accumulate(ranks)])[:-1]
    return ways.pick(order[ranks < before])


def _undominated_by_bytes(ways: Ways, stage: Ints) -> Ways:
    """Return the same where bytes count as well: each way beside those of its stage that come before it in an order."""
    figures = np.column_stack([ways.load, ways.sync, ways.sent])
    order = np.lexsort((*figures.T[::-1], stage))
    stage, figures = stage[order], figures[order]
    kept, apart = np.ones(len(order), dtype=bool), 1
    while len(near := np.flatnonzero(stage[apart:] == stage[:-apart])):
        kept[near[(figures[near] <= figures[near + apart]).all(axis=1)] + apart] = False
        apart += 1
    return ways.pick(order[kept])
