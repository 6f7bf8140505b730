"""Where stages with widths of their own may stand under the objective `sum`, and in which order (C8, C9, C10).

A *spot* is where a stage stands, of which form, and how the transfer from the stage before it takes in each replica:
all that the stages behind can see of those before. What a stage takes follows from its spot and the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.presets import Arrangement
from nest.tables import UnevenTables
from nest.tables.grouped import NO_BOUNDARY
from nest.tables.shares import Holders
from nest.uneven import next_start
from nest.units import Ints

Entry: TypeAlias = tuple[int, ...]
"""How a transfer takes in each replica that counts: numbers of columns of `Transfers`."""


class Layout(NamedTuple):
    """How many replicas there are, and where.

    Attributes
    ----------
    apart
        Size of the groups with which all stages begin (stage-major), or devices from one replica to the next.
    room
        Devices that the stages may use: of all replicas (stage-major), or of one.
    """

    replicas: int
    arrangement: Arrangement
    apart: int
    room: int

    @property
    def by_stage(self) -> bool:
        """Whether the replicas of a stage are neighbours."""
        return self.arrangement == "stage-major"

    @property
    def each(self) -> int:
        """Devices that the stages of one replica may use together."""
        return self.room // self.replicas if self.by_stage else self.room

    def stride(self, width: int) -> int:
        """Return how far apart the replicas of a stage of some width are."""
        return width if self.by_stage else self.apart

    def end(self, start: int, width: int) -> int:
        """Return the first device behind a stage, where its replicas are neighbours behind all of them."""
        return start + width * (self.replicas if self.by_stage else 1)

    def fits(self, start: int, width: int) -> bool:
        """Whether a stage may stand there: within the room, and in every replica at a multiple of its width."""
        return (self.by_stage or self.apart % width == 0) and self.end(start, width) <= self.room

    def around(self, start: int, width: int) -> tuple[int, int]:
        """Return how many devices of a replica the stages before a stage may have at most, and those behind it."""
        share = self.replicas if self.by_stage else 1
        return start // share, (self.room - self.end(start, width)) // share

    def used(self, end: int) -> int:
        """Return how many devices a plan takes whose last stage ends there in replica 0, or in all of them."""
        return end if self.by_stage else end + (self.replicas - 1) * self.apart


class Spot(NamedTuple):
    """Where a stage may stand: number of its form, first device in replica 0, and the transfer into it."""

    form: int
    start: int
    entry: Entry


class Step(NamedTuple):
    """A spot that may follow, by its number, and what both transfers of the stage before it take: of `Transfers`."""

    to: int
    pairs: int


class Frame(NamedTuple):
    """What all stages know of the ends of their pipeline, where layers hold copies of a table; else there is one.

    Attributes
    ----------
    firsts, lasts
        Spots of the first stage and of the last, by their numbers.
    levels
        Which join the first to the last.
    """

    firsts: tuple[int, ...]
    lasts: frozenset[int]
    levels: tuple[int, ...]


class Transfers:
    """Different transfers by cut, and different sets of pairs of them: into a stage, and out of it."""

    def __init__(self, tables: UnevenTables) -> None:
        self.tables = tables
        self._numbers: dict[bytes, int] = {}
        self._columns: list[Ints] = []
        self._pairs: dict[frozenset[tuple[int, int]], int] = {}
        self._known: list[frozenset[tuple[int, int]]] = []
        self.none = self.number(0, 0, NO_BOUNDARY)

    def number(self, before: int, after: int, level: int) -> int:
        """Return the number of the transfer between stages of two forms over a level."""
        column = self.tables.hops(before, after, level)
        found = self._numbers.setdefault(column.tobytes(), len(self._columns))
        if found == len(self._columns):
            self._columns.append(column)
        return found

    def pairs(self, entry: Entry, out: Entry) -> int:
        """Return the number of what a stage has on both sides, in all replicas."""
        seen = frozenset(zip(entry, out, strict=True))
        found = self._pairs.setdefault(seen, len(self._known))
        if found == len(self._known):
            self._known.append(seen)
        return found

    def ticks(self, pairs: int, first: Ints, end: Ints) -> Ints:
        """Return the ticks of both transfers of stages between two cuts, in the slowest replica."""
        found = [self._columns[into][first] + self._columns[out][end] for into, out in self._known[pairs]]
        most: Ints = np.maximum.reduce(found)
        return most


class Spots:
    """The spots of one layout, and the steps between them.

    Parameters
    ----------
    tables
        Of the forms.
    most
        Stages at most.

    Attributes
    ----------
    spots
        Those of a first stage come first.
    steps
        What may follow each.
    closing
        Of each, the `Transfers.pairs` of a stage that is the last.
    """

    def __init__(self, tables: UnevenTables, layout: Layout, most: int) -> None:
        self.tables, self.layout, self.transfers = tables, layout, Transfers(tables)
        self.cluster, self.widths = tables.problem.cluster, tables.widths
        self._counted = layout.replicas if tables.problem.preset.all_replicas else 1
        self._none = (self.transfers.none,) * self._counted
        self._behind: dict[tuple[int, int], tuple[Spot, ...]] = {}
        self.spots, self.steps = self._explored(most)
        self.closing = [self.transfers.pairs(spot.entry, self._none) for spot in self.spots]

    @property
    def firsts(self) -> tuple[int, ...]:
        """Numbers of the spots of a first stage."""
        return tuple(at for at, spot in enumerate(self.spots) if spot.start == 0)

    def holders(self, at: int) -> Holders:
        """Return where the replicas of a stage at a spot are."""
        spot = self.spots[at]
        stride = self.layout.stride(self.widths[spot.form])
        return Holders(spot.start % self.cluster.period, stride, self.layout.replicas)

    def used(self, at: int) -> int:
        """Return how many devices a plan takes whose last stage is at a spot."""
        spot = self.spots[at]
        return self.layout.used(self.layout.end(spot.start, self.widths[spot.form]))

    def reached(self, stages: int) -> frozenset[int]:
        """Return at which spots the last of so many stages may be."""
        found = frozenset(self.firsts)
        for _ in range(stages - 1):
            found = frozenset(step.to for at in found for step in self.steps[at])
        return found

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        """Return the frames: one, or one for each first stage and all levels that join it to the last."""
        if not self.tables.tied:
            return (Frame(self.firsts, frozenset(range(len(self.spots))), ()),)
        return tuple(frame for first in self.firsts for frame in self._frames(first))

    def _frames(self, first: int) -> Iterator[Frame]:
        found: dict[tuple[int, ...], set[int]] = {}
        for last in range(len(self.spots)):
            levels = self.cluster.spans(self._starts(self.spots[first]), self._starts(self.spots[last])).tolist()
            found.setdefault(tuple(sorted(set(levels))), set()).add(last)
        yield from (Frame((first,), frozenset(lasts), levels) for levels, lasts in found.items())

    def _starts(self, spot: Spot) -> Ints:
        """Return the first device of a stage in every replica that counts."""
        return spot.start + self.layout.stride(self.widths[spot.form]) * np.arange(self._counted, dtype=np.int64)

    def _explored(self, most: int) -> tuple[list[Spot], list[list[Step]]]:
        """Return the spots that are reached, the nearer ones first, with the steps between them."""
        found = {Spot(form, 0, self._none): 1 for form, width in enumerate(self.widths) if self.layout.fits(0, width)}
        todo = list(found)
        for spot in todo:
            for after in self._followers(spot) if found[spot] < most else ():
                if after not in found:
                    found[after] = found[spot] + 1
                    todo.append(after)
        numbers = {spot: at for at, spot in enumerate(todo)}
        return todo, [list(self._steps(spot, numbers)) for spot in todo]

    def _steps(self, spot: Spot, numbers: dict[Spot, int]) -> Iterator[Step]:
        for after in self._followers(spot):
            if after in numbers:
                yield Step(numbers[after], self.transfers.pairs(spot.entry, after.entry))

    def _followers(self, spot: Spot) -> tuple[Spot, ...]:
        """Return the spots of the next stage, which do not depend on how one came there."""
        key = spot.form, spot.start
        if key not in self._behind:
            self._behind[key] = tuple(self._found_behind(spot))
        return self._behind[key]

    def _found_behind(self, spot: Spot) -> Iterator[Spot]:
        end = self.layout.end(spot.start, self.widths[spot.form])
        for form, width in enumerate(self.widths):
            start = next_start(end, width, self.layout.apart if self.layout.by_stage else 1)
            if self.layout.fits(start, width):
                levels = self.cluster.spans(self._starts(spot), self._starts(Spot(form, start, ()))).tolist()
                yield Spot(form, start, tuple(self.transfers.number(spot.form, form, level) for level in levels))
