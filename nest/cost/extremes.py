"""How long and how short the times of a variant can be: what the tick of a problem has to reach over.

The extremes hold for every plan, whatever the choices are, and a bound that is a little too far only makes ticks finer
or coarser than they could be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from nest.cost.collectives import shard_s, sync_height, sync_s, transfer_s
from nest.cost.exchanges import EACH_ITERATION, EACH_MICROBATCH, Exchange, Exchanges, axis_group
from nest.graph import Collective, Layer, LayerGraph
from nest.problem import Copies, Problem, Variant
from nest.units import FINEST_EXPONENT, RELATIVE_ERROR, Floats, Number


@dataclass(frozen=True, slots=True)
class Extremes:
    """Extremes of one variant.

    Attributes
    ----------
    load_s, sharding_s, sync_s
        Largest load without sharding, what sharding may add to it, and largest synchronisation.
    exponent
        Least exponent of the tick that is precise enough.
    """

    load_s: float
    sharding_s: float
    sync_s: float
    exponent: int


def extremes_of(problem: Problem) -> list[Extremes]:
    """Return the extremes of all variants that the model has."""
    if problem.preset.collectives == "groups":
        exchanges = Exchanges(problem)
        return [_of_groups(problem, variant, exchanges) for variant in problem.graphs]
    return [_of_levels(problem, graph) for graph in problem.graphs.values()]


def _of_levels(problem: Problem, graph: LayerGraph) -> Extremes:
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
    exponent = _exponent_of_load(np.array(times), cheapest)
    return Extremes(2 * sum(times) + 2 * dearest, 2 * sharding, sync, exponent)


def _of_groups(problem: Problem, variant: Variant, exchanges: Exchanges) -> Extremes:
    """Return extremes that hold wherever blocks stand: of collectives, those of the worst ring over all devices."""
    graph, devices = problem.graphs[variant], problem.cluster.devices
    layers, copies = graph.layers, problem.training.held
    times = np.array([layer.forward_s + layer.backward_s for layer in layers])
    again = sum(max((each.repeated_s for each in layer.recomputed), default=0.0) for layer in layers)
    inside = _all_like(layers, _exchanging, lambda layer: _collectives_s(layer, variant, exchanges))
    alive, smallest = float(sum(edge.bytes for edge in graph.edges)), min([edge.bytes for edge in graph.edges] or [0])
    hops = [exchanges.hop_s(level, np.array([float(smallest)]))[0] for level in range(problem.levels)]
    load = float(times.sum()) + again + inside + 2 * exchanges.longest_s("ring", 2, alive)
    each = partial(_exchanges_s, EACH_MICROBATCH, copies, devices, exchanges)
    sharding = _all_like(layers, lambda layer: layer.parameter_bytes, lambda layer: each(layer.parameter_bytes))
    sync = _exchanges_s(EACH_ITERATION, copies, devices, exchanges, sum(layer.parameter_bytes for layer in layers))
    return Extremes(load, sharding, sync, _exponent_of_groups(layers, times, float(min(hops))))


def _all_like(layers: tuple[Layer, ...], key: Callable[[Layer], object], time: Callable[[Layer], float]) -> float:
    """Return the sum of a time over all layers, which is worked out once for layers of one key.

    Keys are made, and hashed, once for layers that share their figures with each other.
    """
    same = Counter((id(layer.collectives), id(layer.recomputed), layer.parameter_bytes) for layer in layers)
    like = {(id(layer.collectives), id(layer.recomputed), layer.parameter_bytes): layer for layer in layers}
    counts: dict[object, tuple[Layer, int]] = {}
    for each, count in same.items():
        layer, before = counts.get(key(like[each]), (like[each], 0))
        counts[key(like[each])] = layer, before + count
    return sum(count * time(layer) for layer, count in counts.values())


def _exchanging(layer: Layer) -> tuple[tuple[Collective, ...], ...]:
    """Return the collectives of a layer, and those of each kind of recomputation."""
    return layer.collectives, *(each.collectives for each in layer.recomputed)


def _collectives_s(layer: Layer, variant: Variant, exchanges: Exchanges) -> float:
    """Return what the collectives of a layer take at most, whatever it recomputes."""
    passes, *repeated = (
        sum(exchanges.longest_s(each.kind, axis_group(variant, each.axis)[1], float(each.bytes)) for each in some)
        for some in _exchanging(layer)
    )
    return passes + max(repeated, default=0.0)


def _exchanges_s(
    by_type: Mapping[int, tuple[Exchange, ...]], copies: Copies, devices: int, exchanges: Exchanges, weights: Number
) -> float:
    """Return the longest time under any ZeRO type, dense and expert weights taken as both so many bytes.

    Once per iteration, groups that each share the weights between them also sum their shares, half of all at most.
    """
    sizes = {"weights": float(weights), "gradients": float(weights) * copies.gradients}
    longest = max(
        sum(exchanges.longest_s(kind, devices, sizes[part]) for kind, part in each) for each in by_type.values()
    )
    shared = (
        exchanges.longest_s("all-reduce", devices, sizes["gradients"] / 2 + 1) if by_type is EACH_ITERATION else 0.0
    )
    return 2 * (longest + shared)


def _exponent_of_groups(layers: tuple[Layer, ...], times: Floats, transfer: float) -> int:
    terms = np.array([_terms(layer) for layer in layers])
    most, rest = int(terms[times > 0].max(initial=0)), int(terms[times == 0].sum())
    largest = _exponent_of_load(np.sort(times), transfer, most, rest)
    return max(largest, _exponent_of_sum(times, transfer, most, rest))


def _terms(layer: Layer) -> int:
    """Return how many rounded times a layer may add to the load of a stage."""
    passes = (layer.forward_s > 0) + (layer.backward_s > 0)
    again = max(((each.repeated_s > 0) + len(each.collectives) for each in layer.recomputed), default=0)
    return passes + again + len(layer.collectives) + 6 * (layer.parameter_bytes > 0)


def _exponent_of_load(times: Floats, transfer: float, most: int = 3, rest: int = 0) -> int:
    """Return the smallest exponent for which rounding stays within `RELATIVE_ERROR` of any plan's largest load.

    A stage with ``k`` layers that take any time is a sum of at most ``most * k`` rounded times of theirs, ``rest`` of
    other layers and four of transfers, each off by half a tick, and the synchronisation by another half. The largest
    load is at least the heaviest layer and the sum of its own layers, and, unless there is but one stage, a transfer on
    top. What takes no time is rounded to nothing, exactly.

    Parameters
    ----------
    times
        Seconds of each layer's passes, ascending.
    transfer
        Seconds of the cheapest transfer.
    most, rest
        Rounded times of a layer, and those of all layers together that take no time themselves.
    """
    sums = np.concatenate([[0.0], np.cumsum(times[times > 0])])
    several = np.maximum(times[-1], sums) + transfer
    least = np.append(several, sums[-1])
    off = most / 2 * np.append(np.arange(len(sums)), len(sums) - 1) + (rest + 5) / 2
    taking = least > 0
    if not taking.any():
        return -FINEST_EXPONENT
    exponents = np.log10(off[taking]) - np.log10(least[taking]) - np.log10(RELATIVE_ERROR)
    return int(np.ceil(exponents.max()))


def _exponent_of_sum(times: Floats, transfer: float, most: int, rest: int) -> int:
    """Return the same for the sum of all loads, for any number of stages.

    Every layer counts once, every stage but the first adds two transfers, and up to six times are synchronisation.
    """
    layers = int((times > 0).sum())
    exponents = [-FINEST_EXPONENT]
    for boundaries in (0, len(times) - 1):
        least = float(times.sum()) + 2 * boundaries * transfer
        if least > 0:
            off = (most * layers + rest + 2 * boundaries + 6) / 2
            exponents.append(int(np.ceil(np.log10(off) - np.log10(least) - np.log10(RELATIVE_ERROR))))
    return max(exponents)
