"""How long and how short the times of a variant can be: what the tick of a problem has to reach over.

The extremes hold for every plan, whatever the choices are, and a bound that is a little too far only makes ticks finer
or coarser than they could be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np

from nest.classes import fastest, slowest
from nest.cluster import Cluster
from nest.cost.collectives import shard_s, sync_height, sync_s, transfer_s
from nest.cost.exchanges import EACH_MICROBATCH, Exchanges, axis_group, each_iteration
from nest.cost.groups import Spread
from nest.graph import Collective, CollectiveKind, Layer, LayerGraph
from nest.problem import Problem, Variant
from nest.units import FINEST_EXPONENT, RELATIVE_ERROR, Floats, Number

Value = TypeVar("Value")

SURE = 1 - 1e-9
"""What times are multiplied with that floating-point numbers may have made too long."""


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


def extremes_of(problem: Problem, *, closer: bool = False) -> list[Extremes]:
    """Return the extremes of all variants that the model has.

    Parameters
    ----------
    closer
        Whether to count what the collectives of layers take at least, which is slower and may leave coarser ticks.
    """
    if problem.preset.collectives == "groups":
        reach = Reach(problem)
        return [_of_groups(problem, variant, reach, closer=closer) for variant in problem.graphs]
    return [_of_levels(problem, graph) for graph in problem.graphs.values()]


class Reach:
    """How long and how short network times may be, whatever technologies are chosen."""

    def __init__(self, problem: Problem) -> None:
        self._slow, self._fast = (
            [Exchanges(replace(problem, cluster=each)) for each in problem.cluster.corners(slow=slow)]
            for slow in (True, False)
        )
        self._copies, self._devices = problem.training.held, problem.cluster.devices
        self._each_iteration = each_iteration(problem.training)
        self._known: dict[tuple[float, bool], float] = {}
        self._spreads: dict[tuple[int, int], Spread] = {}

    def longest_s(self, kind: CollectiveKind, count: int, size: float, within: int | None = None) -> float:
        """Return a time that no group of so many devices exceeds, as `Exchanges.longest_s`."""
        return max([each.longest_s(kind, count, size, within) for each in self._slow])

    def shortest_s(self, variant: Variant, each: Collective) -> float:
        """Return a time that a collective of a layer takes at least, of a variant that nests with the network."""
        step, count = axis_group(variant, each.axis)
        return min(fast.exposed_s(each, self._spread(step, count)) for fast in self._fast) * SURE

    def _spread(self, step: int, count: int) -> Spread:
        """Return how a group inside a block is spread: the same whatever links are made of."""
        if (step, count) not in self._spreads:
            self._spreads[step, count] = self._fast[0].spread(step * np.arange(count, dtype=np.int64))
        return self._spreads[step, count]

    def exchanges_s(self, weights: tuple[Number, Number], *, each_microbatch: bool) -> float:
        """Return the longest time under any ZeRO type, for bytes of dense weights and of experts'.

        Once per iteration, groups that each share the weights between them also sum their shares, half of all at most.
        """
        return sum([self._exchanging_s(held, each_microbatch) for held in map(float, weights)])

    def _exchanging_s(self, held: float, each_microbatch: bool) -> float:
        key = held, each_microbatch
        if key not in self._known:
            sizes = {"weights": held * self._copies.gathered, "gradients": held * self._copies.summed}
            by_type, devices = EACH_MICROBATCH if each_microbatch else self._each_iteration, self._devices
            total = max(
                sum(self.longest_s(kind, devices, sizes[part]) for kind, part in each) for each in by_type.values()
            )
            if not each_microbatch and held:
                total += self.longest_s("all-reduce", devices, sizes["gradients"] / 2 + 1)
            self._known[key] = total
        return self._known[key]

    def least_crossing_s(self, variant: Variant, size: float) -> float:
        """Return a time that every transfer between two stages takes; 0 where the cluster has no room for a block."""
        if variant.width > self._fast[0].cluster.devices:
            return 0.0
        sizes, levels = np.array([size]), range(len(self._fast[0].cluster.levels))
        if variant.width > self._fast[0].cluster.devices:  # has no plan, nor a tensor group to gather in
            return min(float(each.hop_s(level, sizes)[0]) for each in self._fast for level in levels)
        times = (each.crossing_s(variant, level, sizes) for each in self._fast for level in levels)
        return min(sum(float(each[0]) for each in crossing) for crossing in times)


def _of_levels(problem: Problem, graph: LayerGraph) -> Extremes:
    slow, fast = (_extreme(problem.cluster, slow=slow) for slow in (True, False))
    preset = problem.preset
    times = sorted([layer.forward_s + layer.backward_s for layer in graph.layers])
    parameters = sum([layer.parameter_bytes for layer in graph.layers])
    sizes = [edge.bytes for edge in graph.edges] or [0]
    smallest, largest = float(min(sizes)), float(max(sizes))
    levels = range(len(slow.levels))
    cheapest = min(transfer_s(fast, preset, level, smallest) for level in levels)
    dearest = max(transfer_s(slow, preset, level, largest) for level in levels)
    height = sync_height(slow, slow.devices, 1)
    sync = sync_s(slow, preset, slow.devices, height, float(parameters))
    sharding = max(shard_s(slow, preset, level, slow.devices, float(parameters)) for level in levels)
    exponent = _exponent_of_load(np.array(times), cheapest)
    return Extremes(2 * sum(times) + 2 * dearest, 2 * sharding, sync, exponent)


def _extreme(cluster: Cluster, *, slow: bool) -> Cluster:
    """Return a cluster no faster (no slower) than any choice of technologies, where kinds of links play no part."""
    return replace(cluster, levels=tuple(level.extreme(slow=slow) for level in cluster.levels), technologies=())


def _of_groups(problem: Problem, variant: Variant, reach: Reach, *, closer: bool) -> Extremes:
    """Return extremes that hold wherever blocks stand: of collectives, those of the worst ring over all devices."""
    graph = slowest(problem.graphs[variant])
    layers, alike = graph.layers, _Alike(graph.layers)
    copies, step = problem.training.held, problem.training.step_s_per_byte
    passes = (
        np.array([layer.forward_s + layer.backward_s for layer in each.layers])
        for each in (graph, fastest(problem.graphs[variant]))
    )
    longest, times = passes
    again = sum(alike.each(lambda layer: max((each.repeated_s for each in layer.recomputed), default=0.0)))
    training, nested = problem.training, problem.unnested(variant) is None
    inside = alike.total(_exchanging, lambda layer: _collectives_s(layer, variant, reach, nested=nested))
    smallest, alive = min([edge.bytes for edge in graph.edges] or [0]), _most_alive(graph)
    load = float(longest.sum()) + again + inside + 2 * reach.longest_s("ring", 2, alive)
    load += 2 * reach.longest_s("all-gather", variant.tensor, alive) if training.splits_transfers else 0.0
    load += 2 * reach.longest_s("ring", 2, alive) if training.blocking_sends else 0.0
    sharding = alike.total(_weights, lambda layer: reach.exchanges_s(_weights(layer), each_microbatch=True))
    dense, expert = (sum(part) for part in zip(*alike.each(_weights), strict=True))
    sync = reach.exchanges_s((dense, expert), each_microbatch=False)
    sync += float(dense + expert) * problem.cluster.step_s_per_byte_of(problem.cluster.class_names, step)
    tied = sum(layer.tied_bytes for layer in layers)
    sync += reach.longest_s("all-reduce", 2, float(tied) * copies.summed)
    least = reach.least_crossing_s(variant, float(smallest))
    if closer and nested and variant.width <= problem.cluster.devices:
        shortest = alike.each(lambda layer: sum(reach.shortest_s(variant, each) for each in layer.collectives))
        times = times + np.array(shortest)
    return Extremes(load, sharding, sync, _exponent_of_groups(alike, times, least, hides=training.hides_gradients))


class _Alike:
    """Layers of which those that are alike are looked at once."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        keys = list(map(_figures, layers))
        self._of = dict(zip(keys, layers, strict=True))
        places = {key: at for at, key in enumerate(self._of)}
        self._which = [places[key] for key in keys]

    def each(self, value: Callable[[Layer], Value]) -> list[Value]:
        """Return a value of every layer."""
        found = [value(layer) for layer in self._of.values()]
        return [found[at] for at in self._which]

    def total(self, key: Callable[[Layer], object], time: Callable[[Layer], float]) -> float:
        """Return the sum of a time over all layers, which is worked out once for layers of one key."""
        same, counts = Counter(self._which), dict[object, tuple[Layer, int]]()
        for at, layer in enumerate(self._of.values()):
            like, before = counts.get(key(layer), (layer, 0))
            counts[key(layer)] = like, before + same[at]
        return sum(count * time(layer) for layer, count in counts.values())


def _figures(layer: Layer) -> tuple[object, ...]:
    """Return what tells layers apart quickly; equal collectives in different objects count as different."""
    return id(layer.collectives), id(layer.recomputed), layer.forward_s, layer.backward_s, _weights(layer)


def _most_alive(graph: LayerGraph) -> float:
    """Return the most bytes on edges over any cut, which are no fewer than those of all tensors alive there."""
    change = [0.0] * (len(graph) + 1)
    for (source, target), edge in zip(graph.places, graph.edges, strict=True):
        change[source + 1] += edge.bytes
        change[target + 1] -= edge.bytes
    return max(accumulate(change))


def _weights(layer: Layer) -> tuple[Number, Number]:
    """Return the bytes of a layer's dense weights, and of its experts'."""
    return layer.parameter_bytes - layer.expert_parameter_bytes, layer.expert_parameter_bytes


def _exchanging(layer: Layer) -> tuple[tuple[Collective, ...], ...]:
    """Return the collectives of a layer, and those of each kind of recomputation."""
    return layer.collectives, *(each.collectives for each in layer.recomputed)


def _collectives_s(layer: Layer, variant: Variant, reach: Reach, *, nested: bool) -> float:
    """Return what the collectives of a layer take at most, whatever it recomputes."""

    def longest_s(each: Collective) -> float:
        """Return the most seconds that a collective takes, wherever its group is."""
        step, count = axis_group(variant, each.axis)
        return reach.longest_s(each.kind, count, float(each.bytes), step * count if nested else None)

    passes, *repeated = (sum(map(longest_s, some)) for some in _exchanging(layer))
    return passes + max(repeated, default=0.0)


def _exponent_of_groups(alike: _Alike, times: Floats, transfer: float, *, hides: bool) -> int:
    terms = np.array(alike.each(partial(_terms, hides=hides)))
    most, rest = int(terms[times > 0].max(initial=0)), int(terms[times == 0].sum())
    largest = _exponent_of_load(np.sort(times), transfer, most, rest)
    return max(largest, _exponent_of_sum(times, transfer, most, rest))


def _terms(layer: Layer, *, hides: bool) -> int:
    """Return how many rounded times a layer may add to the load of a stage.

    What computation hides of the exchanges of its weights is rounded down, in either pass, by a tick at most.
    """
    passes = (layer.forward_s > 0) + (layer.backward_s > 0)
    again = max(((each.repeated_s > 0) + len(each.collectives) for each in layer.recomputed), default=0)
    return passes + again + len(layer.collectives) + (10 if hides else 6) * (layer.parameter_bytes > 0)


def _exponent_of_load(times: Floats, transfer: float, most: int = 3, rest: int = 0) -> int:
    """Return the smallest exponent for which rounding stays within `RELATIVE_ERROR` of any plan's largest load.

    A stage with ``k`` layers that take any time is a sum of at most ``most * k`` rounded times of theirs, ``rest`` of
    other layers and eight of transfers, each off by half a tick, and the synchronisation by three. The largest
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
    off = most / 2 * np.append(np.arange(len(sums)), len(sums) - 1) + (rest + 11) / 2
    taking = least > 0
    if not taking.any():
        return -FINEST_EXPONENT
    exponents = np.log10(off[taking]) - np.log10(least[taking]) - np.log10(RELATIVE_ERROR)
    return int(np.ceil(exponents.max()))


def _exponent_of_sum(times: Floats, transfer: float, most: int, rest: int) -> int:
    """Return the same for the sum of all loads, for any number of stages.

    Every layer counts once, every stage but the first adds two transfers, gathers behind them
    included, and up to eight times are synchronisation and the optimizer's step; what computation hides is rounded down
    twice.
    """
    layers = int((times > 0).sum())
    exponents = [-FINEST_EXPONENT]
    for boundaries in (0, len(times) - 1):
        least = float(times.sum()) + 2 * boundaries * transfer
        if least > 0:
            off = (most * layers + rest + 4 * boundaries + 12) / 2
            exponents.append(int(np.ceil(np.log10(off) - np.log10(least) - np.log10(RELATIVE_ERROR))))
    return max(exponents)
