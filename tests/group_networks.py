"""Networks and groups for the tests of collectives, and strategies that draw them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from hypothesis import strategies as st

from nest.cluster import Cluster, Level
from nest.cost.links import ANY, IDEAL, LevelTraits, Library, LinkKind, Network

CLOSE = 1e-9
"""Relative difference that order of additions may make."""


def cluster_of(*levels: tuple[int, float, float]) -> Cluster:
    """Return a cluster by fan-out, bandwidth and latency of each level."""
    return Cluster(prod(level[0] for level in levels), 80e9, tuple(Level(*level) for level in levels))


def network_of(cluster: Cluster, library: Library = ANY, kind: LinkKind = IDEAL, *, adds: bool = False) -> Network:
    """Return a network with the same traits on all levels."""
    return Network(cluster, (LevelTraits(kind, in_network_reduction=adds),) * len(cluster.levels), library)


def only(network: Network, algorithm: str) -> Network:
    """Return the network with one algorithm."""
    return replace(network, library=replace(network.library, algorithms=(algorithm,)))


def dgx(nodes: int, library: Library = ANY, kind: LinkKind = IDEAL) -> Network:
    """Return nodes of eight devices with 100 bytes/s inside, 10 outside."""
    return network_of(cluster_of((8, 100.0, 1.0), (nodes, 10.0, 5.0)), library, kind)


CLUSTERS = st.lists(st.tuples(st.integers(1, 4), st.floats(1e9, 1e12), st.floats(0, 1e-4)), min_size=1, max_size=3).map(
    lambda levels: cluster_of(*levels)
)


@st.composite
def placed(draw: st.DrawFn) -> tuple[Cluster, list[int]]:
    """Draw a cluster and some of its devices."""
    cluster = draw(CLUSTERS)
    places = st.integers(0, cluster.devices - 1)
    return cluster, sorted(draw(st.sets(places, min_size=1)))


@st.composite
def symmetric(draw: st.DrawFn) -> tuple[Cluster, list[int]]:
    """Draw a cluster and a group with equally many members in all children that hold some."""
    cluster = draw(CLUSTERS)
    digits = [range(draw(st.integers(1, level.fanout))) for level in cluster.levels]
    sizes = (1, *cluster.group_sizes)
    return cluster, sorted(sum(d * s for d, s in zip(each, sizes, strict=False)) for each in product(*digits))
