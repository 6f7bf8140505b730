"""Profiles of PipeDream: `graph.txt`, a line for each node, then a line for each edge behind a tab."""

from __future__ import annotations

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from nest.errors import InvalidProblem
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import MS, number

UNITS = "ms of one minibatch, whose size the file does not say; bytes"

_NODE = re.compile(r"(?P<name>\S+) -- (?P<kind>.*) -- (?P<figures>forward_compute_time=.*?)(?: -- stage_id=\d+)?")
_EDGE = re.compile(r"\t(?P<source>\S+) -- (?P<target>\S+)")
_FIGURE = re.compile(r"(?P<key>\w+)=(?P<value>\[[^\]]*\]|[^,\[\]]+)(?:, |$)")
_KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")


def is_pipedream(text: str) -> bool:
    """Whether a text is a graph of PipeDream, by its first line."""
    return _NODE.fullmatch(text.lstrip().partition("\n")[0].rstrip()) is not None


def read_pipedream(text: str) -> LayerProfile:
    """Return the profile, its layers in an order of the graph."""
    nodes: dict[str, ProfiledLayer] = {}
    edges: dict[tuple[str, str], None] = {}
    for at, line in enumerate(text.splitlines(), 1):
        node, edge = _NODE.fullmatch(line.rstrip()), _EDGE.fullmatch(line.rstrip())
        if edge is not None:
            if (edge["source"], edge["target"]) in edges:
                raise InvalidProblem(f"line {at}", f"a second edge {line.strip()!r}", "name each edge once")
            edges[edge["source"], edge["target"]] = None
        elif node is not None and node["name"] not in nodes:
            nodes[node["name"]] = _layer(node, f"line {at}")
        elif node is not None:
            raise InvalidProblem(f"line {at}", f"a second node {node['name']!r}", "name each node once")
        elif line.strip():
            raise InvalidProblem(f"line {at}", f"{line.strip()[:40]!r} is no node and no edge", "give 'a -- b -- ...'")
    order = _order(nodes, edges)
    index = {name: at for at, name in enumerate(order)}
    joined = tuple(sorted((index[source], index[target]) for source, target in edges))
    chain = joined == tuple((at, at + 1) for at in range(len(order) - 1))
    return LayerProfile(
        "PipeDream graph.txt",
        UNITS,
        tuple(nodes[name] for name in order),
        edges=joined,
        warnings=() if chain else (f"the graph is no chain: {len(order)} nodes, {len(joined)} edges",),
    )


def _layer(node: re.Match[str], where: str) -> ProfiledLayer:
    figures = {figure["key"]: figure["value"] for figure in _FIGURE.finditer(node["figures"])}
    lacking = [key for key in _KEYS if key not in figures]
    if lacking:
        raise InvalidProblem(where, f"{node['name']} has no {lacking[0]}", f"give {', '.join(_KEYS)}")
    forward, backward, kept, weights = (_total(figures[key], f"{where}: {key}") for key in _KEYS)
    return ProfiledLayer(
        node["name"],
        node["kind"],
        forward_s=MS * forward,
        backward_s=MS * backward,
        activation_bytes=round(kept),
        output_bytes=round(kept),
        parameter_bytes=round(weights),
    )


def _total(value: str, where: str) -> float:
    """Return a number, or the sum of a list such as ``[1.0; 2.0]``, which layers with several results have."""
    if value.startswith("["):
        return sum(number(part.strip(), where) for part in value[1:-1].split(";"))
    return number(value, where)


def _order(nodes: Iterable[str], edges: Iterable[tuple[str, str]]) -> list[str]:
    """Return the nodes in an order of the graph."""
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in edges:
        for name in (source, target):
            if name not in before:
                raise InvalidProblem("edges", f"{source} -- {target}: there is no node {name!r}", "name a node")
        before[target].append(source)
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as fault:
        raise InvalidProblem("edges", f"a circle: {' -- '.join(fault.args[1])}", "give a graph without one") from None
