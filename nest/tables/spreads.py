"""How groups are spread that many first blocks begin, each of blocks at equal distances: all of them at once.

Whoever holds copies of a weight is in blocks at equal distances, in the same places of each. By rule C13 (nesting) a
block lies within one group of each level, or is made up of whole groups; so what a level sees follows from how many
blocks a group has, which is counted here without looking at a single device. The judge looks at all of them
(`nest.cost.groups.spread`).
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np

from nest.cluster import Cluster
from nest.cost.groups import Spread
from nest.forms import Variant
from nest.units import Ints


class Members(NamedTuple):
    """Places of the members of a group within each of its blocks: ``0``, ``apart``, ``2 apart``, ...

    Parameters
    ----------
    ranks, apart
        How many there are, and from one to the next; a single one for a distance of 1.
    times, leap
        How often they are there, and from one time to the next.
    """

    ranks: int
    apart: int
    times: int = 1
    leap: int = 1

    @classmethod
    def of(cls, variant: Variant, copies: tuple[int, int], inside: int) -> Members:
        """Return where a block has copies of a weight that its first device has.

        Parameters
        ----------
        copies
            How many there are in each part of the block, and how far each is from the next (`Problem.copies`).
        inside
            How many such parts a block has: times as many devices as its widths make.
        """
        ranks, apart = copies
        times = inside
        if ranks * apart == variant.width:  # from part to part it is as far as within one
            ranks, times = ranks * inside, 1
        if ranks == 1 and times > 1:
            return cls(times, variant.width)
        return cls(ranks, apart if ranks > 1 else 1, times, variant.width if times > 1 else 1)

    @property
    def held(self) -> int:
        """How many there are in a block."""
        return self.ranks * self.times

    @property
    def places(self) -> Ints:
        """All of them."""
        again = self.leap * np.arange(self.times, dtype=np.int64)
        found: Ints = (again[:, None] + self.apart * np.arange(self.ranks, dtype=np.int64)).ravel()
        return found

    @property
    def reach(self) -> int:
        """Devices from a block's first to that behind the last that counts, where they are there once."""
        return self.ranks * self.apart


class _Seen(NamedTuple):
    """What a level sees of each group: its own groups that have members are its *owners*.

    Parameters
    ----------
    owners
        How many there are.
    least, most
        Fewest and most members in one.
    parts
        Most owners of the level below, or members, in one.
    """

    owners: Ints
    least: Ints
    most: Ints
    parts: Ints


def spreads(cluster: Cluster, members: Members, starts: Ints, step: int, count: int) -> tuple[Spread, ...]:
    """Return how groups are spread, different ones only, in the order in which they come first.

    Parameters
    ----------
    members
        Of each group in each of its blocks, where they are there once.
    starts
        The first device of each group's first block: multiples of `Members.reach`, as is ``step``.
    step, count
        Devices from block to block, and how many blocks a group has.
    """
    seen = _levels(cluster, members, _alike(cluster, starts, step), step, count)
    rows = np.stack([value for level in seen for value in level], axis=1)
    return tuple(_spread(count * members.ranks, row) for row in dict.fromkeys(map(tuple, rows.tolist())))


def _alike(cluster: Cluster, starts: Ints, step: int) -> Ints:
    """Return starts no two of which are alike: groups end at multiples of what divides them and the step."""
    same = gcd(step, *(size for size in cluster.group_sizes if size > step))
    return np.array(list(dict.fromkeys((starts // same * same).tolist())), dtype=np.int64)


def _spread(count: int, row: tuple[int, ...]) -> Spread:
    owners, least, most, parts = (row[at::4] for at in range(4))
    climbs = [each if each > 1 else 0 for each in (count, *owners)]
    hops = tuple(low - high for low, high in pairwise(climbs))
    least, most = (1, *least[:-1]), (1, *most[:-1])
    return Spread(count, parts, least, most, hops, least == most)


def _levels(cluster: Cluster, members: Members, starts: Ints, step: int, count: int) -> list[_Seen]:
    found, inside, below = list[_Seen](), members.ranks, 1
    for size in cluster.group_sizes:
        if size <= members.reach:  # a block is made up of whole groups
            held = max(1, size // members.apart)
            seen = _like(starts, count * members.ranks // held, held, inside * held // members.ranks)
            inside = members.ranks // held
        elif size <= step:  # no two blocks are in one group
            seen, inside = _like(starts, count, members.ranks, inside), 1
        else:
            blocks = _blocks(starts, step, count, size)
            parts = (
                blocks.most * inside
                if below <= max(step, members.reach)
                else _children(starts, step, count, size // below, below)
            )
            seen = _Seen(blocks.owners, blocks.least * members.ranks, blocks.most * members.ranks, parts)
        found.append(seen)
        below = size
    return found


def _like(starts: Ints, owners: int, held: int, parts: int) -> _Seen:
    """Return what a level sees that sees the same of all groups."""
    return _Seen(*(np.full_like(starts, value) for value in (owners, held, held, parts)))


def _blocks(starts: Ints, step: int, count: int, size: int) -> _Seen:
    """Return what groups of more devices than a step see of blocks, in the place of members."""
    first, last = starts // size, (starts + step * (count - 1)) // size
    head = np.minimum(-((starts - (first + 1) * size) // step), count)
    tail = np.where(last > first, count + (starts - last * size) // step, head)
    least, most = np.minimum(head, tail), np.maximum(head, tail)
    whole, rest = divmod(size, step)
    between = last - first - 1
    if (longest := int(between.max(initial=0))) > 0:
        turns = np.arange(1, min(longest, step // gcd(step, size)) + 1)
        more = (starts[:, None] - (first[:, None] + turns) * size) % step < rest
        there = turns <= between[:, None]
        some = between > 0
        least = np.where(some, np.minimum(least, whole + (more | ~there).all(axis=1)), least)
        most = np.where(some, np.maximum(most, whole + (more & there).any(axis=1)), most)
    return _Seen(last - first + 1, least, most, most)


def _children(starts: Ints, step: int, count: int, fanout: int, size: int) -> Ints:
    """Return the most groups of a level in one of the next, where all between the first and the last have members."""
    first, last = starts // size, (starts + step * (count - 1)) // size
    owners = last // fanout - first // fanout
    head, tail = fanout - first % fanout, last % fanout + 1
    several = np.where(owners > 1, fanout, np.maximum(head, tail))
    return np.where(owners == 0, last - first + 1, several)
