"""Whether a plan of one outer choice takes less than a value under the objective `sum`: boxes, closed one by one.

A *box* is the set of plans each of whose stages has a load of at most ``T`` and a synchronisation of at most ``Y``, and
of whose stages one synchronises for ``F`` at least. Let ``f`` be the least sum of loads of stages within both caps. It
is a shortest path, as what a stage takes depends on its layers and its number from the end alone:

    ``f_q[first] = min over end > first of load_q(first, end) + f_{q-1}[end]``,  ``f_0[all] = 0``,  ``f = f_S[none]``.

``first`` and ``end`` are cuts: of a chain the numbers of layers before them; where layers branch, the downsets of the
graph, and a stage is any pair of them of which the larger holds the smaller (C3).

Every plan of the box takes ``f + (m - 1) * (its largest load) + F`` at least (D14). So of the plans below ``V`` in it

1. there is none, if ``f`` has no path;
2. none has a load above ``T' = (V - 1 - f - F) // (m - 1)``. If that is below the largest load ``t`` of the path of
   ``f``, the box with ``T'`` for ``T`` is left: one load less that occurs;
3. otherwise ``f + (m - 1) * t + F < V``. If the path synchronises for less than ``V - f - (m - 1) * t``, it is a plan
   below ``V``. If not, the box is split in two at this time: plans that have a stage which synchronises for so long,
   where step 2 takes the load ``t`` away, and plans that have none, where this path is no more.

No step drops a plan below ``V``. Each takes a load or a synchronisation away for good that some stage has, and these
are finitely many: so the steps come to an end, with a plan below ``V``, or with no box left, and then there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from nest.certificate.sum_stages import Loads, SumStages
from nest.plan import Plan
from nest.units import NEVER, Ints


class Box(NamedTuple):
    """The largest load and synchronisation of every stage, and the least that the slowest synchronisation takes."""

    load: int
    sync: int
    floor: int


class Path(NamedTuple):
    """Stages that hold all layers: sum and largest of their loads, and their largest synchronisation.

    ``stages`` says where each of them is in the tables, ``ways`` how it shards.
    """

    loads: int
    slowest: int
    sync: int
    stages: list[int]
    ways: list[int]


class Summed(Protocol):
    """Stages that hold all layers: sum and largest of their loads, and their largest synchronisation."""

    @property
    def loads(self) -> int:
        """Sum of the loads."""

    @property
    def slowest(self) -> int:
        """Largest load."""

    @property
    def sync(self) -> int:
        """Largest synchronisation."""


Found = TypeVar("Found", bound=Summed)


def below(path_of: Callable[[Box], Found | None], cap: int, value: int, further: int) -> Found | None:
    """Return the path of a plan below a value whose loads are at most a cap, None if there is none.

    Parameters
    ----------
    path_of
        Returns the path of the least sum of loads of a box, None if there is none below the value.
    further
        How often the largest load counts besides.
    """
    boxes = [Box(cap, NEVER, 0)]
    while boxes:
        box = boxes.pop()
        path = path_of(box)
        if path is None:
            continue
        left = value - 1 - path.loads - box.floor
        if left < further * path.slowest:
            boxes += [box._replace(load=left // further)] if further and left >= 0 else []
            continue
        at = value - path.loads - further * path.slowest
        if path.sync < at:
            return path
        boxes += [box._replace(sync=at - 1), box._replace(floor=at)]
    return None


class Boxes:
    """The plans of an outer choice.

    Parameters
    ----------
    stages
        Its stages.
    value
        Ticks that plans are compared with.
    watch
        Called now and then; raises where there is no more time.
    """

    def __init__(self, stages: SumStages, value: int, watch: Callable[[], None]) -> None:
        self.stages, self.value, self.watch, self.choice = stages, value, watch, stages.choice
        self.opens, self.before = stages.opens, stages.tables.by_cut(stages.tables.work)
        self.most = value - 1 - self.choice.further * self.choice.least
        self._sync, self._loads = -1, dict[int, Loads]()

    def better(self) -> Plan | None:
        """Return a plan below the value, None if there is none."""
        path = below(self.path, self.choice.cap, self.value, self.choice.further)
        return None if path is None else self.stages.plan(path.stages, path.ways)

    def path(self, box: Box) -> Path | None:
        """Return the path of the least sum of loads within the caps of a box; None if there is none below the value.

        Cuts before which there is more than the stages before can hold within the cap, or not without a sum of loads
        that leaves the largest no more than it takes at least, are no place to begin with.
        """
        band, rows = self.stages.band, [np.full_like(self.before, NEVER)]
        rows[0][-1] = 0
        for position in range(1, self.choice.stages + 1):
            after, before = rows[-1][band.reached], self.choice.stages - position
            reach = min(before * box.load, NEVER)
            open_ = (self.before <= reach)[band.first] & (after < NEVER)
            load = self._of(position, box, open_).load
            total = np.where((load <= box.load) & open_, load + np.where(open_, after, 0), NEVER)
            least = np.minimum.reduceat(total.ravel(), self.opens[:-1])
            rows.append(np.full_like(rows[0], NEVER))
            fits = np.flatnonzero(least <= self.most - self.before[:-1])
            rows[-1][fits] = least[fits]
            if not len(fits):
                return None
        return self._back(rows, box) if rows[-1][0] < NEVER else None

    def _of(self, position: int, box: Box, wanted: np.ndarray) -> Loads:
        """Return what stages take; with the cap on the synchronisation unchanged no more is wanted than was before."""
        if box.sync != self._sync:
            self._sync, self._loads = box.sync, {}
        if position not in self._loads:
            self.watch()
            self._loads[position] = self.stages.loads(position, box.load, box.sync, wanted)
        return self._loads[position]

    def _back(self, rows: list[Ints], box: Box) -> Path:
        cut, taken, ways, slowest, sync = 0, list[int](), list[int](), 0, 0
        ends = self.stages.band.reached.ravel()
        for position in range(self.choice.stages, 0, -1):
            load, waits, way = (each.ravel() for each in self._loads[position])
            there = slice(self.opens[cut], self.opens[cut + 1])
            after = rows[position - 1][ends[there]]
            within = (load[there] <= box.load) & (after < NEVER)
            least = np.where(within, load[there] + np.where(within, after, 0), NEVER)
            taken.append(int(self.opens[cut]) + int(np.argmin(least)))
            cut = int(ends[taken[-1]])
            slowest, sync = max(slowest, int(load[taken[-1]])), max(sync, int(waits[taken[-1]]))
            ways.append(int(way[taken[-1]]))
        return Path(int(rows[-1][0]), slowest, sync, taken, ways)
