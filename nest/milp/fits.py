"""Which ways to shard each stage may take: those that fit its memory (C11), of the allowed types and degrees (C7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nest.problem import Problem
from nest.tables import Band

Bools: TypeAlias = NDArray[np.bool_]

Admitted: TypeAlias = Callable[[int], "Bools | None"]
"""Which stages side constraints admit at a position from the end; None where they leave nothing out."""


def shardings(problem: Problem, width: int) -> list[tuple[int, int]]:
    """Return pairs of ZeRO type and degree that a stage may take (C7), by degree, the fastest types first."""
    plain = [(0, 1)] if 0 in problem.choices.zero else []
    types = sorted(problem.choices.zero - {0})
    return plain + [(zero, degree) for degree in problem.zero_degrees(width) for zero in types]


class Fits:
    """Which ways to shard the stages of a variant may take, by their position from the end.

    Types that cost something and gain nothing are left out: of those of one degree that fit a stage the lowest is the
    fastest, and only type 3 synchronises less, where the preset says so. Stages that side constraints do not admit at a
    position fit in no way.

    Parameters
    ----------
    band
        Tables of the stages.
    admitted
        What side constraints leave.
    fastest_only
        Leave out slower types.

    Attributes
    ----------
    shardings
        Pairs of type and degree.
    """

    def __init__(self, band: Band, admitted: Admitted = lambda _: None, *, fastest_only: bool = True) -> None:
        self.band, self.admitted, self.fastest_only = band, admitted, fastest_only
        self.problem = band.tables.problem
        self.shardings = shardings(self.problem, band.tables.width)
        self._found: dict[int, Bools] = {}

    def at(self, position: int) -> Bools:
        """Return whether each way to shard suits each stage: by way, first layer, and number of layers less one."""
        if position not in self._found:
            found = np.zeros((len(self.shardings), *self.band.valid.shape), dtype=bool)
            for row, (zero, degree) in enumerate(self.shardings):
                found[row] = self.band.most_in_flight(zero, degree) >= position
            admitted = self.admitted(position)
            if admitted is not None:
                found &= admitted
            self._found[position] = self._without_slower(found) if self.fastest_only else found
        return self._found[position]

    def _without_slower(self, found: Bools) -> Bools:
        taken: dict[int, Bools] = {}
        for row, (zero, degree) in enumerate(self.shardings):
            suits = found[row].copy()
            if degree in taken and not (zero == 3 and self.problem.preset.sync_sharded):
                found[row][taken[degree]] = False
            taken[degree] = suits | taken.get(degree, suits)
        return found

    def keeping(self, kept: Mapping[int, Bools]) -> Fits:
        """Return the same with nothing but what is also in ``kept``, by position; nothing where it is not mentioned."""
        fewer = Fits(self.band, self.admitted, fastest_only=self.fastest_only)
        none = np.zeros((len(self.shardings), 1, 1), dtype=bool)
        for position in range(1, self.band.tables.layers + 1):
            fewer._found[position] = np.logical_and(self.at(position), kept.get(position, none))
        return fewer

    def with_degrees(self, degrees: Sequence[Collection[int]]) -> Fits:
        """Return the same with some degrees only, for the stages of the 1st, 2nd, ... position."""
        rows = [np.array([degree in allowed for _, degree in self.shardings]) for allowed in degrees]
        return self.keeping({position: row[:, None, None] for position, row in enumerate(rows, start=1)})

    def any(self, position: int) -> Bools:
        """Return whether any way to shard suits each stage."""
        found: Bools = np.logical_or.reduce(self.at(position), axis=0)
        return found
