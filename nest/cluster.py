"""The cluster: devices on a line under a tree of network levels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from math import gcd, inf

import numpy as np

from nest.errors import InvalidProblem
from nest.units import Ints, Number

PLAIN_LINK, PLAIN_LIBRARY = "ideal", "any"
"""Kind of links and library of a cluster that names none, as in `nest.cost.links`."""


@dataclass(frozen=True, slots=True)
class Technology:
    """What the links of a level may be: one entry of its menu.

    Parameters
    ----------
    name
        By which plans name it.
    bandwidth_bytes_per_s, latency_s, link, pair_bytes_per_s, in_network_reduction
        Of a level with such links, see `Level`.
    price_per_device
        What it costs for each device of the cluster, in any unit that all menus share.

    Raises
    ------
    InvalidProblem
        If it has no name, or a figure is out of range.
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float
    price_per_device: Number = 0
    link: str = PLAIN_LINK
    pair_bytes_per_s: float | None = None
    in_network_reduction: bool = False

    def __post_init__(self) -> None:
        where = f"technology {self.name!r}"
        if not self.name:
            raise InvalidProblem("technology", "no name", "give one, by which plans name it")
        _check_link(where, self)
        if not 0 <= self.price_per_device < inf:
            raise InvalidProblem(f"{where}.price_per_device", f"{self.price_per_device!r}", "give a number from 0")

    def no_slower(self, other: Technology) -> bool:
        """Whether it is as good as another at least, whatever crosses the level."""
        alike = (self.link, self.in_network_reduction) == (other.link, other.in_network_reduction)
        faster = self.bandwidth_bytes_per_s >= other.bandwidth_bytes_per_s and self.latency_s <= other.latency_s
        return alike and faster and (self.pair_bytes_per_s or inf) >= (other.pair_bytes_per_s or inf)


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
    alternatives
        The menu: what the links may be, where that is to be chosen. The figures of the level are those of one of them;
        `menu` makes such a level.
    """

    fanout: int
    bandwidth_bytes_per_s: float
    latency_s: float
    name: str = ""
    link: str = PLAIN_LINK
    pair_bytes_per_s: float | None = None
    in_network_reduction: bool = False
    alternatives: tuple[Technology, ...] = ()

    @classmethod
    def menu(cls, fanout: int, alternatives: Sequence[Technology], name: str = "") -> Level:
        """Return a level whose links are to be chosen; until then its figures are those of the first technology."""
        first = alternatives[0]
        return cls(fanout, first.bandwidth_bytes_per_s, first.latency_s, name, alternatives=tuple(alternatives)).of(
            first
        )

    def of(self, technology: Technology) -> Level:
        """Return the level with such links."""
        return replace(
            self,
            bandwidth_bytes_per_s=technology.bandwidth_bytes_per_s,
            latency_s=technology.latency_s,
            link=technology.link,
            pair_bytes_per_s=technology.pair_bytes_per_s,
            in_network_reduction=technology.in_network_reduction,
        )

    def widened(self, factor: float) -> Level:
        """Return the level with so many times the bandwidth, and its menu alike."""
        menu = tuple(
            replace(each, bandwidth_bytes_per_s=each.bandwidth_bytes_per_s * factor) for each in self.alternatives
        )
        return replace(self, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * factor, alternatives=menu)

    def named(self, name: str) -> Technology | None:
        """Return the technology of this name on the menu, if there is one."""
        return next((each for each in self.alternatives if each.name == name), None)

    def extreme(self, *, slow: bool) -> Level:
        """Return the level with the worst bandwidth and latency of its menu together, or with the best."""
        if not self.alternatives:
            return self
        speeds = [each.bandwidth_bytes_per_s for each in self.alternatives]
        delays = [each.latency_s for each in self.alternatives]
        speed, delay = (min(speeds), max(delays)) if slow else (max(speeds), min(delays))
        plain = replace(self.of(self.alternatives[0]), alternatives=())
        return replace(plain, bandwidth_bytes_per_s=speed, latency_s=delay)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices of a cluster that are of another class than the rest.

    Parameters
    ----------
    name
        By which the times of layers on them are given.
    ranges
        Which they are: ranges ``[first, end)``, ascending, with others between them.
    hbm_bytes
        Memory of each.
    step_s_per_byte
        Seconds of the optimizer's step on them for each byte of weights whose state a device holds; None for those of
        the training.

    Raises
    ------
    InvalidProblem
        If it has no name or no device, ranges overlap or are out of order, or a figure is out of range.
    """

    name: str
    ranges: tuple[tuple[int, int], ...]
    hbm_bytes: Number
    step_s_per_byte: float | None = None

    def __post_init__(self) -> None:
        where = f"class {self.name!r}"
        if not self.name:
            raise InvalidProblem("class", "no name", "give one, by which the times of layers are given")
        _check_positive(f"{where}.hbm_bytes", self.hbm_bytes)
        ends = [end for each in self.ranges for end in each]
        if not ends or ends[0] < 0 or any(low >= high for low, high in pairwise(ends)):
            shown = ", ".join(f"{first} to {end - 1}" for first, end in self.ranges) or "none"
            remedy = "give ranges of devices, ascending, with others between them"
            raise InvalidProblem(f"{where}.devices", shown, remedy)
        if self.step_s_per_byte is not None and not 0 <= self.step_s_per_byte < inf:
            raise InvalidProblem(f"{where}.step_s_per_byte", f"{self.step_s_per_byte!r}", "give 0 s or more")


MOST_CLASSES = 4
"""Classes of devices that a cluster may have: plans try all their orders."""


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
    technologies
        Names of what the links are at the levels with a menu, innermost first; none until that is chosen.
    own_class
        Name of the class of its devices, where there are others.
    classes
        Those of its devices that are of other classes.

    Raises
    ------
    InvalidProblem
        If a figure is out of range, there are more devices than places under the levels, or fewer although the
        cluster is not partial, a menu and the figures of its level do not go together, or classes of devices have
        one name or one device, are more than `MOST_CLASSES`, or leave no device to the cluster's own.
    """

    devices: int
    hbm_bytes: Number
    levels: tuple[Level, ...]
    name: str = ""
    partial: bool = False
    library: str = PLAIN_LIBRARY
    technologies: tuple[str, ...] = ()
    own_class: str = ""
    classes: tuple[DeviceClass, ...] = ()

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise InvalidProblem("cluster.devices", f"{self.devices} devices", "give at least 1")
        if not self.levels:
            raise InvalidProblem("cluster.levels", "no level", "give at least one, innermost first")
        _check_positive("cluster.hbm_bytes", self.hbm_bytes)
        for at, level in enumerate(self.levels):
            _check_positive(f"cluster.levels[{at}].fanout", level.fanout)
            _check_link(f"cluster.levels[{at}]", level)
            _check_menu(f"cluster.levels[{at}]", level)
        self._check_places()
        self._check_technologies()
        self._check_classes()

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

    @property
    def menus(self) -> tuple[Level, ...]:
        """Levels with a menu, innermost first."""
        return tuple(level for level in self.levels if level.alternatives)

    @property
    def undecided(self) -> bool:
        """Whether it is still to be chosen what the links of some level are."""
        return bool(self.menus) and not self.technologies

    def combinations(self) -> Iterator[tuple[Technology, ...]]:
        """Yield everything that may be chosen: a technology for each level with a menu."""
        return product(*(level.alternatives for level in self.menus))

    def named(self, names: Sequence[str]) -> tuple[Technology, ...] | None:
        """Return the technologies of these names, one for each level with a menu; None where they are not on it."""
        if len(names) != len(self.menus):
            return None
        found = [level.named(name) for level, name in zip(self.menus, names, strict=True)]
        return tuple(each for each in found if each is not None) if None not in found else None

    def price(self, technologies: Sequence[Technology]) -> Fraction:
        """Return what a choice costs: the prices for a device, at all levels, times the devices of the cluster."""
        return self.devices * sum((Fraction(repr(each.price_per_device)) for each in technologies), Fraction(0))

    def built(self, technologies: Sequence[Technology]) -> Cluster:
        """Return the cluster with a choice made."""
        chosen = iter(technologies)
        levels = tuple(level.of(next(chosen)) if level.alternatives else level for level in self.levels)
        return replace(self, levels=levels, technologies=tuple(each.name for each in technologies))

    def corners(self, *, slow: bool) -> tuple[Cluster, ...]:
        """Return clusters one of which is no faster (no slower) than any choice, at the level that decides.

        Each has one technology at one level, and the worst (best) figures of the menus at the others. Which choice was
        made plays no part.
        """
        around = [level.extreme(slow=slow) for level in self.levels]
        return tuple(
            replace(self, levels=(*around[:at], around[at].of(each), *around[at + 1 :]), technologies=())
            for at, level in enumerate(self.levels)
            for each in level.alternatives
        ) or (self,)

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

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of devices, its own first; none where all devices are of one class."""
        return (self.own_class, *(each.name for each in self.classes)) if self.classes else ()

    @cached_property
    def kinds(self) -> Ints:
        """Place in `class_names` of the class of each device."""
        of = np.zeros(self.devices, dtype=np.int64)
        for at, each in enumerate(self.classes, start=1):
            for first, end in each.ranges:
                of[first:end] = at
        return of

    @cached_property
    def _counts(self) -> Ints:
        """How many of the first 0, 1, ... devices are of each class: a row for each."""
        rows = self.kinds == np.arange(len(self.classes) + 1)[:, None]
        return np.concatenate([np.zeros((len(rows), 1), dtype=np.int64), np.cumsum(rows, axis=1)], axis=1)

    def classes_in(self, firsts: Ints, devices: int) -> frozenset[str]:
        """Return the classes of blocks of so many devices, given by their first ones; none where there is one class."""
        return self.classes_of(firsts[None], devices)[0]

    def classes_of(self, firsts: Ints, devices: int) -> list[frozenset[str]]:
        """Return the same for each row of blocks."""
        if not self.classes:
            return [frozenset()] * len(firsts)
        ends = np.minimum(firsts + devices, self.devices)
        there = np.any(self._counts[:, ends] > self._counts[:, np.minimum(firsts, ends)], axis=2)
        known: dict[tuple[bool, ...], frozenset[str]] = {}
        rows = [tuple(row) for row in there.T.tolist()]
        for row in dict.fromkeys(rows):
            known[row] = frozenset(name for name, some in zip(self.class_names, row, strict=True) if some)
        return [known[row] for row in rows]

    def count_of(self, name: str) -> int:
        """Return how many devices are of a class."""
        return int(self._counts[self.class_names.index(name), -1])

    def counts_of(self, devices: Ints) -> tuple[int, ...]:
        """Return how many of some devices are of each class, the cluster's own first."""
        return tuple(np.bincount(self.kinds[devices], minlength=len(self.classes) + 1).tolist())

    def hbm_bytes_of(self, classes: Collection[str]) -> Number:
        """Return the least memory of devices of some classes; none stands for the cluster's own."""
        sizes = {each.name: each.hbm_bytes for each in self.classes} | {self.own_class: self.hbm_bytes}
        return min((size for name, size in sizes.items() if name in classes), default=self.hbm_bytes)

    def step_s_per_byte_of(self, classes: Collection[str], usual: float) -> float:
        """Return the seconds of the optimizer's step for each byte of weights, on the slowest of some classes.

        Parameters
        ----------
        classes
            Names; none for the cluster's own.
        usual
            Seconds on devices that have no figure of their own.
        """
        steps = {each.name: usual if each.step_s_per_byte is None else each.step_s_per_byte for each in self.classes}
        steps[self.own_class] = usual
        return max((step for name, step in steps.items() if name in classes), default=usual)

    def with_memory(self, hbm_bytes: Number) -> Cluster:
        """Return the cluster with so much memory on each device, of whichever class."""
        classes = tuple(replace(each, hbm_bytes=hbm_bytes) for each in self.classes)
        return replace(self, hbm_bytes=hbm_bytes, classes=classes)

    def _check_classes(self) -> None:
        names = [self.own_class, *(each.name for each in self.classes)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidProblem("cluster.classes", f"{twice!r} is there twice", "give each class its own name")
        if self.classes and not self.own_class:
            raise InvalidProblem("cluster.class", "missing", "name the class of all devices that classes do not have")
        if len(names) > MOST_CLASSES:
            raise InvalidProblem("cluster.classes", f"{len(names)} classes", f"give at most {MOST_CLASSES} in all")
        taken = sorted((first, end, each.name) for each in self.classes for first, end in each.ranges)
        for (_, end, one), (first, _, two) in pairwise(taken):
            if first < end:
                what = f"device {first} is of {one!r} and of {two!r}"
                raise InvalidProblem("cluster.classes", what, "give each device one class")
        if taken and max(end for _, end, _ in taken) > self.devices:
            what = f"a class has device {max(end for _, end, _ in taken) - 1}"
            raise InvalidProblem("cluster.classes", what, f"the cluster has devices 0 to {self.devices - 1}")
        if sum(end - first for first, end, _ in taken) == self.devices:
            what = f"no device is left to class {self.own_class!r}"
            raise InvalidProblem("cluster.classes", what, "give the cluster the figures of one of the classes")

    def _check_technologies(self) -> None:
        """Refuse a choice that is not on the menus, or not what the figures of the levels are."""
        if not self.technologies:
            return
        found = self.named(self.technologies)
        if found is None or any(level != level.of(each) for level, each in zip(self.menus, found, strict=True)):
            what = f"{', '.join(self.technologies)} is not what the levels have"
            raise InvalidProblem("cluster.technologies", what, "leave it out, or let Cluster.built make the choice")

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


def _check_link(where: str, links: Level | Technology) -> None:
    """Refuse bandwidths and latencies that are none."""
    _check_positive(f"{where}.bandwidth_bytes_per_s", links.bandwidth_bytes_per_s)
    if not 0 <= links.latency_s < inf:
        raise InvalidProblem(f"{where}.latency_s", f"{links.latency_s!r}", "give 0 s or more")
    if links.pair_bytes_per_s is not None:
        _check_positive(f"{where}.pair_bytes_per_s", links.pair_bytes_per_s)


def _check_menu(where: str, level: Level) -> None:
    """Refuse a menu with a name twice, and one that lacks what the level has."""
    names = [each.name for each in level.alternatives]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidProblem(f"{where}.alternatives", f"{twice!r} is there twice", "give each its own name")
    if names and all(level != level.of(each) for each in level.alternatives):
        remedy = "give it those of one of them, as Level.menu does"
        raise InvalidProblem(f"{where}.alternatives", "the level has the figures of none of them", remedy)


def _check_positive(where: str, value: Number) -> None:
    if not 0 < value < inf:
        raise InvalidProblem(where, f"{value!r}", "give a finite number above 0")
