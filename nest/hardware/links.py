"""Kinds of links by what levels are called, where a description does not say.

Names are those of `nest.cost.links`, which has what collectives reach on each kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nest.cluster import Cluster, Level, Technology
from nest.hardware.device import Device
from nest.hardware.setup import LevelFacts, Tier
from nest.units import Number

LIBRARY = "nccl"
"""What frameworks run on."""

NVLINK, NVLINK5 = "nvlink", "nvlink5"

WITHIN = {"nvswitch": NVLINK, "quad": NVLINK, "node": NVLINK, "nvl72": NVLINK5, "xgmi": "xgmi", "pcie": "pcie"}
"""Links of a level inside a host, by the level's name."""

BETWEEN_SITES = {"region": "tcp"}
"""Links of a level that joins sites far apart: Ethernet over leased fibre, without RDMA."""

OTHERS = {("b200", "gb200"): NVLINK5, ("mi",): "xgmi"}
"""What devices have in the place of NVLink 2 to 4, by how their names begin."""


def link_of(level: str, device: str) -> str:
    """Return the kind of links of a level, by its name and that of the devices; ``rdma`` beyond a host."""
    if device.startswith("tpu"):
        return "ici"
    found = (WITHIN | BETWEEN_SITES).get(level, "rdma")
    if found == NVLINK:
        return next((kind for names, kind in OTHERS.items() if device.startswith(names)), NVLINK)
    return found


def linked(cluster: Cluster, device: Device, facts: Sequence[LevelFacts], library: str = "") -> Cluster:
    """Return a cluster whose levels say what collectives get out of them.

    Parameters
    ----------
    facts
        One for each level; those that name no kind of links have it by the level's name.
    library
        What runs collectives, by name; NCCL if empty.
    """
    levels = tuple(_linked(level, device, fact) for level, fact in zip(cluster.levels, facts, strict=True))
    return replace(cluster, levels=levels, library=library or LIBRARY)


def technology(tier: Tier, level: str, device: Device, price_per_device: Number) -> Technology:
    """Return a tier as one entry of the menu of a level, whose name tells its kind of links where the tier does not."""
    found = _linked(tier.level(1, level), device, tier.facts)
    return Technology(
        tier.name,
        found.bandwidth_bytes_per_s,
        found.latency_s,
        price_per_device,
        found.link,
        found.pair_bytes_per_s,
        found.in_network_reduction,
    )


def _linked(level: Level, device: Device, fact: LevelFacts) -> Level:
    """Return a level with its kind of links.

    Switches add inside a host; across hosts NCCL has to be asked, and needs a plugin (CollNet).
    """
    if level.alternatives:
        return level  # each of its technologies says what links it has
    link = fact.link or link_of(level.name, device.name)
    pair = fact.pair_bytes_per_s if fact.pair_bytes_per_s < level.bandwidth_bytes_per_s else None
    adds = fact.in_network_reduction and link in (NVLINK, NVLINK5)
    return replace(level, link=link, pair_bytes_per_s=pair, in_network_reduction=adds)
