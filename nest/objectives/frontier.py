"""All trade-offs of devices and time: the plans that none beats in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from nest.cost.scale import scale_of
from nest.objectives.claim import Claim
from nest.objectives.search import Clock, Devices, Search, narrow
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve
from nest.units import HARD_LIMIT, Number, TimeScale

Advance: TypeAlias = Callable[[int, int], None]
"""Called with how many numbers of devices are settled, from the most on, and of how many."""


@dataclass(frozen=True, slots=True)
class Point:
    """A plan of the front.

    Attributes
    ----------
    devices
        That it uses, all replicas together.
    ticks
        That an iteration takes: no plan with as many devices or fewer takes less.
    plan
        With the judge's figures.
    proven
        Whether, besides, no plan with fewer devices takes as little; the last one before a limit may lack the proof.
    """

    devices: int
    ticks: int
    plan: Plan
    proven: bool = True

    @property
    def memory_bytes(self) -> Number:
        """Bytes on each device of the fullest stage."""
        return max(stage.memory_bytes or 0 for stage in self.plan.stages)


@dataclass(frozen=True)
class Frontier:
    """The front of a problem.

    Parameters
    ----------
    points
        From the fewest devices on, the faster the more.
    settled_from
        With so many devices and more, all plans are accounted for: 1 where the front is complete.
    reason
        Why there is no plan, or why the front ends early.
    time
        Tick.
    wall_s
        How long it took.
    plans
        What is said of all plans that were searched, as in `nest.objectives.Least`.
    """

    problem: Problem
    points: tuple[Point, ...]
    settled_from: int
    reason: str | None
    time: TimeScale
    wall_s: float
    plans: str = "plan"

    @property
    def complete(self) -> bool:
        """Whether no point is missing."""
        return self.settled_from == 1

    def claims(self) -> Iterator[Claim]:
        """Yield what together proves the points: between the devices of one and of the next, nothing is faster."""
        amounts = Devices(self.problem, scale_of(self.problem))
        tops = [*(point.devices - 1 for point in self.points[1:]), self.problem.cluster.devices]
        for point, most in zip(self.points, tops, strict=False):  # no point: there is but one top, and no claim
            taken = f"{self.time.seconds(point.ticks):.10g} s"
            yield Claim(
                amounts.limited(most),
                point.ticks,
                f"with at most {most} devices, no {self.plans} takes less than {taken}",
            )
        fewest = self.points[0].devices - 1 if self.points else self.problem.cluster.devices
        if self.complete and fewest > 0:
            yield Claim(amounts.limited(fewest), HARD_LIMIT, f"with at most {fewest} devices, there is no {self.plans}")


def frontier(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    report: Advance | None = None,
    search: Search = solve,
    plans: str = "plan",
) -> Frontier:
    """Find every pair of devices and time such that no plan is better in one and no worse in the other.

    The fastest plan of all uses some number of devices; the next point is the fastest plan with fewer, and so on. Where
    that is no slower, the point before it was none, and the least number of devices with this time is bisected for.

    Parameters
    ----------
    time_limit_s
        Stop after so many seconds, with the points that were found: those with the most devices.
    report
        Called after each search.
    search, plans
        Finds the best plan of a problem, as `nest.solve.solve` does; what is said of the plans that it searches.

    Raises
    ------
    InvalidProblem
        As `nest.solve.solve` does.
    """
    clock, most = Clock(time_limit_s, None, search), problem.cluster.devices
    amounts = Devices(problem, scale_of(problem))
    found: list[Point] = []
    limit, result = most, None
    while limit > 0:
        if report is not None:
            report(most - limit, most)
        result = clock.solve(problem if limit == most else amounts.limited(limit))
        plan, ticks = result.plan, result.objective_ticks
        if result.status is not Status.OPTIMAL or plan is None or ticks is None:
            break
        if found and found[-1].ticks == ticks:
            found.pop()
            plan = narrow(amounts, result, plan, ticks + 1, clock).plan
        found.append(Point(amounts.used(plan), ticks, plan))
        limit = found[-1].devices - 1
    return replace(_front(problem, found, limit, result, clock), plans=plans)


def _front(problem: Problem, found: list[Point], limit: int, last: Result | None, clock: Clock) -> Frontier:
    """Return the front that was found, from the most devices on; ``last`` is what the last search said."""
    wall_s, time = clock.passed_s, scale_of(problem).time
    if limit == 0 or last is None or last.status is Status.INFEASIBLE:
        reason = None if found or last is None else last.reason
        return Frontier(problem, tuple(reversed(found)), 1, reason, time, wall_s)
    if found and (last.bound_ticks is None or last.bound_ticks <= found[-1].ticks):
        found = [*found[:-1], replace(found[-1], proven=False)]
    return Frontier(problem, tuple(reversed(found)), limit + 1, last.reason, time, wall_s)
