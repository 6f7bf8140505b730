"""The tick and the byte quantum of a problem, chosen so that rounding cannot matter.

The choice depends on model, cluster, training and preset only, never on what the solver may choose, so that a plan has
the same ticks under every restriction of the choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.cost.collectives import sync_s, transfer_s
from nest.errors import InvalidProblem
from nest.graph import LayerGraph
from nest.problem import Problem
from nest.units import EXACT_LIMIT, FINEST_EXPONENT, HARD_LIMIT, RELATIVE_ERROR, TimeScale, byte_scale, finest_exponent


@dataclass(frozen=True, slots=True)
class Scale:
    """Tick and byte quantum of a problem."""

    time: TimeScale
    quanta_per_byte: int


def scale_of(problem: Problem) -> Scale:
    """Choose the scale of a problem.

    The tick is the finest for which the largest objective without sharding stays within `EXACT_LIMIT`. Where that would
    be so coarse that rounding could move an objective by more than `RELATIVE_ERROR`, it is made as fine as that needs,
    as long as no load exceeds `EXACT_LIMIT`.

    Raises
    ------
    InvalidProblem
        If the times of the problem lie too far apart for any such tick, or its byte counts are too large.
    """
    ranges = [_Range.of(problem, graph) for graph in problem.graphs.values()]
    load, sync = max(each.load_s for each in ranges), max(each.sync_s for each in ranges)
    rounds = problem.training.microbatches + max(len(graph) for graph in problem.graphs.values()) - 1
    needed = max(each.exponent for each in ranges)
    exponent = max(finest_exponent(load * rounds + sync, EXACT_LIMIT), needed)
    if min(finest_exponent(load, EXACT_LIMIT), finest_exponent(sync, HARD_LIMIT // 2)) < exponent:
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
    load_s, sync_s
        Largest load without sharding, and largest synchronisation.
    exponent
        What precision needs.
    """

    load_s: float
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
        sync = sync_s(cluster, preset, cluster.devices, len(levels), float(parameters))
        return cls(2 * sum(times) + 2 * dearest, sync, _exponent_needed(np.array(times), cheapest))


def _exponent_needed(times: np.ndarray, transfer: float) -> int:
    """Return the smallest exponent for which rounding stays within `RELATIVE_ERROR` of any plan's objective.

    A stage of ``k`` layers is a sum of at most ``3 k`` rounded compute times and four network times, each off by half a
    tick, so that it is off by ``1.5 k + 2`` ticks, and the synchronisation by another half. The largest load is at
    least the heaviest layer and the sum of its own layers, and, unless there is but one stage, a transfer on top.

    Parameters
    ----------
    times
        Seconds of each layer's two passes, ascending.
    transfer
        Seconds of the cheapest transfer.
    """
    least = np.maximum(times[-1], np.cumsum(times))
    least[:-1] += transfer
    if least[0] <= 0:
        return -FINEST_EXPONENT
    count = np.arange(1, len(times) + 1)
    ticks_per_s = float(np.max((1.5 * count + 2.5) / least)) / RELATIVE_ERROR
    return int(np.ceil(np.log10(ticks_per_s)))


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
