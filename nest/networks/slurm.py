"""Slurm's ``topology.conf``, tree and block, as trees of hosts.

Format: Slurm's own manual page, topology.conf(5). Lines of ``Key=Value``; names of keys in any case; ``#`` begins a
comment anywhere unless escaped; a backslash at its end joins a line with the next; parents may follow their children.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nest.errors import InvalidProblem
from nest.networks.hostlist import hosts
from nest.networks.tree import Group

KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes")
GUID = re.compile(r"0x[0-9a-f]{6,16}", re.IGNORECASE)
"""A node that is named by the address of a port."""


@dataclass(frozen=True)
class SlurmTopology:
    """What a topology says.

    Parameters
    ----------
    kind
        ``tree`` or ``block``.
    roots
        The trees of hosts; several where nothing joins them. Blocks lie under one root.
    notes
        What was decided on the way.
    """

    kind: str
    roots: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes."""
        return tuple(host for root in self.roots for host in root.hosts)

    @property
    def ports(self) -> bool:
        """Whether nodes are named by addresses of ports, of which a host has several."""
        return all(GUID.fullmatch(node) for node in self.nodes)


def read_topology_conf(text: str) -> SlurmTopology:
    """Return the topology that a ``topology.conf`` describes.

    Raises
    ------
    InvalidProblem
        If a line is wrong, a switch is missing or part of a cycle, or there is nothing in it.
    """
    switches: dict[str, dict[str, str]] = {}
    blocks: dict[str, dict[str, str]] = {}
    sizes = ""
    for where, entry in _entries(text):
        kind = next((kind for kind in ("switchname", "blockname", "blocksizes") if kind in entry), "")
        if not kind:
            raise InvalidProblem(
                where, f"no SwitchName, BlockName or BlockSizes in {entry!r}", "begin with one of them"
            )
        if kind == "blocksizes":
            sizes = entry[kind]
            continue
        named = switches if kind == "switchname" else blocks
        for name in hosts(entry[kind], where):
            if name in named:
                raise InvalidProblem(where, f"{name!r} is there twice", "give every switch and block one line")
            named[name] = entry
    if switches and blocks:
        raise InvalidProblem("", "both switches and blocks", "keep the lines of one of them")
    if not switches and not blocks:
        raise InvalidProblem("", "no switch and no block", "give lines SwitchName=... or BlockName=... (no comments)")
    return block_topology(_block_nodes(blocks), sizes) if blocks else tree_topology(*_adjacency(switches))


def tree_topology(nodes: Mapping[str, tuple[str, ...]], children: Mapping[str, tuple[str, ...]]) -> SlurmTopology:
    """Return a topology from the nodes and the switches that each switch lists.

    Switches that list each other in both directions (a dump of an adjacency) are a tree if there is one without
    counting directions; its root is then its middle.
    """
    for name, below in children.items():
        missing = next((child for child in below if child not in nodes), None)
        if missing is not None:
            raise InvalidProblem(f"SwitchName={name}", f"there is no switch {missing!r}", "give it a line")
    _check_once(nodes)
    notes: list[str] = []
    listed = {child for below in children.values() for child in below}
    roots = [name for name in nodes if name not in listed]
    if not roots or any(name in children.get(child, ()) for name in nodes for child in children.get(name, ())):
        roots, children = _rooted(children)
        notes.append(f"switches list each other in both directions; rooted at {roots[0]!r}")
    _check_parents(children)
    built = tuple(_group(name, nodes, children, ()) for name in roots)
    reached = sum(map(_switches, built))
    if reached < len(nodes):
        raise InvalidProblem("Switches", "some switches form a cycle that no root reaches", "remove one of its lines")
    return SlurmTopology("tree", built, tuple(notes))


def block_topology(blocks: Mapping[str, tuple[str, ...]], sizes: str = "") -> SlurmTopology:
    """Return a topology of blocks.

    Parameters
    ----------
    sizes
        ``BlockSizes``: nodes that a job may ask for at a time. They say nothing about the network and are only noted.
    """
    _check_once(blocks)
    groups = tuple(Group(name, nodes) for name, nodes in blocks.items())
    notes = (f"BlockSizes {sizes} are sizes of jobs, not of groups: a block is one",) if sizes else ()
    return SlurmTopology("block", (Group("blocks", groups),), notes)


def devices_per_node(topology: SlurmTopology, gpus_per_node: int | None) -> int:
    """Return how many devices each node of a topology has.

    Raises
    ------
    InvalidProblem
        If it is not given (no topology says), or nodes are ports, of which each belongs to one device.
    """
    if topology.ports:
        if gpus_per_node not in (None, 1):
            raise InvalidProblem(
                "gpus_per_node",
                f"{gpus_per_node}, but nodes are named by addresses of ports, such as {topology.nodes[0]}",
                "give 1 (a port is the NIC of one device), or name the nodes by their hosts",
            )
        return 1
    if gpus_per_node is None:
        what = f"not given for {len(topology.nodes)} nodes, and the topology does not say"
        raise InvalidProblem("gpus_per_node", what, "give the number of devices of a node, as in --gpus-per-node 8")
    if gpus_per_node < 1:
        raise InvalidProblem("gpus_per_node", f"{gpus_per_node}", "give at least 1")
    return gpus_per_node


def _entries(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield for each line where it is and its values by key, in lower case."""
    joined = re.sub(r"\\[ \t]*\r?\n", " ", text)
    for number, raw in enumerate(joined.splitlines(), 1):
        line = re.sub(r"(?<!\\)#.*", "", raw).replace("\\#", "#").strip()
        if not line:
            continue
        entry: dict[str, str] = {}
        for word in re.split(r"\s+", re.sub(r"\s*=\s*", "=", line)):
            key, equals, value = word.partition("=")
            if not equals or key.lower() not in KEYS:
                raise InvalidProblem(
                    f"line {number}", f"{word!r} is no known Key=Value", f"known keys: {', '.join(KEYS)}"
                )
            entry[key.lower()] = value
        yield f"line {number}", entry


def _adjacency(
    switches: Mapping[str, Mapping[str, str]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    nodes = {name: hosts(entry.get("nodes", ""), f"SwitchName={name}") for name, entry in switches.items()}
    children = {name: hosts(entry.get("switches", ""), f"SwitchName={name}") for name, entry in switches.items()}
    return nodes, {name: below for name, below in children.items() if below}


def _block_nodes(blocks: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    return {name: hosts(entry.get("nodes", ""), f"BlockName={name}") for name, entry in blocks.items()}


def _check_once(nodes: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a node under two switches: a tree cannot say which of them it would use."""
    owner: dict[str, str] = {}
    for name, members in nodes.items():
        for node in members:
            if owner.setdefault(node, name) != name:
                raise InvalidProblem(name, f"node {node!r} is also under {owner[node]!r}", "list every node once")


def _check_parents(children: Mapping[str, tuple[str, ...]]) -> None:
    owner: dict[str, str] = {}
    for name, below in children.items():
        for child in below:
            if owner.setdefault(child, name) != name:
                what = f"switch {child!r} is under {owner[child]!r} and {name!r}"
                raise InvalidProblem(f"SwitchName={name}", what, "give it one parent: levels need a tree")


def _rooted(children: Mapping[str, tuple[str, ...]]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Return the middle of a tree given without directions, and the children of each switch as seen from there."""
    near: dict[str, set[str]] = {}
    for name, below in children.items():
        for child in below:
            near.setdefault(name, set()).add(child)
            near.setdefault(child, set()).add(name)
    edges = sum(map(len, near.values())) // 2
    if edges != len(near) - 1:
        raise InvalidProblem(
            "Switches", f"{len(near)} switches with {edges} links form a cycle", "give a tree: every switch one parent"
        )
    root = _middle(near)
    directed: dict[str, tuple[str, ...]] = {}
    ready = [(root, "")]
    while ready:
        name, parent = ready.pop()
        found = tuple(child for child in _in_order(near[name], children) if child != parent)
        if found:
            directed[name] = found
        ready.extend((child, name) for child in found)
    return [root], directed


def _middle(near: Mapping[str, set[str]]) -> str:
    """Return the last switch that is left when the outermost ones are removed again and again."""
    left = {name: set(others) for name, others in near.items()}
    while len(left) > 2:
        outer = [name for name, others in left.items() if len(others) <= 1]
        for name in outer:
            for other in left.pop(name):
                left.get(other, set()).discard(name)
    return min(left)


def _in_order(names: set[str], children: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return switches in the order in which the file first mentions them."""
    order = {name: at for at, name in enumerate(child for below in children.values() for child in below)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def _group(
    name: str, nodes: Mapping[str, tuple[str, ...]], children: Mapping[str, tuple[str, ...]], above: tuple[str, ...]
) -> Group:
    if name in above:
        path = " -> ".join((*above[above.index(name) :], name))
        raise InvalidProblem(f"SwitchName={name}", f"switches form a cycle: {path}", "remove one of these lines")
    members = [_group(child, nodes, children, (*above, name)) for child in children.get(name, ())]
    return Group(name, (*members, *nodes[name]))


def _switches(group: Group) -> int:
    return 1 + sum(_switches(member) for member in group.members if isinstance(member, Group))
