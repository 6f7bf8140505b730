"""What memory costs an outer choice under the objective `sum`, each layer sparing it in its own best way.

As in `sum_memory`, a cap on the load says that the first ``u`` layers are in the first ``S - j`` stages, and how many
microbatches of each are in flight at least. What a layer asks for then, ``h`` bytes, depends on how its stage shards
and on whether it computes again; so do the ticks ``x`` that it adds to the load beyond its work. For any price ``p`` of
a byte these layers, which have the room ``R`` together, add at least

    (sum over them of the least ``x + p h``) - p R

to the loads of these stages: each has one of its ways, and all that they ask for is within ``R``. The best of some
prices is the bound. It holds for every way to cut, and for stages that differ in all they choose.

What ``n`` ranks exchange of ``b`` bytes has to come in where it is not: if a group of some level has room for ``h`` of
them only, the one that has the fewest has ``h`` and half of them at most, and over their links comes what the others
hold: ``b (1 / h - 1 / n)`` for each. Beside the passes of a layer a part of that is hidden. Of what runs beside passes
that are computed again, the tax is left at least, and of these passes themselves what the tax leaves of them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nest.certificate.sum_memory import ROUNDED, SURE, Memory, Spared
from nest.cost.exchanges import Part
from nest.cost.overlap import MILLION
from nest.tables import GroupedTables
from nest.tables.shares import Option
from nest.units import Floats, Ints

BINS = (1, 2, 8, 32, 2**62)
"""Groups of replicas from each of these sizes to the next count as one that is as large as any, and sends the least."""

PRICES = 16


class Trade:
    """Memory against time, for the layers of one variant.

    Parameters
    ----------
    memory
        Which layers are in the first stages, and what there is for them.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory, self.tables = memory, memory.tables
        self.visible = 1 - self.tables.hidden / MILLION
        self._ways: dict[tuple[int, bool], tuple[Floats, Floats]] = {}

    def spared(self, stages: Ints, replicas: Ints, cap: Ints) -> Spared:
        """Return the bounds of outer choices, whose loads are at most a cap."""
        flying, first = self.memory.pipeline(stages, replicas, cap)
        rows = zip(stages.tolist(), replicas.tolist(), flying, first, strict=True)
        found = [self._of(*row) for row in rows]
        ticks, largest = (np.array(each) for each in zip(*found, strict=True)) if found else (np.zeros(0),) * 2
        return Spared(ticks, largest, np.zeros(len(found), dtype=bool))

    def _of(self, stages: int, replicas: int, flying: Floats, first: Floats) -> tuple[float, float]:
        key = replicas, stages > 1
        if key not in self._ways:
            self._ways[key] = self._time_and_state(self.tables.options(replicas, stages))
        (time, state), order = self._ways[key], self.memory.order
        if not len(time):
            return np.inf, np.inf
        asked = state[..., order] + flying * self._kept[:, order]
        prices = self._prices(time[..., order], asked)
        paid = (time[..., order] + prices[:, None, None, None] * asked).min(axis=(1, 2))
        ticks = np.cumsum(paid, axis=1) * SURE - prices[:, None] * (first * self.memory.room) / SURE
        best = np.maximum(ticks.max(axis=0) - ROUNDED * 2 * self.tables.layers, 0)
        return float(best.max()), float(((self.memory.before + best) / first).max() * SURE)

    @property
    def _kept(self) -> Floats:
        """What each layer keeps of a microbatch, a row for each way to compute again."""
        tables = self.tables
        if "none" not in tables.kinds:
            return tables.least_kept[None].astype(np.float64)
        kept = (np.where(each.able, each.kept, tables.activations) for each in tables.repeating)
        return np.array([tables.activations, *kept], dtype=np.float64)

    @property
    def _again(self) -> Ints:
        """What each layer adds that computes again, likewise."""
        tables = self.tables
        if "none" not in tables.kinds:
            return np.zeros((1, tables.layers), dtype=np.int64)
        ticks = (np.where(each.able, each.ticks, 0) for each in tables.repeating)
        return np.array([np.zeros(tables.layers, dtype=np.int64), *ticks])

    def _time_and_state(self, options: tuple[Option, ...]) -> tuple[Floats, Floats]:
        """Return what each way adds to the load of each layer, by what it computes again, and what state it leaves."""
        ways, again = _ways(options), self._again
        time = np.array([self._time(way, again) for _, way in ways])
        state = np.array([self.tables.least_state(way) for way, _ in ways], dtype=np.float64)
        return time, state[:, None]

    def _time(self, way: Option, again: Ints) -> Floats:
        tables, visible = self.tables, self.visible
        gather, scatter = self._sent(way, "weights"), self._sent(way, "gradients")
        passes = {2: [(scatter, tables.backward)], 3: [(gather, tables.forward), (gather + scatter, tables.backward)]}
        exchanged = passes.get(way.zero, [])
        nothing = np.zeros(tables.layers)
        taxed: Floats = np.add.reduce([nothing, *(sent * visible for sent, _ in exchanged)]) + again
        if way.zero != 3:
            return taxed
        beside = np.add.reduce([sent - (1 - visible) * np.minimum(sent, own) for sent, own in exchanged])
        most: Floats = np.maximum(taxed, beside + visible * again)
        return most

    def _sent(self, way: Option, part: Part) -> Floats:
        """Return the ticks in which the ranks of a way send the weights of each layer, or their gradients."""
        tables, sent = self.tables, np.zeros(self.tables.layers)
        ranks = zip((tables.dense, tables.expert), tables.ranks(way.together), (False, True), strict=True)
        for weights, count, expert in ranks:
            copies = tables.problem.copies(tables.variant, expert=expert)
            sent += tables.bytes_of(weights) * _rate(tables, count, copies)
        return sent * (tables.times(part) * tables.scale.time.ticks_per_s)

    def _prices(self, time: Floats, asked: Floats) -> Floats:
        """Return prices of a byte at which layers change their ways, or near to these."""
        spared = asked[:, :1].max(axis=0) - asked
        added = time - time.min(axis=(0, 1))
        rates = (added / np.where(spared > 0, spared, np.inf)).ravel()
        rates = np.sort(rates[rates > 0])
        if not len(rates):
            return np.zeros(1)
        chosen = np.linspace(0, len(rates) - 1, PRICES).astype(np.int64)
        return np.concatenate([[0.0], rates[chosen]])


def _ways(options: tuple[Option, ...]) -> list[tuple[Option, Option]]:
    """Return ways to shard for all of them: of each the one that leaves the least, and the one that sends the least."""
    found = []
    for zero in sorted({option.zero for option in options}):
        alike = [option for option in options if option.zero == zero]
        if zero not in (2, 3):
            found += [(option, option) for option in dict.fromkeys((alike[0], alike[-1]))]
            continue
        for low, high in pairwise(BINS):
            some = [option for option in alike if low <= option.together < high]
            found += [(some[0], some[-1])] if some else []
    return found


def _rate(tables: GroupedTables, count: int, copies: tuple[int, int]) -> float:
    """Return the seconds for each byte that ranks gather or scatter at least, some of them in a block."""
    room, found, (inside, apart) = 1, 0.0, copies
    speeds = tables.exchanges.best_speeds
    for at, size in enumerate(tables.problem.cluster.group_sizes):
        if room < count:
            fewest = min(room, count / 2)
            found = max(found, (1 / fewest - 1 / count) / float(speeds[at:].max()))
        blocks = max(size // tables.width, 1)
        room = blocks * (inside if size >= tables.width else min(inside, -(-size // apart)))
    return found
