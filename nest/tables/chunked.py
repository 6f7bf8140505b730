"""Tables of the stages of an interleaved pipeline: the one cut of a chain into equal parts, several on each stage."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nest.cost.schedules import Schedule
from nest.pipeline import Flight, flights
from nest.tables.banded import GroupedBand
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Option
from nest.tables.ways import ShardedWay
from nest.units import Ints


class Again(NamedTuple):
    """What a stage computes again: a place in `GroupedTables.repeating` from 1, or 0, how many layers, ticks."""

    kind: int
    layers: int
    ticks: int


class ChunkedBand(GroupedBand):
    """Tables of the stages, from the first of the pipeline on; ``first`` and ``end`` have a row for each chunk.

    Parameters
    ----------
    tables
        Of the variant, a chain.
    ends
        Where the parts end, as `LayerGraph.equal_parts` has it.
    stages, microbatches
        Of a replica.
    """

    def __init__(self, tables: GroupedTables, ends: tuple[int, ...], stages: int, microbatches: int) -> None:
        self._ends, self.stages, self.microbatches = np.array([0, *ends]), stages, microbatches
        self._held: dict[tuple[int, bool, bool], list[list[tuple[int, int, int]]]] = {}
        super().__init__(tables, tables.layers)

    def _cut(self) -> None:
        self.first, self.end = (each.reshape(-1, self.stages) for each in (self._ends[:-1], self._ends[1:]))
        self.reached, self.valid = self.end, np.ones(self.stages, dtype=bool)
        self.counts = (self.end - self.first).sum(axis=0)
        schedule = Schedule("interleaved", len(self.first))
        self.flights: list[tuple[Flight, ...]] = [
            flights(schedule, self.stages, at, self.microbatches) for at in range(self.stages)
        ]

    def sums(self, values: Ints) -> Ints:
        """Return the sum of a value of layers in each stage."""
        ends = self.tables.by_cut(values)
        found: Ints = (ends[self.end] - ends[self.first]).sum(axis=0)
        return found

    def _opened(self, values: Ints) -> Ints:
        found: Ints = values[self.first].sum(axis=0)
        return found

    def transfers(self, levels: Ints) -> Ints:
        """Ticks of the transfers of each stage, in the slowest replica.

        Parameters
        ----------
        levels
            Between each stage and the next, of the last and the first: a row for each replica.
        """
        found = np.zeros(self.stages, dtype=np.int64)
        for row in {tuple(each) for each in levels.tolist()}:
            total = np.zeros(self.stages, dtype=np.int64)
            for boundary, cut in enumerate(self._ends[1:-1].tolist()):
                ticks = self.tables.hops(row[boundary % self.stages])[cut]
                total[boundary % self.stages] += ticks
                total[(boundary + 1) % self.stages] += ticks
            found = np.maximum(found, total)
        return found

    def layers_of(self, at: int) -> Ints:
        """Return the places of a stage's layers."""
        runs = zip(self.first[:, at].tolist(), self.end[:, at].tolist(), strict=True)
        return np.concatenate([np.arange(*run) for run in runs])

    def cheapest(self, way: ShardedWay, at: int) -> Again | None:
        """Return what a stage computes again under a way to shard so that it fits, the fastest, None if nothing."""
        room, best = int(self.rooms(way.option)[at]), None
        for kind, count, passing in self._passing(way.option)[at] if room >= 0 else ():
            if passing <= room and (best is None or best.kind != kind):
                ticks = self._repeated(way, at, kind, count)
                if best is None or ticks < best.ticks:
                    best = Again(kind, count, ticks)
        return best

    def _repeated(self, way: ShardedWay, at: int, kind: int, count: int) -> int:
        if kind == 0:
            return 0
        able, layers = self.tables.repeating[kind - 1].able, self.layers_of(at)
        before = np.concatenate([[0], np.cumsum(able)])
        each = np.diff(way.again[kind - 1])[before[layers[able[layers]]]]
        return int(each[:count].sum())

    def _passing(self, option: Option) -> list[list[tuple[int, int, int]]]:
        """Return for each stage what it may compute again, and the quanta that microbatches take then at their peak."""
        ranks = self.tables.ranks(option.together)
        key = option.zero, ranks.dense > 1, ranks.expert > 1
        if key not in self._held:
            whole = self.tables.whole(ranks, option.zero)
            self._held[key] = [list(self._ways(at, whole)) for at in range(self.stages)]
        return self._held[key]

    def _ways(self, at: int, whole: Ints) -> list[tuple[int, int, int]]:
        tables, layers = self.tables, self.layers_of(at)
        plain = self._peak_of(at, tables.activations[layers], (tables.working + whole)[layers])
        found, idle = list[tuple[int, int, int]](), True
        for kind, each in enumerate(tables.repeating, start=1):
            able = np.flatnonzero(each.able[layers])
            idle = idle and not len(able)
            for count in range(1, len(able) + 1):
                if tables.problem.choices.admits_recomputed(count, len(able)):
                    found.append((kind, count, self._again_peak(at, layers, able[:count], kind, whole)))
        return [(0, 0, plain), *found] if "none" in tables.kinds or idle else found

    def _again_peak(self, at: int, layers: Ints, again: Ints, kind: int, whole: Ints) -> int:
        tables, each = self.tables, self.tables.repeating[kind - 1]
        kept, moment = tables.activations[layers], (tables.working + whole)[layers]
        kept[again], moment[again] = each.kept[layers[again]], (each.working + whole)[layers[again]]
        return self._peak_of(at, kept, moment)

    def _peak_of(self, at: int, kept: Ints, moment: Ints) -> int:
        """Return what microbatches take at their peak, if the layers of a stage keep so much each."""
        sizes = (self.end - self.first)[:, at].tolist()
        ends = np.cumsum([0, *sizes])
        runs = [slice(first, end) for first, end in pairwise(ends.tolist())]
        whole = np.array([kept[run].sum() for run in runs])
        peaks = [int((np.cumsum(kept[run]) + moment[run]).max()) for run in runs]
        return max(
            int((np.array(each.kept) * whole).sum() - whole[each.chunk]) + peaks[each.chunk]
            for each in self.flights[at]
        )
