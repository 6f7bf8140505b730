"""Stages of one outer choice as the objective `simulated` sees them: how long their passes take, by way worth trying.

They are between two cuts (`nest.dp.sum_cuts`): numbers of layers, or downsets where layers branch.
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
from nest.tables.ways import ShardedWay
from nest.units import NEVER, Ints


@dataclass(frozen=True)
class Stages:
    """Stages in one place, those that begin at the same cut together.

    Attributes
    ----------
    begins
        Where those that begin at cut 0, 1, ... begin, and where those of the last but one end: none begins at the last.
    end, forward, backward, weight, sync
        The cut behind each; ticks of both passes, transfers included, of the part of the backward pass that takes
        gradients of weights, if these are put off, and of the synchronisation.
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
        """Return the cut before each."""
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
    band = rows.band(step)
    sums = _sums(band, step.site.pairs)
    allowed = rows.admitted(step) & (sums.both <= most)
    found, ends = list[_Way](), band.ends(step.site.ends)
    for way in rows.ways(step.site, step.holds):
        own, again = band.own(way), band.recomputation(way, step.passing, allowed)
        forward, weight = sums.forward + band.gathered(way), sums.weight + band.late(way)
        load = np.where(again.ticks < NEVER, sums.both + own + again.ticks, NEVER)
        sync = band.waits(way) + ends
        fits = allowed & (load <= most) & (sync < NEVER)
        added = _Way(fits, forward, load - forward, weight, sync, again.kind, again.layers)
        for each in found:
            np.logical_and(added.kept, ~each.beats(added), out=added.kept)
        for each in found:
            np.logical_and(each.kept, ~added.beats(each), out=each.kept)
        found.append(added)
    return _listed(band, found)


def _listed(band: GroupedBand, found: list[_Way]) -> Stages:
    """Return the stages of all ways as a list, by the cuts before them."""
    chosen = np.nonzero(np.stack([each.kept for each in found], axis=-1))
    values = [np.stack([each[at] for each in found], axis=-1)[chosen] for at in range(1, 7)]
    first, end = band.cuts_of(chosen[:-1])
    begins = np.searchsorted(first, np.arange(band.tables.cuts))
    forward, backward, weight, sync, kind, count = values
    return Stages(begins, end, forward, backward, weight, sync, chosen[-1], kind, count)


def _sums(band: GroupedBand, pairs: tuple[Pair, ...]) -> _Sums:
    """Return the ticks of all stages.

    The replica with the longest transfers counts, and of several that whose activations take longest.
    """
    hops, tables = band.hops(pairs), band.tables
    entry = np.zeros_like(hops)
    for there, back in pairs:
        ahead = (tables.hops(there) - tables.sends(there))[band.first] + tables.sends(back)[band.reached]
        slowest = tables.hops(there)[band.first] + tables.hops(back)[band.reached] == hops
        entry = np.where(slowest, np.maximum(entry, ahead), entry)
    weight = band.window if band.puts_off else np.zeros_like(hops)
    return _Sums(band.sums(tables.forward) + entry, band.work + hops, weight)


def passes_of(rows: SumRows, path: Path) -> Played:
    """Return the ticks of the passes of each stage of a plan, as rows of one pipeline."""
    found = []
    for step, stage in zip(reversed(rows.steps), path.stages, strict=True):
        band, stages = rows.band(step), rows.stage(step)
        way: ShardedWay = rows.ways(step.site, step.holds)[int(stages.option[stage])]
        sums, load = _sums(band, step.site.pairs), stages.load[stage]
        forward, weight = (sums.forward + band.gathered(way))[stage], (sums.weight + band.late(way))[stage]
        found.append((forward, load - forward, weight))
    forward, backward, weight = np.array(found, dtype=np.int64).T[:, None, :]
    return Played(forward, backward, weight)


def way_of(rows: SumRows, step: Step, stages: Stages, at: int) -> Way:
    """Return how one of the stages in a place shards and recomputes."""
    option = rows.ways(step.site, step.holds)[int(stages.option[at])].option
    return Way(option, int(stages.kind[at]), int(stages.count[at]))
