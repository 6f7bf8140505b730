"""The model as a graph of layers in topological order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import TypeAlias

from nest.errors import InvalidProblem
from nest.units import Number

LayerId: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer under one variant (tensor width, expert width, ...).

    Parameters
    ----------
    id
        Name of the layer, unique in its graph.
    forward_s, backward_s
        Time of one microbatch on one device of the stage, in seconds.
    parameter_bytes
        Bytes of weights on one device.
    activation_bytes
        Bytes that one microbatch keeps on one device until its backward pass.
    kind
        What the layer is, for people to read.
    """

    id: LayerId
    forward_s: float
    backward_s: float
    parameter_bytes: Number
    activation_bytes: Number
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor of ``bytes`` from one layer to another; ids as in `Layer.id`."""

    source: LayerId
    target: LayerId
    bytes: Number


@dataclass(frozen=True)
class LayerGraph:
    """Layers in topological order and the edges between them.

    Use `LayerGraph.sort` when the order is not known.

    Raises
    ------
    InvalidProblem
        If there is no layer, an id occurs twice, an edge dangles or points backwards, a figure is negative or not
        finite, or the graph is in pieces.
    """

    layers: tuple[Layer, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidProblem("layers", "the graph is empty", "give at least one layer")
        for at, edge in enumerate(self.edges):
            source, target = _end(self.index, edge.source, at, "source"), _end(self.index, edge.target, at, "target")
            if source >= target:
                raise InvalidProblem(
                    f"edges[{at}]",
                    f"{edge.source!r} -> {edge.target!r} runs against the order of the layers",
                    "put the layers in topological order",
                )
        self._check_figures()
        self._check_connected()

    @classmethod
    def sort(cls, layers: Iterable[Layer], edges: Iterable[Edge]) -> LayerGraph:
        """Build a graph from layers in any order; ties keep the order given.

        Raises
        ------
        InvalidProblem
            As the class itself, and for a cycle, naming it.
        """
        layers, edges = tuple(layers), tuple(edges)
        index = _index(layers)
        follow: list[list[int]] = [[] for _ in layers]
        waiting = [0] * len(layers)
        for at, edge in enumerate(edges):
            source, target = _end(index, edge.source, at, "source"), _end(index, edge.target, at, "target")
            follow[source].append(target)
            waiting[target] += 1
        ready = [node for node, count in enumerate(waiting) if count == 0]
        order: list[int] = []
        while ready:
            node = heapq.heappop(ready)
            order.append(node)
            for target in follow[node]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    heapq.heappush(ready, target)
        if len(order) < len(layers):
            raise _cycle(edges)
        return cls(tuple(layers[node] for node in order), edges)

    @cached_property
    def index(self) -> dict[LayerId, int]:
        """Place of each layer id in the topological order."""
        return _index(self.layers)

    @cached_property
    def incoming(self) -> tuple[tuple[tuple[int, Number], ...], ...]:
        """For each place in the order, the ``(source place, bytes)`` of its incoming edges, ascending."""
        return self._ends(enter=True)

    @cached_property
    def outgoing(self) -> tuple[tuple[tuple[int, Number], ...], ...]:
        """For each place in the order, the ``(target place, bytes)`` of its outgoing edges, ascending."""
        return self._ends(enter=False)

    def _ends(self, *, enter: bool) -> tuple[tuple[tuple[int, Number], ...], ...]:
        ends: list[list[tuple[int, Number]]] = [[] for _ in self.layers]
        for edge in self.edges:
            here, there = (edge.target, edge.source) if enter else (edge.source, edge.target)
            ends[self.index[here]].append((self.index[there], edge.bytes))
        return tuple(tuple(sorted(links)) for links in ends)

    @cached_property
    def unordered_pair(self) -> tuple[LayerId, LayerId] | None:
        """Two neighbouring layers that no edge orders, or None on a chain (with or without skip edges)."""
        for at in range(1, len(self.layers)):
            if all(source != at - 1 for source, _ in self.incoming[at]):
                return self.layers[at - 1].id, self.layers[at].id
        return None

    def __len__(self) -> int:
        return len(self.layers)

    def _check_figures(self) -> None:
        for layer in self.layers:
            for name in ("forward_s", "backward_s", "parameter_bytes", "activation_bytes"):
                _check_figure("layers", f"{name} of layer {layer.id!r}", getattr(layer, name))
        for edge in self.edges:
            _check_figure("edges", f"bytes of {edge.source!r} -> {edge.target!r}", edge.bytes)

    def _check_connected(self) -> None:
        root = list(range(len(self.layers)))

        def find(node: int) -> int:
            while root[node] != node:
                root[node] = root[root[node]]
                node = root[node]
            return node

        for edge in self.edges:
            root[find(self.index[edge.source])] = find(self.index[edge.target])
        for node in range(1, len(self.layers)):
            if find(node) != find(0):
                raise InvalidProblem(
                    "edges",
                    f"layer {self.layers[node].id!r} is not connected to layer {self.layers[0].id!r}",
                    "add the edges that join the parts",
                )


def _index(layers: tuple[Layer, ...]) -> dict[LayerId, int]:
    index = {layer.id: at for at, layer in enumerate(layers)}
    if len(index) < len(layers):
        for at, layer in enumerate(layers):
            if index[layer.id] != at:
                raise InvalidProblem(f"layers[{index[layer.id]}].id", f"{layer.id!r} is used twice", "ids are unique")
    return index


def _check_figure(where: str, what: str, value: Number) -> None:
    if not 0 <= value < inf:
        raise InvalidProblem(where, f"{what} is {value!r}", "give a finite number from 0")


def _end(index: dict[LayerId, int], name: LayerId, at: int, side: str) -> int:
    if name not in index:
        raise InvalidProblem(f"edges[{at}].{side}", f"{name!r} is no layer", "name the id of a layer")
    return index[name]


def _cycle(edges: tuple[Edge, ...]) -> InvalidProblem:
    sorter: TopologicalSorter[LayerId] = TopologicalSorter()
    for edge in edges:
        sorter.add(edge.target, edge.source)
    try:
        sorter.prepare()
    except CycleError as error:
        path = " -> ".join(str(name) for name in error.args[1])
        return InvalidProblem("edges", f"the layers form a cycle: {path}", "remove one of these edges")
    raise AssertionError("a graph that cannot be sorted has a cycle")
