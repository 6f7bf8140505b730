"""The cuts of a graph with branches, which are its downsets, and the stages, which are differences of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest.downsets import Bools, Downsets, TooManyDownsets, Words, all_downsets, bits
from nest.errors import LimitReached
from nest.units import Ints, distinct

MOST_CUTS = 2**14
"""Downsets of a graph, at most: their pairs are looked at."""

MOST_STAGES = 2**20
"""Pairs of downsets that are stages, at most: tables have an entry for each."""

ONE_ORDER = "cut it along one order of its layers only, with --cuts order"


class TooManyStages(LimitReached):
    """A graph with branches can be cut into more stages than there is room for.

    Parameters
    ----------
    what
        How many of what there are, and how many are taken.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"model: {what}; {ONE_ORDER}")


@dataclass(frozen=True, slots=True)
class Differences:
    """Stages as pairs of downsets, of which the larger holds the smaller.

    Parameters
    ----------
    first, end
        Numbers of the smaller and of the larger downset, ascending.
    starts
        Where the stages begin in these arrays that have a downset as the smaller one.
    codes
        What tells each pair from all others, ascending.
    """

    first: Ints
    end: Ints
    starts: Ints
    codes: Ints

    def entries(self, first: Ints, end: Ints) -> Ints:
        """Return where some of these stages are in the arrays."""
        found: Ints = np.searchsorted(self.codes, _code(first, end))
        return found


def _code(first: Ints, end: Ints) -> Ints:
    code: Ints = first * MOST_CUTS + end
    return code


@dataclass(frozen=True)
class Family:
    """All downsets of a graph.

    Parameters
    ----------
    downsets
        By size: the empty one is the first, and the whole graph the last.
    """

    downsets: Downsets

    @classmethod
    def of(cls, before: Sequence[int]) -> Family:
        """Return the downsets of a graph, given the layers right before each as bits.

        Raises
        ------
        TooManyStages
            If there are more than `MOST_CUTS` of them, or more than `MOST_STAGES` pairs.
        """
        try:
            family = cls(all_downsets(before, MOST_CUTS))
        except TooManyDownsets as error:
            raise TooManyStages(str(error)) from None
        family.stages(len(before))
        return family

    @cached_property
    def sizes(self) -> Ints:
        """Layers of each downset."""
        return np.array([each.bit_count() for each in self.downsets.sets], dtype=np.int64)

    @property
    def members(self) -> Bools:
        """Whether a downset holds a layer: a row for each downset."""
        return self.downsets.members

    @cached_property
    def _counts(self) -> Ints:
        return self.members.astype(np.int64)

    def sums(self, values: Ints) -> Ints:
        """Return the sum of a value of layers in each downset."""
        found: Ints = self._counts @ values
        return found

    def stages(self, depth: int) -> Differences:
        """Return the stages of at most so many layers.

        Raises
        ------
        TooManyStages
            If they are more than `MOST_STAGES`.
        """
        words, sizes, found, count = self.downsets.words, self.sizes, list[Ints](), 0
        low, high = (np.searchsorted(sizes, sizes + more, side="right") for more in (0, depth))
        for first in range(len(sizes) - 1):
            held = ~(words[first] & ~words[low[first] : high[first]]).any(axis=1)
            found.append(np.flatnonzero(held) + low[first])
            count += len(found[-1])
            if count > MOST_STAGES:
                what = f"it branches: its {len(sizes)} downsets make more than {MOST_STAGES} stages"
                raise TooManyStages(what)
        lengths = np.array([len(each) for each in found], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        firsts, ends = np.repeat(np.arange(len(found)), lengths), np.concatenate(found)
        return Differences(firsts, ends, starts, _code(firsts, ends))

    def sums_up_to(self, values: Ints) -> Ints:
        """Return the sums of a value of layers up to each place in the order, in each downset: a row for each."""
        sums: Ints = np.cumsum(self._counts * values, axis=1)
        return sums

    @cached_property
    def places_up_to(self) -> Words:
        """Layers up to each place in the order, as bits in words: a row for each place."""
        units = self.downsets.units
        return bits([(2 << place) - 1 for place in range(units)], units)

    @cached_property
    def bit_of(self) -> Words:
        """Each layer as a bit in words: a row for each place."""
        units = self.downsets.units
        return bits([1 << place for place in range(units)], units)

    @cached_property
    def _known(self) -> tuple[list[tuple[Words, Ints]], Ints]:
        """Values of words, and of their codes with those of the words before them; and numbers by the last code."""
        codes, steps = np.zeros(len(self.sizes), dtype=np.int64), []
        for column in self.downsets.words.T:
            values = np.unique(column)
            codes = codes * len(values) + np.searchsorted(values, column)
            steps.append((values, distinct(codes)))
            codes = np.searchsorted(steps[-1][1], codes)
        return steps, np.argsort(codes)

    def numbers(self, words: Words) -> Ints:
        """Return the numbers of some of the downsets, given as bits in words."""
        steps, by_code = self._known
        codes = np.zeros(len(words), dtype=np.int64)
        for column, (values, known) in zip(words.T, steps, strict=True):
            codes = np.searchsorted(known, codes * len(values) + np.searchsorted(values, column))
        found: Ints = by_code[codes]
        return found

    def between(self, first: Ints, end: Ints) -> Words:
        """Return the layers of stages as bits in words, given the downsets before and behind them."""
        words: Words = self.downsets.words[end] ^ self.downsets.words[first]
        return words

    def most(self, words: Words, values: Ints) -> Ints:
        """Return the largest value of a layer in each of some sets; 0 of an empty one. Values are from 0 on."""
        most = np.zeros(len(words), dtype=np.int64)
        for value in distinct(values).tolist():
            (mask,) = bits([sum(1 << at for at in np.flatnonzero(values == value).tolist())], self.downsets.units)
            for column in np.flatnonzero(mask).tolist():
                most[words[:, column] & mask[column] != 0] = value
        return most
