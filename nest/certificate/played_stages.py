"""The stages of an outer choice under the objective `simulated`, each in every way that may be part of a fast plan."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np

from nest.certificate.played_paths import Paths, Reach
from nest.certificate.sum_memory import SCATTERING
from nest.certificate.sum_stages import SumStages
from nest.tables.grouped import Pair
from nest.units import NEVER, Ints


@dataclass(frozen=True, slots=True)
class Ways:
    """Stages in one place, in one way each to shard and to recompute.

    Attributes
    ----------
    first, end
        Cuts before and behind each.
    forward, backward, weight, sync
        Ticks of its passes, what is put off being no part of the backward one, and once per iteration.
    entry, option
        Where it is in the tables, and how it shards; see `SumStages.plan`.
    """

    first: Ints
    end: Ints
    forward: Ints
    backward: Ints
    weight: Ints
    sync: Ints
    entry: Ints
    option: Ints

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, rows: np.ndarray) -> Self:
        """Return those that indices or a mask pick."""
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))

    def undominated(self) -> Self:
        """Return those of which no other between the same cuts takes as little in each pass and to synchronise."""
        ticks = self.forward, self.backward, self.weight, self.sync
        chosen = self.pick(np.lexsort((*reversed(ticks), self.entry)))
        kept, apart = np.ones(len(chosen), dtype=bool), 1
        while apart < len(chosen):
            same = chosen.entry[apart:] == chosen.entry[:-apart]
            if not same.any():
                break
            for each in (chosen.forward, chosen.backward, chosen.weight, chosen.sync):
                same = same & (each[:-apart] <= each[apart:])
            kept[apart:] &= ~same
            apart += 1
        return chosen.pick(kept)


class Plain(NamedTuple):
    """Ticks of the stages in one place forward, in both passes, and of what is put off, in the shape of the tables."""

    forward: Ints
    load: Ints
    weight: Ints


class PlayedStages(SumStages):
    """The stages of an outer choice where it stands; ``band`` puts off gradients of weights if its schedule does."""

    @property
    def paths(self) -> Paths:
        """Paths through its pipelines."""
        return Paths(self.choice.schedule, self.choice.stages, self.choice.further + 1)

    def plain(self, at: int) -> Ways:
        """Return the stages in one place, from the first on, as if memory and sharding took nothing."""
        position = self.choice.stages - at
        entry = np.flatnonzero(np.broadcast_to(self._admitted(position), self.band.valid.shape))
        forward, load, weight = (each.ravel()[entry] for each in self._plain(position))
        ends = self._ends(entry)
        nothing = np.zeros_like(entry)
        found = Ways(*ends, forward, load - forward - weight, weight, nothing, entry, nothing)
        return found.pick(load <= self.choice.cap)

    def _ends(self, entry: Ints) -> tuple[Ints, Ints]:
        shape = self.band.valid.shape
        return np.broadcast_to(self.band.first, shape).ravel()[entry], self.band.reached.ravel()[entry]

    def _plain(self, position: int) -> Plain:
        band, pairs = self.band, self.sites[-position].pairs
        late = band.window if band.puts_off else np.zeros_like(band.work)
        return Plain(band.sums(self.tables.forward) + self._activations(pairs), band.work + band.hops(pairs), late)

    def _activations(self, pairs: tuple[Pair, ...]) -> Ints:
        """Return for how long stages are busy with activations, in the replica whose transfers take the longest.

        Of several such in the one where that takes the longest (D15).
        """
        tables, band = self.tables, self.band
        longest, found = np.full(band.work.shape, -1, dtype=np.int64), np.zeros_like(band.work)
        for before, behind in pairs:
            both = tables.hops(before)[band.first] + tables.hops(behind)[band.reached]
            ahead = (tables.hops(before) - tables.sends(before))[band.first] + tables.sends(behind)[band.reached]
            found = np.where(both > longest, ahead, np.where(both == longest, np.maximum(found, ahead), found))
            longest = np.maximum(longest, both)
        return found

    def ways(self, at: int, wanted: Ways, value: int) -> Ways:
        """Return all ways of some stages in one place in which they fit (C11), and alone take less than a value."""
        position, shape = self.choice.stages - at, self.band.valid.shape
        mask = np.zeros(shape, dtype=bool)
        mask.flat[wanted.entry] = True
        plain = self._plain(position)
        found = [self._in_way(position, number, plain, mask, value) for number in range(len(self.options))]
        together = Ways(*(np.concatenate([getattr(each, name.name) for each in found]) for name in fields(Ways)))
        return together.undominated()

    def _in_way(self, position: int, number: int, plain: Plain, mask: np.ndarray, value: int) -> Ways:
        """Return the stages that a mask picks in one way to shard, with the fastest recomputation."""
        option, band, (forward, load, weight) = self.options[number], self.band, plain
        most = min(self.choice.cap, (value - 1) // (self.choice.further + 1))
        asked = mask & (load + (self.least_extra[number] if option.zero in SCATTERING else 0) <= most)
        if not asked.any():
            return Ways(*(np.zeros(0, dtype=np.int64) for _ in fields(Ways)))
        way = self._way(self.sites[-position], option)
        load = load + way.own
        room = value - np.minimum(way.waits, value)
        asked = asked & (load <= most) & (load * (self.choice.further + 1) < room)
        again = band.recomputation(way.sharded, self._passing(position), asked).ticks
        entry = np.flatnonzero((asked & (again < NEVER)).ravel())
        load, forward = (load + again).ravel()[entry], (forward + band.gathered(way.sharded)).ravel()[entry]
        late = (weight + band.late(way.sharded) if band.puts_off else weight).ravel()[entry]
        sync = way.waits.ravel()[entry]
        return Ways(*self._ends(entry), forward, load - forward - late, late, sync, entry, np.full_like(entry, number))

    def reach(self, at: int, ways: Ways) -> Reach:
        """Return what paths through stages in one place take."""
        return self.paths.of(at, ways.forward, ways.backward, ways.weight)
