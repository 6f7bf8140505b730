"""Trees of groups (a job scheduler's view of a network) as levels, also very large ones.

A tree says which devices share which switch; what the switches give is said by tiers, innermost first. Groups of one
tier need not be equal: the level then takes the largest size that divides all of them but the last, and devices of one
group that lie in different parts of it pay the next level, never less than they should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import gcd

import numpy as np

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.hardware import Tier
from nest.networks.levelling import MESSAGE_BYTES, ClassGap, Levelling
from nest.units import Ints, Number


@dataclass(frozen=True)
class Group:
    """Members of one switch: hosts (strings), or further groups.

    Raises
    ------
    InvalidProblem
        If there is no member.
    """

    name: str
    members: tuple[Group | str, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise InvalidProblem("network", f"switch {self.name!r} has no member", "give it nodes, or remove it")

    @property
    def height(self) -> int:
        """Tiers of switches at and below this one."""
        return 1 + max((member.height for member in self.members if isinstance(member, Group)), default=0)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts below, in the order of the tree."""
        found: list[str] = []
        for member in self.members:
            found.extend(member.hosts if isinstance(member, Group) else (member,))
        return tuple(found)


def by_domain(root: Group, domains: Mapping[str, tuple[str, ...]]) -> Group:
    """Return a tree in which the hosts of a switch lie in the domains that join them; one in none is alone.

    A domain below several switches is one group at each.
    """
    domain = {host: name for name, members in domains.items() for host in members}
    members: list[Group | str] = []
    together: dict[str, list[str]] = {}
    for member in root.members:
        if isinstance(member, Group):
            members.append(by_domain(member, domains))
        else:
            together.setdefault(domain.get(member, member), []).append(member)
    return Group(root.name, (*members, *(Group(name, tuple(hosts)) for name, hosts in together.items())))


def innermost(root: Group) -> tuple[Group, ...]:
    """Return the groups that hold hosts themselves."""
    below = tuple(group for member in root.members if isinstance(member, Group) for group in innermost(member))
    return below if all(isinstance(member, Group) for member in root.members) else (*below, root)


def level_tree(
    root: Group,
    slots: Mapping[str, int] | int,
    tiers: Sequence[Tier],
    hbm_bytes: Number,
    *,
    message_bytes: int = MESSAGE_BYTES,
) -> Levelling:
    """Return the levels of a tree of hosts.

    Parameters
    ----------
    slots
        Devices of each host, or of every host.
    tiers
        The links inside a host, then those of each tier of switches; the last counts for all further tiers. Groups of
        tiers are not looked at.
    hbm_bytes
        Memory of each device.

    Raises
    ------
    InvalidProblem
        If hosts or tiers are missing.
    """
    if len(tiers) < 2:
        raise InvalidProblem("tiers", f"{len(tiers)} given", "give those inside a host and between hosts at least")
    groups = [_host_sizes(root, slots), *_tier_sizes(root, slots)]
    order = _device_names(root, slots)
    notes: list[str] = []
    sizes = _nested(groups, notes)
    figures = [tiers[min(at, len(tiers) - 1)] for at in range(len(groups))]
    kept = _kept(sizes, figures)
    cluster = _cluster(len(order), [(sizes[at], figures[at]) for at in kept], root.name, hbm_bytes)
    gaps = _gaps(cluster, groups, figures, message_bytes)
    return Levelling(cluster, order, gaps, True, message_bytes, tuple(notes))


def one_root(roots: Sequence[Group], choose: str) -> Group:
    """Return the one root of a network that has several, as the caller chose.

    Raises
    ------
    InvalidProblem
        If it did not choose one of several, or there is no such root.
    """
    known = {root.name: root for root in roots}
    if choose in known:
        return known[choose]
    if choose or len(roots) != 1:
        names = ", ".join(f"{root.name} ({len(root.hosts)} nodes)" for root in roots)
        what = f"{choose!r} is no root" if choose else f"{len(roots)} trees that nothing joins"
        raise InvalidProblem("root", what, f"choose one of {names}")
    return roots[0]


def _slot(slots: Mapping[str, int] | int, host: str) -> int:
    return slots if isinstance(slots, int) else slots[host]


def _sorted(group: Group, slots: Mapping[str, int] | int) -> list[Group | str]:
    """Return members with the largest first, so that what is smaller than the others comes last on the line."""
    return sorted(group.members, key=lambda member: -_size(member, slots))


def _size(member: Group | str, slots: Mapping[str, int] | int) -> int:
    hosts = member.hosts if isinstance(member, Group) else (member,)
    return sum(_slot(slots, host) for host in hosts)


def _walk(root: Group, slots: Mapping[str, int] | int, height: int) -> list[Group | str]:
    """Return the members at a height (0: hosts), in the order of the line; lower branches are lifted to it."""
    if root.height <= height:
        return [root]
    found: list[Group | str] = []
    for member in _sorted(root, slots):
        found.extend([member] if isinstance(member, str) else _walk(member, slots, height))
    return found


def _host_sizes(root: Group, slots: Mapping[str, int] | int) -> list[int]:
    return [_size(host, slots) for host in _walk(root, slots, 0)]


def _tier_sizes(root: Group, slots: Mapping[str, int] | int) -> list[list[int]]:
    return [[_size(group, slots) for group in _walk(root, slots, height)] for height in range(1, root.height + 1)]


def _device_names(root: Group, slots: Mapping[str, int] | int) -> tuple[str, ...]:
    hosts = [str(host) for host in _walk(root, slots, 0)]
    return tuple(f"{host}/{at}" for host in hosts for at in range(_slot(slots, host)))


def _nested(groups: list[list[int]], notes: list[str]) -> list[int]:
    """Return the size of the groups at each height, each dividing the next."""
    sizes = []
    for height, found in enumerate(groups):
        whole = found[0] if len(found) == 1 else gcd(*found[:-1])
        if len(set(found)) > 1 and whole < max(found):
            what = "hosts" if height == 0 else f"switches of tier {height}"
            notes.append(f"{what} hold {min(found)} to {max(found)} devices; the level has groups of {whole}")
        sizes.append(whole)
    return sizes


def _kept(sizes: list[int], figures: list[Tier]) -> list[int]:
    """Return the heights that become levels: those that join something, the widest of several alike in a row."""
    joining = [at for at in range(len(sizes)) if sizes[at] > (sizes[at - 1] if at else 1)] or [0]
    alike = {one for one, other in pairwise(joining) if figures[one] == figures[other]}
    return [at for at in joining if at not in alike]


def _cluster(devices: int, levels: list[tuple[int, Tier]], name: str, hbm_bytes: Number) -> Cluster:
    built: list[Level] = []
    inner = 1
    for size, tier in levels:
        fanout = -(-size // inner)
        built.append(tier.level(fanout))
        inner *= fanout
    return Cluster(devices, hbm_bytes, tuple(built), name, partial=inner != devices)


def _gaps(cluster: Cluster, groups: list[list[int]], figures: list[Tier], message_bytes: int) -> tuple[ClassGap, ...]:
    """Return how each level compares with the tier that its pairs really share.

    Pairs are counted, not listed: those that share a group of the level and one of the tier lie in the same piece of
    the line when it is cut at the ends of both.
    """
    ends = [np.array(list(accumulate(sizes))) for sizes in groups]
    least = list(accumulate((tier.bandwidth_bytes_per_s for tier in figures), min))
    exact = [tier.latency_s + message_bytes / path for tier, path in zip(figures, least, strict=True)]
    chunks = [np.arange(size, cluster.devices + size, size).clip(max=cluster.devices) for size in cluster.group_sizes]
    within = np.array([[_pairs(chunk, end) for end in ends] for chunk in chunks])
    only = np.diff(np.diff(within, axis=0, prepend=0), axis=1, prepend=0)
    gaps = []
    for at, (level, path) in enumerate(zip(cluster.levels, cluster.path_bandwidths, strict=True)):
        counts = only[at]
        ratio = (level.latency_s + message_bytes / path) / np.array(exact)
        if counts.sum():
            seen = ratio[counts > 0]
            mean = float((ratio * counts).sum() / counts.sum())
            gaps.append(ClassGap(at, int(counts.sum()), float(seen.min()), mean, float(seen.max())))
    return tuple(gaps)


def _pairs(one: Ints, other: Ints) -> int:
    """Return how many pairs of places lie in one piece of both cuttings of the line."""
    lengths = np.diff(np.union1d(one, other), prepend=0).astype(np.int64)
    return int((lengths * (lengths - 1) // 2).sum())
