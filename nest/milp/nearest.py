"""Consequences of the rules, for speed: what no load within a cap leaves room for.

A stage at the nearest levels that it can see at all takes no more than at its true place, and then nothing depends on
the place. So the fewest blocks for the layers from some layer on, within a cap on the loads, follow one position from
the next; what needs more blocks than a replica has is in no plan within the cap. Everything here comes from the tables
alone, and loses no plan below the objective that it is asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import log

import numpy as np

from nest.milp.fits import Bools, Fits
from nest.milp.outer import rounds_of
from nest.units import HARD_LIMIT, Ints

FAR = 2**40
"""More blocks than any cluster has."""

STEP = 1.001
"""Ratio of two caps that follow each other among those that are tried."""


@dataclass(slots=True)
class Room:
    """What is left of a variant's index sets below an objective.

    Attributes
    ----------
    strides
        Fewest and most blocks of a replica, by number of stages and of replicas.
    kept
        Ways to shard the stages, by position, as `Fits.at` has them.
    starts, ends
        Least block at which a stage starts, and most before which it ends, by position.
    """

    strides: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    kept: dict[int, Bools] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


class Nearest:
    """Least loads of one variant's stages at the nearest levels, and the blocks that plans need at least.

    Parameters
    ----------
    fits
        Of the variant.
    counts
        Numbers of replicas by number of stages.
    """

    def __init__(self, fits: Fits, counts: Mapping[int, list[int]]) -> None:
        self.fits, self.band, self.tables, self.counts = fits, fits.band, fits.band.tables, counts
        self.problem = fits.problem
        self.blocks = self.tables.devices // self.tables.width
        self.deepest = max(counts, default=0)
        self._behind: dict[int, list[Ints]] = {}
        self._before: dict[tuple[int, int], list[Ints]] = {}

    @cached_property
    def loads(self) -> Ints:
        """Ticks of every stage under every way to shard it, at the nearest levels.

        A block spans a level that has room for it. A boundary spans one with room for both blocks, or, where it lies
        between first devices, for the lower block and one device more.
        """
        return np.array([self._load(zero, degree) for zero, degree in self.fits.shardings])

    def _load(self, zero: int, degree: int) -> Ints:
        own, width = degree * self.tables.width, self.tables.width
        beside = min(each for _, each in self.fits.shardings) * width
        first = self.problem.preset.boundary == "first"
        entry, out = (own + 1, beside + 1) if first else (own + beside, own + beside)
        load: Ints = np.minimum.reduce([self.band.forward(level) for level in self._levels(entry)])
        load = load + np.minimum.reduce([self.band.backward(level) for level in self._levels(out)])
        if zero >= 2:
            load += (zero - 1) * np.minimum.reduce([self.band.shard_ring(each, degree) for each in self._levels(own)])
        return load

    def _levels(self, room: int) -> range:
        """Return the levels whose groups have room for so many devices; the top one at least."""
        sizes = self.problem.cluster.group_sizes
        return range(sum(size < room for size in sizes[:-1]), len(sizes))

    @cached_property
    def _degrees(self) -> Ints:
        return np.array([degree for _, degree in self.fits.shardings])[:, None, None]

    def _blocks(self, position: int, load: int) -> Ints:
        """Return the blocks of each stage at a position under every way to shard it, `FAR` where it takes too long."""
        blocks: Ints = np.where(self.fits.at(position) & (self.loads <= load), self._degrees, FAR)
        return blocks

    def behind(self, load: int) -> list[Ints]:
        """Return the fewest blocks of the layers from each one on, in 0, 1, ... stages within a load."""
        if load not in self._behind:
            layers, depth = self.tables.layers, self.band.depth
            row = np.full(layers + 1 + depth, FAR)
            row[layers] = 0
            rows = [row]
            for position in range(1, self.deepest + 1):
                after = np.lib.stride_tricks.sliding_window_view(rows[-1][1:], depth)[:layers]
                row = np.full(layers + 1 + depth, FAR)
                row[:layers] = np.minimum((self._blocks(position, load).min(axis=0) + after).min(axis=1), FAR)
                rows.append(row)
            self._behind[load] = rows
        return self._behind[load]

    def before(self, stages: int, load: int) -> list[Ints]:
        """Return the fewest blocks of the layers before each one, in the stages above 0, 1, ... within a load."""
        if (stages, load) not in self._before:
            layers, depth = self.tables.layers, self.band.depth
            row = np.full(layers + 1, FAR)
            row[0] = 0
            rows = [row]
            for position in range(stages, 0, -1):
                taken = self._blocks(position, load).min(axis=0) + rows[-1][:layers, None]
                row = np.full(layers + 1 + depth, FAR)
                np.minimum.at(row, self.band.end, np.minimum(taken, FAR))
                rows.append(row[: layers + 1])
            self._before[stages, load] = rows[::-1]
        return self._before[stages, load]

    def everything(self) -> Room:
        """Return room for all plans, also for those that cannot be."""
        room = Room()
        for stages, found in self.counts.items():
            for replicas in found:
                room.strides[stages, replicas] = stages * int(self._degrees.min()), self.blocks // replicas
        room.kept = {position: np.ones((1, 1, 1), dtype=bool) for position in range(1, self.deepest + 1)}
        return room

    def room(self, below: int) -> Room:
        """Return what plans with a smaller objective may consist of."""
        room = Room()
        for stages, found in self.counts.items():
            for replicas in found:
                rounds, sync = rounds_of(self.problem, stages, replicas), self.least_sync(stages, replicas)
                if self.least_load(stages, replicas) * rounds + sync < below:
                    cap = bisect_left(self.caps, (below - 1 - sync) // rounds)
                    self._extend(room, stages, replicas, self.caps[min(cap, len(self.caps) - 1)])
        return room

    def _extend(self, room: Room, stages: int, replicas: int, load: int) -> None:
        """Add what the plans with so many stages and replicas may consist of, within a load."""
        budget = self.blocks // replicas
        behind, before = self.behind(load), self.before(stages, load)
        if behind[stages][0] > budget:
            return
        room.strides[stages, replicas] = int(behind[stages][0]), budget
        layers, end = self.tables.layers, np.minimum(self.band.end, self.tables.layers)
        for position in range(1, stages + 1):
            needed = self._blocks(position, load) + behind[position - 1][end] + before[position][:layers, None]
            kept = needed <= budget
            room.kept[position] = room.kept.get(position, False) | kept
            used = kept.any(axis=0)
            start = int(behind[position - 1][end][used].min(initial=FAR))
            last = budget - int(before[position][:layers][used.any(axis=1)].min(initial=FAR))
            room.starts[position] = min(room.starts.get(position, FAR), start)
            room.ends[position] = max(room.ends.get(position, 0), last)

    def least_sync(self, stages: int, replicas: int) -> int:
        """Return what synchronisation (D6) takes at least: that of the least bytes that can be waited for."""
        parameters, preset = self.tables.parameters, self.problem.preset
        if not preset.sync_all_stages:
            weight = int(parameters[0])
        elif preset.sync_sharded and 3 in self.problem.choices.zero:
            weight = int(parameters.sum()) // (self.blocks // replicas)
        else:
            weight = max(int(parameters.max()), int(parameters.sum()) // stages)
        height = self.tables.height(replicas, stages * int(self._degrees.min()) * self.tables.width)
        return int(self.tables.syncs(np.array([weight]), replicas, height)[0])

    def least_load(self, stages: int, replicas: int) -> int:
        """Return what the largest load of a plan is at least; more than any objective where there is no plan.

        The least cap, of those that are tried, within which a plan has room.
        """
        budget = self.blocks // replicas
        cap = bisect_left(self.caps, 1, key=lambda load: self.behind(load)[stages][0] <= budget)
        if cap == len(self.caps):
            return HARD_LIMIT
        return self.caps[cap - 1] + 1 if cap else 0

    @cached_property
    def caps(self) -> list[int]:
        """Caps on the load to try, ascending; all stages keep to the last one."""
        most, least = int(self.loads.max(initial=0)), max(int((self.tables.forward + self.tables.backward).max()), 1)
        count = int(log(max(most / least, 1)) / log(STEP))
        return sorted({least - 1, *(int(least * STEP**at) for at in range(count + 1)), most})
