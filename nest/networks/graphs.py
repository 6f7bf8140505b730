"""Any graph of devices and switches: node-link JSON and GraphML, read with networkx.

A node is a switch if its attribute ``kind`` (or ``type``, ``role``) says so, otherwise a device. An edge has its
bandwidth under one of the names of `nest.hardware.BANDWIDTHS` and, if it has one, its latency under one of
`nest.hardware.LATENCIES`: the unit is in the name.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nest.errors import InvalidProblem
from nest.hardware import BANDWIDTHS, LATENCIES, converted
from nest.networks.network import Link, Network

if TYPE_CHECKING:
    import networkx

KINDS = ("kind", "type", "role")
SWITCHES = ("switch", "router", "leaf", "spine", "core", "hub")
DEVICES = ("device", "gpu", "tpu", "npu", "accelerator", "host")


def read_graph(text: str, name: str = "") -> Network:
    """Return the network that a node-link JSON or a GraphML text describes.

    Raises
    ------
    InvalidProblem
        If it is neither, or an edge has no bandwidth with a unit.
    """
    import networkx  # noqa: PLC0415  (slow to load)

    try:
        if text.lstrip().startswith("<"):
            graph = networkx.read_graphml(io.BytesIO(text.encode()))
        else:
            tree = json.loads(text)
            edges = "edges" if "edges" in tree else "links"
            graph = networkx.node_link_graph(tree, edges=edges)
    except Exception as fault:  # networkx raises whatever its parsers do
        what = f"no graph: {fault or type(fault).__name__}"
        raise InvalidProblem("", what, "give node-link JSON (nodes, edges) or GraphML") from None
    return network_of(graph, name)


def network_of(graph: networkx.Graph[Any], name: str = "") -> Network:
    """Return a networkx graph as a network; of a directed one, the slower direction of each pair counts.

    Devices pass on for each other where there is no switch at all.
    """
    kinds = {str(node): _is_switch(str(node), data) for node, data in graph.nodes(data=True)}
    devices = tuple(node for node, switch in kinds.items() if not switch)
    switches = tuple(node for node, switch in kinds.items() if switch)
    found: dict[tuple[str, str], list[Link]] = {}
    for source, target, data in graph.edges(data=True):
        where = f"edge {source} - {target}"
        bandwidth = _figure(data, BANDWIDTHS, where)
        if bandwidth is None:
            raise InvalidProblem(where, "no bandwidth", f"give one of {', '.join(BANDWIDTHS)}")
        link = Link(str(source), str(target), bandwidth, _figure(data, LATENCIES, where) or 0.0)
        found.setdefault((link.source, link.target), []).append(link)
    links = _undirected(found) if graph.is_directed() else [link for each in found.values() for link in each]
    return Network(devices, switches, tuple(links), forwarding=not switches, name=name)


def _undirected(found: Mapping[tuple[str, str], list[Link]]) -> list[Link]:
    """Return one link for both directions of each pair, the slower one."""
    merged = []
    for (source, target), links in found.items():
        back = found.get((target, source))
        if back is not None and source > target:
            continue
        ways = [links] if back is None else [links, back]
        bandwidth = min(sum(link.bandwidth_bytes_per_s for link in way) for way in ways)
        merged.append(Link(source, target, bandwidth, max(link.latency_s for way in ways for link in way)))
    return merged


def _is_switch(node: str, data: Mapping[str, Any]) -> bool:
    said = next((str(data[key]).lower() for key in KINDS if key in data), "device")
    if said not in (*SWITCHES, *DEVICES):
        raise InvalidProblem(f"node {node}", f"kind {said!r}", f"give one of {', '.join((*DEVICES, *SWITCHES))}")
    return said in SWITCHES


def _figure(data: Mapping[str, Any], units: Mapping[str, Fraction], where: str) -> float | None:
    """Return the one figure that is given under one of several names, in the first unit; None if there is none."""
    given = [key for key in units if key in data]
    if len(given) > 1:
        raise InvalidProblem(where, f"both {given[0]} and {given[1]}", "give one of them")
    if not given:
        return None
    try:
        return converted(float(data[given[0]]), units[given[0]])
    except (TypeError, ValueError):
        raise InvalidProblem(where, f"{given[0]} is {data[given[0]]!r}", "give a number") from None
