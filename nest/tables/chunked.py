"""Tables of the stages of an interleaved pipeline: the one cut of a chain into equal parts, several on each stage."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nest.cost.schedules import Schedule
from nest.pipeline import Flight, flights
from nest.places import Placing
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


def levels_around(tables: GroupedTables, stages: int, replicas: int, placing: Placing) -> Ints:
    """Return the levels between each stage and the next, of the last and the first: a row for each replica that counts.

    Parameters
    ----------
    stages, replicas
        How many there are.
    placing
        Where they stand.
    """
    counted = replicas if tables.problem.preset.all_replicas else 1
    first = np.array(placing.starts(stages), dtype=np.int64)
    starts = placing.line.devices(first + placing.stride * np.arange(counted, dtype=np.int64)[:, None])
    levels: Ints = tables.problem.cluster.spans(starts, np.roll(starts, -1, axis=1))
    return levels


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
        self._held: dict[tuple[int, bool, bool, int, int], tuple[Ints, Ints]] = {}
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
            As `levels_around` has them.
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
        return self._layers[at]

    @cached_property
    def _layers(self) -> list[Ints]:
        columns = zip(self.first.T.tolist(), self.end.T.tolist(), strict=True)
        return [np.concatenate([np.arange(*run) for run in zip(*each, strict=True)]) for each in columns]

    def cheapest(self, way: ShardedWay, at: int) -> Again | None:
        """Return what a stage computes again under a way to shard so that it fits, the fastest, None if nothing."""
        best = None
        for again in self.fitting(way, at, fewest=True):
            if again.kind == 0:
                return again
            best = again if best is None or again.ticks < best.ticks else best
        return best

    def fitting(self, way: ShardedWay, at: int, *, fewest: bool = False) -> Iterator[Again]:
        """Yield what a stage may compute again under a way to shard so that it fits, nothing at first if it may.

        Parameters
        ----------
        fewest
            Of each kind in as few layers as can be, which is the fastest.
        """
        room, able = int(self.rooms(way.option)[at]), (each.able[self.layers_of(at)] for each in self.tables.repeating)
        if room < 0:
            return
        plain = "none" in self.tables.kinds or not any(each.any() for each in able)
        if plain and int(self._passing(way.option, at, 0)[1][0]) <= room:
            yield Again(0, 0, 0)
        for kind in range(1, len(self.tables.repeating) + 1):
            counts, passing = self._passing(way.option, at, kind)
            for count in counts[passing <= room].tolist()[: 1 if fewest else None]:
                yield Again(kind, count, self._repeated(way, at, kind, count))

    def _repeated(self, way: ShardedWay, at: int, kind: int, count: int) -> int:
        able, layers = self.tables.repeating[kind - 1].able, self.layers_of(at)
        before = np.concatenate([[0], np.cumsum(able)])
        each = np.diff(way.again[kind - 1])[before[layers[able[layers]]]]
        return int(each[:count].sum())

    def _passing(self, option: Option, at: int, kind: int) -> tuple[Ints, Ints]:
        """Return how many layers of a stage may compute again, and the quanta that microbatches take then at most."""
        ranks = self.tables.ranks(option.together)
        key = option.zero, ranks.dense > 1, ranks.expert > 1, at, kind
        if key not in self._held:
            self._held[key] = self._passing_of(self.tables.whole(ranks, option.zero), at, kind)
        return self._held[key]

    def _passing_of(self, whole: Ints, at: int, kind: int) -> tuple[Ints, Ints]:
        tables, layers = self.tables, self.layers_of(at)
        kept, moment = tables.activations[layers], (tables.working + whole)[layers]
        if kind == 0:
            return np.zeros(1, dtype=np.int64), self._peaks_at(at, kept[None], moment[None])
        each = tables.repeating[kind - 1]
        able = each.able[layers]
        most = int(able.sum())
        allowed = [count for count in range(1, most + 1) if tables.problem.choices.admits_recomputed(count, most)]
        counts = np.array(allowed, dtype=np.int64)
        again = able & (np.cumsum(able) <= counts[:, None])
        held = np.where(again, each.kept[layers], kept)
        return counts, self._peaks_at(at, held, np.where(again, (each.working + whole)[layers], moment))

    def _peaks_at(self, at: int, kept: Ints, moment: Ints) -> Ints:
        """Return what microbatches take at most where the layers of a stage keep so much each: a value for each row."""
        ends = np.cumsum([0, *(self.end - self.first)[:, at].tolist()])
        runs = [slice(first, end) for first, end in pairwise(ends.tolist())]
        whole = np.stack([kept[:, run].sum(axis=1) for run in runs])
        peaks = np.stack([(np.cumsum(kept[:, run], axis=1) + moment[:, run]).max(axis=1) for run in runs])
        chunks = [each.chunk for each in self.flights[at]]
        held = np.array([each.kept for each in self.flights[at]]) @ whole
        most: Ints = (held - whole[chunks] + peaks[chunks]).max(axis=0)
        return most
