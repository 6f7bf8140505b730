"""Clusters that other planners describe with devices and links together, as cluster files of our own.

`nest.networks.planners` has the readers, which say what the keys of each mean; here their answers become documents
under ``nest.cluster/1``, so that a plan file can carry them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from nest.errors import InvalidProblem
from nest.hardware import DTYPES, Device, Tier, device_named, devices_of_kind, stack
from nest.networks import Group, level_tree
from nest.networks.hostfile import read_hostfile
from nest.networks.planners import (
    read_aiconfigurator,
    read_llm_analysis,
    read_metis,
    read_scale_explorer,
    tiers_of_hosts,
)

KINDS = {
    "Metis": ("intra_bandwidth", "inter_bandwidth", "instance_type"),
    "ScaleExplorer": ("num_devices", "num_nodes", "bw_per_nvlink"),
    "llm-analysis": ("mem_per_GPU_in_GB", "intra_node_bandwidth_in_GB_per_sec"),
    "AIConfigurator": ("num_gpus_per_node", "intra_node_bw", "mem_capacity"),
}
"""Words that only descriptions of each kind have, all of them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a description leaves open.

    Parameters
    ----------
    devices
        How many there are; None if not given.
    device
        Name of a device of the catalogue, in place of the figures that the description gives; empty for these.
    gpus_per_node
        Devices of a host of Metis; None if not given.
    hosts
        Text of a list of hosts with slots; empty if not given.
    """

    devices: int | None = None
    device: str = ""
    gpus_per_node: int | None = None
    hosts: str = ""


def system_kind(text: str) -> str:
    """Return which planner's description a text is; empty for all other texts."""
    return next((kind for kind, words in KINDS.items() if all(word in text for word in words)), "")


def system_document(kind: str, text: str, wanted: Wanted, name: str) -> dict[str, Any]:
    """Return a description as plain objects under ``nest.cluster/1``.

    Parameters
    ----------
    kind
        As `system_kind` says.
    name
        For people to read.

    Raises
    ------
    InvalidProblem
        If a key is missing or wrong, or something is left open.
    """
    if kind == "Metis":
        return _of_hosts(text, wanted, name)
    if wanted.hosts or wanted.gpus_per_node is not None:
        option = "--hostfile" if wanted.hosts else "--gpus-per-node"
        raise InvalidProblem(option, f"given, and a system of {kind} says it itself", "leave it out")
    count = wanted.devices
    tiers: tuple[Tier, ...]
    if kind == "ScaleExplorer":
        device, tiers, own = read_scale_explorer(text)
        count = count or own
    else:
        device, tiers = read_llm_analysis(text) if kind == "llm-analysis" else read_aiconfigurator(text)
    if count is None:
        raise InvalidProblem("", f"a system of {kind}, which does not say how many devices", "add :N, as in FILE:64")
    levels, facts, partial = stack(tiers, count)
    pairs = (fact.pair_bytes_per_s for fact in facts)
    rows = [
        {**_level(level.name, level.fanout, level.bandwidth_bytes_per_s, level.latency_s), "pair_gb_per_s": pair / 1e9}
        for level, pair in zip(levels, pairs, strict=True)
    ]
    named = device.name if device.name != "gpu" else name
    return _document(name, wanted.device or _device_table(replace(device, name=named)), count, rows, partial=partial)


def _of_hosts(text: str, wanted: Wanted, name: str) -> dict[str, Any]:
    """Return hosts of Metis: those of one kind together on the line, each kind a class of devices."""
    if wanted.devices is not None:
        raise InvalidProblem("", "a number of devices for hosts of Metis", "give --gpus-per-node, or --hostfile")
    hosts = read_metis(text)
    slots = _slots(hosts, wanted)
    kinds = list(dict.fromkeys((hosts[host][0], hosts[host][3]) for host in slots))
    ordered = tuple(host for kind in kinds for host in slots if (hosts[host][0], hosts[host][3]) == kind)
    tiers = tiers_of_hosts({host: hosts[host] for host in ordered})
    levelling = level_tree(Group(name, ordered), slots, tiers, kinds[0][1])
    cluster = levelling.cluster
    places = [hosts[each.rpartition("/")[0]] for each in levelling.order]
    ranges = _ranges([(kind, memory) for kind, _, _, memory in places])
    device, *others = (wanted.device or _device_table(_known(*kind)) for kind in kinds)
    rows = [_level(each.name, each.fanout, each.bandwidth_bytes_per_s, each.latency_s) for each in cluster.levels]
    document = _document(name, device, cluster.devices, rows, partial=cluster.partial)
    if wanted.device or not others:
        return document
    classes = [{"device": other, "devices": ranges[kind]} for other, kind in zip(others, kinds[1:], strict=True)]
    return {**document, "classes": classes}


def _slots(hosts: Mapping[str, tuple[str, float, float, float]], wanted: Wanted) -> dict[str, int]:
    """Return the devices of each host, as a list of hosts says or as many as there are of every host."""
    if wanted.hosts:
        slots = read_hostfile(wanted.hosts, wanted.gpus_per_node)[1]
        strange = next((host for host in slots if host not in hosts), None)
        if strange is not None:
            raise InvalidProblem("--hostfile", f"a host {strange!r}", f"the cluster file has {', '.join(hosts)}")
        return slots
    if wanted.gpus_per_node is None:
        remedy = "give --hostfile FILE, or --gpus-per-node N"
        raise InvalidProblem("", "a cluster file of Metis, which does not say how many devices a host has", remedy)
    return dict.fromkeys(hosts, wanted.gpus_per_node)


def _known(kind: str, memory: float) -> Device:
    """Return the device of the catalogue of this kind whose memory is nearest, with the memory that is said."""
    found = devices_of_kind(kind)
    if not found:
        device_named(kind)  # says which there are
    nearest = min(found, key=lambda each: abs(float(each.nominal_bytes or each.hbm_bytes) - memory))
    return replace(nearest, hbm_bytes=int(memory))


def _ranges(kinds: list[tuple[str, float]]) -> dict[tuple[str, float], list[list[int]]]:
    """Return the first and last places of each row of neighbours of one kind, by kind."""
    found: dict[tuple[str, float], list[list[int]]] = {}
    at = 0
    for kind, run in groupby(kinds):
        end = at + len(list(run))
        found.setdefault(kind, []).append([at, end - 1])
        at = end
    return found


def _document(
    name: str, device: str | dict[str, Any], devices: int, levels: list[dict[str, Any]], *, partial: bool
) -> dict[str, Any]:
    known = {"schema": "nest.cluster/1", "name": name, "device": device, "devices": devices, "levels": levels}
    return {**known, "partial": True} if partial else known


def _level(name: str, fanout: int, bandwidth_bytes_per_s: float, latency_s: float) -> dict[str, Any]:
    return {
        "name": name,
        "fanout": fanout,
        "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        "latency_s": latency_s,
    }


def _device_table(device: Device) -> dict[str, Any]:
    return {"name": device.name, **dict(_figures(device))}


def _figures(device: Device) -> Iterator[tuple[str, float]]:
    """Yield the figures of a device as a cluster file has them."""
    yield "hbm_bytes", int(device.hbm_bytes)
    yield "hbm_gb_per_s", device.hbm_bytes_per_s / 1e9
    for dtype in DTYPES:
        rate = getattr(device.peaks, dtype)
        if rate is not None:
            yield f"{dtype}_tflops", rate / 1e12
    if device.links:
        yield "link_gb_per_s", device.link_bytes_per_s / 1e9
        yield "links", device.links
    if device.pcie_bytes_per_s:
        yield "pcie_gb_per_s", device.pcie_bytes_per_s / 1e9


def system_text(kind: str, text: str, wanted: Wanted, name: str) -> str:
    """Return `system_document` as the text of a cluster file; raises `InvalidProblem` as it does."""
    return json.dumps(system_document(kind, text, wanted, name), indent=2)
