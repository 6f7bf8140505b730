"""The slow plain reference of rule C9 under preset `default`: where the blocks of a plan may stand, one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import permutations
from math import prod

from nest.cluster import Cluster
from nest.constraints import ReservedDevices
from nest.plan import Plan
from nest.presets import Arrangement
from nest.problem import Problem


@dataclass(frozen=True)
class Spot:
    """Where a plan stands: the first device of each stage (rows) in each replica (columns)."""

    arrangement: Arrangement
    blocks: tuple[tuple[int, ...], ...]
    stride: int
    left_out: tuple[tuple[int, int], ...] = ()
    order: tuple[tuple[int, int], ...] = ()


def groups(cluster: Cluster) -> list[int]:
    """Return the group sizes, innermost first."""
    fanouts = [level.fanout for level in cluster.levels]
    return [prod(fanouts[: at + 1]) for at in range(len(fanouts))]


def reserved(problem: Problem) -> set[int]:
    """Return the devices that side constraints reserve."""
    return {device for each in problem.constraints if isinstance(each, ReservedDevices) for device in each.devices}


def spots(cluster: Cluster, width: int, stages: int, replicas: int, down: Collection[int] = ()) -> Iterator[Spot]:
    """Yield every placement of so many blocks that the rules allow; some stand on the same devices."""
    around = {_line(cluster, cell, down) for cell in cells(cluster, width)}
    for line in around | {other for each in around for other in _by_class(cluster, width, each)}:
        units = range(width, len(line) + 1, width)
        for step in units:
            if step == replicas * width or _aligned(cluster, width, step, replicas * width, stages):
                yield from _within(cluster, line, "stage-major", (step, width), (stages, replicas, width))
            even = replicas > 1 and stages * width <= step <= len(line) / replicas < step + width
            if step == stages * width or even or _aligned(cluster, width, step, stages * width, replicas):
                yield from _within(cluster, line, "replica-major", (width, step), (stages, replicas, width))


def cells(cluster: Cluster, width: int) -> list[int]:
    """Return in how many devices together a plan may leave out those that are down."""
    return [width, *(size for size in groups(cluster) if size % width == 0 and size < cluster.devices)]


def _line(cluster: Cluster, cell: int, down: Collection[int]) -> tuple[int, ...]:
    """Return the devices whose cells have none that is down."""
    return tuple(one for one in range(cluster.devices) if not any(one // cell == other // cell for other in down))


def class_of(cluster: Cluster, device: int) -> str:
    """Return the class of a device."""
    found = [each.name for each in cluster.classes for first, end in each.ranges if first <= device < end]
    return found[0] if found else cluster.own_class


def _by_class(cluster: Cluster, width: int, line: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the whole blocks of a line in each order of the classes of their first devices."""
    blocks = [tuple(range(first, first + width)) for first in line if first % width == 0]
    whole = [block for block in blocks if set(block) <= set(line)]
    for names in permutations(sorted({class_of(cluster, block[0]) for block in whole}) if cluster.classes else ()):
        made = tuple(one for name in names for block in whole if class_of(cluster, block[0]) == name for one in block)
        if made != tuple(sorted(made)):
            yield made


def _aligned(cluster: Cluster, width: int, step: int, least: int, count: int) -> bool:
    """Whether a step is the first multiple of a group size, itself one of the width, that leaves enough room."""
    sizes = [size for size in groups(cluster) if size % width == 0]
    return count > 1 and any(step % size == 0 and 0 <= step - least < size for size in sizes)


def _within(
    cluster: Cluster,
    line: tuple[int, ...],
    arrangement: Arrangement,
    steps: tuple[int, int],
    shape: tuple[int, int, int],
) -> Iterator[Spot]:
    """Yield a placement if all of it is on the devices of a line."""
    (pitch, stride), (stages, replicas, width) = steps, shape
    if (stages - 1) * pitch + (replicas - 1) * stride + width <= len(line):
        blocks = tuple(tuple(line[at * pitch + each * stride] for each in range(replicas)) for at in range(stages))
        left_out = _ranges(set(range(cluster.devices)) - set(line))
        yield Spot(arrangement, blocks, stride, left_out, () if line == tuple(sorted(line)) else _runs(line))


def _runs(line: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of neighbours as they follow each other."""
    firsts = [one for at, one in enumerate(line) if at == 0 or line[at - 1] != one - 1]
    ends = [one + 1 for at, one in enumerate(line) if at + 1 == len(line) or line[at + 1] != one + 1]
    return tuple(zip(firsts, ends, strict=True))


def _ranges(devices: set[int]) -> tuple[tuple[int, int], ...]:
    """Return where runs of neighbours among some devices begin and end."""
    firsts = sorted(device for device in devices if device - 1 not in devices)
    ends = sorted(device + 1 for device in devices if device + 1 not in devices)
    return tuple(zip(firsts, ends, strict=True))


def spot_of(plan: Plan, devices: int) -> Spot:
    """Return where a plan on a cluster of so many devices says that it stands."""
    left_out, order = plan.line.left_out, plan.line.order
    line = [one for one in range(devices) if not any(first <= one < end for first, end in left_out)]
    if order:
        line = [one for first, end in order for one in range(first, end)]
    blocks = tuple(
        tuple(line[line.index(stage.first_device) + replica * plan.replica_stride] for replica in range(plan.replicas))
        for stage in plan.stages
    )
    return Spot(plan.arrangement, blocks, plan.replica_stride, left_out, order)
