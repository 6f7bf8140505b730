"""Tables of a variant whose layers branch: what `grouped` and `banded` have for runs of layers, for any stages.

A cut is a downset in the place of a number of layers, and a stage a pair of them; see `nest.tables.family`.
"""

from __future__ import annotations

import numpy as np

from nest.cost.scale import Scale
from nest.downsets import Words
from nest.problem import Allowed, Problem, Variant
from nest.tables.banded import GroupedBand
from nest.tables.family import Family
from nest.tables.grouped import GroupedTables
from nest.tables.repeated import Repeating, Stages, first_allowed, following
from nest.tables.shares import Sharing
from nest.units import NEVER, Ints, quanta


class BranchedTables(GroupedTables):
    """Tables of one variant.

    Parameters
    ----------
    family
        The cuts of its graph.
    """

    def __init__(self, problem: Problem, scale: Scale, variant: Variant, sharing: Sharing, family: Family) -> None:
        self.family = family
        super().__init__(problem, scale, variant, sharing)

    @property
    def cuts(self) -> int:
        """How many cuts there are."""
        return len(self.family.sizes)

    def by_cut(self, values: Ints) -> Ints:
        """Return the sum of a value of the layers before each cut."""
        return self.family.sums(values)

    def between(self, first: int, end: int) -> Ints:
        """Return the places of the layers between two cuts, ascending."""
        members = self.family.members
        return np.flatnonzero(members[end] & ~members[first])

    def _alive(self) -> Ints:
        members = self.family.members
        sent: dict[int, list[tuple[int, int]]] = {}
        for (source, target), edge in zip(self.graph.places, self.graph.edges, strict=True):
            sent.setdefault(source, []).append((target, quanta(edge.bytes, self.scale.quanta_per_byte)))
        alive = np.zeros(len(members), dtype=np.int64)
        for source, links in sent.items():
            beyond = [np.where(members[:, target], 0, size) for target, size in links]
            alive += np.where(members[:, source], np.maximum.reduce(beyond), 0)
        return alive

    def deepest_within(self, load: int) -> int:
        """Most layers that a stage of at most ``load`` ticks may hold: as many of the lightest."""
        ends = np.cumsum(np.sort(self.work))
        return max(1, int(np.searchsorted(ends, load, side="right")))


class BranchedBand(GroupedBand):
    """Tables of the stages of one variant, of at most so many layers: one entry each, sorted by their first cut."""

    tables: BranchedTables

    def _cut(self) -> None:
        tables = self.tables
        self.stages = tables.family.stages(self.depth)
        self.first = self.stages.first
        self.end = self.reached = self.stages.end
        self.valid = np.ones(len(self.end), dtype=bool)

    def _cuts_of(self, chosen: tuple[Ints, ...]) -> tuple[Ints, Ints]:
        return self.first[chosen], self.end[chosen]

    def _largest(self, values: Ints) -> Ints:
        family = self.tables.family
        return family.most(family.between(self.stages.first, self.stages.end), values)

    def _repeats_of(self, repeating: Repeating, kept: Ints, moment: Ints, whole: Ints) -> BranchedRepeats:
        allowed = self.tables.problem.choices.recomputed
        return BranchedRepeats(self.tables.family, repeating, kept, (moment, whole), allowed)


class BranchedRepeats:
    """Finds the fewest layers that have to recompute, for one kind and one way to shard, in any stages.

    Of a stage that recomputes, those layers do that come first in the order: up to some place. What they free is the
    difference of what layers up to there free in two downsets. As for runs of layers, no place is skipped before that
    from which on a stage could fit if as little as possible was in use for a moment, and each is tried from there on.

    Parameters
    ----------
    family
        The cuts.
    repeating, kept
        As for runs of layers.
    moments
        What is in use for a moment without recomputation, and what of it is there in either case.
    allowed
        As for runs of layers.
    """

    def __init__(
        self, family: Family, repeating: Repeating, kept: Ints, moments: tuple[Ints, Ints], allowed: Allowed = None
    ) -> None:
        self.family, able = family, repeating.able
        freed = np.where(able, kept - repeating.kept, 0)
        values = (able.astype(np.int64), freed, np.maximum(freed, 0), np.where(able, repeating.ticks, 0))
        self._count, self._freed, self._most_freed, self._ticks = map(family.sums_up_to, values)
        self._plain, whole = moments
        self._again = np.where(able, repeating.working + whole, self._plain)
        self._following = following(int(able.sum()), allowed)

    def fewest(self, stages: Stages, flying: int) -> Ints:
        """Return how many layers of each stage recompute at least, 0 where no number of them makes it fit."""
        fewest = np.zeros(len(stages.first), dtype=np.int64)
        least = self.family.most(self._words(stages), np.minimum(self._again, self._plain))
        needed = stages.kept - (stages.room - least) // flying
        last = len(self._plain) - 1
        able = self._up_to(self._count, stages, np.full_like(needed, last))
        place = self._reaches(self._most_freed, stages, needed)
        count = np.maximum(self._up_to(self._count, stages, np.minimum(place, last)), 1)
        count = first_allowed(self._following, np.where(place > last, able + 1, count), able)
        left = np.flatnonzero(count <= able)
        rows, count, most = stages.pick(left), count[left], able[left]
        while len(left):
            fits = self._fits(rows, self._reaches(self._count, rows, count), flying)
            fewest[left[fits]] = count[fits]
            count = first_allowed(self._following, count + 1, most)
            more = ~fits & (count <= most)
            left, rows, count, most = left[more], rows.pick(more), count[more], most[more]
        return fewest

    def _fits(self, stages: Stages, place: Ints, flying: int) -> np.ndarray:
        """Return which stages fit whose layers recompute up to a place."""
        words, before = self._words(stages), self.family.places_up_to[place]
        moment = np.maximum(
            self.family.most(words & before, self._again), self.family.most(words & ~before, self._plain)
        )
        kept = stages.kept - self._up_to(self._freed, stages, place)
        fits: np.ndarray = kept <= (stages.room - moment) // flying
        return fits

    def _words(self, stages: Stages) -> Words:
        return self.family.between(stages.first, stages.end)

    def _up_to(self, sums: Ints, stages: Stages, place: Ints) -> Ints:
        """Return the sums over the layers of stages up to a place."""
        found: Ints = sums[stages.end, place] - sums[stages.first, place]
        return found

    def _reaches(self, sums: Ints, stages: Stages, value: Ints) -> Ints:
        """Return the first place up to which sums, of values from 0 on, reach a value; that behind all if none."""
        low, high = np.zeros_like(value), np.full_like(value, sums.shape[1])
        while (low < high).any():
            middle = (low + high) // 2
            inside = np.minimum(middle, sums.shape[1] - 1)
            enough = self._up_to(sums, stages, inside) >= value
            low, high = np.where(enough | (low >= high), low, middle + 1), np.where(enough, middle, high)
        return low

    def added(self, stages: Stages, count: Ints) -> Ints:
        """Return the ticks that so many layers of stages add, `NEVER` for none."""
        place = self._reaches(self._count, stages, np.maximum(count, 1))
        ticks = self._up_to(self._ticks, stages, np.minimum(place, len(self._plain) - 1))
        return np.where(count > 0, ticks, NEVER)
