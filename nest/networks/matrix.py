"""Tables of links between the devices of one host, as `nvidia-smi topo -m` and `rocm-smi --showtopo` print them.

`NV18` counts links, not bandwidth: eighteen NVLinks of the device, 25 GB/s each in one direction on an H100. The other
labels say how far a path over PCIe goes: PIX and PXB stay below one host bridge, PHB crosses it, NODE crosses several
of a NUMA node, SYS (SOC in old drivers) the link between sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from nest.errors import InvalidProblem
from nest.hardware import Device
from nest.hardware.systems import NVLINK_S, PCIE_S
from nest.networks.pairwise import Pairwise

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
LABEL = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
COLUMN = re.compile(r"GPU[0-9]{1,3}|NIC[0-9]{1,3}|(?:mlx|bnxt|irdma|rdma|efa|ib|roce|hfi)[A-Za-z0-9_]+")
PCIE_LABELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first."""

SOCKETS_BYTES_PER_S = 10e9
"""Between two sockets: what NCCL assumes of Intel's UPI (`src/graph/topo.h`, SKL_QPI_BW), lower than most have."""

PAIR = 2
"""Devices without which there is nothing to compare."""


@dataclass(frozen=True)
class HostTable:
    """Links between the devices of a host.

    Parameters
    ----------
    gpus
        Names of the devices.
    labels
        For each pair of places, the smaller first, its label: ``NV`` or ``XGMI`` and a number of links, or one of PCIe.
    nics
        Names of network cards, as columns have them.
    nic_labels
        For each pair of device and card, the label.
    legend
        What the cards are called otherwise.
    """

    gpus: tuple[str, ...]
    labels: Mapping[tuple[int, int], str]
    nics: tuple[str, ...] = ()
    nic_labels: Mapping[tuple[int, int], str] = field(default_factory=dict)
    legend: Mapping[str, str] = field(default_factory=dict)

    def pairs(self, device: Device) -> Pairwise:
        """Return bandwidth and latency of each pair.

        Parameters
        ----------
        device
            Of what kind they are: bandwidth of its links and of its PCIe.

        Raises
        ------
        InvalidProblem
            If the device has no link of a kind that the table mentions.
        """
        count = len(self.gpus)
        bandwidth, latency_s = np.full((count, count), inf), np.zeros((count, count))
        for (one, other), label in self.labels.items():
            rate, delay = _figures(label, device)
            bandwidth[one, other] = bandwidth[other, one] = rate
            latency_s[one, other] = latency_s[other, one] = delay
        return Pairwise(self.gpus, bandwidth, latency_s)


def read_nvidia_smi(text: str) -> HostTable:
    """Return the table that `nvidia-smi topo -m` printed.

    Where the two halves of the table differ, the slower label counts; a row that was cut off is taken from the columns.

    Raises
    ------
    InvalidProblem
        If there is no table, or a pair of devices is in neither half.
    """
    lines = [ANSI.sub("", line).split() for line in text.splitlines()]
    start, columns = _header(lines)
    cells: dict[tuple[str, str], str] = {}
    for words in lines[start + 1 :]:
        if words and words[0] in columns:
            for column, word in zip(columns, words[1:], strict=False):
                if not LABEL.fullmatch(word):
                    break  # fewer cells than columns: what follows are CPU affinities
                cells[words[0], column] = "SYS" if word == "SOC" else word
    gpus = tuple(name for name in columns if name.startswith("GPU"))
    nics = tuple(name for name in columns if not name.startswith("GPU"))
    labels = {(one, other): _label(cells, gpus[one], gpus[other]) for other in range(len(gpus)) for one in range(other)}
    nic_labels = {
        (at, to): _label(cells, gpu, nic)
        for at, gpu in enumerate(gpus)
        for to, nic in enumerate(nics)
        if (gpu, nic) in cells or (nic, gpu) in cells
    }
    legend = dict(re.findall(r"^\s*(NIC[0-9]+):\s*(\S+)", text, re.MULTILINE))
    return HostTable(gpus, labels, nics, nic_labels, legend)


def read_rocm_smi(text: str) -> HostTable:
    """Return the table that `rocm-smi --showtopo` printed: the kind of each link; hops and weights say no more.

    Raises
    ------
    InvalidProblem
        If there is no table of link types, or a pair is missing.
    """
    _, found, rest = text.partition("Link Type between two GPUs")
    lines = [line.split() for line in rest.splitlines()]
    start = next((at for at, words in enumerate(lines) if words and words[0] == "GPU0"), None)
    if not found or start is None:
        raise InvalidProblem("", "no table of link types", "give the output of rocm-smi --showtopo")
    gpus = tuple(lines[start])
    cells = {
        (words[0], gpu): {"XGMI": "XGMI1", "PCIE": "SYS"}.get(word.upper(), word)
        for words in lines[start + 1 :]
        if words and words[0] in gpus
        for gpu, word in zip(gpus, words[1:], strict=False)
    }
    labels = {(one, other): _label(cells, gpus[one], gpus[other]) for other in range(len(gpus)) for one in range(other)}
    return HostTable(gpus, labels)


def _header(lines: Sequence[Sequence[str]]) -> tuple[int, list[str]]:
    """Return where the header is, and its columns."""
    for at, words in enumerate(lines):
        if words and words[0] == "GPU0" and not (len(words) > 1 and LABEL.fullmatch(words[1])):
            columns = []
            for word in words:
                if not COLUMN.fullmatch(word):
                    break
                columns.append(word)
            if sum(name.startswith("GPU") for name in columns) >= PAIR:
                return at, columns
            raise InvalidProblem("", "a table of one device", "a single device needs no network")
    raise InvalidProblem(
        "", "no table of links", "give the output of nvidia-smi topo -m, its header with GPU0 included"
    )


def _label(cells: Mapping[tuple[str, str], str], one: str, other: str) -> str:
    """Return the label of a pair, the slower where the halves of the table differ."""
    found = [cells[pair] for pair in ((one, other), (other, one)) if pair in cells]
    if not found:
        raise InvalidProblem(f"{one}, {other}", "the table has no cell for this pair", "was it cut off? give all of it")
    return max(found, key=_rank)


def _rank(label: str) -> tuple[int, int]:
    """Return how far apart a label puts two devices: fewer links is farther, PCIe farther than any links."""
    links = re.fullmatch(r"(?:NV|XGMI)([0-9]+)", label)
    if links:
        return 0, -int(links[1])
    return 1, PCIE_LABELS.index(label) if label in PCIE_LABELS else len(PCIE_LABELS)


def _figures(label: str, device: Device) -> tuple[float, float]:
    """Return bandwidth and latency of a pair with this label."""
    links = re.fullmatch(r"(?:NV|XGMI)([0-9]+)", label)
    if links:
        if not device.link_bytes_per_s:
            raise InvalidProblem(
                "device", f"the table has {label}, and {device.name} has no such links", "name another"
            )
        return int(links[1]) * device.link_bytes_per_s, NVLINK_S
    if label not in PCIE_LABELS:
        raise InvalidProblem("", f"unknown label {label!r}", f"known are NV#, XGMI, {', '.join(PCIE_LABELS)}")
    if not device.pcie_bytes_per_s:
        raise InvalidProblem("device", f"no bandwidth of PCIe for {device.name}", "give pcie_bytes_per_s")
    far = min(device.pcie_bytes_per_s, SOCKETS_BYTES_PER_S)
    return (far if label == "SYS" else device.pcie_bytes_per_s), PCIE_S
