"""Where stages of different widths can lie, and which levels they then see.

Positions are counted in blocks of the variant's width. What a stage sees depends on its position modulo a *cycle*
only, because groups below the top level repeat; so the recursion keeps the position modulo the cycle, and the least
number of blocks with which it is reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TypeAlias

import numpy as np

from nest.dp.profile import boundary_levels, dearest, replica_offsets, shifted_spans
from nest.problem import Problem
from nest.units import Ints, distinct

Triple: TypeAlias = tuple[int, int, int]
"""Levels of a stage's entry boundary, exit boundary and own block, in one replica."""


@dataclass(frozen=True)
class Layout:
    """Replicas that repeat after one of several strides which look alike.

    Attributes
    ----------
    offsets
        Where replicas start, within the largest group below the top.
    cycle
        Blocks after which positions look alike.
    ends
        Places within the cycle at which a replica may end, so that the next one starts as assumed.
    budget
        Most blocks of one replica.
    height
        Levels that the replica starts need to share a group, for strides up to the budget.
    """

    problem: Problem
    width: int
    offsets: Ints
    cycle: int
    ends: tuple[int, ...]
    budget: int
    height: int

    @cached_property
    def _places(self) -> Ints:
        return np.arange(self.cycle, dtype=np.int64) * self.width

    def classes(self, degree: int, degrees: tuple[int, ...], *, monotone: bool) -> LevelClasses:
        """Return what a stage of ``degree`` blocks sees beside neighbours of each of ``degrees`` blocks, or none.

        Parameters
        ----------
        monotone
            Nothing gets cheaper from one level to the next; levels that others dominate are then dropped.
        """
        own = degree * self.width
        beside = np.array(degrees, dtype=np.int64)[:, None] * self.width
        low, high = self._places[None, :], self._places[None, :] + own
        block = shifted_spans(self.problem, self.offsets, self._places, self._places + own - 1)
        out = boundary_levels(self.problem, self.offsets, low - beside, low + 0 * beside, own)
        entry = boundary_levels(self.problem, self.offsets, low + 0 * beside, high + 0 * beside, beside)
        none = np.zeros((len(self.offsets), 1, self.cycle), dtype=np.int64)
        out, entry = np.concatenate([out, none], axis=1), np.concatenate([entry, none], axis=1)
        base = self.problem.levels
        codes = (entry[:, None, :, :] * base + out[:, :, None, :]) * base + block[:, None, None, :]
        return LevelClasses.of(codes, base, monotone=monotone)


@dataclass(frozen=True, slots=True)
class LevelClasses:
    """Distinct sets of levels that a stage may see.

    Attributes
    ----------
    triples
        For each class the levels in all replicas.
    which
        Class by index of the exit neighbour's degree, index of the entry neighbour's degree (the last index of both
        is for no neighbour), and place in the cycle.
    """

    triples: list[tuple[Triple, ...]]
    which: Ints

    @classmethod
    def of(cls, codes: Ints, base: int, *, monotone: bool) -> LevelClasses:
        """Group codes ``(entry * base + exit) * base + block`` with one row per replica."""
        flat = np.sort(codes.reshape(len(codes), -1), axis=0)
        columns, which = np.unique(flat, axis=1, return_inverse=True)
        sets = [{(c // base // base, c // base % base, c % base) for c in codes} for codes in columns.T.tolist()]
        seen = [tuple(dearest(found) if monotone else sorted(found)) for found in sets]
        ids = {triples: at for at, triples in enumerate(dict.fromkeys(seen))}
        renamed = np.array([ids[triples] for triples in seen], dtype=np.int64)[which.reshape(-1)]
        return cls(list(ids), renamed.reshape(codes.shape[1:]))


@dataclass(frozen=True, slots=True)
class Apart:
    """Whether side constraints tell strides apart after which replicas start alike, and places that look alike."""

    strides: bool = False
    places: bool = False


def layouts(problem: Problem, width: int, replicas: int, sizes: range, apart: Apart | None = None) -> Iterator[Layout]:
    """Yield every layout of replicas, lowest height first.

    Parameters
    ----------
    sizes
        How many blocks a replica may take.
    apart
        What side constraints tell apart; nothing by default.
    """
    apart = apart or Apart()
    strides = np.array(sizes, dtype=np.int64)
    last = (replicas - 1) * strides * width
    heights = problem.cluster.spans(np.zeros_like(last), last) + 1
    for height in distinct(heights).tolist():
        for offsets, alike in _patterns(problem, width, replicas, strides[heights == height], apart=apart.strides):
            budget = alike[-1]
            longest = budget + 1  # a longer cycle is never completed
            cycle = longest if apart.places else min(_cycle(problem, offsets, width), longest)
            ends = tuple(sorted({stride % cycle for stride in alike}))
            yield Layout(problem, width, offsets, cycle, ends, budget, height)


def _patterns(
    problem: Problem, width: int, replicas: int, strides: Ints, *, apart: bool
) -> list[tuple[Ints, list[int]]]:
    """Group strides (in blocks, ascending) by where their replicas start, or put each ``apart`` from the others."""
    if apart:
        return [(replica_offsets(problem, replicas, each * width), [each]) for each in strides.tolist()]
    if not problem.preset.all_replicas or replicas == 1:
        return [(np.zeros(1, dtype=np.int64), strides.tolist())]
    patterns: dict[bytes, tuple[Ints, list[int]]] = {}
    for stride in strides.tolist():
        offsets = replica_offsets(problem, replicas, stride * width)
        patterns.setdefault(offsets.tobytes(), (offsets, []))[1].append(stride)
    return list(patterns.values())


def _cycle(problem: Problem, offsets: Ints, width: int) -> int:
    """Return the blocks after which positions look alike to all replicas.

    Offsets that are evenly spread over the period are the same after a shift by their distance. Strides that make fewer
    offsets may then end at the same place: their plans see no worse levels than assumed, and are priced as they are.
    """
    period = problem.cluster.period
    step = period // len(offsets)
    even = len(offsets) * step == period and np.array_equal(offsets, np.arange(len(offsets)) * step)
    return step // gcd(step, width) if even else period // gcd(period, width)
