"""Several systems on one network: a cluster whose devices are of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from nest.cluster import Cluster, DeviceClass
from nest.errors import InvalidProblem
from nest.hardware.device import Device
from nest.hardware.links import linked
from nest.hardware.setup import Hardware, Tier, stack
from nest.hardware.systems import System


class Part(NamedTuple):
    """So many devices of a system."""

    system: System
    device: Device
    devices: int


def mixed(parts: Sequence[Part]) -> Hardware:
    """Return systems side by side on one network, in their order on the line.

    A level has one bandwidth and one latency, for all devices: those of the slowest system. Levels inside a host are
    those that all systems have with groups of one size; the fabrics of all systems together are one level above them.

    Raises
    ------
    InvalidProblem
        If hosts are of different sizes, or a system does not fill its last one.
    """
    hosts = {part.system.tiers[0].group for part in parts}
    if len(hosts) > 1:
        what = " and ".join(f"{part.system.tiers[0].group} ({part.system.name})" for part in parts)
        raise InvalidProblem("cluster", f"hosts of {what} devices", "join systems whose hosts have as many devices")
    (host,) = hosts
    if uneven := next((part for part in parts[:-1] if part.devices % host), None):
        what = f"{uneven.devices} devices of {uneven.system.name}"
        raise InvalidProblem("cluster", what, f"give a multiple of {host}, whole hosts")
    total, name = sum(part.devices for part in parts), "+".join(f"{part.system.name}:{part.devices}" for part in parts)
    inside = _slowest([part.system.tiers[0] for part in parts])
    fabrics = [tier for part in parts for tier in _fabric(part, total)]
    levels, facts, partial = stack((inside, replace(_slowest(fabrics), name="fabric", group=0)), total)
    device, others = parts[0].device, dict.fromkeys(part.device for part in parts if part.device != parts[0].device)
    classes = tuple(DeviceClass(each.name, _ranges(parts, each), each.hbm_bytes) for each in others)
    own = device.name if classes else ""
    cluster = Cluster(total, device.hbm_bytes, levels, name, partial, own_class=own, classes=classes)
    notes = (*(part.system.what for part in parts), "every level is as slow as that of the slowest system")
    return Hardware(device, linked(cluster, device, facts), facts, notes=notes, others=tuple(others))


def _fabric(part: Part, total: int) -> Sequence[Tier]:
    """Return the tiers of a system above its hosts that so many devices need."""
    above = part.system.tiers[1:]
    needed = next((at for at, tier in enumerate(above) if not 0 < tier.group < total), len(above) - 1)
    return above[: needed + 1]


def _slowest(tiers: Sequence[Tier]) -> Tier:
    """Return a tier with the least bandwidth and the longest latency of several; switches add where all do."""
    slow = min(tiers, key=lambda tier: tier.bandwidth_bytes_per_s)
    pairs = [tier.pair_bytes_per_s or tier.link_bytes_per_s for tier in tiers]
    return replace(
        slow,
        latency_s=max(tier.latency_s for tier in tiers),
        pair_bytes_per_s=min(pairs),
        in_network_reduction=all(tier.in_network_reduction for tier in tiers),
    )


def _ranges(parts: Sequence[Part], device: Device) -> tuple[tuple[int, int], ...]:
    """Return the devices of a kind, neighbours together."""
    found: list[tuple[int, int]] = []
    for part, end in zip(parts, accumulate(part.devices for part in parts), strict=True):
        if part.device == device:
            first = end - part.devices
            first = found.pop()[0] if found and found[-1][1] == first else first
            found.append((first, end))
    return tuple(found)
