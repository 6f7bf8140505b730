"""Whether an interleaved pipeline takes less than a value under the objective `sum`: one cut, and stages by themselves.

Numbers of stages ``S`` and of chunks ``v`` settle which layers each stage has (C16). With ``m`` microbatches for each
of ``d`` replicas, ``T`` the largest load and ``W`` the sum of all, D14 is

    objective = max(m * T + ceil((W - T) / v), W + ceil((m - 1) * T / v)) + sync.

It grows with every load. So of the plans whose stages synchronise for ``Y`` at most none takes less than ``A + sync``,
where ``A`` is the first term if each stage takes the least load with which it fits (C11) and keeps to ``Y``. Of
what stages can choose nothing else ties them together: that is the whole state. From no cap at all, ``Y`` falls:

1. if some stage has no way within ``Y``, there is no plan;
2. if ``A`` and the slowest synchronisation of these very ways are together below ``V``, they are a plan that refutes;
3. otherwise every plan below ``V`` within ``Y`` synchronises for ``V - 1 - A`` at most, and that is less than these
   ways do: it is the next ``Y``, a time less that occurs. If it is negative, there is no plan.

Before that, what needs no stage: ``T`` is no less than the work of the layers of any stage of the cut, and what holders
of weights exchange and step at least (`sum_choices`) is part of loads, by a ``v``-th, or of the synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from nest.certificate.sum_choices import Counts, least_exchanged
from nest.constraints import Outer, Run
from nest.constraints import Site as Standing
from nest.places import Placing
from nest.plan import Plan, Stage, over_replicas
from nest.presets import Arrangement
from nest.problem import Variant
from nest.tables import ChunkedBand, GroupedTables, Tables
from nest.tables.chunked import Again, levels_around
from nest.tables.grouped import Site
from nest.tables.shares import Option, Shares
from nest.tables.ways import ShardedWay
from nest.units import LONGEST, Ints


@dataclass(frozen=True, slots=True)
class Chunked:
    """An outer choice of an interleaved pipeline, with the parts that its stages have in turn.

    Attributes
    ----------
    microbatches
        Of a replica.
    ends
        Where parts end, as `LayerGraph.equal_parts` has it.
    """

    variant: Variant
    stages: int
    chunks: int
    replicas: int
    arrangement: Arrangement
    microbatches: int
    ends: tuple[int, ...]

    def takes(self, loads: list[int], beside: int = 0) -> int:
        """Return what an iteration takes (D14) but for the synchronisation.

        Parameters
        ----------
        beside
            What loads are longer, whichever of them, or the synchronisation: by a ``v``-th at least it counts.
        """
        slowest, total, further = max(loads), sum(loads), self.microbatches - 1
        by_slowest = self.microbatches * slowest + -((slowest - total - beside) // self.chunks)
        return max(by_slowest, total + -((-further * slowest - beside) // self.chunks))


def chunked(tables: Tables, variant: Variant) -> Iterator[Chunked]:
    """Yield the outer choices of a variant that are interleaved (C4, C5, C10, C16), and that side constraints leave."""
    problem, graph = tables.problem, tables.problem.graphs[variant]
    arrangements, allowed = problem.preset.arrangements, problem.choices.chunks
    equal_parts = cache(graph.equal_parts)
    for stages, replicas in zip(*map(np.ndarray.tolist, Counts.of(tables, variant).pairs()), strict=True):
        microbatches = -(-problem.microbatches(variant) // replicas)
        if stages < 2 or not tables.filters.outer(Outer(variant, stages, replicas)):
            continue
        for chunks in range(2, len(graph) // stages + 1):
            ends = equal_parts(stages * chunks) if allowed is None or chunks in allowed else None
            for each in arrangements if ends is not None and replicas > 1 else arrangements[:1]:
                if ends is not None:
                    yield Chunked(variant, stages, chunks, replicas, each, microbatches, ends)


def fast_enough(tables: GroupedTables, choices: list[Chunked], value: int) -> list[Chunked]:
    """Return the outer choices of a variant of which work and least exchange leave room for a plan below the value."""
    stages, replicas = (np.array(each, dtype=np.int64) for each in zip(*_pairs(choices), strict=True))
    exchanged = least_exchanged(tables, stages, replicas).tolist()
    work, loads, left = tables.by_cut(tables.work), dict[tuple[int, ...], list[int]](), list[Chunked]()
    for choice, beside in zip(choices, exchanged, strict=True):
        key = choice.stages, choice.chunks
        if key not in loads:
            loads[key] = _by_stage(choice, np.diff(work[[0, *choice.ends]])).tolist()
        if choice.takes(loads[key], beside) < value:
            left.append(choice)
    return left


def _pairs(choices: list[Chunked]) -> list[tuple[int, int]]:
    return [(each.stages, each.replicas) for each in choices]


def _by_stage(choice: Chunked, parts: Ints) -> Ints:
    """Return the sum over the parts of each stage."""
    sums: Ints = parts.reshape(-1, choice.stages).sum(axis=0)
    return sums


class Way(NamedTuple):
    """What a stage chooses, and what it takes: its load, and once per iteration."""

    load: int
    sync: int
    option: Option
    again: Again


class _Sharded(NamedTuple):
    """A way to shard: ticks that it adds to the load of each stage, recomputation apart, and once per iteration."""

    way: ShardedWay
    own: list[int]
    waits: list[int]


class Cut:
    """The one cut of a variant into so many chunks of so many stages, with a number of microbatches.

    Parameters
    ----------
    choice
        An outer choice that is cut so.
    """

    def __init__(self, tables: GroupedTables, choice: Chunked) -> None:
        self.band = ChunkedBand(tables, choice.ends, choice.stages, choice.microbatches)
        self._sharded: dict[tuple[Option, Shares, tuple[int, ...]], _Sharded] = {}
        self._again: dict[tuple[ShardedWay, int], Again | None] = {}

    def ways(self, choice: Chunked, at: int, site: Site) -> list[_Sharded]:
        """Return how a stage may shard (C7), by what that adds to its load."""
        tables, found = self.band.tables, list[_Sharded]()
        for option in tables.options(choice.replicas, choice.stages):
            key = option, tables.shares(site.holders, option.together), site.ends
            if key not in self._sharded:
                way = self.band.way(*key[:2])
                waits = self.band.waits(way) + self.band.ends(site.ends)
                self._sharded[key] = _Sharded(way, self.band.own(way).tolist(), waits.tolist())
            found.append(self._sharded[key])
        return sorted(found, key=lambda each: each.own[at])

    def cheapest(self, way: ShardedWay, at: int) -> Again | None:
        """Return the fastest recomputation with which a stage fits (C6, C11), None if none does."""
        key = way, at
        if key not in self._again:
            self._again[key] = self.band.cheapest(way, at)
        return self._again[key]


class ChunkedStages:
    """The stages of an outer choice in one of its places, from the first of the pipeline on.

    Parameters
    ----------
    cut
        Which layers each of them has.
    placing, sites, levels
        Where the blocks stand, and what each stage sees there; between each and the next, as `levels_around` has it.
    """

    def __init__(self, cut: Cut, choice: Chunked, placing: Placing, sites: tuple[Site, ...], levels: Ints) -> None:
        self.cut, self.band, self.tables = cut, cut.band, cut.band.tables
        self.choice, self.placing, self.sites, self.levels = choice, placing, sites, levels
        self.busy: list[int] = (self.band.work + self.band.transfers(levels)).tolist()

    @cached_property
    def ways(self) -> list[list[_Sharded]]:
        """How each stage may shard."""
        return [self.cut.ways(self.choice, at, site) for at, site in enumerate(self.sites)]

    def better(self, value: int) -> Plan | None:
        """Return a plan that takes less than a value, None if there is none."""
        cap = value - 1 - self.choice.takes(self.busy)
        while cap >= 0:
            ways = self._least(cap)
            if ways is None:
                return None
            taken, sync = self.choice.takes([way.load for way in ways]), max(way.sync for way in ways)
            if taken + sync < value:
                return self.plan(ways)
            cap = value - 1 - taken
        return None

    def _least(self, cap: int) -> list[Way] | None:
        """Return the way of the least load of each stage within a cap on synchronisation, None if one has none."""
        found = list[Way]()
        for at in range(self.choice.stages):
            best = self._least_of(at, cap)
            if best is None:
                return None
            found.append(best)
        return found

    def _least_of(self, at: int, cap: int) -> Way | None:
        """Ways come by what they add to the load without recomputation, so that after the first few none is less."""
        best = None
        for way, own, waits in self.ways[at]:
            load = self.busy[at] + own[at]
            if load >= (LONGEST if best is None else best.load):
                break
            again = self.cut.cheapest(way, at) if waits[at] <= cap else None
            if again is not None and load + again.ticks < (LONGEST if best is None else best.load):
                best = Way(load + again.ticks, waits[at], way.option, again)
        return best

    def plan(self, ways: list[Way]) -> Plan:
        """Return the plan of the ways of all stages."""
        choice, placing, technologies = self.choice, self.placing, self.tables.problem.cluster.technologies
        starts = placing.line.devices(np.array(placing.starts(choice.stages), dtype=np.int64)).tolist()
        stages = tuple(self._stage(at, starts[at], way) for at, way in enumerate(ways))
        return Plan(
            choice.variant,
            choice.replicas,
            placing.stride,
            stages,
            choice.arrangement,
            "interleaved",
            technologies,
            placing.line,
            choice.chunks,
        )

    def _stage(self, at: int, start: int, way: Way) -> Stage:
        tables, layers, (kind, count, _) = self.tables, self.band.layers_of(at), way.again
        again = tables.repeating[kind - 1] if kind else None
        every = again is None or count == again.able[layers].sum()
        return Stage(
            tuple(tables.graph.layers[place].id for place in layers.tolist()),
            start,
            tables.width,
            "none" if again is None else again.kind,
            over_replicas(min(way.option.zero, 3), tables.ranks(way.option.together).dense),
            recomputed=None if every else count,
        )


def standing(cut: Cut, choice: Chunked) -> Iterator[ChunkedStages]:
    """Yield the stages in all places of an outer choice (C9), of such as see the same in one of them."""
    tables, seen = cut.band.tables, set[object]()
    options = tables.options(choice.replicas, choice.stages)
    for placing in tables.placings(choice.stages, choice.replicas, choice.arrangement):
        if not _admitted(tables, choice, placing):
            continue
        sites = tables.sites(choice.stages, choice.replicas, placing)
        levels = levels_around(tables, choice.stages, choice.replicas, placing)
        sights = tables.sights(sites, options), frozenset(map(tuple, levels.tolist()))
        if sights not in seen:
            seen.add(sights)
            yield ChunkedStages(cut, choice, placing, sites, levels)


def _admitted(tables: GroupedTables, choice: Chunked, placing: Placing) -> bool:
    """Whether local side constraints admit where each stage stands; those that look at its layers are refused."""
    outer, any_layers = Outer(choice.variant, choice.stages, choice.replicas), Run(np.zeros(1, int), np.ones(1, int))
    for at, start in enumerate(placing.starts(choice.stages)):
        device = placing.line.devices(np.array([start], dtype=np.int64))
        stands = Standing(choice.stages - at, device, tables.width, placing.stride, placing.line)
        mask = tables.filters.place(outer, any_layers, stands)
        if mask is not None and not mask.all():
            return False
    return True
