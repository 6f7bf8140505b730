"""What the checker says about a claim."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from nest.plan import Plan
from nest.presets import Arrangement, ScheduleName
from nest.problem import Variant


class Outcome(StrEnum):
    """What became of a claim; ``UNDECIDED`` where the deadline came first, or side constraints tie stages together."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


class Closed(NamedTuple):
    """An outer choice that was ruled out by closing states; with what else is part of it, schedules where each is.

    Where stages have widths of their own it is of all numbers of them, 0, of one distance of replicas or groups, and of
    the forms of which the first is of this variant.
    """

    variant: Variant
    stages: int
    replicas: int
    arrangement: Arrangement | None = None
    chunks: int = 1
    apart: int = 0
    schedule: ScheduleName | None = None


@dataclass(slots=True)
class Verdict:
    """What the checker found about the claim that no plan takes less than ``value`` ticks.

    Attributes
    ----------
    better
        A legal plan that takes less, where the claim is refuted.
    choices
        How many outer choices there are.
    by_replicas, by_mean, by_memory, by_levels
        How many are ruled out because fewer replicas suffice, by the mean load, by the memory of the first stages, and
        at the nearest levels.
    closed
        Those that are ruled out by closing states. What is in none of these is not settled.
    """

    value: int
    outcome: Outcome = Outcome.UNDECIDED
    better: Plan | None = None
    choices: int = 0
    by_replicas: int = 0
    by_mean: int = 0
    by_memory: int = 0
    by_levels: int = 0
    closed: list[Closed] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the claim is proven."""
        return self.outcome is Outcome.PROVEN

    @property
    def settled(self) -> int:
        """How many outer choices are ruled out."""
        return self.by_replicas + self.by_mean + self.by_memory + self.by_levels + len(self.closed)
