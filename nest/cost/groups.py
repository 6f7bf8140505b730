"""Where a group of devices sits on the levels: what a collective's time depends on, apart from its size.

A device's bandwidth at a level is its own: neighbours in other groups that communicate at the same time do not share
it (each has its NIC, and an oversubscribed level is given as what remains for each). So a child of a level, a group of
the level below it, that holds ``m`` members of the group sends ``m`` times the bandwidth of one device up that level.
`instances` says how many such groups run side by side on that assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nest.cluster import Cluster
from nest.errors import InvalidProblem
from nest.units import Ints


@dataclass(frozen=True, slots=True)
class Group:
    """Devices at equal distances on the line.

    Parameters
    ----------
    start
        Place of the first.
    stride
        From one to the next: 1 for tensor parallel, the tensor width for context parallel, tensor x context for
        expert parallel, the stride of the replicas for data parallel.
    count
        How many.

    Raises
    ------
    InvalidProblem
        If a figure is out of range.
    """

    start: int
    stride: int
    count: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.stride < 1 or self.count < 1:
            what = f"{self.count} devices from {self.start} in steps of {self.stride}"
            raise InvalidProblem("group", what, "give a start from 0, a stride and a count from 1")

    @property
    def places(self) -> Ints:
        """Place of each member, ascending."""
        return self.start + self.stride * np.arange(self.count, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Spread:
    """How the members of a group are spread over the levels.

    A *child* of a level is a group of the level below it, or a device for the innermost level; only children that hold
    members count. All but `count` and `symmetric` have one value for each level.

    Parameters
    ----------
    count
        Members.
    parts
        Most children in one group of the level: 1 where the collective does not use the level.
    least, most
        Fewest and most members in a child.
    hops
        Steps at exactly this level when a ring passes all members in their order on the line and closes.
    symmetric
        Whether all children of each level hold equally many members.
    """

    count: int
    parts: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]
    hops: tuple[int, ...]
    symmetric: bool

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels that the collective uses, innermost first."""
        return tuple(level for level, parts in enumerate(self.parts) if parts > 1)

    def children(self, level: int) -> int:
        """Return the children of a level that have members, in all groups of the level together; 1 for a single one."""
        return max(1, sum(self.hops[level:]))

    def peers(self, level: int) -> int:
        """Return the members that a member reaches through the level and no further, for the one that climbs most."""
        beyond = self.least[level + 1] if level + 1 < len(self.least) else self.count
        return beyond - self.least[level]


def spread(cluster: Cluster, members: Group | Sequence[int] | Ints) -> Spread:
    """Return how a group is spread over the levels of a cluster.

    Raises
    ------
    InvalidProblem
        If a member is not in the cluster, or appears twice.
    """
    places = members.places if isinstance(members, Group) else np.sort(np.asarray(members, dtype=np.int64))
    if len(places) == 0 or places[0] < 0 or places[-1] >= cluster.devices:
        raise InvalidProblem("group", f"members {members}", f"give some of devices 0 to {cluster.devices - 1}")
    children, held = places, np.ones(len(places), dtype=np.int64)
    if (places[1:] == places[:-1]).any():
        raise InvalidProblem("group", f"members {members}", "give each device once")
    parts, least, most, occupied = [], [], [], []
    for level in cluster.levels:
        groups, sizes, sums = _merged(children // level.fanout, held)
        parts.append(int(sizes.max()))
        least.append(int(held.min()))
        most.append(int(held.max()))
        occupied.append(len(children))
        children, held = groups, sums
    climbs = [count if count > 1 else 0 for count in (*occupied, 1)]
    hops = tuple(low - high for low, high in pairwise(climbs))
    return Spread(len(places), tuple(parts), tuple(least), tuple(most), hops, least == most)


def instances(cluster: Cluster, spread: Spread, level: int) -> int:
    """Return how many groups like this one share the way up from a child of the level, each with its own devices."""
    size = 1 if level == 0 else cluster.group_sizes[level - 1]
    return size // spread.most[level]


def _merged(owners: Ints, held: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the distinct owners of ascending ones, how often each appears, and the sum of what each holds."""
    ends = np.append(np.flatnonzero(owners[1:] != owners[:-1]) + 1, len(owners))
    first = np.concatenate([[0], ends[:-1]])
    return owners[first], ends - first, np.add.reduceat(held, first)
