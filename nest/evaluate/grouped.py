"""Prices of the preset whose network times follow from the places of all members of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import (
    EACH_ITERATION,
    EACH_MICROBATCH,
    Exchange,
    Exchanges,
    Part,
    axis_group,
    axis_starts,
    copies_of,
    sync_left,
)
from nest.cost.groups import Spread
from nest.cost.memory import state, whole_for_a_moment
from nest.cost.scale import Scale
from nest.cost.schedules import Schedule, in_flight
from nest.evaluate.rules import priced_sharding
from nest.evaluate.verdict import Levels, StageFigures
from nest.graph import Axis, Collective, CollectiveKind, Layer, LayerGraph, Pass, Recomputed
from nest.plan import Plan
from nest.problem import Problem
from nest.units import Ints, Number, bytes_of, quanta


def grouped_figures(problem: Problem, plan: Plan, graph: LayerGraph, scale: Scale) -> Iterator[StageFigures]:
    """Yield the figures of each stage of a plan whose stages follow the order of the layers."""
    walk = _Walk(problem, plan, graph, scale)
    ends = list(accumulate(len(stage.layers) for stage in plan.stages))
    for at, (first, end) in enumerate(pairwise([0, *ends])):
        yield _Stage(walk, at, first, end).figures()


class Groups(NamedTuple):
    """How the ranks that hold copies of a weight are spread.

    Parameters
    ----------
    within
        Those that share it between them: all, or those of some neighbouring replicas.
    across
        Those that have the same share of it; none where all share it between them.
    """

    within: frozenset[Spread]
    across: frozenset[Spread]


class _Walk:
    """Walks the stages of a plan, and remembers what groups in the same place take."""

    def __init__(self, problem: Problem, plan: Plan, graph: LayerGraph, scale: Scale) -> None:
        self.problem, self.plan, self.graph, self.scale = problem, plan, graph, scale
        self.exchanges, self.copies = Exchanges(problem), problem.training.held
        self._groups: dict[tuple[Axis, int], Spread] = {}
        self._holders: dict[tuple[int, ...], Spread] = {}
        self._inside: dict[tuple[Collective, int], int] = {}

    def quanta(self, size: Number) -> int:
        return quanta(size, self.scale.quanta_per_byte)

    def bytes(self, count: int) -> float:
        return float(bytes_of(count, self.scale.quanta_per_byte))

    def ticks(self, seconds: Iterable[float]) -> int:
        """Round each of some times by itself and add them up."""
        return sum(map(self.scale.time.ticks, seconds))

    def blocks(self, at: int) -> Ints:
        """Return the first device of a stage in every replica."""
        replicas = np.arange(self.plan.replicas, dtype=np.int64)
        return self.plan.stages[at].first_device + replicas * self.plan.replica_stride

    def levels(self, at: int) -> Ints:
        """Return the levels between a stage and the next: a row for each replica, a column for each device."""
        here, there = self.plan.stages[at], self.plan.stages[at + 1]
        ranks = np.arange(min(here.devices, there.devices), dtype=np.int64)
        return self.problem.cluster.spans(self.blocks(at)[:, None] + ranks, self.blocks(at + 1)[:, None] + ranks)

    def alive(self, cut: int) -> float:
        """Return the bytes of all tensors alive across a cut: of each layer before it what it sends beyond, once."""
        largest: dict[int, int] = {}
        for (source, target), edge in zip(self.graph.places, self.graph.edges, strict=True):
            if source < cut <= target:
                largest[source] = max(largest.get(source, 0), self.quanta(edge.bytes))
        return self.bytes(sum(largest.values()))

    def inside(self, collective: Collective, block: int) -> int:
        """Return what a collective of a layer takes in a block, in the slowest of its groups."""
        place = block % self.problem.cluster.period
        if (collective, place) not in self._inside:
            starts = place + axis_starts(self.plan.variant, collective.axis)
            groups = {self._group(collective.axis, int(start)) for start in starts}
            slowest = max(self.exchanges.exposed_s(collective, group) for group in groups)
            self._inside[collective, place] = self.scale.time.ticks(slowest)
        return self._inside[collective, place]

    def _group(self, axis: Axis, start: int) -> Spread:
        key = axis, start % self.problem.cluster.period
        if key not in self._groups:
            step, count = axis_group(self.plan.variant, axis)
            self._groups[key] = self.exchanges.spread(start + step * np.arange(count, dtype=np.int64))
        return self._groups[key]

    def groups(self, at: int, together: int, *, expert: bool) -> Groups:
        """Return how the ranks that hold copies are spread, for each device of a stage's block.

        Parameters
        ----------
        together
            Neighbouring replicas that share the weights between them.
        """
        variant = self.plan.variant
        through = variant.tensor * variant.context
        apart = variant.expert if expert else 1
        offsets = [tensor + through * rank for rank in range(apart) for tensor in range(variant.tensor)]
        blocks = self.blocks(at).reshape(-1, together)
        within = {self._holder(expert, row + offset) for row in blocks for offset in offsets}
        devices = range(variant.width)
        across = {self._alone(column + device) for column in blocks.T for device in devices} if len(blocks) > 1 else ()
        return Groups(frozenset(within), frozenset(across))

    def _holder(self, expert: bool, blocks: Ints) -> Spread:
        key = int(expert), int(blocks[0]) % self.problem.cluster.period, len(blocks)
        if key not in self._holders:
            self._holders[key] = self.exchanges.spread(copies_of(self.plan.variant, blocks, expert=expert))
        return self._holders[key]

    def _alone(self, devices: Ints) -> Spread:
        key = -1, int(devices[0]) % self.problem.cluster.period, len(devices)
        if key not in self._holders:
            self._holders[key] = self.exchanges.spread(devices)
        return self._holders[key]


@dataclass(frozen=True)
class _Stage:
    """A stage with the layers ``[first, end)``."""

    walk: _Walk
    at: int
    first: int
    end: int

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        return self.walk.graph.layers[self.first : self.end]

    @cached_property
    def zero(self) -> int:
        return priced_sharding(self.walk.problem, self.walk.plan.stages[self.at])[0]

    @cached_property
    def together(self) -> int:
        """Neighbouring replicas that share weights between them; all of them where their number is not legal."""
        walk = self.walk
        each, degree = walk.problem.copy_ranks(walk.plan.variant, 1)[0], walk.plan.stages[self.at].sharding.degree
        legal = self.zero and degree % each == 0 and walk.plan.replicas % (degree // each) == 0
        return degree // each if legal else walk.plan.replicas

    @cached_property
    def again(self) -> tuple[Recomputed | None, ...]:
        return self.walk.plan.stages[self.at].repeats(self.layers)

    def figures(self) -> StageFigures:
        """Return its figures, for the replica with the largest load."""
        receive, gradient = self._hops(self.at - 1, self.first), self._hops(self.at, self.end)
        sharding = sum(self._exchanged(EACH_MICROBATCH, [layer]) for layer in self.layers)
        sync = self._exchanged(EACH_ITERATION, self.layers, sync_left(self.walk.problem))
        passes = {block: self._passes(block) for block in set(self.walk.blocks(self.at).tolist())}
        rows = [
            (there[0] + passes[block][0], back[0] + passes[block][1], there[1], back[1], block)
            for there, back, block in zip(receive, gradient, self.walk.blocks(self.at).tolist(), strict=True)
        ]
        if not self.walk.problem.preset.all_replicas:
            rows = rows[:1]
        forward, backward, entry, out, block = max(rows, key=lambda row: (row[0] + row[1], row))
        last = block + self.walk.plan.stages[self.at].devices - 1
        levels = Levels(entry, out, self.walk.problem.cluster.span(block, last))
        load = forward + backward + sharding
        return StageFigures(load, forward, backward, sharding, sync, self._memory(), levels)

    def _hops(self, boundary: int, cut: int) -> list[tuple[int, int]]:
        """Return ticks and level of the transfer across a boundary for each replica, in its slowest pair of devices."""
        walk = self.walk
        if not 0 <= boundary < len(walk.plan.stages) - 1:
            return [(0, 0)] * walk.plan.replicas
        levels, size = walk.levels(boundary), np.array([walk.alive(cut)])
        ticks = {each: walk.ticks(walk.exchanges.hop_s(each, size)) for each in set(levels.ravel().tolist())}
        return [max((ticks[each], each) for each in row) for row in levels.tolist()]

    def _passes(self, block: int) -> tuple[int, int]:
        """Return the ticks of the forward and the backward pass in a block, transfers apart."""
        again = self.walk.ticks(each.repeated_s for each in self.again if each) + self._repeated(block)
        backward = self._times("backward_s") + self._collectives("backward", block)
        return self._times("forward_s") + self._collectives("forward", block), again + backward

    def _times(self, name: str) -> int:
        return self.walk.ticks(getattr(layer, name) for layer in self.layers)

    def _collectives(self, when: Pass, block: int) -> int:
        return sum(
            self.walk.inside(each, block) for layer in self.layers for each in layer.collectives if each.when == when
        )

    def _repeated(self, block: int) -> int:
        return sum(self.walk.inside(each, block) for again in self.again if again for each in again.collectives)

    def _weights(self, layers: Iterable[Layer]) -> tuple[int, int]:
        """Return quanta of dense weights, and of the experts' on each device."""
        experts = whole = 0
        for layer in layers:
            experts += self.walk.quanta(layer.expert_parameter_bytes)
            whole += self.walk.quanta(layer.parameter_bytes)
        return whole - experts, experts

    def _exchanged(
        self, by_type: Mapping[int, tuple[Exchange, ...]], layers: Iterable[Layer], part_left: float = 1.0
    ) -> int:
        """Return what the ranks that hold copies exchange, each time rounded by itself."""
        total = 0
        for expert, weights in enumerate(self._weights(layers)):
            groups = self._groups[expert]
            for kind, part in by_type[self.zero]:
                size = self.walk.bytes(weights * self._times_sent(part))
                total += self._slowest(kind, groups.within, size, part_left)
            if by_type is EACH_ITERATION and groups.across:
                shard = self.walk.bytes(weights * self._times_sent("gradients")) / self._degrees[expert]
                total += self._slowest("all-reduce", groups.across, shard, part_left)
        return total

    def _times_sent(self, part: Part) -> int:
        return self.walk.copies.gradients if part == "gradients" else 1

    def _slowest(self, kind: CollectiveKind, groups: Iterable[Spread], size: float, part_left: float) -> int:
        """Return what the slowest of some groups takes to exchange so many bytes."""
        walk, sizes = self.walk, np.array([size])
        slowest = max(float(walk.exchanges.seconds(kind, group, sizes)[0]) for group in groups)
        return walk.scale.time.ticks(slowest * part_left)

    @cached_property
    def _groups(self) -> tuple[Groups, Groups]:
        """How those are spread that hold copies of dense weights, and of an expert's."""
        found = (self.walk.groups(self.at, self.together, expert=expert) for expert in (False, True))
        return tuple(found)  # type: ignore[return-value]

    @property
    def _degrees(self) -> tuple[int, int]:
        """Over how many ranks dense weights are spread, and an expert's."""
        return self.walk.problem.copy_ranks(self.walk.plan.variant, self.together)

    def _memory(self) -> int:
        """Return quanta on each device."""
        walk, stages = self.walk, len(self.walk.plan.stages)
        held = sum(
            state(weights, walk.copies, self.zero, ranks)
            for weights, ranks in zip(self._weights(self.layers), self._degrees, strict=True)
        )
        microbatches = -(-walk.problem.microbatches(walk.plan.variant) // walk.plan.replicas)
        held_by = [again or layer for layer, again in zip(self.layers, self.again, strict=True)]
        kept = sum(walk.quanta(each.activation_bytes) for each in held_by)
        working = [walk.quanta(each.working_bytes) for each in held_by]
        moment = max(self._moment(layer, size) for layer, size in zip(self.layers, working, strict=True))
        overhead = walk.quanta(walk.problem.training.overhead_bytes)
        flying = in_flight(Schedule(walk.plan.schedule), stages, self.at, microbatches)
        return held + flying * kept + moment + overhead

    def _moment(self, layer: Layer, working: int) -> int:
        """Return what is in use for a moment while a layer runs."""
        spread = [self.zero if ranks > 1 else 0 for ranks in self._degrees]
        whole = sum(
            whole_for_a_moment(weights, self.walk.copies, zero)
            for weights, zero in zip(self._weights([layer]), spread, strict=True)
        )
        return working + whole
