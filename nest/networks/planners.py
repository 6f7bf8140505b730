"""Clusters as other planners describe them: Metis, ScaleExplorer, llm-analysis, AIConfigurator, Sailor.

None says its units in the data; what the keys mean is stated at each reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nest.errors import InvalidProblem
from nest.hardware import Device, Peaks, Tier
from nest.hardware.systems import NETWORK_S, NVLINK_S
from nest.networks.figures import count, figure, table_of
from nest.networks.yaml_text import parse_yaml

GIGABYTE = 1e9
NODE = 8
"""Devices of a node where the description takes it for granted."""


def read_metis(text: str) -> dict[str, tuple[str, float, float, float]]:
    """Return for each host of a Metis cluster file: kind of device, bytes/s within and between hosts, memory in bytes.

    Bandwidths are bytes/s (312500000 is 2.5 Gb/s), memory is GB. How many devices a host has is in the host file.
    """
    tree = table_of(text)
    hosts = {}
    for name, entry in tree.items():
        if not isinstance(entry, dict):
            raise InvalidProblem(str(name), f"{entry!r}", "give a table for each host")
        inner, outer = (_number(entry, key, name) for key in ("intra_bandwidth", "inter_bandwidth"))
        memory = _number(entry, "memory", name) * GIGABYTE
        hosts[str(name)] = (str(entry.get("instance_type")), inner, outer, memory)
    if not hosts:
        raise InvalidProblem("", "no host", "give a table for each host")
    return hosts


def tiers_of_hosts(hosts: Mapping[str, tuple[str, float, float, float]]) -> tuple[Tier, Tier]:
    """Return the links within and between hosts of a Metis cluster file, the slowest of each."""
    inner = min(inside for _, inside, _, _ in hosts.values())
    outer = min(between for _, _, between, _ in hosts.values())
    return Tier("node", 0, inner, NVLINK_S, source="Metis"), Tier("network", 0, outer, NETWORK_S, source="Metis")


def read_scale_explorer(text: str) -> tuple[Device, tuple[Tier, ...], int]:
    """Return device, tiers and number of devices of a ScaleExplorer system.

    ``f32_flops`` is the rate of TF32; ``bw_per_nvlink`` counts both directions; ``ibroce_bw`` is bytes/s of one port.
    """
    tree = table_of(text)
    devices, nodes, links = (count(tree.get(key), key) for key in ("num_devices", "num_nodes", "num_nvlinks"))
    if devices % nodes:
        raise InvalidProblem("num_devices", f"{devices} on {nodes} nodes", "give as many for each node")
    link = _number(tree, "bw_per_nvlink") / 2
    peaks = Peaks(tf32=_number(tree, "f32_flops"), bf16=_number(tree, "f16_flops"), fp16=_number(tree, "f16_flops"))
    name = str(tree.get("name", "system"))
    memory = _number(tree, "mem_cap")
    device = Device(name, peaks, memory, _number(tree, "mem_bw"), "ScaleExplorer", memory, link, links)
    per_node = devices // nodes
    port = _number(tree, "num_ibroce_ports") * _number(tree, "ibroce_bw") / per_node
    tiers = (Tier("node", per_node, links * link, NVLINK_S), Tier("network", 0, port, NETWORK_S))
    return device, tiers, devices


def read_llm_analysis(text: str) -> tuple[Device, tuple[Tier, ...]]:
    """Return device and tiers of an llm-analysis description.

    ``inter_node_bandwidth_in_GB_per_sec`` is that of a whole node of eight, the intra-node one that of a device.
    """
    tree = table_of(text)
    memory = _number(tree, "mem_per_GPU_in_GB") * GIGABYTE
    rate = _number(tree, "peak_fp16_TFLOPS") * 1e12
    speed = _number(tree, "hbm_bandwidth_in_GB_per_sec") * GIGABYTE
    device = Device(str(tree.get("name", "gpu")), Peaks(bf16=rate, fp16=rate), memory, speed, "llm-analysis", memory)
    inner = _number(tree, "intra_node_bandwidth_in_GB_per_sec") * GIGABYTE
    outer = _number(tree, "inter_node_bandwidth_in_GB_per_sec") * GIGABYTE / NODE
    delay = _delay(tree, "intra_node_min_message_latency")
    return device, (Tier("node", NODE, inner, delay), Tier("network", 0, outer, NETWORK_S))


def read_aiconfigurator(text: str) -> tuple[Device, tuple[Tier, ...]]:
    """Return device and tiers of an AIConfigurator system: bytes, bytes/s of a device in one direction, FLOP/s."""
    tree = parse_yaml(text)
    gpu, node = (tree.get(name) if isinstance(tree, dict) else None for name in ("gpu", "node"))
    if not isinstance(gpu, dict) or not isinstance(node, dict):
        raise InvalidProblem("", "no tables gpu and node", "give an AIConfigurator system")
    rate = _number(gpu, "bfloat16_tc_flops")
    fp8 = _number(gpu, "fp8_tc_flops") if "fp8_tc_flops" in gpu else None
    memory = _number(gpu, "mem_capacity")
    device = Device(
        "gpu", Peaks(bf16=rate, fp16=rate, fp8=fp8), memory, _number(gpu, "mem_bw"), "AIConfigurator", memory
    )
    size, delay = count(node.get("num_gpus_per_node"), "num_gpus_per_node"), _delay(node, "p2p_latency")
    inner = Tier("node", size, _number(node, "intra_node_bw"), delay)
    return device, (inner, Tier("network", 0, _number(node, "inter_node_bw"), delay))


def read_sailor(text: str) -> dict[tuple[str, str], float]:
    """Return the measured bytes/s between groups of devices, ``zone/kind/count``, by direction.

    The file nests zone, kind and count of the sender, then of the receiver, and holds a polynomial and bytes/s.
    """
    found = {}
    for source, inner in _groups(table_of(text)):
        for target, value in _groups(inner):
            if not (isinstance(value, list) and len(value) == 2):
                raise InvalidProblem(f"{source} -> {target}", f"{value!r}", "give a polynomial and bytes/s")
            found[source, target] = figure(value[1], f"{source} -> {target}")
    if not found:
        raise InvalidProblem("", "no pair", "give bandwidths between groups")
    return found


def slower_ways(measured: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return one bandwidth for each two groups: that of the slower direction, or of the only one measured."""
    slower: dict[tuple[str, str], float] = {}
    for (source, target), rate in measured.items():
        pair = (min(source, target), max(source, target))
        slower[pair] = min(slower.get(pair, rate), rate)
    return slower


def _groups(tree: Any) -> Iterator[tuple[str, Any]]:
    for zone, kinds in _entries(tree, ""):
        for kind, counts in _entries(kinds, zone):
            for devices, inner in _entries(counts, f"{zone}/{kind}"):
                yield f"{zone}/{kind}/{devices}", inner


def _entries(tree: Any, where: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict):
        raise InvalidProblem(where, f"{tree!r}", "give a table of groups")
    yield from tree.items()


def _number(table: Mapping[str, Any], name: str, where: str = "") -> float:
    return figure(table.get(name), f"{where}.{name}" if where else name)


def _delay(table: Mapping[str, Any], name: str) -> float:
    return figure(table.get(name), name, may_be_zero=True)
