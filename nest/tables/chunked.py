"""Tables of the stages of an interleaved pipeline: the one cut of a chain into equal parts, several on each stage."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nest.cost.schedules import Schedule
from nest.pipeline import Flight, flights, shown_waves
from nest.places import Placing
from nest.tables.banded import GroupedBand
from nest.tables.grouped import GroupedTables
from nest.tables.repeated import Passing
from nest.tables.shares import Option
from nest.tables.ways import ShardedWay
from nest.units import NEVER, Ints


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


def alike(tables: GroupedTables, stages: int, microbatches: int) -> tuple[int, ...]:
    """Return what all numbers of microbatches have in common whose `ChunkedBand` has the same stages.

    Where boundaries are buffered, of every microbatch, that is the number itself.
    """
    buffers = tables.problem.training.buffers_boundaries
    return (microbatches,) if buffers else shown_waves(stages, microbatches)


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
        self._fits: dict[tuple[Option, int], list[tuple[int, int]]] = {}
        super().__init__(tables, tables.layers)

    def _cut(self) -> None:
        self.first, self.end = (each.reshape(-1, self.stages) for each in (self._ends[:-1], self._ends[1:]))
        self.reached, self.valid = self.end, np.ones(self.stages, dtype=bool)
        self.counts = (self.end - self.first).sum(axis=0)
        schedule = Schedule("interleaved", len(self.first))
        self.flights: list[tuple[Flight, ...]] = [
            flights(schedule, self.stages, at, self.microbatches, every=self._all.buffered) for at in range(self.stages)
        ]

    def sums(self, values: Ints) -> Ints:
        """Return the sum of a value of layers in each stage."""
        ends = self.tables.by_cut(values)
        found: Ints = (ends[self.end] - ends[self.first]).sum(axis=0)
        return found

    def opened(self, values: Ints) -> Ints:
        """Return a value of the first layer of each chunk, of all chunks of a stage together."""
        found: Ints = values[self.first].sum(axis=0)
        return found

    def by_chunk(self, values: Ints) -> Ints:
        """Return the sum of a value of layers in each chunk: a row for each chunk, a column for each stage."""
        ends = self.tables.by_cut(values)
        found: Ints = ends[self.end] - ends[self.first]
        return found

    @cached_property
    def passes(self) -> tuple[Ints, Ints]:
        """Ticks of both passes of each chunk, apart from transfers, sharding and recomputation."""
        return self.by_chunk(self.tables.forward), self.by_chunk(self.tables.work - self.tables.forward)

    def shown(self, way: ShardedWay) -> tuple[Ints, Ints]:
        """Return the ticks that a way to shard adds to both passes of each chunk, recomputation apart.

        What is left of exchanges behind a whole stage its chunks share as equally as ticks allow.
        """
        if way.option.zero == 2:
            own, chunk, count = self.own(way), np.arange(len(self.first))[:, None], len(self.first)
            behind: Ints = own * (chunk + 1) // count - own * chunk // count
            return np.zeros_like(behind), behind
        return self.by_chunk(way.early) + way.ahead[self.first], self.by_chunk(way.extra - way.early)

    def crossings(self, levels: Ints) -> tuple[Ints, Ints]:
        """Return the ticks of the transfers in both passes of each chunk.

        Of replicas that which takes the longest counts, of several the one whose forward passes do, and of these the
        one whose neighbours are the furthest away, first those before it.

        Parameters
        ----------
        levels
            As for `transfers`.
        """
        rows = sorted({tuple(each) for each in levels.tolist()})
        known = [self._crossing(row) for row in rows]
        found = np.zeros((2, *self.first.shape), dtype=np.int64)
        for at in range(self.stages):
            keys = [
                (int(both[:, :, at].sum()), int(both[0, :, at].sum()), row[at - 1], row[at])
                for row, both in zip(rows, known, strict=True)
            ]
            found[:, :, at] = known[keys.index(max(keys))][:, :, at]
        return found[0], found[1]

    def _crossing(self, row: tuple[int, ...]) -> Ints:
        """Return the same of one replica: by pass, chunk and stage."""
        found = np.zeros((2, self.first.size), dtype=np.int64)
        for boundary, cut in enumerate(self._ends[1:-1].tolist()):
            level = row[boundary % self.stages]
            sent = int(self.tables.sends(level)[cut])
            received = int(self.tables.hops(level)[cut]) - sent
            found[:, boundary] += sent, received
            found[:, boundary + 1] += received, sent
        by_chunk: Ints = found.reshape(2, *self.first.shape)
        return by_chunk

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
        return min(self.again(way, at), key=lambda each: each.ticks, default=None)

    def again(self, way: ShardedWay, at: int, *, every: bool = False) -> list[Again]:
        """Return what a stage may compute again so that it fits, of each kind the least; nothing if it can.

        Parameters
        ----------
        every
            Return everything that it may.
        """
        fitting = self._kinds(way.option, at, every=True) if every else self._fitting(way.option, at)
        return [
            Again(kind, count, self.sum_again(at, Again(kind, count, 0), way.again[kind - 1]) if kind else 0)
            for kind, count in fitting
        ]

    def least_again(self, option: Option) -> Ints:
        """Return the ticks that each stage computes again at least so that it fits, `NEVER` where nothing makes it."""
        ticks = [
            min((self._ticks_again(at, *each) for each in self._fitting(option, at)), default=NEVER)
            for at in range(self.stages)
        ]
        return np.array(ticks, dtype=np.int64)

    def _ticks_again(self, at: int, kind: int, count: int) -> int:
        if kind == 0:
            return 0
        layers, repeating = self.layers_of(at), self.tables.repeating[kind - 1]
        return int(self._taking(repeating.ticks[layers[repeating.able[layers]]], count).sum())

    def _fitting(self, option: Option, at: int) -> list[tuple[int, int]]:
        """Return of each kind the fewest layers that make a stage fit; no layers alone if it does without."""
        key = option, at
        if key not in self._fits:
            self._fits[key] = list(self._kinds(option, at, every=False))
        return self._fits[key]

    def _kinds(self, option: Option, at: int, *, every: bool) -> Iterator[tuple[int, int]]:
        """Yield kinds and numbers of layers that make a stage fit: all, or the fewest of each and nothing if it can."""
        room = int(self.rooms(option, self._all)[at])
        able = (each.able[self.layers_of(at)].any() for each in self.tables.repeating)
        plain = room >= 0 and ("none" in self.tables.kinds or not any(able))
        plain = plain and int(self._passing(option, at, 0)[1][0]) <= room
        if plain:
            yield 0, 0
        for kind in range(1, len(self.tables.repeating) + 1) if room >= 0 and (every or not plain) else ():
            counts, passing = self._passing(option, at, kind)
            for count in counts[passing <= room][: None if every else 1].tolist():
                yield kind, count

    def repeated_by_chunk(self, way: ShardedWay, at: int, again: Again) -> Ints:
        """Return the ticks of what a stage computes again, for each of its chunks."""
        found = np.zeros(len(self.first), dtype=np.int64)
        if again.kind:
            able = self.tables.repeating[again.kind - 1].able[self.layers_of(at)]
            chunk = np.repeat(np.arange(len(found)), (self.end - self.first)[:, at])[able]
            ticks = self._repeated(way, at, again.kind)
            np.add.at(found, self._taking(chunk, again.layers), self._taking(ticks, again.layers))
        return found

    def sum_again(self, at: int, again: Again, values: Ints) -> int:
        """Return the sum of a value of those layers of a stage that compute again.

        Parameters
        ----------
        values
            Sums of that of the first 0, 1, ... layers that can.
        """
        return int(self._taking(self._able_values(at, again.kind, values), again.layers).sum())

    def _repeated(self, way: ShardedWay, at: int, kind: int) -> Ints:
        """Return the ticks of each layer of a stage that can compute again."""
        return self._able_values(at, kind, way.again[kind - 1])

    def _able_values(self, at: int, kind: int, values: Ints) -> Ints:
        """Return a value of each layer of a stage that can compute again, from its sums over all that can."""
        able, layers = self.tables.repeating[kind - 1].able, self.layers_of(at)
        before = np.concatenate([[0], np.cumsum(able)])
        each: Ints = np.diff(values)[before[layers[able[layers]]]]
        return each

    @property
    def _all(self) -> Passing:
        """All microbatches, as at the optimizer's step: what else buffers hold depends on the pass."""
        buffers = self.tables.problem.training.buffers_boundaries
        return Passing(self.microbatches, self.microbatches if buffers else 0)

    @cached_property
    def buffers(self) -> tuple[Ints, Ints]:
        """Quanta that buffers hold of a microbatch: what comes into each stage, and all else of it."""
        alive = self.tables.alive
        stays: Ints = 2 * alive[self.end].sum(axis=0) + self.sums(self.tables.results)
        received: Ints = alive[self.first].sum(axis=0)
        return received, stays

    @property
    def _from_behind(self) -> bool:
        return self.tables.problem.training.recomputes_last

    def _taking(self, values: Ints, count: int) -> Ints:
        """Return the values of those layers that compute again, of all that can."""
        return values[len(values) - count :] if self._from_behind else values[:count]

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
        number = np.cumsum(able[::-1])[::-1] if self._from_behind else np.cumsum(able)
        again = able & (number <= counts[:, None])
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
        passing = held - whole[chunks] + peaks[chunks]
        if self._all.buffered:
            received, flying = self.tables.alive[self.first[:, at]], [each.kept for each in self.flights[at]]
            passing += ((self.microbatches - np.array(flying)) @ received)[:, None]
        most: Ints = passing.max(axis=0)
        return most
