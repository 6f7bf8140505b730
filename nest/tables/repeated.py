"""The fewest layers of each stage that have to recompute, for its microbatches in flight to fit the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from nest.graph import Again
from nest.problem import Allowed
from nest.tables.sums import prefix
from nest.units import NEVER, Ints


class RangeMost:
    """Largest values of runs of a vector, each from two overlapping runs of a power of two of places."""

    def __init__(self, values: Ints) -> None:
        tables, length = [values], 1
        while 2 * length <= len(values):
            inner = tables[-1]
            tables.append(np.maximum(inner[: len(inner) - length], inner[length:]))
            length *= 2
        self._tables = np.zeros((len(tables), len(values)), dtype=np.int64)
        for row, each in enumerate(tables):
            self._tables[row, : len(each)] = each
        self._logs = np.array([max(count.bit_length() - 1, 0) for count in range(len(values) + 1)], dtype=np.int64)

    def most(self, first: Ints, end: Ints) -> Ints:
        """Return the largest value of each run ``[first, end)``, 0 of an empty one."""
        log = self._logs[np.maximum(end - first, 0)]
        low = np.minimum(first, self._tables.shape[1] - 1)
        high = np.maximum(end - (1 << log), 0)
        found = np.maximum(self._tables[log, low], self._tables[log, high])
        return np.where(end > first, found, 0)


class Passing(NamedTuple):
    """Microbatches of a stage.

    Parameters
    ----------
    flying
        Of how many it keeps something at most.
    buffered
        Of how many what crosses its boundaries stays in buffers until the iteration ends: all or none.
    """

    flying: int
    buffered: int = 0


class Peaks:
    """The most that the backward pass of one microbatch needs in a run of layers.

    When it comes to a layer, the microbatch has freed what the layers behind it kept, and the layer has its bytes in
    use for a moment.

    Parameters
    ----------
    kept, moment
        Quanta that each layer keeps of a microbatch, and has in use for a moment.
    """

    def __init__(self, kept: Ints, moment: Ints) -> None:
        self._sums = prefix(kept)
        self._most = RangeMost(self._sums[1:] + moment)

    def kept(self, first: Ints, end: Ints) -> Ints:
        """Return what the layers of each run ``[first, end)`` keep of a microbatch."""
        found: Ints = self._sums[end] - self._sums[first]
        return found

    def most(self, first: Ints, end: Ints) -> Ints:
        """Return the peak of each run, 0 or less of an empty one."""
        found: Ints = self._most.most(first, end) - self._sums[first]
        return found


def most_kept(room: Ints, peak: Ints, flying: int) -> Ints:
    """Return how much a microbatch may keep of a stage, so that it fits with so many in flight; -1 where it cannot.

    Parameters
    ----------
    room, peak
        Quanta that the state leaves, and that the microbatch needs of which the backward pass runs.
    """
    free = room - peak
    return np.where(free < 0, -1, free // (flying - 1) if flying > 1 else NEVER)


class Repeating(NamedTuple):
    """What the layers of a variant take where they recompute in one way.

    Parameters
    ----------
    kind
        What they compute again.
    able
        Which layers can.
    ticks, kept, working
        Ticks that each of them takes more; quanta that it keeps of a microbatch, and has in use for a moment.
    """

    kind: Again
    able: np.ndarray
    ticks: Ints
    kept: Ints
    working: Ints


@dataclass(frozen=True, slots=True)
class Stages:
    """Some stages, one in each entry.

    Parameters
    ----------
    first, end
        The cuts before and behind them.
    room
        Quanta that weights, gradients and optimizer leave.
    kept
        Quanta that a microbatch keeps in them without recomputation.
    """

    first: Ints
    end: Ints
    room: Ints
    kept: Ints

    def pick(self, chosen: np.ndarray) -> Stages:
        """Return those that indices or a mask pick."""
        return Stages(self.first[chosen], self.end[chosen], self.room[chosen], self.kept[chosen])


class Fewest(Protocol):
    """Finds the fewest layers that have to recompute, for one kind and one way to shard."""

    def fewest(self, stages: Stages, flying: int) -> Ints:
        """Return how many layers of each stage recompute at least, 0 where no number of them makes it fit."""

    def fits(self, stages: Stages, count: Ints, flying: int) -> np.ndarray:
        """Return which stages fit of which so many layers recompute, at least one."""

    def added(self, ticks: Ints, stages: Stages, count: Ints) -> Ints:
        """Return the ticks that so many layers of stages add, `NEVER` for none.

        Parameters
        ----------
        ticks
            Sums of those of the first 0, 1, ... layers that can recompute.
        """


def following(most: int, allowed: Allowed) -> Ints:
    """Return for each number of layers the first one from it on that is allowed, `NEVER` for none."""
    numbers = np.arange(most + 1, dtype=np.int64)
    if allowed is None:
        return numbers
    ordered = np.array([*sorted(allowed), NEVER], dtype=np.int64)
    found: Ints = ordered[np.searchsorted(ordered[:-1], numbers)]
    return found


def first_allowed(following: Ints, count: Ints, able: Ints) -> Ints:
    """Return the first number from one on that a stage with so many able layers may have, a larger one for none.

    Parameters
    ----------
    following
        As `following` returns it.
    """
    found = following[np.minimum(count, len(following) - 1)]
    return np.where((count <= able) & (found < NEVER), np.minimum(found, able), able + 1)


class Repeats:
    """Finds the fewest layers that have to recompute, for one kind and one way to shard, in runs of layers.

    Parameters
    ----------
    repeating
        The layers.
    kept, moment
        Quanta that each layer keeps of a microbatch, and has in use for a moment, without recomputation.
    whole
        Quanta among the latter that are there in either case: of weights and gradients that are whole for a moment.
    allowed
        Numbers of layers that may recompute; None for all. A stage in which fewer can may have all of them do so.
    last
        Whether the last layers of a stage recompute, and not the first.

    Notes
    -----
    Of two numbers of layers with which a stage fits, the smaller takes no more time, as each further layer adds time
    and nothing else that is counted: so the smallest that fits is the best for its kind. Memory need not fall with the
    number, as what is in use for a moment may be more in a layer that recomputes. So no number is skipped but for a
    reason that holds for all: with fewer layers than those that free what is missing, if as little as possible was in
    use for a moment, no stage fits. From there on each number is tried.
    """

    def __init__(
        self,
        repeating: Repeating,
        kept: Ints,
        moment: Ints,
        whole: Ints,
        allowed: Allowed = None,
        *,
        last: bool = False,
    ) -> None:
        self.from_behind = last
        self.able = np.flatnonzero(repeating.able)
        self.before = prefix(repeating.able.astype(np.int64))
        self.freed = prefix((kept - repeating.kept)[self.able])
        self.most_freed = np.maximum.accumulate(self.freed)
        self.least_freed = np.minimum.accumulate(self.freed[::-1])[::-1]
        again = repeating.working + whole
        self._last = np.minimum(again, moment)
        self._again, self._plain = Peaks(repeating.kept, again), Peaks(kept, moment)
        self._least = Peaks(np.minimum(repeating.kept, kept), self._last)
        self._following = following(len(self.able), allowed)

    def fewest(self, stages: Stages, flying: int) -> Ints:
        """Return how many layers of each stage recompute at least, 0 where no number of them makes it fit."""
        fewest = np.zeros(len(stages.first), dtype=np.int64)
        begin, able = self._begin(stages, flying)
        count = self._allowed(begin, able)
        left = np.flatnonzero(count <= able)
        rows, count, most = stages.pick(left), count[left], able[left]
        while len(left):
            fits = self.fits(rows, count, flying)
            fewest[left[fits]] = count[fits]
            count = self._allowed(count + 1, most)
            more = ~fits & (count <= most)
            left, rows, count, most = left[more], rows.pick(more), count[more], most[more]
        return fewest

    def _allowed(self, count: Ints, able: Ints) -> Ints:
        return first_allowed(self._following, count, able)

    def _begin(self, stages: Stages, flying: int) -> tuple[Ints, Ints]:
        """Return a number of layers below which no stage fits, and how many there are that can recompute."""
        before = self.before[stages.first]
        most = most_kept(stages.room, self._least.most(stages.first, stages.end), flying)
        most = np.minimum(most, (stages.room - self._last[stages.end - 1]) // flying)
        end = self.before[stages.end]
        missing = stages.kept - most
        if self.from_behind:
            needed = end + 1 - np.searchsorted(self.least_freed, self.freed[end] - missing, side="right")
        else:
            needed = np.searchsorted(self.most_freed, self.freed[before] + missing) - before
        return np.maximum(needed, 1), end - before

    def _among_able(self, stages: Stages, count: Ints) -> tuple[Ints, Ints]:
        """Return where the layers that recompute begin and end, among those that can."""
        if self.from_behind:
            end = self.before[stages.end]
            return end - count, end
        before = self.before[stages.first]
        return before, before + count

    def fits(self, stages: Stages, count: Ints, flying: int) -> np.ndarray:
        """Return which stages fit of which so many layers recompute, at least one."""
        begin, end = self._among_able(stages, count)
        split = self.able[begin] if self.from_behind else self.able[end - 1] + 1
        front, rear = (self._plain, self._again) if self.from_behind else (self._again, self._plain)
        behind = front.kept(stages.first, split) + rear.most(split, stages.end)
        peak = np.maximum(front.most(stages.first, split), behind)
        kept = stages.kept - (self.freed[end] - self.freed[begin])
        fits: np.ndarray = kept <= most_kept(stages.room, peak, flying)
        return fits

    def added(self, ticks: Ints, stages: Stages, count: Ints) -> Ints:
        """Return the ticks that so many layers of stages add, `NEVER` for none."""
        begin, end = self._among_able(stages, count)
        return np.where(count > 0, ticks[end] - ticks[begin], NEVER)
