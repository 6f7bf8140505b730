"""The bytes that stages of one variant send over a level of the network in an iteration (D16), as tables.

By rule C13 (nesting) a collective inside a block sends the same wherever it stands, and so do the holders of weights
for each rank of a block: one of them is looked at, and counts as often as there are like it. The judge looks at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import EACH_MICROBATCH, GATHERS, Exchange, axis_group, copies_of, sums
from nest.cost.groups import Spread
from nest.forms import Form
from nest.graph import Collective, CollectiveKind
from nest.places import Placing
from nest.tables.banded import GroupedBand
from nest.tables.chunked import Again, ChunkedBand
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Holders, Option
from nest.tables.sums import prefix
from nest.units import Floats, Ints

MOST_SENT = 2**60
"""More bytes are not counted."""


class Boundaries(NamedTuple):
    """In how many replicas boundaries of a plan cross the level.

    Parameters
    ----------
    before
        That before each stage, from the first of the pipeline on; none is before the first.
    around
        That between the last stage and the first, which is there between chunks.
    """

    before: tuple[int, ...]
    around: int


class _Groups(NamedTuple):
    """How the ranks that hold copies of a weight are spread, and how often: as `nest.tables.shares.Part`."""

    within: Counter[Spread]
    across: Counter[Spread]


class Crossing:
    """What goes over one level, or one outside it.

    Parameters
    ----------
    tables
        Of the variant.
    level
        Number of the level.

    Raises
    ------
    OverflowError
        If layers send more than `MOST_SENT`; its methods raise it of stages.
    """

    def __init__(self, tables: GroupedTables, level: int) -> None:
        self.tables, self.level, self.exchanges = tables, level, tables.exchanges
        layers = tables.graph.layers
        self._inside = self._of_collectives([layer.collectives for layer in layers])
        again = [[layer.again(each.kind) for layer in layers] for each in tables.repeating]
        repeated = [self._of_collectives([each.collectives if each else () for each in found]) for found in again]
        pairs = zip(tables.repeating, repeated, strict=True)
        self._again = tuple(prefix(sent[np.flatnonzero(each.able)]) for each, sent in pairs)
        self._hop, self._gathered = self._of_boundaries()
        self._known: dict[tuple[Holders, int], tuple[_Groups, _Groups]] = {}

    def boundaries(self, stages: int, replicas: int, placing: Placing) -> Boundaries:
        """Return how often boundaries cross the level in a placing."""
        first = np.array(placing.starts(stages), dtype=np.int64)
        starts = placing.line.devices(first[:, None] + placing.stride * np.arange(replicas, dtype=np.int64))
        spans = self.tables.problem.cluster.spans
        before = (spans(starts[:-1], starts[1:]) >= self.level).sum(axis=1).tolist()
        return Boundaries((0, *before), int((spans(starts[0], starts[-1]) >= self.level).sum()))

    def sent(self, band: GroupedBand, holders: Holders, option: Option, crossed: tuple[int, int]) -> Ints:
        """Return the bytes of each stage in all replicas, recomputation apart, and the boundary behind it.

        Parameters
        ----------
        holders
            Where its replicas are.
        option
            How it shards.
        crossed
            In how many replicas the boundary before it crosses the level, and that between first and last stage.
        """
        replicas = holders.replicas
        layers = replicas * self._inside + self._exchanged(holders, option)
        boundary = crossed[0] * self._hop + replicas * self._gathered  # before each chunk, where there are several
        microbatches = self._microbatches(replicas)
        once = self._once(holders, option, band.loads_of_weights[:2])
        tied = crossed[1] * self._of_ends(band.tied)
        most = microbatches * (float(layers.sum()) + float(boundary.sum())) + float(once.max() + tied.max())
        if most >= MOST_SENT:
            raise OverflowError("more bytes cross the level than can be counted")
        total: Ints = microbatches * (band.sums(layers) + band.opened(boundary)) + band.spread_out(once) + tied
        return total

    def again(self, band: GroupedBand, option: Option, at: int, replicas: int, count: Ints) -> Ints:
        """Return what is sent besides where so many layers of each stage recompute, in one way.

        Parameters
        ----------
        at
            Place of what they recompute in `GroupedTables.repeating`.
        """
        sent: Ints = self._microbatches(replicas) * replicas * band.sums_again(option, at, self._again[at], count)
        return sent

    def again_in_chunks(self, band: ChunkedBand, at: int, again: Again, replicas: int) -> int:
        """Return what is sent besides where a stage with chunks computes something again."""
        each = band.sum_again(at, again, self._again[again.kind - 1]) if again.kind else 0
        return self._microbatches(replicas) * replicas * each

    def _microbatches(self, replicas: int) -> int:
        return -(-self.tables.microbatches // replicas)

    def _of_collectives(self, sets: list[tuple[Collective, ...]]) -> Ints:
        """Return what collectives of layers send in one block."""
        known = {each: sum(map(self._of_collective, each)) for each in set(sets)}
        return np.array([known[each] for each in sets], dtype=np.int64)

    def _of_collective(self, each: Collective) -> int:
        step, count = axis_group(self.tables.variant, each.axis)
        group = self.tables.sharing.axis(step, count)
        size = np.array([float(each.bytes)])
        return self.tables.width // count * int(self._counted(each.kind, Counter([group]), size)[0])

    def _of_boundaries(self) -> tuple[Ints, Ints]:
        """Return for each cut what a replica sends where its boundary crosses the level, and to gather parts."""
        variant, sizes = self.tables.variant, self.tables.bytes_of(self.tables.alive)
        hop = 2 * self.tables.width * np.rint(self.exchanges.transferred((variant, variant), (sizes, sizes)))
        gathered = np.zeros_like(hop)
        if self.exchanges.gathers(variant):
            groups = 2 * self.tables.width // variant.tensor  # at either end of the boundary
            own = self.tables.sharing.axis(1, variant.tensor)
            gathered = groups * self._counted("all-gather", Counter([own]), sizes)
        hop[[0, -1]] = gathered[[0, -1]] = 0  # nothing is before the first cut or behind the last
        return _whole(hop), _whole(gathered)

    def _exchanged(self, holders: Holders, option: Option) -> Ints:
        """Return what those that hold copies of each layer's weights exchange for a microbatch."""
        kinds, (dense, expert) = EACH_MICROBATCH[option.zero], self._groups(holders, option.together)
        sent = self._of_holders(kinds, dense.within, self.tables.dense)
        return _whole(sent + self._of_holders(kinds, expert.within, self.tables.expert))

    def _once(self, holders: Holders, option: Option, weights: tuple[Ints, Ints]) -> Ints:
        """Return what stages of so many quanta of weights exchange once per iteration."""
        kinds = (*sums(self.tables.problem.training)[option.zero], *GATHERS[option.zero])
        ranks, total = self.tables.ranks(option.together), np.zeros(len(weights[0]))
        for groups, held, degree in zip(self._groups(holders, option.together), weights, ranks, strict=True):
            total += self._of_holders(kinds, groups.within, held)
            shard = self.tables.bytes_of(held) * self.tables.times("gradients") / degree
            total += self._counted("all-reduce", groups.across, shard)
        return _whole(total)

    def _of_holders(self, kinds: Iterable[Exchange], groups: Counter[Spread], weights: Ints) -> Floats:
        sizes, total = self.tables.bytes_of(weights), np.zeros(len(weights))
        for kind, part in kinds:
            total += self._counted(kind, groups, sizes * self.tables.times(part))
        return total

    def _of_ends(self, tied: Ints) -> Ints:
        """Return what the devices of a replica and their counterparts send to sum the gradients of copies.

        Two devices send all bytes twice, whatever the algorithm, and whichever level joins them.
        """
        sizes = self.tables.bytes_of(tied) * self.tables.times("gradients")
        pair = Counter([self.exchanges.pair(self.level)])
        return _whole(self.tables.width * self._counted("all-reduce", pair, sizes.ravel())).reshape(tied.shape)

    def _counted(self, kind: CollectiveKind, groups: Counter[Spread], sizes: Floats) -> Floats:
        """Return what all of some groups send in collectives of so many bytes."""
        total = np.zeros(len(sizes))
        for group, times in groups.items():
            total += times * self.exchanges.sent_over(self.level, kind, group, sizes)
        return total

    def _groups(self, holders: Holders, together: int) -> tuple[_Groups, _Groups]:
        """Return how the ranks are spread that hold copies of dense weights, and of an expert's."""
        key = holders, together
        if key not in self._known:
            across = self._across(holders, together)
            dense, expert = (self._within(holders, together, expert=own) for own in (False, True))
            self._known[key] = _Groups(dense, across), _Groups(expert, across)
        return self._known[key]

    def _within(self, holders: Holders, together: int, *, expert: bool) -> Counter[Spread]:
        """Return how those are spread that share a weight between them, for all weights of the blocks."""
        step = holders.stride * together
        firsts = holders.place + step * np.arange(holders.replicas // together, dtype=np.int64)
        apart, found = holders.stride * np.arange(together, dtype=np.int64), Counter[Spread]()
        copies = self.tables.problem.copies(self.tables.variant, expert=expert)
        groups = self.tables.width // copies[0]
        for first, times in self._alike(holders, firsts):
            blocks = holders.line.devices(first + apart)
            found[self.exchanges.spread(copies_of(copies, Form(self.tables.variant), blocks))] += times * groups
        return found

    def _across(self, holders: Holders, together: int) -> Counter[Spread]:
        """Return how those are spread that have the same share in different groups."""
        found = Counter[Spread]()
        if together == holders.replicas:
            return found
        firsts = holders.place + holders.stride * np.arange(together, dtype=np.int64)
        step = holders.stride * together
        apart = step * np.arange(holders.replicas // together, dtype=np.int64)
        for first, times in self._alike(holders, firsts):
            found[self.exchanges.spread(np.sort(holders.line.devices(first + apart)))] += times * self.tables.width
        return found

    def _alike(self, holders: Holders, firsts: Ints) -> Iterable[tuple[int, int]]:
        """Yield where groups begin that are spread in different ways, and how many are spread so."""
        if holders.line.shifts:
            return [(first, 1) for first in firsts.tolist()]
        places = Counter((firsts % self.tables.problem.cluster.period).tolist())
        return places.items()


def _whole(sent: Floats) -> Ints:
    """Return numbers of bytes that are whole already.

    Raises
    ------
    OverflowError
        If they are more than is counted.
    """
    if sent.max(initial=0.0) >= MOST_SENT:
        raise OverflowError("more bytes cross the level than can be counted")
    found: Ints = sent.astype(np.int64)
    return found
