"""The tick and the byte quantum of a problem, chosen so that rounding cannot matter.

The choice depends on model, cluster, training and preset only, never on what the solver may choose, so that a plan has
the same ticks under every restriction of the choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.cost.collectives import shard_s, sync_s, transfer_s
from nest.errors import InvalidProblem
from nest.graph import LayerGraph
from nest.problem import Problem, Variant
from nest.units import EXACT_LIMIT, FINEST_EXPONENT, HARD_LIMIT, RELATIVE_ERROR, TimeScale, byte_scale, finest_exponent


@dataclass(frozen=True, slots=True)
class Scale:
    """Tick of a problem and quanta in one byte."""

    time: TimeScale
    quanta_per_byte: int


def scale_of(problem: Problem) -> Scale:
    """Choose the scale of a problem.

    The tick is the finest for which the largest objective stays within `EXACT_LIMIT`. Where that would be so coarse
    that rounding could move an objective by more than `RELATIVE_ERROR`, it is made as fine as that needs, as long as
    the largest load stays within `EXACT_LIMIT` and the largest objective within `HARD_LIMIT`.

    Raises
    ------
    InvalidProblem
        If the times of the problem lie too far apart for any such tick.
    """
    bounds = [_bounds(problem, variant, graph) for variant, graph in problem.graphs.items()]
    load = max(bound[0] for bound in bounds)
    objective = max(bound[1] for bound in bounds)
    exponent = finest_exponent(objective, EXACT_LIMIT)
    needed = max(_exponent_needed(graph) for graph in problem.graphs.values())
    if exponent < needed:
        exponent = needed
        if min(finest_exponent(load, EXACT_LIMIT), finest_exponent(objective, HARD_LIMIT)) < needed:
            raise InvalidProblem(
                "times",
                f"one stage may take {load:.3g} s, but the layers are so short that ticks of 1e-{needed} s are needed",
                "check the units of layer times, bandwidths and latencies",
            )
    return Scale(TimeScale(exponent), _quanta_per_byte(problem))


def _bounds(problem: Problem, variant: Variant, graph: LayerGraph) -> tuple[float, float]:
    """Return upper bounds, in seconds, of any stage's load and of any plan's objective."""
    cluster, preset = problem.cluster, problem.preset
    compute = sum(layer.forward_s + layer.backward_s for layer in graph.layers)
    parameters = float(sum(layer.parameter_bytes for layer in graph.layers))
    heaviest = float(max((edge.bytes for edge in graph.edges), default=0))
    most = max(1, cluster.devices // variant.width)
    levels = range(len(cluster.levels))
    transfer = max(transfer_s(cluster, preset, level, heaviest) for level in levels)
    shard = max(shard_s(cluster, preset, level, most, parameters) for level in levels)
    load = 2 * compute + 2 * transfer + 2 * shard
    sync = sync_s(cluster, preset, cluster.devices, len(levels), parameters)
    return load, load * (problem.training.microbatches + len(graph) - 1) + sync


def _exponent_needed(graph: LayerGraph) -> int:
    """Return the smallest exponent for which rounding stays within `RELATIVE_ERROR` of any plan's objective.

    A stage of ``k`` layers is a sum of at most ``3 k`` rounded compute times and four network times, each off by half a
    tick, so that it is off by ``1.5 k + 2`` ticks, and the synchronisation by another half. The largest load is at least
    the heaviest layer, and at least the sum of its own layers.
    """
    times = np.sort([layer.forward_s + layer.backward_s for layer in graph.layers])
    if times[-1] <= 0:
        return -FINEST_EXPONENT
    count = np.arange(1, len(times) + 1)
    ticks_per_s = float(np.max((1.5 * count + 2.5) / np.maximum(times[-1], np.cumsum(times)))) / RELATIVE_ERROR
    return int(np.ceil(np.log10(ticks_per_s)))


def _quanta_per_byte(problem: Problem) -> int:
    def sizes() -> list[float]:
        return [
            size
            for graph in problem.graphs.values()
            for size in (
                *(layer.parameter_bytes for layer in graph.layers),
                *(layer.activation_bytes for layer in graph.layers),
                *(edge.bytes for edge in graph.edges),
            )
        ]

    return byte_scale(sizes())
