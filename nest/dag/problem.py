"""Problems on graphs with branches: layers with alternatives, classes of devices, and a load model.

Times are in the unit of the problem, whatever it is; sizes are bytes, and a bandwidth is bytes per unit of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from math import inf, isfinite

from nest.dag.presets import LoadModel
from nest.errors import InvalidProblem
from nest.graph import LayerId
from nest.units import Number

MOST_REPLICATED = 4096
"""Devices up to which a problem with replicas is taken; the search keeps a row of so many entries for each downset."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a layer.

    Parameters
    ----------
    name
        Unique among the options of a layer, class of devices and width.
    time
        Of one sample, forward and backward, on the devices of one replica.
    fixed_bytes, in_flight_bytes
        Memory on a device: ``in_flight_bytes`` for each microbatch in flight, and ``fixed_bytes`` besides.
    parameter_bytes
        Weights that the replicas of the stage synchronise.
    sync_in, sync_out
        Bytes that the devices of the stage exchange on top of an edge's own, by the id of the layer at its other end;
        what is not named is 0.
    """

    name: str
    time: float
    fixed_bytes: Number = 0
    in_flight_bytes: Number = 0
    parameter_bytes: Number = 0
    sync_in: Mapping[LayerId, Number] = field(default_factory=dict)
    sync_out: Mapping[LayerId, Number] = field(default_factory=dict)

    def figures(self) -> Iterator[Number]:
        """Yield every number, none of which may be negative."""
        yield from (self.time, self.fixed_bytes, self.in_flight_bytes, self.parameter_bytes)
        yield from self.sync_in.values()
        yield from self.sync_out.values()


@dataclass(frozen=True, slots=True)
class DagLayer:
    """A layer, or an operator.

    Parameters
    ----------
    id
        Unique in the problem.
    options
        By class of devices and width; a class or width that is not named cannot run the layer.
    colour
        Layers of one colour share a stage.
    backward
        Whether it belongs to the backward pass: then it follows its colour, and orders stages only where its colour,
        or that of the other end of an edge between two such layers, has no other layer.
    """

    id: LayerId
    options: Mapping[tuple[str, int], tuple[Option, ...]]
    colour: LayerId | None = None
    backward: bool = False


@dataclass(frozen=True, slots=True)
class DagEdge:
    """The output of ``source`` as ``target`` reads it; ``cost`` in bytes."""

    source: LayerId
    target: LayerId
    cost: Number


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices that are alike.

    Parameters
    ----------
    name
        As options of layers name it.
    count
        How many there are.
    memory_bytes
        Of each; None where it never runs out.
    pays_transfers
        Whether what crosses the border of a stage takes its devices time.
    """

    name: str
    count: int
    memory_bytes: Number | None
    pays_transfers: bool = True


@dataclass(frozen=True)
class DagProblem:
    """Layers, edges, devices and a load model; the objective is the largest load of a stage.

    Parameters
    ----------
    bandwidth
        Bytes in a unit of time.
    microbatches
        In a batch: replicas of a stage divide them.

    Raises
    ------
    InvalidProblem
        If ids, edges or figures make no sense, the layers form a cycle, or the load model does not cover something.
    """

    name: str
    preset: LoadModel
    layers: tuple[DagLayer, ...]
    edges: tuple[DagEdge, ...]
    classes: tuple[DeviceClass, ...]
    bandwidth: float = 1.0
    microbatches: int = 1

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidProblem("layers", "the graph is empty", "give at least one layer")
        if len(self.index) < len(self.layers):
            twice = next(layer.id for at, layer in enumerate(self.layers) if self.index[layer.id] != at)
            raise InvalidProblem("layers", f"id {twice!r} is given twice", "give each layer an id of its own")
        self._check_devices()
        self._check_layers()
        self._check_edges()
        self._check_acyclic()
        self._check_preset()

    @cached_property
    def index(self) -> dict[LayerId, int]:
        """Place of each layer by its id."""
        return {layer.id: at for at, layer in enumerate(self.layers)}

    @cached_property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """For each edge, the places of its source and its target."""
        return tuple((self.index[edge.source], self.index[edge.target]) for edge in self.edges)

    @cached_property
    def arcs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of layers of which the first is in no later stage than the second.

        They are the edges between forward layers, and, the other way round, those between backward layers of which one
        has a colour without a forward layer.
        """
        anchored = {self.colour(at) for at, layer in enumerate(self.layers) if not layer.backward}
        arcs = []
        for source, target in self.ends:
            if not self.layers[target].backward:
                arcs.append((source, target))
            elif self.layers[source].backward and not {self.colour(source), self.colour(target)} <= anchored:
                arcs.append((target, source))
        return tuple(arcs)

    def colour(self, at: int) -> tuple[bool, LayerId]:
        """Return what the layer at a place shares a stage with, itself if nothing else."""
        layer = self.layers[at]
        return (False, layer.id) if layer.colour is None else (True, layer.colour)

    def _check_devices(self) -> None:
        names = [kind.name for kind in self.classes]
        if len(set(names)) < len(names) or not names:
            raise InvalidProblem("classes", f"names {names}", "name each class of devices, differently")
        for at, kind in enumerate(self.classes):
            if kind.count < 0 or (kind.memory_bytes is not None and not 0 < kind.memory_bytes < inf):
                what = f"{kind.count} devices of {kind.memory_bytes} bytes"
                raise InvalidProblem(f"classes[{at}]", what, "give a count from 0, and memory above 0")
        if not sum(kind.count for kind in self.classes):
            raise InvalidProblem("classes", "there is no device", "give at least one")
        if not 0 < self.bandwidth < inf:
            raise InvalidProblem("bandwidth", repr(self.bandwidth), "give a finite number above 0")
        if self.microbatches < 1:
            raise InvalidProblem("microbatches", repr(self.microbatches), "give a whole number from 1")

    def _check_layers(self) -> None:
        known = {kind.name for kind in self.classes}
        for at, layer in enumerate(self.layers):
            for (kind, width), options in layer.options.items():
                where = f"layers[{at}].options[{kind!r}, {width}]"
                if kind not in known or width < 1:
                    raise InvalidProblem(where, "no class of devices or no width", f"name one of {sorted(known)}")
                if not options or len({option.name for option in options}) < len(options):
                    raise InvalidProblem(where, "no options, or two of a name", "give options with names that differ")
                if not all(isfinite(value) and value >= 0 for option in options for value in option.figures()):
                    raise InvalidProblem(where, "a negative or infinite number", "give finite numbers from 0")

    def _check_edges(self) -> None:
        for at, edge in enumerate(self.edges):
            for end, layer in (("source", edge.source), ("target", edge.target)):
                if layer not in self.index:
                    raise InvalidProblem(f"edges[{at}].{end}", f"there is no layer {layer!r}", "name a layer")
            if not (isfinite(edge.cost) and edge.cost >= 0):
                raise InvalidProblem(f"edges[{at}].cost", repr(edge.cost), "give a finite number from 0")
            source, target = (self.layers[self.index[end]] for end in (edge.source, edge.target))
            if source.backward and not target.backward:
                what = f"{edge.source!r} is backward, {edge.target!r} is not"
                raise InvalidProblem(f"edges[{at}]", what, "edges lead from forward to backward layers only")

    def _check_acyclic(self) -> None:
        before: dict[LayerId, set[LayerId]] = {layer.id: set() for layer in self.layers}
        for edge in self.edges:
            before[edge.target].add(edge.source)
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            cycle = " -> ".join(repr(layer) for layer in reversed(error.args[1][:8]))
            raise InvalidProblem("edges", f"there is a cycle: {cycle}", "remove one of its edges") from None

    def _check_preset(self) -> None:
        if self.preset.replicas:
            self._check_replicated()
            return
        self._check_costs()
        for at, layer in enumerate(self.layers):
            options = [option for kind in layer.options.values() for option in kind]
            single = all(width == 1 and len(kind) == 1 for (_, width), kind in layer.options.items())
            plain = not any(one.in_flight_bytes or one.sync_in or one.sync_out for one in options)
            if not (single and plain and len({option.fixed_bytes for option in options}) <= 1):
                remedy = "give one option of width 1 for each class of devices, with a time and the same fixed_bytes"
                raise InvalidProblem(f"layers[{at}].options", f"more than preset {self.preset.name} has", remedy)

    def _check_replicated(self) -> None:
        if len(self.classes) > 1:
            raise InvalidProblem("classes", f"{len(self.classes)} of them", f"preset {self.preset.name} has one")
        if self.classes[0].count > MOST_REPLICATED:
            what = f"{self.classes[0].count} devices"
            raise InvalidProblem("classes[0].count", what, f"give at most {MOST_REPLICATED}")

    def _check_costs(self) -> None:
        """Refuse layers whose edges differ in cost where their output is paid for once; 1e-6 is the original's own."""
        first: dict[LayerId, Number] = {}
        for at, edge in enumerate(self.edges):
            cost = first.setdefault(edge.source, edge.cost)
            if abs(cost - edge.cost) > 1e-6:
                what = f"{edge.cost!r}, but another edge of {edge.source!r} has {cost!r}"
                raise InvalidProblem(f"edges[{at}].cost", what, "give one cost for all edges of a layer")
