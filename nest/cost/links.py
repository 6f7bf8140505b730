"""What a collective gets out of a network: efficiency and protocols of each kind of link, facts of each level.

Constants are few, and each has a source; `docs/collectives.md` says which published row fixes which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import TypeVar

from nest.cluster import Cluster
from nest.errors import InvalidProblem

SIMPLE = "simple"


class Use(StrEnum):
    """How a collective loads a link; each use reaches its own part of the rated bandwidth."""

    SINGLE = "single"
    STREAM = "stream"
    SCATTER = "scatter"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to move bytes that trades bandwidth for latency.

    Parameters
    ----------
    name
        As NCCL has it: ``ll``, ``ll128``, ``simple``.
    latency_share
        Latency of a step, as a part of that of the level.
    bandwidth_share
        Of what the link reaches with the simple protocol.
    """

    name: str
    latency_share: float = 1.0
    bandwidth_share: float = 1.0


PLAIN = (Protocol(SIMPLE),)


@dataclass(frozen=True, slots=True)
class LinkKind:
    """What collectives reach of the rated bandwidth of one kind of link.

    Parameters
    ----------
    name
        For people to read.
    stream, scatter, reduce
        Part of the rated bandwidth that large messages reach: between few neighbours, as in rings and trees; to all
        others at once; into and out of a switch that adds.
    reduction_s
        What it takes to have switches add, beyond the latency of the way there and back.
    protocols
        Those that the link has.
    single
        The part that a transfer between two devices reaches; 0 for that of `stream`.

    Raises
    ------
    InvalidProblem
        If a part is not above 0 and at most 1, or a time is negative.
    """

    name: str
    stream: float = 1.0
    scatter: float = 1.0
    reduce: float = 1.0
    reduction_s: float = 0.0
    protocols: tuple[Protocol, ...] = PLAIN
    single: float = 0.0

    def __post_init__(self) -> None:
        parts = [*map(self.efficiency, Use), *(each.bandwidth_share for each in self.protocols)]
        if not all(0 < part <= 1 for part in parts):
            raise InvalidProblem(f"link kind {self.name!r}", f"efficiencies {parts}", "give parts above 0, at most 1")
        if self.reduction_s < 0 or any(each.latency_share < 0 for each in self.protocols):
            raise InvalidProblem(f"link kind {self.name!r}", "a negative time", "give 0 or more")

    def efficiency(self, use: Use) -> float:
        """Return the part of the rated bandwidth that a use reaches."""
        single = self.single or self.stream
        return {Use.SINGLE: single, Use.STREAM: self.stream, Use.SCATTER: self.scatter, Use.REDUCE: self.reduce}[use]

    def protocol(self, name: str) -> Protocol | None:
        """Return the protocol of this name, if the link has it."""
        return next((each for each in self.protocols if each.name == name), None)


_ON_NVLINK = (Protocol("ll", 0.6 / 3.4, 0.38), Protocol("ll128", 1.9 / 3.4, 0.92), Protocol(SIMPLE))
_ON_NETWORK = (Protocol("ll", 5 / 14, 0.25), Protocol("ll128", 8.5 / 14, 0.92), Protocol(SIMPLE))
_ON_PCIE = (Protocol("ll", 1 / 5.7, 0.5), Protocol(SIMPLE))

NVLINK = LinkKind("nvlink", 0.82, 0.7, 0.6, 65e-6, _ON_NVLINK)
"""NVLink 2 to 4 (V100 to H200), with NVSwitch where there is one."""

NVLINK5 = LinkKind("nvlink5", 0.775, 0.71, 0.52, 65e-6, _ON_NVLINK)
"""NVLink 5 (B200, GB200)."""

XGMI = LinkKind("xgmi", 0.72, 0.7, protocols=_ON_NVLINK)
"""Infinity Fabric of MI300X."""

PCIE = LinkKind("pcie", 0.75, 0.43, protocols=_ON_PCIE)
"""PCI Express, between devices of a host."""

RDMA = LinkKind("rdma", 0.96, 0.74, 0.96, 31e-6, _ON_NETWORK)
"""InfiniBand and RoCE."""

OMNI_PATH = LinkKind("omni-path", 0.27, 0.27, 0.27, protocols=_ON_NETWORK, single=0.96)
"""Omni-Path under NCCL 2.10: an all-reduce over the 64 devices of 16 nodes ran at 55 Gb/s, 108 by the bus, of 400
(github.com/bigscience-workshop/bigscience, experiments/bandwidth/README.md). Nothing says that single transfers reach
less than over other cards."""

TCP = LinkKind("tcp", 0.8, 0.6, protocols=PLAIN)
"""Ethernet without RDMA."""

ICI = LinkKind("ici", 0.95, 0.95)
"""Interconnect of a TPU pod."""

IDEAL = LinkKind("ideal")
"""Reaches its rated bandwidth always: what textbook formulas take links to be."""

LINK_KINDS = (NVLINK, NVLINK5, XGMI, PCIE, RDMA, OMNI_PATH, TCP, ICI, IDEAL)
"""All kinds we know; levels of a cluster name them."""


@dataclass(frozen=True, slots=True)
class LevelTraits:
    """What collectives need to know of a level beyond its bandwidth and latency.

    Parameters
    ----------
    kind
        Of its links.
    pair_bytes_per_s
        What one pair of devices gets at most, per direction: less than the level's bandwidth where a device has a link
        of its own to each other one.
    group_bytes_per_s
        What a device sends, per direction, when a collective uses all of its links at once, if that is not the level's
        bandwidth: more on a torus, where a single transfer has one link. 0 stands for the level's bandwidth.
    in_network_reduction
        Whether switches of the level can add (SHARP).

    Raises
    ------
    InvalidProblem
        If a bandwidth is out of range.
    """

    kind: LinkKind
    pair_bytes_per_s: float = inf
    group_bytes_per_s: float = 0.0
    in_network_reduction: bool = False

    def __post_init__(self) -> None:
        if not self.pair_bytes_per_s > 0 or not 0 <= self.group_bytes_per_s < inf:
            figures = f"{self.pair_bytes_per_s!r} and {self.group_bytes_per_s!r} bytes/s"
            raise InvalidProblem("level traits", figures, "give a pair more than 0, and a group 0 or more")


ALGORITHMS = (
    "ring",
    "tree",
    "halving-doubling",
    "hierarchical",
    "hierarchical-in-network",
    "in-network",
    "direct",
)
"""All ways to run a collective that are priced."""


@dataclass(frozen=True, slots=True)
class Library:
    """The software that runs collectives.

    Parameters
    ----------
    name
        For people to read.
    algorithms
        What it chooses from, of `ALGORITHMS`.
    launch_s
        What every call takes, whatever its size.
    chain
        Its trees join chains of so many devices of the innermost level; 1 for trees all the way.

    Raises
    ------
    InvalidProblem
        If it has an algorithm that is not priced, or a figure is out of range.
    """

    name: str
    algorithms: tuple[str, ...] = ALGORITHMS
    launch_s: float = 0.0
    chain: int = 1

    def __post_init__(self) -> None:
        unknown = [each for each in self.algorithms if each not in ALGORITHMS]
        if unknown:
            raise InvalidProblem(f"library {self.name!r}", f"algorithm {unknown[0]!r}", f"give some of {ALGORITHMS}")
        if self.launch_s < 0 or self.chain < 1:
            raise InvalidProblem(f"library {self.name!r}", "a negative figure", "give 0 s or more, chains of 1 or more")


NCCL = Library("nccl", ("ring", "tree", "in-network", "direct"), 7e-6, 8)
"""NCCL, and RCCL after it: trees between hosts join chains within them."""

ANY = Library("any")
"""Every algorithm, without overhead."""

LIBRARIES = (NCCL, ANY)
"""All libraries we know; clusters name them."""


@dataclass(frozen=True)
class Network:
    """A cluster as collectives see it.

    Parameters
    ----------
    cluster
        The levels, with bandwidth and latency.
    traits
        One for each level.
    library
        Which algorithms there are.

    Raises
    ------
    InvalidProblem
        If there is not one trait a level, or no protocol that all levels have.
    """

    cluster: Cluster
    traits: tuple[LevelTraits, ...]
    library: Library = NCCL

    def __post_init__(self) -> None:
        levels = len(self.cluster.levels)
        if len(self.traits) != levels:
            raise InvalidProblem("traits", f"{len(self.traits)} traits", f"give {levels}, one a level")
        if any(each.kind.protocol(SIMPLE) is None for each in self.traits):
            raise InvalidProblem("traits", f"a link without protocol {SIMPLE!r}", "give each link that protocol")

    @classmethod
    def of(cls, cluster: Cluster) -> Network:
        """Return the network of a cluster, with the kinds of links and the library that it names.

        Raises
        ------
        InvalidProblem
            If there is no such kind or library.
        """
        traits = []
        for at, level in enumerate(cluster.levels):
            kind = link_kind_named(level.link, f"cluster.levels[{at}].link")
            pair = inf if level.pair_bytes_per_s is None else level.pair_bytes_per_s
            traits.append(LevelTraits(kind, pair, in_network_reduction=level.in_network_reduction))
        return cls(cluster, tuple(traits), library_named(cluster.library, "cluster.library"))

    @cached_property
    def group_bandwidths(self) -> tuple[float, ...]:
        """What a device can send on a path that climbs to each level, as part of a group: bytes/s, as rated."""
        least, bandwidths = inf, []
        for level, traits in zip(self.cluster.levels, self.traits, strict=True):
            least = min(least, traits.group_bytes_per_s or level.bandwidth_bytes_per_s)
            bandwidths.append(least)
        return tuple(bandwidths)


def link_kind_named(name: str, where: str) -> LinkKind:
    """Return the kind of links of this name; raises `InvalidProblem` if there is none."""
    return _named(name, LINK_KINDS, where, "kind of link")


def library_named(name: str, where: str) -> Library:
    """Return the library of this name; raises `InvalidProblem` if there is none."""
    return _named(name, LIBRARIES, where, "library")


Named = TypeVar("Named", LinkKind, Library)


def _named(name: str, known: Sequence[Named], where: str, what: str) -> Named:
    found = next((each for each in known if each.name == name), None)
    if found is None:
        names = [each.name for each in known]
        raise InvalidProblem(where, f"{name!r} is no {what} we know", f"choose one of {', '.join(names)}")
    return found
