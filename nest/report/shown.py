"""What is shown of a plan besides its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nest.alternatives import RunnerUp
from nest.report.throughput import Workload


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown besides a plan and its summary.

    Parameters
    ----------
    work
        What an iteration computes, where that is known.
    details
        Whether tables say what loads and memory consist of.
    runners
        The best plans of other outer choices; None where nobody asked.
    """

    work: Workload | None = None
    details: bool = False
    runners: Sequence[RunnerUp] | None = None


NOTHING_ELSE = Shown()
