"""Inputs of two earlier solvers -> `nest.dag.DagProblem`: dnn-partitioning (NeurIPS 2020) and Piper (NeurIPS 2021).

Both are JSON with lists ``nodes`` and ``edges``; the keys beside them tell which it is. Keys that say nothing about the
problem (names, sizes of edges) are passed over. `docs/dags.md` has the meaning of the figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from nest.dag import DNN_PARTITIONING, PIPER, DagEdge, DagLayer, DagProblem, DeviceClass, Option
from nest.errors import InvalidProblem
from nest.files.document import Document
from nest.files.faults import item
from nest.files.limits import MOST_BYTES, Bandwidth, Bytes, Capacity, Count, Switch, WholeId
from nest.files.words import meant, show
from nest.graph import LayerId

PARTITIONING_MARKS = ("maxSizePerFPGA", "maxFPGAs", "maxCPUs")
"""Keys by which an input of dnn-partitioning is recognised."""

PIPER_KEYS = frozenset({"nodes", "edges", "maxDevices", "maxMemoryPerDevice", "bandwidth", "mbsInBatch"})
"""Keys of Piper's inputs, nearly all of which the inputs of the solver of arXiv 2603.06798 have, too."""

OTHER_MARK = "devices_per_level"
"""A key that only the latter have."""

ACCELERATOR, PROCESSOR, DEVICE = "accelerator", "cpu", "device"
"""Names of the classes of devices."""

Time: TypeAlias = Annotated[float, Meta(ge=0, le=1e15, description="a time, a number from 0 to 1e15")]
Flag: TypeAlias = Annotated[Switch | Annotated[int, Meta(ge=0, le=1)], Meta(description="true, false, 1 or 0")]
Devices: TypeAlias = Annotated[int, Meta(ge=0, le=10_000, description="a whole number from 0 to 10000")]


class PartitioningNode(Struct, rename="camel"):
    """An operator or layer."""

    id: WholeId
    supported_on_fpga: Flag
    cpu_latency: Time
    fpga_latency: Time
    is_backward_node: Flag
    color_class: WholeId | None = None
    size: Bytes = 0


class PartitioningEdge(Struct, rename="camel"):
    """Who reads whose output; the cost is the time to transfer it."""

    source_id: WholeId
    dest_id: WholeId
    cost: Time


Nodes: TypeAlias = Annotated[list[PartitioningNode], Meta(min_length=1, description="a list of nodes, at least one")]


class PartitioningFile(
    Struct, rename={"max_size": "maxSizePerFPGA", "accelerators": "maxFPGAs", "processors": "maxCPUs"}
):
    """An input of dnn-partitioning."""

    max_size: Capacity
    accelerators: Devices
    processors: Devices
    nodes: Nodes
    edges: Annotated[list[PartitioningEdge], Meta(description="a list of edges")]


Exchanged: TypeAlias = Annotated[dict[str, Bytes], Meta(description="an object with bytes for each edge")]


class PiperOption(
    Struct,
    rename={
        "in_flight": "memoryUsageA",
        "fixed": "memoryUsageB",
        "time": "timePerSample",
        "weights": "parameterSize",
        "sync_in": "syncTimeFw",
        "sync_out": "syncTimeBw",
    },
):
    """One way to run a layer (a TMPC)."""

    id: Annotated[str, Meta(min_length=1, max_length=1000, description="a name")]
    time: Time
    weights: Bytes
    in_flight: Bytes
    fixed: Bytes
    sync_in: Exchanged
    sync_out: Exchanged


class PiperNode(Struct, rename={"options": "TMPCs"}):
    """A layer."""

    id: WholeId
    options: Annotated[
        dict[str, Annotated[list[PiperOption], Meta(description="a list of options")]],
        Meta(description="an object with a list of options for each tensor width"),
    ]


class PiperEdge(Struct, rename="camel"):
    """A tensor between two layers, in bytes."""

    source_id: WholeId
    dest_id: WholeId
    communication_cost: Bytes


class PiperFile(Struct, rename={"devices": "maxDevices", "memory": "maxMemoryPerDevice", "microbatches": "mbsInBatch"}):
    """An input of Piper."""

    devices: Annotated[int, Meta(ge=1, le=4096, description="a whole number from 1 to 4096")]
    memory: Capacity
    bandwidth: Bandwidth
    microbatches: Count
    nodes: Annotated[list[PiperNode], Meta(min_length=1, description="a list of nodes, at least one")]
    edges: Annotated[list[PiperEdge], Meta(description="a list of edges")]


def read_dag(path: str | Path) -> DagProblem:
    """Read an input of dnn-partitioning or Piper; the content decides which it is.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    document = Document.read(path)
    problem = dag_problem(document)
    if problem is None:
        marks = ", ".join(PARTITIONING_MARKS)
        document.fail(
            "", "no input of dnn-partitioning or Piper", f"the former have {marks}, the latter TMPCs in nodes"
        )
    return problem


def dag_problem(document: Document) -> DagProblem | None:
    """Return the problem that a document states, None if it is of neither format."""
    if not document.is_json or "schema" in document.keys:
        return None
    try:
        if not document.keys.isdisjoint(PARTITIONING_MARKS):
            return _partitioning(document)
        if document.keys >= PIPER_KEYS and OTHER_MARK not in document.keys and isinstance(document.tree["nodes"], list):
            return _piper(document)
    except InvalidProblem as fault:
        raise (fault if fault.source else fault.at(document.source)) from None
    return None


def with_devices(problem: DagProblem, settings: Sequence[str]) -> DagProblem:
    """Return the problem with other devices; of two settings of one key the later counts.

    Parameters
    ----------
    settings
        ``KEY=VALUE``: the name of a class of devices and their number, ``memory_bytes``, and where the problem has them
        ``microbatches`` and ``bandwidth``.

    Raises
    ------
    InvalidProblem
        Naming the setting, what is wrong with it, and what would be right.
    """
    names = [kind.name for kind in problem.classes] + ["memory_bytes"]
    names += ["microbatches", "bandwidth"] if problem.preset.replicas else []
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or name not in names:
            raise InvalidProblem(f"--set {setting}", "nothing that can be set", meant(name, names, f"set {names}"))
        problem = _with_setting(problem, setting, name, text)
    return problem


def _with_setting(problem: DagProblem, setting: str, name: str, text: str) -> DagProblem:
    pattern, right = (r"\d{1,9}", "a whole number") if name not in ("memory_bytes", "bandwidth") else _DECIMAL
    if re.fullmatch(pattern, text, re.ASCII) is None:
        raise InvalidProblem(f"--set {setting}", f"{show(text)} is no value", f"give {right}")
    try:
        if name == "microbatches":
            return replace(problem, microbatches=int(text))
        if name == "bandwidth":
            return replace(problem, bandwidth=float(text))
        return replace(problem, classes=tuple(_changed(kind, name, text) for kind in problem.classes))
    except InvalidProblem as fault:
        raise InvalidProblem(f"--set {setting}", fault.problem, fault.remedy) from None


def _changed(kind: DeviceClass, name: str, text: str) -> DeviceClass:
    if name == kind.name:
        return replace(kind, count=int(text))
    if name == "memory_bytes" and kind.memory_bytes is not None:
        return replace(kind, memory_bytes=float(text))
    return kind


_DECIMAL = (r"\d{1,18}(\.\d{1,6})?(e\d{1,2})?", f"a number up to {MOST_BYTES}")


def _partitioning(document: Document) -> DagProblem:
    tables = document.decode(PartitioningFile)
    layers = [
        DagLayer(
            node.id,
            {
                (kind, 1): (Option(kind, time, node.size),)
                for kind, time, runs in (
                    (ACCELERATOR, node.fpga_latency, bool(node.supported_on_fpga)),
                    (PROCESSOR, node.cpu_latency, True),
                )
                if runs
            },
            node.color_class,
            bool(node.is_backward_node),
        )
        for node in tables.nodes
    ]
    edges = [DagEdge(edge.source_id, edge.dest_id, edge.cost) for edge in tables.edges]
    classes = (
        DeviceClass(ACCELERATOR, tables.accelerators, tables.max_size),
        DeviceClass(PROCESSOR, tables.processors, None, pays_transfers=False),
    )
    names = {"layers": "nodes", "source": "sourceId", "target": "destId"}
    return _built(document, names, preset=DNN_PARTITIONING, layers=layers, edges=edges, classes=classes)


def _piper(document: Document) -> DagProblem:
    tables = document.decode(PiperFile)
    ids: dict[str, LayerId] = {str(node.id): node.id for node in tables.nodes}
    layers = [DagLayer(node.id, _options(node, ids, item("nodes", at))) for at, node in enumerate(tables.nodes)]
    edges = [DagEdge(edge.source_id, edge.dest_id, edge.communication_cost) for edge in tables.edges]
    problem = _built(
        document,
        {"layers": "nodes", "source": "sourceId", "target": "destId", "cost": "communicationCost"},
        preset=PIPER,
        layers=layers,
        edges=edges,
        classes=(DeviceClass(DEVICE, tables.devices, tables.memory),),
        bandwidth=tables.bandwidth,
        microbatches=tables.microbatches,
    )
    _check_exchanges(problem.layers, problem.edges)
    return problem


def _options(node: PiperNode, ids: Mapping[str, LayerId], where: str) -> dict[tuple[str, int], tuple[Option, ...]]:
    given = {}
    for width, options in node.options.items():
        if re.fullmatch(r"[1-9][0-9]{0,3}", width, re.ASCII) is None:
            raise InvalidProblem(item(f"{where}.TMPCs", width), "no tensor width", "give a whole number from 1 to 9999")
        if options:
            given[DEVICE, int(width)] = tuple(
                Option(
                    option.id,
                    option.time,
                    option.fixed,
                    option.in_flight,
                    option.weights,
                    {ids.get(end, end): size for end, size in option.sync_in.items()},
                    {ids.get(end, end): size for end, size in option.sync_out.items()},
                )
                for option in options
            )
    return given


def _check_exchanges(layers: Sequence[DagLayer], edges: Sequence[DagEdge]) -> None:
    """Refuse edges that are given twice, and options that do not name just the edges of their layer."""
    ends = [(edge.source, edge.target) for edge in edges]
    if len(set(ends)) < len(ends):
        at = next(at for at, pair in enumerate(ends) if ends.index(pair) < at)
        raise InvalidProblem(item("edges", at), f"{ends[at][0]} -> {ends[at][1]} is given twice", "remove one")
    for at, layer in enumerate(layers):
        into = {source for source, target in ends if target == layer.id}
        out = {target for source, target in ends if source == layer.id}
        for (_, width), options in layer.options.items():
            for number, option in enumerate(options):
                where = item(f"{item(f'nodes[{at}].TMPCs', str(width))}", number)
                _check_names(f"{where}.syncTimeFw", option.sync_in, into)
                _check_names(f"{where}.syncTimeBw", option.sync_out, out)


def _check_names(where: str, given: Iterable[LayerId], right: set[LayerId]) -> None:
    if set(given) != right:
        names = ", ".join(sorted(map(str, right))) or "none"
        what = f"names {', '.join(sorted(map(str, given))) or 'no node'}"
        raise InvalidProblem(where, what, f"name the nodes at the other ends of the node's edges: {names}")


def _built(document: Document, names: Mapping[str, str], **figures: Any) -> DagProblem:
    """Return the problem; ``names`` are the format's own for keys of `DagProblem`."""
    figures = {name: tuple(value) if isinstance(value, list) else value for name, value in figures.items()}
    try:
        return DagProblem(name=Path(document.source).stem, **figures)
    except InvalidProblem as fault:
        where = re.sub("layers|source|target|cost", lambda match: names.get(match[0], match[0]), fault.where)
        where = re.sub(r"options\['device', (\d+)\]", r'TMPCs["\1"]', where)
        raise InvalidProblem(where, fault.problem, fault.remedy) from None
