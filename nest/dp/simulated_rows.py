"""Stages of one outer choice as the objective `simulated` sees them: how long their passes take, by way worth trying.

The iteration only grows with every pass. So of the ways of a stage those remain of which no other takes as little
forward, backward and to synchronise; each with as little recomputation as it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.dp.makespans import Played
from nest.dp.sum_rows import Path, Step, SumRows, Way
from nest.tables import GroupedBand
from nest.tables.grouped import Pair
from nest.tables.shares import Option
from nest.units import NEVER, Ints


@dataclass(frozen=True)
class Stages:
    """Stages in one place, those that begin with the same layer together.

    Attributes
    ----------
    begins
        Where those that begin with layer 0, 1, ... begin, and where the last of them end.
    end, forward, backward, weight, sync
        Layer after the last one; ticks of both passes, transfers included, of the part of the backward pass that takes
        gradients of weights, and of the synchronisation.
    option, kind, count
        How each shards, a place in `SumRows.ways`, and what how many layers recompute; see `Way`.
    """

    begins: Ints
    end: Ints
    forward: Ints
    backward: Ints
    weight: Ints
    sync: Ints
    option: Ints
    kind: Ints
    count: Ints

    @property
    def load(self) -> Ints:
        """Ticks for which each is busy with a microbatch."""
        return self.forward + self.backward

    @cached_property
    def first(self) -> Ints:
        """Return the first layer of each."""
        return np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))

    def kept(self, mask: np.ndarray) -> Stages:
        """Return those that a mask picks."""
        begins = np.concatenate([[0], np.cumsum(mask)])[self.begins]
        names = ("end", "forward", "backward", "weight", "sync", "option", "kind", "count")
        return Stages(begins, *(getattr(self, name)[mask] for name in names))


class _Sums(NamedTuple):
    """Ticks of all stages in one place, apart from sharding and recomputation."""

    forward: Ints
    both: Ints
    weight: Ints


class _Way(NamedTuple):
    """Stages in one way to shard: which are worth trying, and what each takes; see `Stages`."""

    kept: np.ndarray
    forward: Ints
    backward: Ints
    weight: Ints
    sync: Ints
    kind: Ints
    repeats: Ints

    def beats(self, other: _Way) -> np.ndarray:
        """Return where no pass takes longer than in another way, nor the synchronisation."""
        rest, others = self.backward - self.weight, other.backward - other.weight
        better: np.ndarray = self.kept & (self.forward <= other.forward) & (self.sync <= other.sync)
        return better & (rest <= others) & (self.weight <= other.weight)


def stages_at(rows: SumRows, step: Step, most: int) -> Stages:
    """Return the stages in one place that fit the memory and take at most so many ticks for a microbatch."""
    band, sums = rows.band, _sums(rows.band, step.site.pairs)
    admitted = rows.masks.at(step.role, step.start, rows.stride)
    allowed = band.valid if admitted is None else band.valid & admitted
    allowed = allowed & (sums.both <= most)
    found: list[_Way] = []
    for way in rows.ways(step.site.holders):
        own, again = band.sums(way.extra), band.recomputation(way.option, step.flying, allowed)
        forward = sums.forward + gathered(band, way.option, own)
        load = np.where(again.ticks < NEVER, sums.both + own + again.ticks, NEVER)
        weight, sync = sums.weight + scattered(band, way.option, own), band.spread_out(way.syncs)
        fits = allowed & (load <= most) & (sync < NEVER)
        added = _Way(fits, forward, load - forward, weight, sync, again.kind, again.layers)
        for each in found:
            np.logical_and(added.kept, ~each.beats(added), out=added.kept)
        for each in found:
            np.logical_and(each.kept, ~added.beats(each), out=each.kept)
        found.append(added)
    return _listed(band, found)


def _listed(band: GroupedBand, found: list[_Way]) -> Stages:
    """Return the stages of all ways as a list, by their first layer."""
    first, column, way = np.nonzero(np.stack([each.kept for each in found], axis=-1))
    values = [np.stack([each[at] for each in found], axis=-1)[first, column, way] for at in range(1, 7)]
    begins = np.searchsorted(first, np.arange(band.tables.layers + 1))
    forward, backward, weight, sync, kind, count = values
    return Stages(begins, first + column + 1, forward, backward, weight, sync, way, kind, count)


def gathered(band: GroupedBand, option: Option, exchanged: Ints) -> Ints:
    """Return what type 3 adds to the forward pass: its part of what is exchanged, by bytes (D15)."""
    if option.zero < 3:
        return np.zeros_like(exchanged)
    parts: Ints = exchanged // (2 + band.tables.times("gradients"))
    return parts


def scattered(band: GroupedBand, option: Option, exchanged: Ints) -> Ints:
    """Return what goes with the gradients of weights: what types 2 and 3 exchange, but for gathering twice."""
    return exchanged - 2 * gathered(band, option, exchanged)


def _sums(band: GroupedBand, pairs: tuple[Pair, ...]) -> _Sums:
    """Return the ticks of all stages.

    The replica with the longest transfers counts, and of several that which waits longest for its activations.
    """
    hops, tables = band.hops(pairs), band.tables
    entry = np.zeros_like(hops)
    for there, back in pairs:
        received = tables.hops(there)[:-1, None] + np.zeros_like(hops)
        slowest = received + tables.hops(back)[np.minimum(band.end, tables.layers)] == hops
        entry = np.where(slowest, np.maximum(entry, received), entry)
    return _Sums(band.sums(tables.forward) + entry, band.work + hops, band.sums(tables.weight))


def passes_of(rows: SumRows, path: Path) -> Played:
    """Return the ticks of the passes of each stage of a plan, as rows of one pipeline."""
    found = []
    for at, way in enumerate(path.ways):
        step, first = rows.steps[len(path.ways) - 1 - at], path.cuts[at]
        column = path.cuts[at + 1] - first - 1
        band, stages = rows.band, rows.stage(step)
        own = band.sums(rows.ways(step.site.holders)[int(stages.option[first, column])].extra)
        sums, load = _sums(band, step.site.pairs), stages.load[first, column]
        forward = (sums.forward + gathered(band, way.option, own))[first, column]
        weight = (sums.weight + scattered(band, way.option, own))[first, column]
        found.append((forward, load - forward, weight))
    forward, backward, weight = np.array(found, dtype=np.int64).T[:, None, :]
    return Played(forward, backward, weight)


def way_of(rows: SumRows, step: Step, stages: Stages, at: int) -> Way:
    """Return how one of the stages in a place shards and recomputes."""
    option = rows.ways(step.site.holders)[int(stages.option[at])].option
    return Way(option, int(stages.kind[at]), int(stages.count[at]))
