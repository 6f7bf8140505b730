"""Every stage of a band under every way to shard it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nest.dp.layout import Triple
from nest.tables import Band
from nest.units import Ints


class ShardedStages:
    """Loads, memory limits and synchronised shares of the stages of a band, by ZeRO type and degree.

    Parameters
    ----------
    band
        Tables of the stages.

    Attributes
    ----------
    degrees
        Blocks that a stage may take, ascending; 1 is no sharding.
    shardings
        Pairs of degree and ZeRO type that a stage may use.
    """

    def __init__(self, band: Band) -> None:
        self.band, self.tables = band, band.tables
        self.problem = band.tables.problem
        free = (1,) if 0 in self.problem.choices.zero else ()
        self.degrees = free + self.problem.zero_degrees(self.tables.width)
        self.shardings = [(degree, zero) for degree in self.degrees for zero in self.types(degree)]
        self._loads: dict[tuple[int, int, tuple[Triple, ...]], Ints] = {}
        self._cheapest: dict[tuple[int, int], Ints] = {}

    def types(self, degree: int) -> tuple[int, ...]:
        """ZeRO types that a stage of ``degree`` blocks may use, the fastest first."""
        allowed = self.problem.choices.zero
        return (0,) if degree == 1 else tuple(sorted(allowed - {0}))

    def load(self, degree: int, zero: int, triples: tuple[Triple, ...]) -> Ints:
        """Load of every stage in the slowest of the replicas that see the given levels."""
        key = (degree, max(zero, 1), triples)
        if key not in self._loads:
            self._loads[key] = most([self._load(degree, zero, triple) for triple in triples])
        return self._loads[key]

    def _load(self, degree: int, zero: int, triple: Triple) -> Ints:
        entry, out, block = triple
        load = self.band.forward(entry) + self.band.backward(out)
        return load + self._collectives(zero, degree, (block,)) if zero >= 2 else load

    def _collectives(self, zero: int, degree: int, levels: tuple[int, ...]) -> Ints:
        """Ticks of the collectives of each microbatch: none, a reduce-scatter (type 2), an all-gather too (type 3)."""
        return least([self.band.shard_ring(level, degree) for level in levels]) * (zero - 1)

    @cached_property
    def forward(self) -> Ints:
        """Forward walk of every stage behind its cheapest boundary."""
        return least([self.band.forward(level) for level in range(self.problem.levels)])

    @cached_property
    def backward(self) -> Ints:
        """Backward walk of every stage before its cheapest boundary."""
        return least([self.band.backward(level) for level in range(self.problem.levels)])

    def cheapest(self, degree: int, zero: int) -> Ints:
        """Load of every stage at the cheapest levels."""
        key = (degree, max(zero, 1))
        if key not in self._cheapest:
            load = self.forward + self.backward
            if zero >= 2:
                load = load + self._collectives(zero, degree, tuple(range(self.problem.levels)))
            self._cheapest[key] = load
        return self._cheapest[key]

    def ranks(self, degree: int, zero: int) -> int:
        """Over how many ranks the synchronised parameters of a stage are divided."""
        return degree if zero == 3 and self.problem.preset.sync_sharded else 1

    def syncs(self, degree: int, zero: int, replicas: int, height: int) -> Ints:
        """Ticks of the gradient synchronisation of every stage."""
        return self.tables.syncs(self.band.parameters, replicas, height, self.ranks(degree, zero))


def least(tables: list[Ints]) -> Ints:
    """Return the least of several tables, entry by entry."""
    entries: Ints = np.minimum.reduce(tables)
    return entries


def most(tables: list[Ints]) -> Ints:
    """Return the largest of several tables, entry by entry."""
    entries: Ints = np.maximum.reduce(tables)
    return entries
