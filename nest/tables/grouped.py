"""Tables of a variant where network times follow from the places of all members of a group.

All stages are as wide as the variant, and its units nest with the network, so that collectives inside a block take the
same wherever it stands: what layers cost adds up over a run. A place decides only the levels of the two boundaries, and
how the ranks that hold copies of the stage's weights are spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from nest.classes import across, fastest
from nest.constraints import Filters
from nest.cost.exchanges import (
    EACH_MICROBATCH,
    GATHERS,
    Exchange,
    Part,
    ZeroExchanges,
    sums,
)
from nest.cost.groups import Spread
from nest.cost.memory import state, stepped_on, whole_for_a_moment
from nest.cost.overlap import hidden_millionths
from nest.cost.scale import Scale
from nest.cost.schedules import Schedule, in_flight
from nest.graph import Again, CollectiveKind, LayerGraph
from nest.line import Line
from nest.places import Placing, Shape, distinct_placings, lines
from nest.presets import Arrangement, ScheduleName
from nest.problem import Problem, Variant, exchanging_type
from nest.tables.passes import Passes
from nest.tables.repeated import Passing, Repeating
from nest.tables.shares import Holders, Option, Ranks, Shares, Sharing
from nest.tables.speeds import Speeds, slowdown
from nest.tables.sums import prefix
from nest.units import Floats, Ints, Number, distinct, quanta

Pair: TypeAlias = tuple[int, int]
"""Levels of a stage's entry and exit boundary in one replica, `NO_BOUNDARY` where there is none."""

NO_BOUNDARY = -1


class Site(NamedTuple):
    """What one stage of a plan sees of the network.

    Parameters
    ----------
    pairs
        Levels of its boundaries, in all replicas.
    holders
        Where its replicas are.
    ends
        Levels that join the first stage of a replica to the last, in all replicas.
    classes
        Of the devices in all its blocks; none where the cluster has one class.
    """

    pairs: tuple[Pair, ...]
    holders: Holders
    ends: tuple[int, ...]
    classes: frozenset[str] = frozenset()


class Ends(NamedTuple):
    """Which ends of the model a stage holds, as far as tables tell such stages from others."""

    opens: bool = False
    closes: bool = False


ANY = Ends()
"""Any stages."""


def lines_of(filters: Filters, variant: Variant) -> tuple[Line, ...]:
    """Return the lines of devices on which plans of a variant may be, the longest first."""
    return lines(filters.problem.cluster, variant.width, filters.reserved)


class GroupedTables:
    """Tables of one variant.

    Where there are several classes of devices, times are the shortest of any class and memory is the most, so that all
    that follows from them is a bound. What stages take on the devices under them is in the tables `on` their classes.

    Parameters
    ----------
    problem, scale, variant
        What the tables are for.
    sharing
        How holders of weights are spread, and with it the network times of the problem.

    Attributes
    ----------
    forward, backward, work
        Ticks of each layer's passes, and of both, without sharding and recomputation, collectives included.
    hidden
        Millionths of exchanges that computation hides, see `nest.cost.overlap`.
    dense, expert, activations, working
        Quanta of each layer without recomputation.
    tied, table
        Quanta of dense weights that are a copy of those of the layer in this place.
    results
        Quanta of each layer that leave the model behind it.
    kinds, repeating
        What a stage may recompute, and what layers take then.
    lines
        Of devices on which plans may be, the longest first.
    devices, capacity
        How many devices a plan may use, and how many quanta a stage may take on each, side constraints included.
    step_s_per_byte
        Of the optimizer's step.
    """

    def __init__(self, problem: Problem, scale: Scale, variant: Variant, sharing: Sharing) -> None:
        self.problem, self.scale, self.variant, self.sharing = problem, scale, variant, sharing
        self.exchanges, self._passes = sharing.exchanges, Passes(scale, variant, sharing)
        self.graph: LayerGraph = fastest(problem.graphs[variant])
        self.layers, self.width = len(self.graph), variant.width
        layers, training = self.graph.layers, problem.training
        self.expert = self._quanta([layer.expert_parameter_bytes for layer in layers])
        self.dense = self._quanta([layer.parameter_bytes for layer in layers]) - self.expert
        self.activations = self._quanta([layer.activation_bytes for layer in layers])
        self.working = self._quanta([layer.working_bytes for layer in layers])
        self.tied, self.table = self._quanta([layer.tied_bytes for layer in layers]), self.graph.table_place
        self.results = self._quanta([layer.result_bytes for layer in layers])
        self.filters, self.copies = Filters(problem), training.held
        self.lines = lines_of(self.filters, variant)
        self.devices = min(self.filters.devices, self.lines[0].length(problem.cluster.devices))
        self.microbatches, self.kinds = problem.microbatches(variant), problem.recomputes(variant)
        self.hidden = hidden_millionths(training)
        self._hops: dict[int, tuple[Ints, Ints]] = {}
        self._on: dict[frozenset[str], GroupedTables] = {}
        each = [frozenset({name}) for name in problem.cluster.class_names] or [frozenset[str]()]
        self._rate(each)

    def _rate(self, classes: Sequence[frozenset[str]]) -> None:
        """Set what depends on devices: the times of the graph, and of some sets of classes the best memory and step."""
        training, cluster, per_byte = self.problem.training, self.problem.cluster, self.scale.quanta_per_byte
        room = max(quanta(self.filters.hbm_bytes_of(each), per_byte) for each in classes)
        self.capacity = min(room, 2**62) - quanta(training.overhead_bytes, per_byte)
        self.step_s_per_byte = min(cluster.step_s_per_byte_of(each, training.step_s_per_byte) for each in classes)
        self.forward, self.backward = self._passes.of(self.graph, "forward"), self._passes.of(self.graph, "backward")
        self.work = self.forward + self.backward
        self.repeating = tuple(self._repeating(kind) for kind in self.kinds if kind != "none")

    def on(self, classes: frozenset[str]) -> Self:
        """Return the tables of stages on devices of some classes together; the same where there is one class."""
        if not classes:
            return self
        if classes not in self._on:
            made = copy(self)
            made.__dict__.pop("weight", None)  # of the other times
            made.graph = across(self.problem.graphs[self.variant], classes)
            made._rate([classes])
            self._on[classes] = made
        return self._on[classes]  # type: ignore[return-value]

    def slowdown(self, classes: frozenset[str]) -> float:
        """Return how many times its shortest time every layer takes at least on devices of some classes."""
        return slowdown(self.on(classes).work, self.work)

    @cached_property
    def speeds(self) -> Speeds:
        """How fast the blocks are, beside blocks of the fastest devices."""
        cluster = self.problem.cluster
        slow = {name: self.slowdown(frozenset({name})) for name in cluster.class_names}
        return Speeds(cluster, self.width, slow)

    def _quanta(self, sizes: list[Number]) -> Ints:
        return np.array([quanta(size, self.scale.quanta_per_byte) for size in sizes], dtype=np.int64)

    def bytes_of(self, sizes: Ints) -> Floats:
        """Return byte counts in quanta as floating-point bytes."""
        return sizes / self.scale.quanta_per_byte

    @cached_property
    def weight(self) -> Ints:
        """Ticks of each layer's gradients of weights."""
        return np.array([self.scale.weight_ticks(layer) for layer in self.graph.layers], dtype=np.int64)

    def _repeating(self, kind: Again) -> Repeating:
        """Return what the layers take that recompute in one way, and of the others what they take anyway."""
        found = [layer.again(kind) for layer in self.graph.layers]
        held = [again or layer for again, layer in zip(found, self.graph.layers, strict=True)]
        ticks = self._passes.ticks([again.repeated_s if again else 0.0 for again in found])
        return Repeating(
            kind,
            np.array([again is not None for again in found]),
            ticks + self._passes.collectives([again.collectives if again else () for again in found]),
            self._quanta([each.activation_bytes for each in held]),
            self._quanta([each.working_bytes for each in held]),
        )

    @property
    def cuts(self) -> int:
        """How many cuts there are, from that before the first layer to that after the last."""
        return self.layers + 1

    def by_cut(self, values: Ints) -> Ints:
        """Return the sum of a value of the layers before each cut."""
        return prefix(values)

    def between(self, first: int, end: int) -> Ints:
        """Return the places of the layers between two cuts, ascending."""
        return np.arange(first, end)

    @cached_property
    def alive(self) -> Ints:
        """Quanta of the tensors alive across each cut."""
        return self._alive()

    def _alive(self) -> Ints:
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
        return self._crossing(level)[0]

    def sends(self, level: int) -> Ints:
        """Ticks of that for which a stage is busy with what it sends."""
        return self._crossing(level)[1]

    def _crossing(self, level: int) -> tuple[Ints, Ints]:
        if level not in self._hops:
            ticks, sent = np.zeros((2, self.cuts), dtype=np.int64)
            if level != NO_BOUNDARY:
                crossing = self.exchanges.crossing_s(self.variant, level, self.bytes_of(self.alive))
                ticks[1:-1] = sum(self.scale.time.ticks_array(seconds)[1:-1] for seconds in crossing)
                sent[1:-1] = self.scale.time.ticks_array(crossing.sent)[1:-1]
            self._hops[level] = ticks, sent
        return self._hops[level]

    def ranks(self, together: int) -> Ranks:
        """Return how many ranks hold copies in so many replicas."""
        return Ranks(*self.problem.copy_ranks(self.variant, together))

    def options(self, replicas: int, stages: int) -> tuple[Option, ...]:
        """Return how each of so many stages may shard, the largest groups of each type first."""
        return self.options_of(replicas, stages, self.problem.shard_groups(self.variant, replicas))

    def options_of(self, replicas: int, stages: int, groups: Sequence[int]) -> tuple[Option, ...]:
        """Return how each of so many stages may shard over groups of replicas of some sizes, in their order."""
        training = self.problem.training
        types = [exchanging_type(zero, stages, training) for zero in sorted(self.problem.choices.zero)]
        return tuple(Option(zero, each) for zero in types for each in (groups if zero else (replicas,)))

    def sites(self, stages: int, replicas: int, placing: Placing) -> tuple[Site, ...]:
        """Return what the stages see, from the first of the pipeline on."""
        first, stride, line = np.array(placing.starts(stages), dtype=np.int64), placing.stride, placing.line
        counted = replicas if self.problem.preset.all_replicas else 1
        cluster = self.problem.cluster
        base = stride * np.arange(counted, dtype=np.int64) if line.shifts else cluster.starts(counted, stride)
        starts = line.devices(first[:, None] + base)
        between = cluster.spans(starts[:-1], starts[1:]).tolist()
        none = [NO_BOUNDARY] * len(base)
        columns = zip([none, *between], [*between, none], strict=True)
        pairs = [tuple(sorted(set(zip(entry, out, strict=True)))) for entry, out in columns]
        places = first if line.shifts else self.sharing.alike(first, stride, replicas, self.width)
        ends = tuple(sorted(set(cluster.spans(starts[0], starts[-1]).tolist()))) if self.tied.any() else ()
        held = (Holders(place, stride, replicas, line) for place in places.tolist())
        blocks = line.devices(first[:, None] + stride * np.arange(replicas if cluster.classes else 1, dtype=np.int64))
        classes = cluster.classes_of(blocks, self.width)
        return tuple(Site(seen, each, ends, on) for seen, each, on in zip(pairs, held, classes, strict=True))

    def placings(self, stages: int, replicas: int, arrangement: Arrangement) -> tuple[Placing, ...]:
        """Return how an arrangement places stages and replicas on each line, without what those before it do."""
        shape, cluster = Shape(self.width, stages, replicas), self.problem.cluster
        arrangements = self.problem.preset.arrangements
        found = [
            distinct_placings(arrangements, shape, line, cluster.devices, cluster.group_sizes) for line in self.lines
        ]
        own = (placing for each in found for first, placing in each if first == arrangement)
        return tuple(placing for placing in own if placing.used(shape) <= self.devices)

    def sights(self, sites: tuple[Site, ...], options: tuple[Option, ...]) -> tuple[object, ...]:
        """Return all that times depend on in some sites, alike where plans in different places take the same."""
        groups = {option.together for option in options}
        known = {
            site: (site.pairs, site.ends, site.classes, *(self.shares(site.holders, together) for together in groups))
            for site in set(sites)
        }
        return tuple(known[site] for site in sites)

    def held_ends(self, position: int, stages: int) -> Ends:
        """Return which ends of the model a stage holds, the ``position``-th from the end of so many."""
        return Ends(position == stages, position == 1)

    def shares(self, holders: Holders, together: int) -> Shares:
        """Return how those are spread that hold copies of a stage's weights, in groups of so many replicas."""
        return self.sharing.shares(self.variant, holders, together)

    def of_layers(self, by_type: ZeroExchanges, shares: Shares, zero: int) -> Ints:
        """Ticks that a ZeRO type exchanges of each layer, whether they are hidden or not."""
        return self._of_layers(by_type, shares, zero, 0) + self._of_layers(by_type, shares, zero, 1)

    def extra_of(self, shares: Shares, zero: int, part: int) -> Ints:
        """Return them for each microbatch, of dense weights (part 0) or of the experts' (part 1) alone."""
        return self._of_layers(EACH_MICROBATCH, shares, zero, part)

    def _of_layers(self, by_type: ZeroExchanges, shares: Shares, zero: int, part: int) -> Ints:
        values, place = self._distinct[part]
        return self._exchanged(by_type[zero], shares.parts[part].within, values)[place]

    @cached_property
    def _distinct(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Different quanta of a layer's dense weights and of its experts', and which each layer has."""
        found = ((values := distinct(each), np.searchsorted(values, each)) for each in (self.dense, self.expert))
        return tuple(found)  # type: ignore[return-value]

    def _exchanged(
        self, exchanges: tuple[Exchange, ...], groups: tuple[Spread, ...], weights: Ints, factor: float = 1.0
    ) -> Ints:
        ticks = np.zeros_like(weights)
        for kind, what in exchanges:
            ticks += self._slowest(kind, groups, self.bytes_of(weights) * self.times(what), factor)
        return ticks

    def sync_of(self, shares: Shares, zero: int, part: int, weights: Ints) -> Ints:
        """Ticks of exchanges once per iteration, as if nothing hid them, of so many quanta of weights of one part."""
        return self.summed(shares, zero, part, weights) + self.once(GATHERS, shares, zero, part, weights)

    def once(self, by_type: ZeroExchanges, shares: Shares, zero: int, part: int, weights: Ints) -> Ints:
        """Ticks of some of the exchanges once per iteration."""
        return self._exchanged(by_type[zero], shares.parts[part].within, weights, self.problem.preset.sync_factor)

    def summed(self, shares: Shares, zero: int, part: int, weights: Ints) -> Ints:
        """Ticks to sum gradients once per iteration, between groups that each share the weights as well."""
        ticks, across = self.once(sums(self.problem.training), shares, zero, part, weights), shares.parts[part].across
        if across:
            shard = self.bytes_of(weights) * self.times("gradients") / shares.ranks[part]
            ticks += self._slowest("all-reduce", across, shard, self.problem.preset.sync_factor)
        return ticks

    def summed_ends(self, levels: tuple[int, ...], tied: Ints) -> Ints:
        """Ticks to sum the gradients of so many quanta between first and last stage, in the slowest replica."""
        sizes = self.bytes_of(tied) * self.times("gradients")
        factor = self.problem.preset.sync_factor
        each = [self.scale.time.ticks_array(self.exchanges.ends_s(level, sizes) * factor) for level in levels]
        return np.maximum.reduce(each) if each else np.zeros_like(tied)

    def step(self, ranks: Ranks, zero: int, dense: Ints, expert: Ints) -> Ints:
        """Ticks of the optimizer's step of stages of so many quanta of weights."""
        seconds = self.bytes_of(self.stepped_on(ranks, zero, dense, expert)) * self.step_s_per_byte
        return self.scale.time.ticks_array(seconds)

    def stepped_on(self, ranks: Ranks, zero: int, dense: Ints, expert: Ints) -> Ints:
        """Quanta of weights whose state a device holds, of so many."""
        return stepped_on(dense, zero, ranks.dense) + stepped_on(expert, zero, ranks.expert)

    def _slowest(self, kind: CollectiveKind, groups: tuple[Spread, ...], sizes: Floats, factor: float) -> Ints:
        """Return the ticks that the slowest of some groups takes to exchange so many bytes."""
        if not sizes.any():  # as of experts where there are none
            return np.zeros(sizes.shape, dtype=np.int64)
        seconds = [self.exchanges.seconds(kind, group, sizes) for group in groups]
        slowest = seconds[0] if len(seconds) == 1 else np.maximum.reduce(seconds)
        return self.scale.time.ticks_array(slowest * factor)

    def times(self, part: Part) -> float:
        """Return how many bytes are exchanged for each byte of weights."""
        return self.copies.summed if part == "gradients" else self.copies.gathered

    def flying(self, replicas: int, from_end: int, stages: int = 0, schedule: ScheduleName = "1f1b") -> int:
        """Return how many microbatches the ``from_end``-th stage from the end has in flight.

        Under 1F1B, which never has more than any other schedule, the number of stages makes no difference.
        """
        all_stages = max(stages, from_end)
        each = -(-self.microbatches // replicas)
        return in_flight(Schedule(schedule), all_stages, all_stages - from_end, each)

    def passing(self, replicas: int, from_end: int, stages: int = 0, schedule: ScheduleName = "1f1b") -> Passing:
        """Return the microbatches of the ``from_end``-th stage from the end."""
        buffers = self.problem.training.buffers_boundaries
        flying = self.flying(replicas, from_end, stages, schedule)
        return Passing(flying, -(-self.microbatches // replicas) if buffers else 0)

    def least_held(self, replicas: Ints) -> Ints:
        """Quanta of weights, gradients and optimizer that each layer adds to a stage at least: a row for each number.

        More than there are where no ZeRO type may be used.
        """
        return self.least_held_by(self.most_sharing(replicas))

    def most_sharing(self, replicas: Ints) -> Ints:
        """Return how many of so many replicas may share their weights at most, 0 where they may not."""
        if self.problem.choices.zero_degree is None:
            return np.where(replicas * self.ranks(1).dense > 1, replicas, 0)
        groups = [self.problem.shard_groups(self.variant, each) for each in replicas.tolist()]
        return np.array([max(each, default=0) for each in groups], dtype=np.int64)

    def least_held_by(self, largest: Ints) -> Ints:
        """Return `least_held` where so many replicas share their weights at most."""
        parts = (self.copies.optimizer, self.copies.gradients, 1)
        least = np.full((len(largest), self.layers), self.capacity + 1, dtype=np.int64)
        for zero in self.problem.choices.zero:
            held = np.zeros_like(least)
            for weights, inside in zip(
                (self.least_dense, self.expert), self.problem.copy_ranks(self.variant, 1), strict=True
            ):
                degrees = np.maximum(largest * inside, 1)[:, None]
                held += weights * sum(parts[zero:]) + weights * sum(parts[:zero]) // degrees
            usable = np.ones(len(largest), dtype=bool) if zero == 0 else largest > 0
            np.minimum(least, held, out=least, where=usable[:, None])
        return least

    def least_state(self, option: Option) -> Ints:
        """Quanta that each layer adds to a stage's state at least: a sum is rounded up once, and not for each layer."""
        parts = zip((self.least_dense, self.expert), self.ranks(option.together), strict=True)
        dense, expert = (state(weights, self.copies, option.zero, degree) for weights, degree in parts)
        least: Ints = np.maximum(dense + expert - (4 if option.zero else 0), 0)
        return least

    @cached_property
    def least_dense(self) -> Ints:
        """Quanta of dense weights that each layer adds to a stage at least."""
        return self.dense - self.tied

    @cached_property
    def least_kept(self) -> Ints:
        """Quanta of a microbatch that each layer keeps at least, whatever it recomputes."""
        kept = [self.activations] * ("none" in self.kinds) + [each.kept for each in self.repeating]
        least: Ints = np.minimum.reduce([*kept, self.activations])
        return least

    def whole(self, ranks: Ranks, zero: int) -> Ints:
        """Quanta of each layer's weights and gradients that are whole for a moment."""
        parts = ((self.dense, ranks.dense), (self.expert, ranks.expert))
        moments = [whole_for_a_moment(weights, self.copies, zero if degree > 1 else 0) for weights, degree in parts]
        return moments[0] + moments[1]

    def deepest_within(self, load: int) -> int:
        """Most layers that a stage of at most ``load`` ticks can hold."""
        ends = prefix(self.work)
        reach = np.searchsorted(ends, ends[:-1] + load, side="right") - 1
        return int(np.max(reach - np.arange(self.layers)))
