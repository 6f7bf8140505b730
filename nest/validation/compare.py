"""What the cost model says to a case, and how far off it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import correlation, mean

from nest.costing import Estimate, estimate_iteration, network_of, placed
from nest.validation.case import Case

FEWEST_RANKED = 3
"""Rows of a section from which an order says something."""


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
    network = placed(network_of(case.hardware), case.setting, case.layout)
    estimate = estimate_iteration(
        case.model, case.hardware.device, case.setting, case.layout, recipe=case.recipe, network=network
    )
    return Comparison(case, estimate)


def summarise(errors: Iterable[float]) -> Summary | None:
    """Return a summary of errors, None if there are none."""
    found = list(errors)
    if not found:
        return None
    return Summary(len(found), mean(map(abs, found)), max(found, key=abs), min(found))


def rank_correlations(comparisons: Iterable[Comparison]) -> dict[str, float]:
    """Return for each section Spearman's correlation of predicted and measured times."""
    sections: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in comparisons:
        if each.case.seconds is not None:
            sections[each.case.section].append((each.case.seconds, each.estimate.iteration_s))
    return {
        name: correlation(_ranks([pair[0] for pair in pairs]), _ranks([pair[1] for pair in pairs]))
        for name, pairs in sections.items()
        if len(pairs) >= FEWEST_RANKED
    }


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the place of each value in ascending order; equal ones share their mean place."""
    ordered = sorted(values)
    return [(ordered.index(value) + len(ordered) - 1 - ordered[::-1].index(value)) / 2 for value in values]
