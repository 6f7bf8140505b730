"""How a search under the objective `sum` settles an outer choice, given the least sum of loads for each pair of caps.

For a fixed outer choice the objective is ``sum of loads + (m - 1) * T + Y``, with the largest load ``T`` and the
slowest synchronisation ``Y``. The least sum only falls when ``T`` may rise, so that two values of it bound what lies
between them; ``Y`` is lowered from plan to plan, as each forbids all that synchronise as long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

import numpy as np

from nest.dp.incumbent import Incumbent
from nest.units import LONGEST, Ints


class Found(Protocol):
    """A plan of an outer choice, as far as its value goes."""

    @property
    def loads(self) -> int:
        """Sum of the loads."""

    @property
    def slowest(self) -> int:
        """Largest of the loads."""

    @property
    def sync(self) -> int:
        """Largest synchronisation."""


class Recursion(Protocol):
    """The least sum of loads of an outer choice under caps."""

    def lower_sync(self, most: int) -> None:
        """Allow no stage to synchronise longer than ``most`` ticks from now on."""

    def least_slowest(self) -> int:
        """Return the least of the largest loads, `NEVER` where no plan keeps the cap on the synchronisation."""

    def least_sync(self) -> int:
        """Return a time below which no plan synchronises."""

    def loads(self, least: int, most: int) -> Ints:
        """Return the distinct loads of stages from one limit to another, ascending."""


Rows = TypeVar("Rows", bound=Recursion)
Plan = TypeVar("Plan", bound=Found)


class Capped(ABC, Generic[Rows, Plan]):
    """An outer choice that is ready to be settled."""

    @property
    @abstractmethod
    def incumbent(self) -> Incumbent:
        """The best plan so far."""

    @property
    @abstractmethod
    def further(self) -> int:
        """Microbatches of a replica but one: how often the largest load counts besides."""

    @property
    @abstractmethod
    def total(self) -> int:
        """What all loads take together at least."""

    @abstractmethod
    def evaluate(self, rows: Rows, most: int) -> Plan:
        """Offer the plan of the least sum of loads under a cap that some plan keeps."""

    def settle_rows(self, rows: Rows) -> None:
        """Offer the best plan to the incumbent, if it is better."""
        slowest = rows.least_slowest()
        if slowest > self.most(0):  # mostly, and then synchronisation need not be looked at
            return
        least_sync = rows.least_sync()
        while slowest <= self.most(least_sync):
            best = self._by_load(rows, slowest, least_sync)
            if best.sync <= least_sync or self.value(best) + least_sync >= self.incumbent.objective:
                return
            rows.lower_sync(best.sync - 1)
            slowest = rows.least_slowest()

    def most(self, sync: int) -> int:
        """Return the largest load with which a plan could be better that synchronises for so long at least."""
        room = self.incumbent.objective - 1 - self.total - sync
        if room < 0:
            return -1
        return min(room // self.further if self.further else LONGEST, LONGEST - 1)

    def value(self, plan: Plan) -> int:
        """Return what a plan takes but for its synchronisation."""
        return plan.loads + self.further * plan.slowest

    def _by_load(self, rows: Rows, slowest: int, least_sync: int) -> Plan:
        """Return the best plan but for its synchronisation, or one that is no better than what was found before.

        The least sum under a cap on the load bounds all plans between the next lower cap that was tried and this one.
        """
        high = self.evaluate(rows, self.most(least_sync))
        if high.slowest == slowest or not self.further:
            return high
        low = self.evaluate(rows, slowest)
        best, values = min(high, low, key=self.value), rows.loads(slowest, high.slowest)
        open_ranges = [(0, low.loads, len(values) - 1, high.loads)]
        while open_ranges:
            first, most_loads, last, least_loads = open_ranges.pop()
            if last - first < 2 or most_loads == least_loads:
                continue
            bound = least_loads + self.further * int(values[first + 1])
            if bound + least_sync >= self.incumbent.objective or bound >= self.value(best):
                continue
            middle = (first + last) // 2
            path = self.evaluate(rows, int(values[middle]))
            best = min(best, path, key=self.value)
            reached = int(np.searchsorted(values, path.slowest))
            open_ranges += [(first, most_loads, reached, path.loads), (middle, path.loads, last, least_loads)]
        return best
