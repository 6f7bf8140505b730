"""From the text of a network description, of whatever kind, to devices on levels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.hardware import PODS, Device, Hardware, LevelFacts, Tier, Torus, link_of, linked, stack
from nest.hardware.systems import PCIE_S
from nest.networks.dedicated import with_own_links
from nest.networks.fabric import read_ibnetdiscover, read_netq, with_devices
from nest.networks.graphs import read_graph
from nest.networks.hostfile import read_hostfile
from nest.networks.labels import read_node_labels, read_topograph, read_tpu_labels
from nest.networks.levelling import MESSAGE_BYTES, ClassGap, Levelling, level_network, level_pairs
from nest.networks.matrix import read_nvidia_smi, read_rocm_smi
from nest.networks.nccl_xml import read_nccl_xml
from nest.networks.simulators import read_astra_sim, read_htsim, read_ns3
from nest.networks.slurm import SlurmTopology, devices_per_node, read_topology_conf
from nest.networks.slurm_yaml import read_topology_yaml
from nest.networks.torus import level_host_torus, level_torus
from nest.networks.tree import Group, by_domain, innermost, level_tree, one_root

LARGEST_HOST = 16
"""No host has more devices: links that join more reach beyond it, as in a rack of GB200."""

TABLES = ("nvidia", "nccl", "rocm")
"""Descriptions that say what each pair of a host's devices is joined by."""

FAR = 1.05
"""Levels that cost more than this many times the exact cost of some pair are mentioned."""


@dataclass(frozen=True)
class Asked:
    """What a description does not say itself.

    Parameters
    ----------
    device
        The kind of device.
    gpus_per_node
        Devices of a node, None if not given.
    tiers
        The links inside a node, then those of each tier of switches; the last counts for all further tiers.
    root, topology
        Which of several trees, and of several topologies in one file.
    library
        What runs collectives, by name; NCCL if empty.
    """

    device: Device
    gpus_per_node: int | None = None
    tiers: tuple[Tier, ...] = ()
    root: str = ""
    topology: str = ""
    library: str = ""


def hardware_of(text: str, asked: Asked, name: str = "") -> Hardware:
    """Return the devices and levels that a text describes; its kind is told by its content.

    Raises
    ------
    InvalidProblem
        If it is of no kind that is known, is wrong, or something is missing.
    """
    kind = kind_of(text)
    read = _READERS[kind](text, asked)
    levelling, single = with_own_links(read, asked.device) if kind in TABLES else (read, _rated(read))
    levels = levelling.cluster.levels
    facts = {_figures(tier): tier.facts for tier in asked.tiers}  # tiers need not have names of their own
    alone = (
        LevelFacts(pair_bytes_per_s=rate, link=_inside(level, kind, asked))
        for level, rate in zip(levels, single, strict=True)
    )
    chosen = tuple(facts.get(_figures(level), other) for level, other in zip(levels, alone, strict=True))
    notes = (*levelling.notes, *(_sentence(gap, levelling) for gap in levelling.gaps if gap.greatest > FAR))
    cluster = levelling.cluster
    named = replace(linked(cluster, asked.device, chosen, asked.library), name=name or cluster.name)
    return Hardware(asked.device, named, chosen, levelling.order, notes, levelling.pairs)


def _rated(levelling: Levelling) -> tuple[float, ...]:
    return tuple(level.bandwidth_bytes_per_s for level in levelling.cluster.levels)


def kind_of(text: str) -> str:
    """Return what kind of description a text is.

    Raises
    ------
    InvalidProblem
        If it is empty, or of no kind.
    """
    if not text.strip():
        raise InvalidProblem("", "the file is empty", "give a description of a network")
    found = next((kind for kind, mark in _MARKS.items() if re.search(mark, text)), "hostfile")
    if found == "hostfile" and text.lstrip()[0] in "{[<":
        raise InvalidProblem("", "no description of a network that is known", f"give one of {', '.join(_READERS)}")
    return found


def _figures(level: Level | Tier) -> tuple[str, float, float]:
    """Return what tells levels, and the tiers that they are made of, apart."""
    return level.name, level.bandwidth_bytes_per_s, level.latency_s


def _inside(level: Level, kind: str, asked: Asked) -> str:
    """Return the kind of links of a level inside a host; empty for others, and where no description says which are.

    Tables of one host have two latencies, and a level that of its worst pair.
    """
    device = asked.device
    if kind == "netq" and level.bandwidth_bytes_per_s == asked.tiers[0].bandwidth_bytes_per_s:
        return link_of("node", device.name)
    if kind not in TABLES:
        return ""
    return "pcie" if level.latency_s >= PCIE_S else link_of("node", device.name)


_MARKS = {
    "netq": r'"compounded_links"\s*:',
    "nccl": r"^\s*(<\?xml[^>]*>\s*)?(<!--(?s:.)*?-->\s*)?<(system|graphs)\b",
    "graph": r"^\s*(<\?xml|<graphml|\{(?s:.)*\"(links|edges)\"\s*:)",
    "slurm": r"(?im)^\s*#?\s*(SwitchName|BlockName)\s*=",
    "slurm yaml": r"(?m)^\s*-\s*topology\s*:",
    "rocm": r"Link Type between two GPUs",
    "nvidia": r"(?m)^\s*(\x1b\[[0-9;]*m)?GPU0\s",
    "ibnet": r"(?m)^switchguid=",
    "topograph": r"(?m)^switches\s*:",
    "labels": r"topology-(block|rack)\s*:",
    "tpu": r"gke-tpu-topology",
    "astra": r"npus_count|units-count",
    "htsim": r"(?m)^Tiers\s+[0-9]",
    "ns3": r"^\s*[0-9]+\s+[0-9]+\s+[0-9]+\s*\n[0-9\s]+\n",
}
"""By what each kind is known, first match first; what has no mark is a list of hosts."""


def _graph(text: str, asked: Asked) -> Levelling:
    return level_network(read_graph(text), asked.device.hbm_bytes)


def _ns3(text: str, asked: Asked) -> Levelling:
    return level_network(read_ns3(text), asked.device.hbm_bytes)


def _ibnet(text: str, asked: Asked) -> Levelling:
    return level_network(read_ibnetdiscover(text), asked.device.hbm_bytes)


def _netq(text: str, asked: Asked) -> Levelling:
    """Return the levels of hosts whose cables are links of the outer tier."""
    inside, outside, *_ = _two(asked)
    if asked.gpus_per_node is None:
        raise InvalidProblem("gpus_per_node", "not given", "give the number of devices of a node")
    network = with_devices(read_netq(text, outside.link_bytes_per_s), asked.gpus_per_node, inside, outside)
    return level_network(network, asked.device.hbm_bytes)


def _nvidia(text: str, asked: Asked) -> Levelling:
    return level_pairs(read_nvidia_smi(text).pairs(asked.device), asked.device.hbm_bytes)


def _rocm(text: str, asked: Asked) -> Levelling:
    return level_pairs(read_rocm_smi(text).pairs(asked.device), asked.device.hbm_bytes)


def _nccl(text: str, asked: Asked) -> Levelling:
    host = read_nccl_xml(text)
    if host.template and asked.device.links:
        what = f"a template without links between devices, and a {asked.device.name} has {asked.device.links}"
        raise InvalidProblem("", what, "give a dump of a running host (NCCL_TOPO_DUMP_FILE)")
    return level_pairs(host.table.pairs(asked.device), asked.device.hbm_bytes)


def _slurm(text: str, asked: Asked) -> Levelling:
    return _scheduled(read_topology_conf(text), asked)


def _slurm_yaml(text: str, asked: Asked) -> Levelling:
    found = read_topology_yaml(text, asked.topology)
    if isinstance(found, SlurmTopology):
        return _scheduled(found, asked)
    inside, outside, *_ = _two(asked)
    count = asked.gpus_per_node
    if count is None:
        raise InvalidProblem("gpus_per_node", "not given", "give the number of devices of a node")
    whole = tuple(extent > 2 for extent in found.shape)
    torus = Torus(found.shape, whole, outside.bandwidth_bytes_per_s * count, outside.latency_s)
    return level_host_torus(torus, found.nodes, count, inside, asked.device.hbm_bytes)


def _scheduled(found: SlurmTopology, asked: Asked, domains: Mapping[str, tuple[str, ...]] | None = None) -> Levelling:
    """Return the levels of a tree or of blocks.

    Where the links inside a node reach on, blocks and ``domains`` say how far; otherwise they end at the node.
    """
    count = devices_per_node(found, asked.gpus_per_node)
    inside, *outside = _two(asked)
    root = one_root(found.roots, asked.root)
    within, notes = _domains(found, root, domains or {}, inside, count)
    tiers = (inside, *outside) if within is None else (inside, inside, *outside)
    levelling = level_tree(within or root, count, tiers, asked.device.hbm_bytes)
    return replace(levelling, notes=(*found.notes, *notes, *levelling.notes))


def _domains(
    found: SlurmTopology, root: Group, domains: Mapping[str, tuple[str, ...]], inside: Tier, count: int
) -> tuple[Group | None, tuple[str, ...]]:
    """Return the tree with one more tier, of nodes that the links inside a node join, or None, and what to say."""
    if found.ports and inside.group > count:
        return None, (f"the ports of a host are not told apart: {inside.name} is left out",)
    if inside.group <= LARGEST_HOST:
        return None, ()  # a host holds all that these links join
    within = root if found.kind == "block" else by_domain(root, domains) if domains else None
    widest = 0 if within is None else count * max(len(group.hosts) for group in innermost(within))
    if within is None or widest > inside.group:
        return None, _ends_at_the_node(inside, widest)
    return within, ()


def _ends_at_the_node(inside: Tier, widest: int) -> tuple[str, ...]:
    """Return what to say where links reach beyond a node, and no file says how far; ``widest`` is what it has."""
    if inside.group <= LARGEST_HOST:
        return ()
    what = f"has groups of {widest} devices" if widest else "does not say which"
    return (f"{inside.name} joins {inside.group} devices, and the file {what}: it ends at the node",)


def _topograph(text: str, asked: Asked) -> Levelling:
    found, domains = read_topograph(text)
    return _scheduled(found, asked, domains)


def _labels(text: str, asked: Asked) -> Levelling:
    return _scheduled(SlurmTopology("tree", (read_node_labels(text),)), asked)


def _hostfile(text: str, asked: Asked) -> Levelling:
    group, slots = read_hostfile(text, asked.gpus_per_node)
    tiers = _two(asked)
    levelling = level_tree(group, slots, tiers, asked.device.hbm_bytes)
    return replace(levelling, notes=(*_ends_at_the_node(tiers[0], 0), *levelling.notes))


def _tpu(text: str, asked: Asked) -> Levelling:
    found = read_tpu_labels(text)
    pod = next((pod for pod in PODS if pod.device == asked.device.name), None)
    if pod is None:
        known = ", ".join(pod.device for pod in PODS)
        raise InvalidProblem("device", f"{asked.device.name}, for a slice of {found.accelerator}", f"name {known}")
    return level_torus(pod.torus(found.shape, asked.device.link_bytes_per_s), asked.device.hbm_bytes)


def _astra(text: str, asked: Asked) -> Levelling:
    return _stacked(read_astra_sim(text), asked)


def _htsim(text: str, asked: Asked) -> Levelling:
    return _stacked(read_htsim(text), asked)


def _stacked(tiers: tuple[Tier, ...], asked: Asked) -> Levelling:
    devices = tiers[-1].group
    levels, _, partial = stack(tiers, devices)
    cluster = Cluster(devices, asked.device.hbm_bytes, levels, partial=partial)
    return Levelling(cluster, tuple(map(str, range(devices))), (), True, MESSAGE_BYTES)  # a stack is levels already


def _two(asked: Asked) -> tuple[Tier, ...]:
    if len(asked.tiers) < 2:
        raise InvalidProblem(
            "tiers",
            "the description has no bandwidths",
            "name a system that the cluster is like, as in like=dgx-h100, or give tiers in a cluster file",
        )
    return asked.tiers


def _sentence(gap: ClassGap, levelling: Levelling) -> str:
    """Return how far a level is from what its pairs really cost."""
    name = levelling.cluster.levels[gap.level].name
    return (
        f"level {gap.level} ({name}): {gap.pairs:,} pairs cost {gap.least:.2f} to {gap.greatest:.2f} times "
        f"what they do when alone on the network, {gap.mean:.2f} times on average"
    )


_READERS: Mapping[str, Callable[[str, Asked], Levelling]] = {
    "netq": _netq,
    "nccl": _nccl,
    "graph": _graph,
    "slurm": _slurm,
    "slurm yaml": _slurm_yaml,
    "rocm": _rocm,
    "nvidia": _nvidia,
    "ibnet": _ibnet,
    "topograph": _topograph,
    "labels": _labels,
    "tpu": _tpu,
    "astra": _astra,
    "htsim": _htsim,
    "ns3": _ns3,
    "hostfile": _hostfile,
}
