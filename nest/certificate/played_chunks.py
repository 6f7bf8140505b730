"""Whether an interleaved pipeline takes less than a value under the objective `simulated`: one cut, played.

Numbers of stages and chunks settle which layers each chunk has (C16), so that ways to shard and to recompute are all
that is open. An iteration takes as long as the longest path through its passes, and so no less

- than any path that comes to one stage by the parts before it, goes through its passes in their order, and leaves it
  for the parts behind: the first bounds, of layers alone and with transfers;
- than the pipeline in which each pass takes the least of all ways that are open to its stage, played.

If the latter takes ``A``, and with the least synchronisation ``V`` or more, there is no plan below ``V`` among these
ways. If not, ways that synchronise for ``V - A`` or more are none of such a plan. If then each stage has a way that
takes the least in each of its passes, these ways are a plan below ``V``. If not, the stage which lacks most for that is
looked at with each of its ways alone. Every step takes ways away, so that the steps end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nest.certificate.played_passes import Passes, Shape, taken
from nest.certificate.sum_choices import least_exchanged
from nest.certificate.sum_chunks import Chunked, ChunkedStages, Way
from nest.cost.schedules import Schedule
from nest.pipeline.orders import passes
from nest.plan import Plan
from nest.tables import GroupedTables
from nest.tables.speeds import SURE
from nest.units import Ints


class Played(NamedTuple):
    """A way of a stage: ticks of both passes by chunk, and what it is."""

    forward: Ints
    backward: Ints
    way: Way

    @property
    def sync(self) -> int:
        """Ticks once per iteration."""
        return self.way.sync

    def beats(self, other: Played) -> bool:
        """Whether no pass takes longer than in another way, nor the synchronisation."""
        longer = (self.forward > other.forward).any() or (self.backward > other.backward).any()
        return self.sync <= other.sync and not longer


Open = list[list[Played]]
"""The ways that are open to each stage."""


def shape_of(choice: Chunked) -> Shape:
    """Return how an outer choice is played."""
    return Shape(Schedule("interleaved", choice.chunks), choice.stages, choice.microbatches)


@lru_cache(maxsize=256)
def _turns(shape: Shape, at: int) -> tuple[Ints, np.ndarray]:
    """Return the parts of the passes of a stage in their order, and which of them are forward ones."""
    order = passes(shape.schedule, shape.stages, at, shape.microbatches)
    chunks = np.array([each.chunk for each in order], dtype=np.int64)
    return chunks * shape.stages + at, np.array([each.kind == "forward" for each in order])


def by_stages(shape: Shape, forward: Ints, backward: Ints) -> Iterator[int]:
    """Yield for each stage the longest path through it and along the parts before its passes and behind them.

    Parameters
    ----------
    forward, backward
        Ticks of both passes by part, chunk 0 of all stages first.
    """
    there, back = np.cumsum(forward), np.cumsum(backward)
    comes = there - forward, there[-1] + back[-1] - back
    goes = there[-1] - there + back[-1], back - backward
    for at in range(shape.stages):
        part, ahead = _turns(shape, at)
        done = np.cumsum(np.where(ahead, forward[part], backward[part]))
        begun = np.where(ahead, comes[0][part], comes[1][part]) - np.concatenate([[0], done[:-1]])
        yield int((np.maximum.accumulate(begun) + done + np.where(ahead, goes[0][part], goes[1][part])).max())


def fast_enough(tables: GroupedTables, choices: list[Chunked], value: int) -> list[Chunked]:
    """Return the outer choices of a variant whose layers alone, and what is exchanged at least, may take less."""
    stages, replicas = (np.array([getattr(each, name) for each in choices]) for name in ("stages", "replicas"))
    exchanged = least_exchanged(tables, stages, replicas).tolist()
    known, left = dict[Shape, tuple[int, int]](), list[Chunked]()
    for choice, beside in zip(choices, exchanged, strict=True):
        shape = shape_of(choice)
        if shape not in known:
            known[shape] = _least(tables, choice, value)
        longest, mean = known[shape]
        if max(longest, mean + beside) < value:
            left.append(choice)
    return left


def _least(tables: GroupedTables, choice: Chunked, value: int) -> tuple[int, int]:
    """Return the longest path through any stage, and the mean of their own passes; less is known beyond a value."""
    shape, ends = shape_of(choice), [0, *choice.ends]
    forward, both = (np.diff(tables.by_cut(each)[ends]) for each in (tables.forward, tables.work))
    loads = both.reshape(-1, choice.stages).sum(axis=0)
    mean = int(float(loads.sum()) * choice.microbatches / choice.stages * SURE)
    longest = choice.microbatches * int(loads.max())
    return longest if longest >= value else max(by_stages(shape, forward, both - forward)), mean


class PlayedChunks:
    """The plans of an interleaved outer choice where it stands.

    Parameters
    ----------
    stages
        Its stages.
    value
        Ticks that plans are compared with.
    watch
        Called now and then; raises where there is no more time.
    """

    def __init__(self, stages: ChunkedStages, value: int, watch: Callable[[], None]) -> None:
        self.stages, self.value, self.watch, self.choice = stages, value, watch, stages.choice
        self.shape = shape_of(stages.choice)
        crossings = stages.band.crossings(stages.levels)
        self.forward, self.backward = (own + sent for own, sent in zip(stages.band.passes, crossings, strict=True))

    def better(self) -> Plan | None:
        """Return a plan below the value, None if there is none."""
        if max(by_stages(self.shape, self.forward.ravel(), self.backward.ravel())) >= self.value:
            return None
        todo = [[self._ways(at) for at in range(self.choice.stages)]]
        while todo:
            self.watch()
            open_ = self._left(todo.pop())
            if open_ is None:
                continue
            missing = [_missing(ways) for ways in open_]
            if not any(missing):
                return self.stages.plan([min(ways, key=_whole).way for ways in open_])
            at = int(np.argmax(missing))
            todo += [[*open_[:at], [way], *open_[at + 1 :]] for way in sorted(open_[at], key=_whole, reverse=True)]
        return None

    def _left(self, open_: Open) -> Open | None:
        """Return the ways that may be part of a plan below the value, None if there is no such plan.

        With fewer ways the least of each pass may be more, which leaves fewer ways.
        """
        while all(open_):
            room = self._room(open_)
            left = [[way for way in ways if way.sync < room] for ways in open_]
            if sum(map(len, left)) == sum(map(len, open_)):
                return open_
            open_ = left
        return None

    def _room(self, open_: Open) -> int:
        """Return below which time plans below the value synchronise, if each pass takes the least of some ways."""
        columns = [_least_of(ways) for ways in open_]
        forward, backward = (np.stack(each, axis=1).ravel() for each in zip(*columns, strict=True))
        room = self.value - max(by_stages(self.shape, forward, backward))
        if room <= max(min(way.sync for way in ways) for ways in open_):
            return room
        passes = Passes(*(each[:, None] for each in (forward, backward, np.zeros_like(forward))))
        return self.value - int(taken(self.shape, passes)[0])

    def _ways(self, at: int) -> list[Played]:
        """Return the ways of a stage of which no other takes as little in each pass and to synchronise."""
        found = list[Played]()
        for each in self._all_ways(at):
            if not any(other.beats(each) for other in found):
                found = [other for other in found if not each.beats(other)] + [each]
        return found

    def _all_ways(self, at: int) -> Iterator[Played]:
        """Yield the ways in which a stage fits (C11), and alone takes less than the value."""
        band, count = self.stages.band, self.choice.microbatches
        for way, own, waits in self.stages.ways[at]:
            least = self.stages.busy[at] + own[at]
            for again in band.again(way, at) if count * least + waits[at] < self.value else ():
                shown = band.shown(way)
                forward = self.forward[:, at] + shown[0][:, at]
                backward = self.backward[:, at] + shown[1][:, at] + band.repeated_by_chunk(way, at, again)
                yield Played(forward, backward, Way(least + again.ticks, waits[at], way.option, again))


def _least_of(ways: list[Played]) -> tuple[Ints, Ints]:
    """Return the least ticks of both passes of each chunk."""
    return np.minimum.reduce([way.forward for way in ways]), np.minimum.reduce([way.backward for way in ways])


def _whole(way: Played) -> int:
    return int(way.forward.sum() + way.backward.sum())


def _missing(ways: list[Played]) -> int:
    """Return by how much the fastest way takes longer than the least of all in each pass."""
    return min(map(_whole, ways)) - sum(int(each.sum()) for each in _least_of(ways))
