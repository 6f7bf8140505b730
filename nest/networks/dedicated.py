"""Hosts whose devices have links of their own to each other, without a switch: eight MI300X, the quads of a DGX-1.

A device sends to all others of its level at once there, over as many links, while one pair has a link's bandwidth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nest.cluster import Level
from nest.hardware import Device
from nest.hardware.systems import PCIE_S
from nest.networks.levelling import Levelling

ROUNDING = 1e-9


def with_own_links(levelling: Levelling, device: Device) -> tuple[Levelling, tuple[float, ...]]:
    """Return levels on which a device has the sum of its links, and what one pair has on each.

    Parameters
    ----------
    levelling
        Levels of a table of pairs, as wide as their slowest pair each. They are returned as they are where a device
        reaches others over more links than it has, so that a switch lies between them, and so is every level with a
        pair on PCIe.
    device
        What the devices are.
    """
    cluster = levelling.cluster
    single = tuple(level.bandwidth_bytes_per_s for level in cluster.levels)
    if levelling.pairs is None:
        return levelling, single
    bandwidth, latency_s = levelling.pairs.bandwidth_bytes_per_s, levelling.pairs.latency_s
    places = np.arange(cluster.devices)
    others = places[:, None] != places[None, :]
    links = others & (latency_s < PCIE_S)
    carried = np.where(links, bandwidth, 0.0)
    if carried.sum(axis=1).max() > device.links_bytes_per_s * (1 + ROUNDING):
        return levelling, single
    spans = cluster.spans(places[:, None], places[None, :])
    levels: list[Level] = []
    for at, level in enumerate(cluster.levels):
        inside = others & (spans == at)
        own = float(np.where(inside, carried, 0.0).sum(axis=1).min()) if links[inside].all() else 0.0
        levels.append(replace(level, bandwidth_bytes_per_s=max(own, single[at])))
    return replace(levelling, cluster=replace(cluster, levels=tuple(levels))), single
