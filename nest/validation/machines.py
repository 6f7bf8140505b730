"""The machines on which was measured, where the catalogue has none of that name."""

from __future__ import annotations

from nest.cluster import Cluster
from nest.hardware import Device, Hardware, Tier, cluster_named, device_named, linked, stack

NVLINK_S, PCIE_S, NETWORK_S = 3.4e-6, 5.7e-6, 14e-6


def jean_zay(devices: int, *, bound: bool) -> Hardware:
    """Return nodes of 8 A100 with 4 Omni-Path links.

    Parameters
    ----------
    bound
        Whether devices and network cards are bound to the right CPUs. If not, whatever they send gets a fifth of the
        links' bandwidth, fitted on the row that says so.
    """
    if bound:
        return cluster_named(f"jean-zay:{devices}")
    within = Tier("nvswitch", 8, 300e9, NVLINK_S)
    return _stacked(
        device_named("a100-80gb"), devices, (within, Tier("fabric", 0, 6.25e9, NETWORK_S, oversubscription=5))
    )


def roce(device: Device, devices: int) -> Hardware:
    """Return nodes of 8 A100 with 1600 Gb/s RoCE."""
    tiers = Tier("nvswitch", 8, 300e9, NVLINK_S), Tier("fabric", 0, 25e9, NETWORK_S)
    return _stacked(device, devices, tiers)


def l4_node(devices: int) -> Hardware:
    """Return one node of L4 on PCIe."""
    return _stacked(device_named("l4"), devices, (Tier("pcie", 8, 32e9, PCIE_S, pair_bytes_per_s=16e9),))


def _stacked(device: Device, devices: int, tiers: tuple[Tier, ...]) -> Hardware:
    levels, facts, partial = stack(tiers, devices)
    cluster = Cluster(devices, device.hbm_bytes, levels, f"{device.name}:{devices}", partial)
    return Hardware(device, linked(cluster, device, facts), facts)
