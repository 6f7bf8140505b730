"""What a limit on the objective leaves of the stages of an outer choice, and what all its plans take at least.

A stage is in a plan below a limit only if the least sum of loads of a path through it, the largest load that no path
avoids, and the synchronisation that none avoids leave room for it. These are consequences of the rules alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nest.milp.sum_choices import AnyChoice, SumChoice
from nest.milp.sum_kinds import AnyWays
from nest.milp.sum_stages import StageWays
from nest.milp.sum_ways import Ways
from nest.units import HARD_LIMIT, LONGEST, NEVER, Ints


@dataclass(frozen=True)
class Room:
    """An outer choice with the stages of plans below a limit.

    Attributes
    ----------
    ways
        By position from the end; some position has none where there is no such plan.
    least
        Ticks that every plan takes at least, as far as it is below the limit.
    most
        Bytes that all stages together may send, by column of `Ways.sent`.
    """

    choice: AnyChoice
    ways: list[Ways]
    least: int
    most: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many stages there are."""
        return sum(len(each.first) for each in self.ways)

    @property
    def empty(self) -> bool:
        """Whether there is no path."""
        return any(len(each.first) == 0 for each in self.ways)


def room_below(stages: AnyWays, choice: AnyChoice, limit: int) -> Room:
    """Return what there is of an outer choice below a limit."""
    positions = stages.below(choice, limit)
    return narrowed(Room(choice, positions, stages.work, stages.most_sent), stages.cuts_of(choice), limit)


def bare_bound(stages: AnyWays, choice: AnyChoice, limit: int) -> int:
    """Return ticks that all plans of an outer choice below a limit take at least, or the limit; 0 where unknown.

    As if stages did nothing but pass microbatches on, which is soon known. It is not known of chunks, whose cut says
    more, and of stages with widths of their own.
    """
    if not (isinstance(stages, StageWays) and isinstance(choice, SumChoice) and choice.chunks == 1):
        return 0
    most = choice.most_load(stages.work, limit)
    if most < 0:
        return limit
    return narrowed(Room(choice, stages.bare(choice, most), stages.work), stages.cuts_of(choice), limit).least


def narrowed(room: Room, cuts: int, limit: int) -> Room:
    """Return what there is below a limit of what there is below a higher one."""
    size = -1
    while room.size != size and not room.empty:
        size = room.size
        room = _narrowed(room, cuts, limit)
    return room


def _narrowed(room: Room, cuts: int, limit: int) -> Room:
    """Return what is left if each stage has to leave room for what no path through it avoids."""
    ways, choice = room.ways, room.choice
    sums = _through([(each, each.load) for each in ways], cuts, np.add)
    loads = _through([(each, each.load) for each in ways], cuts, np.maximum)
    syncs = _through([(each, each.sync) for each in ways], cuts, np.maximum)
    within = _within_bytes(room, cuts)
    kept, least = list[Ways](), NEVER
    for each, total, load, sync, may in zip(ways, sums, loads, syncs, within, strict=True):
        open_ = may & (total < NEVER) & (load < LONGEST)
        objective = choice.takes(total, np.where(open_, load, 0), sync)
        rough = total + choice.further * load.astype(np.float64) + sync
        fits = open_ & (rough < 2.0 * HARD_LIMIT) & (objective < limit)
        kept.append(each.pick(fits))
        least = min(least, int(objective[fits].min(initial=NEVER)))
    return replace(room, ways=kept, least=max(room.least, min(least, limit)))


def _within_bytes(room: Room, cuts: int) -> list[np.ndarray]:
    """Return which stages are on a path that sends no more bytes than it may, by position."""
    within = [np.ones(len(each.first), dtype=bool) for each in room.ways]
    for column, most in enumerate(room.most):
        sums = _through([(each, each.sent[:, column]) for each in room.ways], cuts, np.add)
        within = [may & (sent <= min(most, NEVER - 1)) for may, sent in zip(within, sums, strict=True)]
    return within


def _through(stages: list[tuple[Ways, Ints]], cuts: int, join: np.ufunc) -> list[Ints]:
    """Return the least value of a path through each stage, by position; `NEVER` where there is none.

    Parameters
    ----------
    join
        How the values of stages make that of a path: their sum, or the largest.
    """
    behind, before = [_start(cuts, cuts - 1)], [_start(cuts, 0)]
    for ways, values in stages:
        behind.append(_least(cuts, ways.first, _joined(join, values, behind[-1][ways.end])))
    for ways, values in reversed(stages):
        before.append(_least(cuts, ways.end, _joined(join, values, before[-1][ways.first])))
    before.reverse()
    return [
        _joined(join, _joined(join, values, behind[at][ways.end]), before[at + 1][ways.first])
        for at, (ways, values) in enumerate(stages)
    ]


def _start(cuts: int, at: int) -> Ints:
    row = np.full(cuts, NEVER, dtype=np.int64)
    row[at] = 0
    return row


def _joined(join: np.ufunc, values: Ints, others: Ints) -> Ints:
    """Return two parts of a path as one, at most `NEVER`: there is none where there is no other part."""
    found: Ints = np.where(others < NEVER, join(values, np.minimum(others, NEVER - 1)), NEVER)
    return np.minimum(found, NEVER)


def _least(cuts: int, at: Ints, values: Ints) -> Ints:
    row = np.full(cuts, NEVER, dtype=np.int64)
    np.minimum.at(row, at, values)
    return row
