"""The line on which a plan places its blocks: devices in an order, all of them or all but some that it leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.units import Ints

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges ``[first, end)`` of devices."""


class Line(NamedTuple):
    """Devices in their order, without those left out; *positions* count the others from 0 on.

    Parameters
    ----------
    left_out
        Ranges of devices, ascending, with some between them.
    order
        Ranges of all other devices as they follow each other; empty where they ascend.
    """

    left_out: Ranges = ()
    order: Ranges = ()

    @classmethod
    def around(cls, reserved: Iterable[int], cell: int, devices: int) -> Line:
        """Return the line without the cells, of so many devices from device 0 on, that hold a reserved device."""
        ranges: list[tuple[int, int]] = []
        for at in sorted({device // cell for device in reserved}):
            first, end = at * cell, min((at + 1) * cell, devices)
            if ranges and ranges[-1][1] == first:
                first = ranges.pop()[0]
            ranges.append((first, end))
        return cls(tuple(ranges))

    @classmethod
    def through(cls, firsts: Ints, cell: int, devices: int) -> Line:
        """Return the line of some cells, of so many devices each, in their order; ``devices`` are those of all."""
        order = _joined(firsts, cell)
        kept = np.zeros(devices, dtype=bool)
        for first, end in order:
            kept[first:end] = True
        return cls(_joined(np.flatnonzero(~kept), 1), () if (np.diff(firsts) > 0).all() else order)

    @property
    def shifts(self) -> bool:
        """Whether a device stands anywhere else than at its own number."""
        return bool(self.left_out or self.order)

    def length(self, devices: int) -> int:
        """Return how many of so many devices it has."""
        return devices - sum(end - first for first, end in self.left_out)

    def devices(self, positions: Ints) -> Ints:
        """Return which devices are at some positions; beyond the last range all positions are taken to have one."""
        if self.order:
            return self._ordered(positions)
        found = positions
        for first, end in self.left_out:
            found = np.where(found >= first, found + (end - first), found)
        return found

    def _ordered(self, positions: Ints) -> Ints:
        starts, all_devices = self._starts, max(end for _, end in (*self.order, *self.left_out))
        firsts = np.array([*(first for first, _ in self.order), all_devices], dtype=np.int64)
        at = np.searchsorted(starts, positions, side="right") - 1
        found: Ints = firsts[at] + positions - starts[at]
        return found

    @property
    def _starts(self) -> Ints:
        """Positions with which the ranges of the order begin, and that behind all of them."""
        return np.array([0, *accumulate(end - first for first, end in self.order)], dtype=np.int64)

    def position(self, device: int) -> int:
        """Return where a device is; of one that is left out, where the next one is."""
        return int(self.positions(np.array(device, dtype=np.int64)))

    def positions(self, devices: Ints) -> Ints:
        """Return where some devices are."""
        found = devices
        for first, end in self.left_out:
            found = found - (np.clip(devices, first, end) - first)
        for start, (first, end) in zip(self._starts.tolist(), self.order, strict=False):
            found = np.where((devices >= first) & (devices < end), start + devices - first, found)
        return found


def _joined(firsts: Ints, cell: int) -> Ranges:
    """Return the ranges that cells make, of which neighbours follow each other."""
    if not len(firsts):
        return ()
    apart = np.flatnonzero(np.diff(firsts) != cell) + 1
    ends = np.concatenate([apart, [len(firsts)]]) - 1
    begins = firsts[np.concatenate([[0], apart])]
    return tuple(zip(begins.tolist(), (firsts[ends] + cell).tolist(), strict=True))


EVERY = Line()
"""The line of all devices."""
