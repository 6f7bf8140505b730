"""Prices of the presets whose network times are those of the original: by the levels of blocks and boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from nest.cost.collectives import shard_s, sync_height, sync_s, transfer_s
from nest.cost.compute import walk
from nest.cost.memory import needed, resident
from nest.cost.scale import Scale
from nest.evaluate.rules import priced_sharding
from nest.evaluate.verdict import Levels, StageFigures
from nest.graph import LayerGraph
from nest.plan import Plan
from nest.problem import OPTIMIZER_COPIES, Problem
from nest.units import Number, bytes_of, quanta

Crossing: TypeAlias = list[tuple[int, Number]]
"""Edges across a boundary of a stage: place of the layer inside it, in the order in which it runs, and bytes."""


def levelled_figures(problem: Problem, plan: Plan, graph: LayerGraph, scale: Scale) -> Iterator[StageFigures]:
    """Yield the figures of each stage of a plan whose stages follow the order of the layers."""
    yield from _Levelled(problem, plan, graph, scale).figures()


class _Levelled:
    """Prices each stage of a plan whose stages follow the order of the layers, where the plan places it."""

    def __init__(self, problem: Problem, plan: Plan, graph: LayerGraph, scale: Scale) -> None:
        self.problem, self.plan, self.scale = problem, plan, scale
        layers, ticks, per_byte = graph.layers, scale.time.ticks_array, scale.quanta_per_byte
        self.forward: list[int] = ticks(np.array([layer.forward_s for layer in layers])).tolist()
        self.backward: list[int] = ticks(np.array([layer.backward_s for layer in layers])).tolist()
        self.parameters = [quanta(layer.parameter_bytes, per_byte) for layer in layers]
        self.activations = [quanta(layer.activation_bytes, per_byte) for layer in layers]
        self.entering, self.leaving = _crossing(graph, plan)
        self.shardings = [priced_sharding(problem, stage) for stage in plan.stages]
        self.transfers: dict[tuple[Number, int], int] = {}

    def figures(self) -> Iterator[StageFigures]:
        """Yield the figures of each stage."""
        ends = list(accumulate(len(stage.layers) for stage in self.plan.stages))
        runs = list(map(slice, [0, *ends], ends))
        parameters = [sum(self.parameters[run]) for run in runs]
        columns = zip(runs, parameters, self._levels(), self._syncs(parameters), strict=True)
        for at, (run, weights, replicas, sync) in enumerate(columns):
            load, forward, backward, sharding, levels = max([self._times(at, run, weights, each) for each in replicas])
            memory = self._memory(at, run, weights)
            yield StageFigures(load, forward, backward, sharding, sync, memory, Levels(*levels))

    def _levels(self) -> Iterator[set[tuple[int, int, int]]]:
        """Yield the levels of entry, exit and block of each stage, in every replica that counts."""
        stages, preset, spans = self.plan.stages, self.problem.preset, self.problem.cluster.spans
        count = self.plan.replicas if preset.all_replicas else 1
        base = self.problem.cluster.starts(count, self.plan.replica_stride)
        first = base + np.array([stage.first_device for stage in stages])[:, None]
        last = first + np.array([stage.devices - 1 for stage in stages])[:, None]
        upper = first if preset.boundary == "first" else last
        none = [0] * len(base)
        between = spans(first[1:], upper[:-1]).tolist()  # the next stage lies below on the line
        for columns in zip([none, *between], [*between, none], spans(first, last).tolist(), strict=True):
            yield set(zip(*columns, strict=True))

    def _times(
        self, at: int, run: slice, parameters: int, levels: tuple[int, int, int]
    ) -> tuple[int, int, int, int, tuple[int, int, int]]:
        """Return the load of a stage in a replica, its three terms, and the levels of entry, exit and block again."""
        entry, out, block = levels
        there, back = self.forward[run], self.backward[run]
        repeated = 0
        if self.plan.stages[at].recompute == "full":
            repeated = sum(there if self.problem.preset.repeated_pass == "forward" else back)
        forward = walk(0, there, self._arrivals(self.entering[at], len(there), entry))
        backward = walk(repeated, reversed(back), self._arrivals(self.leaving[at], len(back), out))
        sharding = self._sharding(at, parameters, block)
        return forward + backward + sharding, forward, backward, sharding, levels

    def _arrivals(self, crossing: Crossing, layers: int, level: int) -> list[int]:
        """Tick at which each layer has what edges bring from outside: activations, or gradients on the way back."""
        arrivals = [0] * layers
        for place, size in crossing:
            ticks = self.transfers.get((size, level))
            if ticks is None:
                ticks = self._transfer(size, level)
            arrivals[place] = max(arrivals[place], ticks)
        return arrivals

    def _transfer(self, size: Number, level: int) -> int:
        seconds = transfer_s(self.problem.cluster, self.problem.preset, level, float(size))
        ticks = self.transfers[size, level] = self.scale.time.ticks(seconds)
        return ticks

    def _sharding(self, at: int, parameters: int, block: int) -> int:
        """Reduce-scatter the gradients (types 2 and 3), all-gather the weights (type 3)."""
        zero, degree = self.shardings[at]
        if zero < 2:
            return 0
        size = float(bytes_of(parameters, self.scale.quanta_per_byte))
        ring = self.scale.time.ticks(shard_s(self.problem.cluster, self.problem.preset, block, degree, size))
        return ring * (zero - 1)

    def _memory(self, at: int, run: slice, parameters: int) -> int:
        stages, activations = self.plan.stages, sum(self.activations[run])
        stash = activations  # of each further microbatch in flight
        if stages[at].recompute == "full":
            stash = sum([quanta(size, self.scale.quanta_per_byte) for _, size in self.entering[at]])
        copies = OPTIMIZER_COPIES[self.problem.training.optimizer]
        return needed(resident(parameters, activations, copies, *self.shardings[at]), stash, len(stages) - at)

    def _syncs(self, parameters: list[int]) -> list[int]:
        """Return the synchronisation of each stage."""
        cluster, preset, plan = self.problem.cluster, self.problem.preset, self.plan
        sizes = np.array([float(bytes_of(count, self.scale.quanta_per_byte)) for count in parameters])
        if preset.sync_sharded:
            sizes /= [degree if zero == 3 else 1 for zero, degree in self.shardings]
        height = sync_height(cluster, plan.replicas, plan.replica_stride)
        return [self.scale.time.ticks(each) for each in sync_s(cluster, preset, plan.replicas, height, sizes).tolist()]


def _crossing(graph: LayerGraph, plan: Plan) -> tuple[list[Crossing], list[Crossing]]:
    """Return the edges that enter each stage from another, and those that leave it, by the order in which it runs."""
    entering: list[Crossing] = [[] for _ in plan.stages]
    leaving: list[Crossing] = [[] for _ in plan.stages]
    homes = [
        (at, place, len(stage.layers) - 1 - place)
        for at, stage in enumerate(plan.stages)
        for place in range(len(stage.layers))
    ]
    for (source, target), edge in zip(graph.places, graph.edges, strict=True):
        before, _, place_backward = homes[source]
        after, place_forward, _ = homes[target]
        if before != after:
            entering[after].append((place_forward, edge.bytes))
            leaving[before].append((place_backward, edge.bytes))
    return entering, leaving
