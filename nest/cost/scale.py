"""The tick and the byte quantum of a problem, chosen so that rounding cannot matter.

The choice depends on model, cluster, training and preset only, never on what the solver may choose, so that a plan has
the same ticks under every restriction of the choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.cost.collectives import shard_s, sync_height, sync_s, transfer_s
from nest.errors import InvalidProblem
from nest.graph import LayerGraph
from nest.problem import Problem
from nest.units import (
    EXACT_LIMIT,
    FINEST_EXPONENT,
    HARD_LIMIT,
    LONGEST,
    RELATIVE_ERROR,
    TimeScale,
    byte_scale,
    finest_exponent,
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Tick and byte quantum of a problem."""

    time: TimeScale
    quanta_per_byte: int


def scale_of(problem: Problem) -> Scale:
    """Choose the scale of a problem.

    The tick is the finest for which the largest objective stays within `EXACT_LIMIT` without sharding, and within
    `HARD_LIMIT` with it. Where that would be so coarse that rounding could move an objective by more than
    `RELATIVE_ERROR`, it is made as fine as that needs, as long as no load without sharding exceeds `EXACT_LIMIT`.

    Raises
    ------
    InvalidProblem
        If the times of the problem lie too far apart for any such tick, or its byte counts are too large.
    """
    ranges = [_Range.of(problem, graph) for graph in problem.graphs.values()]
    load, sync = max(each.load_s for each in ranges), max(each.sync_s for each in ranges)
    rounds = problem.training.microbatches + max(len(graph) for graph in problem.graphs.values()) - 1
    needed = max(each.exponent for each in ranges)
    sharded = (load + max(each.sharding_s for each in ranges)) * rounds + sync
    finest = min(finest_exponent(load * rounds + sync, EXACT_LIMIT), finest_exponent(sharded, HARD_LIMIT))
    exponent = max(finest, needed)
    if min(finest_exponent(load, EXACT_LIMIT), finest_exponent(sync, LONGEST)) < exponent:
        raise InvalidProblem(
            "times",
            f"one stage may take {load:.3g} s, or {sync:.3g} s to synchronise, yet layers are so short that they ask "
            f"for ticks of 1e-{needed} s",
            "check the units of layer times, bandwidths and latencies",
        )
    return Scale(TimeScale(exponent), _quanta_per_byte(problem))


@dataclass(frozen=True, slots=True)
class _Range:
    """Extremes of one variant.

    Attributes
    ----------
    load_s, sharding_s, sync_s
        Largest load without sharding, what sharding may add to it, and largest synchronisation.
    exponent
        What precision needs.
    """

    load_s: float
    sharding_s: float
    sync_s: float
    exponent: int

    @classmethod
    def of(cls, problem: Problem, graph: LayerGraph) -> _Range:
        cluster, preset = problem.cluster, problem.preset
        times = sorted([layer.forward_s + layer.backward_s for layer in graph.layers])
        parameters = sum([layer.parameter_bytes for layer in graph.layers])
        sizes = [edge.bytes for edge in graph.edges] or [0]
        smallest, largest = float(min(sizes)), float(max(sizes))
        levels = range(len(cluster.levels))
        cheapest = min(transfer_s(cluster, preset, level, smallest) for level in levels)
        dearest = max(transfer_s(cluster, preset, level, largest) for level in levels)
        height = sync_height(cluster, cluster.devices, 1)
        sync = sync_s(cluster, preset, cluster.devices, height, float(parameters))
        sharding = max(shard_s(cluster, preset, level, cluster.devices, float(parameters)) for level in levels)
        exponent = _exponent_needed(np.array(times), cheapest)
        return cls(2 * sum(times) + 2 * dearest, 2 * sharding, sync, exponent)


def _exponent_needed(times: np.ndarray, transfer: float) -> int:
    """Return the smallest exponent for which rounding stays within `RELATIVE_ERROR` of any plan's objective.

    A stage with ``k`` layers that take any time is a sum of at most ``3 k`` rounded compute times and four network
    times, each off by half a tick, so that it is off by ``1.5 k + 2`` ticks, and the synchronisation by another half.
    The largest load is at least the heaviest layer and the sum of its own layers, and, unless there is but one stage, a
    transfer on top. What takes no time is rounded to nothing, exactly.

    Parameters
    ----------
    times
        Seconds of each layer's two passes, ascending.
    transfer
        Seconds of the cheapest transfer.
    """
    sums = np.concatenate([[0.0], np.cumsum(times[times > 0])])
    several = np.maximum(times[-1], sums) + transfer
    least = np.append(several, sums[-1])
    off = 1.5 * np.append(np.arange(len(sums)), len(sums) - 1) + 2.5
    taking = least > 0
    if not taking.any():
        return -FINEST_EXPONENT
    exponents = np.log10(off[taking]) - np.log10(least[taking]) - np.log10(RELATIVE_ERROR)
    return int(np.ceil(exponents.max()))


def _quanta_per_byte(problem: Problem) -> int:
    scale, most = 1, 0.0
    for graph in problem.graphs.values():
        sizes = [layer.parameter_bytes for layer in graph.layers] + [layer.activation_bytes for layer in graph.layers]
        sizes += [edge.bytes for edge in graph.edges]
        scale = max(scale, byte_scale(sizes))
        most = max(most, sum(sizes))
    if most * scale * 10 > HARD_LIMIT:
        raise InvalidProblem("bytes", f"the sizes of the model add up to {most:.3g} bytes", "check their unit")
    return scale
