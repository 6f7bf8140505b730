"""The cluster: devices on a line under a tree of network levels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, inf

import numpy as np

from nest.errors import InvalidProblem
from nest.units import Ints, Number

PLAIN_LINK, PLAIN_LIBRARY = "ideal", "any"
"""Kind of links and library of a cluster that names none, as in `nest.cost.links`."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the network, counted from the innermost.

    Parameters
    ----------
    fanout
        How many groups of the level below (devices, for the innermost) one group of this level joins.
    bandwidth_bytes_per_s
        Per device and direction.
    latency_s
        Of one message.
    name
        For people to read.
    link
        Kind of its links, by name: what collectives reach of the bandwidth, and with which protocols. ``ideal`` ones
        reach all of it. `nest.cost.links` has the kinds.
    pair_bytes_per_s
        What one pair of devices gets at most, per direction, where a device has a link of its own to each other one;
        None where a pair has the whole bandwidth.
    in_network_reduction
        Whether collectives let the switches of the level add (SHARP).
    """

    fanout: int
    bandwidth_bytes_per_s: float
    latency_s: float
    name: str = ""
    link: str = PLAIN_LINK
    pair_bytes_per_s: float | None = None
    in_network_reduction: bool = False


@dataclass(frozen=True)
class Cluster:
    """Devices on a line under levels of network.

    Parameters
    ----------
    devices
        How many there are; they take the first places under the levels.
    hbm_bytes
        Memory of each.
    levels
        Innermost first.
    name
        For people to read.
    partial
        Whether the last groups may be incomplete. If not, the fan-outs multiply to the number of devices.
    library
        The software that runs collectives, by name; ``any`` has every algorithm and takes no time to start.
        `nest.cost.links` has the libraries.

    Raises
    ------
    InvalidProblem
        If a figure is out of range, or there are more devices than places under the levels, or fewer although the
        cluster is not partial.
    """

    devices: int
    hbm_bytes: Number
    levels: tuple[Level, ...]
    name: str = ""
    partial: bool = False
    library: str = PLAIN_LIBRARY

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise InvalidProblem("cluster.devices", f"{self.devices} devices", "give at least 1")
        if not self.levels:
            raise InvalidProblem("cluster.levels", "no level", "give at least one, innermost first")
        _check_positive("cluster.hbm_bytes", self.hbm_bytes)
        for at, level in enumerate(self.levels):
            _check_positive(f"cluster.levels[{at}].fanout", level.fanout)
            _check_positive(f"cluster.levels[{at}].bandwidth_bytes_per_s", level.bandwidth_bytes_per_s)
            if not 0 <= level.latency_s < inf:
                raise InvalidProblem(f"cluster.levels[{at}].latency_s", f"{level.latency_s!r}", "give 0 s or more")
            if level.pair_bytes_per_s is not None:
                _check_positive(f"cluster.levels[{at}].pair_bytes_per_s", level.pair_bytes_per_s)
        self._check_places()

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """Devices in one group of each level: ``G_l``, the product of the fan-outs up to ``l``."""
        sizes, size = [], 1
        for level in self.levels:
            size *= level.fanout
            sizes.append(size)
        return tuple(sizes)

    @cached_property
    def path_bandwidths(self) -> tuple[float, ...]:
        """Bandwidth of a path that climbs to each level: the least of the levels it crosses, bytes/s."""
        least, bandwidths = float("inf"), []
        for level in self.levels:
            least = min(least, level.bandwidth_bytes_per_s)
            bandwidths.append(least)
        return tuple(bandwidths)

    @cached_property
    def period(self) -> int:
        """Devices after which places look alike: the largest group below the whole cluster, 1 if there is none.

        Two devices share a group of a level or not by their distance and by the place of one of them within the
        largest such group.
        """
        return max((size for size in self.group_sizes if size < self.devices), default=1)

    def starts(self, replicas: int, stride: int) -> Ints:
        """Return where replicas start within a `period`, once for each such place, in the order of the replicas."""
        different = self.period // gcd(stride, self.period)
        return np.arange(min(replicas, different), dtype=np.int64) * stride % self.period

    def span(self, low: int, high: int) -> int:
        """Return the smallest level at which two devices share a group."""
        for level, size in enumerate(self.group_sizes):
            if low // size == high // size:
                return level
        raise InvalidProblem("plan", f"device {high} is not in a cluster of {self.devices}")

    def spans(self, low: Ints, high: Ints) -> Ints:
        """Return `span` for arrays of devices."""
        level = np.zeros(np.broadcast(low, high).shape, dtype=np.int64)
        for size in self.group_sizes[:-1]:
            level += low // size != high // size
        return level

    def _check_places(self) -> None:
        places = self.group_sizes[-1]
        if places == self.devices or (self.partial and places > self.devices):
            return
        fanouts = " x ".join(str(level.fanout) for level in self.levels)
        remedy = f"make their product {'at least ' if self.partial else ''}the number of devices"
        if places > self.devices:
            remedy += ", or give partial = true if the last groups are incomplete"
        raise InvalidProblem(
            "cluster.levels", f"fan-outs {fanouts} make {places} places for {self.devices} devices", remedy
        )


def _check_positive(where: str, value: Number) -> None:
    if not 0 < value < inf:
        raise InvalidProblem(where, f"{value!r}", "give a finite number above 0")
