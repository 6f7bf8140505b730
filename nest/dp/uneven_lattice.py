"""Where stages of unequal width may stand under one outer choice, and what each sees of the network there.

A *spot* is where a stage stands, of which form, and how its transfers from the stage before it take in each replica.
From a spot lead *steps*, to a spot of the stage behind or to the end of the pipeline. What a stage takes depends on the
spot and on the step; and from one spot on it plays no part how one came there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.presets import Arrangement
from nest.tables import UnevenTables
from nest.tables.grouped import NO_BOUNDARY
from nest.tables.shares import Holders
from nest.uneven import next_start
from nest.units import Ints

Crossing: TypeAlias = tuple[int, ...]
"""How a transfer takes in each replica that counts: numbers of columns of `Hops`."""

Key: TypeAlias = tuple[int, int, Crossing]
"""What tells spots apart: start, form, and how the transfer from the stage before takes."""

END = -1
"""Where the step of the last stage leads."""


class Layout(NamedTuple):
    """Where replicas are.

    Parameters
    ----------
    arrangement
        Whether the replicas of a stage are neighbours, or the stages of a replica.
    apart
        Size of the groups with which all stages begin; or devices from one replica to the next.
    room
        Devices that the stages may use: of all replicas, or of one.
    """

    arrangement: Arrangement
    apart: int
    room: int

    @property
    def by_stage(self) -> bool:
        """Whether the replicas of a stage are neighbours."""
        return self.arrangement == "stage-major"


class Step(NamedTuple):
    """To which spot, or `END`, and what transfers take on both sides: a number of `Hops.pairs`."""

    to: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a stage may stand.

    Parameters
    ----------
    form
        Number of its tables in `UnevenTables.forms`.
    start
        First device in replica 0.
    holders
        Where its replicas are.
    steps
        What may follow.
    """

    form: int
    start: int
    holders: Holders
    steps: tuple[Step, ...]


class Hops:
    """Different transfers by cut, and different sets of two of them: of the stage before, and to the one behind."""

    def __init__(self, tables: UnevenTables) -> None:
        self.tables = tables
        self._columns: list[Ints] = []
        self._numbers: dict[bytes, int] = {}
        self._known: dict[tuple[int, int, int], int] = {}
        self._pairs: list[frozenset[tuple[int, int]]] = []
        self._pair_numbers: dict[frozenset[tuple[int, int]], int] = {}
        self.none = self.number(0, 0, NO_BOUNDARY)

    def number(self, before: int, after: int, level: int) -> int:
        """Return the number of a transfer between two forms over a level."""
        key = before, after, level
        if key not in self._known:
            column = self.tables.hops(*key)
            self._known[key] = self._numbers.setdefault(column.tobytes(), len(self._columns))
            if self._known[key] == len(self._columns):
                self._columns.append(column)
        return self._known[key]

    def pair(self, entry: Crossing, out: Crossing) -> int:
        """Return the number of what both transfers of a stage take, in all replicas."""
        seen = frozenset(zip(entry, out, strict=True))
        if seen not in self._pair_numbers:
            self._pair_numbers[seen] = len(self._pairs)
            self._pairs.append(seen)
        return self._pair_numbers[seen]

    def of_stages(self, pairs: int, first: Ints, end: Ints) -> Ints:
        """Return the ticks of both transfers of stages, in the slowest replica."""
        each = [self._columns[entry][first] + self._columns[out][end] for entry, out in self._pairs[pairs]]
        most: Ints = np.maximum.reduce(each)
        return most


class Lattice:
    """The spots of one outer choice, those behind another after it.

    Parameters
    ----------
    tables
        Of the forms.
    replicas, layout
        How many there are, and where.
    most
        Stages at most.

    Attributes
    ----------
    spots
        Ascending by start; the first ones, one of each form that fits, are those of a first stage.
    """

    def __init__(self, tables: UnevenTables, replicas: int, layout: Layout, most: int) -> None:
        self.tables, self.replicas, self.layout = tables, replicas, layout
        self.counted = replicas if tables.problem.preset.all_replicas else 1
        self.hops, self.cluster = Hops(tables), tables.problem.cluster
        self.forms = tuple(at for at, width in enumerate(tables.widths) if self._fits(width))
        self._behind: dict[tuple[int, int], tuple[tuple[int, int, Crossing], ...]] = {}
        self.spots = self._explored(most)

    def _fits(self, width: int) -> bool:
        """Whether stages of a width keep to it in every replica: a stride is a multiple of it."""
        return self.layout.by_stage or self.layout.apart % width == 0

    def starts(self, form: int, start: int) -> Ints:
        """Return the first device of a stage in every replica that counts."""
        return start + self.stride(form) * np.arange(self.counted, dtype=np.int64)

    def stride(self, form: int) -> int:
        """Return how far apart the replicas of a stage are."""
        return self.tables.widths[form] if self.layout.by_stage else self.layout.apart

    def _end(self, form: int, start: int) -> int:
        width = self.tables.widths[form]
        return start + (self.replicas * width if self.layout.by_stage else width)

    def _after(self, form: int, start: int) -> tuple[tuple[int, int, Crossing], ...]:
        """Return the forms and starts that a stage may be followed by, and how the transfer takes."""
        if (form, start) not in self._behind:
            self._behind[form, start] = tuple(self._followers(form, start))
        return self._behind[form, start]

    def _followers(self, form: int, start: int) -> Iterator[tuple[int, int, Crossing]]:
        here, group = self.starts(form, start), self.layout.apart if self.layout.by_stage else 1
        for other in self.forms:
            there = next_start(self._end(form, start), self.tables.widths[other], group)
            if self._end(other, there) <= self.layout.room:
                levels = self.cluster.spans(here, self.starts(other, there)).tolist()
                yield other, there, tuple(self.hops.number(form, other, level) for level in levels)

    def _explored(self, most: int) -> tuple[Spot, ...]:
        none = (self.hops.none,) * self.counted
        begin = [(0, form, none) for form in self.forms if self._end(form, 0) <= self.layout.room]
        depth = dict.fromkeys(begin, 1)
        todo = list(begin)
        for key in todo:
            if depth[key] < most:
                for form, start, crossing in self._after(key[1], key[0]):
                    if (start, form, crossing) not in depth:
                        depth[start, form, crossing] = depth[key] + 1
                        todo.append((start, form, crossing))
        numbers = {key: at for at, key in enumerate(sorted(todo, key=lambda key: key[0]))}
        return tuple(self._spot(key, numbers, none) for key in numbers)

    def _spot(
        self, key: tuple[int, int, Crossing], numbers: dict[tuple[int, int, Crossing], int], none: Crossing
    ) -> Spot:
        start, form, entry = key
        steps = [Step(END, self.hops.pair(entry, none))]
        for other, there, crossing in self._after(form, start):
            to = numbers.get((there, other, crossing))
            if to is not None:
                steps.append(Step(to, self.hops.pair(entry, crossing)))
        holders = Holders(start % self.cluster.period, self.stride(form), self.replicas)
        return Spot(form, start, holders, tuple(steps))

    def joining(self, first: int, last: int) -> tuple[int, ...]:
        """Return the levels that join the first stage of a replica, at a spot, to the last, at another."""
        starts = (self.starts(self.spots[at].form, self.spots[at].start) for at in (first, last))
        return tuple(sorted(set(self.cluster.spans(*starts).tolist())))
