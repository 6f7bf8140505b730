"""Dumps of a fabric: ibnetdiscover and NVIDIA NetQ, as networks of hosts and switches."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from nest.errors import InvalidProblem
from nest.hardware import Tier
from nest.networks.network import Link, Network

LANE_BYTES_PER_S = {"SDR": 0.25e9, "DDR": 0.5e9, "QDR": 1e9, "FDR10": 1.25e9, "FDR": 1.7e9, "EDR": 3.125e9}
LANE_BYTES_PER_S |= {"HDR": 6.25e9, "NDR": 12.5e9, "XDR": 25e9}
"""Of one lane in one direction, as rates are named: 4xNDR is 400 Gb/s, 50e9."""

PORT = re.compile(
    r'^\[(?P<port>[0-9]+)\](?:\([^)]*\))?\s+"(?P<peer>[HSR]-[0-9a-fA-F]+)"\[(?P<at>[0-9]+)\]\S*\s*'
    r'#\s*"(?P<name>[^"]*)".*?(?P<width>[0-9]+)x(?P<rate>[A-Z0-9]+)'
)
HEAD = re.compile(r'^(?P<kind>Switch|Ca|Rt)\s+[0-9]+\s+"(?P<id>[HSR]-[0-9a-fA-F]+)"\s*#\s*"(?P<name>[^"]*)"')
AGGREGATION = "Aggregation Node"
"""What the peer is called that adds inside a switch (SHARP): it is no host."""

HOP_S = 0.5e-6
"""Of one cable and switch; only its ratio to other levels matters for which devices are near."""


def read_ibnetdiscover(text: str) -> Network:
    """Return adapters as devices, named by their addresses, and switches, with every cable once.

    Raises
    ------
    InvalidProblem
        If there is no switch or no adapter.
    """
    ends: Counter[tuple[str, str, float]] = Counter()
    switches: dict[str, None] = {}
    for here, peer, name, rate in _ib_ports(text):
        switches.setdefault(here)
        if AGGREGATION in name:
            continue
        low, high = sorted((here, peer))
        ends[low, high, rate] += 1
    links = []
    for (low, high, rate), count in ends.items():
        cables = count // 2 if low in switches and high in switches else 1  # both switches list a cable between them
        links += [Link(low, high, rate, HOP_S)] * max(cables, 1)
    devices = tuple(dict.fromkeys(end for low, high, _ in ends for end in (low, high) if end not in switches))
    if not switches or not devices:
        raise InvalidProblem("", "no switch with adapters", "give the output of ibnetdiscover, switch records included")
    return Network(devices, tuple(switches), tuple(links))


def read_netq(text: str, link_bytes_per_s: float) -> Network:
    """Return the hosts and switches of a NetQ topology graph.

    Parameters
    ----------
    link_bytes_per_s
        Bandwidth of one cable in one direction, which the file does not say; a link has ``size`` of them.

    Raises
    ------
    InvalidProblem
        If it is no such graph.
    """
    try:
        graph = json.loads(text)[0]
        nodes = [node for tier in graph["nodes"] for node in tier["compounded_nodes"]]
        names = {node["id"]: (node["name"], node.get("device_type") == "switch") for node in nodes}
        links = [
            Link(names[link["src"]][0], names[link["target"]][0], link["size"] * link_bytes_per_s, HOP_S)
            for link in graph["links"]
        ]
    except (ValueError, KeyError, IndexError, TypeError) as fault:
        raise InvalidProblem("", f"no topology graph of NetQ: {fault}", "give its JSON") from None
    devices = tuple(name for name, switch in names.values() if not switch)
    return Network(devices, tuple(name for name, switch in names.values() if switch), tuple(links))


def with_devices(hosts: Network, count: int, inside: Tier, outside: Tier) -> Network:
    """Return a network whose hosts hold so many devices each, joined by the links inside a host.

    A host becomes a switch between its devices, and its cables are for all of them. Devices of two hosts at one switch
    are as far apart as the links outside of hosts say.
    """
    devices = [(f"{host}/{at}", host) for host in hosts.devices for at in range(count)]
    links = [Link(name, host, inside.bandwidth_bytes_per_s, inside.latency_s / 2) for name, host in devices]
    names, ends = tuple(name for name, _ in devices), set(hosts.devices)
    way_out_s = max(HOP_S, (outside.latency_s - inside.latency_s) / 2)
    cables = [replace(link, latency_s=way_out_s) if {link.source, link.target} & ends else link for link in hosts.links]
    return Network(names, (*hosts.devices, *hosts.switches), (*links, *cables), name=hosts.name)


def _ib_ports(text: str) -> Iterator[tuple[str, str, str, float]]:
    """Yield for each port of a switch: the switch, the peer, the peer's name, bytes/s in one direction."""
    here = ""
    for line in text.splitlines():
        head = HEAD.match(line)
        if head:
            here = head["id"] if head["kind"] == "Switch" else ""
        port = PORT.match(line) if here else None
        if port:
            rate = LANE_BYTES_PER_S.get(port["rate"])
            if rate is None:
                raise InvalidProblem(here, f"unknown rate {port['rate']}", f"known are {', '.join(LANE_BYTES_PER_S)}")
            yield here, port["peer"], port["name"], int(port["width"]) * rate
