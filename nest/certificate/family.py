"""Families: plans of one variant and number of replicas that are looked at together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from nest.certificate.choices import OuterChoices, Undecided
from nest.certificate.stages import Sharding
from nest.units import LONGEST, Ints, distinct


@dataclass(frozen=True, slots=True)
class Family:
    """Plans with one of these numbers of stages (ascending), one of these strides, and a synchronisation in a range.

    Attributes
    ----------
    strides
        In blocks, each with the places within the largest group below the top where replicas that count start (C9).
    height
        How many levels the starts of the replicas need to share a group (D6), after each of the strides.
    least, most
        Ticks of the synchronisation.
    known
        Places where a replica starts after each of the strides: those that are looked at so far.
    """

    stages: tuple[int, ...]
    strides: dict[int, frozenset[int]]
    height: int
    least: int
    most: int
    known: tuple[int, ...] = (0,)


class Setting:
    """A variant and a number of replicas, and what all of their plans have in common."""

    def __init__(self, choices: OuterChoices, replicas: int, counts: list[int]) -> None:
        self.choices, self.replicas, self.counts, self.problem = choices, replicas, counts, choices.problem
        self.blocks, self.width = choices.blocks // replicas, choices.tables.width
        self.stages = choices.stages_within(choices.value // choices.rounds(min(counts), replicas))
        self._syncs: dict[tuple[int, int], Ints] = {}
        self._codes: dict[tuple[int, int], Ints] = {}

    def families(self) -> Iterator[Family]:
        """Yield all plans, apart by height."""
        by_height: dict[int, dict[int, frozenset[int]]] = {}
        degrees, sizes = self.choices.degrees, (1, *self.problem.cluster.group_sizes)
        counting = np.arange(self.replicas if self.problem.preset.all_replicas else 1) * self.width
        most = min(self.blocks, max(self.counts) * degrees[-1])
        for stride in range(min(self.counts) * degrees[0], most + 1):
            height = self.choices.tables.height(self.replicas, stride * self.width)
            by_height.setdefault(height, {})[stride] = frozenset((counting * stride % sizes[-2]).tolist())
        for height, strides in by_height.items():
            least = min(self.choices.least_sync(count, self.replicas, height) for count in self.counts)
            if least < self.choices.value:
                yield Family(tuple(self.counts), strides, height, least, self.choices.value - 1)

    def load_cap(self, family: Family) -> int:
        """Return the largest load that a plan of a family below the value may have (C12, D7)."""
        left = self.choices.value - 1 - family.least
        return min(left // self.choices.rounds(family.stages[0], self.replicas), LONGEST - 1)

    def codes(self, degree: int, offset: int) -> Ints:
        """Return `Stages.codes` within a replica."""
        if (degree, offset) not in self._codes:
            self._codes[degree, offset] = self.stages.codes(degree, offset, self.blocks)
        return self._codes[degree, offset]

    def sync(self, way: Sharding, height: int) -> Ints:
        """Ticks of the synchronisation (D6) of every stage, 0 where it is not waited for."""
        divided = way[1] if way[0] == 3 and self.problem.preset.sync_sharded else 1
        if (divided, height) not in self._syncs:
            parameters = self.stages.band.parameters
            ticks = self.choices.tables.syncs(parameters, self.replicas, height, divided)
            ticks[slice(0) if self.problem.preset.sync_all_stages else slice(1, None)] = 0
            self._syncs[divided, height] = ticks
        return self._syncs[divided, height]

    def parts(self, family: Family, slow: int | None) -> Iterator[Family]:
        """Split a family of which a plan within the caps is no faster than the value.

        It is beyond the cap on loads in a replica that starts at ``slow``. Or, if that is None, the caps are for
        different plans: that on loads for the fewest stages and the least synchronisation.
        """
        few, many = family.stages[0], family.stages[-1]
        if slow is not None:
            for starting in (True, False):
                strides = {stride: places for stride, places in family.strides.items() if (slow in places) == starting}
                if strides:
                    yield replace(family, strides=strides, known=family.known + (slow,) * starting)
        elif family.most - family.least > self.load_cap(family) * (many - few):
            yield from self._by_sync(family)
        else:
            yield from self.halves(family)

    def halves(self, family: Family) -> Iterator[Family]:
        """Halve the numbers of stages of a family, or else the strides: side constraints may look at them."""
        stages, strides = np.array_split(family.stages, 2), np.array_split(list(family.strides), 2)
        if len(family.stages) > 1:
            yield from (replace(family, stages=tuple(half.tolist())) for half in stages)
        elif len(family.strides) > 1:
            for half in strides:
                yield replace(family, strides={stride: family.strides[stride] for stride in half.tolist()})
        elif self.choices.filters.coupling:
            raise Undecided
        else:
            raise AssertionError("a plan within the caps is faster, and admitted")

    def _by_sync(self, family: Family) -> Iterator[Family]:
        """Halve the list of synchronisations that stages of a family have."""
        ways = chain.from_iterable(self.stages.ways.values())
        syncs = distinct(np.concatenate([self.sync(way, family.height) for way in ways]))
        for part in np.array_split(syncs[(syncs >= family.least) & (syncs <= family.most)], 2):
            if len(part):
                yield replace(family, least=int(part[0]), most=int(part[-1]))
