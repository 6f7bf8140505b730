"""Clusters by labels: slices of TPUs, Kubernetes nodes, and the models of NVIDIA's topograph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from nest.errors import InvalidProblem
from nest.hardware import parse_shape
from nest.networks.hostlist import hosts
from nest.networks.slurm import SlurmTopology, tree_topology
from nest.networks.tree import Group
from nest.networks.yaml_text import parse_yaml

TPU_LABEL = re.compile(r"gke-tpu-(accelerator|topology)[\"']?\s*[:=]\s*[\"']?([A-Za-z0-9.x-]+)")
BLOCK, RACK = "topology-block", "topology-rack"


@dataclass(frozen=True)
class TpuSlice:
    """A slice of a pod.

    Parameters
    ----------
    accelerator
        As the label has it.
    shape
        Chips along each axis, all factors: ``2x2x1`` is four chips.
    hosts
        Machines, where the file says how many pods run; 0 if not.
    """

    accelerator: str
    shape: tuple[int, ...]
    hosts: int = 0

    @property
    def chips(self) -> int:
        """Devices of the slice."""
        return prod(self.shape)


def read_tpu_labels(text: str) -> TpuSlice:
    """Return the slice that the labels of a node or a job name.

    Raises
    ------
    InvalidProblem
        If there is no shape, or there are several.
    """
    found: dict[str, set[str]] = {"accelerator": set(), "topology": set()}
    for kind, value in TPU_LABEL.findall(text):
        found[kind].add(value)
    if len(found["topology"]) != 1:
        what = ", ".join(sorted(found["topology"])) or "none"
        raise InvalidProblem("gke-tpu-topology", what, "give labels of one slice, with a shape such as 2x2x1")
    pods = re.search(r"^\s*(?:parallelism|completions):\s*([0-9]+)", text, re.MULTILINE)
    shape = parse_shape(found["topology"].pop(), "gke-tpu-topology")
    accelerator = next(iter(sorted(found["accelerator"])), "")
    return TpuSlice(accelerator, shape, int(pods[1]) if pods else 0)


def read_node_labels(text: str) -> Group:
    """Return the workers of a Kubernetes (kind) cluster by block and rack; racks of two blocks may share a name.

    Raises
    ------
    InvalidProblem
        If no worker has both labels.
    """
    tree = parse_yaml(text)
    nodes = tree.get("nodes", ()) if isinstance(tree, dict) else ()
    workers = [node.get("labels", {}) for node in nodes if isinstance(node, dict) and node.get("role") == "worker"]
    blocks: dict[str, dict[str, list[str]]] = {}
    for at, labels in enumerate(workers):
        block, rack = (_ending(labels, name, f"worker {at}") for name in (BLOCK, RACK))
        blocks.setdefault(block, {}).setdefault(rack, []).append(f"worker{at}")
    if not blocks:
        raise InvalidProblem("nodes", "no worker with labels", f"give labels that end in {BLOCK} and {RACK}")
    groups = tuple(
        Group(block, tuple(Group(f"{block}/{rack}", tuple(names)) for rack, names in racks.items()))
        for block, racks in blocks.items()
    )
    return Group("cluster", groups)


def read_topograph(text: str) -> tuple[SlurmTopology, dict[str, tuple[str, ...]]]:
    """Return the tree of switches of a topograph model, and the nodes of each NVLink domain.

    Switches that hold no nodes are left out.

    Raises
    ------
    InvalidProblem
        If there are no switches or no blocks with nodes.
    """
    tree = parse_yaml(text)
    if not isinstance(tree, dict) or not tree.get("switches") or not tree.get("blocks"):
        raise InvalidProblem("", "no switches or no blocks", "give a topograph model")
    nodes: dict[str, tuple[str, ...]] = {}
    domains: dict[str, tuple[str, ...]] = {}
    for block in tree["blocks"]:
        names = hosts(",".join(map(str, block.get("nodes", ()))), str(block.get("switch")))
        switch = str(block.get("switch"))
        nodes[switch] = (*nodes.get(switch, ()), *names)  # a switch may hold several blocks
        for domain in _domains(block):
            domains[domain] = (*domains.get(domain, ()), *names)
    below = {str(name): tuple(map(str, entry.get("switches", ()))) for name, entry in tree["switches"].items()}
    below = _filled(below, {name for name, names in nodes.items() if names})
    return tree_topology({name: nodes.get(name, ()) for name in (*below, *nodes)}, below), domains


def _filled(below: Mapping[str, tuple[str, ...]], full: set[str]) -> dict[str, tuple[str, ...]]:
    """Return children of switches without those below which there is no node."""
    filled = dict(below)
    while True:
        kept = {
            name: tuple(child for child in children if child in full or child in filled)
            for name, children in filled.items()
        }
        kept = {name: children for name, children in kept.items() if children}
        if kept == filled:
            return kept
        filled = kept


def _domains(block: Mapping[str, Any]) -> Iterator[str]:
    for name, value in (block.get("annotations") or {}).items():
        if name.endswith("/domain"):
            yield str(value)


def _ending(labels: Mapping[str, Any], ending: str, where: str) -> str:
    value = next((value for name, value in labels.items() if str(name).endswith(ending)), None)
    if value is None:
        raise InvalidProblem(where, f"no label that ends in {ending}", "label every worker")
    return str(value)
