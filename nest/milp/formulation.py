"""The mathematical programme without a solver: index sets and coefficients.

A plan is two *paths* of the same length and an outer choice. The ``q``-th stage from the end of the pipeline takes the
layers ``[first, end)``: an *arc* from the state ``(q - 1, end)`` to the state ``(q, first)``, of one variant; the path
of arcs starts at ``(0, layers)`` and ends at ``(S, 0)``. It takes ``degree`` blocks from ``start`` on: a *place*, from
the node ``(q - 1, start)`` to the node ``(q, start + degree)``; the path of places starts at ``(0, 0)`` and ends at
``(S, stride)``. How a stage shards is an *option*. Where no stage may shard there are neither places nor options. The
*outer choice* is ``(variant, S, d, stride)``. Whatever a rule forbids for one of these by itself is left out of the
index sets; `docs/milp.md` says which rule is kept where.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from nest.milp.fits import Fits
from nest.milp.levels import LoadsAt, loads_by_position, replica_offsets
from nest.milp.nearest import Room
from nest.milp.outer import OuterChoice, SyncClasses, rounds_of
from nest.milp.paths import Arcs, Options, Places, arcs_of, options_of, places_of, reachable
from nest.milp.ranks import RankBound, Ranks
from nest.milp.sights import Indices, Seating, Sight, Sights, Views
from nest.milp.space import Space, VariantSpace
from nest.units import HARD_LIMIT, LONGEST, Ints, distinct

Key = TypeVar("Key", bound=Hashable)

BY_INDEX_SETS: Mapping[str, str] = {
    "replicas": "the outer choices",
    "recompute": "the loads and the memory of the arcs; `plans.plan_of`",
    "block": "`plans.plan_of`",
    "devices": "the outer choices",
    "range": "the domain of the objective",
    "nesting": "nothing: no preset that is covered asks for it",
    "technology": "`nest.technologies`: a programme is of a cluster whose technologies are chosen",
    "schedule": "`plans.plan_of`: the presets that are covered price 1F1B alone",
    "chunks": "`plans.plan_of`: 1F1B has none",
}
"""Rules for which there is nothing to post, and what keeps them."""

SIDE_BY_INDEX_SETS: Mapping[str, str] = {
    "admits": "the outer choices",
    "admits_run": "`fits.Fits`",
    "device_limit": "the outer choices",
    "memory_limit": "`fits.Fits`",
    "reserves": "nothing: no preset that is covered leaves devices idle, and `device_limit` says all",
}
"""The same for what local side constraints say, by their hooks."""


@dataclass(frozen=True, slots=True)
class LoadBound:
    """A lower bound of the largest load: the load of the arc taken at one position.

    Attributes
    ----------
    arcs, loads, least
        Those at the position, their ticks, and the ticks that they take whatever they see.
    choices
        Outer choices under which the loads are these; None where it does not depend on them.
    sight
        Sight under which the loads are these; None where it does not depend on one.
    """

    arcs: Indices
    loads: Indices
    least: Indices
    choices: tuple[int, ...] | None = None
    sight: int | None = None


class Formulation:
    """Index sets and coefficients of a problem's programme.

    Parameters
    ----------
    space
        Of the problem.
    below
        Leave out what is in no plan with a smaller objective, as far as the space sees; None for no limit.

    Attributes
    ----------
    choices
        Outer choices (C1, C4, C5, C10).
    arcs
        Stages by their layers, those that fit their memory in some way (C11) and lie on some path.
    places, options
        Stages by their blocks (C8, C9), and ways to shard them (C7); both empty where no stage may shard.
    """

    def __init__(self, space: Space, below: int | None = None) -> None:
        self.space, self.tables, self.problem, self.below = space, space.tables, space.tables.problem, below
        self.sharded = space.sharded
        self._classes = SyncClasses()
        self._bands = [variant.band for variant in space.variants]
        self._fits = [variant.fits for variant in space.variants]
        self.choices: list[OuterChoice] = []
        parts = [self._variant(at, variant) for at, variant in enumerate(space.variants)]
        names = zip(*parts, strict=True)
        arcs, options, places = ([np.concatenate(columns) for columns in zip(*each, strict=True)] for each in names)
        self.arcs, self.options, self.places = Arcs(*arcs), Options(*options), Places(*places)

    @property
    def size(self) -> tuple[int, ...]:
        """How many outer choices, arcs, options and places there are; below a higher limit there are no fewer."""
        return len(self.choices), len(self.arcs), len(self.options), len(self.places)

    def _variant(self, at: int, variant: VariantSpace) -> tuple[list[Ints], list[Ints], list[Ints]]:
        """Add the outer choices of a variant, and return its arcs, options and places."""
        if not self.sharded:
            masks, none = reachable(variant.fits, sorted(variant.counts)), [np.zeros(0, dtype=np.int64)] * 4
            for stages in _ends(masks):
                self.choices += [self._choice(at, stages, replicas, stages) for replicas in variant.counts[stages]]
            return arcs_of(variant.band, at, masks), none, none
        room = variant.room(self.below)
        self._fits[at], (arcs, options, places) = _both_paths(variant.fits.keeping(room.kept), at, room)
        ended = set(zip(places[1].tolist(), (places[2] + places[3]).tolist(), strict=True))
        closed = set(arcs[1][arcs[2] == 0].tolist())
        for (stages, replicas), (fewest, most) in room.strides.items():
            ends = [stride for stride in range(fewest, most + 1) if stages in closed and (stages, stride) in ended]
            self.choices += [self._choice(at, stages, replicas, stride) for stride in ends]
        return arcs, options, places

    def _choice(self, variant: int, stages: int, replicas: int, stride: int) -> OuterChoice:
        kind = self._classes.of(self.tables.variants[variant], replicas, stride)
        return OuterChoice(variant, stages, replicas, stride, rounds_of(self.problem, stages, replicas), kind)

    @cached_property
    def by_rounds(self) -> dict[int, Indices]:
        """Outer choices by their rounds."""
        return _grouped([choice.rounds for choice in self.choices])

    @cached_property
    def by_class(self) -> dict[int, Indices]:
        """Outer choices by their class of synchronisation."""
        return _grouped([choice.sync_class for choice in self.choices])

    @cached_property
    def by_variant(self) -> dict[int, Indices]:
        """Outer choices by their variant."""
        return _grouped([choice.variant for choice in self.choices])

    @cached_property
    def by_stages(self) -> dict[tuple[int, int], Indices]:
        """Outer choices by their variant and number of stages."""
        return _grouped([(choice.variant, choice.stages) for choice in self.choices])

    @cached_property
    def by_end(self) -> dict[tuple[int, int, int], Indices]:
        """Outer choices by their variant, number of stages and stride."""
        return _grouped([(choice.variant, choice.stages, choice.stride) for choice in self.choices])

    @cached_property
    def by_position(self) -> dict[tuple[int, int], Indices]:
        """Arcs by their variant and position."""
        return _grouped(list(zip(self.arcs.variant.tolist(), self.arcs.position.tolist(), strict=True)))

    @cached_property
    def options_by_position(self) -> dict[tuple[int, int], Indices]:
        """Options by their variant and position."""
        return _grouped(list(zip(self.options.variant.tolist(), self.options.position.tolist(), strict=True)))

    @cached_property
    def places_by_position(self) -> dict[tuple[int, int], Indices]:
        """Places by their variant and position."""
        return _grouped(list(zip(self.places.variant.tolist(), self.places.position.tolist(), strict=True)))

    @cached_property
    def last(self) -> dict[int, Indices]:
        """Arcs of the last stage of the pipeline, by variant: those that leave the start of all paths."""
        return {variant: arcs for (variant, position), arcs in self.by_position.items() if position == 1}

    @cached_property
    def states(self) -> dict[tuple[int, int, int], tuple[Indices, Indices]]:
        """Arcs that enter and that leave each state ``(variant, position, first)`` within the paths."""
        found: dict[tuple[int, int, int], tuple[Indices, Indices]] = {}
        arcs = self.arcs
        keys = zip(arcs.variant.tolist(), arcs.position.tolist(), arcs.first.tolist(), arcs.end.tolist(), strict=True)
        for arc, (variant, position, first, end) in enumerate(keys):
            if first > 0:
                found.setdefault((variant, position, first), ([], []))[0].append(arc)
            if position > 1:
                found.setdefault((variant, position - 1, end), ([], []))[1].append(arc)
        return found

    @cached_property
    def nodes(self) -> dict[tuple[int, int, int], tuple[Indices, Indices]]:
        """Places that enter and that leave each node ``(variant, position, block)`` of the paths."""
        found: dict[tuple[int, int, int], tuple[Indices, Indices]] = {}
        places = self.places
        keys = zip(
            places.variant.tolist(),
            places.position.tolist(),
            places.start.tolist(),
            places.degree.tolist(),
            strict=True,
        )
        for place, (variant, position, start, degree) in enumerate(keys):
            found.setdefault((variant, position, start + degree), ([], []))[0].append(place)
            found.setdefault((variant, position - 1, start), ([], []))[1].append(place)
        return found

    @cached_property
    def closing(self) -> dict[tuple[int, int], Indices]:
        """Arcs of the first stage of the pipeline by variant and number of stages: those that end a path."""
        ends = np.flatnonzero(self.arcs.first == 0)
        keys = zip(self.arcs.variant[ends].tolist(), self.arcs.position[ends].tolist(), strict=True)
        return {key: [int(ends[at]) for at in group] for key, group in _grouped(list(keys)).items()}

    @cached_property
    def widths(self) -> list[tuple[Indices, Indices]]:
        """Options and places of each degree at each position of each variant."""
        options, places = self.options, self.places
        keyed = [
            _grouped(list(zip(each.variant.tolist(), each.position.tolist(), each.degree.tolist(), strict=True)))
            for each in (options, places)
        ]
        return [(keyed[0].get(key, []), keyed[1].get(key, [])) for key in sorted(keyed[0].keys() | keyed[1].keys())]

    @cached_property
    def suits(self) -> dict[tuple[int, int], np.ndarray]:
        """Whether each option suits each arc (C11), by variant and position: a row for each arc there."""
        found = {}
        for (variant, position), options in self.options_by_position.items():
            fits, arcs = self._fits[variant], np.array(self.by_position[variant, position])
            first = self.arcs.first[arcs]
            rows = [fits.shardings.index((int(self.options.zero[at]), int(self.options.degree[at]))) for at in options]
            found[variant, position] = fits.at(position)[rows][:, first, self.arcs.end[arcs] - first - 1].T
        return found

    @cached_property
    def held(self) -> list[tuple[Indices, Indices]]:
        """Sets of options, and the arcs at their position that no other option suits (C11).

        One pair for each set of options that suits some arc, and one of all options with all arcs.
        """
        found = []
        for key, suits in self.suits.items():
            arcs, options = np.array(self.by_position[key]), np.array(self.options_by_position[key])
            for row in np.unique(np.concatenate([suits, np.ones_like(suits[:1])]), axis=0):
                within = ~(suits & ~row).any(axis=1)
                found.append((options[row].tolist(), arcs[within].tolist()))
        return found

    @cached_property
    def _sights(self) -> list[Sights]:
        """What the stages of each variant see, where their places are not known beforehand."""
        seats: dict[tuple[int, int, int], int] = {}
        return [
            Sights(
                Views(
                    self._bands[variant],
                    variant,
                    (self.arcs, self.places, self.options),
                    {position: suits for (at, position), suits in self.suits.items() if at == variant},
                    self._residues(variant),
                    {stages: tuple(choices) for (at, stages), choices in self.by_stages.items() if at == variant},
                ),
                seats,
            )
            for variant in self.by_variant
        ]

    def _residues(self, variant: int) -> dict[int, tuple[int, ...]]:
        """Return the outer choices by where their replicas other than the first start, modulo the period."""
        found: dict[int, list[int]] = {}
        width = self.tables.variants[variant].width
        for at in self.by_variant[variant]:
            choice = self.choices[at]
            for residue in replica_offsets(self.problem, choice.replicas, choice.stride * width).tolist():
                if residue:
                    found.setdefault(residue, []).append(at)
        return {residue: tuple(choices) for residue, choices in found.items()}

    @cached_property
    def sights(self) -> list[Sight]:
        """What makes stages slower than they are at least; empty where no stage may shard."""
        return [sight for sights in self._sights for sight in sights.found] if self.sharded else []

    @cached_property
    def seatings(self) -> list[Seating]:
        """What takes the seats of the sights."""
        return [seating for sights in self._sights for seating in sights.seatings()] if self.sharded else []

    @property
    def seats(self) -> int:
        """How many seats there are."""
        return 1 + max((seating.seat for seating in self.seatings), default=-1)

    @cached_property
    def ranks(self) -> Ranks:
        """What the stage that is waited for may have to synchronise."""
        return Ranks(self.tables, self.arcs, self.options, self.suits)

    @cached_property
    def waited(self) -> list[RankBound]:
        """Bounds of the rank that is waited for (D6), those without a condition first."""
        return self.ranks.bounds()

    @cached_property
    def syncs(self) -> list[Indices]:
        """Ticks of synchronisation (D6) by class and rank."""
        return [self.ranks.ticks(1 << halvings, height) for halvings, height in self._classes.pairs]

    @cached_property
    def loads(self) -> list[LoadBound]:
        """Bounds of the largest load (D5) at every position, those without a condition first."""
        least = np.zeros(len(self.arcs), dtype=np.int64)
        conditional = list(self._by_sight(least) if self.sharded else self._by_choice(least))
        free = [
            LoadBound(arcs.tolist(), least[arcs].tolist(), least[arcs].tolist())
            for arcs in (np.flatnonzero(self.arcs.position == at) for at in distinct(self.arcs.position).tolist())
        ]
        return free + conditional

    def _by_sight(self, least: Ints) -> Iterator[LoadBound]:
        """Write what arcs take at least into ``least``, and yield the bounds of what they see."""
        for sights in self._sights:
            least[list(sights.least)] = list(sights.least.values())
        for at, sight in enumerate(self.sights):
            yield LoadBound(sight.arcs, sight.loads, sight.least, sight=at)

    def _by_choice(self, least: Ints) -> Iterator[LoadBound]:
        """Write what arcs take at least into ``least``, and yield the bounds under outer choices."""
        for variant, band in enumerate(self._bands):
            chosen = {at: self.choices[at] for at in self.by_variant.get(variant, [])}
            keyed = {at: (choice.stages, choice.replicas) for at, choice in chosen.items()}
            for found in loads_by_position(band, self.problem, keyed):
                yield from self._conditional(variant, found, least)

    def _conditional(self, variant: int, found: LoadsAt, least: Ints) -> list[LoadBound]:
        """Write what an arc takes at least into ``least``, and return the bounds under which it takes more."""
        arcs = np.array(self.by_position.get((variant, found.position), []), dtype=np.int64)
        arcs = arcs[(self.arcs.first[arcs] == 0) == found.closing]
        if len(arcs) == 0:
            return []
        first, column = self.arcs.first[arcs], self.arcs.end[arcs] - self.arcs.first[arcs] - 1
        loads = [table[first, column] for table in found.tables]
        least[arcs] = np.minimum.reduce(loads)
        bounds: dict[bytes, tuple[Ints, list[int]]] = {}
        for load, choices in zip(loads, found.choices, strict=True):
            bounds.setdefault(load.tobytes(), (load, []))[1].extend(choices)
        return [
            LoadBound(arcs.tolist(), load.tolist(), least[arcs].tolist(), tuple(sorted(choices)))
            for load, choices in bounds.values()
            if np.any(load != least[arcs])
        ]

    @cached_property
    def _limit(self) -> int:
        """Largest objective that counts: the end of the range (C12), or what is below the limit."""
        return (HARD_LIMIT if self.below is None else self.below) - 1

    @cached_property
    def largest_load(self) -> int:
        """Largest load of any solution."""
        rounds = min((choice.rounds for choice in self.choices), default=1)
        return min(max((max(bound.loads) for bound in self.loads), default=0), LONGEST - 1, self._limit // rounds)

    @cached_property
    def largest_objective(self) -> int:
        """Largest objective of any solution."""
        rounds = max((choice.rounds for choice in self.choices), default=0)
        return min(rounds * self.largest_load + self.largest_sync, self._limit)

    @cached_property
    def largest_sync(self) -> int:
        """Longest synchronisation in any class."""
        return max((max(ticks) for ticks in self.syncs), default=0)

    @cached_property
    def common_tick(self) -> int:
        """Largest number of ticks of which all loads and synchronisations are multiples."""
        loads = (math.gcd(*bound.loads) for bound in self.loads)
        return math.gcd(*loads, *(math.gcd(*ticks) for ticks in self.syncs)) or 1

    @cached_property
    def least_objectives(self) -> Indices:
        """Ticks that each outer choice takes at least, a consequence of what its loads are at least."""
        return [self._least_objective(choice) for choice in self.choices]

    def _least_objective(self, choice: OuterChoice) -> int:
        load = self.space.variants[choice.variant].least_load(choice.stages, choice.replicas)
        return choice.rounds * load + self.syncs[choice.sync_class][0]


def _ends(masks: Sequence[np.ndarray]) -> list[int]:
    """Return the positions at which a path can end."""
    return [position for position, mask in enumerate(masks, start=1) if mask[0].any()]


def _both_paths(fits: Fits, variant: int, room: Room) -> tuple[Fits, tuple[list[Ints], list[Ints], list[Ints]]]:
    """Return the columns of `Arcs`, `Options` and `Places` of one variant, consistent with each other.

    Degrees that no path of places can use at a position are left out until every option has a place.
    """
    most = dict[int, int]()
    for (stages, _), (_, blocks) in room.strides.items():
        most[stages] = max(most.get(stages, 0), blocks)
    while True:
        masks = reachable(fits, sorted(most))
        options = options_of(fits, variant, masks)
        degrees = [set(options[3][options[1] == at].tolist()) for at in range(1, len(masks) + 1)]
        ends = [(stages, block) for stages in _ends(masks) for block in range(most[stages] + 1)]
        places = places_of(variant, degrees, ends, room)
        placed = [set(places[3][places[1] == at].tolist()) for at in range(1, len(masks) + 1)]
        if placed == degrees:
            return fits, (arcs_of(fits.band, variant, masks), options, places)
        fits = fits.with_degrees(placed)


def _grouped(keys: Sequence[Key]) -> dict[Key, Indices]:
    """Return the places at which each key stands."""
    groups: dict[Key, Indices] = {}
    for at, key in enumerate(keys):
        groups.setdefault(key, []).append(at)
    return groups
