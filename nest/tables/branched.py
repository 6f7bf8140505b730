"""Tables of a variant whose layers branch: what `grouped` and `banded` have for runs of layers, for any stages.

A cut is a downset in the place of a number of layers, and a stage a pair of them; see `nest.tables.family`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nest.cost.scale import Scale
from nest.problem import Allowed, Problem, Variant
from nest.tables.banded import GroupedBand
from nest.tables.family import Differences, Family
from nest.tables.grouped import ANY, Ends, GroupedTables
from nest.tables.repeated import Repeating, Stages, first_allowed, following, most_kept
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

    @cached_property
    def order(self) -> StageOrder:
        """The layers of all stages, in their order."""
        return StageOrder(self.family, self.family.stages(self.layers))

    def between(self, first: int, end: int) -> Ints:
        """Return the places of the layers between two cuts, ascending."""
        members = self.family.members
        return np.flatnonzero(members[end] & ~members[first])

    def held_ends(self, *_: int) -> Ends:
        """Tell no stages from others."""
        return ANY

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
        self.order = StageOrder(tables.family, self.stages)
        self.opening, self.counts = self.order.opening, self.order.counts

    def cuts_of(self, chosen: tuple[Ints, ...]) -> tuple[Ints, Ints]:
        """Return the cuts before and behind some stages, given by their indices in the tables."""
        return self.first[chosen], self.end[chosen]

    def _peaks(self, kept: Ints, moment: Ints) -> Ints:
        return self.order.peaks(kept, moment)

    def _repeats_of(self, repeating: Repeating, kept: Ints, moment: Ints, whole: Ints) -> BranchedRepeats:
        problem = self.tables.problem
        allowed, last = problem.choices.recomputed, problem.training.recomputes_last
        return BranchedRepeats(self.order, repeating, kept, (moment, whole), allowed, last=last)


class StageOrder:
    """The layers of stages in their order: that of the graph.

    Up to any place in it, the layers of a stage are a stage again, as a downset's up to there are one.

    Parameters
    ----------
    family, stages
        The cuts, and the stages of at most so many layers.

    Attributes
    ----------
    opening, counts
        Place of the first layer of each stage, and how many layers it has.
    """

    def __init__(self, family: Family, stages: Differences) -> None:
        self.family, self.stages = family, stages
        words, places = family.between(stages.first, stages.end), np.arange(family.downsets.units)
        self._last = family.most(words, places)
        self.opening: Ints = places[-1] - family.most(words, places[::-1])
        self.counts: Ints = family.sizes[stages.end] - family.sizes[stages.first]
        by_count = np.argsort(self.counts, kind="stable")
        more = np.flatnonzero(np.diff(self.counts[by_count])) + 1
        self._longer = np.split(by_count, more)[1:]
        self._without = [self._before_last(each) for each in self._longer]

    def _before_last(self, entries: Ints) -> Ints:
        """Return stages without their last layers."""
        end = self.family.downsets.words[self.stages.end[entries]] ^ self.family.bit_of[self._last[entries]]
        return self.stages.entries(self.stages.first[entries], self.family.numbers(end))

    def peaks(self, kept: Ints, moment: Ints) -> Ints:
        """Return the most that the backward pass of one microbatch needs in each stage, as `Peaks` does for runs.

        That of the last layer, which all before it have kept something for, or that without it.
        """
        sums = self.family.sums(kept)
        peaks: Ints = sums[self.stages.end] - sums[self.stages.first] + moment[self._last]
        for entries, without in zip(self._longer, self._without, strict=True):
            peaks[entries] = np.maximum(peaks[entries], peaks[without])
        return peaks

    def last(self, first: Ints, end: Ints) -> Ints:
        """Return the places of the last layers of some stages."""
        found: Ints = self._last[self.stages.entries(first, end)]
        return found

    def split(self, first: Ints, end: Ints, place: Ints) -> Ints:
        """Return the cuts in some stages that have their layers up to a place before them."""
        words, before = self.family.downsets.words, self.family.places_up_to[place]
        return self.family.numbers(words[first] | (words[end] & before))


class BranchedRepeats:
    """Finds the fewest layers that have to recompute, for one kind and one way to shard, in any stages.

    Of a stage that recomputes, those layers do that come first in the order: up to some place. Layers up to there and
    layers behind it are stages, too, of which sums and peaks are known. As for runs of layers, no place is skipped but
    before that from which on a stage could fit if as little as possible was in use for a moment, and each is tried from
    there on.

    Parameters
    ----------
    order
        Of the stages.
    repeating, kept
        As for runs of layers.
    moments
        What is in use for a moment without recomputation, and what of it is there in either case.
    allowed, last
        As for runs of layers. Where the last layers recompute, each number of them is tried, from one on.
    """

    def __init__(
        self,
        order: StageOrder,
        repeating: Repeating,
        kept: Ints,
        moments: tuple[Ints, Ints],
        allowed: Allowed = None,
        *,
        last: bool = False,
    ) -> None:
        self.order, self.able, self.from_behind, family = order, repeating.able, last, order.family
        freed, (moment, whole) = kept - repeating.kept, moments
        self._count, self._most_freed = map(family.sums_up_to, (self.able.astype(np.int64), np.maximum(freed, 0)))
        self._freed = family.sums(freed)
        self._front_kept = family.sums(kept if last else repeating.kept)
        again = repeating.working + whole
        self._last = np.minimum(again, moment)
        self._again, self._plain = order.peaks(repeating.kept, again), order.peaks(kept, moment)
        self._least = order.peaks(np.minimum(repeating.kept, kept), self._last)
        self._following = following(int(self.able.sum()), allowed)

    def fewest(self, stages: Stages, flying: int) -> Ints:
        """Return how many layers of each stage recompute at least, 0 where no number of them makes it fit."""
        fewest = np.zeros(len(stages.first), dtype=np.int64)
        needed = stages.kept - self._most_kept(stages, flying)
        last = len(self.able) - 1
        able = self._up_to(self._count, stages, np.full_like(needed, last))
        place = self._reaches(self._most_freed, stages, needed)
        count = np.maximum(self._up_to(self._count, stages, np.minimum(place, last)), 1)
        count = np.where(place > last, able + 1, np.ones_like(count) if self.from_behind else count)
        count = first_allowed(self._following, count, able)
        left = np.flatnonzero(count <= able)
        rows, count, most = stages.pick(left), count[left], able[left]
        while len(left):
            fits = self.fits(rows, count, flying)
            fewest[left[fits]] = count[fits]
            count = first_allowed(self._following, count + 1, most)
            more = ~fits & (count <= most)
            left, rows, count, most = left[more], rows.pick(more), count[more], most[more]
        return fewest

    def _most_kept(self, stages: Stages, flying: int) -> Ints:
        """Return what each stage may keep at most, if as little as possible was in use for a moment."""
        entries, last = self._entries(stages.first, stages.end), self.order.last(stages.first, stages.end)
        most = most_kept(stages.room, self._least[entries], flying)
        least: Ints = np.minimum(most, (stages.room - self._last[last]) // flying)
        return least

    def _entries(self, first: Ints, end: Ints) -> Ints:
        return self.order.stages.entries(first, end)

    def fits(self, stages: Stages, count: Ints, flying: int) -> np.ndarray:
        """Return which stages fit of which so many layers recompute, at least one."""
        first, end, split = stages.first, stages.end, self._split(stages, count)
        front, rear = (self._plain, self._again) if self.from_behind else (self._again, self._plain)
        peak = np.full_like(stages.kept, -1)
        some = np.flatnonzero(split != first)
        peak[some] = front[self._entries(first[some], split[some])]
        some = np.flatnonzero(split != end)
        behind = rear[self._entries(split[some], end[some])]
        peak[some] = np.maximum(peak[some], self._front_kept[split[some]] - self._front_kept[first[some]] + behind)
        whole = self._freed[end] - self._freed[split] if self.from_behind else self._freed[split] - self._freed[first]
        fits: np.ndarray = stages.kept - whole <= most_kept(stages.room, peak, flying)
        return fits

    def _split(self, stages: Stages, count: Ints) -> Ints:
        """Return the cuts behind the layers that recompute, or before them where they are the last."""
        if not self.from_behind:
            return self.order.split(stages.first, stages.end, self._reaches(self._count, stages, count))
        able = self._up_to(self._count, stages, np.full_like(count, len(self.able) - 1))
        found, some = stages.first.copy(), np.flatnonzero(able > count)
        rows = stages.pick(some)
        place = self._reaches(self._count, rows, (able - count)[some])
        found[some] = self.order.split(rows.first, rows.end, place)
        return found

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

    def added(self, ticks: Ints, stages: Stages, count: Ints) -> Ints:
        """Return the ticks that so many layers of stages add, `NEVER` for none.

        Parameters
        ----------
        ticks
            Sums of those of the first 0, 1, ... layers that can recompute.
        """
        each = np.zeros(len(self.able), dtype=np.int64)
        each[self.able] = np.diff(ticks)
        sums, added = self.order.family.sums(each), np.full_like(count, NEVER)
        some = np.flatnonzero(count)
        rows = stages.pick(some)
        split = self._split(rows, count[some])
        added[some] = sums[rows.end] - sums[split] if self.from_behind else sums[split] - sums[rows.first]
        return added
