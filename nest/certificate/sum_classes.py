"""What devices of several classes say about an outer choice under the objective `sum`, by counting heavy layers.

A stage is on the ``k`` fastest classes alone only if all blocks of its ``d`` replicas are. So no more than ``B / d`` of
the stages are, ``B`` being the blocks of these classes; on each other one some device is of a slower class, and every
layer takes as long there at least. Of the ``c`` heaviest layers, none of which takes less than ``w_k`` where stages are
not on the ``k`` fastest classes alone, a stage with a load of ``T`` has ``T // w_k`` at most. So

- the largest load is no less than the least ``T`` for which all stages together have ``c``;
- those for which there is no room on faster classes within ``T`` take more than the fewest ticks of any class, all of
  them together as much more as the sum of loads has beyond that.

Where the blocks stand, the classes under each stage are known: then stages are filled from the last on, each with all
that is within the cap on the largest load. Filling up is the best, as whatever is left for a stage only shrinks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nest.tables import GroupedTables
from nest.units import Ints

MOST = 6
"""Numbers of heaviest layers that are looked at."""


class _Heaviest(NamedTuple):
    """Some of the heaviest layers: how many, and what each takes at least by how many classes are too fast, or more."""

    layers: int
    each: Ints
    more: Ints


class ByClass:
    """Outer choices of one variant on devices of several classes.

    Parameters
    ----------
    tables
        Of the variant.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.tables, cluster = tables, tables.problem.cluster
        named = {name: tables.on(frozenset({name})).work for name in cluster.class_names}
        names = sorted(named, key=lambda name: int(named[name].sum()))
        self.room = np.cumsum([cluster.count_of(name) for name in names])[:-1] // tables.width
        works, order = np.array([named[name] for name in names]), np.argsort(-tables.work, kind="stable")
        weights = tables.work[order]
        ends = np.flatnonzero(np.diff(weights, append=-1)) + 1  # behind the last of those that are as heavy
        chosen = ends[np.unique(np.linspace(0, len(ends) - 1, MOST).astype(np.int64))]
        self.heaviest = [_heaviest(works[:, order[:end]], weights[:end]) for end in chosen.tolist()]

    def stages(self, stages: Ints, replicas: Ints) -> Ints:
        """Return how many stages are on the fastest class alone at most, how many more on the two fastest, ..."""
        most = np.minimum(self.room // replicas[:, None], stages[:, None])
        return np.diff(most, prepend=0, append=stages[:, None])

    def largest(self, counts: Ints) -> Ints:
        """Return what the largest load is at least."""
        least = np.zeros(len(counts), dtype=np.int64)
        for count, each, _ in self.heaviest:
            loads = np.unique(each[each > 0, None] * np.arange(1, count + 1))
            if len(loads) and (each > 0).all():
                held = counts @ (loads // each[:, None])
                least = np.maximum(least, loads[np.argmax(held >= count, axis=1)])
        return least

    def added(self, counts: Ints, cap: Ints) -> Ints:
        """Return by how much all loads together are more than all work where none is above a cap."""
        most, within = np.zeros(len(counts), dtype=np.int64), np.maximum(cap, 0)
        for count, each, more in self.heaviest:
            held = counts * np.where(each > 0, np.minimum(within[:, None] // np.maximum(each, 1), count), count)
            taken = np.diff(np.minimum(np.cumsum(held, axis=1), count), axis=1, prepend=0)
            most = np.maximum(most, taken @ more)
        return most


def _heaviest(works: Ints, least: Ints) -> _Heaviest:
    """Return what layers say, given their work on each class, the fastest first, and the least of any."""
    each, more = (np.minimum.accumulate((works - of).min(axis=1)[::-1])[::-1] for of in (np.zeros_like(least), least))
    return _Heaviest(len(least), each, more)


def holds_all(tables: GroupedTables, classes: Sequence[frozenset[str]], cap: int) -> bool:
    """Whether stages on devices of some classes, from the first on, may hold all layers with no load above a cap.

    Where layers branch nothing is asked.
    """
    if not classes[0] or tables.graph.unordered_pair is not None:
        return True
    sums = {each: [0, *np.cumsum(tables.on(each).work).tolist()] for each in set(classes)}
    end = tables.layers
    for each in reversed(classes):
        end = bisect_left(sums[each], sums[each][end] - cap)
    return end == 0
