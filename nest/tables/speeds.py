"""How fast devices of several classes are together, beside as many of the fastest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from nest.classes import across, fastest
from nest.cluster import Cluster
from nest.cost.scale import Scale
from nest.graph import LayerGraph
from nest.problem import Problem, Variant
from nest.units import Floats, Ints

SURE = 1 - 1e-12
"""What ratios are multiplied with that floating-point numbers may have made too large."""


def slowdown(mine: Ints | Floats, least: Ints | Floats) -> float:
    """Return how many times its least time every layer takes at least, given the times of all layers."""
    taking = least > 0
    return max(1.0, float((mine[taking] / least[taking]).min(initial=np.inf)) * SURE) if taking.any() else 1.0


class Speeds:
    """The speeds of the blocks of a cluster: 1 of one whose every device has the shortest time of every layer.

    Parameters
    ----------
    cluster, width
        The devices, and how many a block has.
    slowdowns
        Of each class, as `slowdown` returns it.
    """

    def __init__(self, cluster: Cluster, width: int, slowdowns: dict[str, float]) -> None:
        names = sorted(slowdowns, key=lambda name: slowdowns[name])
        counts = [cluster.count_of(name) / width for name in names] or [cluster.devices / width]
        speeds = [1 / slowdowns[name] for name in names] or [1.0]
        self._ends = np.cumsum([0.0, *counts])
        self._sums = np.cumsum([0.0, *(count * speed for count, speed in zip(counts, speeds, strict=True))])

    def of(self, blocks: Ints) -> Floats:
        """Return the most that so many blocks do at once: of a block on several classes no more than of their mean."""
        found: Floats = np.interp(blocks, self._ends, self._sums)
        return found


def least_work(problem: Problem, scale: Scale, variant: Variant, blocks: float) -> float:
    """Return ticks in which so many blocks at once do all passes of a microbatch, without collectives and waits.

    What one microbatch takes at the least, over the speed of the fastest blocks that there are.
    """
    graph, work = problem.graphs[variant], partial(_passes, scale=scale)
    return shared_work(problem.cluster, graph, variant.width, blocks, work)


def shared_work(
    cluster: Cluster, graph: LayerGraph, width: int, blocks: float, work: Callable[[LayerGraph], Ints | Floats]
) -> float:
    """Return the time in which so many blocks at once do some work of a microbatch, in the unit of that.

    Parameters
    ----------
    graph
        A variant's layers, on each class of devices.
    width
        Devices of a block.
    work
        Returns that of each layer of a graph: the variant's, as devices of some classes have it.
    """
    least = work(fastest(graph))
    slow = {name: slowdown(work(across(graph, {name})), least) for name in cluster.class_names}
    return float(least.sum()) / float(Speeds(cluster, width, slow).of(np.array([blocks]))[0])


def _passes(graph: LayerGraph, scale: Scale) -> Ints:
    ticks = scale.time.ticks_array
    forward, backward = ([getattr(layer, name) for layer in graph.layers] for name in ("forward_s", "backward_s"))
    found: Ints = ticks(np.array(forward)) + ticks(np.array(backward))
    return found
