"""What the stages of an outer choice send over the levels that side constraints look at (D16)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from nest.errors import OutOfScope
from nest.milp.sum_choices import SumChoice
from nest.tables import ChunkedBand, Crossing, GroupedBand, GroupedTables
from nest.tables.chunked import Again
from nest.tables.grouped import Site
from nest.tables.shares import Option
from nest.units import Ints

Marks: TypeAlias = tuple[tuple[int, int], ...]
"""By level: in how many replicas the boundary before a stage, and that between the ends of the pipeline, crosses it."""


class StageBytes:
    """Bytes of the stages of one variant, a column for each of `nest.constraints.Filters.crossed`; often there is none.

    Parameters
    ----------
    tables
        Of the variant.

    Attributes
    ----------
    most
        What all stages of a plan together may send.

    Raises
    ------
    OutOfScope
        If there are more bytes than can be counted; so does `sent`.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.tables, crossed = tables, tables.filters.crossed
        self.most = tuple(most for _, most in crossed)
        with _counting():
            self._crossings = [Crossing(tables, level) for level, _ in crossed]

    def __bool__(self) -> bool:
        return bool(self.most)

    def marks(self, choice: SumChoice) -> list[Marks]:
        """Return where an outer choice crosses the levels, by position from the first of the pipeline."""
        found = [each.boundaries(choice.stages, choice.replicas, choice.placing) for each in self._crossings]
        tied = self.tables.tied.any()
        first = [0 if choice.chunks == 1 else each.around for each in found]  # before all its chunks but one
        return [
            tuple(
                (each.before[at] if at else ahead, each.around if tied else 0)
                for each, ahead in zip(found, first, strict=True)
            )
            for at in range(choice.stages)
        ]

    def sent(self, band: GroupedBand, seen: Site, option: Option, marks: Marks) -> list[Ints]:
        """Return what each stage sends that shards in one way, without what it computes again."""
        with _counting():
            pairs = zip(self._crossings, marks, strict=True)
            return [each.sent(band, seen.holders, option, crossed) for each, crossed in pairs]

    def rows(
        self, band: GroupedBand, sent: list[Ints], chosen: tuple[Ints, ...], again: tuple[Site, Option, Ints, Ints]
    ) -> Ints:
        """Return a row of bytes for each of some stages, what they compute again included.

        Parameters
        ----------
        sent
            As `sent` returns it.
        again
            Where they are, how they shard, and what is computed again in how many layers, as in
            `nest.milp.sum_stages.Ways`.
        """
        seen, option, kind, count = again
        rows = np.zeros((len(chosen[0]), len(sent)), dtype=np.int64)
        for column, (crossing, own) in enumerate(zip(self._crossings, sent, strict=True)):
            total = own
            for at in range(len(self.tables.repeating)):
                some = np.where(kind == at + 1, count, 0)
                total = total + crossing.again(band, option, at, seen.holders.replicas, some)
            rows[:, column] = total[chosen]
        return rows

    def in_chunks(self, band: ChunkedBand, at: int, seen: Site, option: Option, marks: Marks) -> list[int]:
        """Return what a stage with chunks sends that shards in one way, without what it computes again."""
        return [int(each[at]) for each in self.sent(band, seen, option, marks)]

    def again_in_chunks(self, band: ChunkedBand, at: int, seen: Site, again: Again) -> list[int]:
        """Return what is sent besides where it computes something again."""
        return [each.again_in_chunks(band, at, again, seen.holders.replicas) for each in self._crossings]


@contextmanager
def _counting() -> Iterator[None]:
    """Turn an overflow of bytes into what is said of constraints that a solver does not cover."""
    try:
        yield
    except OverflowError as fault:
        raise OutOfScope("constraints", str(fault), "leave that out, and have plans judged") from None
