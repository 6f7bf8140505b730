"""How the ranks that hold copies of a stage's weights are spread, whole or in groups that share them between them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import Exchanges
from nest.cost.groups import Spread
from nest.graph import Collective
from nest.line import EVERY, Line
from nest.problem import Variant
from nest.tables.spreads import Members, spreads
from nest.units import Ints


class Option(NamedTuple):
    """A way to shard a stage: a ZeRO type, over the ranks of so many neighbouring replicas each; all for type 0."""

    zero: int
    together: int


class Ranks(NamedTuple):
    """Over how many ranks dense weights are spread, and an expert's."""

    dense: int
    expert: int


class Holders(NamedTuple):
    """Where the replicas of a stage are.

    Parameters
    ----------
    place
        Position of the first on the line; where the line has all devices, the same for all that see the same.
    stride, replicas
        Positions from one to the next, and how many there are.
    line
        The devices.
    """

    place: int
    stride: int
    replicas: int
    line: Line = EVERY


class Part(NamedTuple):
    """How those are spread that hold copies of one weight.

    Parameters
    ----------
    within
        Of each group that shares it between its ranks, different ones only.
    across
        Of those that have the same share in different groups, different ones only; none where there is one group.
    """

    within: tuple[Spread, ...]
    across: tuple[Spread, ...]


@dataclass(frozen=True, eq=False)
class Shares:
    """The groups of one option, for dense weights and for an expert's; those that are equal are the same object."""

    ranks: Ranks
    parts: tuple[Part, Part]


class Sharing:
    """Finds the groups of ranks that share weights between them, and remembers them for all variants.

    By rule C13 (nesting) they are spread alike for all ranks of a block, which the first stands for.
    """

    def __init__(self, exchanges: Exchanges) -> None:
        self.exchanges, self.cluster = exchanges, exchanges.cluster
        self._axes: dict[tuple[int, int], Spread] = {}
        self._exposed: dict[tuple[Collective, int, int], float] = {}
        self._found: dict[tuple[Variant, Holders, int, int], Shares] = {}
        self._interned: dict[tuple[Ranks, tuple[Part, Part]], Shares] = {}

    def axis(self, step: int, count: int) -> Spread:
        """Return how a group inside a block is spread, wherever the block stands."""
        key = step, count
        if key not in self._axes:
            self._axes[key] = self.exchanges.spread(step * np.arange(count, dtype=np.int64))
        return self._axes[key]

    def exposed_s(self, collective: Collective, step: int, count: int) -> float:
        """Return what is left of a collective of a group inside a block, see `Exchanges.exposed_s`."""
        key = collective, step, count
        if key not in self._exposed:
            self._exposed[key] = self.exchanges.exposed_s(collective, self.axis(step, count))
        return self._exposed[key]

    def shares(self, variant: Variant, holders: Holders, together: int, inside: int = 1) -> Shares:
        """Return the groups of the replicas of a stage, of so many neighbouring replicas each.

        Parameters
        ----------
        inside
            Between how many times as many devices as its widths make the stage is sharded.
        """
        like = Variant(variant.tensor, variant.expert, variant.context, variant.sequence)
        key = like, holders, together, inside
        if key not in self._found:
            copies = self.exchanges.problem.copies
            dense, expert = (Members.of(like, copies(like, expert=each), inside) for each in (False, True))
            ranks, across = Ranks(together * dense.held, together * expert.held), self._across(holders, together)
            made = {each: Part(self._within(each, holders, together), across) for each in {dense, expert}}
            parts = made[dense], made[expert]
            self._found[key] = self._interned.setdefault((ranks, parts), Shares(ranks, parts))
        return self._found[key]

    def alike(self, places: Ints, stride: int, replicas: int, width: int) -> Ints:
        """Return the places of the first of some replicas, made equal where all replicas see the same.

        Of the smallest group that holds all of them nothing counts but where they are in the groups below, and there
        only by what divides the groups in which several of them are, and the stride.
        """
        levels = self.cluster.spans(places, places + stride * (replicas - 1) + width - 1)
        below = np.array([1, *self.cluster.group_sizes], dtype=np.int64)[levels]
        same = gcd(stride, *(size for size in self.cluster.group_sizes if size > stride))
        found: Ints = places % below // same * same
        return found

    def _within(self, members: Members, holders: Holders, together: int) -> tuple[Spread, ...]:
        """Return how the ranks are spread that share a weight, so many of each replica."""
        place, stride, replicas, line = holders
        starts = self._starts(line, place, stride * together, replicas // together)
        return self._spreads(line, members, starts, stride, together)

    def _across(self, holders: Holders, together: int) -> tuple[Spread, ...]:
        """Return how the ranks are spread that have the same share in different groups."""
        place, stride, replicas, line = holders
        if together == replicas:
            return ()
        starts = self._starts(line, place, stride, together)
        return self._spreads(line, Members(1, 1), starts, stride * together, replicas // together)

    def _starts(self, line: Line, place: int, step: int, count: int) -> Ints:
        """Return where groups start that are a step apart, as far as their places within a period differ."""
        if line.shifts:
            return place + step * np.arange(count, dtype=np.int64)
        starts: Ints = (self.cluster.starts(count, step) + place) % self.cluster.period
        return starts

    def _spreads(self, line: Line, members: Members, starts: Ints, step: int, count: int) -> tuple[Spread, ...]:
        """Return how groups are spread, different ones only; where devices are shifted each is looked at by itself."""
        if not line.shifts and members.times == 1:
            return spreads(self.cluster, members, starts, step, count)
        blocks = line.devices(starts[:, None] + step * np.arange(count, dtype=np.int64))
        return tuple(dict.fromkeys(self.exchanges.spread((row[:, None] + members.places).ravel()) for row in blocks))
