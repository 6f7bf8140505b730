"""What crosses the border of a stage, for many pairs of downsets at a time.

A tensor has units. A downset holds none of them, some, or all. Between a smaller downset and a larger one, the stage in
between holds some but not all of them just if

- the smaller holds none and the larger some, or the smaller some and the larger all, or
- both hold some, and not the same.

The first line is a sum of products of a figure of the smaller and one of the larger downset, so that all pairs at once
are a product of matrices; floats are exact there, since no sum reaches 2^53. The second is rare, and looked up for the
pairs that are still in question.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.downsets import Downsets, bits
from nest.units import Floats, Ints


@dataclass(frozen=True)
class Cuts:
    """Figures of each downset, from which the cuts of pairs follow.

    Parameters
    ----------
    smaller, larger
        The product of a row of one and a row of the other is the first line's part of a cut, in ticks.
    held
        For each tensor that downsets can hold different parts of: a number that names the part, 0 for none and all.
    ticks
        Of these tensors.
    """

    smaller: Floats
    larger: Floats
    held: Ints
    ticks: Ints

    def certain(self, smaller: Ints, larger: Ints) -> Floats:
        """Return what every smaller downset with every larger one pays at least; rows are smaller ones."""
        cut: Floats = self.smaller[smaller] @ self.larger[larger].T
        return cut

    def rest(self, smaller: Ints, larger: Ints) -> Ints:
        """Return what pairs pay on top."""
        one, other = self.held[smaller], self.held[larger]
        ticks: Ints = ((one != other) & (one > 0) & (other > 0)) @ self.ticks
        return ticks


def cuts_of(downsets: Downsets, tensors: tuple[tuple[int, int], ...]) -> Cuts:
    """Return the figures of a family of downsets.

    Parameters
    ----------
    tensors
        Their units as bits, and what they cost in ticks.
    """
    words = bits([units for units, _ in tensors], downsets.units) if tensors else np.zeros((0, 1), np.uint64)
    cost = np.array([ticks for _, ticks in tensors], np.int64)
    count = len(downsets.sets)
    some, full = np.zeros((count, len(tensors))), np.zeros((count, len(tensors)))
    kinds: list[Ints] = []
    split: list[int] = []
    for at, mask in enumerate(words):
        part = downsets.words & mask
        empty, whole = ~part.any(axis=1), (part == mask).all(axis=1)
        partial = ~(empty | whole)
        some[:, at], full[:, at] = partial, whole
        names = _named(part, partial)
        if names.max(initial=0) > 1:
            kinds.append(names)
            split.append(at)
    none = 1 - some - full
    smaller = np.hstack([none * cost, some * cost])
    held = np.stack(kinds, axis=1) if kinds else np.zeros((count, 0), np.int64)
    return Cuts(smaller, np.hstack([some, full]), held, cost[split])


def _named(part: Ints, partial: Ints) -> Ints:
    """Return a number from 1 for each different row where ``partial``, else 0."""
    names = np.zeros(len(part), np.int64)
    chosen = part[partial]
    if len(chosen):
        keys = np.ascontiguousarray(chosen).view(f"V{chosen.itemsize * chosen.shape[1]}").ravel()
        names[partial] = np.unique(keys, return_inverse=True)[1] + 1
    return names
