"""Groups of devices that nest, with equal sizes: from the cost of every pair to an order of the devices.

A level exists where groups of the level below fall into cliques: within one, all pairs cost about the same, and less
than pairs of different cliques. Where they do (nodes, leaves, racks), these are the groups. Where they do not (a ring,
a mesh), groups are joined by as many as divides their number, those that cost least between them first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from nest.units import Floats

ALIKE = 0.02
"""Costs that differ by less than this part of themselves belong to one class."""

MATCHED = 64
"""Groups up to which pairs are matched for the least total cost; above, one after the other."""

TIE = 1e-6
"""By how much of itself a cost grows for each place between two groups, so that equal costs are settled by order."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """Groups of devices that nest.

    Parameters
    ----------
    order
        The devices along the line.
    sizes
        Of the groups, ascending; the last holds all. Every size divides the next, but for the last one: all groups
        but the last on the line are full.
    cliques
        Groups that were found on the way, also those whose sizes do not nest.
    """

    order: list[int]
    sizes: list[int]
    cliques: list[list[int]]


def nest_groups(cost: Floats) -> Nesting:
    """Return groups of the devices, from the time of a transfer between each pair of them (symmetric)."""
    groups = [[device] for device in range(len(cost))]
    sizes: list[int] = []
    cliques: list[list[int]] = []
    while len(groups) > 1:
        between = _farthest(cost, groups)
        parts, seen = _cliques(between, [len(group) for group in groups])
        cliques += [_devices(part, groups) for part in seen]
        parts = parts or _joined(between)
        if len(groups[-1]) < len(groups[0]):
            parts = sorted(parts, key=lambda part: len(between) - 1 in part)  # what is incomplete stays the last
        groups = [_chained(cost, [groups[at] for at in part], full=len(groups[0])) for part in parts]
        sizes.append(len(groups[0]))
    return Nesting(groups[0], sizes or [1], cliques)


def _devices(part: list[int], groups: list[list[int]]) -> list[int]:
    return [device for at in part for device in groups[at]]


def _chained(cost: Floats, groups: list[list[int]], full: int) -> list[int]:
    """Return groups one after the other, each turned so that it begins near the end of the one before.

    Groups within keep their sizes when a full group is turned; one that is incomplete stays as it is.
    """
    lines = []
    for first in (groups[0], groups[0][::-1]) if len(groups[0]) == full else (groups[0],):
        line, length = list(first), 0.0
        for group in groups[1:]:
            turned = len(group) == full and cost[line[-1], group[-1]] < cost[line[-1], group[0]]
            following = group[::-1] if turned else group
            length += cost[line[-1], following[0]]
            line += following
        lines.append((length, line))
    return min(lines, key=lambda each: each[0])[1]


def _farthest(cost: Floats, groups: list[list[int]]) -> Floats:
    """Return the largest cost between the devices of each two groups."""
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    order = np.concatenate([np.array(group) for group in groups])
    rows = np.maximum.reduceat(cost[np.ix_(order, order)], starts, axis=0)
    return np.maximum.reduceat(rows, starts, axis=1)


def _cliques(between: Floats, sizes: list[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the groups that belong together, at the first cost for which they fall into cliques that nest.

    Also all cliques seen until then. There are no groups where there are no cliques.
    """
    count = len(between)
    seen: list[list[int]] = []
    apart = ~np.eye(count, dtype=bool)
    for limit in _classes(between[apart]):
        near = (between <= limit) & apart
        parts = _components(near)
        if any(not near[np.ix_(part, part)][~np.eye(len(part), dtype=bool)].all() for part in parts):
            break
        seen += [part for part in parts if 1 < len(part) < count]
        chunks = _even(parts, sizes)
        if chunks:
            return chunks, seen
    return [], seen


def _classes(costs: Floats) -> list[float]:
    """Return the upper end of each class of costs, ascending."""
    values = np.unique(costs)
    ends = np.flatnonzero(values[1:] > values[:-1] * (1 + ALIKE))
    return [*values[ends].tolist(), float(values[-1])]


def _components(near: NDArray[np.bool_]) -> list[list[int]]:
    """Return the connected parts of a graph, each ascending, in the order of their first member."""
    left, parts = set(range(len(near))), []
    while left:
        ready = [min(left)]
        part = set(ready)
        while ready:
            fresh = set(np.flatnonzero(near[ready.pop()]).tolist()) - part
            part |= fresh
            ready.extend(fresh)
        left -= part
        parts.append(sorted(part))
    return parts


def _even(parts: list[list[int]], sizes: list[int]) -> list[list[int]]:
    """Return parts cut to one common size, only the last being smaller; none if that joins nothing.

    A part that is larger than the common size becomes several: what lies in different ones of them then counts as
    farther apart than it is, never as nearer.
    """
    last = len(sizes) - 1 if sizes[-1] < sizes[0] else None  # the group that is incomplete already
    whole = sorted((part for part in parts if last not in part), key=lambda part: (-len(part), part[0]))
    rest = [part for part in parts if last in part]
    ordered = [*whole, *rest]
    step = gcd(*(len(part) for part in ordered[:-1])) if len(ordered) > 1 else len(ordered[0])
    if step < 2:
        return []
    return [part[start : start + step] for part in ordered for start in range(0, len(part), step)]


def _joined(between: Floats) -> list[list[int]]:
    """Return groups joined by the smallest number that divides how many there are; all of them if none does."""
    count = len(between)
    step = next((step for step in (2, 3, 5, 7) if count % step == 0), count)
    if step == count:
        return [list(range(count))]
    return _matched(between) if step == 2 and count <= MATCHED else _nearest(between, step)


def _matched(between: Floats) -> list[list[int]]:
    """Return pairs with the least total cost, of equal ones those that were given next to each other."""
    import networkx  # noqa: PLC0415  (only networks without a tree need it)

    graph = networkx.Graph()
    graph.add_weighted_edges_from(
        (one, other, between[one, other] * (1 + (one - other) * TIE))
        for one in range(len(between))
        for other in range(one)
    )
    return sorted(sorted(pair) for pair in networkx.min_weight_matching(graph))


def _nearest(between: Floats, step: int) -> list[list[int]]:
    """Return groups of ``step``, each the first that is left with those nearest to all in it."""
    left, parts = list(range(len(between))), []
    while left:
        part = [left.pop(0)]
        while len(part) < step:
            part.append(left.pop(int(np.argmin(between[np.ix_(part, left)].max(axis=0)))))
        parts.append(sorted(part))
    return parts
