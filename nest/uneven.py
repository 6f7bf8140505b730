"""Where stages of unequal width stand on the line of devices: rule C9 where each has a tensor width of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import lcm


def next_start(end: int, width: int, group: int = 1) -> int:
    """Return where the next stage starts: at a multiple of its width, and of a group size, from an end on.

    Parameters
    ----------
    end
        First device behind the stage before it.
    width
        Devices of a block of the next stage.
    group
        Size of the groups with which all stages begin; 1 for no such.
    """
    unit = lcm(width, group)
    return -(-end // unit) * unit


def starts_of(widths: Sequence[int], side_by_side: int = 1, group: int = 1) -> tuple[int, ...]:
    """Return where the stages of replica 0 start, from the first of the pipeline on.

    Parameters
    ----------
    widths
        Devices of a block of each stage.
    side_by_side
        How many replicas of a stage are neighbours.
    group
        As for `next_start`.
    """
    starts, end = list[int](), 0
    for width in widths:
        starts.append(next_start(end, width, group))
        end = starts[-1] + side_by_side * width
    return tuple(starts)


def groups_to_begin_with(sizes: Iterable[int], devices: int) -> tuple[int, ...]:
    """Return with which groups all stages may begin whose replicas are neighbours; 1 for none."""
    return (1, *(size for size in sizes if 1 < size < devices))


def strides(widths: Sequence[int], most: int) -> range:
    """Return how far apart replicas may be whose stages are neighbours: multiples of all widths, without overlap."""
    unit = lcm(*widths)
    least = starts_of(widths)[-1] + widths[-1]
    return range(-(-least // unit) * unit, most + 1, unit)
