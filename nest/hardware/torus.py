"""Tori and meshes as levels: boxes that grow along every axis, each nesting in the next.

The line of devices follows the boxes (a space-filling order): the coordinate of a device along an axis is written in
mixed radix, one digit for each round of growth, and the digits of the same round of all axes stand together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

import numpy as np

from nest.cluster import Level
from nest.errors import InvalidProblem
from nest.units import Ints

MOST_AXES = 6


@dataclass(frozen=True)
class Torus:
    """Devices at the points of a grid, each linked to its neighbours along every axis.

    Parameters
    ----------
    shape
        Extent of each axis.
    wrap
        For each axis, whether its last devices are linked to its first. Axes of two or fewer never are: the link is
        there already.
    link_bytes_per_s
        Bandwidth of a link in one direction.
    hop_s
        Latency of a message across one link.

    Raises
    ------
    InvalidProblem
        If shape and wrap do not match, or a figure is out of range.
    """

    shape: tuple[int, ...]
    wrap: tuple[bool, ...]
    link_bytes_per_s: float
    hop_s: float

    def __post_init__(self) -> None:
        extents = "x".join(map(str, self.shape))
        if not 1 <= len(self.shape) <= MOST_AXES or min(self.shape) < 1:
            raise InvalidProblem("torus", f"shape {extents!r}", f"give 1 to {MOST_AXES} axes, as 4x4x8")
        if len(self.wrap) != len(self.shape):
            raise InvalidProblem(
                "torus", f"{len(self.wrap)} wraps for {extents}", "say for each axis whether it closes"
            )
        if not (self.link_bytes_per_s > 0 and self.hop_s >= 0):
            raise InvalidProblem("torus", "a link without bandwidth", "give bytes/s above 0 and seconds from 0")

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return prod(self.shape)

    @property
    def rings(self) -> tuple[bool, ...]:
        """For each axis, whether it closes to a ring."""
        return tuple(wrap and extent > 2 for wrap, extent in zip(self.wrap, self.shape, strict=True))

    def boxes(self) -> tuple[tuple[int, ...], ...]:
        """Return the extents of the nested boxes, smallest first; the last is the whole torus.

        In each round every axis grows by its next prime factor, until it is complete.
        """
        factors = [_primes(extent) for extent in self.shape]
        rounds = max(map(len, factors))
        return tuple(tuple(prod(axis[: turn + 1]) for axis in factors) for turn in range(rounds)) or (self.shape,)

    def hops(self, box: tuple[int, ...]) -> int:
        """Return the links on the longest of the shortest paths between two devices of a box."""
        pairs = zip(box, self.shape, self.rings, strict=True)
        return sum(min(extent - 1, whole // 2) if ring else extent - 1 for extent, whole, ring in pairs)

    def share(self, inner: tuple[int, ...], outer: tuple[int, ...]) -> float:
        """Return the links for each device of an inner box, when all send to the rest of the outer box at once.

        Of the links that leave the inner box, those count that stay within the outer one, for the inner box that
        has the fewest of them (at a corner).
        """
        total = 0.0
        for low, high, whole, ring in zip(inner, outer, self.shape, self.rings, strict=True):
            if low < high:
                total += (2 if ring and high == whole else 1) / low
        return total

    def levels(self, *, shared: bool = True) -> tuple[Level, ...]:
        """Return one level for each box: the worst pair in it, and no more than its devices can send at once.

        Parameters
        ----------
        shared
            Whether devices that send at the same time share the links between the boxes; if not, each transfer is
            alone on the network.
        """
        inner, size = (1,) * len(self.shape), 1
        levels = []
        for box in self.boxes():
            share = min(1.0, self.share(inner, box)) if shared and prod(box) > size else 1.0
            name = "x".join(map(str, box))
            fanout = prod(box) // size
            levels.append(Level(fanout, self.link_bytes_per_s * share, self.hops(box) * self.hop_s, name))
            inner, size = box, prod(box)
        return tuple(levels)

    def order(self) -> Ints:
        """Return the coordinates of the device at each place on the line, one row a device."""
        coordinates = np.zeros((1, len(self.shape)), dtype=np.int64)
        inner = (1,) * len(self.shape)
        for box in self.boxes():
            steps = [np.arange(high // low) * low for low, high in zip(inner, box, strict=True)]
            offsets = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(self.shape))
            coordinates = (offsets[:, None, :] + coordinates[None, :, :]).reshape(-1, len(self.shape))
            inner = box
        return coordinates

    def hop_counts(self, box: tuple[int, ...]) -> Ints:
        """Return how many ordered pairs of devices that share a box lie 0, 1, 2 .. hops apart."""
        counts = np.ones(1, dtype=np.int64)
        for extent, whole, ring in zip(box, self.shape, self.rings, strict=True):
            place = np.arange(whole)
            apart = np.abs(place[:, None] - place[None, :])
            apart = np.minimum(apart, whole - apart) if ring else apart
            together = place[:, None] // extent == place[None, :] // extent
            counts = np.convolve(counts, np.bincount(apart[together], minlength=1))
        return counts


def parse_shape(text: str, where: str = "shape") -> tuple[int, ...]:
    """Return the extents of a shape such as ``4x4x8``.

    Raises
    ------
    InvalidProblem
        If it is no shape.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,6}([xX*][1-9][0-9]{0,6}){0,5}", text.strip(), re.ASCII):
        raise InvalidProblem(where, f"{text!r} is no shape", "give extents joined by x, as in 4x4x8")
    return tuple(int(part) for part in re.split(r"[xX*]", text.strip()))


def _primes(number: int) -> list[int]:
    """Return the prime factors, ascending."""
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1 if divisor * divisor <= number else max(number - divisor, 1)
    return factors
