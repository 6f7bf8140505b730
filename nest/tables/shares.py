"""How the ranks that hold copies of a stage's weights are spread, whole or in groups that share them between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import Exchanges, copies_of
from nest.cost.groups import Spread
from nest.line import EVERY, Line
from nest.problem import Variant
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
        Position of the first on the line; within a period of the cluster where the line has all devices.
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
        self._spreads: dict[tuple[tuple[int, ...], Line], Spread] = {}
        self._found: dict[tuple[Variant, Holders, int], Shares] = {}
        self._interned: dict[tuple[Ranks, tuple[Part, Part]], Shares] = {}

    def axis(self, step: int, count: int) -> Spread:
        """Return how a group inside a block is spread, wherever the block stands."""
        return self._spread((0, step, count, 1, 1), EVERY, None, False)

    def shares(self, variant: Variant, holders: Holders, together: int) -> Shares:
        """Return the groups of the replicas of a stage, of so many neighbouring replicas each."""
        like = Variant(variant.tensor, variant.expert, variant.context)
        key = like, holders, together
        if key not in self._found:
            inside = variant.context * variant.expert, variant.context
            ranks = Ranks(together * inside[0], together * inside[1])
            parts = self._part(like, holders, together, False), self._part(like, holders, together, True)
            self._found[key] = self._interned.setdefault((ranks, parts), Shares(ranks, parts))
        return self._found[key]

    def _part(self, variant: Variant, holders: Holders, together: int, expert: bool) -> Part:
        place, stride, replicas, line = holders
        groups = replicas // together
        ranks = variant.context * (1 if expert else variant.expert)
        apart = variant.tensor if ranks > 1 else 1
        within = {
            self._spread((start, stride, together, ranks, apart), line, variant, expert)
            for start in self._starts(line, place, stride * together, groups)
        }
        across = {
            self._spread((start, stride * together, groups, 1, 1), line, None, False)
            for start in (self._starts(line, place, stride, together) if groups > 1 else ())
        }
        return Part(tuple(within), tuple(across))

    def _starts(self, line: Line, place: int, step: int, count: int) -> list[int]:
        """Return where groups start that are a step apart, as far as their places within a period differ."""
        if line.shifts:
            return list(range(place, place + count * step, step))
        starts: list[int] = ((self.cluster.starts(count, step) + place) % self.cluster.period).tolist()
        return starts

    def _spread(
        self, where: tuple[int, int, int, int, int], line: Line, variant: Variant | None, expert: bool
    ) -> Spread:
        key = where, line
        if key not in self._spreads:
            start, step, count = where[:3]
            blocks: Ints = line.devices(start + step * np.arange(count, dtype=np.int64))
            members = blocks if variant is None else copies_of(variant, blocks, expert=expert)
            self._spreads[key] = self.exchanges.spread(members)
        return self._spreads[key]
