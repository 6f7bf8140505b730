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
from nest.dp.sum_filling import Filling, LooseFilling, all_filled
from nest.presets import Arrangement
from nest.problem import Variant, exchanging_type
from nest.tables import GroupedTables, Tables, prefix
from nest.tables.exchanged import PLAIN, Exchanged, exchanged_anywhere, exchanged_at
from nest.tables.grouped import NO_BOUNDARY, Pair, Site
from nest.tables.speeds import SURE, least_work
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
        self._fillings: dict[frozenset[str], Filling] = {}
        self._slowdowns: dict[frozenset[str], float] = {}
        self._placed: dict[tuple[int, int, tuple[frozenset[str], ...]], tuple[int, int]] = {}

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
        whichever types the stages use; and some stage makes the optimizer's step for an equal part of them. Slower
        devices have longer passes, which may hide more, but no more than they take longer.
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

    def refined(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> int:
        """Return the bound of one choice, from the places of its stages; it may be less where none is better."""
        hops, exchanged, types = self.at_sites(choice, sites)
        counts = np.array([choice.stages]), np.array([choice.further])
        bound = int(self.objective(*counts, hops, exchanged, types)[0])
        slowest, shared = self._on_classes(choice, sites, better_than)
        slowest = max(slowest, self._slowest.get((choice.stages, choice.replicas), 0))
        step, all_hops = float(exchanged.step[0]), int(hops[0][0])
        once = step + (float(exchanged.sync[0]) if any(zero in PLAIN for zero in types) else 0.0)
        loads = self.total + choice.further * slowest + max(int(once / choice.stages) - 8, 0)
        return max(bound, loads + all_hops, shared + max(int(step / choice.stages) - 8, 0) + all_hops)

    def by_classes(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> int:
        """Return the bound of one choice by the devices of its stages; 0 where all are of one class."""
        if not sites[0].classes:
            return 0
        slowest, shared = self._on_classes(choice, sites, better_than)
        return max(self.total + choice.further * slowest, shared)

    def _on_classes(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> tuple[int, int]:
        """Return a load that some stage reaches, and what loads add up to, the largest for every microbatch."""
        key = choice.stages, choice.replicas, tuple(site.classes for site in sites)
        if key not in self._placed:
            slow = [self._slow(each) for each in key[2]]
            least = int(self.total / sum(1 / each for each in slow) * SURE)
            slowest = self._filled(choice, key[2], least, better_than) if sites[0].classes else least
            self._placed[key] = slowest, _shared(self.total, slow, choice.further)
        return self._placed[key]

    def _slow(self, classes: frozenset[str]) -> float:
        if classes not in self._slowdowns:
            self._slowdowns[classes] = self.tables.slowdown(classes)
        return self._slowdowns[classes]

    def _filled(self, choice: SumChoice, classes: tuple[frozenset[str], ...], least: int, better_than: int) -> int:
        """Return a load that some stage reaches on devices of these classes, given one that some stage reaches anyway.

        Where no plan is better than ``better_than``, it may be less than it could be.
        """
        if isinstance(self.filling, LooseFilling) or not choice.further:
            return least
        stages = [self._filling(each).within(choice.replicas, choice.stages) for each in reversed(classes)]
        low, high = least - 1, min((better_than - 1 - self.total) // choice.further, LONGEST)
        if high < least:
            return least
        if not all_filled(stages, high):
            return high + 1
        while high - low > max(low // PRECISE, 1):
            middle = (low + high) // 2 if high < 4 * low else min(2 * max(low, 0) + 1, high - 1)
            low, high = (low, middle) if all_filled(stages, middle) else (middle, high)
        return low + 1

    def _filling(self, classes: frozenset[str]) -> Filling:
        if classes not in self._fillings:
            self._fillings[classes] = Filling(self.tables.on(classes))
        return self._fillings[classes]

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


def _shared(work: int, slow: list[float], further: int) -> int:
    """Return a bound of the sum of loads and of ``further`` times the largest, of stages that are so many times slower.

    Where ``T`` is the largest, stages have up to ``T`` over their slowness of the work, and the sum is the least where
    the fastest have as much as they may. It is linear in ``T`` between the values at which one more of them is full.
    """
    full = np.cumsum(1 / np.sort(np.array(slow)))
    least = (np.arange(1, len(slow) + 1) + further) * (work / full)
    return int(float(least.min()) * SURE)


def least_of_variant(tables: Tables, variant: Variant) -> int:
    """Return a bound of all plans of a variant, for which no tables are needed: all devices share all computation.

    With ``D`` blocks there are ``M / d`` microbatches at least, and ``d * S <= D``; slower ones count in part.
    """
    problem = tables.problem
    least = least_work(problem, tables.scale, variant, tables.blocks(variant))
    return int(least * problem.microbatches(variant) * SURE)


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
    fewest = bounds.fewest_stages(copies) if len(copies) else copies
    kept = (counts[:, None] * copies <= blocks) & (counts[:, None] >= fewest)
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
    turns = bool(tables.problem.cluster.classes)  # where classes change places, blocks far apart may be neighbours
    hop = bounds.hop_beyond(tables.width * (replicas if by_stage and not turns else np.ones_like(stages)))
    hops = np.where(stages > 1, 2 * (stages - 1) * np.where(stages > 1, hop, 0), 0), hop
    chosen = tables.problem.choices.zero
    types = tuple(
        {exchanging_type(zero, count, tables.problem.training) for zero in sorted(chosen) for count in (1, 2)}
    )
    exchanged = exchanged_anywhere(tables, replicas, stages, types, by_stage=by_stage or turns)
    further = -(-tables.microbatches // replicas) - 1
    least = bounds.objective(stages, further, hops, exchanged, types)
    if not turns:
        return least
    slowest = bounds.total / (tables.speeds.of(stages * replicas) / replicas)
    by_speed = np.minimum((bounds.total + further * slowest) * SURE, float(NEVER)).astype(np.int64)
    return np.maximum(least, by_speed)
