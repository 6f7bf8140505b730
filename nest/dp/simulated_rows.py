"""Stages of one outer choice as the objective `simulated` sees them: how long their passes take, by way worth trying.

The iteration only grows with every pass. So of the ways of a stage those remain of which no other takes as little
forward, backward and to synchronise; each with as little recomputation as it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

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
    end, forward, backward, sync
        Layer after the last one; ticks of both passes, transfers included, and of the synchronisation.
    option, kind, count
        How each shards, a place in `SumRows.ways`, and what how many layers recompute; see `Way`.
    """

    begins: Ints
    end: Ints
    forward: Ints
    backward: Ints
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
        names = ("end", "forward", "backward", "sync", "option", "kind", "count")
        return Stages(begins, *(getattr(self, name)[mask] for name in names))


class _Sums(NamedTuple):
    """Ticks of all stages in one place, apart from sharding and recomputation."""

    forward: Ints
    both: Ints


def stages_at(rows: SumRows, step: Step, most: int) -> Stages:
    """Return the stages in one place that fit the memory and take at most so many ticks for a microbatch."""
    band, sums = rows.band, _sums(rows.band, step.site.pairs)
    admitted = rows.masks.at(step.role, step.start, rows.stride)
    allowed = band.valid if admitted is None else band.valid & admitted
    allowed = allowed & (sums.both <= most)
    found: list[tuple[np.ndarray, Ints, Ints, Ints, Ints, Ints]] = []
    for way in rows.ways(step.site.holders):
        own, again = band.sums(way.extra), band.recomputation(way.option, step.flying, allowed)
        forward = sums.forward + gathered(band, way.option, own)
        load = np.where(again.ticks < NEVER, sums.both + own + again.ticks, NEVER)
        sync = band.spread_out(way.syncs)
        fits = allowed & (load <= most) & (sync < NEVER)
        for each in found:
            fits &= ~(each[0] & (each[1] <= forward) & (each[2] <= load - forward) & (each[3] <= sync))
        for each in found:
            np.logical_and(
                each[0], ~(fits & (forward <= each[1]) & (load - forward <= each[2]) & (sync <= each[3])), out=each[0]
            )
        found.append((fits, forward, load - forward, sync, again.kind, again.layers))
    return _listed(band, found)


def _listed(band: GroupedBand, found: list[tuple[np.ndarray, Ints, Ints, Ints, Ints, Ints]]) -> Stages:
    """Return the stages of all ways as a list, by their first layer."""
    first, column, way = np.nonzero(np.stack([each[0] for each in found], axis=-1))
    values = [np.stack([each[at] for each in found], axis=-1)[first, column, way] for at in range(1, 6)]
    begins = np.searchsorted(first, np.arange(band.tables.layers + 1))
    forward, backward, sync, kind, count = values
    return Stages(begins, first + column + 1, forward, backward, sync, way, kind, count)


def gathered(band: GroupedBand, option: Option, exchanged: Ints) -> Ints:
    """Return what type 3 adds to the forward pass: its part of what is exchanged, by bytes (D15)."""
    if option.zero < 3:
        return np.zeros_like(exchanged)
    parts: Ints = exchanged // (2 + band.tables.times("gradients"))
    return parts


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
    return _Sums(band.sums(tables.forward) + entry, band.work + hops)


def passes_of(rows: SumRows, path: Path) -> tuple[Ints, Ints]:
    """Return the ticks of both passes of each stage of a plan, as rows of one pipeline."""
    forward, loads = [], []
    for at, way in enumerate(path.ways):
        step, first = rows.steps[len(path.ways) - 1 - at], path.cuts[at]
        column = path.cuts[at + 1] - first - 1
        band, stages = rows.band, rows.stage(step)
        option = rows.ways(step.site.holders)[int(stages.option[first, column])]
        own = gathered(band, way.option, band.sums(option.extra))
        forward.append(int(_sums(band, step.site.pairs).forward[first, column] + own[first, column]))
        loads.append(int(stages.load[first, column]))
    ahead = np.array([forward], dtype=np.int64)
    return ahead, np.array([loads], dtype=np.int64) - ahead


def way_of(rows: SumRows, step: Step, stages: Stages, at: int) -> Way:
    """Return how one of the stages in a place shards and recomputes."""
    option = rows.ways(step.site.holders)[int(stages.option[at])].option
    return Way(option, int(stages.kind[at]), int(stages.count[at]))
