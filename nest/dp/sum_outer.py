"""Outer choices under the objective `sum`, and lower bounds of what they can reach.

A first bound is made for all choices at once, from how near to each other the members of their groups may be; a second
one for a single choice, from the places of its stages. Both are admissible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest.constraints import Outer
from nest.dp.outer import THRESHOLDS
from nest.dp.sum_filling import Filling, LooseFilling
from nest.presets import Arrangement
from nest.problem import Variant, exchanging_type
from nest.tables import GroupedTables, Tables, prefix
from nest.tables.exchanged import PLAIN, Exchanged, exchanged_anywhere, exchanged_at
from nest.tables.grouped import NO_BOUNDARY, Pair, Site
from nest.units import LONGEST, NEVER, Ints, distinct

PRECISE = 128
"""Bounds of the slowest load are as near to each other as this part of them."""


@dataclass(frozen=True, slots=True)
class SumChoice:
    """An outer choice of one variant.

    Attributes
    ----------
    further
        Microbatches of a replica but one: how often the largest load counts besides.
    """

    stages: int
    replicas: int
    arrangement: Arrangement
    further: int


@dataclass(frozen=True, slots=True)
class SumChoices:
    """Outer choices of one variant in arrays of equal length; ``bounds`` are of the objective, in ticks."""

    stages: Ints
    replicas: Ints
    arrangement: Arrangement
    further: Ints
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, row: int) -> SumChoice:
        return SumChoice(int(self.stages[row]), int(self.replicas[row]), self.arrangement, int(self.further[row]))


class SumBounds:
    """Lower bounds for one variant.

    Parameters
    ----------
    tables
        The variant's tables.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.tables, self.problem = tables, tables.problem
        self.total = int(tables.work.sum())
        self.filling = Filling(tables) if tables.graph.unordered_pair is None else LooseFilling(tables)
        self._slowest: dict[tuple[int, int], int] = {}

    def possible(self, stages: Ints, microbatches: Ints) -> np.ndarray:
        """Return with which numbers of stages, and of microbatches of a replica, there may be plans at all."""
        return np.ones(np.broadcast(stages, microbatches).shape, dtype=bool)

    @cached_property
    def hop(self) -> Ints:
        """Least ticks of a transfer across a boundary of each level."""
        inner = [self.tables.hops(level)[1:-1] for level in range(self.problem.levels)]
        return np.array([int(each.min(initial=NEVER)) for each in inner], dtype=np.int64)

    def hop_beyond(self, apart: Ints) -> Ints:
        """Least ticks of a transfer between devices that are so far apart."""
        groups = np.array(self.problem.cluster.group_sizes, dtype=np.int64)
        best = np.minimum.accumulate(self.hop[::-1])[::-1]
        nearest: Ints = best[np.minimum(np.searchsorted(groups, apart, side="right"), len(groups) - 1)]
        return nearest

    @cached_property
    def crowded(self) -> Ints:
        """Work of the stage that must hold many heavy layers, for 0, 1, ... stages: of ``k``, ``ceil(k / S)``."""
        work, count = self.tables.work, self.tables.layers
        stages = np.maximum(np.arange(count + 1), 1)
        least = np.full(count + 1, int(work.max()), dtype=np.int64)
        thresholds = distinct(work)
        for threshold in thresholds[:: max(1, len(thresholds) // THRESHOLDS)].tolist():
            heavy = int((work >= threshold).sum())
            least = np.maximum(least, -(-heavy // stages) * threshold)
        return least

    def slowest(self, choice: SumChoice, most: int) -> int:
        """Return a load that some stage reaches by memory, recomputation and work, at most ``most + 1``."""
        filled, stages = self.filling.within(choice.replicas, choice.stages), choice.stages
        if filled.fewest(most, stages) > stages:
            return most + 1
        low, high = max(int(self.crowded[stages]), -(-self.total // stages)) - 1, most
        while high - low > max(low // PRECISE, 1):
            middle = (low + high) // 2 if high < 4 * low else min(2 * max(low, 0) + 1, high - 1)
            low, high = (low, middle) if filled.fewest(middle, stages) <= stages else (middle, high)
        return low + 1

    def objective(
        self, stages: Ints, further: Ints, hops: tuple[Ints, Ints], exchanged: Exchanged, types: tuple[int, ...]
    ) -> Ints:
        """Return bounds of the objective.

        Parameters
        ----------
        stages, further
            Numbers of stages, and of microbatches of a replica but one.
        hops
            Least ticks of all transfers of a microbatch together, and of a single one.
        types
            ZeRO types that a stage may use.

        Notes
        -----
        A stage that scatters gradients for each microbatch pays, in one microbatch and once per iteration, no less than
        one that exchanges them once over the same groups, as both are bounded here. So all loads and the slowest
        synchronisation together are at least all work and the synchronisation of an equal part of the weights,
        whichever types the stages use; and some stage makes the optimizer's step for an equal part of them.
        """
        loads, sync = self.total + hops[0].astype(np.float64), exchanged.sync / stages
        if not any(zero in PLAIN for zero in types):
            loads, sync = loads + exchanged.extra, np.zeros(len(stages))
        sync = sync + exchanged.step / stages
        heaviest = self.crowded[stages] + np.where(stages > 1, hops[1], 0).astype(np.float64)
        bound = loads + further * np.maximum(heaviest, loads / stages) + sync
        rounded = (1 + further) * (3 * self.tables.layers + 8)  # what parts are rounded down by, at most
        least: Ints = np.clip(np.floor(bound * (1 - 1e-12) - rounded), 0, float(NEVER)).astype(np.int64)
        return least

    def filled(self, choice: SumChoice, better_than: int) -> int:
        """Return the bound of one choice by what its stages hold; it may be less where none is better."""
        room = better_than - 1 - self.total
        most = min(room // choice.further if choice.further else LONGEST, LONGEST)
        if room < 0:
            return better_than
        key = choice.stages, choice.replicas
        if self._slowest.get(key, 0) <= most:
            self._slowest[key] = self.slowest(choice, most)
        slowest = self._slowest[key]
        return NEVER if slowest > LONGEST else self.total + choice.further * slowest

    def refined(self, choice: SumChoice, sites: tuple[Site, ...]) -> int:
        """Return the bound of one choice, from the places of its stages."""
        hops, exchanged, types = self.at_sites(choice, sites)
        counts = np.array([choice.stages]), np.array([choice.further])
        bound = int(self.objective(*counts, hops, exchanged, types)[0])
        slowest = self._slowest.get((choice.stages, choice.replicas), 0)
        once = exchanged.step[0] + (exchanged.sync[0] if any(zero in PLAIN for zero in types) else 0)
        sync = int(once / choice.stages)
        return max(bound, self.total + int(hops[0][0]) + choice.further * slowest + max(sync - 8, 0))

    def at_sites(
        self, choice: SumChoice, sites: tuple[Site, ...]
    ) -> tuple[tuple[Ints, Ints], Exchanged, tuple[int, ...]]:
        """Return what `objective` asks for, in one choice whose stages see this: transfers, exchanges and types."""
        each = [max(self._hops(pair) for pair in site.pairs) for site in sites]  # the slowest replica counts, of both
        hops = np.array([sum(each)]), np.array([min(each)])
        options = self.tables.options(choice.replicas, choice.stages)
        exchanged = exchanged_at(self.tables, {site.holders for site in sites}, options)
        return hops, exchanged, tuple(sorted({option.zero for option in options}))

    def _hops(self, pair: Pair) -> int:
        """Return the least ticks of both transfers of a stage."""
        return sum(int(self.hop[level]) for level in pair if level != NO_BOUNDARY)

    def fewest_stages(self, replicas: Ints) -> Ints:
        """Fewest stages whose layers fit the memory, for each number of replicas; more than there are where none do.

        Fills stages from the end of the pipeline on, each as far as its memory reaches, with the types of ZeRO that
        leave the least. What is in use for a moment is left out, so that what fits only shrinks with every layer, and
        filling up is the best.
        """
        tables, count = self.tables, self.tables.layers
        if isinstance(self.filling, LooseFilling):
            return self.filling.fewest_by_memory(tables.least_held(replicas))
        held = np.zeros((len(replicas), count + 1), dtype=np.int64)
        np.cumsum(tables.least_held(replicas), axis=1, out=held[:, 1:])
        kept, most = prefix(tables.least_kept), -(-tables.microbatches // replicas)
        fewest, rows = np.full(len(replicas), count + 1), np.arange(len(replicas))
        first = np.full(len(replicas), count)
        for position in range(1, min(count, tables.devices // tables.width) + 1):
            full = held[rows] + kept * np.minimum(most[rows], position)[:, None]
            least = np.take_along_axis(full, first[rows, None], axis=1) - tables.capacity
            reached = np.minimum(first[rows], (full < least).sum(axis=1))
            fewest[rows[reached == 0]] = position
            moving = (reached > 0) & (reached < first[rows])  # a layer that does not fit here fits nowhere before
            first[rows], rows = reached, rows[moving]
            if not len(rows):
                break
        return fewest


def least_of_variant(tables: Tables, variant: Variant) -> int:
    """Return a bound of all plans of a variant, for which no tables are needed: all devices share all computation.

    With ``D`` blocks there are ``M / d`` microbatches at least, and ``d * S <= D``.
    """
    problem, ticks = tables.problem, tables.scale.time.ticks_array
    layers, blocks = problem.graphs[variant].layers, tables.blocks(variant)
    passes = ([layer.forward_s for layer in layers], [layer.backward_s for layer in layers])
    work = sum(int(ticks(np.array(seconds)).sum()) for seconds in passes)
    return work * problem.microbatches(variant) // blocks


class _Uncut(SumBounds):
    """Lower bounds for one variant that hold wherever it is cut: transfers are free."""

    @cached_property
    def hop(self) -> Ints:
        """No ticks, at each level."""
        return np.zeros(self.problem.levels, dtype=np.int64)


def least_of_any_cut(tables: Tables) -> int:
    """Return a bound of all plans, however their layers branch and are cut; `NEVER` where there is no outer choice."""
    choices = (each for variant in tables.fitting for each in sum_choices(_Uncut(tables.uncut(variant))))
    return min((int(each.bounds.min(initial=NEVER)) for each in choices), default=NEVER)


def sum_choices(bounds: SumBounds) -> list[SumChoices]:
    """Return the outer choices of a variant, for each arrangement of the preset.

    Where there is one of what an arrangement has outermost, the stages or the replicas, the first stands for it.
    """
    stages, replicas = _numbers(bounds)
    further, found = -(-bounds.tables.microbatches // replicas) - 1, []
    for at, arrangement in enumerate(bounds.problem.preset.arrangements):
        kept = (stages if arrangement == "stage-major" else replicas) > (1 if at else 0)
        least = _first_bounds(bounds, stages[kept], replicas[kept], arrangement)
        found.append(SumChoices(stages[kept], replicas[kept], arrangement, further[kept], least))
    return found


def _numbers(bounds: SumBounds) -> tuple[Ints, Ints]:
    """Return the numbers of stages and replicas that devices, memory, choices and side constraints leave."""
    tables, blocks = bounds.tables, bounds.tables.devices // bounds.tables.width
    counts, copies = _counts(tables, blocks)
    kept = (counts[:, None] * copies <= blocks) & bounds.possible(counts[:, None], -(-tables.microbatches // copies))
    kept &= counts[:, None] >= (bounds.fewest_stages(copies) if kept.any() else 0)
    at_stages, at_copies = np.nonzero(kept)
    stages, replicas = counts[at_stages], copies[at_copies]
    if not tables.filters.local:
        return stages, replicas
    outers = [Outer(tables.variant, *pair) for pair in zip(stages.tolist(), replicas.tolist(), strict=True)]
    admitted = np.array([tables.filters.outer(outer) for outer in outers], dtype=bool)
    return stages[admitted], replicas[admitted]


def _counts(tables: GroupedTables, blocks: int) -> tuple[Ints, Ints]:
    choices = tables.problem.choices
    most = min(tables.layers, blocks), min(tables.microbatches, blocks)
    allowed = (choices.stages, choices.replicas)
    return tuple(
        np.array([count for count in range(1, limit + 1) if kept is None or count in kept], dtype=np.int64)
        for kept, limit in zip(allowed, most, strict=True)
    )  # type: ignore[return-value]


def _first_bounds(bounds: SumBounds, stages: Ints, replicas: Ints, arrangement: Arrangement) -> Ints:
    """Return bounds of all choices at once."""
    tables, by_stage = bounds.tables, arrangement == "stage-major"
    if not len(stages):
        return stages
    hop = bounds.hop_beyond(tables.width * (replicas if by_stage else np.ones_like(stages)))
    hops = np.where(stages > 1, 2 * (stages - 1) * np.where(stages > 1, hop, 0), 0), hop
    chosen = tables.problem.choices.zero
    types = tuple(
        {exchanging_type(zero, count, tables.problem.training) for zero in sorted(chosen) for count in (1, 2)}
    )
    exchanged = exchanged_anywhere(tables, replicas, stages, types, by_stage=by_stage)
    further = -(-tables.microbatches // replicas) - 1
    return bounds.objective(stages, further, hops, exchanged, types)
