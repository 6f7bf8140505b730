"""The best plans of interleaved pipelines under the objective `sum`: one cut for each number of stages and chunks.

With the cut settled, stages choose independently how they shard and recompute. With ``T`` the largest load, ``W`` the
sum of all and ``Y`` the synchronisation, the objective is the larger of ``m * T + (W - T) / v`` and ``W + (m - 1) * T
/ v``, and ``Y``: it grows with each load. So for a cap on ``Y`` each stage takes the way with the least load that keeps
it; of the caps, which are the times that stages synchronise, each is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from nest.constraints import Outer, Run
from nest.constraints import Site as At
from nest.dp.sum_filling import LooseFilling
from nest.dp.sum_outer import SumBounds, SumChoice, SumRange
from nest.dp.sum_search import Prepared, SumSearch
from nest.dp.watch import Watch
from nest.places import Placing
from nest.plan import Plan, Stage, over_replicas
from nest.tables import ChunkedBand, GroupedTables
from nest.tables.chunked import Again, alike, levels_around
from nest.tables.exchanged import PLAIN, Exchanged, least_exchanged, uncovered
from nest.tables.grouped import Site
from nest.tables.shares import Holders, Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import LONGEST, NEVER, Ints


class InterleavedBounds(SumBounds):
    """Lower bounds for one variant and so many chunks of each stage.

    Parameters
    ----------
    tables
        The variant's tables.
    chunks
        Of each stage.
    """

    def __init__(self, tables: GroupedTables, chunks: int) -> None:
        super().__init__(tables)
        self.chunks, self.filling = chunks, LooseFilling(tables)
        self._heaviest: dict[int, int] = {}

    def possible(self, stages: Ints) -> np.ndarray:
        """Return which have an equal cut and several stages (rule ``chunks``)."""
        divided = (self.tables.graph.equal_parts(each * self.chunks) is not None for each in stages.tolist())
        possible: np.ndarray = np.array(list(divided), dtype=bool) & (stages > 1)
        return possible

    def objective(
        self, stages: Ints, further: Ints, hops: tuple[Ints, Ints], exchanged: Exchanged, types: tuple[int, ...]
    ) -> Ints:
        """Return bounds of the objective; see `SumBounds.objective`.

        What a stage exchanges for each microbatch counts by a ``v``-th at least, and so does the synchronisation that
        it may stand for. Each boundary between two stages is crossed once for each chunk.
        """
        loads = self.total + self.chunks * hops[0].astype(np.float64)
        sync = exchanged.sync / stages / self.chunks
        if not any(zero in PLAIN for zero in types):
            loads, sync = loads + exchanged.extra, np.zeros(len(stages))
        sync = sync + exchanged.step / stages
        alone = np.array([self.heaviest(each) for each in stages.tolist()], dtype=np.float64)
        heaviest = np.maximum(alone + self.chunks * hops[1].astype(np.float64), loads / stages)
        bound = loads / self.chunks + (1 + further - 1 / self.chunks) * heaviest
        bound = np.maximum(bound, loads + further / self.chunks * heaviest) + sync
        rounded = (1 + further) * (3 * self.tables.layers + 8)  # what parts are rounded down by, at most
        least: Ints = np.clip(np.floor(bound * (1 - 1e-12) - rounded), 0, float(NEVER)).astype(np.int64)
        return least

    def heaviest(self, stages: int) -> int:
        """Return the work of the stage of the one cut that has the most."""
        if stages not in self._heaviest:
            self._heaviest[stages] = int(self.by_chunk(stages, self.tables.work).sum(axis=0).max())
        return self._heaviest[stages]

    def by_chunk(self, stages: int, values: Ints) -> Ints:
        """Return the sum of a value of layers in each chunk of the one cut, a row for each chunk."""
        ends = self.tables.graph.equal_parts(stages * self.chunks)
        assert ends is not None, "others are not possible"
        parts: Ints = np.diff(self.tables.by_cut(values)[[0, *ends]]).reshape(-1, stages)
        return parts

    def filled(self, choice: SumRange, better_than: int) -> int:  # noqa: ARG002 - a hook
        """Return no bound where there is a way to shard: the cut is settled, and what stages hold is looked at once."""
        single = choice.single
        return 0 if single is None or self.tables.options(single.replicas, single.stages) else NEVER

    def refined(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> int:  # noqa: ARG002 - a hook
        """Return the bound of one choice, from the places of its stages."""
        hops, exchanged, types = self.at_sites(choice, sites)
        return int(self.objective(np.array([choice.stages]), np.array([choice.further]), hops, exchanged, types)[0])


class Sharded(NamedTuple):
    """A way to shard, the ticks that it adds to the loads of stages, and what they do once per iteration then."""

    way: ShardedWay
    own: Ints
    waits: Ints


class InterleavedSearch(SumSearch):
    """Settles the outer choices of one variant and so many chunks of each stage.

    Parameters
    ----------
    tables, watch
        Of the variant, and of the search.
    chunks
        Of each stage.
    bounds
        Of the objective; those of `sum` where none are given.
    """

    def __init__(
        self, tables: GroupedTables, watch: Watch, chunks: int, bounds: InterleavedBounds | None = None
    ) -> None:
        super().__init__(tables, watch, "interleaved", bounds or InterleavedBounds(tables, chunks))
        self.chunks = chunks
        self._cut: dict[tuple[int, tuple[int, ...]], ChunkedBand] = {}
        self._known: dict[tuple[int, Option, Shares], Sharded] = {}
        self._memory: dict[tuple[int, int], Ints] = {}

    def prepare(self, choice: SumChoice) -> Iterator[Prepared]:
        """Yield a choice with each placing of its blocks that side constraints admit."""
        tables = self.tables
        for placing in filter(partial(self._admits, choice), self.placings(choice)):
            yield InterleavedChoice(self, choice, placing, tables.sites(choice.stages, choice.replicas, placing))

    def _admits(self, choice: SumChoice, placing: Placing) -> bool:
        """Whether side constraints let each stage stand where it does; those that look at its layers are refused."""
        tables = self.tables
        if not tables.filters.by_place:
            return True
        outer = Outer(tables.variant, choice.stages, choice.replicas)
        everything = Run(np.array([0]), np.array([tables.layers]))
        starts = placing.line.devices(np.array(placing.starts(choice.stages), dtype=np.int64))[:, None]
        sites = (
            At(choice.stages - at, start, tables.width, placing.stride, placing.line) for at, start in enumerate(starts)
        )
        return all(bool(np.all(tables.filters.place(outer, everything, site))) for site in sites)

    def cut(self, stages: int, microbatches: int) -> ChunkedBand:
        """Return the tables of so many stages, each with its chunks."""
        key = stages, alike(self.tables, stages, microbatches)
        if key not in self._cut:
            ends = self.tables.graph.equal_parts(stages * self.chunks)
            assert ends is not None, "others are not possible"
            self._cut[key] = ChunkedBand(self.tables, ends, stages, microbatches)
        return self._cut[key]

    def held(self, choice: SumChoice) -> Ints:
        """Return the ticks that memory costs each stage at least, `NEVER` where it does not fit.

        Of a ZeRO type the least is taken of all that its ways have: most share, and as few exchange.
        """
        key = choice.stages, choice.replicas
        if key not in self._memory:
            band, options = self.cut(choice.stages, choice.further + 1), self.tables.options(choice.replicas, key[0])
            types = ([each for each in options if each.zero == zero] for zero in {each.zero for each in options})
            held = [np.full(choice.stages, NEVER), *(_held(self.tables, band, each) for each in types)]
            self._memory[key] = np.minimum.reduce(held)
        return self._memory[key]

    def sharded(self, band: ChunkedBand, holders: Holders, choice: SumChoice) -> list[Sharded]:
        """Return how stages may shard whose replicas are in some place."""
        options = self.tables.options(choice.replicas, choice.stages)
        return [self._sharded(band, each, self.tables.shares(holders, each.together)) for each in options]

    def _sharded(self, band: ChunkedBand, option: Option, shares: Shares) -> Sharded:
        key = id(band), option, shares
        if key not in self._known:
            way = band.way(option, shares)
            self._known[key] = Sharded(way, band.own(way), band.waits(way))
        return self._known[key]


def _held(tables: GroupedTables, band: ChunkedBand, options: list[Option]) -> Ints:
    """Return what stages compute again and exchange for each microbatch at least under a ZeRO type."""
    fewest, most = (pick(options, key=lambda each: each.together) for pick in (min, max))
    again, (always, beside) = band.least_again(most), (band.sums(each[0]) for each in least_exchanged(tables, [fewest]))
    busy = np.maximum(always + again, beside + uncovered(tables, again))
    return np.where(again < NEVER, busy, NEVER)


class ChunkWay(NamedTuple):
    """What a stage may choose, and what that takes."""

    load: int
    sync: int
    option: Option
    again: Again


@dataclass(frozen=True)
class InterleavedChoice(Prepared):
    """An outer choice with one cut."""

    @property
    def sights(self) -> object:
        """The placing: what the last stage and the first see of each other decides, too."""
        return self.placing

    @cached_property
    def busy(self) -> Ints:
        """Ticks of the passes and transfers of each stage."""
        return self.band.work + self.band.transfers(self.levels)

    @cached_property
    def crossings(self) -> tuple[Ints, Ints]:
        """Ticks of the transfers in both passes of each chunk."""
        return self.band.crossings(self.levels)

    @cached_property
    def held(self) -> Ints:
        """Ticks that memory costs each stage at least, `NEVER` where it does not fit."""
        return self._engine.held(self.choice)

    def least(self, better_than: int) -> int:  # noqa: ARG002 - a hook
        """Return a first bound: what stages are busy with, and what their memory costs at least."""
        fits = (self.held < NEVER).all()
        return self._taken((self.busy + self.held).tolist()) if fits else NEVER

    def settle(self) -> None:
        """Offer the best plan to the incumbent, if it is better."""
        self.engine.watch.check()
        ways = list(self._ways(self.busy))
        if len(ways) < len(self.busy):
            return
        slowest = max(min(way.sync for way in each) for each in ways)
        caps = sorted({way.sync for each in ways for way in each if way.sync >= slowest})
        tried = [[min(way for way in each if way.sync <= cap) for each in ways] for cap in caps]
        self.offer(*min(((self._iteration(chosen), chosen) for chosen in tried), key=lambda each: each[0]))

    def _iteration(self, chosen: list[ChunkWay]) -> int:
        return self._taken([way.load for way in chosen]) + max(way.sync for way in chosen)

    def offer(self, taken: int, chosen: list[ChunkWay]) -> None:
        """Offer the plan whose stages choose so to the incumbent."""
        self.incumbent.keep(taken, partial(interleaved_plan, self, chosen))

    @property
    def _engine(self) -> InterleavedSearch:
        assert isinstance(self.engine, InterleavedSearch)
        return self.engine

    @property
    def band(self) -> ChunkedBand:
        """Tables of its stages."""
        return self._engine.cut(self.choice.stages, self.choice.further + 1)

    def _taken(self, loads: list[int]) -> int:
        """Return what an iteration takes but for the synchronisation."""
        slowest = max(loads)
        short, long = sorted(((self.choice.further + 1) * slowest, sum(loads)))
        return long - (slowest - short) // self._engine.chunks

    def sharded(self, at: int) -> list[Sharded]:
        """Return how a stage may shard."""
        return self._engine.sharded(self.band, self.sites[at].holders, self.choice)

    def ends(self, at: int) -> int:
        """Ticks of a stage to sum the gradients of its copies of a table."""
        return int(self.band.ends(self.sites[at].ends)[at])

    def _ways(self, busy: Ints) -> Iterator[list[ChunkWay]]:
        """Yield what each stage may choose, as far as it fits the memory, up to the first that cannot."""
        band = self.band
        for at in range(len(self.sites)):
            found, ends = list[ChunkWay](), self.ends(at)
            for way, own, waits in self.sharded(at):
                again = band.cheapest(way, at)
                if again is not None:
                    load = int(busy[at]) + int(own[at]) + again.ticks
                    found += [ChunkWay(load, int(waits[at]) + ends, way.option, again)] * (load < LONGEST)
            if not found:
                return
            yield found

    @cached_property
    def levels(self) -> Ints:
        """The levels between each stage and the next, of the last and the first: a row for each replica."""
        choice = self.choice
        return levels_around(self.engine.tables, choice.stages, choice.replicas, self.placing)


def interleaved_plan(prepared: InterleavedChoice, chosen: list[ChunkWay]) -> Plan:
    """Place the stages of a plan, and name their layers."""
    tables, choice, placing, band = prepared.engine.tables, prepared.choice, prepared.placing, prepared.band
    starts = placing.line.devices(np.array(placing.starts(choice.stages), dtype=np.int64)).tolist()
    stages = tuple(_stage(tables, band.layers_of(at), starts[at], way) for at, way in enumerate(chosen))
    return Plan(
        tables.variant,
        choice.replicas,
        placing.stride,
        stages,
        choice.arrangement,
        "interleaved",
        tables.problem.cluster.technologies,
        placing.line,
        len(band.first),
    )


def _stage(tables: GroupedTables, layers: Ints, start: int, way: ChunkWay) -> Stage:
    repeating = tables.repeating[way.again.kind - 1] if way.again.kind else None
    able = 0 if repeating is None else int(repeating.able[layers].sum())
    return Stage(
        layers=tuple(tables.graph.layers[place].id for place in layers.tolist()),
        first_device=start,
        devices=tables.width,
        recompute="none" if repeating is None else repeating.kind,
        sharding=over_replicas(min(way.option.zero, 3), tables.ranks(way.option.together).dense),
        recomputed=None if way.again.layers == able else way.again.layers,
    )
