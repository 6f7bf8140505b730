"""The line on which a plan places its blocks: all devices, or all but some ranges that it leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nest.units import Ints


class Line(NamedTuple):
    """Devices in their order, without those left out; *positions* count the others from 0 on.

    Parameters
    ----------
    left_out
        Ranges ``[first, end)`` of devices, ascending, with some between them.
    """

    left_out: tuple[tuple[int, int], ...] = ()

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

    def length(self, devices: int) -> int:
        """Return how many of so many devices it has."""
        return devices - sum(end - first for first, end in self.left_out)

    def devices(self, positions: Ints) -> Ints:
        """Return which devices are at some positions; beyond the last range all positions are taken to have one."""
        found = positions
        for first, end in self.left_out:
            found = np.where(found >= first, found + (end - first), found)
        return found

    def position(self, device: int) -> int:
        """Return where a device is; of one that is left out, where the next one is."""
        return device - sum(max(0, min(end, device) - first) for first, end in self.left_out)

    def positions(self, devices: Ints) -> Ints:
        """Return where some devices are."""
        found = devices
        for first, end in self.left_out:
            found = found - (np.clip(devices, first, end) - first)
        return found


EVERY = Line()
"""The line of all devices."""
