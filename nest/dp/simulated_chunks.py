"""The best interleaved plan of an outer choice under the objective `simulated`: the one cut, played.

The order of passes is fixed, so that an iteration only grows with every pass. So of the ways of a stage those remain of
which no other takes as little in each pass of each chunk and to synchronise. As long as something is open, the stages
of which nothing is chosen take the least of all their ways in each pass: what is played then is a bound of all plans
that choose so. Those with the least bound go on first, one stage after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from nest.dp.chunk_pace import ChunkPace
from nest.dp.incumbent import Incumbent
from nest.dp.interleaved import ChunkWay, InterleavedBounds, InterleavedChoice, interleaved_plan
from nest.dp.makespans import Played, Shape, makespans
from nest.dp.sum_outer import SumChoice
from nest.tables.exchanged import PLAIN, Exchanged
from nest.tables.grouped import Site
from nest.units import LONGEST, NEVER, Ints

TOGETHER = 64
"""Plans that go on together."""

PASSES = ("forward", "backward")


class PlayedBounds(InterleavedBounds):
    """Lower bounds for one variant and so many chunks of each stage, under the objective `simulated`."""

    def objective(
        self, stages: Ints, further: Ints, hops: tuple[Ints, Ints], exchanged: Exchanged, types: tuple[int, ...]
    ) -> Ints:
        """Return bounds of the objective; see `SumBounds.objective`.

        By `ChunkPace` each stage has a bound, which a tick more of its load makes longer by a tick at least. So what a
        stage exchanges for each microbatch counts once, as the synchronisation does that it may stand for: of all
        stages together at least what ``exchanged`` says. If every stage has to exchange for each microbatch, all count.
        """
        found = np.zeros(len(stages))
        count, plain = further + 1, any(zero in PLAIN for zero in types)
        for number in sorted(set(stages.tolist())):
            chosen = np.flatnonzero(stages == number)
            sync, extra, step = (each[chosen] / number for each in exchanged)
            ends, busy = self._ends(number, count[chosen], hops[1][chosen])
            once = ends.mean(axis=1) + step
            once = once + sync if plain else np.maximum(once, busy.mean(axis=1) + count[chosen] * extra + step)
            found[chosen] = np.maximum(ends.max(axis=1), once)
        rounded = count * (3 * self.tables.layers + 8)  # what parts are rounded down by, at most
        least: Ints = np.clip(np.floor(found * (1 - 1e-9) - rounded), 0, float(NEVER)).astype(np.int64)
        return least

    def _ends(self, stages: int, microbatches: Ints, hop: Ints) -> tuple[Ints, Ints]:
        """Return when each stage may be done, by all that is known and by its load, whatever it exchanges."""
        tables, received = self.tables, hop // 2 if self.problem.training.blocking_sends else hop
        parts = (self.by_chunk(stages, each).ravel() for each in (tables.forward, tables.work - tables.forward))
        forward, backward = (np.repeat(each[None], len(hop), axis=0) for each in parts)
        forward[:, 1:] += received[:, None]
        backward[:, :-1] += received[:, None]
        pace, shape = ChunkPace(stages, self.chunks, microbatches), (len(hop), self.chunks, stages)
        passes = forward.reshape(shape), backward.reshape(shape)
        return pace.least(*passes), pace.by_load(*passes)

    def refined(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> int:  # noqa: ARG002 - a hook
        """Return no bound: that by what stages may choose is made at once, and says more."""
        return 0


class PlayedWay(NamedTuple):
    """What a stage may choose.

    Parameters
    ----------
    forward, backward
        Ticks of both passes of each chunk.
    sync
        Ticks once per iteration.
    chosen
        What it is.
    """

    forward: Ints
    backward: Ints
    sync: int
    chosen: ChunkWay

    def beats(self, other: PlayedWay) -> bool:
        """Whether no pass takes longer than in another way, nor the synchronisation."""
        longer = (self.forward > other.forward).any() or (self.backward > other.backward).any()
        return self.sync <= other.sync and not longer


def played_ways(prepared: InterleavedChoice, most: int) -> list[list[PlayedWay]]:
    """Return what each stage may choose that fits the memory and is worth trying; nothing if one stage has nothing.

    Parameters
    ----------
    most
        Ticks for which a stage may be busy with a microbatch.
    """
    busy, crossings, found = prepared.band.passes, prepared.crossings, list[list[PlayedWay]]()
    passes = [ticks + sent for ticks, sent in zip(busy, crossings, strict=True)]
    for at in range(len(prepared.sites)):
        ways = list[PlayedWay]()
        for each in _ways_of(prepared, at, (passes[0][:, at], passes[1][:, at])):
            if each.chosen.load <= most and not any(other.beats(each) for other in ways):
                ways = [other for other in ways if not each.beats(other)] + [each]
        if not ways:
            return []
        found.append(ways)
    return found


def _ways_of(prepared: InterleavedChoice, at: int, passes: tuple[Ints, Ints]) -> Iterator[PlayedWay]:
    band, ends = prepared.band, prepared.ends(at)
    for way, _, waits in prepared.sharded(at):
        shown = band.shown(way)
        forward, backward = (ticks + each[:, at] for ticks, each in zip(passes, shown, strict=True))
        for again in band.again(way, at):
            back, sync = backward + band.repeated_by_chunk(way, at, again), int(waits[at]) + ends
            load = int(forward.sum() + back.sum())
            yield PlayedWay(forward, back, sync, ChunkWay(load, sync, way.option, again))


class Begun(NamedTuple):
    """Plans of which the first stages are chosen, a row for each.

    Attributes
    ----------
    bound
        No plan that begins so takes less.
    chosen
        A column for each stage: a place among its ways.
    forward, backward
        Ticks of both passes, by chunk and stage: the least where nothing is chosen.
    sync
        The largest synchronisation, likewise.
    """

    bound: Ints
    chosen: Ints
    forward: Ints
    backward: Ints
    sync: Ints

    def pick(self, rows: np.ndarray) -> Begun:
        """Return those that indices or a mask pick."""
        return Begun(*(each[rows] for each in self))


class PlayedChunks:
    """Settles one outer choice with chunks.

    Parameters
    ----------
    prepared, incumbent
        The choice, and the best plan so far.

    Attributes
    ----------
    first, bound
        Of all its plans: by memory, and by what its stages may choose; `NEVER` if there is none, or none is better.
    """

    def __init__(self, prepared: InterleavedChoice, incumbent: Incumbent) -> None:
        self.prepared, self.incumbent, choice = prepared, incumbent, prepared.choice
        self.shape = Shape("interleaved", choice.stages, choice.further + 1, prepared.engine.chunks)
        most = min((incumbent.objective - 1) // self.shape.microbatches, LONGEST - 1)
        self.first, self.bound = self._by_memory(), NEVER
        self.ways = played_ways(prepared, most) if self.first < incumbent.objective else []
        if self.ways:
            sync = max(min(way.sync for way in each) for each in self.ways)
            forward, backward = (
                _least([[getattr(way, name) for way in each] for each in self.ways]) for name in PASSES
            )
            nothing = np.zeros((1, 0), dtype=np.int64)
            self.begun = Begun(np.zeros(1, dtype=np.int64), nothing, forward, backward, np.array([sync]))
            self.bound = int(self._ends(self.begun)[0])

    def _by_memory(self) -> int:
        """Return a first bound: by what stages are busy with, and what their memory costs at least."""
        held, crossings = self.prepared.held, self.prepared.crossings
        if (held >= NEVER).any():
            return NEVER
        passes = (ticks + sent for ticks, sent in zip(self.prepared.band.passes, crossings, strict=True))
        ends = self._pace(1).by_load(*(each[None] for each in passes))[0]
        return int((ends + self.shape.microbatches * held).max())

    def settle(self) -> None:
        """Offer every plan to the incumbent that may be better."""
        todo = [self._played(self.begun)] if self.ways else []
        while todo:
            self.prepared.engine.watch.check()
            begun = todo.pop()
            begun = begun.pick(begun.bound < self.incumbent.objective)
            if len(begun.bound) and begun.chosen.shape[1] < len(self.ways):
                further = self._further(begun)
                order = np.argsort(further.bound, kind="stable")
                todo += [further.pick(order[at : at + TOGETHER]) for at in reversed(range(0, len(order), TOGETHER))]
            else:
                self._offer(begun)

    def offer(self, slowest: list[int]) -> None:
        """Offer the plan whose stages have the least loads of those that synchronise in so many ticks at most."""
        if not self.ways:
            return
        begun = self.begun
        for ways, most in zip(self.ways, slowest, strict=True):
            loads = [each.chosen.load if each.sync <= most else NEVER for each in ways]
            begun = self._with(begun, ways, np.zeros(1, dtype=np.int64), np.array([loads.index(min(loads))]))
        self._offer(self._played(begun))

    def _further(self, begun: Begun) -> Begun:
        """Return all plans that come of some by choosing the next stage, as far as they could be better."""
        ways = self.ways[begun.chosen.shape[1]]
        parent, way = (each.ravel() for each in np.indices((len(begun.bound), len(ways))))
        found = self._with(begun, ways, parent, way)
        return found if len(ways) == 1 else self._played(found)

    def _with(self, begun: Begun, ways: list[PlayedWay], parent: Ints, way: Ints) -> Begun:
        """Return plans that come of some by choosing the next stage."""
        bound, chosen, forward, backward, sync = begun.pick(parent)
        at = chosen.shape[1]
        forward[:, :, at] = np.stack([each.forward for each in ways])[way]
        backward[:, :, at] = np.stack([each.backward for each in ways])[way]
        sync = np.maximum(sync, np.array([each.sync for each in ways])[way])
        return Begun(bound, np.concatenate([chosen, way[:, None]], axis=1), forward, backward, sync)

    def _played(self, begun: Begun) -> Begun:
        """Return those of some plans that could be better, with what is played as their bound."""
        least = self._ends(begun)
        begun = begun.pick(least < self.incumbent.objective)
        flat = len(begun.bound), self.shape.parts
        forward, backward = begun.forward.reshape(flat), begun.backward.reshape(flat)
        taken = makespans(self.shape, Played(forward, backward, np.zeros_like(forward))) + begun.sync
        if (taken < least[least < self.incumbent.objective]).any():
            raise AssertionError("a bound is above what was played")
        return begun._replace(bound=taken).pick(taken < self.incumbent.objective)

    def _ends(self, begun: Begun) -> Ints:
        """Return a bound without playing."""
        ends: Ints = self._pace(len(begun.sync)).least(begun.forward, begun.backward).max(axis=1) + begun.sync
        return ends

    def _pace(self, count: int) -> ChunkPace:
        return ChunkPace(self.shape.stages, self.shape.chunks, np.full(count, self.shape.microbatches))

    def _offer(self, complete: Begun) -> None:
        """Offer the best of some complete plans to the incumbent."""
        if len(complete.bound):
            best = int(np.argmin(complete.bound))
            chosen = zip(self.ways, complete.chosen[best].tolist(), strict=True)
            build = partial(interleaved_plan, self.prepared, [ways[at].chosen for ways, at in chosen])
            self.incumbent.keep(int(complete.bound[best]), build)


def _least(ways: list[list[Ints]]) -> Ints:
    """Return the least ticks of a pass of each chunk and stage, as those of a single pipeline."""
    least: Ints = np.stack([np.minimum.reduce(each) for each in ways], axis=1)[None]
    return least
