"""The JSON input of the artifact of arXiv 2603.06798 (github.com/scai-tech/Nest) -> `nest.problem.Problem`.

Layer times are milliseconds, everything else is bytes, seconds and bytes per second. Keys that say nothing about the
problem (clock, energy, baselines) are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.files.document import Document
from nest.files.faults import item
from nest.files.limits import MOST_COUNT, MOST_SECONDS, Bandwidth, Bytes, Capacity, LayerName, Seconds, Switch
from nest.files.words import show
from nest.graph import Edge, Layer, LayerGraph
from nest.presets import PAPER
from nest.problem import Choices, Optimizer, Problem, Training, Variant, require_chain

MARKS = ("maxDevices", "nodes", "edges", "devices_per_level")
"""Keys by which the format is recognised."""

MS_PER_S = 1e3

PRESET = PAPER

OPTIMIZERS: Mapping[str, Optimizer] = {"SGD": "sgd", "Adam": "adam"}

Whole: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1, le=MOST_COUNT)] | Annotated[float, Meta(ge=1, le=MOST_COUNT)],
    Meta(description=f"a whole number from 1 to {MOST_COUNT}"),
]
"""A count, which the artifact sometimes writes as a float."""

Milliseconds: TypeAlias = Annotated[
    float, Meta(ge=0, le=MS_PER_S * MOST_SECONDS, description="milliseconds, a number from 0 to 1e12")
]
Rows = TypeVar("Rows")
ByWidth: TypeAlias = Annotated[
    dict[str, Rows], Meta(min_length=1, description="an object with a list for each tensor width")
]


class ArtifactNode(Struct, rename="camel", gc=False):
    """A layer."""

    id: LayerName
    parameter_size: Bytes
    activation_size: Bytes
    optimal_latency_fw: Milliseconds
    optimal_latency_bw: Milliseconds


class ArtifactEdge(Struct, rename="camel", gc=False):
    """A tensor between two layers."""

    source_id: LayerName
    dest_id: LayerName
    communication_cost: Bytes


class ArtifactFile(
    Struct,
    rename={
        "max_devices": "maxDevices",
        "max_memory_per_device": "maxMemoryPerDevice",
        "mbs_in_batch": "mbsInBatch",
        "activation_recomputation": "activationRecomputation",
        "optimizer_algorithm": "optimizerAlgorithm",
    },
):
    """What the artifact's input says about the problem."""

    max_devices: Whole
    max_memory_per_device: Capacity
    devices_per_level: Annotated[list[Whole], Meta(min_length=1, description="a list of fan-outs, innermost first")]
    bws: Annotated[list[Bandwidth], Meta(description="a list of bandwidths in bytes per second")]
    latency_per_level: Annotated[list[Seconds], Meta(description="a list of latencies in seconds")]
    mbs_in_batch: Whole
    nodes: ByWidth[Annotated[list[ArtifactNode], Meta(min_length=1, description="a list of layers, at least one")]]
    edges: ByWidth[Annotated[list[ArtifactEdge], Meta(description="a list of edges")]]
    ep_degree: Whole
    cp_degree: Whole
    sp_enabled: Switch
    activation_recomputation: Switch
    optimizer_algorithm: Annotated[Literal["SGD", "Adam"], Meta(description='"SGD" or "Adam"')]


def artifact_problem(document: Document) -> Problem:
    """Return the problem that an input of the artifact states, under preset ``paper``, objective in milliseconds.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    tables = document.decode(ArtifactFile)
    try:
        return Problem(
            name=Path(document.source).stem,
            graphs=_graphs(tables),
            cluster=_cluster(tables),
            training=Training(_whole(tables.mbs_in_batch, "mbsInBatch"), OPTIMIZERS[tables.optimizer_algorithm]),
            choices=Choices(recompute="full" if tables.activation_recomputation else "none"),
            preset=PRESET,
            time_unit_s=1 / MS_PER_S,
        )
    except InvalidProblem as fault:
        raise fault.at(document.source) from None


def _whole(value: int | float, where: str) -> int:
    if value != int(value):
        raise InvalidProblem(where, show(value), f"give a whole number from 1 to {MOST_COUNT}")
    return int(value)


def _cluster(tables: ArtifactFile) -> Cluster:
    fanouts = [_whole(value, item("devices_per_level", at)) for at, value in enumerate(tables.devices_per_level)]
    for name in ("bws", "latency_per_level"):
        count = len(getattr(tables, name))
        if count != len(fanouts):
            what = f"{count} values, but devices_per_level has {len(fanouts)}"
            raise InvalidProblem(name, what, "give one for each level, innermost first")
    devices = _whole(tables.max_devices, "maxDevices")
    levels = tuple(map(Level, fanouts, tables.bws, tables.latency_per_level))
    partial = prod(fanouts) > devices  # the original takes such a cluster as it is
    try:
        return Cluster(devices, tables.max_memory_per_device, levels, partial=partial)
    except InvalidProblem as fault:
        raise InvalidProblem("devices_per_level", fault.problem, fault.remedy) from None


def _graphs(tables: ArtifactFile) -> dict[Variant, LayerGraph]:
    for name, widths, other in (("edges", tables.edges, tables.nodes), ("nodes", tables.nodes, tables.edges)):
        for width in other:
            if width not in widths:
                raise InvalidProblem(item(name, width), "missing", "give the same tensor widths in nodes and edges")
    expert, context = _whole(tables.ep_degree, "ep_degree"), _whole(tables.cp_degree, "cp_degree")
    graphs = {}
    for width, nodes in tables.nodes.items():
        if re.fullmatch(r"[1-9][0-9]{0,8}", width, re.ASCII) is None:
            raise InvalidProblem(item("nodes", width), "no tensor width", "name each list by a whole number from 1")
        variant = Variant(int(width), expert, context, tables.sp_enabled)
        graphs[variant] = _graph(nodes, tables.edges[width], width)
    return graphs


def _graph(nodes: Sequence[ArtifactNode], edges: Sequence[ArtifactEdge], width: str) -> LayerGraph:
    layers = [
        Layer(
            node.id,
            node.optimal_latency_fw / MS_PER_S,
            node.optimal_latency_bw / MS_PER_S,
            node.parameter_size,
            node.activation_size,
        )
        for node in nodes
    ]
    try:
        graph = LayerGraph.sort(layers, [Edge(edge.source_id, edge.dest_id, edge.communication_cost) for edge in edges])
        require_chain(graph, PRESET, "edges")
    except InvalidProblem as fault:
        raise InvalidProblem(_artifact_path(fault.where, width), fault.problem, fault.remedy) from None
    return _in_order(graph)


def _in_order(graph: LayerGraph) -> LayerGraph:
    """Return the graph with its edges in the order of their layers, as our own format lists them."""
    places = graph.places
    order = sorted(range(len(places)), key=places.__getitem__)
    if order == list(range(len(places))):
        return graph
    return LayerGraph(graph.layers, tuple(graph.edges[at] for at in order))


def _artifact_path(where: str, width: str) -> str:
    """Return the artifact's spelling of a key of `LayerGraph`: ``edges[2].source`` is ``edges["1"][2].sourceId``."""
    names = {"layers": item("nodes", width), "edges": item("edges", width), "source": "sourceId", "target": "destId"}
    return re.sub(r"layers|edges|source|target", lambda match: names[match[0]], where)
