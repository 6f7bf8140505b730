"""The cluster of a problem: levels at the bandwidth that collectives reach."""

from __future__ import annotations

from dataclasses import replace

from nest.cluster import Cluster
from nest.costing import network_of
from nest.hardware import Hardware


def effective_cluster(hardware: Hardware) -> Cluster:
    """Return the cluster with the bandwidth that large messages reach on each level.

    Problems have no kinds of links and no library: of the rated bandwidth they get what `nest.cost.links` says that
    streams reach. What a call takes to start, and protocols for small messages, are left out.
    """
    network = network_of(hardware)
    levels = (
        replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * traits.kind.stream)
        for level, traits in zip(network.cluster.levels, network.traits, strict=True)
    )
    return replace(hardware.cluster, levels=tuple(levels))
