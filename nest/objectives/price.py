"""All trade-offs of price and time: what each further technology of the network buys."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter

from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.objectives.search import Clock
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve
from nest.technologies import affordable, why_none_affordable
from nest.units import TimeScale


@dataclass(frozen=True, slots=True)
class PricePoint:
    """A plan that none beats in price and time.

    Attributes
    ----------
    price
        What its technologies cost together, in the unit of the menus.
    ticks
        That an iteration takes.
    plan
        With the judge's figures.
    """

    price: Fraction
    ticks: int
    plan: Plan


@dataclass(frozen=True)
class PriceFrontier:
    """The front of price and time of a problem.

    Parameters
    ----------
    points
        From the cheapest on, the faster the dearer.
    complete
        Whether no point is missing; a front that ends early lacks the cheapest ones.
    reason
        Why there is no plan, or why the front ends early.
    time
        Tick.
    wall_s
        How long it took.
    """

    problem: Problem
    points: tuple[PricePoint, ...]
    complete: bool
    reason: str | None
    time: TimeScale
    wall_s: float


def price_frontier(problem: Problem, *, time_limit_s: float | None = None) -> PriceFrontier:
    """Find every pair of price and time such that no plan is better in one and no worse in the other.

    The fastest plan within a budget is, of equally fast ones, the cheapest; the next one is that of all budgets below
    its price, and so on.

    Parameters
    ----------
    time_limit_s
        Stop after so many seconds, with the points that were found: the fastest.

    Raises
    ------
    InvalidProblem
        If no level has a menu, or as `nest.solve.solve` does.
    """
    cluster = problem.cluster
    if not cluster.menus:
        raise InvalidProblem("cluster.levels", "no level has a menu", "give one alternatives with their prices")
    clock, points = Clock(time_limit_s, None, solve), list[PricePoint]()
    prices = sorted({each.price for each in affordable(problem)})
    complete, reason = True, None if prices else why_none_affordable(problem)
    while prices:
        result = clock.solve(problem.with_choices(price_at_most=_budget(prices[-1])))
        technologies = None if result.plan is None else cluster.named(result.plan.technologies)
        if result.status is not Status.OPTIMAL or result.plan is None or technologies is None:
            complete, reason = result.status is Status.INFEASIBLE, result.reason
            break
        assert result.objective_ticks is not None
        points.append(PricePoint(cluster.price(technologies), result.objective_ticks, result.plan))
        prices = [each for each in prices if each < points[-1].price]
    reason = None if points and complete else reason
    return PriceFrontier(problem, tuple(reversed(points)), complete, reason, scale_of(problem).time, clock.passed_s)


def _budget(price: Fraction) -> float:
    """Return a price as a number that a budget may be, no less than it."""
    nearest = float(price)
    return nearest if Fraction(repr(nearest)) >= price else nextafter(nearest, inf)
