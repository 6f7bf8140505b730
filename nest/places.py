"""Where the blocks of a plan may stand on the line of devices: rule C9 of the presets that leave devices idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

from nest.cluster import Cluster
from nest.line import EVERY, Line
from nest.presets import Arrangement


class Shape(NamedTuple):
    """How many blocks a plan has, and how many devices each: those of the variant."""

    width: int
    stages: int
    replicas: int


class Placing(NamedTuple):
    """Positions from the start of one stage to the next, and from one replica to the next, on a line of devices."""

    pitch: int
    stride: int
    line: Line = EVERY

    def starts(self, stages: int) -> tuple[int, ...]:
        """Return at which positions the stages of replica 0 start."""
        return tuple(stage * self.pitch for stage in range(stages))

    def used(self, shape: Shape) -> int:
        """Return how many devices the line has up to the last that is taken."""
        return (shape.stages - 1) * self.pitch + (shape.replicas - 1) * self.stride + shape.width


def placings(arrangement: Arrangement, shape: Shape, devices: int, group_sizes: Iterable[int]) -> tuple[Placing, ...]:
    """Return how an arrangement may place the blocks of a plan, without a gap first; some may end beyond the devices.

    What is outermost, the stages (``stage-major``) or the replicas (``replica-major``), follows without a gap or begins
    at the next multiple of a group size; replicas may also spread evenly over all devices. Where there is one of what
    is outermost, the step to the next is that without a gap.

    Parameters
    ----------
    devices
        Of the line.
    group_sizes
        Of the network.
    """
    width, stages, replicas = shape
    by_stage = arrangement == "stage-major"
    least, count = (width * replicas, stages) if by_stage else (width * stages, replicas)
    steps = [least]
    if count > 1:
        steps += [-(-least // size) * size for size in group_sizes if size % width == 0]
        steps += [] if by_stage else [max(least, devices // replicas // width * width)]
    return tuple(Placing(step, width) if by_stage else Placing(width, step) for step in dict.fromkeys(steps))


def lines(cluster: Cluster, width: int, reserved: Iterable[int]) -> tuple[Line, ...]:
    """Return the lines on which blocks of a width may stand, the longest first.

    Without reserved devices and where all are of one class, that is the line of all devices. Cells are left out that
    hold a reserved device: blocks of the width, or groups of a size that is a multiple of it. What is left is in the
    order of the devices, or of their classes, of which any may come first.
    """
    groups = (size for size in cluster.group_sizes if size < cluster.devices and size % width == 0)
    spared = sorted(reserved)
    around = dict.fromkeys(Line.around(spared, cell, cluster.devices) for cell in (width, *groups))
    return tuple(dict.fromkeys([*around, *(line for each in around for line in _by_class(cluster, width, each))]))


def _by_class(cluster: Cluster, width: int, line: Line) -> Iterator[Line]:
    """Yield a line in every order of its classes: whole blocks, each where the class of its first device is."""
    if not cluster.classes:
        return
    firsts = np.arange(cluster.devices // width, dtype=np.int64) * width
    for first, end in line.left_out:
        firsts = firsts[(firsts < first) | (firsts >= end)]
    kinds = cluster.kinds[firsts]
    for order in permutations(np.unique(kinds).tolist()):
        rank = np.array([order.index(kind) for kind in kinds.tolist()], dtype=np.int64)
        found = Line.through(firsts[np.argsort(rank, kind="stable")], width, cluster.devices)
        if found.order:  # as they ascend, the same cells are on the line as it is
            yield found


def distinct_placings(
    arrangements: Iterable[Arrangement], shape: Shape, line: Line, devices: int, group_sizes: tuple[int, ...]
) -> tuple[tuple[Arrangement, Placing], ...]:
    """Return how some arrangements place the blocks of a plan on a line, each under the first that does so.

    Parameters
    ----------
    devices
        Of the cluster.
    """
    found: dict[tuple[int, int], tuple[Arrangement, Placing]] = {}
    length = line.length(devices)
    for arrangement in arrangements:
        for placing in placings(arrangement, shape, length, group_sizes):
            if placing.used(shape) <= length:
                steps = placing.pitch * (shape.stages > 1), placing.stride * (shape.replicas > 1)
                found.setdefault(steps, (arrangement, placing._replace(line=line)))
    return tuple(found.values())
