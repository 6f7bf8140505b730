"""Bounds where devices are of several classes, by the stages for which the faster ones have room."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nest.dp.outer import THRESHOLDS
from nest.tables import GroupedTables
from nest.tables.speeds import SURE
from nest.units import NEVER, Floats, Ints, distinct


def shared(work: int, slow: list[float], further: int) -> int:
    """Return a bound of the sum of loads and of ``further`` times the largest, of stages that are so many times slower.

    Where ``T`` is the largest, stages have up to ``T`` over their slowness of the work, and the sum is the least where
    the fastest have as much as they may. It is linear in ``T`` between the values at which one more of them is full.
    """
    full = np.cumsum(1 / np.sort(np.array(slow)))
    least = (np.arange(1, len(slow) + 1) + further) * (work / full)
    return int(float(least.min()) * SURE)


class _Heavy(NamedTuple):
    """Layers whose work is at least some threshold.

    Parameters
    ----------
    layers
        How many there are.
    each, more
        Ticks that one of them takes at least in a stage that is not on the 0, 1, ... fastest classes alone, and how
        many these are more than the fewest on any class.
    loads
        All loads of stages of the lightest of them, ascending.
    """

    layers: int
    each: Ints
    more: Ints
    loads: Ints


class ClassBounds:
    """Lower bounds for one variant.

    A stage is on the ``k`` fastest classes alone only if all its replicas are, and these have room for so many of its
    blocks. In each other one some device is slower, and so is every layer.

    Parameters
    ----------
    tables
        Of the variant.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.tables, self.total, cluster = tables, int(tables.work.sum()), tables.problem.cluster
        slow = {name: tables.slowdown(frozenset({name})) for name in cluster.class_names}
        self.names = sorted(slow, key=lambda name: slow[name])
        self.slow = [slow[name] for name in self.names]
        self.blocks = np.cumsum([cluster.count_of(name) for name in self.names])[:-1] // tables.width
        thresholds = distinct(tables.work[tables.work > 0])
        self._heavy = [self._above(each) for each in thresholds[:: max(1, len(thresholds) // THRESHOLDS)].tolist()]
        self._known: dict[tuple[int, ...], int] = {}

    def _above(self, threshold: int) -> _Heavy:
        heavy = self.tables.work >= threshold
        works = [self.tables.on(frozenset({name})).work[heavy] for name in self.names]
        each, more = (
            np.minimum.accumulate([int((work - less).min()) for work in reversed(works)])[::-1]
            for less in (0, self.tables.work[heavy])
        )
        count = int(heavy.sum())
        return _Heavy(count, each, more, distinct((each[:, None] * np.arange(1, count + 1)).ravel()))

    def least(self, stages: int, replicas: int, further: int) -> int:
        """Return a bound of the objective with so many stages and at least so many replicas.

        Parameters
        ----------
        further
            Microbatches of a replica but one.
        """
        counts = np.diff([0, *np.minimum(self.blocks // replicas, stages).tolist(), stages])
        key = further, *counts.tolist()
        if key not in self._known:
            slow = [each for each, count in zip(self.slow, counts.tolist(), strict=True) for _ in range(count)]
            found = [_by_count(each, counts, further) for each in self._heavy]
            self._known[key] = max(shared(self.total, slow, further), self.total + max(found, default=0))
        return self._known[key]


def _by_count(heavy: _Heavy, counts: Ints, further: int) -> int:
    """Return what heavy layers add to all work at least, and the largest load for every further microbatch.

    Parameters
    ----------
    counts
        Stages on the fastest class alone, on the two fastest, ...

    Notes
    -----
    In a load each of them holds a whole number of heavy layers at most. The smaller the load, the fewer have room on
    the fastest classes; between two loads that occur nothing changes.
    """
    room: Ints = counts[:, None] * (heavy.loads // heavy.each[:, None])
    filled = np.minimum(np.cumsum(room, axis=0), heavy.layers)
    added = (np.diff(filled, axis=0, prepend=0) * heavy.more[:, None]).sum(axis=0)
    taken: Floats = added + further * heavy.loads.astype(np.float64)
    return int(np.clip(taken[filled[-1] == heavy.layers].min(initial=NEVER) * SURE, 0, NEVER))
