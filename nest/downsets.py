"""Downsets of a graph as bit sets: every one of them, or those that some topological orders pass through.

A downset holds, with a unit, all units before it. A stage is the difference of two, so that no stage waits for a later
one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nest.errors import LimitReached

Bools: TypeAlias = NDArray[np.bool_]
Words: TypeAlias = NDArray[np.uint64]

MOST_DOWNSETS = 60_000
"""How many are looked at, unless asked otherwise: their pairs grow with the square."""


class TooManyDownsets(LimitReached):
    """There are more downsets than the limit.

    Parameters
    ----------
    found
        How many were found before the search for more stopped.
    limit
        How many are taken.
    """

    def __init__(self, found: int, limit: int) -> None:
        self.found, self.limit = found, limit
        super().__init__(f"the graph has more than {limit} downsets: {found} were found before the count stopped")


@dataclass(frozen=True)
class Downsets:
    """A family of downsets that holds the empty one and the whole, by size.

    Parameters
    ----------
    sets
        Each as a number with a bit for each unit, smaller ones first.
    units
        How many units there are.
    complete
        Whether these are all there are.
    """

    sets: tuple[int, ...]
    units: int
    complete: bool

    @cached_property
    def words(self) -> Words:
        """The bits in words: a row for each downset."""
        return bits(self.sets, self.units)

    @cached_property
    def members(self) -> Bools:
        """Whether a downset holds a unit: a row for each downset, a column for each unit."""
        octets = self.words.view(np.uint8)
        return np.unpackbits(octets, axis=1, bitorder="little")[:, : self.units].astype(bool)


def bits(sets: Sequence[int], units: int) -> Words:
    """Return sets as rows of words of 64 bits."""
    count = max(1, -(-units // 64))
    data = b"".join(one.to_bytes(8 * count, "little") for one in sets)
    return np.frombuffer(data, dtype="<u8").reshape(len(sets), count)


def members_of(units: int) -> Iterator[int]:
    """Yield the units of a bit set, ascending."""
    while units:
        low = units & -units
        yield low.bit_length() - 1
        units ^= low


def all_downsets(before: Sequence[int], limit: int = MOST_DOWNSETS) -> Downsets:
    """Enumerate downsets size by size.

    Parameters
    ----------
    before
        For each unit, the units right before it as bits.

    Raises
    ------
    TooManyDownsets
        If there are more than ``limit``.
    """
    after = _after(before)
    ready = sum(1 << unit for unit, needs in enumerate(before) if not needs)
    layer, found = {0: ready}, [0]
    while layer:
        larger: dict[int, int] = {}
        for downset, free in layer.items():
            _grow(downset, free, before, after, larger)
            if len(found) + len(larger) > limit:
                raise TooManyDownsets(len(found) + len(larger), limit)
        found.extend(larger)
        layer = larger
    return Downsets(tuple(found), len(before), complete=True)


def downsets_along(orders: Iterable[Sequence[int]], units: int) -> Downsets:
    """Return the downsets that are beginnings of topological orders."""
    found = {0}
    for order in orders:
        downset = 0
        for unit in order:
            downset |= 1 << unit
            found.add(downset)
    return Downsets(tuple(sorted(found, key=lambda one: (one.bit_count(), one))), units, complete=False)


def topological_orders(before: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return a few topological orders: breadth first, branch after branch, and both from the other end."""
    after = _after(before)
    forward = [_order(before, after, last) for last in (False, True)]
    backward = [tuple(reversed(_order(after, before, last))) for last in (False, True)]
    return tuple(dict.fromkeys(forward + backward))


def _after(before: Sequence[int]) -> list[int]:
    after = [0] * len(before)
    for unit, needs in enumerate(before):
        for earlier in members_of(needs):
            after[earlier] |= 1 << unit
    return after


def _grow(downset: int, free: int, before: Sequence[int], after: Sequence[int], larger: dict[int, int]) -> None:
    """Add every downset that has one unit more, with the units that are free to follow."""
    for unit in members_of(free):
        grown = downset | 1 << unit
        if grown not in larger:
            larger[grown] = (free ^ 1 << unit) | _freed(grown, after[unit], before)


def _freed(downset: int, following: int, before: Sequence[int]) -> int:
    free = 0
    for unit in members_of(following):
        if not before[unit] & ~downset:
            free |= 1 << unit
    return free


def _order(before: Sequence[int], after: Sequence[int], last: bool) -> tuple[int, ...]:
    """Return a topological order that goes on with the unit freed last, or with the one freed first."""
    queue = [unit for unit, needs in enumerate(before) if not needs]
    downset, order = 0, []
    while queue:
        unit = queue.pop(-1 if last else 0)
        order.append(unit)
        downset |= 1 << unit
        queue.extend(members_of(_freed(downset, after[unit], before)))
    return tuple(order)


def topological(count: int, places: Iterable[tuple[int, int]]) -> list[int]:
    """Return so many nodes in topological order, of those that may come next the first; on a cycle, not all of them.

    Parameters
    ----------
    count
        Of nodes, which are numbers from 0 on.
    places
        Source and target of each edge.
    """
    follow: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for source, target in places:
        follow[source].append(target)
        waiting[target] += 1
    ready = [node for node, before in enumerate(waiting) if before == 0]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for target in follow[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(ready, target)
    return order
