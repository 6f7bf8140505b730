"""What the cost model says to a case, and how far off it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean

from nest.runs import Estimate, Given, estimate
from nest.validation.case import Case


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
