"""What a transfer between each pair of devices costs on the network as it is wired."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from nest.errors import InvalidProblem
from nest.networks.network import MOST_NODES, Network
from nest.units import Floats

SAME = 1e-9
"""Bandwidths that differ by less than this part of themselves are one class."""


@dataclass(frozen=True, slots=True)
class Pairwise:
    """Bandwidth and latency between devices, when nothing else is on the network.

    Parameters
    ----------
    names
        The devices.
    bandwidth_bytes_per_s
        Square and symmetric, infinite on the diagonal.
    latency_s
        The same, 0 on the diagonal.

    Raises
    ------
    InvalidProblem
        If the shapes do not match, or a figure is out of range.
    """

    names: tuple[str, ...]
    bandwidth_bytes_per_s: Floats
    latency_s: Floats

    def __post_init__(self) -> None:
        shape = (len(self.names), len(self.names))
        if self.bandwidth_bytes_per_s.shape != shape or self.latency_s.shape != shape:
            raise InvalidProblem("pairs", f"matrices for {len(self.names)} devices", f"give {shape[0]} x {shape[1]}")
        if not (self.bandwidth_bytes_per_s > 0).all() or not (self.latency_s >= 0).all():
            raise InvalidProblem("pairs", "a pair without bandwidth", "give bytes/s above 0 and seconds from 0")

    def seconds(self, size_bytes: float) -> Floats:
        """Return how long a message of so many bytes takes between each pair."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s


def pairwise(network: Network) -> Pairwise:
    """Return the cost of every pair along one route each: the widest, of these the one with the least latency.

    Raises
    ------
    InvalidProblem
        If the network is too large to compare every pair.
    """
    nodes = len(network.index)
    if nodes > MOST_NODES:
        raise InvalidProblem(
            "network", f"{nodes} devices and switches", f"give at most {MOST_NODES}, or describe it as a tree or torus"
        )
    direct = np.zeros((nodes, nodes))
    delay = np.full((nodes, nodes), inf)
    for (low, high), link in network.cables.items():
        direct[low, high] = direct[high, low] = link.bandwidth_bytes_per_s
        delay[low, high] = delay[high, low] = link.latency_s
    middle = [node for node in range(nodes) if network.passes(node)]
    width = _widest(direct, middle)
    count = len(network.devices)
    latency_s = _latency(direct, delay, width, middle, count)
    width = width[:count, :count].copy()
    np.fill_diagonal(width, inf)
    np.fill_diagonal(latency_s, 0.0)
    return Pairwise(network.devices, width, latency_s)


def _widest(direct: Floats, middle: list[int]) -> Floats:
    """Return the bandwidth of the widest path between all nodes, through the middle ones (Floyd and Warshall)."""
    width = direct.copy()
    np.fill_diagonal(width, inf)
    for node in middle:
        np.maximum(width, np.minimum(width[:, node, None], width[None, node, :]), out=width)
    return width


def _latency(direct: Floats, delay: Floats, width: Floats, middle: list[int], count: int) -> Floats:
    """Return the least latency of the paths between devices that are as wide as the widest."""
    found = np.full((count, count), inf)
    wanted = width[:count, :count]
    for bandwidth in np.unique(wanted[np.isfinite(wanted)]):
        paths = np.where(direct >= bandwidth * (1 - SAME), delay, inf)
        np.fill_diagonal(paths, 0.0)
        for node in middle:
            np.minimum(paths, paths[:, node, None] + paths[None, node, :], out=paths)
        of_class = wanted == bandwidth
        found[of_class] = paths[:count, :count][of_class]
    return found
