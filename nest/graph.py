"""The model as a graph of layers in topological order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import Literal, TypeAlias

from nest.downsets import topological
from nest.errors import InvalidProblem
from nest.units import Number

LayerId: TypeAlias = int | str

FIGURES = "give a finite number from 0"
"""What every figure of a layer or an edge should be."""


CollectiveKind: TypeAlias = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring"]
"""``ring`` passes its bytes on to the next device as often as there are further devices."""

Axis: TypeAlias = Literal["tensor", "context", "expert"]

Pass: TypeAlias = Literal["forward", "backward", "recompute"]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of a layer for one microbatch, without its time: that depends on where the group sits.

    Parameters
    ----------
    kind
        What it does.
    bytes
        Of the whole tensor for an all-reduce, all-gather and reduce-scatter; what a device has to send for an
        all-to-all and, at a time, for a ring.
    axis
        Among which devices: those that share the matrices, the sequence or the experts.
    when
        In which pass.
    hidden_s
        Seconds of computation beside which it can run.
    """

    kind: CollectiveKind
    bytes: Number
    axis: Axis
    when: Pass
    hidden_s: float = 0.0


Again: TypeAlias = Literal["selective", "full"]
"""What a layer computes again before its backward pass: the attention core (arXiv 2205.05198, section 5), or all."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What differs in a layer that computes something again.

    Parameters
    ----------
    kind
        What it computes again.
    repeated_s
        Time of that, for one microbatch.
    activation_bytes, working_bytes
        In the place of those of the layer.
    collectives
        Those that are repeated, besides those of the layer.
    """

    kind: Again
    repeated_s: float
    activation_bytes: Number
    working_bytes: Number = 0
    collectives: tuple[Collective, ...] = ()


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
    expert_parameter_bytes
        Bytes among the weights that belong to routed experts, which each expert rank has its own of.
    working_bytes
        Bytes in use for a moment while the layer runs, on top of what is kept.
    collectives
        What the devices of a stage exchange for it in its two passes.
    recomputed
        What it may compute again, each kind at most once; nothing where a layer keeps all in any case.
    tied_bytes
        Bytes among the weights, not those of experts, that are a copy of the graph's `LayerGraph.table`.
    weight_share
        Part of ``backward_s`` that takes gradients of weights, for schedules that put them off; None where not known.
    result_bytes
        Bytes that leave the model behind the layer, as logits or a loss do, for one microbatch on one device.
    """

    id: LayerId
    forward_s: float
    backward_s: float
    parameter_bytes: Number
    activation_bytes: Number
    kind: str = ""
    expert_parameter_bytes: Number = 0
    working_bytes: Number = 0
    collectives: tuple[Collective, ...] = ()
    recomputed: tuple[Recomputed, ...] = ()
    tied_bytes: Number = 0
    weight_share: float | None = None
    result_bytes: Number = 0

    def named(self, name: LayerId) -> Layer:
        """Return a layer of another name that is the same else."""
        return Layer(
            name,
            self.forward_s,
            self.backward_s,
            self.parameter_bytes,
            self.activation_bytes,
            self.kind,
            self.expert_parameter_bytes,
            self.working_bytes,
            self.collectives,
            self.recomputed,
            self.tied_bytes,
            self.weight_share,
            self.result_bytes,
        )

    def again(self, kind: str) -> Recomputed | None:
        """Return the figures of a kind of recomputation, None where the layer keeps all under it."""
        return next((each for each in self.recomputed if each.kind == kind), None)


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

    Parameters
    ----------
    layers, edges
        See there.
    table
        The layer whose weights others use again, as far as their ``tied_bytes`` say: an embedding that a head shares.
        A stage that holds both holds them once.
    others
        Names of further classes of devices, and the layers as they have them, in the same order: only times differ.

    Raises
    ------
    InvalidProblem
        If there is no layer, an id occurs twice, an edge dangles or points backwards, a figure is negative or not
        finite, a collective is of another pass than where it stands, the graph is in pieces, a layer is tied to none
        before it, or on another class of devices something else than times is other.
    """

    layers: tuple[Layer, ...]
    edges: tuple[Edge, ...]
    table: LayerId | None = None
    others: tuple[tuple[str, tuple[Layer, ...]], ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidProblem("layers", "the graph is empty", "give at least one layer")
        for at, (source, target) in enumerate(self.places):
            if source >= target:
                raise InvalidProblem(
                    f"edges[{at}]",
                    f"{self.edges[at].source!r} -> {self.edges[at].target!r} runs against the order of the layers",
                    "put the layers in topological order",
                )
        for _, layers in (("", self.layers), *self.others):
            _check_figures(layers)
        for edge in self.edges:
            if not 0 <= edge.bytes < inf:
                what = f"bytes of {edge.source!r} -> {edge.target!r} is {edge.bytes!r}"
                raise InvalidProblem("edges", what, FIGURES)
        self._check_others()
        self._check_ties()
        if self.unordered_pair is not None:  # a chain is in one piece
            self._check_connected()

    @classmethod
    def sort(
        cls,
        layers: Iterable[Layer],
        edges: Iterable[Edge],
        table: LayerId | None = None,
        others: Iterable[tuple[str, Sequence[Layer]]] = (),
    ) -> LayerGraph:
        """Build a graph from layers in any order, which is the same for all classes of devices; ties keep the order.

        Raises
        ------
        InvalidProblem
            As the class itself, and for a cycle, naming it.
        """
        layers, edges = tuple(layers), tuple(edges)
        places = _places(_index(layers), edges)
        if any(source >= target for source, target in places):  # an order that fits is the one that sorting would give
            order = topological(len(layers), places)
            if len(order) < len(layers):
                raise _cycle(edges)
            layers = tuple(layers[node] for node in order)
            others = [(name, [each[node] for node in order]) for name, each in others]
        return cls(layers, edges, table, tuple((name, tuple(each)) for name, each in others))

    @property
    def table_place(self) -> int:
        """Place of the layer whose weights others use again; that of the first where there is none."""
        return 0 if self.table is None else self.index[self.table]

    @cached_property
    def index(self) -> dict[LayerId, int]:
        """Place of each layer id in the topological order."""
        return _index(self.layers)

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """For each edge, the places of its source and its target in the topological order."""
        return _places(self.index, self.edges)

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
        for (source, target), edge in zip(self.places, self.edges, strict=True):
            here, there = (target, source) if enter else (source, target)
            ends[here].append((there, edge.bytes))
        return tuple(tuple(sorted(links)) for links in ends)

    @cached_property
    def recomputes(self) -> frozenset[Again]:
        """Kinds of recomputation for which some layer has figures."""
        distinct = {id(layer): layer for layer in self.layers}.values()
        return frozenset(each.kind for layer in distinct for each in layer.recomputed)

    @cached_property
    def blends(self) -> dict[tuple[tuple[int, ...], bool], LayerGraph]:
        """Layers of several classes together, by the objects of these: kept by `nest.classes`."""
        return {}

    @cached_property
    def unordered_pair(self) -> tuple[LayerId, LayerId] | None:
        """Two neighbouring layers that no edge orders, or None on a chain (with or without skip edges)."""
        if not self._loose:
            return None
        at = self._loose[0]
        return self.layers[at].id, self.layers[at + 1].id

    @cached_property
    def _loose(self) -> list[int]:
        """Places of layers that no edge orders with the next."""
        return sorted(
            {*range(len(self.layers) - 1)} - {source for source, target in self.places if target == source + 1}
        )

    @cached_property
    def before(self) -> tuple[int, ...]:
        """For each place in the order, the places with an edge to it as bits."""
        found = [0] * len(self.layers)
        for source, target in self.places:
            found[target] |= 1 << source
        return tuple(found)

    def named(self, ids: Iterable[LayerId]) -> tuple[Layer, ...]:
        """Return the layers of some ids, in their order."""
        return tuple([self.layers[self.index[each]] for each in ids])

    def equal_parts(self, parts: int) -> tuple[int, ...] | None:
        """Return where the layers of a chain end that are cut into so many equal parts, None where they do not divide.

        The first layer rides with the first part if no other is of its kind, as an embedding is, and likewise the last
        with the last part; layers without a kind do not. The others divide equally, at least one to a part.
        """
        first, _ = self.riding
        each, rest = divmod(len(self.layers) - sum(self.riding), parts)
        if rest or each < 1:
            return None
        ends = range(first + each, first + each * parts, each)
        return (*ends, len(self.layers))

    @cached_property
    def riding(self) -> tuple[bool, bool]:
        """Whether the first and the last layer are of a kind that no other is, so that they ride with equal parts."""
        kinds = Counter(layer.kind for layer in self.layers)
        first, last = (bool(each.kind) and kinds[each.kind] == 1 for each in (self.layers[0], self.layers[-1]))
        return first, last

    def in_one_order(self) -> LayerGraph:
        """Return the graph as a chain: edges of no bytes, which cost nothing, order loose neighbours."""
        added = (Edge(self.layers[at].id, self.layers[at + 1].id, 0) for at in self._loose)
        return LayerGraph(self.layers, (*self.edges, *added), self.table, self.others) if self._loose else self

    def __len__(self) -> int:
        return len(self.layers)

    def _check_others(self) -> None:
        names = [name for name, _ in self.others]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidProblem("layers", f"class {twice!r} is given twice", "give the layers of each class once")
        for name, layers in self.others:
            if len(layers) != len(self.layers):
                what = f"class {name!r} has {len(layers)} layers"
                raise InvalidProblem("layers", what, f"give the {len(self.layers)} layers of the model")
            alike: set[tuple[int, ...]] = set()  # figures of many layers are the same objects
            for own, other in zip(self.layers, layers, strict=True):
                key = tuple(id(each) for layer in (own, other) for each in (layer.collectives, layer.recomputed))
                if _sizes(own) != _sizes(other) or (key not in alike and _exchanging(own) != _exchanging(other)):
                    what = f"layer {own.id!r} on class {name!r} differs in more than times"
                    raise InvalidProblem("layers", what, "give it the bytes and collectives of the other class")
                alike.add(key)

    def _check_ties(self) -> None:
        if self.table is not None and self.table not in self.index:
            raise InvalidProblem("table", f"{self.table!r} is no layer", "name the id of a layer")
        for at, layer in enumerate(self.layers):
            most = layer.parameter_bytes - layer.expert_parameter_bytes
            if layer.tied_bytes and (self.table is None or at <= self.table_place):
                what = f"layer {layer.id!r} has tied_bytes, and no layer before it is the table"
                raise InvalidProblem("layers", what, "name an earlier layer as the table whose weights it uses again")
            if not 0 <= layer.tied_bytes <= most:
                what = f"tied_bytes of layer {layer.id!r} is {layer.tied_bytes!r}"
                raise InvalidProblem("layers", what, f"give a part of its weights but for experts, {most!r}")

    def _check_connected(self) -> None:
        root = list(range(len(self.layers)))

        def find(node: int) -> int:
            """Return the layer that stands for all that a layer is known to hang together with."""
            while root[node] != node:
                root[node] = root[root[node]]
                node = root[node]
            return node

        for source, target in self.places:
            root[find(source)] = find(target)
        for node in range(1, len(self.layers)):
            if find(node) != find(0):
                raise InvalidProblem(
                    "edges",
                    f"layer {self.layers[node].id!r} is not connected to layer {self.layers[0].id!r}",
                    "add the edges that join the parts",
                )


def _check_figures(layers: Iterable[Layer]) -> None:
    known: set[tuple[int, int]] = set()
    for layer in {id(layer): layer for layer in layers}.values():
        if not (
            0 <= layer.forward_s < inf
            and 0 <= layer.backward_s < inf
            and 0 <= layer.parameter_bytes < inf
            and 0 <= layer.activation_bytes < inf
            and 0 <= layer.expert_parameter_bytes <= layer.parameter_bytes
            and 0 <= layer.working_bytes < inf
            and 0 <= layer.result_bytes < inf
            and 0 <= (layer.weight_share or 0) <= 1
        ):
            raise _bad_figure(layer)
        exchanging = id(layer.collectives), id(layer.recomputed)
        if exchanging not in known:  # layers that are alike share these objects
            known.add(exchanging)
            _check_collectives(layer, layer.collectives, ("forward", "backward"))
            for each in layer.recomputed:
                _check_recomputed(layer, each)


def _sizes(layer: Layer) -> tuple[object, ...]:
    """Return what a layer has besides times, and besides what it exchanges and computes again."""
    weights = layer.parameter_bytes, layer.expert_parameter_bytes, layer.tied_bytes
    return layer.id, layer.kind, weights, layer.activation_bytes, layer.working_bytes, layer.result_bytes


def _exchanging(layer: Layer) -> tuple[object, ...]:
    """Return what a layer exchanges and computes again, without times."""
    again = (replace(each, repeated_s=0.0, collectives=_unhidden(each.collectives)) for each in layer.recomputed)
    return _unhidden(layer.collectives), tuple(again)


def _unhidden(collectives: Iterable[Collective]) -> tuple[Collective, ...]:
    return tuple(replace(each, hidden_s=0.0) for each in collectives)


def _index(layers: tuple[Layer, ...]) -> dict[LayerId, int]:
    index = {layer.id: at for at, layer in enumerate(layers)}
    if len(index) < len(layers):
        for at, layer in enumerate(layers):
            if index[layer.id] != at:
                raise InvalidProblem(f"layers[{index[layer.id]}].id", f"{layer.id!r} is used twice", "ids are unique")
    return index


def _places(index: dict[LayerId, int], edges: tuple[Edge, ...]) -> tuple[tuple[int, int], ...]:
    try:
        return tuple([(index[edge.source], index[edge.target]) for edge in edges])
    except KeyError:
        raise _dangling(index, edges) from None


def _check_recomputed(layer: Layer, each: Recomputed) -> None:
    for name in ("repeated_s", "activation_bytes", "working_bytes"):
        if not 0 <= getattr(each, name) < inf:
            what = f"{name} of layer {layer.id!r}, recomputed {each.kind}, is {getattr(each, name)!r}"
            raise InvalidProblem("layers", what, FIGURES)
    if layer.again(each.kind) is not each:
        raise InvalidProblem("layers", f"layer {layer.id!r} is recomputed {each.kind} twice", "give one set of figures")
    _check_collectives(layer, each.collectives, ("recompute",))


def _check_collectives(layer: Layer, collectives: Iterable[Collective], passes: tuple[Pass, ...]) -> None:
    for each in collectives:
        if not (0 <= each.bytes < inf and 0 <= each.hidden_s < inf):
            raise _bad_collective(layer, each)
        if each.when not in passes:
            what = f"an {each.kind} of layer {layer.id!r} is in the pass {each.when!r}"
            raise InvalidProblem("layers", what, f"put it where those of {' and '.join(passes)} are")


def _bad_figure(layer: Layer) -> InvalidProblem:
    names = ("forward_s", "backward_s", "parameter_bytes", "activation_bytes", "expert_parameter_bytes")
    figures = {name: getattr(layer, name) for name in (*names, "working_bytes")}
    for name, value in figures.items():
        if not 0 <= value < inf:
            return InvalidProblem("layers", f"{name} of layer {layer.id!r} is {value!r}", FIGURES)
    what = f"expert_parameter_bytes of layer {layer.id!r} is {layer.expert_parameter_bytes!r}"
    return InvalidProblem("layers", what, f"give a part of its parameter_bytes, {layer.parameter_bytes!r}")


def _bad_collective(layer: Layer, collective: Collective) -> InvalidProblem:
    name = "hidden_s" if 0 <= collective.bytes < inf else "bytes"
    what = f"{name} of an {collective.kind} of layer {layer.id!r} is {getattr(collective, name)!r}"
    return InvalidProblem("layers", what, FIGURES)


def _dangling(index: dict[LayerId, int], edges: tuple[Edge, ...]) -> InvalidProblem:
    ends = (
        (f"edges[{at}].{side}", name)
        for at, edge in enumerate(edges)
        for side, name in (("source", edge.source), ("target", edge.target))
    )
    where, name = next((where, name) for where, name in ends if name not in index)
    return InvalidProblem(where, f"{name!r} is no layer", "name the id of a layer")


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
