"""The slow plain reference of rule C9 under preset `default`: where the blocks of a plan may stand, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from nest.cluster import Cluster
from nest.plan import Plan
from nest.presets import Arrangement


@dataclass(frozen=True)
class Spot:
    """Where a plan stands: the first device of each stage (rows) in each replica (columns)."""

    arrangement: Arrangement
    blocks: tuple[tuple[int, ...], ...]
    stride: int


def groups(cluster: Cluster) -> list[int]:
    """Return the group sizes, innermost first."""
    fanouts = [level.fanout for level in cluster.levels]
    return [prod(fanouts[: at + 1]) for at in range(len(fanouts))]


def spots(cluster: Cluster, width: int, stages: int, replicas: int) -> Iterator[Spot]:
    """Yield every placement of so many blocks that the rules allow; some stand on the same devices."""
    units = range(width, cluster.devices + 1, width)
    for step in units:
        if step == replicas * width or _aligned(cluster, width, step, replicas * width, stages):
            yield from _within(cluster, "stage-major", (step, width), (stages, replicas, width))
        even = replicas > 1 and step <= cluster.devices / replicas < step + width
        if step == stages * width or even or _aligned(cluster, width, step, stages * width, replicas):
            yield from _within(cluster, "replica-major", (width, step), (stages, replicas, width))


def _aligned(cluster: Cluster, width: int, step: int, least: int, count: int) -> bool:
    """Whether a step is the first multiple of a group size, itself one of the width, that leaves enough room."""
    sizes = [size for size in groups(cluster) if size % width == 0]
    return count > 1 and any(step % size == 0 and 0 <= step - least < size for size in sizes)


def _within(
    cluster: Cluster, arrangement: Arrangement, steps: tuple[int, int], shape: tuple[int, int, int]
) -> Iterator[Spot]:
    """Yield a placement if all of it is on the devices."""
    (pitch, stride), (stages, replicas, width) = steps, shape
    blocks = tuple(tuple(at * pitch + replica * stride for replica in range(replicas)) for at in range(stages))
    if blocks[-1][-1] + width <= cluster.devices:
        yield Spot(arrangement, blocks, stride)


def spot_of(plan: Plan) -> Spot:
    """Return where a plan says that it stands."""
    blocks = tuple(
        tuple(stage.first_device + replica * plan.replica_stride for replica in range(plan.replicas))
        for stage in plan.stages
    )
    return Spot(plan.arrangement, blocks, plan.replica_stride)
