"""What the cost model says to a case, and how far off it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from statistics import correlation, mean

from nest.runs import Estimate, Given, estimate
from nest.validation.case import Case

FEWEST_RANKED = 3
"""Rows of a section from which an order says something."""

DRAWS = 500
"""Sets of measurements that are drawn to see which rank correlation exact predictions would have."""


@dataclass(frozen=True)
class Comparison:
    """A case with its estimate.

    Parameters
    ----------
    case, estimate
        What was measured, and what is predicted.
    """

    case: Case
    estimate: Estimate

    @property
    def time_error(self) -> float | None:
        """Predicted over measured time, less 1."""
        return None if self.case.seconds is None else self.estimate.iteration_s / self.case.seconds - 1

    @property
    def memory_bytes(self) -> tuple[int, ...]:
        """Predicted memory, of each stage or of the fullest, as it was measured."""
        stages = tuple(memory.total for memory in self.estimate.memory)
        return stages if len(self.case.memory_bytes) == len(stages) else (max(stages),)

    @property
    def memory_errors(self) -> tuple[float, ...]:
        """Predicted over measured memory, less 1."""
        if not self.case.memory_bytes:
            return ()
        return tuple(there / here - 1 for there, here in zip(self.memory_bytes, self.case.memory_bytes, strict=True))

    @property
    def fits(self) -> bool:
        """Whether the prediction fits on the device."""
        return self.estimate.peak_bytes <= self.case.hardware.cluster.hbm_bytes


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of several cases, as shares.

    Parameters
    ----------
    count
        Errors.
    mean, worst
        Average of their sizes, and the largest of them with its sign.
    lowest
        The smallest: how far below a measurement the model goes.
    """

    count: int
    mean: float
    worst: float
    lowest: float


def compare(case: Case) -> Comparison:
    """Return what the cost model says to a case."""
    return Comparison(case, estimate(Given(case.model, case.hardware, case.setting, case.layout, case.recipe)))


def summarise(errors: Iterable[float]) -> Summary | None:
    """Return a summary of errors, None if there are none."""
    found = list(errors)
    if not found:
        return None
    return Summary(len(found), mean(map(abs, found)), max(found, key=abs), min(found))


@dataclass(frozen=True, slots=True)
class Order:
    """Whether the rows of a section come in the order of their times.

    Parameters
    ----------
    rows
        How many have a time.
    spread
        The longest time over the shortest, less 1.
    correlation
        Spearman's, of predicted and measured times.
    attainable
        What it would be on average if the predictions were exact, and measurements scattered about them as rows of
        equal layers do about their mean.
    apart, right
        Pairs whose measured times differ by more than what rows of equal layers do among themselves, and those of them
        that are predicted in the measured order.
    """

    rows: int
    spread: float
    correlation: float
    attainable: float
    apart: int
    right: int


def scatter(comparisons: Iterable[Comparison]) -> float:
    """Return by how much measured over predicted times differ at most among rows that run the same layers.

    These have the same width, heads, microbatch, tensor width and software, so that every kernel is the same; they
    differ in the number of layers, stages, replicas and sequences, or not at all. What is left no model of a layer
    explains.
    """
    return max((max(ratios) / min(ratios) - 1 for ratios in _equal(comparisons)), default=0.0)


def _equal(comparisons: Iterable[Comparison]) -> Iterable[list[float]]:
    """Return the predicted over the measured times of rows that run the same layers, a list for each layer."""
    same: dict[object, list[float]] = defaultdict(list)
    for each in comparisons:
        if each.time_error is not None:
            layer = next(block for stack in each.case.model.stacks for block in stack.blocks if block.layer)
            same[each.case.setting, layer].append(1 + each.time_error)
    return same.values()


def _deviations(comparisons: Iterable[Comparison]) -> list[float]:
    """Return by what share rows of equal layers deviate from their mean, as if their mean were known."""
    several = [ratios for ratios in _equal(comparisons) if len(ratios) > 1]
    free = [(len(ratios) / (len(ratios) - 1)) ** 0.5 for ratios in several]
    return [part * (each / mean(ratios) - 1) for part, ratios in zip(free, several, strict=True) for each in ratios]


def orders(comparisons: Sequence[Comparison]) -> dict[str, Order]:
    """Return how well predicted times order the rows of each section."""
    noise, deviations = scatter(comparisons), _deviations(comparisons)
    sections: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in comparisons:
        if each.case.seconds is not None:
            sections[each.case.section].append((each.case.seconds, each.estimate.iteration_s))
    return {name: _order(pairs, noise, deviations) for name, pairs in sections.items() if len(pairs) >= FEWEST_RANKED}


def _order(pairs: Sequence[tuple[float, float]], noise: float, deviations: Sequence[float]) -> Order:
    measured, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    every = combinations(sorted(pairs), 2)
    apart = [(first, second) for first, second in every if second[0] / first[0] - 1 > noise]
    return Order(
        len(pairs),
        max(measured) / min(measured) - 1,
        correlation(_ranks(measured), _ranks(predicted)),
        _attainable(predicted, deviations),
        len(apart),
        sum(second[1] > first[1] for first, second in apart),
    )


def _attainable(exact: Sequence[float], deviations: Sequence[float]) -> float:
    """Return the mean rank correlation of times with themselves after they were measured."""
    if not deviations:
        return 1.0
    rng, ranks = Random(0), _ranks(exact)
    again = ([each * (1 + rng.choice(deviations)) for each in exact] for _ in range(DRAWS))
    return mean(correlation(ranks, _ranks(times)) for times in again)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the place of each value in ascending order; equal ones share their mean place."""
    ordered = sorted(values)
    return [(ordered.index(value) + len(ordered) - 1 - ordered[::-1].index(value)) / 2 for value in values]
