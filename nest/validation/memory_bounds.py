"""Rows whose memory, or whose running out of it, is no property of what they state: others that ran rule it out.

A predictor of memory adds the parts of a stage, each times a factor, and a reserve, and takes the fullest stage:
weights, gradients, optimizer state, what microbatches keep, what is in use for a moment, what the step takes. Factors
and reserve may be anything from 0 on, but parts that are there for certain (`CERTAIN`) count at least once. What ran
has to fit. Then no predictor says more of a row than the most of a linear program, for which weak duality gives a
bound: of any rows that ran, weighted. One that is below what the row needs proves that none meets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import inf

from nest.runs import StageMemory
from nest.validation.compare import Comparison

LOW = Fraction(2, 100)
"""A prediction may be so far below a measurement."""

CERTAIN = ("weights", "gradients", "optimizer", "activations")
POSSIBLE = ("working", "stepping")

WITNESSES = 8
"""Rows that ran which are weighted in pairs: those that bound a row the most alone."""

STEPS = 32
"""Steps in which the weights of two rows are tried."""

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """The most that any predictor says of a row's memory, if all that ran fits.

    Parameters
    ----------
    witnesses
        Places of the rows that ran which rule more out, one or two, and the stage of each that does.
    weights
        How they are weighted, in parts of 1.
    most, needed
        Bytes that a predictor says at most, and those that it has to.
    """

    witnesses: tuple[tuple[int, int], ...]
    weights: tuple[Fraction, ...]
    most: Fraction | float
    needed: Fraction


def contradicted_memory(comparisons: Sequence[Comparison]) -> dict[int, MemoryBound]:
    """Return the rows whose memory is too low, or which did not run and should, though no predictor does better.

    A row is in it if the rows that ran leave no predictor that reaches `LOW` below its measured memory, or, where it
    ran out of memory, more than there is.
    """
    found = {}
    for place, each in enumerate(comparisons):
        needed = _needed(each)
        if needed is not None and max(stage.total for stage in each.estimate.memory) < needed:
            bound = memory_bound(comparisons, place, needed)
            if bound is not None:
                found[place] = bound
    return found


def _needed(each: Comparison) -> Fraction | None:
    """Return what a prediction is to reach: just more than there is, or nearly what was measured."""
    if each.case.fits is False:
        return Fraction(each.case.hardware.cluster.hbm_bytes + 1)
    if len(each.case.memory_bytes) == 1:
        return each.case.memory_bytes[0] * (1 - LOW)
    return None


def memory_bound(comparisons: Sequence[Comparison], place: int, needed: Fraction) -> MemoryBound | None:
    """Return a bound on what predictors say of a row that proves that none says what is needed, None if none was found.

    Parameters
    ----------
    needed
        Bytes that the row's fullest stage is to take at least.
    """
    row = comparisons[place]
    own = _largest([_vector(stage) for stage in row.estimate.memory])
    ran = [
        (at, stage, vector, Fraction(each.case.hardware.cluster.hbm_bytes))
        for at, each in enumerate(comparisons)
        if each.case.fits and at != place
        for stage, vector in _fullest(each)
    ]
    ran.sort(key=lambda each: max(bound(stage, each[2], each[3]) for stage in own))
    for one, other in combinations_with_replacement(ran[:WITNESSES], 2):
        for weight in _weights(alone=one is other):
            mixed = tuple(weight * a + (1 - weight) * b for a, b in zip(one[2], other[2], strict=True))
            room = weight * one[3] + (1 - weight) * other[3]
            most = max(bound(stage, mixed, room) for stage in own)
            if most < needed:
                witnesses = (one[:2],) if one is other else (one[:2], other[:2])
                return MemoryBound(witnesses, (weight, 1 - weight)[: len(witnesses)], most, needed)
    return None


def bound(parts: Sequence[int], ran: Sequence[int | Fraction], room: Fraction) -> Fraction | float:
    """Return the most that a predictor says of parts, if it leaves what ran within its room.

    Parts that are certain count once; what room is left goes to the factor, or to the reserve, that makes the most of
    it. There is no limit where the row has of a part what the other has none of.
    """
    if any(theirs < 0 or mine > 0 == theirs for mine, theirs in zip(parts, ran, strict=True)):
        return inf
    rates = [Fraction(1), *(Fraction(mine, theirs) for mine, theirs in zip(parts, ran, strict=True) if theirs)]
    return sum(parts[: len(CERTAIN)]) + (room - sum(ran[: len(CERTAIN)])) * max(rates)


def _weights(*, alone: bool) -> Iterator[Fraction]:
    return (Fraction(step, STEPS) for step in ((STEPS,) if alone else range(1, STEPS)))


def _vector(memory: StageMemory) -> Vector:
    return tuple(getattr(memory, name) for name in (*CERTAIN, *POSSIBLE))


def _fullest(each: Comparison) -> list[tuple[int, Vector]]:
    """Return the stages of a row of which no other has as much of every part."""
    vectors = {_vector(memory): at for at, memory in reversed(list(enumerate(each.estimate.memory)))}
    kept = set(_largest(list(vectors)))
    return [(at, vector) for vector, at in vectors.items() if vector in kept]


def _largest(vectors: Sequence[Vector]) -> list[Vector]:
    every = list(dict.fromkeys(vectors))
    return [each for each in every if not any(other != each and _within(each, other) for other in every)]


def _within(small: Vector, large: Vector) -> bool:
    return all(a <= b for a, b in zip(small, large, strict=True))
