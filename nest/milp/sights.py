"""What stages see of the network where their places are not known beforehand, and the loads that follow (C9, D5).

A stage sees the levels of its two boundaries and of its block. They follow from where it starts in each replica, modulo
the largest group below the whole cluster; from its degree; and from the degrees of its two neighbours. Where a replica
other than the first starts a stage is a *seat*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from nest.milp.paths import Arcs, Options, Places
from nest.problem import Problem
from nest.tables import Band
from nest.units import LONGEST, Ints, distinct

Indices: TypeAlias = list[int]

Rectangle: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A class of loads, and the neighbours below and above, by index, with all of which a stage has it."""

NONE: Ints = np.zeros(0, dtype=np.int64)

FAR = np.iinfo(np.int64).max
"""More ticks than any load."""


@dataclass(frozen=True, slots=True)
class Seating:
    """What takes a seat: one of some places in replica 0, under outer choices with a replica at the right distance."""

    places: Indices
    choices: tuple[int, ...]
    seat: int


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a stage sees what it does: a seat or one of some places is taken, and none of what is under ``unless``.

    Attributes
    ----------
    seat
        None where there are places.
    unless, unless_choices
        Options of the stage and its neighbours, and outer choices.
    """

    places: Indices
    seat: int | None
    unless: Indices
    unless_choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sight:
    """Levels that make the arcs of a position take ``loads``, where they take ``least`` at least.

    Several levels are one sight where they make the same loads.
    """

    arcs: Indices
    loads: Indices
    least: Indices
    causes: list[Cause] = field(default_factory=list)


class Network:
    """Levels that the stages of one width see, from any place within a period (C9).

    Parameters
    ----------
    degrees
        That stages may have, ascending.
    """

    def __init__(self, problem: Problem, width: int, degrees: Ints) -> None:
        self.period, self.base = problem.cluster.period, problem.levels
        self.sizes = [size for size in problem.cluster.group_sizes[:-1] if size <= self.period]
        first = problem.preset.boundary == "first"
        low = np.arange(self.period, dtype=np.int64)[:, None, None]
        high, beside = low + degrees[:, None] * width, degrees * width
        self._out = self._span(low - beside, low + 0 * high if first else high - 1)
        self._entry = self._span(low + 0 * beside, high + 0 * beside if first else high + beside - 1)
        self._block = self._span(low, high - 1)

    def _span(self, low: Ints, high: Ints) -> Ints:
        level = np.zeros(np.broadcast(low, high).shape, dtype=np.int64)
        for size in self.sizes:
            level += low // size != high // size
        return level

    def codes(self, devices: Sequence[int], own: int, below: Ints, above: Ints) -> Ints:
        """Return a number for the levels of a stage by its start, and by its neighbours below and above.

        Degrees are given by their index. Without a neighbour nothing is sent, and the level of the boundary is 0.
        """
        at = np.array(devices, dtype=np.int64)
        none = np.zeros((len(at), 1), dtype=np.int64)
        out = self._out[at[:, None], own, below] if len(below) else none
        entry = self._entry[at[:, None], own, above] if len(above) else none
        block: Ints = self._block[at, own, 0][:, None, None]
        return (entry[:, None, :] * self.base + out[:, :, None]) * self.base + block

    def levels(self, code: int) -> tuple[int, int, int]:
        """Return the levels of entry boundary, exit boundary and block."""
        return code // self.base**2, code // self.base % self.base, code % self.base


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the stages of one degree see at one position, by where they start and by their neighbours' degrees.

    Attributes
    ----------
    own
        Index of the degree.
    devices
        Where they start in any replica, modulo the period.
    places
        Places of replica 0 by where they start.
    seated
        Where they may start in other replicas.
    codes
        Numbers of the levels, see `Network.codes`.
    """

    own: int
    devices: list[int]
    places: Mapping[int, Indices]
    seated: frozenset[int]
    codes: Ints


@dataclass(frozen=True, slots=True)
class _Group:
    """Arcs at a position, what they take at least, and the sights of them that are known, by their loads."""

    position: int
    arcs: Ints
    least: Ints
    known: dict[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Views:
    """What sights depend on.

    Attributes
    ----------
    band, variant
        The variant's tables and place.
    columns
        Arcs, places and options of all variants.
    suits
        Whether each option suits each arc, by position: a row for each arc, a column for each option there.
    residues
        Outer choices by where replicas other than the first start, modulo the period.
    ends
        Outer choices by number of stages.
    """

    band: Band
    variant: int
    columns: tuple[Arcs, Places, Options]
    suits: Mapping[int, np.ndarray]
    residues: Mapping[int, tuple[int, ...]]
    ends: Mapping[int, tuple[int, ...]]


class Sights:
    """Sights and seats of one variant.

    Parameters
    ----------
    views
        Of the variant.
    seats
        Numbers of the seats so far, by variant, position and device within the period; more are added.

    Attributes
    ----------
    found
        Sights that make any arc slower than it is at least.
    least
        Ticks that the arcs take at least, whatever they see, by their index.
    """

    def __init__(self, views: Views, seats: dict[tuple[int, int, int], int]) -> None:
        self.views, self.seats = views, seats
        self.band, self.variant, (self.arcs, self.places, self.options) = views.band, views.variant, views.columns
        self._arcs, self._places, self._options = (by_position(each, views.variant) for each in views.columns)
        self.degrees = distinct(self.options.degree[self.options.variant == views.variant])
        self.network = Network(self.band.tables.problem, self.band.tables.width, self.degrees)
        self._device = self.places.start * self.band.tables.width % self.network.period
        self._rings: dict[tuple[int, int], Ints] = {}
        self._known: dict[tuple[bytes, int, int], list[Rectangle]] = {}
        self._index = np.searchsorted(self.degrees, self.options.degree).tolist()
        self._owns = {
            at: distinct(np.array([self._index[each] for each in found.tolist()]))
            for at, found in self._options.items()
        }
        self._others: dict[tuple[int, tuple[int, ...]], Indices] = {}
        self.found: list[Sight] = []
        self.least: dict[int, int] = {}
        for position in sorted(self._arcs):
            self._look(position)

    def _look(self, position: int) -> None:
        """Add the sights at a position, and what its arcs take at least."""
        arcs, options, suits = self._arcs[position], self._options[position], self.views.suits[position]
        seen = {own: self._seen(position, own) for own in self._owns[position].tolist()}
        loads = [self._loads(arcs, option, seen[self._index[option]]) for option in options.tolist()]
        least = np.full(len(arcs), FAR)
        for column, each in enumerate(loads):
            fastest = np.minimum.reduce(list(each.values()))
            least = np.where(suits[:, column], np.minimum(least, fastest), least)
        self.least |= dict(zip(arcs.tolist(), least.tolist(), strict=True))
        group = _Group(position, arcs, least)
        for own, there in seen.items():
            others = [option for option in options.tolist() if self._index[option] != own]
            self._add(group, there, self._walks(arcs, there), others)
        for column, (option, each) in enumerate(zip(options.tolist(), loads, strict=True)):
            if self.options.zero[option] >= 2:
                suited = suits[:, column]
                others = [other for other in options.tolist() if other != option]
                counting = {code: load[suited] for code, load in each.items()}
                self._add(_Group(position, arcs[suited], least[suited]), seen[self._index[option]], counting, others)

    def _seen(self, position: int, own: int) -> _Seen:
        """Return what the stages of a degree see at a position."""
        places = self._places[position]
        places = places[self.places.degree[places] == self.degrees[own]]
        by_device: dict[int, Indices] = {}
        for place in places.tolist():
            by_device.setdefault(int(self._device[place]), []).append(place)
        starts = np.array(list(by_device), dtype=np.int64)
        period = self.network.period
        seated = frozenset(
            device for residue in self.views.residues for device in ((starts + residue) % period).tolist()
        )
        devices = sorted(seated | by_device.keys())
        below, above = (self._owns.get(at, NONE) for at in (position - 1, position + 1))
        return _Seen(own, devices, by_device, seated, self.network.codes(devices, own, below, above))

    def _walks(self, arcs: Ints, seen: _Seen) -> dict[int, Ints]:
        """Return the ticks of both walks of the arcs for all levels."""
        first, walks = self.arcs.first[arcs], dict[int, Ints]()
        column = self.arcs.end[arcs] - first - 1
        for code in distinct(seen.codes).tolist():
            entry, out, _ = self.network.levels(code)
            walks[code] = self.band.forward(entry)[first, column] + self.band.backward(out)[first, column]
        return walks

    def _loads(self, arcs: Ints, option: int, seen: _Seen) -> dict[int, Ints]:
        """Return the loads of the arcs under an option for all levels, up to the end of the range (C12)."""
        first, degree = self.arcs.first[arcs], int(self.options.degree[option])
        column, rings = self.arcs.end[arcs] - first - 1, max(int(self.options.zero[option]) - 1, 0)
        loads = self._walks(arcs, seen)
        if rings:
            for code in loads:
                ring = self._ring(self.network.levels(code)[2], degree)[first, column]
                loads[code] = np.minimum(loads[code] + rings * ring, LONGEST)
        return loads

    def _ring(self, level: int, degree: int) -> Ints:
        """Ticks of one ring over a block that spans a level (D4)."""
        if (level, degree) not in self._rings:
            self._rings[level, degree] = self.band.shard_ring(level, degree)
        return self._rings[level, degree]

    def _add(self, group: _Group, seen: _Seen, loads: Mapping[int, Ints], others: Indices) -> None:
        """Add the sights of the stages of one degree, or of one option.

        Parameters
        ----------
        others
            Options at the position under which the loads are others.
        """
        classes = np.zeros_like(seen.codes)
        for code, load in loads.items():
            if np.any(load > group.least):
                classes[seen.codes == code] = 1 + self._number(group, load)
        at_once: dict[Rectangle, Indices] = {}
        for row, device in enumerate(seen.devices if classes.any() else ()):
            for rectangle in self._rectangles_of(classes[row]):
                at_once.setdefault(rectangle, []).extend(seen.places.get(device, []))
                if device in seen.seated:
                    seat = self.seats.setdefault((self.variant, group.position, device), len(self.seats))
                    self._cause(group.position, rectangle, others, seat)
        own = [option for option in others if self._index[option] == seen.own]
        for rectangle, places in at_once.items():
            if places:
                self._cause(group.position, rectangle, own, None, places)

    def _number(self, group: _Group, load: Ints) -> int:
        """Return the place of the sight with such loads."""
        key = load.tobytes()
        if key not in group.known:
            group.known[key] = len(self.found)
            self.found.append(Sight(group.arcs.tolist(), load.tolist(), group.least.tolist()))
        return group.known[key]

    def _cause(
        self, position: int, rectangle: Rectangle, others: Indices, seat: int | None, places: Sequence[int] = ()
    ) -> None:
        """Add what causes a sight, unless a neighbour is not among those of a rectangle."""
        sight, below, above = rectangle
        unless = others + self._not_among(position - 1, below) + self._not_among(position + 1, above)
        alone = position + 1 in self._owns and 0 not in above
        ends = self.views.ends.get(position, ()) if alone else ()
        self.found[sight].causes.append(Cause(list(places), seat, unless, ends))

    def _rectangles_of(self, classes: Ints) -> list[Rectangle]:
        """Return the sights and with which neighbours they are seen."""
        key = (classes.tobytes(), *classes.shape)
        if key not in self._known:
            self._known[key] = list(_rectangles(classes))
        return self._known[key]

    def _not_among(self, position: int, beside: tuple[int, ...]) -> Indices:
        """Return the options at a position whose degree is none of some, given by their place among those there."""
        if position not in self._owns:
            return []
        if (position, beside) not in self._others:
            kept = set(self._owns[position][list(beside)].tolist())
            options = self._options[position].tolist()
            self._others[position, beside] = [option for option in options if self._index[option] not in kept]
        return self._others[position, beside]

    def seatings(self) -> list[Seating]:
        """Return what takes the seats of the variant."""
        found, period = [], self.network.period
        by_position: dict[int, dict[int, int]] = {}
        for (variant, position, device), seat in self.seats.items():
            if variant == self.variant:
                by_position.setdefault(position, {})[device] = seat
        for position, seats in by_position.items():
            starts: dict[int, Indices] = {}
            for place in self._places[position].tolist():
                starts.setdefault(int(self._device[place]), []).append(place)
            for residue, choices in self.views.residues.items():
                for start, places in starts.items():
                    if (start + residue) % period in seats:
                        found.append(Seating(places, choices, seats[(start + residue) % period]))
        return found


def _rectangles(classes: Ints) -> Iterator[Rectangle]:
    """Yield the classes beyond 0 with the sets of neighbours below (rows) and above (columns) that have them."""
    for each in distinct(classes[classes > 0]).tolist():
        columns: dict[bytes, Indices] = {}
        for above in range(classes.shape[1]):
            columns.setdefault((classes[:, above] == each).tobytes(), []).append(above)
        for pattern, among in columns.items():
            below = np.flatnonzero(np.frombuffer(pattern, dtype=bool))
            if len(below):
                yield each - 1, tuple(below.tolist()), tuple(among)


def by_position(columns: Arcs | Places | Options, variant: int) -> dict[int, Ints]:
    """Return the indices of one variant by position."""
    found = np.flatnonzero(columns.variant == variant)
    position = columns.position[found]
    return {at: found[position == at] for at in distinct(position).tolist()}
