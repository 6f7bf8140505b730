"""Whether a plan of one outer choice takes less than a value under the objective `sum`: boxes, closed one by one.

A *box* is the set of plans each of whose stages has a load of at most ``T`` and a synchronisation of at most ``Y``, and
of whose stages one synchronises for ``F`` at least. Let ``f`` be the least sum of loads of stages within both caps. It
is a shortest path, as what a stage takes depends on its layers and its number from the end alone:

    ``f_q[first] = min over end > first of load_q(first, end) + f_{q-1}[end]``,  ``f_0[layers] = 0``,  ``f = f_S[0]``.

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
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nest.certificate.sum_stages import Loads, SumStages
from nest.plan import Plan
from nest.tables import prefix
from nest.units import NEVER, Ints


class Box(NamedTuple):
    """The largest load and synchronisation of every stage, and the least that the slowest synchronisation takes."""

    load: int
    sync: int
    floor: int


class Path(NamedTuple):
    """Stages that hold all layers: sum and largest of their loads, largest synchronisation, cuts, ways to shard."""

    loads: int
    slowest: int
    sync: int
    cuts: list[int]
    ways: list[int]


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
        self.depth, self.layers = stages.band.depth, stages.tables.layers
        self.before = prefix(stages.tables.work)
        self.most = value - 1 - self.choice.further * self.choice.least
        self._sync, self._loads = -1, dict[int, Loads]()

    def better(self) -> Plan | None:
        """Return a plan below the value, None if there is none."""
        boxes = [Box(self.choice.cap, NEVER, 0)]
        while boxes:
            box = boxes.pop()
            path = self.path(box)
            if path is None:
                continue
            left = self.value - 1 - path.loads - box.floor
            if left < self.choice.further * path.slowest:
                boxes += [box._replace(load=left // self.choice.further)] if self.choice.further and left >= 0 else []
                continue
            at = self.value - path.loads - self.choice.further * path.slowest
            if path.sync < at:
                return self.stages.plan(path.cuts, path.ways)
            boxes += [box._replace(sync=at - 1), box._replace(floor=at)]
        return None

    def path(self, box: Box) -> Path | None:
        """Return the path of the least sum of loads within the caps of a box; None if there is none below the value.

        Layers that the stages before cannot hold within the cap, or not without a sum of loads that leaves the largest
        no more than it takes at least, are no place to begin with.
        """
        rows = [np.full(self.layers + self.depth + 1, NEVER, dtype=np.int64)]
        rows[0][self.layers] = 0
        for position in range(1, self.choice.stages + 1):
            after = sliding_window_view(rows[-1][1:], self.depth)[: self.layers]
            before = self.choice.stages - position
            reach = min(before * box.load, NEVER)
            open_ = (self.before[: self.layers] <= reach)[:, None] & (after < NEVER)
            load = self._of(position, box, open_).load
            total = np.where((load <= box.load) & open_, load + np.where(open_, after, 0), NEVER).min(axis=1)
            rows.append(np.full_like(rows[0], NEVER))
            fits = total <= self.most - self.before[: self.layers]
            rows[-1][: self.layers][fits] = total[fits]
            if not fits.any():
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
        cuts, ways, slowest, sync = [0], list[int](), 0, 0
        for position in range(self.choice.stages, 0, -1):
            first, found = cuts[-1], self._loads[position]
            load = found.load[first]
            after = rows[position - 1][first + 1 : first + 1 + self.depth]
            within = (load <= box.load) & (after < NEVER)
            column = int(np.argmin(np.where(within, load + np.where(within, after, 0), NEVER)))
            slowest, sync = max(slowest, int(load[column])), max(sync, int(found.sync[first, column]))
            cuts.append(first + 1 + column)
            ways.append(int(found.way[first, column]))
        return Path(int(rows[-1][0]), slowest, sync, cuts, ways)
