"""Devices and clusters with sourced figures; `docs/clusters.md` lists them."""

from nest.hardware.device import DTYPES, Device, Peaks
from nest.hardware.devices import DEVICES
from nest.hardware.links import link_of, linked, technology
from nest.hardware.named import catalogue, cluster_named, device_named, devices_of_kind, system_named
from nest.hardware.quantities import BANDWIDTHS, LATENCIES, converted
from nest.hardware.setup import Hardware, LevelFacts, Pairs, Tier, stack
from nest.hardware.systems import PODS, SYSTEMS, Pod, System
from nest.hardware.torus import Torus, parse_shape

__all__ = [
    "BANDWIDTHS",
    "DEVICES",
    "DTYPES",
    "LATENCIES",
    "PODS",
    "SYSTEMS",
    "Device",
    "Hardware",
    "LevelFacts",
    "Pairs",
    "Peaks",
    "Pod",
    "System",
    "Tier",
    "Torus",
    "catalogue",
    "cluster_named",
    "converted",
    "device_named",
    "devices_of_kind",
    "link_of",
    "linked",
    "parse_shape",
    "stack",
    "system_named",
    "technology",
]
