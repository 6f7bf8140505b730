"""Where stages begin and end in a row of the recursion: runs of layers, or differences of downsets.

A row has a value for each cut. Cuts are sorted by the number of layers before them, so that those with which a stage
may begin are a slice.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

from nest.dp.uniform import windows
from nest.tables import BranchedBand, GroupedBand
from nest.units import NEVER, Ints

Entries: TypeAlias = Any
"""Indices into the tables of a band that pick some of its stages."""


class Cuts(Protocol):
    """What the recursion asks of the stages of a band."""

    def start(self) -> Ints:
        """Return the row without stages: 0 behind all layers, `NEVER` elsewhere."""

    def begins(self, before: int, behind: int) -> slice:
        """Return the cuts with at least so many layers before them, and so many behind."""

    def stages(self, begins: slice, depth: int) -> Entries:
        """Return the stages that begin there, where it saves time without those of more than ``depth`` layers."""

    def beyond(self, row: Ints, entries: Entries) -> Ints:
        """Return the value of a row where each of these stages ends."""

    def least(self, values: Ints, entries: Entries) -> Ints:
        """Return the least value of these stages for each cut."""

    def stage(self, begin: int, column: int) -> tuple[int, Entries]:
        """Return where the stage ends that is so far among those of a cut, and where it is in tables."""


class RunCuts:
    """Cuts of a chain: the numbers of layers before them. Tables have a row of stages for each, or for the first."""

    def __init__(self, band: GroupedBand) -> None:
        self.layers, self.depth, self.at = band.tables.layers, band.depth, band.at

    def start(self) -> Ints:
        """Return the row without stages, with room behind it for runs that end beyond the model."""
        row = np.full(self.layers + 1 + self.depth, NEVER, dtype=np.int64)
        row[self.layers] = 0
        return row

    def begins(self, before: int, behind: int) -> slice:
        """Return the cuts with at least so many layers before them, and so many behind."""
        return slice(before, 1 if self.at.opens else self.layers - behind + 1)

    def stages(self, begins: slice, depth: int) -> Entries:
        """Return the stages that begin there, of at most so many layers."""
        return begins, slice(1 if self.at.closes else min(depth, self.depth))

    def beyond(self, row: Ints, entries: Entries) -> Ints:
        """Return the value of a row where each of these stages ends."""
        begins, columns = entries
        if self.at.closes:
            return row[self.layers :][:1, None]
        found: Ints = windows(row, (self.layers, columns.stop))[begins]
        return found

    def least(self, values: Ints, _: Entries) -> Ints:
        """Return the least value of each row."""
        least: Ints = values.min(axis=1)
        return least

    def stage(self, begin: int, column: int) -> tuple[int, Entries]:
        """Return where a stage ends, and its place in tables."""
        return self.layers if self.at.closes else begin + 1 + column, (begin, column)


class DownsetCuts:
    """Cuts of a graph with branches: its downsets. Tables have the stages of one behind those of another."""

    def __init__(self, band: BranchedBand) -> None:
        self.sizes, self.differences = band.tables.family.sizes, band.stages

    def start(self) -> Ints:
        """Return the row without stages."""
        row = np.full(len(self.sizes), NEVER, dtype=np.int64)
        row[-1] = 0
        return row

    def begins(self, before: int, behind: int) -> slice:
        """Return the cuts with at least so many layers before them, and so many behind."""
        first = np.searchsorted(self.sizes, before, side="left")
        return slice(int(first), int(np.searchsorted(self.sizes, self.sizes[-1] - behind, side="right")))

    def stages(self, begins: slice, _: int) -> Entries:
        """Return all stages that begin there."""
        return slice(int(self.differences.starts[begins.start]), int(self.differences.starts[begins.stop]))

    def beyond(self, row: Ints, entries: Entries) -> Ints:
        """Return the value of a row where each of these stages ends."""
        found: Ints = row[self.differences.end[entries]]
        return found

    def least(self, values: Ints, entries: Entries) -> Ints:
        """Return the least value of the stages of each cut; none is without one, of a single layer."""
        ends = self.differences.first[[entries.start, entries.stop - 1]]
        least: Ints = np.minimum.reduceat(values, self.differences.starts[ends[0] : ends[1] + 1] - entries.start)
        return least

    def stage(self, begin: int, column: int) -> tuple[int, Entries]:
        """Return where a stage ends, and its place in tables."""
        entry = int(self.differences.starts[begin]) + column
        return int(self.differences.end[entry]), entry


def cuts_of(band: GroupedBand) -> Cuts:
    """Return the cuts of a band."""
    return DownsetCuts(band) if isinstance(band, BranchedBand) else RunCuts(band)
