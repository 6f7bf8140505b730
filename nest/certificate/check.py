"""The claim that no plan takes less than a value: put to every outer choice, and what came out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum

from nest.certificate.choices import OuterChoices, TimeUp
from nest.certificate.closure import Question
from nest.cost.scale import scale_of
from nest.plan import Plan
from nest.problem import Problem, Variant
from nest.tables import Tables


class Outcome(StrEnum):
    """What became of a claim; ``UNDECIDED`` where the deadline came first."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Closed:
    """An outer choice that was ruled out by closing its states, and the seconds that it took."""

    variant: Variant
    stages: int
    replicas: int
    wall_s: float


@dataclass(slots=True)
class Verdict:
    """What the checker found about the claim that no plan takes less than ``value`` ticks.

    Attributes
    ----------
    outcome
        Whether the claim is proven.
    better
        A legal plan that takes less, where it is refuted.
    choices
        How many outer choices there are.
    by_replicas, by_mean, by_levels
        How many are ruled out because fewer replicas suffice, by the mean load, and at the nearest levels.
    closed
        Those that are ruled out by closing their states. What is in none of the four is not settled.
    """

    value: int
    outcome: Outcome = Outcome.UNDECIDED
    better: Plan | None = None
    choices: int = 0
    by_replicas: int = 0
    by_mean: int = 0
    by_levels: int = 0
    closed: list[Closed] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the claim is proven."""
        return self.outcome is Outcome.PROVEN

    @property
    def settled(self) -> int:
        """How many outer choices are ruled out."""
        return self.by_replicas + self.by_mean + self.by_levels + len(self.closed)


def check(problem: Problem, value: int, deadline: float | None = None) -> Verdict:
    """Check the claim that no plan of a problem takes less than ``value`` ticks.

    Parameters
    ----------
    deadline
        Reading of `time.perf_counter` from which on the claim is left undecided.

    Returns
    -------
    Verdict
        A proof, a better plan as the judge prices it, or what was settled before the deadline.
    """
    verdict = Verdict(value)
    variants = [OuterChoices(tables, value, deadline) for tables in Tables(problem, scale_of(problem)).variants]
    verdict.choices = sum(len(replicas) for choices in variants for _, replicas in choices)
    try:
        for choices in variants:
            verdict.better = _faster(choices, verdict)
            if verdict.better is not None:
                break
        verdict.outcome = Outcome.PROVEN if verdict.better is None else Outcome.REFUTED
    except TimeUp:
        pass
    return verdict


def _faster(choices: OuterChoices, verdict: Verdict) -> Plan | None:
    """Return a plan that takes less than the value, and write down what was ruled out."""
    for stages, replicas in choices:
        choices.watch()
        fewest = choices.fewest_replicas(stages, replicas)
        loads = choices.loads_left(stages, fewest)
        verdict.by_replicas += len(replicas) - len(fewest)
        verdict.by_mean += len(fewest) - len(loads)
        if loads and choices.fewest_blocks(stages, max(loads.values())) > choices.blocks // min(loads):
            verdict.by_levels += len(loads)
            continue
        for count, load in loads.items():
            choices.watch()
            begin = time.perf_counter()
            blocks = choices.fewest_blocks(stages, load)
            if blocks > choices.blocks // count:
                verdict.by_levels += 1
                continue
            better = Question(choices, stages, count, load, blocks).answer()
            if better is not None:
                return better
            verdict.closed.append(Closed(choices.tables.variant, stages, count, time.perf_counter() - begin))
    return None
