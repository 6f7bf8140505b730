"""The outer choices of a variant, and the arguments that rule most of them out without closing any states."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from nest.problem import Allowed
from nest.tables import Band, VariantTables
from nest.units import Ints

FAR = 2**40
"""More blocks than any cluster has."""


class TimeUp(Exception):
    """The deadline has passed."""


class OuterChoices:
    """The outer choices of a variant, and what rules them out for a value."""

    def __init__(self, tables: VariantTables, value: int, deadline: float | None) -> None:
        self.tables, self.value, self.deadline, self.problem = tables, value, deadline, tables.problem
        self.blocks = self.problem.cluster.devices // tables.width
        unsharded = (1,) if 0 in self.problem.choices.zero else ()
        self.degrees = unsharded + self.problem.zero_degrees(tables.width)
        self._bands: dict[int, Band] = {}

    def watch(self) -> None:
        """Raise `TimeUp` after the deadline."""
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            raise TimeUp

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Yield each number of stages (C5) with the numbers of replicas (C4) for which there are devices (C10)."""
        choices, microbatches = self.problem.choices, self.problem.training.microbatches
        for stages in _allowed(choices.stages, self.tables.layers if self.degrees else 0):
            replicas = _allowed(choices.replicas, min(microbatches, self.blocks // (stages * self.degrees[0])))
            if replicas:
                yield stages, replicas

    def rounds(self, stages: int, replicas: int) -> int:
        """How often the largest load counts (D7)."""
        return -(-self.problem.training.microbatches // replicas) + stages - 1

    def fewest_replicas(self, stages: int, replicas: list[int]) -> list[int]:
        """Return the fewest replicas for each number of rounds; the others rule themselves out.

        They use more devices, see more levels, and synchronise over more.
        """
        return list({self.rounds(stages, count): count for count in reversed(replicas)}.values())

    def loads_left(self, stages: int, replicas: list[int]) -> dict[int, int]:
        """Return the largest load that the value leaves, by the numbers of replicas that the mean does not rule out."""
        least, left = self._least_load(stages), dict[int, int]()
        for count in replicas:
            rounds = self.rounds(stages, count)
            if least * rounds < self.value:
                load = (self.value - 1 - self._least_sync(stages, count)) // rounds
                left |= {count: load} if least <= load else {}
        return left

    def _least_load(self, stages: int) -> int:
        """Return what the largest load is at least.

        ``S`` stages of load at most ``T`` run every layer; all but the last repeat what recomputation repeats, and
        what the last one spares is at most ``T`` again.
        """
        once, twice = self.tables.forward + self.tables.backward, self.tables.repeated.sum()
        mean, spared = -(-int(once.sum()) // stages), -(-int(once.sum() + twice) // (stages + 1))
        return max(int(once.max()), mean, spared)

    def _least_sync(self, stages: int, replicas: int) -> int:
        """Return the synchronisation (D6) of the least parameters that the stage waited for can hold on a device."""
        parameters, preset = self.tables.parameters, self.problem.preset
        if not preset.sync_all_stages:
            weight = int(parameters[0])
        elif preset.sync_sharded and 3 in self.problem.choices.zero:
            weight = int(parameters.sum()) // (self.blocks // replicas)
        else:
            weight = max(int(parameters.max()), int(parameters.sum()) // stages)
        height = self.tables.height(replicas, stages * self.tables.width)
        return int(self.tables.syncs(np.array([weight]), replicas, height)[0])

    def band(self, load: int) -> Band:
        """Return tables of the stages that a load leaves any room for."""
        depth = max(1, self.tables.deepest_within(load))
        if depth not in self._bands:
            self._bands[depth] = Band(self.tables, depth)
        return self._bands[depth]

    def types(self, degree: int) -> tuple[int, ...]:
        """ZeRO types that go with a degree, C7."""
        return (0,) if degree == 1 else tuple(sorted(self.problem.choices.zero - {0}))

    def fewest_blocks(self, stages: int, load: int) -> int:
        """Return the fewest blocks of a replica within a load if every stage sees the nearest levels that it can.

        What is placed before a stage then does not depend on where that lies, so that of two ways to place the stages
        behind it the one with fewer blocks will do.
        """
        band, layers = self.band(load), self.tables.layers
        if stages * band.depth < layers:
            return FAR
        limits = [(degree, self._nearest(band, degree, load)) for degree in reversed(self.degrees)]
        blocks = np.full(layers + 1 + band.depth, FAR)
        blocks[layers] = 0
        for position in range(1, stages + 1):
            self.watch()
            taken = np.full((layers, band.depth), FAR)
            for degree, limit in limits:
                taken[limit >= position] = degree
            behind = np.lib.stride_tricks.sliding_window_view(blocks[1:], band.depth)[:layers]
            blocks[:layers] = (taken + behind).min(axis=1)
            blocks[layers:] = FAR
        return int(blocks[0])

    def _nearest(self, band: Band, degree: int, load: int) -> Ints:
        """Most microbatches in flight with which a stage fits its memory (C11), 0 where its least load is too much.

        A block spans a level that has room for it. A boundary spans one with room for both blocks, or, where it lies
        between first devices, for the lower block and one device more.
        """
        own, least = degree * self.tables.width, self.degrees[0] * self.tables.width
        entry, out = (own + 1, least + 1) if self.problem.preset.boundary == "first" else (own + least, own + least)
        walks = np.minimum.reduce([band.forward(level) for level in self._levels_from(entry)])
        walks = walks + np.minimum.reduce([band.backward(level) for level in self._levels_from(out)])
        rings = np.zeros_like(walks)
        if degree > 1:
            rings = np.minimum.reduce([band.shard_ring(level, degree) for level in self._levels_from(own)])
        limit: Ints = np.zeros_like(walks)
        for zero in self.types(degree):
            within = walks + max(zero - 1, 0) * rings <= load
            np.maximum(limit, np.where(within, band.most_in_flight(zero, degree), 0), out=limit)
        return limit

    def _levels_from(self, room: int) -> range:
        """Return the levels whose groups have room for so many devices; the top one at least."""
        sizes = self.problem.cluster.group_sizes
        return range(sum(size < room for size in sizes[:-1]), len(sizes))


def _allowed(choice: Allowed, most: int) -> list[int]:
    values = range(1, most + 1)
    return list(values) if choice is None else [value for value in values if value in choice]
