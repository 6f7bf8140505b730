"""Synchronisation (D6): what the stage that is waited for may have to synchronise, and what says how much it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nest.milp.paths import Arcs, Options
from nest.milp.sights import Indices
from nest.tables import Tables
from nest.units import Ints, distinct


@dataclass(frozen=True, slots=True)
class RankBound:
    """A lower bound of the rank that is waited for: the rank of the arc taken among some.

    Attributes
    ----------
    arcs, ranks, least
        Arcs, their ranks, and their ranks under the best option.
    option
        Option under which the ranks are these; None where they do not depend on one.
    unless
        Options under which they are not.
    """

    arcs: Indices
    ranks: Indices
    least: Indices
    option: int | None = None
    unless: tuple[int, ...] = ()


class Ranks:
    """Bytes that the stage which is waited for may have to synchronise, ascending; a place among them is a rank.

    Parameters
    ----------
    tables
        Of the problem.
    arcs, options
        Of the programme.
    suits
        Whether each option suits each arc, by variant and position: a row for each arc there, in order.
    """

    def __init__(
        self, tables: Tables, arcs: Arcs, options: Options, suits: Mapping[tuple[int, int], np.ndarray]
    ) -> None:
        self.tables, self.arcs, self.options, self.suits = tables, arcs, options, suits
        self.preset = tables.problem.preset
        counting = arcs.parameters if self.preset.sync_all_stages else arcs.parameters[arcs.first == 0]
        self._divides = (options.zero == 3) & self.preset.sync_sharded
        self._kinds: dict[float, tuple[int, int]] = {}
        self._of: dict[tuple[int, int], float] = {}
        for degree in [1, *distinct(options.degree[self._divides]).tolist()]:
            self._measure(distinct(counting), degree)
        self.weights = sorted(self._kinds)
        self._rank = {size: at for at, size in enumerate(self.weights)}

    def __len__(self) -> int:
        return len(self.weights)

    def _measure(self, parameters: Ints, degree: int) -> None:
        """Add the bytes of parameters, in quanta, divided by a degree."""
        sizes = self.tables.variants[0].seconds_of(parameters) / degree
        for size, each in zip(parameters.tolist(), sizes.tolist(), strict=True):
            self._of[size, degree] = each
            self._kinds.setdefault(each, (size, degree))

    def ticks(self, replicas: int, height: int) -> Indices:
        """Return what synchronisation takes, by rank."""
        kinds = np.array([self._kinds[size] for size in self.weights], dtype=np.int64).reshape(-1, 2)
        ticks = np.zeros(len(kinds), dtype=np.int64)
        for degree in distinct(kinds[:, 1]).tolist():
            among = kinds[:, 1] == degree
            ticks[among] = self.tables.variants[0].syncs(kinds[among, 0], replicas, height, degree)
        return ticks.tolist()

    def bounds(self) -> list[RankBound]:
        """Return the bounds of the rank that is waited for, those without a condition first."""
        position = self.arcs.position
        if self.preset.sync_all_stages:
            groups = [np.flatnonzero(position == at) for at in distinct(position).tolist()]
        else:
            groups = [np.flatnonzero(self.arcs.first == 0)]
        free, conditional = list[RankBound](), list[RankBound]()
        for group in groups:
            whole = self._ranks(group, 1)
            least, divided = whole.copy(), self._divided(group)
            for option, among in divided:
                least[among] = np.minimum(least[among], self._ranks(group[among], int(self.options.degree[option])))
            free.append(_bound(group, least, least))
            if divided:
                unless = tuple(option for option, _ in divided)
                conditional.append(_bound(group, whole, least, unless=unless))
            for option, among in divided:
                ranks = self._ranks(group[among], int(self.options.degree[option]))
                if np.any(ranks > least[among]):
                    conditional.append(_bound(group[among], ranks, least[among], option=option))
        return free + conditional

    def _ranks(self, arcs: Ints, degree: int) -> Ints:
        sizes = [self._of[size, degree] for size in self.arcs.parameters[arcs].tolist()]
        return np.array([self._rank[size] for size in sizes], dtype=np.int64)

    def _divided(self, group: Ints) -> list[tuple[int, Ints]]:
        """Return the options that divide what is synchronised, with the arcs of a group that they suit."""
        found = []
        position = set(self.arcs.position[group].tolist())
        for option in np.flatnonzero(self._divides).tolist():
            variant, at = int(self.options.variant[option]), int(self.options.position[option])
            if at in position:
                there = np.flatnonzero((self.arcs.variant[group] == variant) & (self.arcs.position[group] == at))
                found.append((option, there[self._suited(variant, at, option)]))
        return found

    def _suited(self, variant: int, position: int, option: int) -> np.ndarray:
        same = (self.options.variant == variant) & (self.options.position == position)
        column = int(np.flatnonzero(same).tolist().index(option))
        suited: np.ndarray = self.suits[variant, position][:, column]
        return suited


def _bound(
    arcs: Ints, ranks: Ints, least: Ints, *, option: int | None = None, unless: tuple[int, ...] = ()
) -> RankBound:
    return RankBound(arcs.tolist(), ranks.tolist(), least.tolist(), option, unless)
