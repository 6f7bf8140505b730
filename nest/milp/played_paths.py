"""The longest path through the passes of a pipeline: what an iteration takes, and what of it each pass accounts for.

A pass begins when its stage has done the one before it in the order of the schedule (`nest.pipeline`), and its input is
there; so an iteration takes as long as the longest chain of passes of which each waits for the one before. Which chains
there are does not depend on times. So each of them is a bound of every pipeline of that shape, linear in its passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.pipeline.orders import passes_of
from nest.presets import ScheduleName
from nest.units import Ints

KINDS = {"forward": 0, "backward": 1, "weight": 2}
"""Kinds of passes by their column, without chunks; with chunks the forward passes of all of them come first."""


SLOWER = 1000
"""How many times as long as others slow passes take."""


class Shape(NamedTuple):
    """Pipelines of a schedule."""

    schedule: ScheduleName
    stages: int
    microbatches: int
    chunks: int = 1

    @property
    def columns(self) -> int:
        """Passes of a stage for a microbatch: forward, backward and what is put off, or both of each chunk."""
        return 2 * self.chunks if self.chunks > 1 else len(KINDS)


class Path(NamedTuple):
    """What a pipeline takes, and how often each pass of a microbatch is on its longest path, by stage and column."""

    ticks: int
    counts: Ints


class _Pass(NamedTuple):
    """A pass in the order of all: its stage, column, and the places of what it waits for there, -1 for nothing."""

    at: int
    column: int
    own: int
    neighbour: int


class Player:
    """Plays pipelines of one shape.

    Parameters
    ----------
    shape
        Of all of them.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape, self.order = shape, list(_order(shape))

    def longest(self, ticks: Ints) -> Path:
        """Return the longest path of a pipeline; ``ticks`` of its passes are by stage and column."""
        ends, before, times = list[int](), list[int](), ticks.tolist()
        for at, column, own, neighbour in self.order:
            begins = ends[own] if own >= 0 else 0
            waited = own
            if neighbour >= 0 and ends[neighbour] > begins:
                begins, waited = ends[neighbour], neighbour
            ends.append(begins + times[at][column])
            before.append(waited)
        place, counts = max(range(len(ends)), key=ends.__getitem__), np.zeros_like(ticks)
        whole = ends[place]
        while place >= 0:
            counts[self.order[place].at, self.order[place].column] += 1
            place = before[place]
        return Path(whole, counts)

    @cached_property
    def slow_stages(self) -> list[Ints]:
        """The longest paths of pipelines one stage of which is much slower than the others: by that stage."""
        return [self._slow(at, [*range(self.shape.columns)]) for at in range(self.shape.stages)]

    def starting(self) -> list[Ints]:
        """Return some paths to begin with: those of pipelines that are slow in one stage, or in one column of it."""
        single = [self._slow(at, [each]) for at in range(self.shape.stages) for each in range(self.shape.columns)]
        found = {counts.tobytes(): counts for counts in (*self.slow_stages, *single)}
        return list(found.values())

    def _slow(self, at: int, columns: list[int]) -> Ints:
        ticks = np.ones((self.shape.stages, self.shape.columns), dtype=np.int64)
        ticks[at, columns] = SLOWER
        return self.longest(ticks).counts


def _order(shape: Shape) -> Iterator[_Pass]:
    """Yield all passes, each behind what it waits for."""
    schedule, stages, microbatches, chunks = shape
    orders = passes_of(schedule, chunks, stages, microbatches)
    parts, done, last = stages * chunks, [0] * stages, [-1] * stages
    places, number = dict[tuple[str, int, int], int](), 0
    while any(done[at] < len(orders[at]) for at in range(stages)):
        for at in range(stages):
            while done[at] < len(orders[at]):
                kind, chunk, microbatch = orders[at][done[at]]
                part = chunk * stages + at
                towards = part - 1 if kind == "forward" else part + 1
                waits = kind != "weight" and 0 <= towards < parts
                if waits and (kind, towards, microbatch) not in places:
                    break
                column = KINDS[kind] if chunks == 1 else KINDS[kind] * chunks + chunk
                yield _Pass(at, column, last[at], places[kind, towards, microbatch] if waits else -1)
                places[kind, part, microbatch] = last[at] = number
                number += 1
                done[at] += 1
