"""What a way to shard adds to stages in one place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.cost.exchanges import BACKWARD, FORWARD, GATHERS
from nest.cost.overlap import left
from nest.problem import HELD
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Option, Ranks, Shares
from nest.tables.sums import prefix
from nest.units import Ints

KINDS = ("ahead", "behind", "summed", "rest", "whole")
"""What never is worse where it is less, besides loads."""


@dataclass(frozen=True, eq=False, slots=True)
class ShardedWay:
    """A way to shard in one place.

    Parameters
    ----------
    option, ranks
        ZeRO type, and over how many ranks.
    extra
        Ticks that each layer adds for each microbatch, as far as they add up: not of type 2.
    least
        As many at least, of type 2 as well.
    ahead
        Ticks that the layer adds with which a stage begins, besides: nothing runs beside its weights on their way.
    behind
        What each layer exchanges for a backward pass, whether it is hidden or not.
    again
        By kind of recomputation, in the order of `GroupedTables.repeating`: sums of the ticks that the first 0, 1, ...
        layers add which can recompute.
    summed, rest
        By pair of `GroupedBand.loads_of_weights`: what gradients take once per iteration, and all else that does.
    whole
        Quanta of each layer that are whole for a moment.
    """

    option: Option
    ranks: Ranks
    extra: Ints
    least: Ints
    ahead: Ints
    behind: Ints
    again: tuple[Ints, ...]
    summed: Ints
    rest: Ints
    whole: Ints

    def beats(self, other: ShardedWay) -> bool:
        """Whether no stage is better off with another way: none takes less memory, load or synchronisation with it."""
        held = [way.option.zero == HELD and tuple(degree > 1 for degree in way.ranks) for way in (self, other)]
        more = self.option.zero >= other.option.zero and min(np.subtract(self.ranks, other.ranks)) >= 0
        more = more and held[0] == held[1]  # what is held besides may be more than what is sharded
        if not more or not all((getattr(self, name) <= getattr(other, name)).all() for name in KINDS):
            return False
        if self.option.zero == 2:
            return other.option.zero == 2  # what is less behind a stage leaves less, whatever runs beside it
        own, rival = self.extra, other.least
        if not (own <= rival).all():
            return False
        pairs = zip(self.again, other.again, strict=True)
        return all((np.diff(mine) <= np.diff(theirs)).all() for mine, theirs in pairs)


def way_of(tables: GroupedTables, option: Option, shares: Shares, weights: tuple[Ints, Ints]) -> ShardedWay:
    """Return what a way to shard adds.

    Parameters
    ----------
    weights
        Quanta of dense weights and of experts' of some stages, for which `summed` and `rest` are.
    """
    zero, hidden = option.zero, tables.hidden
    ahead, behind = (tables.of_layers(by_type, shares, zero) for by_type in (FORWARD, BACKWARD))
    shown = left(ahead, tables.forward, hidden)
    extra = shown + left(behind, tables.backward, hidden) if zero == 3 else np.zeros_like(behind)
    least = extra if zero == 3 else np.maximum(left(behind, behind, hidden) - 1, 0)
    summed, rest = np.zeros_like(weights[0]), tables.step(shares.ranks, zero, *weights)
    for part, each in enumerate(weights):
        summed += tables.summed(shares, zero, part, each)
        rest += tables.once(GATHERS, shares, zero, part, each)
    again = _again(tables, zero, behind)
    whole = tables.whole(shares.ranks, zero)
    return ShardedWay(option, shares.ranks, extra, least, ahead - shown, behind, again, summed, rest, whole)


def _again(tables: GroupedTables, zero: int, behind: Ints) -> tuple[Ints, ...]:
    """Return what recomputation adds: less where weights and gradients are on their way beside it (type 3)."""
    found = []
    for each in tables.repeating:
        ticks = each.ticks
        if zero == 3:
            with_it, without = (
                left(behind, beside, tables.hidden) for beside in (tables.backward + ticks, tables.backward)
            )
            ticks = ticks + with_it - without
        found.append(prefix(ticks[np.flatnonzero(each.able)]))
    return tuple(found)
