"""Networks as simulators describe them: ASTRA-sim, ns-3, htsim.

Comments in these files often contradict the values; only values are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nest.errors import InvalidProblem
from nest.hardware import BANDWIDTHS, LATENCIES, Tier, converted
from nest.networks.figures import count, figure, figure_of, json_of
from nest.networks.network import Link, Network
from nest.networks.yaml_text import parse_yaml

GIGABYTE, GIGABIT, NANOSECOND = (
    BANDWIDTHS["bandwidth_gb_per_s"],
    BANDWIDTHS["bandwidth_gbit_per_s"],
    LATENCIES["latency_ns"],
)
RATES = {"K": GIGABIT / 10**6, "M": GIGABIT / 10**3, "G": GIGABIT, "T": GIGABIT * 10**3}

HOPS = {"switch": 2.0, "fullyconnected": 1.0}
"""Link latencies that a message pays: up to the switch and down; a ring pays half its length."""


def read_astra_sim(text: str) -> tuple[Tier, ...]:
    """Return the dimensions of an ASTRA-sim network, innermost first.

    The YAML has GB/s and ns for each device, the older JSON for each link, of which a device has ``links-count``.

    Raises
    ------
    InvalidProblem
        If a list is missing, too short, or has an entry that is no number.
    """
    old = text.lstrip().startswith("{")
    tree = json_of(text) if old else parse_yaml(text)
    if not isinstance(tree, dict):
        raise InvalidProblem("", "no ASTRA-sim network", "give topology, npus_count, bandwidth and latency")
    names = (
        ("topologies-per-dim", "units-count", "link-bandwidth", "link-latency")
        if old
        else ("topology", "npus_count", "bandwidth", "latency")
    )
    kinds, counts, bandwidths, latencies = (_list(tree, name) for name in names)
    links = _list(tree, "links-count") if old else [1] * len(counts)
    if not len(kinds) == len(counts) == len(bandwidths) == len(latencies) == len(links):
        raise InvalidProblem(names[1], "lists of different length", "give one entry for each dimension")
    tiers, group = [], 1
    for at, kind in enumerate(map(str, kinds)):
        size = count(counts[at], f"{names[1]}[{at}]")
        bandwidth = figure(bandwidths[at], f"{names[2]}[{at}]") * figure(links[at], "links-count")
        hops = HOPS.get(kind.lower(), max(size // 2, 1))
        group *= size
        delay = converted(figure(latencies[at], f"{names[3]}[{at}]", may_be_zero=True) * hops, NANOSECOND)
        tiers.append(Tier(kind, group, converted(bandwidth, GIGABYTE), delay, source="ASTRA-sim network file"))
    return tuple(tiers)


def read_ns3(text: str) -> Network:
    """Return the network of an ns-3 topology: ``nodes switches links``, the switches, then ``a b rate delay loss``.

    Raises
    ------
    InvalidProblem
        If the numbers do not match, or a line is no link.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if (
        len(lines) < 2
        or len(lines[0]) != 3
        or not all(re.fullmatch("[0-9]{1,9}", word) for word in lines[0] + lines[1])
    ):
        raise InvalidProblem("line 1", "no ns-3 topology", "begin with the numbers of nodes, switches and links")
    nodes, switches, count = map(int, lines[0])
    named = set(lines[1])
    links = [_ns3_link(words, f"link {at + 1}") for at, words in enumerate(lines[2 : 2 + count])]
    if len(named) != switches or len(links) != count:
        what = f"{len(named)} switches and {len(links)} links, the first line says {switches} and {count}"
        raise InvalidProblem("line 1", what, "was the file cut off? give all of it")
    devices = tuple(str(node) for node in range(nodes) if str(node) not in named)
    return Network(devices, tuple(lines[1]), tuple(links))


def read_htsim(text: str) -> tuple[Tier, ...]:
    """Return the tiers of an htsim topology: a fat tree by radix, speed (Gb/s a link) and latency of each tier.

    A device's part of a tier is what the links up from below it can carry: as many for each device as switches have
    links up for each link down.

    Raises
    ------
    InvalidProblem
        If a key is missing.
    """
    parts = re.split(r"^\s*Tier\s+[0-9]+\s*$", text, flags=re.MULTILINE)
    head, *tiers = (
        {key.lower(): value for key, value in re.findall(r"^\s*(\w+)\s+(\S+)", part, re.M)} for part in parts
    )
    if not tiers:
        raise InvalidProblem("", "no tier", "give Nodes, Tiers, Podsize and a block for each tier")
    groups = [count(_key(*each), each[1]) for each in ((tiers[0], "radix_down"), (head, "podsize"), (head, "nodes"))]
    groups = [*groups[: len(tiers) - 1], groups[-1]]
    found, lanes, delay_ns = [], 1.0, 0.0
    for at, (tier, group) in enumerate(zip(tiers, groups, strict=True)):
        delay_ns += 2 * _key(tier, "downlink_latency_ns")
        speed = converted(lanes * _key(tier, "downlink_speed_gbps"), GIGABIT)
        found.append(Tier(f"tier {at}", group, speed, converted(delay_ns, NANOSECOND), source="htsim topology"))
        if at + 1 < len(tiers):
            lanes *= _key(tier, "radix_up") / _key(tier, "radix_down")
    return tuple(found)


def _ns3_link(words: Sequence[str], where: str) -> Link:
    rate = re.fullmatch(r"([0-9.]+)([KMGT])bps", words[2]) if len(words) >= 4 else None
    delay = re.fullmatch(r"([0-9.]+)(s|ms|us|ns)", words[3]) if len(words) >= 4 else None
    if rate is None or delay is None:
        raise InvalidProblem(where, f"{' '.join(words)!r}", "write 'a b 400Gbps 0.0005ms 0'")
    seconds = converted(figure_of(delay[1], where, may_be_zero=True), LATENCIES[f"latency_{delay[2]}"])
    return Link(words[0], words[1], converted(figure_of(rate[1], where), RATES[rate[2]]), seconds)


def _list(tree: Mapping[str, Any], name: str) -> list[Any]:
    found = tree.get(name)
    if not isinstance(found, list) or not found:
        raise InvalidProblem(name, "missing" if found is None else f"{found!r}", "give a list, one entry a dimension")
    return found


def _key(table: Mapping[str, str], name: str) -> float:
    return figure_of(table.get(name), name, may_be_zero="latency" in name)
