"""What a way to shard adds to stages in one place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.cost.exchanges import BACKWARD, FORWARD, GATHERS, SCATTERS
from nest.cost.overlap import left
from nest.problem import HELD
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Option, Ranks, Shares
from nest.tables.sums import prefix
from nest.units import Ints

KINDS = ("early", "ahead", "behind", "summed", "rest", "whole")
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
    early, late
        Ticks among ``least`` that each layer adds to the forward pass, and to gradients of weights where they are put
        off.
    ahead
        Ticks that the layer adds with which a stage begins, besides: nothing runs beside its weights on their way.
    behind
        What each layer exchanges for a backward pass, or for gradients of weights that are put off, hidden or not.
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
    early: Ints
    late: Ints
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
        own, rival = self.extra - self.early, other.least - other.early  # `sum` asks less than what is played
        if not (self.late <= other.late).all() or not (own - self.late <= rival - other.late).all():
            return False
        pairs = zip(self.again, other.again, strict=True)
        return all((np.diff(mine) <= np.diff(theirs)).all() for mine, theirs in pairs)


def way_of(
    tables: GroupedTables, option: Option, shares: Shares, weights: tuple[Ints, Ints], *, puts_off: bool = False
) -> ShardedWay:
    """Return what a way to shard adds.

    Parameters
    ----------
    weights
        Quanta of dense weights and of experts' of some stages, for which `summed` and `rest` are.
    puts_off
        As for `GroupedBand`.
    """
    zero, hidden, none = option.zero, tables.hidden, np.zeros(tables.layers, dtype=np.int64)
    ahead = tables.of_layers(FORWARD, shares, zero)
    behind = tables.of_layers(SCATTERS if puts_off else BACKWARD, shares, zero)
    early = left(ahead, tables.forward, hidden)
    late = left(behind, tables.weight, hidden) if puts_off and zero == 3 else none
    if zero == 3:
        back = left(ahead, tables.backward - tables.weight, hidden) if puts_off else none
        extra = least = early + late + (back if puts_off else left(behind, tables.backward, hidden))
    else:
        extra, least = none, np.maximum(left(behind, behind, hidden) - 1, 0)
        late = least if puts_off else none
    summed, rest = np.zeros_like(weights[0]), tables.step(shares.ranks, zero, *weights)
    for part, each in enumerate(weights):
        summed += tables.summed(shares, zero, part, each)
        rest += tables.once(GATHERS, shares, zero, part, each)
    again = _again(tables, zero, behind)
    whole = tables.whole(shares.ranks, zero)
    ticks = extra, least, early, late, ahead - early, behind
    return ShardedWay(option, shares.ranks, *ticks, again, summed, rest, whole)


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
