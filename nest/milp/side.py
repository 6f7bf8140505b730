"""Side constraints that look at one stage in its pipeline or in its place, as what cannot be taken together.

What looks at less is kept by the index sets. Of the arcs at one position at most one is taken, and of the places there,
too. So a set of arcs is forbidden in one sum, which outer choices and places with the same set share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nest.constraints import Outer, Run, Site
from nest.milp.formulation import Formulation
from nest.milp.outer import OuterChoice
from nest.units import Ints, distinct

Indices: TypeAlias = list[int]

Sets: TypeAlias = dict[bytes, list[int]]
"""Outer choices by the arcs that they forbid: a truth value for each arc of the position."""

Forbidding: TypeAlias = tuple[bytes, tuple[int, ...]]
"""Forbidden arcs as above, and outer choices under which they are; none where that is under all of them."""


@dataclass(frozen=True, slots=True)
class Clash:
    """Arcs, places and outer choices of which not one of each is taken; a kind that is empty does not matter."""

    arcs: Indices
    places: Indices
    choices: tuple[int, ...]

    @property
    def most(self) -> int:
        """How many of them may be taken: one of each kind but one."""
        return sum(bool(each) for each in (self.arcs, self.places, self.choices)) - 1


def stage_clashes(formulation: Formulation) -> list[Clash]:
    """Return which stages no pipeline of so many has at a position (`admits_stage`)."""
    if not formulation.tables.filters.by_stage:
        return []
    return [clash for key in formulation.by_position for clash in _Stages(formulation, *key).in_pipelines()]


def place_clashes(formulation: Formulation) -> list[Clash]:
    """Return which stages do not stand where, under which outer choices (`admits_place`)."""
    if not formulation.tables.filters.by_place:
        return []
    return [clash for key in formulation.by_position for clash in _Stages(formulation, *key).in_places()]


class _Stages:
    """The stages of one variant at one position."""

    def __init__(self, formulation: Formulation, variant: int, position: int) -> None:
        self.formulation, self.position, self.tables = formulation, position, formulation.tables.variants[variant]
        self.key, self.filters = (variant, position), self.tables.filters
        self.arcs = np.array(formulation.by_position[self.key])
        self.run = Run(formulation.arcs.first[self.arcs], formulation.arcs.end[self.arcs])
        self.choices = [
            (at, formulation.choices[at])
            for at in formulation.by_variant.get(variant, ())
            if formulation.choices[at].stages >= position
        ]

    def in_pipelines(self) -> Iterator[Clash]:
        """Yield the stages that a number of stages forbids."""
        sets: Sets = {}
        for stages in dict.fromkeys(choice.stages for _, choice in self.choices):
            admitted = self.filters.stage(self.tables.variant, stages, self.position, self.run)
            if admitted is not None:
                forbidden = ~admitted & self._possible(stages)
                sets.setdefault(forbidden.tobytes(), []).extend(self.formulation.by_stages[self.key[0], stages])
        yield from self._clashes((key, []) for key in self._forbidding(sets))

    def _possible(self, stages: int) -> np.ndarray:
        """Return which arcs may be taken in a pipeline of so many stages: only its first one begins with layer 0."""
        possible: np.ndarray = (self.run.first == 0) == (self.position == stages)
        return possible

    def in_places(self) -> Iterator[Clash]:
        """Yield the stages that their places forbid."""
        if not self.formulation.sharded:
            sets = self._by_place(np.array([self.position - 1]), 1)[0]
            yield from self._clashes((key, []) for key in self._forbidding(sets))
            return
        places = np.array(self.formulation.places_by_position.get(self.key, []), dtype=np.int64)
        degrees = self.formulation.places.degree[places]
        alike: dict[Forbidding, Indices] = {}
        for degree in distinct(degrees).tolist():
            among = places[degrees == degree]
            found = self._by_place(self.formulation.places.start[among], degree)
            for place, sets in zip(among.tolist(), found, strict=True):
                for key in self._forbidding(sets):
                    alike.setdefault(key, []).append(place)
        yield from self._clashes(alike.items())

    def _by_place(self, blocks: Ints, degree: int) -> list[Sets]:
        """Return the arcs that stages of a degree forbid from each first block on."""
        width, found = self.tables.width, [Sets() for _ in blocks]
        run = Run(self.run.first[None, :], self.run.end[None, :])
        for at, choice in self.choices:
            outer = Outer(self.tables.variant, choice.stages, choice.replicas)
            site = Site(self.position, blocks[:, None] * width, degree * width, choice.stride * width)
            admitted = self.filters.place(outer, run, site)
            if admitted is None:
                continue
            forbidden = ~np.broadcast_to(admitted, (len(blocks), len(self.arcs))) & self._possible(choice.stages)
            for row in np.flatnonzero(self._fitting(choice, blocks, degree)).tolist():
                found[row].setdefault(forbidden[row].tobytes(), []).append(at)
        return found

    def _fitting(self, choice: OuterChoice, blocks: Ints, degree: int) -> np.ndarray:
        """Return from which blocks on a stage fits into a replica with the stages before and after it."""
        before, after = self.position - 1, choice.stages - self.position
        fitting: np.ndarray = (blocks >= before) & (blocks + degree + after <= choice.stride)
        return fitting

    def _forbidding(self, sets: Sets) -> Iterator[Forbidding]:
        """Yield the sets of arcs that are forbidden, each with the outer choices that do so.

        The latter do not matter where none of those under which such arcs are taken allows them.
        """
        for forbidden, choices in sets.items():
            if any(forbidden):
                closing = [self._closes(at) for each in sets.values() for at in each]
                alone = closing.count(self._closes(choices[0])) == len(choices)
                yield forbidden, () if alone else tuple(sorted(choices))

    def _clashes(self, found: Iterable[tuple[Forbidding, Indices]]) -> Iterator[Clash]:
        """Yield forbidden arcs with the places and outer choices that forbid them."""
        for (forbidden, choices), places in found:
            yield Clash(self.arcs[np.frombuffer(forbidden, dtype=bool)].tolist(), places, choices)

    def _closes(self, choice: int) -> bool:
        """Whether the stage is the first of the pipeline under an outer choice."""
        return self.formulation.choices[choice].stages == self.position
