"""A network as it is wired: devices, switches, and links with a bandwidth and a latency."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf

from nest.errors import InvalidProblem

MOST_NODES = 4096
"""Devices and switches of a network whose pairs are compared one by one; larger ones have to be trees or tori."""


@dataclass(frozen=True, slots=True)
class Link:
    """A cable, or several side by side: the same bandwidth in both directions.

    Where the directions differ, the slower one is what a link can promise.
    """

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Network:
    """Devices and switches, and the links between them.

    Parameters
    ----------
    devices, switches
        Their names, each once.
    links
        Parallel links add up.
    forwarding
        Whether devices pass on what is not for them, as on a torus; otherwise only switches do.
    name
        For people to read.

    Raises
    ------
    InvalidProblem
        If there is no device, a name is used twice, a link leads nowhere, a figure is out of range, or no path joins
        two devices.
    """

    devices: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    forwarding: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if not self.devices:
            raise InvalidProblem("network.devices", "there is none", "give at least one device")
        if len(self.index) < len(self.devices) + len(self.switches):
            twice = next(name for name in self.index if (self.devices + self.switches).count(name) > 1)
            raise InvalidProblem("network", f"{twice!r} is there twice", "give every device and switch its own name")
        for at, link in enumerate(self.links):
            self._check_link(f"network.links[{at}]", link)
        self._check_connected()

    @cached_property
    def index(self) -> dict[str, int]:
        """Number of each node: devices first, then switches."""
        return {name: at for at, name in enumerate((*self.devices, *self.switches))}

    @cached_property
    def cables(self) -> dict[tuple[int, int], Link]:
        """Links by the numbers of their ends, the smaller first; parallel ones added up, with the longest latency."""
        merged: dict[tuple[int, int], Link] = {}
        for link in self.links:
            low, high = sorted((self.index[link.source], self.index[link.target]))
            other = merged.get((low, high))
            if other is not None:
                bandwidth = other.bandwidth_bytes_per_s + link.bandwidth_bytes_per_s
                link = Link(link.source, link.target, bandwidth, max(other.latency_s, link.latency_s))  # noqa: PLW2901
            merged[low, high] = link
        return merged

    def passes(self, node: int) -> bool:
        """Whether a path may lead through a node."""
        return self.forwarding or node >= len(self.devices)

    def _check_link(self, where: str, link: Link) -> None:
        for name in (link.source, link.target):
            if name not in self.index:
                raise InvalidProblem(where, f"{name!r} is neither device nor switch", "name one that is listed")
        if link.source == link.target:
            raise InvalidProblem(where, f"{link.source!r} is linked to itself", "remove the link")
        if not 0 < link.bandwidth_bytes_per_s < inf or not 0 <= link.latency_s < inf:
            what = f"{link.bandwidth_bytes_per_s!r} bytes/s and {link.latency_s!r} s"
            raise InvalidProblem(where, what, "give bytes/s above 0 and seconds from 0")

    def _check_connected(self) -> None:
        near: dict[int, list[int]] = {}
        for low, high in self.cables:
            near.setdefault(low, []).append(high)
            near.setdefault(high, []).append(low)
        seen, ready = {0}, [0]
        while ready:
            node = ready.pop()
            if node and not self.passes(node):
                continue
            fresh = [other for other in near.get(node, ()) if other not in seen]
            seen.update(fresh)
            ready.extend(fresh)
        lone = next((name for at, name in enumerate(self.devices) if at not in seen), None)
        if lone is not None:
            raise InvalidProblem(
                "network.links",
                f"no path joins {self.devices[0]!r} and {lone!r}",
                "add the links between the parts, or give one part only",
            )


def named(prefix: str, count: int) -> tuple[str, ...]:
    """Return so many names, numbered from 0."""
    return tuple(f"{prefix}{at}" for at in range(count))


def whole(names: Iterable[str], ends: Iterable[tuple[str, str]], bandwidth: float, latency_s: float) -> Network:
    """Return a network of devices that pass on for each other, with equal links."""
    return Network(tuple(names), (), tuple(Link(*pair, bandwidth, latency_s) for pair in ends), forwarding=True)
