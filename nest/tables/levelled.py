"""Tables of a variant where network times follow from levels, and the stages of a plan may differ in width.

A stage is a run ``[first, end)`` of layers in the topological order. Tables hold one row per ``first`` and one column
per number of layers less one, a *band* as deep as the largest stage of interest, so that their size grows with the
layers times the depth and not with the square of the layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from nest.constraints import Filters
from nest.cost.collectives import shard_s, sync_height, sync_heights, sync_s, transfer_s
from nest.cost.memory import resident
from nest.cost.scale import Scale
from nest.graph import LayerGraph
from nest.problem import OPTIMIZER_COPIES, Problem, Variant
from nest.tables.sums import UNLIMITED, prefix
from nest.units import Floats, Ints, Number, quanta


@dataclass(frozen=True)
class Links:
    """Edges as arrays, longest first: layers they end at, layers they skip over plus one, sizes in bytes."""

    target: Ints
    reach: Ints
    size: Floats
    quanta: Ints

    def reaching(self, beyond: int) -> int:
        """How many edges reach further than ``beyond`` layers back."""
        return int(np.searchsorted(-self.reach, -beyond, side="left"))


class VariantTables:
    """Tables of one variant.

    Parameters
    ----------
    problem, scale, variant
        What the tables are for.

    Attributes
    ----------
    forward, backward
        Ticks of each layer.
    parameters, activations
        Quanta of each layer.
    repeated
        Ticks that recomputation adds to each layer's backward pass; zeros without it.
    filters
        What the side constraints of the problem admit.
    devices, capacity
        How many devices a plan may use, and how many quanta a stage may take on each, side constraints included.
    """

    def __init__(self, problem: Problem, scale: Scale, variant: Variant) -> None:
        self.problem, self.scale, self.variant = problem, scale, variant
        self.graph: LayerGraph = problem.graphs[variant]
        layers = self.graph.layers
        self.layers = len(layers)
        self.width = variant.width
        self.forward = scale.time.ticks_array(np.array([layer.forward_s for layer in layers]))
        self.backward = scale.time.ticks_array(np.array([layer.backward_s for layer in layers]))
        self.parameters = self._quanta([layer.parameter_bytes for layer in layers])
        self.activations = self._quanta([layer.activation_bytes for layer in layers])
        again = self.forward if problem.preset.repeated_pass == "forward" else self.backward
        self.recompute = problem.choices.recompute == "full"
        self.repeated = again if self.recompute else np.zeros_like(again)
        self.filters = Filters(problem)
        self.devices = self.filters.devices
        self.capacity = min(quanta(self.filters.hbm_bytes, scale.quanta_per_byte), 2**62)
        self.copies = OPTIMIZER_COPIES[problem.training.optimizer]

    def _quanta(self, sizes: list[Number]) -> Ints:
        scale = self.scale.quanta_per_byte
        return np.array([quanta(size, scale) for size in sizes] if scale > 1 else sizes, dtype=np.int64)

    def seconds_of(self, sizes: Ints) -> Floats:
        """Return byte counts in quanta as floating-point bytes."""
        return sizes / self.scale.quanta_per_byte

    @cached_property
    def links(self) -> Links:
        """Edges seen by the forward walk."""
        index = self.graph.index
        ends = [(index[edge.target], index[edge.source], edge.bytes) for edge in self.graph.edges]
        return self._as_links(ends)

    @cached_property
    def reversed_links(self) -> Links:
        """Edges seen by the backward walk, on the reversed order of layers."""
        last, index = self.layers - 1, self.graph.index
        ends = [(last - index[edge.source], last - index[edge.target], edge.bytes) for edge in self.graph.edges]
        return self._as_links(ends)

    def _as_links(self, ends: list[tuple[int, int, Number]]) -> Links:
        ends = sorted(ends, key=lambda end: end[1] - end[0])
        target = np.array([end[0] for end in ends], dtype=np.int64)
        source = np.array([end[1] for end in ends], dtype=np.int64)
        sizes: list[Number] = [end[2] for end in ends]
        return Links(target, target - source, np.array(sizes, dtype=np.float64), self._quanta(sizes))

    def transfers(self, sizes: Floats, level: int) -> Ints:
        """Ticks to send each of ``sizes`` bytes across a boundary of ``level``."""
        return self.scale.time.ticks_array(transfer_s(self.problem.cluster, self.problem.preset, level, sizes))

    def syncs(self, parameters: Ints, replicas: int, height: int, degree: int = 1) -> Ints:
        """Ticks to synchronise each of ``parameters`` quanta over ``replicas``, divided over ``degree`` ranks."""
        size = self.seconds_of(parameters)
        if degree > 1:
            size = size / degree
        seconds = sync_s(self.problem.cluster, self.problem.preset, replicas, height, size)
        return self.scale.time.ticks_array(seconds)

    def height(self, replicas: int, stride: int) -> int:
        """Levels that the starts of the replicas need to share a group."""
        return sync_height(self.problem.cluster, replicas, stride)

    def heights(self, replicas: Ints, strides: Ints) -> Ints:
        """Return `height` for arrays."""
        return sync_heights(self.problem.cluster, replicas, strides)

    @property
    def may_shard(self) -> bool:
        """Whether a stage may shard at all."""
        return bool(self.problem.zero_degrees(self.width))

    @cached_property
    def monotone(self) -> bool:
        """Whether no transfer gets cheaper from one level to the next (bandwidth of a path never grows)."""
        latencies = [level.latency_s for level in self.problem.cluster.levels]
        return all(low <= high for low, high in pairwise(latencies))

    def kept_copies(self, zero: int) -> int:
        """Bytes per byte of parameters that sharding of a type never removes."""
        return sum((self.copies, 1, 1)[zero:])

    @cached_property
    def deepest(self) -> int:
        """Most layers that any stage can hold, by the memory that no sharding removes."""
        least = self.parameters * self.kept_copies(max(self.problem.choices.zero)) + self.activations
        ends = prefix(least)
        reach = np.searchsorted(ends, ends[:-1] + self.capacity, side="right") - 1
        return max(0, int(np.max(reach - np.arange(self.layers))))

    def deepest_within(self, load: int) -> int:
        """Most layers that a stage of at most ``load`` ticks can hold."""
        ends = prefix(self.forward + self.backward)
        reach = np.searchsorted(ends, ends[:-1] + load, side="right") - 1
        return min(self.deepest, int(np.max(reach - np.arange(self.layers))))

    def band(self, depth: int) -> Band:
        """Return the tables of all stages of at most ``depth`` layers."""
        return Band(self, depth)


class Band:
    """Tables of the stages ``[first, first + 1 + column)`` of one variant, columns up to a depth.

    Attributes
    ----------
    first, end
        First layer and end of each stage.
    valid, inner
        Whether the stage ends within the model; before its last layer.
    parameters
        Quanta.
    """

    def __init__(self, tables: VariantTables, depth: int) -> None:
        self.tables, self.depth = tables, depth
        rows, columns = np.arange(tables.layers)[:, None], np.arange(depth)[None, :]
        self.first, self.end = rows, rows + columns + 1
        self.valid = self.end <= tables.layers
        self.inner = self.end < tables.layers
        self._end = np.minimum(self.end, tables.layers)
        self.parameters = self._sums(tables.parameters)
        self._forward_sum = self._sums(tables.forward)
        self._backward_sum = self._sums(tables.backward)
        self._repeated_sum = self._sums(tables.repeated) * self.inner
        self._walks: dict[tuple[bool, int], Ints] = {}
        self._flights: dict[tuple[int, int], Ints] = {}

    def _sums(self, values: Ints) -> Ints:
        ends = prefix(values)
        sums: Ints = ends[self._end] - ends[:-1, None]
        return sums

    def forward(self, level: int) -> Ints:
        """Ticks of the forward walk, tensors entering across ``level``."""
        if (True, level) not in self._walks:
            links = self.tables.links
            self._walks[True, level] = self._walk(links, level, self.tables.forward, self._forward_sum)
        return self._walks[True, level]

    def backward(self, level: int) -> Ints:
        """Ticks of the backward walk, recomputation included, gradients entering across ``level``.

        A walk is linear in the max-plus sense, so that starting after the repeated pass is the larger of that pass
        followed by all backward passes, and of the walk that starts at once.
        """
        if (False, level) not in self._walks:
            links = self.tables.reversed_links
            mirrored = self._walk(links, level, self.tables.backward[::-1], self._mirror(self._backward_sum))
            self._walks[False, level] = np.maximum(
                self._repeated_sum + self._backward_sum, np.where(self.valid, self._mirror(mirrored), 0)
            )
        return self._walks[False, level]

    def _mirror(self, table: Ints) -> Ints:
        """Reorder between stages counted by first layer and the same stages on the reversed order of layers."""
        row = self.tables.layers - self._end
        mirrored: Ints = table[row, self._column]
        return mirrored

    @cached_property
    def _column(self) -> Ints:
        return np.broadcast_to(np.arange(self.depth)[None, :], self.end.shape)

    def _walk(self, links: Links, level: int, times: Ints, sums: Ints) -> Ints:
        ticks = self.tables.transfers(links.size, level)
        arrive = np.zeros(self.tables.layers, dtype=np.int64)
        np.maximum.at(arrive, links.target, ticks)
        walked = sums + arrive[:, None]
        longest = int(links.reach.max(initial=0))
        if longest <= 1:
            return walked
        padded = np.concatenate([times, np.zeros(self.depth, dtype=np.int64)])
        finish = walked[:, 0]
        for column in range(1, self.depth):
            if column < longest:
                late = np.zeros(len(padded), dtype=np.int64)
                count = links.reaching(column)
                np.maximum.at(late, links.target[:count], ticks[:count])
                finish = np.maximum(finish, late[column : column + self.tables.layers])
            finish = finish + padded[column : column + self.tables.layers]
            walked[:, column] = finish
        return walked

    @cached_property
    def stash(self) -> Ints:
        """Quanta that each further microbatch in flight keeps."""
        tables = self.tables
        if not tables.recompute:
            return self._sums(tables.activations)
        links = tables.links
        added = np.zeros((tables.layers, self.depth), dtype=np.int64)
        for column in range(min(self.depth, int(links.reach.max(initial=0)))):
            count = links.reaching(column)
            entering = np.zeros(tables.layers + self.depth, dtype=np.int64)
            np.add.at(entering, links.target[:count], links.quanta[:count])
            added[:, column] = entering[column : column + tables.layers]
        return np.cumsum(added, axis=1)

    def resident(self, zero: int, degree: int) -> Ints:
        """Quanta that a stage holds on each device with one microbatch in flight."""
        return resident(self.parameters, self._activations, self.tables.copies, zero, degree)

    def most_in_flight(self, zero: int, degree: int) -> Ints:
        """Most microbatches in flight that fit the memory of a device; 0 where not even one does.

        A stage that is the ``q``-th from the end of the pipeline has ``q`` in flight (1F1B), so this is the memory
        rule (C11) as a bound on the position in the pipeline.
        """
        key = (zero, degree)
        if key not in self._flights:
            tables = self.tables
            room = tables.capacity - self.resident(zero, degree)
            stash = self.stash
            further = np.where(stash > 0, room // np.maximum(stash, 1), UNLIMITED)
            self._flights[key] = np.where(self.valid & (room >= 0), 1 + further, 0)
        return self._flights[key]

    @cached_property
    def _activations(self) -> Ints:
        return self._sums(self.tables.activations)

    def shard_ring(self, level: int, degree: int) -> Ints:
        """Ticks of one ring collective over a stage's parameters, in a block that spans ``level``."""
        tables = self.tables
        cluster, preset = tables.problem.cluster, tables.problem.preset
        seconds = shard_s(cluster, preset, level, degree, tables.seconds_of(self.parameters))
        return tables.scale.time.ticks_array(seconds)
