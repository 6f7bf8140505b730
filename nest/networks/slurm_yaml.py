"""Slurm's ``topology.yaml``: several topologies over the same nodes, of which one is the default.

Format: Slurm's own manual page, topology.yaml(5). Where this file is present, Slurm does not read ``topology.conf``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nest.errors import InvalidProblem
from nest.networks.hostlist import hosts
from nest.networks.slurm import SlurmTopology, block_topology, tree_topology
from nest.networks.yaml_text import parse_yaml

KINDS = ("tree", "block", "flat", "ring", "torus3d")


@dataclass(frozen=True)
class HostTorus:
    """Hosts on a ring or torus.

    Parameters
    ----------
    shape
        Extents; one for a ring.
    nodes
        Their names, the last axis running fastest.
    """

    shape: tuple[int, ...]
    nodes: tuple[str, ...]


def topology_kinds(text: str) -> dict[str, str]:
    """Return the kind of each topology in the file, by name."""
    return {str(entry.get("topology")): _kind(entry) for entry in _list(text)}


def read_topology_yaml(text: str, choose: str = "") -> SlurmTopology | HostTorus:
    """Return one topology of the file.

    Parameters
    ----------
    choose
        Its name; the one marked ``cluster_default`` if empty.

    Raises
    ------
    InvalidProblem
        If there is no such topology, or it names no nodes.
    """
    entries = {str(entry.get("topology")): entry for entry in _list(text)}
    default = [name for name, entry in entries.items() if entry.get("cluster_default")]
    name = choose or (default[0] if len(default) == 1 else next(iter(entries)) if len(entries) == 1 else "")
    if name not in entries:
        what = f"{choose!r} is no topology" if choose else f"{len(default)} topologies are marked cluster_default"
        raise InvalidProblem("topology", what, f"choose one of {', '.join(entries)}")
    kind = _kind(entries[name])
    body = entries[name][kind]
    if kind == "tree":
        return _tree(body)
    if kind == "block":
        named = {str(block["block"]): hosts(str(block["nodes"]), str(block["block"])) for block in body["blocks"]}
        return block_topology(named, ",".join(map(str, body.get("block_sizes", ()))))
    if kind == "flat":
        what = f"topology {name!r} is flat and names no nodes"
        raise InvalidProblem("topology", what, "choose another, or give the cluster as one level")
    return _torus(name, kind, body)


def _tree(body: Mapping[str, Any]) -> SlurmTopology:
    switches = body["switches"]
    nodes = {str(entry["switch"]): hosts(str(entry.get("nodes", "")), str(entry["switch"])) for entry in switches}
    below = {str(entry["switch"]): hosts(str(entry.get("children", "")), str(entry["switch"])) for entry in switches}
    return tree_topology(nodes, {name: children for name, children in below.items() if children})


def _torus(name: str, kind: str, body: Mapping[str, Any]) -> HostTorus:
    parts = body["rings" if kind == "ring" else "toruses"]
    if len(parts) != 1:
        raise InvalidProblem("topology", f"{name!r} has {len(parts)} parts that nothing joins", "give a file with one")
    part = parts[0]
    nodes = hosts(str(part["nodes"]), name)
    shape = (len(nodes),) if kind == "ring" else tuple(int(part["dims"][axis]) for axis in "xyz")
    if prod(shape) != len(nodes):
        extents = "x".join(map(str, shape))
        raise InvalidProblem("topology", f"{len(nodes)} nodes on a torus of {extents}", f"name {prod(shape)} nodes")
    return HostTorus(shape, nodes)


def _kind(entry: Mapping[str, Any]) -> str:
    kind = next((kind for kind in KINDS if kind in entry), None)
    if kind is None:
        raise InvalidProblem("topology", f"{entry.get('topology')!r} has no kind", f"give one of {', '.join(KINDS)}")
    return kind


def _list(text: str) -> Sequence[Mapping[str, Any]]:
    tree = parse_yaml(text)
    if not isinstance(tree, list) or not tree or not all(isinstance(entry, dict) for entry in tree):
        raise InvalidProblem("", "no list of topologies", "begin each with '- topology: NAME'")
    return tree
