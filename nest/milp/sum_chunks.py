"""What the stages of an interleaved outer choice may be under the objective `sum`: one cut, each way of each stage.

A cut is the number of stages before it here: each of them has several runs of layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import add
from typing import NamedTuple

import numpy as np

from nest.milp.sum_choices import SumChoice
from nest.milp.sum_sent import Marks, StageBytes
from nest.milp.sum_ways import Kept, Ways, undominated
from nest.tables import ChunkedBand, GroupedTables
from nest.tables.chunked import Again, alike, levels_around
from nest.tables.grouped import Site
from nest.tables.shares import Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import LONGEST, Ints


def layers_of(tables: GroupedTables, choice: SumChoice, at: int) -> Ints:
    """Return the places of the layers of a stage of an interleaved choice, from the first of the pipeline on."""
    ends = tables.graph.equal_parts(choice.stages * choice.chunks)
    assert ends is not None, "the outer choices have none without"
    runs = list(zip([0, *ends], ends, strict=False))[at :: choice.stages]
    return np.concatenate([np.arange(*run) for run in runs])


class _Sharded(NamedTuple):
    """What an option adds: to the load of each stage, recomputation apart, and once per iteration."""

    way: ShardedWay
    own: Ints
    waits: Ints


class ChunkWays:
    """The ways of the stages of the interleaved choices of one variant.

    Parameters
    ----------
    tables
        Of the variant.
    kept
        As for `nest.milp.sum_stages.StageWays`.
    sent
        The bytes that count.
    """

    def __init__(self, tables: GroupedTables, kept: Kept, sent: StageBytes) -> None:
        self.tables, self.kept, self.bytes = tables, kept, sent
        self._bands: dict[tuple[int, ...], ChunkedBand] = {}
        self._sharded: dict[tuple[int, Option, Shares], _Sharded] = {}

    def positions(self, choice: SumChoice, most: int) -> list[Ways]:
        """Return the stages of a choice of a load of at most ``most``, by position from the end."""
        band, tables = self._band(choice), self.tables
        sites = tables.sites(choice.stages, choice.replicas, choice.placing)
        busy = band.work + band.transfers(levels_around(tables, choice.stages, choice.replicas, choice.placing))
        found, marks = list[Ways](), self.bytes.marks(choice)
        for at in reversed(range(choice.stages)):
            rows = [row for row in self._rows(choice, band, at, (sites[at], marks[at])) if busy[at] + row[0] <= most]
            table = np.array(rows, dtype=np.int64).reshape(-1, 5 + len(self.bytes.most))
            added, *columns = table[:, :5].T
            cuts = (np.full_like(added, each) for each in (at, at + 1))
            ways = Ways._make([*cuts, busy[at] + added, *columns, table[:, 5:]])
            found.append(undominated(ways, choice.stages + 1) if self.kept == "fastest" else ways)
        return found

    def _rows(
        self, choice: SumChoice, band: ChunkedBand, at: int, seen: tuple[Site, Marks]
    ) -> Iterator[tuple[int, ...]]:
        """Yield the ways of a stage in which it fits its memory: all but the cuts, and of the load what it adds."""
        site, marks = seen
        ends = int(band.ends(site.ends)[at])
        for number, option in enumerate(self.tables.options(choice.replicas, choice.stages)):
            way, own, waits = self._of(band, option, self.tables.shares(site.holders, option.together))
            repeats = self._repeats(band, way, at) if own[at] < LONGEST else []
            plain = self.bytes.in_chunks(band, at, site, option, marks) if repeats else []
            for again in repeats:
                sent = map(add, plain, self.bytes.again_in_chunks(band, at, site, again))
                yield int(own[at]) + again.ticks, int(waits[at]) + ends, number, again.kind, again.layers, *sent

    def _repeats(self, band: ChunkedBand, way: ShardedWay, at: int) -> list[Again]:
        if self.kept == "every" or self.bytes:  # of each kind the fewest layers send the least
            return band.again(way, at, every=self.kept == "every")
        fastest = band.cheapest(way, at)
        return [] if fastest is None else [fastest]

    def _band(self, choice: SumChoice) -> ChunkedBand:
        microbatches = choice.further + 1
        key = choice.stages, choice.chunks, *alike(self.tables, choice.stages, microbatches)
        if key not in self._bands:
            ends = self.tables.graph.equal_parts(choice.stages * choice.chunks)
            assert ends is not None, "the outer choices have none without"
            self._bands[key] = ChunkedBand(self.tables, ends, choice.stages, microbatches)
        return self._bands[key]

    def _of(self, band: ChunkedBand, option: Option, shares: Shares) -> _Sharded:
        key = id(band), option, shares
        if key not in self._sharded:
            way = band.way(option, shares)
            self._sharded[key] = _Sharded(way, band.own(way), band.waits(way))
        return self._sharded[key]
