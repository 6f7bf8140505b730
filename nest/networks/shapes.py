"""Networks with a regular shape: rings, meshes, tori, fat trees, dragonflies."""

from __future__ import annotations

from itertools import combinations, product

from nest.errors import InvalidProblem
from nest.hardware import Torus
from nest.networks.network import Link, Network, named, whole


def ring(devices: int, bandwidth_bytes_per_s: float, latency_s: float) -> Network:
    """Return devices in a ring, each linked to the next."""
    return grid(Torus((devices,), (True,), bandwidth_bytes_per_s, latency_s))


def grid(torus: Torus) -> Network:
    """Return a torus or a mesh, link by link; devices are named by their coordinates, ``0,3,1``."""
    points = list(product(*map(range, torus.shape)))
    ends = []
    for point in points:
        for axis, extent in enumerate(torus.shape):
            step = point[axis] + 1
            if step < extent or torus.rings[axis]:
                other = (*point[:axis], step % extent, *point[axis + 1 :])
                ends.append((_name(point), _name(other)))
    return whole(map(_name, points), ends, torus.link_bytes_per_s, torus.hop_s)


def fat_tree(fanouts: tuple[int, ...], bandwidths: tuple[float, ...], latencies_s: tuple[float, ...]) -> Network:
    """Return a tree of switches with one trunk from each switch up to the next.

    Parameters
    ----------
    fanouts
        Devices of an innermost switch, then switches under each switch of the next tier, and so on.
    bandwidths
        Of the link up from each device, then of the trunk up from each switch, bytes/s in one direction.
    latencies_s
        Of the same links.
    """
    if not len(fanouts) == len(bandwidths) == len(latencies_s):
        raise InvalidProblem("fat tree", "tiers without figures", "give one bandwidth and one latency for each fan-out")
    count = 1
    for fanout in fanouts:
        count *= fanout
    devices = below = named("d", count)
    switches: list[str] = []
    links: list[Link] = []
    for tier, (fanout, bandwidth, latency_s) in enumerate(zip(fanouts, bandwidths, latencies_s, strict=True)):
        above = named(f"s{tier}.", len(below) // fanout)
        links += [Link(name, above[at // fanout], bandwidth, latency_s) for at, name in enumerate(below)]
        switches += above
        below = above
    return Network(devices, tuple(switches), tuple(links))


def dragonfly(
    groups: int,
    routers: int,
    devices: int,
    bandwidths: tuple[float, float, float],
    latencies_s: tuple[float, float, float],
) -> Network:
    """Return a dragonfly: routers of a group all linked to each other, and groups all linked to each other.

    Parameters
    ----------
    groups, routers, devices
        Groups, routers of each group, devices of each router.
    bandwidths, latencies_s
        Of a device's link, of a link within a group, of a link between two groups.

    Notes
    -----
    Kim and others, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008. The link to each other group
    starts at the routers in turn.
    """
    names = [named(f"g{group}.r", routers) for group in range(groups)]
    links = []
    for group, local in enumerate(names):
        for router in local:
            links += [Link(f"{router}.d{at}", router, bandwidths[0], latencies_s[0]) for at in range(devices)]
        links += [Link(one, other, bandwidths[1], latencies_s[1]) for one, other in combinations(local, 2)]
        for other in range(group + 1, groups):
            ends = local[(other - 1) % routers], names[other][group % routers]
            links.append(Link(*ends, bandwidths[2], latencies_s[2]))
    ports = tuple(f"{router}.d{at}" for local in names for router in local for at in range(devices))
    return Network(ports, tuple(router for local in names for router in local), tuple(links))


def _name(point: tuple[int, ...]) -> str:
    return ",".join(map(str, point))
