"""What single stages take: at the levels that they see in their place, and at the nearest that they see anywhere."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np

from nest.tables import Band
from nest.units import Ints, distinct

Sharding: TypeAlias = tuple[int, int]
"""Type of ZeRO and degree, C7."""


class Stages:
    """Stages of one variant, by first layer and column of the band, in every way to shard."""

    def __init__(self, band: Band, degrees: tuple[int, ...], blocks: int) -> None:
        self.band, self.degrees, self.blocks, self.problem = band, degrees, blocks, band.tables.problem
        self.width, self.base = band.tables.width, self.problem.levels
        sharded = sorted(self.problem.choices.zero - {0})
        self.ways = {degree: [(zero, degree) for zero in ([0] if degree == 1 else sharded)] for degree in degrees}
        self._rings: dict[tuple[int, int], Ints] = {}

    def codes(self, degree: int, offset: int, blocks: int) -> Ints:
        """Return the levels that a stage sees (C9) as one number: of its entry boundary, exit boundary and block.

        By numbers of the neighbours below and above, from 1 on in the order of degrees, 0 for none, and by place in a
        replica that starts at an offset. Nothing crosses to no neighbour: the top level stands for it. What is said of
        a neighbour below for which there is no room means nothing.
        """
        span, beside = self.problem.cluster.spans, np.array([0, *self.degrees])[:, None] * self.width
        starts = offset + np.arange(blocks) * self.width
        ends, first, top = starts + degree * self.width, self.problem.preset.boundary == "first", self.base - 1
        out = np.where(beside > 0, span(np.maximum(starts - beside, 0), starts if first else ends - 1), top)
        entry = np.where(beside > 0, span(starts, ends + (0 if first else beside - 1)), top)
        codes: Ints = (entry * self.base + out[:, None]) * self.base + span(starts, ends - 1)
        return codes

    def load(self, way: Sharding, code: int) -> Ints:
        """Ticks of the load (D5) at the levels of a code."""
        zero, degree = way
        walks = self.band.forward(code // self.base**2) + self.band.backward(code // self.base % self.base)
        if zero < 2:
            return walks
        ring = (code % self.base, degree)
        if ring not in self._rings:
            self._rings[ring] = self.band.shard_ring(*ring)
        return walks + (zero - 1) * self._rings[ring]

    @cached_property
    def nearest(self) -> dict[Sharding, Ints]:
        """Ticks of the load of every stage where it is least, of all places in replica 0 and all neighbours."""
        loads: dict[Sharding, Ints] = {}
        for degree, ways in self.ways.items():
            codes = self.codes(degree, 0, self.blocks)
            seen = [codes[number, :, below:].ravel() for number, below in enumerate((0, *self.degrees))]
            near = distinct(np.concatenate(seen)).tolist()
            loads |= {way: np.minimum.reduce([self.load(way, code) for code in near]) for way in ways}
        return loads
