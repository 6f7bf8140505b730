"""Searches under a limit on devices or memory, and the least limit under which a plan is fast enough."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import inf, nextafter
from typing import Protocol

from nest.constraints import Constraint, MaxDevices
from nest.cost.scale import Scale
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.objectives.claim import MemoryAtMost
from nest.objectives.sizes import sizes_between
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Report, Result, Status
from nest.units import Number, bytes_of, quanta


class Search(Protocol):
    """Finds the best plan of a problem: `nest.solve.solve`, or a search that keeps more in view."""

    def __call__(
        self, problem: Problem, *, time_limit_s: float | None, report: Report | None, better_than: int | None
    ) -> Result:
        """Return what is found, as `nest.solve.solve` does."""


@dataclass(frozen=True)
class Clock:
    """Runs the searches of one answer, within the time that they have together.

    Parameters
    ----------
    time_limit_s
        For all of them; None for no limit.
    report
        Called with the progress of each.
    search
        Finds the best plan of a problem, as `nest.solve.solve` does.
    """

    time_limit_s: float | None
    report: Report | None
    search: Search
    begin: float = field(default_factory=time.perf_counter)

    @property
    def passed_s(self) -> float:
        """Seconds since the first search began."""
        return time.perf_counter() - self.begin

    def solve(self, problem: Problem, better_than: int | None = None) -> Result:
        """Solve a problem in the time that is left."""
        left = None if self.time_limit_s is None else max(self.time_limit_s - self.passed_s, 0.0)
        return self.search(problem, time_limit_s=left, report=self.report, better_than=better_than)


class Amounts(ABC):
    """Something that plans use and that can be limited, in whole units.

    Parameters
    ----------
    problem, scale
        Whose plans they are, and its quanta.

    Attributes
    ----------
    none
        An amount with which no plan gets by.
    """

    none: int

    def __init__(self, problem: Problem, scale: Scale) -> None:
        self.problem, self.scale = problem, scale

    @abstractmethod
    def used(self, plan: Plan) -> int:
        """Return how much a plan uses."""

    @abstractmethod
    def constraint(self, amount: int) -> Constraint:
        """Return the side constraint that leaves the plans which use so much at most."""

    @abstractmethod
    def size(self, amount: int) -> Number:
        """Return an amount in the unit that people use: devices, bytes."""

    def between(self, below: int, used: int, value: int) -> int:  # noqa: ARG002 - a hook
        """Return a limit above ``below`` and below ``used`` that halves what plans below ``value`` ticks may use."""
        return (below + used) // 2

    def limited(self, amount: int) -> Problem:
        """Return the problem with its own side constraints and that on the amount."""
        return self.problem.with_constraints(*self.problem.constraints, self.constraint(amount))


class Devices(Amounts):
    """Devices of all replicas together."""

    none = 0

    def used(self, plan: Plan) -> int:
        """Return how many devices a plan uses."""
        return plan.used_devices

    def constraint(self, amount: int) -> Constraint:
        """Return a limit on the devices."""
        return MaxDevices(amount)

    def size(self, amount: int) -> int:
        """Return the devices themselves."""
        return amount


class Memory(Amounts):
    """Memory of a device on the fullest stage, in quanta (D8 of ``docs/formulation.md``)."""

    none = -1

    def used(self, plan: Plan) -> int:
        """Return how many quanta a plan takes where it takes the most."""
        return max(stage.memory for stage in evaluate(self.problem, plan).stages)

    def between(self, below: int, used: int, value: int) -> int:
        """Return the middle of the sizes that stages can take, as the last amount before the next larger size.

        That leaves as few searches as there are sizes to halve, and no proof rests on the list: what a search finds
        holds for the limit itself.
        """
        sizes = sizes_between(self.limited(used), below, used, value)
        if sizes is None:
            return super().between(below, used, value)
        larger = sizes[len(sizes) // 2 + 1 :]
        return int(larger.min(initial=used)) - 1

    def constraint(self, amount: int) -> Constraint:
        """Return a limit on the memory of every device.

        Raises
        ------
        InvalidProblem
            If no number that a file can hold lies between this amount and the next.
        """
        size = self.size(amount)
        for limit in (size, nextafter(size, inf)):
            if quanta(limit, self.scale.quanta_per_byte) == amount:
                return MemoryAtMost(limit)
        raise InvalidProblem(
            "model", f"{size} bytes are given to {1 / self.scale.quanta_per_byte:g} of a byte", "give fewer digits"
        )

    def size(self, amount: int) -> Number:
        """Return bytes."""
        return bytes_of(amount, self.scale.quanta_per_byte)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is known of the least amount with which a plan takes less than a number of ticks.

    Attributes
    ----------
    result, plan
        The fastest plan among those that use no more than it does, if the status of the result is ``OPTIMAL``.
    used
        How much the plan uses.
    below
        With so much, and with anything less, no plan is fast enough.
    """

    result: Result
    plan: Plan
    used: int
    below: int

    @property
    def settled(self) -> bool:
        """Whether nothing lies between."""
        return self.used == self.below + 1


def narrow(amounts: Amounts, result: Result, plan: Plan, value: int, clock: Clock) -> Narrowed:
    """Bisect for the least amount with which a plan takes less than ``value`` ticks, until time is up.

    The best time never grows with the amount. A plan that is found under a limit often uses less, and then takes the
    place of the limit: it is the fastest among the plans that use no more than it does, too.

    Parameters
    ----------
    result, plan
        The fastest plan of all, or under a limit; it takes less.
    """
    used, below = amounts.used(plan), amounts.none
    while used - below > 1:
        limit = amounts.between(below, used, value)
        found = clock.solve(amounts.limited(limit), value)
        if found.plan is not None:
            result, plan, used = found, found.plan, amounts.used(found.plan)
        elif found.status is Status.UNKNOWN:
            break
        else:
            below = limit
    return Narrowed(result, plan, used, below)
