"""A cluster with its devices: what a description of hardware, named or read, comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, prod

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.hardware.device import Device
from nest.units import Floats


@dataclass(frozen=True, slots=True)
class LevelFacts:
    """What is known of a level beyond what a transfer across it costs.

    Parameters
    ----------
    oversubscription
        By how much the bandwidth of the links exceeds that of the level, because devices share the way up.
    pair_bytes_per_s
        What one pair of devices gets when all others are idle, per direction: less than the level's bandwidth where a
        device reaches each other one by a link of its own, more where the way is oversubscribed.
    in_network_reduction
        Whether switches of the level can add (SHARP).
    source
        Where the figures are from.
    link
        Kind of its links, by name; empty where the level's name tells it (`nest.hardware.links`).
    """

    oversubscription: float = 1.0
    pair_bytes_per_s: float = inf
    in_network_reduction: bool = False
    source: str = ""
    link: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Pairs:
    """What a message between each two places on the line costs, alone on the network.

    Parameters
    ----------
    bandwidth_bytes_per_s, latency_s
        Square; infinite and 0 on the diagonal.
    """

    bandwidth_bytes_per_s: Floats
    latency_s: Floats


@dataclass(frozen=True)
class Hardware:
    """Devices of one kind, or of a few classes, on a levelled network.

    Parameters
    ----------
    device
        Its figures; ``cluster.hbm_bytes`` is its memory.
    cluster
        The levels; oversubscription is part of their bandwidth.
    facts
        One for each level.
    order
        Name of the device at each place on the line; empty where devices have no names.
    notes
        What the levels do not say, for people to read.
    pairs
        What every pair of places costs, where the network was a graph or a table of pairs.
    others
        What the devices are of each further class of the cluster, in its order.
    software
        As of a `System`.

    Raises
    ------
    InvalidProblem
        If there is not one fact a level, not one name a device, or not one device a further class.
    """

    device: Device
    cluster: Cluster
    facts: tuple[LevelFacts, ...]
    order: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pairs: Pairs | None = field(default=None, compare=False, repr=False)
    others: tuple[Device, ...] = ()
    software: str = ""

    def __post_init__(self) -> None:
        if len(self.others) != len(self.cluster.classes):
            what = f"{len(self.others)} further devices"
            raise InvalidProblem("cluster", what, f"give {len(self.cluster.classes)}, one for each further class")
        if len(self.facts) != len(self.cluster.levels):
            raise InvalidProblem("cluster", f"{len(self.facts)} facts", f"give {len(self.cluster.levels)}, one a level")
        if self.order and len(self.order) != self.cluster.devices:
            raise InvalidProblem("cluster", f"{len(self.order)} names", f"give {self.cluster.devices}, one a device")

    def peaks(self, dtype: str) -> tuple[float, ...]:
        """Return the peak rate of a device of each class for a data type in FLOP/s, the cluster's own first.

        Raises
        ------
        InvalidProblem
            If there is no such data type, or some device does not compute with it.
        """
        return tuple(device.peak(dtype) for device in (self.device, *self.others))

    def require_one_class(self, what: str) -> None:
        """Raise `InvalidProblem` where there are several classes of devices, saying what takes one only."""
        if self.others:
            names = ", ".join(self.cluster.class_names)
            raise InvalidProblem(
                "cluster", f"devices of several classes, {names}", f"{what} takes devices of one class"
            )


@dataclass(frozen=True, slots=True)
class Tier:
    """A kind of link, before the number of devices is known.

    Parameters
    ----------
    name
        For people to read.
    group
        Devices under one full group; 0 where it takes all there are.
    link_bytes_per_s
        Bandwidth of one device in one direction, not oversubscribed.
    latency_s
        Of one message.
    oversubscription
        The level's bandwidth is that of the links divided by this.
    pair_bytes_per_s, in_network_reduction, source, link
        As in `LevelFacts`; a pair has the whole link unless said otherwise.

    Raises
    ------
    InvalidProblem
        If a figure is out of range.
    """

    name: str
    group: int
    link_bytes_per_s: float
    latency_s: float
    oversubscription: float = 1.0
    pair_bytes_per_s: float = 0.0
    in_network_reduction: bool = False
    source: str = ""
    link: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.link_bytes_per_s < inf or not 0 <= self.latency_s < inf or not 1 <= self.oversubscription < inf:
            what = f"{self.link_bytes_per_s!r} bytes/s, {self.latency_s!r} s, oversubscribed {self.oversubscription!r}"
            raise InvalidProblem(f"tier {self.name!r}", what, "give bytes/s above 0, seconds from 0, a factor from 1")

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of a device in one direction when all use the level at once."""
        return self.link_bytes_per_s / self.oversubscription

    @property
    def facts(self) -> LevelFacts:
        """What the level itself does not hold."""
        pair = self.pair_bytes_per_s or self.link_bytes_per_s
        return LevelFacts(self.oversubscription, pair, self.in_network_reduction, self.source, self.link)

    def level(self, fanout: int, name: str = "") -> Level:
        """Return the level that joins so many groups, under its own name unless another is given."""
        return Level(fanout, self.bandwidth_bytes_per_s, self.latency_s, name or self.name)


def stack(tiers: Sequence[Tier], devices: int) -> tuple[tuple[Level, ...], tuple[LevelFacts, ...], bool]:
    """Return the levels that so many devices fill, with their facts, and whether the last groups are incomplete.

    Levels above the one that holds all devices are left out; the topmost is only as wide as it needs to be.

    Raises
    ------
    InvalidProblem
        If the tiers hold fewer devices.
    """
    levels: list[Level] = []
    facts: list[LevelFacts] = []
    size = 1
    for tier in tiers:
        group = tier.group or devices
        if size >= devices and levels:
            break
        fanout = -(-min(group, devices) // size)
        if tier.group % size:
            raise InvalidProblem(
                "cluster", f"groups of {group} above groups of {size}", "let each size divide the next"
            )
        levels.append(tier.level(fanout))
        facts.append(tier.facts)
        size *= fanout
    if size < devices:
        raise InvalidProblem("cluster", f"{devices} devices", f"give at most {size}")
    return tuple(levels), tuple(facts), prod(level.fanout for level in levels) != devices
