"""The outer choices of a variant under the objective `simulated`, and the arguments that look at no single stage.

With ``T`` the sum of what all ``S`` stages pass on and ``m`` microbatches of a replica, every plan takes, by
the paths of `played_paths`,

- ``m`` times its largest load, which is no less than the mean and what the stage with the most heavy layers takes (as
  in `sum_choices`);
- ``T`` and the mean over all stages of what they wait for besides, whatever layers they have;
- in ``T`` and the synchronisation together also what holders of weights exchange at least. Under ZB-H1 gradients of
  weights are none of what is passed on, and that counts for nothing.

A stage of a load ``L`` waits for ``(m - 1) F + (m - n) B`` and for ``(m - n) F + (m - 1) B`` under 1F1B, and so for
their mean, ``(m - (n + 1) / 2) L``, however it divides: beside ``T`` that gives a cap on loads, which says what memory
asks for (`sum_memory`, `sum_trade`): ticks in ``T``, and a largest load.
"""

from __future__ import annotations

import numpy as np

from nest.certificate.played_paths import Paths
from nest.certificate.sum_choices import MOST_AT_ONCE, Left, crowded, least_exchanged
from nest.certificate.sum_memory import Memory, Spared
from nest.certificate.sum_trade import Trade
from nest.presets import ScheduleName
from nest.tables import GroupedTables
from nest.tables.speeds import SURE
from nest.units import LONGEST, Floats, Ints


class PlayedChoices:
    """The outer choices of a variant and a schedule without chunks.

    Parameters
    ----------
    tables, schedule
        Of all plans.
    value
        Ticks that plans are compared with.
    """

    def __init__(self, tables: GroupedTables, schedule: ScheduleName, value: int) -> None:
        self.tables, self.schedule, self.value = tables, schedule, value
        late = tables.weight if schedule == "zb-h1" else np.zeros_like(tables.weight)
        self.forward, self.backward = (each.astype(np.float64) for each in (tables.forward, tables.backward - late))
        self.weight: Floats = late.astype(np.float64)
        self.total = int((tables.work - late).sum())
        self._whatever: dict[tuple[int, int], int] = {}

    def by_mean(self, stages: Ints, replicas: Ints) -> Left:
        """Return what the mean, the heaviest layers and the exchange of gradients leave."""
        tables, further = self.tables, -(-self.tables.microbatches // replicas) - 1
        least = np.maximum(crowded(tables, stages), -(-int(tables.work.sum()) // stages))
        beside = np.zeros_like(stages)
        if self.schedule != "zb-h1":
            beside = least_exchanged(tables, stages, replicas)
        cap = self._cap(stages, further, beside)
        found = Left(stages, replicas, further, least, cap)
        rough = least <= cap
        fast = np.zeros_like(rough)
        fast[rough] = self._takes(found.only(rough)) + beside[rough] < self.value
        return found.only(fast)

    def _takes(self, found: Left) -> Ints:
        """Return what plans take whatever their cuts."""
        taken = []
        for key in zip(found.stages.tolist(), (found.further + 1).tolist(), strict=True):
            if key not in self._whatever:
                least = Paths(self.schedule, *key).whatever_cut(self.forward, self.backward, self.weight)
                self._whatever[key] = int(min(least * SURE, float(LONGEST)))
            taken.append(self._whatever[key])
        return np.array(taken, dtype=np.int64)

    def _cap(self, stages: Ints, further: Ints, beside: Ints) -> Ints:
        """Return the largest load of a plan below the value that has so many ticks beside its loads; -1 if none has."""
        count, room = further + 1, self.value - 1 - self.total - beside
        cap = np.minimum((self.value - 1) // count, LONGEST - 1)
        if self.schedule != "zb-h1":
            begun = np.ones_like(count) if self.schedule == "gpipe" else np.minimum(count, stages)
            twice = 2 * count - 1 - begun
            cap = np.where(twice > 0, np.minimum(cap, 2 * np.maximum(room, 0) // np.maximum(twice, 1)), cap)
        return np.where(room < 0, -1, cap)

    def by_memory(self, found: Left) -> Left:
        """Return what the memory of the first stages leaves."""
        memory = Memory(self.tables, self.schedule)
        parts = max(1, len(found.stages) * self.tables.layers // MOST_AT_ONCE)
        pieces = [found.only(rows) for rows in np.array_split(np.arange(len(found.stages)), parts)]
        left = [self._sparing(memory, self._sparing(memory, piece)) for piece in pieces]
        return self._sparing(Trade(memory), Left(*(np.concatenate(each) for each in zip(*left, strict=True))))

    def _sparing(self, memory: Memory | Trade, found: Left) -> Left:
        """Return what is left where stages have to spare memory."""
        spared: Spared = memory.spared(found.stages, found.replicas, found.cap)
        ticks = np.minimum(spared.ticks, float(LONGEST)).astype(np.int64)
        ticks = np.zeros_like(ticks) if self.schedule == "zb-h1" else ticks
        least = np.maximum(found.least, np.minimum(spared.largest, float(LONGEST)).astype(np.int64))
        cap = np.minimum(found.cap, self._cap(found.stages, found.further, ticks))
        fast = (self._takes(found) + ticks < self.value) & (least <= cap) & ~spared.impossible
        return found._replace(least=least, cap=cap).only(fast)
