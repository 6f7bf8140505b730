"""Tables of a variant where network times follow from the places of all members of a group.

All stages are as wide as the variant, and its units nest with the network, so that collectives inside a block take the
same wherever it stands: what layers cost adds up over a run. A place decides only the levels of the two boundaries, and
how the ranks that hold copies of the stage's weights are spread.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.constraints import Filters
from nest.cost.exchanges import EACH_ITERATION, EACH_MICROBATCH, Exchanges, Part, axis_group, sync_left
from nest.cost.groups import Spread
from nest.cost.memory import in_flight, state, whole_for_a_moment
from nest.cost.scale import Scale
from nest.graph import Collective, LayerGraph
from nest.presets import Arrangement
from nest.problem import Problem, Variant
from nest.tables.sums import UNLIMITED, prefix
from nest.units import Floats, Ints, Number, quanta

Pair: TypeAlias = tuple[int, int]
"""Levels of a stage's entry and exit boundary in one replica, `NO_BOUNDARY` where there is none."""

NO_BOUNDARY = -1


class Holders(NamedTuple):
    """How the ranks that hold copies of a stage's weights are spread: of dense ones, and of an expert's."""

    dense: Spread
    expert: Spread


class Site(NamedTuple):
    """What one stage of a plan sees of the network.

    Parameters
    ----------
    pairs
        Levels of its boundaries, in all replicas.
    holders
        Of its weights.
    """

    pairs: tuple[Pair, ...]
    holders: Holders


class Ranks(NamedTuple):
    """How many ranks hold copies of a dense weight, and of an expert's."""

    dense: int
    expert: int


class GroupedTables:
    """Tables of one variant.

    Parameters
    ----------
    problem, scale, variant
        What the tables are for.
    exchanges
        Network times of the problem.

    Attributes
    ----------
    work
        Ticks of each layer in a stage without sharding, collectives and recomputation included.
    dense, expert, activations, working
        Quanta of each layer.
    devices, capacity
        How many devices a plan may use, and how many quanta a stage may take on each, side constraints included.
    """

    def __init__(self, problem: Problem, scale: Scale, variant: Variant, exchanges: Exchanges) -> None:
        self.problem, self.scale, self.variant, self.exchanges = problem, scale, variant, exchanges
        self.graph: LayerGraph = problem.graphs[variant]
        self.layers, self.width = len(self.graph), variant.width
        layers, training = self.graph.layers, problem.training
        self.expert = self._quanta([layer.expert_parameter_bytes for layer in layers])
        self.dense = self._quanta([layer.parameter_bytes for layer in layers]) - self.expert
        self.activations = self._quanta([layer.activation_bytes for layer in layers])
        self.working = self._quanta([layer.working_bytes for layer in layers])
        self.filters, self.copies = Filters(problem), training.held
        self.devices = self.filters.devices
        room = quanta(self.filters.hbm_bytes, scale.quanta_per_byte)
        self.capacity = min(room, 2**62) - quanta(training.overhead_bytes, scale.quanta_per_byte)
        self.microbatches = problem.microbatches(variant)
        self.work = self._work()
        self._hops: dict[int, Ints] = {}
        self._extras: dict[tuple[Holders, int], Ints] = {}

    def _quanta(self, sizes: list[Number]) -> Ints:
        return np.array([quanta(size, self.scale.quanta_per_byte) for size in sizes], dtype=np.int64)

    def bytes_of(self, sizes: Ints) -> Floats:
        """Return byte counts in quanta as floating-point bytes."""
        return sizes / self.scale.quanta_per_byte

    def _work(self) -> Ints:
        ticks, layers = self.scale.time.ticks_array, self.graph.layers
        names = ("forward_s", "backward_s", "recompute_s")
        work: Ints = np.sum([ticks(np.array([getattr(layer, name) for layer in layers])) for name in names], axis=0)
        known: dict[tuple[Collective, ...], int] = {}
        for at, layer in enumerate(layers):
            if layer.collectives not in known:
                known[layer.collectives] = sum(map(self._inside, layer.collectives))
            work[at] += known[layer.collectives]
        return work

    def _inside(self, collective: Collective) -> int:
        """Return the ticks of a collective of a layer, the same in every block."""
        step, count = axis_group(self.variant, collective.axis)
        group = self.exchanges.spread(step * np.arange(count, dtype=np.int64))
        return self.scale.time.ticks(self.exchanges.exposed_s(collective, group))

    @cached_property
    def alive(self) -> Ints:
        """Quanta of the tensors alive across each cut, from that before the first layer to that after the last."""
        sizes = [quanta(edge.bytes, self.scale.quanta_per_byte) for edge in self.graph.edges]
        change = np.zeros(self.layers + 1, dtype=np.int64)
        sent: dict[int, list[tuple[int, int]]] = {}
        for (source, target), size in zip(self.graph.places, sizes, strict=True):
            sent.setdefault(source, []).append((target, size))
        for source, links in sent.items():
            largest, farthest = 0, sorted(links, reverse=True)
            for (target, size), (nearer, _) in zip(farthest, [*farthest[1:], (source, 0)], strict=True):
                largest = max(largest, size)
                change[nearer + 1] += largest
                change[target + 1] -= largest
        return np.cumsum(change)

    def hops(self, level: int) -> Ints:
        """Ticks of the transfer across a boundary of a level at each cut; nothing where there is no boundary."""
        if level not in self._hops:
            ticks = np.zeros(self.layers + 1, dtype=np.int64)
            if level != NO_BOUNDARY:
                seconds = self.exchanges.hop_s(level, self.bytes_of(self.alive))
                ticks[1:-1] = self.scale.time.ticks_array(seconds)[1:-1]
            self._hops[level] = ticks
        return self._hops[level]

    def ranks(self, replicas: int) -> Ranks:
        """Return how many ranks hold copies."""
        return Ranks(*self.problem.copy_ranks(self.variant, replicas))

    def types(self, replicas: int) -> tuple[int, ...]:
        """Return the ZeRO types that a stage may use, ascending: the fastest of load first."""
        allowed = self.problem.choices.zero
        sharding = self.problem.copy_degrees(self.variant, replicas)
        return tuple(sorted(zero for zero in allowed if zero == 0 or sharding))

    def sites(self, stages: int, replicas: int, arrangement: Arrangement) -> tuple[Site, ...]:
        """Return what the stages see, from the first of the pipeline on."""
        first, stride = self.places(stages, replicas, arrangement)
        counted = replicas if self.problem.preset.all_replicas else 1
        base = self.problem.cluster.starts(counted, stride)
        starts = first[:, None] + base
        between = self.problem.cluster.spans(starts[:-1], starts[1:]).tolist()
        none = [NO_BOUNDARY] * len(base)
        columns = zip([none, *between], [*between, none], strict=True)
        pairs = [tuple(sorted(set(zip(entry, out, strict=True)))) for entry, out in columns]
        holders = [self._holders_at(int(place), stride, replicas) for place in first % self.problem.cluster.period]
        return tuple(map(Site, pairs, holders))

    def places(self, stages: int, replicas: int, arrangement: Arrangement) -> tuple[Ints, int]:
        """Return where the stages of replica 0 start, and the stride of the replicas."""
        by_stage = arrangement == "stage-major"
        step, stride = (replicas, 1) if by_stage else (1, stages)
        return np.arange(stages, dtype=np.int64) * step * self.width, stride * self.width

    def _holders_at(self, place: int, stride: int, replicas: int) -> Holders:
        find = self.exchanges.holders
        return Holders(*(find(self.variant, place, stride, replicas, expert=expert) for expert in (False, True)))

    def extra(self, holders: Holders, zero: int) -> Ints:
        """Ticks that a ZeRO type adds to each layer for each microbatch."""
        key = holders, zero
        if key not in self._extras:
            self._extras[key] = self.extra_of(holders, zero, 0) + self.extra_of(holders, zero, 1)
        return self._extras[key]

    def extra_of(self, holders: Holders, zero: int, part: int) -> Ints:
        """Return the same of dense weights (part 0) or of the experts' (part 1) alone."""
        weights, ticks = (self.dense, self.expert)[part], np.zeros(self.layers, dtype=np.int64)
        for kind, what in EACH_MICROBATCH[zero]:
            seconds = self.exchanges.seconds(kind, holders[part], self.bytes_of(weights * self.times(what)))
            ticks += self.scale.time.ticks_array(seconds)
        return ticks

    def sync(self, holders: Holders, zero: int, dense: Ints, expert: Ints) -> Ints:
        """Ticks to synchronise stages of so many quanta of weights, once per iteration."""
        left, ticks = self.sync_left, np.zeros_like(dense)
        for weights, group in ((dense, holders.dense), (expert, holders.expert)):
            for kind, part in EACH_ITERATION[zero]:
                size = self.bytes_of(weights * self.times(part))
                ticks += self.scale.time.ticks_array(self.exchanges.seconds(kind, group, size) * left)
        return ticks

    @property
    def sync_left(self) -> float:
        """Part of the synchronisation that an iteration waits for."""
        return sync_left(self.problem)

    def times(self, part: Part) -> int:
        """Return how many bytes are exchanged for each byte of weights."""
        return self.copies.gradients if part == "gradients" else 1

    def flying(self, replicas: int, from_end: int) -> int:
        """Return how many microbatches the ``from_end``-th stage from the end has in flight."""
        return in_flight(-(-self.microbatches // replicas), from_end)

    def least_held(self, replicas: Ints) -> Ints:
        """Quanta of weights, gradients and optimizer that each layer adds to a stage at least: a row for each number.

        More than there are where no ZeRO type may be used.
        """
        parts = (self.copies.optimizer, self.copies.gradients, 1)
        ranks = [count * replicas for count in self.problem.copy_ranks(self.variant, 1)]
        sharding = np.array([bool(self.problem.copy_degrees(self.variant, each)) for each in replicas.tolist()])
        least = np.full((len(replicas), self.layers), self.capacity + 1, dtype=np.int64)
        for zero in self.problem.choices.zero:
            held = np.zeros_like(least)
            for weights, degrees in zip((self.dense, self.expert), ranks, strict=True):
                held += weights * sum(parts[zero:]) + weights * sum(parts[:zero]) // degrees[:, None]
            usable = np.ones_like(sharding) if zero == 0 else sharding
            np.minimum(least, held, out=least, where=usable[:, None])
        return least

    def _by_ranks(self, ranks: Ranks) -> tuple[tuple[Ints, int], tuple[Ints, int]]:
        return (self.dense, ranks.dense), (self.expert, ranks.expert)

    def moment(self, ranks: Ranks, zero: int) -> Ints:
        """Quanta in use for a moment while each layer runs."""
        moments = [
            whole_for_a_moment(weights, self.copies, zero if degree > 1 else 0)
            for weights, degree in self._by_ranks(ranks)
        ]
        return self.working + moments[0] + moments[1]

    def deepest_within(self, load: int) -> int:
        """Most layers that a stage of at most ``load`` ticks can hold."""
        ends = prefix(self.work)
        reach = np.searchsorted(ends, ends[:-1] + load, side="right") - 1
        return int(np.max(reach - np.arange(self.layers)))

    def band(self, depth: int) -> GroupedBand:
        """Return the tables of all stages of at most ``depth`` layers."""
        return GroupedBand(self, depth)


class GroupedBand:
    """Tables of the stages ``[first, first + 1 + column)`` of one variant, columns up to a depth.

    Attributes
    ----------
    end, valid
        End of each stage; whether it is within the model.
    work, dense, expert
        Ticks and quanta of each stage.
    """

    def __init__(self, tables: GroupedTables, depth: int) -> None:
        self.tables, self.depth = tables, depth
        rows, columns = np.arange(tables.layers)[:, None], np.arange(depth)[None, :]
        self.end = rows + columns + 1
        self.valid = self.end <= tables.layers
        self._end = np.minimum(self.end, tables.layers)
        self.work, self.dense, self.expert = map(self._sums, (tables.work, tables.dense, tables.expert))
        self._activations = self._sums(tables.activations)
        self._extras: dict[tuple[Holders, int], Ints] = {}
        self._syncs: dict[tuple[Holders, int], Ints] = {}
        self._flights: dict[tuple[Ranks, int], Ints] = {}
        self._hops: dict[tuple[Pair, ...], Ints] = {}

    def _sums(self, values: Ints) -> Ints:
        ends = prefix(values)
        sums: Ints = ends[self._end] - ends[:-1, None]
        return sums

    def _largest(self, values: Ints) -> Ints:
        """Return the largest value of a layer in each stage."""
        padded = np.concatenate([values, np.zeros(self.depth, dtype=np.int64)])
        columns = np.lib.stride_tricks.sliding_window_view(padded, self.depth)[: self.tables.layers]
        largest: Ints = np.maximum.accumulate(columns, axis=1)
        return largest

    def hops(self, pairs: tuple[Pair, ...]) -> Ints:
        """Ticks of the two transfers of each stage, in the slowest of the replicas that see these levels."""
        if pairs not in self._hops:
            hops = self.tables.hops
            each = [hops(entry)[:-1, None] + hops(out)[self._end] for entry, out in pairs]
            self._hops[pairs] = np.maximum.reduce(each)
        return self._hops[pairs]

    def extra(self, holders: Holders, zero: int) -> Ints:
        """Ticks that a ZeRO type adds to the load of each stage."""
        key = holders, zero
        if key not in self._extras:
            self._extras[key] = self._sums(self.tables.extra(holders, zero))
        return self._extras[key]

    def sync(self, holders: Holders, zero: int) -> Ints:
        """Ticks to synchronise each stage."""
        key = holders, zero
        if key not in self._syncs:
            self._syncs[key] = self.tables.sync(holders, zero, self.dense, self.expert)
        return self._syncs[key]

    def most_in_flight(self, ranks: Ranks, zero: int) -> Ints:
        """Most microbatches in flight that fit the memory of a device (C11); 0 where not even one does."""
        key = ranks, zero
        if key not in self._flights:
            room, kept = self.tables.capacity - self.held(ranks, zero), self._activations
            most = np.where(kept > 0, room // np.maximum(kept, 1), UNLIMITED)
            self._flights[key] = np.where(self.valid & (room >= 0), most, 0)
        return self._flights[key]

    def held(self, ranks: Ranks, zero: int) -> Ints:
        """Quanta that a stage takes on each device whatever is in flight."""
        copies, moment = self.tables.copies, self._largest(self.tables.moment(ranks, zero))
        dense, expert = state(self.dense, copies, zero, ranks.dense), state(self.expert, copies, zero, ranks.expert)
        return dense + expert + moment
