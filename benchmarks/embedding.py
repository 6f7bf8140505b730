"""Whether a pattern of transfers can be laid onto a network so that each kind of transfer takes at most so long.

Exact: a search that gives every rank a device of its own, with the devices that are left for a rank as bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from nest.units import Floats, Ints


@dataclass(frozen=True)
class Pattern:
    """Who sends to whom.

    Parameters
    ----------
    ranks
        How many there are.
    kinds
        For each kind of transfer, its pairs of ranks (two columns).
    """

    ranks: int
    kinds: tuple[Ints, ...]

    def near(self) -> list[list[tuple[int, int]]]:
        """Return for each rank the kinds of its transfers and the ranks at their other ends."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.ranks)]
        for kind, pairs in enumerate(self.kinds):
            for one, other in pairs.tolist():
                found[one].append((kind, other))
                found[other].append((kind, one))
        return found


def within(seconds: Floats, limit: float) -> list[int]:
    """Return for each device, as bits, the others that a transfer reaches within a time."""
    reached = (seconds <= limit) & ~np.eye(len(seconds), dtype=bool)
    return [sum(1 << int(at) for at in np.flatnonzero(row)) for row in reached]


def fits(pattern: Pattern, reach: Sequence[Sequence[int]], starts: Sequence[int]) -> bool:
    """Whether the ranks can have devices so that every transfer is within reach, by kind as `within` says it.

    Parameters
    ----------
    starts
        Devices of which every other is an image under some symmetry of the network: the first rank is tried there only.
    """
    near, everywhere = pattern.near(), (1 << len(reach[0])) - 1
    twins = _twins(reach)

    def placed(domains: dict[int, int], free: int) -> bool:
        if not domains:
            return True
        rank = min(domains, key=lambda each: ((domains[each] & free).bit_count(), -len(near[each])))
        here, tried = domains[rank] & free, 0
        if len(domains) == pattern.ranks:
            here &= sum(1 << start for start in starts)
        while here:
            bit = here & -here
            here ^= bit
            device = bit.bit_length() - 1
            if tried >> twins[device] & 1:
                continue  # a free device that reaches the same ones failed
            tried |= 1 << twins[device]
            left = {each: domain for each, domain in domains.items() if each != rank}
            for kind, other in near[rank]:
                if other in left:
                    left[other] &= reach[kind][device]
            rest = free ^ bit
            if all(domain & rest for domain in left.values()) and placed(left, rest):
                return True
        return False

    return _connects(pattern, reach) and placed(dict.fromkeys(range(pattern.ranks), everywhere), everywhere)


def orbits(seconds: Floats) -> list[int]:
    """Return one device of each set of devices that see the network alike, as far as refining their views tells.

    On rings, tori, meshes and trees of equal switches these are the sets that symmetries join.
    """
    colours = [0] * len(seconds)
    while True:
        views = [
            (colours[at], tuple(sorted(zip(row.tolist(), colours, strict=True)))) for at, row in enumerate(seconds)
        ]
        names = {view: name for name, view in enumerate(dict.fromkeys(views))}
        refined = [names[view] for view in views]
        if len(set(refined)) == len(set(colours)):
            return [refined.index(colour) for colour in sorted(set(refined))]
        colours = refined


def _twins(reach: Sequence[Sequence[int]]) -> list[int]:
    """Return for each device the first that reaches the same others, each other aside, by every kind."""
    devices = range(len(reach[0]))

    def alike(one: int, other: int) -> bool:
        both = (1 << one) | (1 << other)
        return all(rows[one] & ~both == rows[other] & ~both for rows in reach) and all(
            (rows[one] >> other & 1) == (rows[other] >> one & 1) for rows in reach
        )

    return [next(other for other in devices if other == one or alike(one, other)) for one in devices]


def _connects(pattern: Pattern, reach: Sequence[Sequence[int]]) -> bool:
    """Whether, for any kinds together, the largest connected part of the pattern is no larger than that in reach."""
    kinds = range(len(pattern.kinds))
    for chosen in (each for size in (1, 2, 3) for each in combinations(kinds, size)):
        edges = [pair for kind in chosen for pair in pattern.kinds[kind].tolist()]
        links = [
            (at, other)
            for kind in chosen
            for at, row in enumerate(reach[kind])
            for other in range(len(reach[kind]))
            if row >> other & 1
        ]
        if edges and _largest(pattern.ranks, edges) > _largest(len(reach[0]), links):
            return False
    return True


def _largest(nodes: int, edges: Sequence[Sequence[int]]) -> int:
    """Return how many nodes the largest connected part has."""
    part = list(range(nodes))
    for one, other in edges:
        low, high = sorted((part[one], part[other]))
        part = [low if each == high else each for each in part]
    return max(Counter(part).values())
