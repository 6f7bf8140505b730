"""The stages of an outer choice under the objective `simulated`: the arcs of the programme, with what passes take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nest.constraints import Run, Site
from nest.milp.played_paths import Shape
from nest.milp.sum_choices import SumChoice
from nest.milp.sum_chunks import layers_of
from nest.plan import Plan, Stage, over_replicas
from nest.tables import ChunkedBand, GroupedBand, GroupedTables, band_of
from nest.tables.chunked import levels_around
from nest.tables.grouped import Pair
from nest.tables.grouped import Site as Seen
from nest.tables.shares import Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import LONGEST, NEVER, Ints


class Arcs(NamedTuple):
    """Stages: columns of equal length.

    Attributes
    ----------
    stage
        Number of the stage, from the first of the pipeline on.
    first, end
        Cuts before and behind: with chunks the number of stages.
    ticks
        Of its passes, a row for each arc, as `nest.milp.played_paths.Shape.columns` has them.
    sync
        Ticks once per iteration.
    option, kind, layers
        How it shards, as a place among the options of the outer choice, what is recomputed, as a place in
        `GroupedTables.repeating` from 1, or 0, and in how many layers.
    """

    stage: Ints
    first: Ints
    end: Ints
    ticks: Ints
    sync: Ints
    option: Ints
    kind: Ints
    layers: Ints

    def pick(self, chosen: np.ndarray) -> Arcs:
        """Return those that a mask or indices pick."""
        return Arcs(*(each[chosen] for each in self))


@dataclass(frozen=True)
class Stages:
    """The arcs of an outer choice, and how it is played."""

    tables: GroupedTables
    choice: SumChoice
    arcs: Arcs

    @property
    def shape(self) -> Shape:
        """How its pipelines are played."""
        return shape_of(self.choice)

    @property
    def states(self) -> list[tuple[list[int], list[int]]]:
        """Arcs that end and that begin at each cut, between each stage and the next."""
        found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        rows = zip(self.arcs.stage.tolist(), self.arcs.first.tolist(), self.arcs.end.tolist(), strict=True)
        for arc, (stage, first, end) in enumerate(rows):
            found.setdefault((stage, first), ([], []))[1].append(arc)
            found.setdefault((stage + 1, end), ([], []))[0].append(arc)
        return [each for (stage, _), each in found.items() if 0 < stage < self.choice.stages]

    @property
    def longest(self) -> int:
        """Ticks that no iteration exceeds: as if all passes of all stages followed each other."""
        each = (self.arcs.ticks[self.of(at)].sum(axis=1).tolist() for at in range(self.choice.stages))
        slowest = sum(int(max(loads)) for loads in each)
        return self.shape.microbatches * slowest + int(self.arcs.sync.max())

    def of(self, stage: int) -> Ints:
        """Return the arcs of one stage."""
        found: Ints = np.flatnonzero(self.arcs.stage == stage)
        return found

    def plan(self, taken: list[int]) -> Plan:
        """Return the plan of some arcs; C8 and C9 hold by how it is built."""
        choice, inorder = self.choice, sorted(taken, key=lambda arc: int(self.arcs.stage[arc]))
        stages = tuple(self._stage(arc, start) for arc, start in zip(inorder, choice.starts.tolist(), strict=True))
        return Plan(
            choice.variant,
            choice.replicas,
            choice.placing.stride,
            stages,
            choice.arrangement,
            choice.schedule,
            self.tables.problem.cluster.technologies,
            choice.placing.line,
            choice.chunks,
        )

    def _stage(self, arc: int, start: int) -> Stage:
        tables, choice, arcs = self.tables, self.choice, self.arcs
        kind, count, first, end = (int(each[arc]) for each in (arcs.kind, arcs.layers, arcs.first, arcs.end))
        layers = tables.between(first, end) if choice.chunks == 1 else layers_of(tables, choice, first)
        option = tables.options(choice.replicas, choice.stages)[int(arcs.option[arc])]
        again = tables.repeating[kind - 1] if kind else None
        every = again is None or count == int(again.able[layers].sum())
        return Stage(
            tuple(tables.graph.layers[place].id for place in layers.tolist()),
            start,
            tables.width,
            "none" if again is None else again.kind,
            over_replicas(min(option.zero, 3), tables.ranks(option.together).dense),
            recomputed=None if every else count,
        )


def shape_of(choice: SumChoice) -> Shape:
    """Return how the pipelines of an outer choice are played."""
    return Shape(choice.schedule, choice.stages, choice.further + 1, choice.chunks)


class Sharded(NamedTuple):
    """A way to shard the stages of a variant in one place: what it adds to loads, to forward passes, and once."""

    way: ShardedWay
    own: Ints
    gathered: Ints
    waits: Ints


class Asked(NamedTuple):
    """Which stages of which tables are asked for in one way to shard, by its place among the options."""

    band: GroupedBand
    number: int
    there: np.ndarray


class Layered:
    """What the stages of one variant may be, and what is known of them already.

    Parameters
    ----------
    tables
        Of the variant.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.tables = tables
        self._bands: dict[tuple[int, bool], GroupedBand] = {}
        self._ways: dict[tuple[GroupedBand, Shares, int], Sharded] = {}

    def below(self, choice: SumChoice, limit: int) -> Stages | None:
        """Return the stages of an outer choice that alone take less than a limit, None where some stage has none.

        Of the ways of a stage of some layers only those are there of which no other takes as little in each pass, and
        to synchronise: an iteration only grows with every pass.
        """
        most, tables = min((limit - 1) // (choice.further + 1), LONGEST - 1), self.tables
        if not tables.options(choice.replicas, choice.stages):
            return None
        every, found = _chunked(tables, choice) if choice.chunks > 1 else self._runs(choice, most), list[Arcs]()
        for each in every:
            fits = each.ticks.astype(np.float64).sum(axis=1) * (choice.further + 1) + each.sync < limit
            found.append(_undominated(each.pick(fits)))
            if not len(found[-1].stage):
                return None
        return Stages(tables, choice, Arcs(*(np.concatenate(columns) for columns in zip(*found, strict=True))))

    def _band(self, most: int, *, puts_off: bool) -> GroupedBand:
        """Return the tables of the stages whose layers take no more than some ticks, or of some more."""
        depth = max(1, self.tables.deepest_within(min(most, int(self.tables.work.sum()))))
        rounded = min(self.tables.layers, 1 << (depth - 1).bit_length())
        if (rounded, puts_off) not in self._bands:
            self._bands[rounded, puts_off] = band_of(self.tables, rounded, puts_off=puts_off)
        return self._bands[rounded, puts_off]

    def _way(self, band: GroupedBand, site: Seen, option: Option) -> Sharded:
        shares = self.tables.shares(site.holders, option.together)
        key = band, shares, option.zero
        if key not in self._ways:
            way = band.way(option, shares)
            self._ways[key] = Sharded(way, band.own(way), band.gathered(way), band.waits(way))
        return self._ways[key]

    def _runs(self, choice: SumChoice, most: int) -> Iterator[Arcs]:
        """Yield the arcs of each stage of an outer choice without chunks, as far as its layers alone take no more."""
        band = self._band(most, puts_off=choice.schedule == "zb-h1")
        sites = self.tables.sites(choice.stages, choice.replicas, choice.placing)
        options = self.tables.options(choice.replicas, choice.stages)
        for at, site in enumerate(sites):
            there = _placed(band, choice, at) & (band.work + band.hops(site.pairs) <= most)
            parts = [self._in_way(choice, at, site, Asked(band, number, there)) for number in range(len(options))]
            yield Arcs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _in_way(self, choice: SumChoice, at: int, site: Seen, asked: Asked) -> Arcs:
        """Return the stages in one place, of those that are asked for, that shard in one way and fit (C11)."""
        (band, number, there), tables, puts_off = asked, self.tables, choice.schedule == "zb-h1"
        option = tables.options(choice.replicas, choice.stages)[number]
        way, own, gathered, waits = self._way(band, site, option)
        passing = tables.passing(choice.replicas, choice.stages - at, choice.stages, choice.schedule)
        again = band.recomputation(way, passing, there)
        chosen = np.nonzero(there & (again.ticks < NEVER))
        forward = (band.sums(tables.forward) + _activations(band, site.pairs) + gathered)[chosen]
        load = (band.work + band.hops(site.pairs) + own + again.ticks)[chosen]
        late = (band.window + band.late(way))[chosen] if puts_off else np.zeros_like(load)
        sync, (first, end) = (waits + band.ends(site.ends))[chosen], band.cuts_of(chosen)
        ticks = np.column_stack([forward, load - forward - late, late])
        stage, numbers = np.full_like(first, at), np.full_like(first, number)
        return Arcs(stage, first, end, ticks, sync, numbers, again.kind[chosen], again.layers[chosen])


def _undominated(arcs: Arcs) -> Arcs:
    """Return of the arcs of one stage those than which no other of the same layers is better in some figure alone."""
    figures = np.column_stack([arcs.ticks, arcs.sync])
    order = np.lexsort((*figures.T[::-1], arcs.end, arcs.first))
    arcs, figures = arcs.pick(order), figures[order]
    cuts, kept, apart = np.column_stack([arcs.first, arcs.end]), np.ones(len(order), dtype=bool), 1
    while len(near := np.flatnonzero((cuts[apart:] == cuts[:-apart]).all(axis=1))):
        kept[near[(figures[near] <= figures[near + apart]).all(axis=1)] + apart] = False
        apart += 1
    return arcs.pick(kept)


def _placed(band: GroupedBand, choice: SumChoice, at: int) -> np.ndarray:
    """Return which stages may be in a place: by their ends, and by local side constraints."""
    tables, filters, position = band.tables, band.tables.filters, choice.stages - at
    run = Run(band.first, band.reached)
    site = Site(position, np.full((1, 1), choice.starts[at]), tables.width, choice.placing.stride, choice.placing.line)
    masks = [
        filters.run(choice.variant, run),
        filters.stage(choice.variant, choice.stages, position, run),
        filters.place(choice.outer, run, site),
    ]
    kept: np.ndarray = (
        band.valid & ((band.first == 0) == (at == 0)) & ((band.reached == tables.cuts - 1) == (position == 1))
    )
    for mask in masks:
        kept = kept if mask is None else kept & mask
    return kept


def _activations(band: GroupedBand, pairs: tuple[Pair, ...]) -> Ints:
    """Return for how long stages receive and send activations, in the replica whose transfers take the longest (D15).

    Of several such, in the one where that takes the longest.
    """
    tables, keys = band.tables, list[tuple[Ints, Ints]]()
    for before, behind in pairs:
        ahead = (tables.hops(before) - tables.sends(before))[band.first] + tables.sends(behind)[band.reached]
        keys.append((tables.hops(before)[band.first] + tables.hops(behind)[band.reached], ahead))
    longest = np.maximum.reduce([both for both, _ in keys])
    found: Ints = np.maximum.reduce([np.where(both == longest, ahead, -1) for both, ahead in keys])
    return found


def _chunked(tables: GroupedTables, choice: SumChoice) -> Iterator[Arcs]:
    """Yield the arcs of each stage of an interleaved choice: its ways."""
    ends = tables.graph.equal_parts(choice.stages * choice.chunks)
    assert ends is not None, "the outer choices have none without"
    band = ChunkedBand(tables, ends, choice.stages, choice.further + 1)
    around = levels_around(tables, choice.stages, choice.replicas, choice.placing)
    sites = tables.sites(choice.stages, choice.replicas, choice.placing)
    passes = [own + sent for own, sent in zip(band.passes, band.crossings(around), strict=True)]
    for at in range(choice.stages):
        rows, ticks = list[tuple[int, ...]](), list[Ints]()
        for number, option in enumerate(tables.options(choice.replicas, choice.stages)):
            way = band.way(option, tables.shares(sites[at].holders, option.together))
            sync = int(band.waits(way)[at]) + int(band.ends(sites[at].ends)[at])
            ahead, back = ((each + shown)[:, at] for each, shown in zip(passes, band.shown(way), strict=True))
            for again in band.again(way, at):
                ticks.append(np.concatenate([ahead, back + band.repeated_by_chunk(way, at, again)]))
                rows.append((at, at, at + 1, sync, number, again.kind, again.layers))
        stage, first, end, *rest = np.array(rows, dtype=np.int64).reshape(-1, 7).T
        yield Arcs(stage, first, end, np.array(ticks, dtype=np.int64).reshape(-1, 2 * choice.chunks), *rest)
