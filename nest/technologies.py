"""What the links of a cluster are, where that is to be chosen: each choice is a problem of its own, the best one wins.

Whatever crosses a network takes no less time where bandwidths are no higher and latencies no lower (costs D1 to D14
only grow), so that a choice which is no slower at any level, with the same kinds of links, is a lower bound on another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from nest.cluster import Technology
from nest.problem import Problem
from nest.result import Result, Status

Ask: TypeAlias = Callable[[Problem, "int | None"], Result]
"""Solves a problem whose cluster is built; plans of so many ticks or more, where that is given, are of no interest."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A technology for each level with a menu, and what they cost together."""

    technologies: tuple[Technology, ...]
    price: Fraction

    def no_slower(self, other: Combination) -> bool:
        """Whether it is as good as another at least at every level."""
        pairs = zip(self.technologies, other.technologies, strict=True)
        return all(mine.no_slower(its) for mine, its in pairs)


def affordable(problem: Problem) -> list[Combination]:
    """Return the choices within the budget: all of them, or the one that the cluster is built with."""
    cluster = problem.cluster
    built = None if cluster.undecided else cluster.named(cluster.technologies)
    found = cluster.combinations() if built is None else [built]
    return [Combination(each, cluster.price(each)) for each in found if problem.affords(each)]


def why_none_affordable(problem: Problem) -> str:
    """Return why no choice is within the budget."""
    cluster = problem.cluster
    least = min(cluster.price(each) for each in cluster.combinations())
    what = f"the links of {cluster.devices:,} devices cost {float(least):,.10g} at least"
    return f"{what}, {problem.choices.price_at_most:,.10g} may be spent"


def worth_trying(found: list[Combination]) -> list[Combination]:
    """Return the choices but those than which another is no slower and no dearer; of equals the first stays."""
    return [
        one
        for at, one in enumerate(found)
        if not any(
            other.no_slower(one) and other.price <= one.price and (place < at or not _equal(one, other))
            for place, other in enumerate(found)
            if place != at
        )
    ]


def _equal(one: Combination, other: Combination) -> bool:
    return one.no_slower(other) and other.no_slower(one) and one.price == other.price


def best_of(problem: Problem, ask: Ask, end: float | None = None, better_than: int | None = None) -> Result:
    """Return the fastest plan over all choices within the budget, of equally fast ones the cheapest.

    Parameters
    ----------
    problem
        With a choice within the budget.
    ask
        For the best plan with one choice made.
    end
        Reading of `time.perf_counter` after which no further choice is tried.
    better_than
        Plans of so many ticks or more are of no interest.
    """
    race = _Race(problem, ask, better_than)
    race.step()
    while race.open and (end is None or time.perf_counter() < end):
        race.step()
    return race.answer()


class _Race:
    """Choices in the order of their bounds, each solved for something better than the best so far.

    A choice comes after all that are no slower than it, with what these were found to take at least as its own bound.
    """

    def __init__(self, problem: Problem, ask: Ask, better_than: int | None) -> None:
        self.problem, self.ask, self.better_than = problem, ask, better_than
        combinations = worth_trying(affordable(problem))
        slower = [sum(each.no_slower(other) for other in combinations) for each in combinations]
        order = sorted(range(len(combinations)), key=lambda at: (-slower[at], combinations[at].price))
        self.open = [combinations[at] for at in order]
        self._bounds = [0] * len(self.open)
        self._closed: list[int] = []
        self._best: tuple[Result, Fraction] | None = None
        self._last: Result | None = None
        self._stopped = NOT_ALL_TRIED

    def step(self) -> None:
        """Settle the choice with the least bound, as far as there is time."""
        at = min(range(len(self.open)), key=self._bounds.__getitem__)
        combination, bound = self.open.pop(at), self._bounds.pop(at)
        most = self._most(combination)
        if most is not None and bound >= most:
            self._closed.append(bound)
            return
        found = self._last = self.ask(self.problem.built(combination.technologies), most)
        if found.plan is not None:
            self._best = found, combination.price
        if found.status in (Status.FEASIBLE, Status.UNKNOWN):
            self._stopped = found.reason or NOT_ALL_TRIED
        if found.status is not Status.INFEASIBLE:
            proven = max(bound, found.bound_ticks or 0)
            self._closed.append(proven)
            self._learn(combination, proven)

    def _most(self, combination: Combination) -> int | None:
        """Return below how many ticks a plan with this choice would be better than the best so far."""
        if self._best is None:
            return self.better_than
        result, price = self._best
        assert result.objective_ticks is not None
        return result.objective_ticks + (combination.price < price)

    def _learn(self, settled: Combination, proven: int) -> None:
        """Raise the bounds of all that is no faster than a choice of which something is proven."""
        for at, each in enumerate(self.open):
            if settled.no_slower(each):
                self._bounds[at] = max(self._bounds[at], proven)

    def answer(self) -> Result:
        """Return the best plan and what is proven of all choices together."""
        assert self._last is not None
        bounds = [*self._closed, *self._bounds]
        if self._best is None:
            return self._without_plan(min(bounds, default=None))
        best = self._best[0]
        objective = best.objective_ticks
        assert objective is not None
        bound = min(objective, *bounds)
        if bound == objective:
            return replace(best, status=Status.OPTIMAL, bound_ticks=bound)
        return replace(best, status=Status.FEASIBLE, bound_ticks=bound, reason=self._stopped)

    def _without_plan(self, bound: int | None) -> Result:
        assert self._last is not None
        if bound is None:
            return self._last
        if self.better_than is not None and bound >= self.better_than:
            reason = f"no plan takes less than {self.better_than} ticks"
            return replace(self._last, status=Status.NONE_BETTER, bound_ticks=bound, reason=reason)
        return replace(self._last, status=Status.UNKNOWN, bound_ticks=bound, reason=self._stopped)


NOT_ALL_TRIED = "the time limit was reached before every choice of technologies was tried"
