"""Outer choices under the objective `sum`, and lower bounds of what they can reach.

A first bound is made for all choices at once, from how near to each other the members of their groups may be; a second
one for a single choice, from the places of its stages. Both are admissible. Numbers of replicas that leave each as many
microbatches are looked at together at first: there are many of them, and what they differ in seldom matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.constraints import Outer
from nest.dp.outer import THRESHOLDS
from nest.dp.sum_classes import ClassBounds, shared
from nest.dp.sum_filling import PRECISE, BranchedFilling, Filling, LooseFilling, all_filled, filling_of
from nest.dp.sum_numbers import Numbers
from nest.presets import Arrangement
from nest.problem import Variant, exchanging_type
from nest.tables import GroupedTables, Tables, prefix
from nest.tables.alone import least_sharing
from nest.tables.exchanged import PLAIN, Exchanged, exchanged_anywhere, exchanged_at
from nest.tables.grouped import NO_BOUNDARY, Pair, Site
from nest.tables.speeds import SURE, least_work
from nest.units import LONGEST, NEVER, Ints, distinct


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
class SumRange:
    """Outer choices of one variant that differ in their numbers of replicas only, and leave each as many microbatches.

    Attributes
    ----------
    fewest, most
        Replicas; those between them that choices and side constraints leave belong to it as well.
    further
        Microbatches of a replica but one.
    """

    stages: int
    fewest: int
    most: int
    arrangement: Arrangement
    further: int

    @property
    def single(self) -> SumChoice | None:
        """The outer choice, if there is only one."""
        alone = self.fewest == self.most
        return SumChoice(self.stages, self.fewest, self.arrangement, self.further) if alone else None


@dataclass(frozen=True, slots=True)
class SumChoices:
    """Ranges of outer choices of one variant in arrays of equal length.

    Attributes
    ----------
    stages, fewest, most
        As of `SumRange`.
    sizes
        How many outer choices each has.
    bounds
        Of the objective, in ticks.
    """

    stages: Ints
    fewest: Ints
    most: Ints
    sizes: Ints
    arrangement: Arrangement
    further: Ints
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, row: int) -> SumRange:
        stages, fewest, most, further = (int(each[row]) for each in (self.stages, self.fewest, self.most, self.further))
        return SumRange(stages, fewest, most, self.arrangement, further)


class _Placed(NamedTuple):
    """What the classes of devices under the stages say.

    Parameters
    ----------
    slowest, shared
        As `SumBounds._on_classes` returns them.
    more
        Whether the first may be more than that.
    """

    slowest: int
    shared: int
    more: bool


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
        self.filling: Filling | LooseFilling = filling_of(tables)
        self._slowest: dict[tuple[int, int, int], int] = {}
        self._fewest: dict[int, Ints] = {}
        self._fillings: dict[frozenset[str], Filling] = {}
        self._slowdowns: dict[frozenset[str], float] = {}
        self._placed: dict[tuple[int, int, tuple[frozenset[str], ...]], _Placed] = {}

    def possible(self, stages: Ints) -> np.ndarray:
        """Return with which numbers of stages there may be plans at all."""
        return np.ones(len(stages), dtype=bool)

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

    def slowest(self, chosen: SumRange, most: int, least: int = 0) -> int:
        """Return a load that some stage reaches by memory, recomputation and work; if it is more, ``most + 1`` will do.

        Parameters
        ----------
        least
            Some stage reaches as much anyway.
        """
        stages = chosen.stages
        reached = max(int(self.crowded[stages]), -(-self.total // stages), least)
        return self.filling.within(chosen.fewest, chosen.most, stages).slowest(stages, most, reached)

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

    def filled(self, chosen: SumRange, better_than: int) -> int:
        """Return the bound of some choices by what their stages hold; it may be less where none is better."""
        by_class = self.on_classes.least(chosen.stages, chosen.fewest, chosen.further) if self.on_classes else 0
        if by_class >= better_than:
            return by_class
        apart, times = (0, chosen.further + 1) if chosen.stages == 1 else (self.total, chosen.further)
        if self.total >= better_than:
            return better_than
        most = min((better_than - 1 - apart) // times if times else LONGEST, LONGEST)
        key = chosen.stages, chosen.fewest, chosen.most
        if self._slowest.get(key, 0) <= most:
            self._slowest[key] = self.slowest(chosen, most, self._slowest.get(key, 0))
        slowest = self._slowest[key]
        return NEVER if slowest > LONGEST else max(self.total, apart + times * slowest, by_class)

    @cached_property
    def on_classes(self) -> ClassBounds | None:
        """Bounds by the classes of devices, where there are several."""
        return ClassBounds(self.tables) if self.problem.cluster.classes else None

    def refined(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> int:
        """Return the bound of one choice, from the places of its stages; it may be less where none is better."""
        hops, exchanged, types = self.at_sites(choice, sites)
        counts = np.array([choice.stages]), np.array([choice.further])
        bound = int(self.objective(*counts, hops, exchanged, types)[0])
        slowest, shared = self._on_classes(choice, sites, better_than)
        slowest = max(slowest, self._slowest.get((choice.stages, choice.replicas, choice.replicas), 0))
        step, all_hops = float(exchanged.step[0]), int(hops[0][0])
        once = step + (float(exchanged.sync[0]) if any(zero in PLAIN for zero in types) else 0.0)
        loads = self.total + choice.further * slowest + max(int(once / choice.stages) - 8, 0)
        if choice.stages == 1:  # whose load is all loads, with what it exchanges in the place of a synchronisation
            shared = max(shared, (1 + choice.further) * slowest)
        return max(bound, loads + all_hops, shared + max(int(step / choice.stages) - 8, 0) + all_hops)

    def by_classes(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> int:
        """Return the bound of one choice by the devices of its stages; 0 where all are of one class."""
        if not sites[0].classes:
            return 0
        slowest, shared = self._on_classes(choice, sites, better_than)
        return max(self.total + choice.further * slowest, shared)

    def _on_classes(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> tuple[int, int]:
        """Return a load that some stage reaches, and what loads add up to, the largest for every microbatch.

        Where no plan is better than ``better_than``, they may be less than they could be.
        """
        key = choice.stages, choice.replicas, tuple(site.classes for site in sites)
        if key not in self._placed:
            slow = [self._slow(each) for each in key[2]]
            least = int(self.total / sum(1 / each for each in slow) * SURE)
            self._placed[key] = _Placed(least, shared(self.total, slow, choice.further), bool(sites[0].classes))
        placed = self._placed[key]
        if placed.more and self.total + choice.further * placed.slowest < better_than:
            placed = self._placed[key] = self._filled(choice, key[2], placed, better_than)
        return placed.slowest, placed.shared

    def _slow(self, classes: frozenset[str]) -> float:
        if classes not in self._slowdowns:
            self._slowdowns[classes] = self.tables.slowdown(classes)
        return self._slowdowns[classes]

    def _filled(
        self, choice: SumChoice, classes: tuple[frozenset[str], ...], known: _Placed, better_than: int
    ) -> _Placed:
        """Return what is known of stages on devices of these classes once they are filled."""
        if isinstance(self.filling, BranchedFilling | LooseFilling) or not choice.further:
            return known._replace(more=False)
        shape = choice.replicas, choice.replicas, choice.stages
        stages = [self._filling(each).within(*shape) for each in reversed(classes)]
        low, high = known.slowest - 1, min((better_than - 1 - self.total) // choice.further, LONGEST)
        if not all_filled(stages, high):
            return known._replace(slowest=high + 1, more=high < LONGEST)
        while high - low > max(low // PRECISE, 1):
            middle = (low + high) // 2 if high < 4 * low else min(2 * max(low, 0) + 1, high - 1)
            low, high = (low, middle) if all_filled(stages, middle) else (middle, high)
        return known._replace(slowest=low + 1, more=False)

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

    @cached_property
    def numbers(self) -> Numbers:
        """Numbers of stages and replicas that devices and choices leave."""
        return Numbers(self.tables)

    def fewest_in(self, run: int) -> Ints:
        """Fewest stages whose layers fit the memory, for each number of replicas of a run."""
        if run not in self._fewest:
            numbers = self.numbers
            replicas = numbers.replicas[numbers.first[run] : numbers.last[run] + 1]
            self._fewest[run] = self.fewest_stages(replicas, self.tables.most_sharing(replicas))
        return self._fewest[run]

    def fewest_stages(self, replicas: Ints, sharing: Ints) -> Ints:
        """Fewest stages whose layers fit the memory, for each number of replicas; more than there are where none do.

        Fills stages from the end of the pipeline on, each as far as its memory reaches, with the types of ZeRO that
        leave the least. What is in use for a moment counts for single layers alone, so that what fits only shrinks with
        every layer, and filling up is the best.

        Parameters
        ----------
        replicas
            By which microbatches are divided.
        sharing
            How many of them share weights at most.
        """
        if isinstance(self.filling, BranchedFilling | LooseFilling):
            fewest = self._fewest_together(sharing)
        else:
            fewest = self._fewest_by_filling(replicas, sharing)
        return np.where(sharing < self.least_sharing, self.tables.layers + 1, fewest)

    @cached_property
    def least_sharing(self) -> int:
        """How many replicas have to share their weights so that each layer fits a device."""
        return least_sharing(self.tables)

    def _fewest_together(self, sharing: Ints) -> Ints:
        """Return how many stages have the memory for all layers together, one microbatch in flight."""
        most = self.tables.capacity
        alone = self.tables.least_held_by(sharing) + self.tables.least_kept
        needed = -(-alone.sum(axis=1) // max(most, 1))
        return np.where(alone.max(axis=1) > most, self.tables.layers + 1, np.maximum(needed, 1))

    def _fewest_by_filling(self, replicas: Ints, sharing: Ints) -> Ints:
        """Return how many stages are filled, each as far as its memory reaches."""
        tables, count = self.tables, self.tables.layers
        least = tables.least_held_by(sharing)
        held = np.zeros((len(replicas), count + 1), dtype=np.int64)
        np.cumsum(least, axis=1, out=held[:, 1:])
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

    With ``D`` blocks there are ``M / d`` microbatches at least, and ``d * S <= D``; slower ones count in part.
    """
    problem = tables.problem
    least = least_work(problem, tables.scale, variant, tables.blocks(variant))
    return int(least * problem.microbatches(variant) * SURE)


def busy_of_variant(tables: Tables, variant: Variant, *, in_turn: bool) -> int:
    """Return the same with the collectives of all passes, for which no tables are needed either.

    Parameters
    ----------
    in_turn
        Whether a microbatch has both passes of every layer before an iteration ends, one after the other.
    """
    once, shared = tables.least_busy(variant)
    return max(int(shared * tables.problem.microbatches(variant) * SURE), once if in_turn else 0)


class _Uncut(SumBounds):
    """Lower bounds for one variant that hold wherever it is cut: transfers are free."""

    @cached_property
    def hop(self) -> Ints:
        """No ticks, at each level."""
        return np.zeros(self.problem.levels, dtype=np.int64)


def least_of_any_cut(tables: Tables) -> int:
    """Return a bound of all plans, however their layers branch and are cut; `NEVER` where there is no outer choice."""
    least = NEVER
    for variant in tables.fitting:
        least = least_bound(_Uncut(tables.uncut(variant)), least)
    return least


def least_bound(bounds: SumBounds, most: int) -> int:
    """Return the least bound of the outer choices of a variant, or a value that is no more."""
    least = most
    for ranges in sum_ranges(bounds):
        for row in np.argsort(ranges.bounds, kind="stable").tolist():
            if ranges.bounds[row] >= least:
                break
            least = min(least, int(sum_choices(bounds, ranges[row]).bounds.min(initial=NEVER)))
    return least


def sum_ranges(bounds: SumBounds) -> list[SumChoices]:
    """Return all outer choices of a variant that memory leaves, in ranges, for each arrangement of the preset.

    Where there is one of what an arrangement has outermost, the stages or the replicas, the first stands for it.
    """
    tables, numbers = bounds.tables, bounds.numbers
    if not len(numbers.replicas):
        return []
    replicas, first, last = numbers.replicas, numbers.first, numbers.last
    possible = bounds.possible(numbers.stages)
    if not possible.any():
        return []
    sharing = np.maximum.reduceat(tables.most_sharing(replicas), first)
    fewest = bounds.fewest_stages(replicas[first], sharing)
    room = np.searchsorted(replicas, numbers.blocks // numbers.stages, side="right") - 1
    at, run = np.nonzero(possible[:, None] & (numbers.stages[:, None] >= fewest) & (first <= room[:, None]))
    chosen = numbers.stages[at], first[run], np.minimum(last[run], room[at])
    alone = chosen[1] == chosen[2]  # nothing is left to split, so that side constraints are asked at once
    kept = ~alone | _admitted(tables, chosen[0], replicas[chosen[1]], asked=alone)
    chosen = chosen[0][kept], chosen[1][kept], chosen[2][kept]
    found = []
    for number, arrangement in enumerate(bounds.problem.preset.arrangements):
        kept = (chosen[0] if arrangement == "stage-major" else replicas[chosen[1]]) > (1 if number else 0)
        found.append(_bounded(bounds, (chosen[0][kept], chosen[1][kept], chosen[2][kept]), arrangement))
    return found


def sum_choices(bounds: SumBounds, within: SumRange) -> SumChoices:
    """Return the outer choices of a range that memory and side constraints leave, each a range of its own."""
    tables, numbers = bounds.tables, bounds.numbers
    low, high = np.searchsorted(numbers.replicas, [within.fewest, within.most])
    run = int(np.searchsorted(numbers.first, low, side="right")) - 1
    places = np.arange(low, high + 1)
    kept = bounds.fewest_in(run)[places - numbers.first[run]] <= within.stages
    kept &= _admitted(tables, np.full_like(places, within.stages), numbers.replicas[places], asked=kept)
    places = places[kept]
    return _bounded(bounds, (np.full_like(places, within.stages), places, places), within.arrangement)


def _admitted(tables: GroupedTables, stages: Ints, replicas: Ints, asked: np.ndarray) -> np.ndarray:
    """Return which outer choices side constraints leave, of those that are asked for; the others are left."""
    admitted = np.ones(len(stages), dtype=bool)
    for at in np.flatnonzero(asked).tolist() if tables.filters.local else ():
        admitted[at] = tables.filters.outer(Outer(tables.variant, int(stages[at]), int(replicas[at])))
    return admitted


def _bounded(bounds: SumBounds, chosen: tuple[Ints, Ints, Ints], arrangement: Arrangement) -> SumChoices:
    """Return ranges with their bounds, given by stages and the places of the fewest and the most replicas."""
    stages, first, last = chosen
    fewest, most = bounds.numbers.replicas[first], bounds.numbers.replicas[last]
    further = -(-bounds.tables.microbatches // fewest) - 1
    least = _first_bounds(bounds, stages, (fewest, most), arrangement)
    return SumChoices(stages, fewest, most, last - first + 1, arrangement, further, least)


def _first_bounds(bounds: SumBounds, stages: Ints, replicas: tuple[Ints, Ints], arrangement: Arrangement) -> Ints:
    """Return bounds of all choices with so many replicas, from the fewest to the most."""
    tables, by_stage, fewest = bounds.tables, arrangement == "stage-major", replicas[0]
    if not len(stages):
        return stages
    turns = bool(tables.problem.cluster.classes)  # where classes change places, blocks far apart may be neighbours
    hop = bounds.hop_beyond(tables.width * (fewest if by_stage and not turns else np.ones_like(stages)))
    hops = np.where(stages > 1, 2 * (stages - 1) * np.where(stages > 1, hop, 0), 0), hop
    chosen = tables.problem.choices.zero
    types = tuple(
        {exchanging_type(zero, count, tables.problem.training) for zero in sorted(chosen) for count in (1, 2)}
    )
    exchanged = exchanged_anywhere(tables, replicas, stages, types, by_stage=by_stage or turns)
    further = -(-tables.microbatches // fewest) - 1
    least = bounds.objective(stages, further, hops, exchanged, types)
    if not turns:
        return least
    slowest = bounds.total / (tables.speeds.of(stages * fewest) / fewest)
    by_speed = np.minimum((bounds.total + further * slowest) * SURE, float(NEVER)).astype(np.int64)
    return np.maximum(least, by_speed)
