"""The best plans of other outer choices: the problem is solved again without those that have their plan already."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from nest.constraints import Outer
from nest.constraints.base import LocalConstraint
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve


@dataclass(frozen=True)
class OtherChoices(LocalConstraint):
    """None of some outer choices."""

    known: frozenset[Outer]

    kind: ClassVar[str] = "other_choices"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"none of {len(self.known)} outer choices"

    def admits(self, problem: Problem, outer: Outer) -> bool:  # noqa: ARG002
        """Whether the choice is none of them."""
        return outer not in self.known


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best plan of an outer choice.

    Parameters
    ----------
    outer
        Variant, stages and replicas.
    objective_ticks, bound_ticks
        What it takes, and what is proven: no plan of any outer choice but the better ones listed takes less.
    plan
        With the judge's figures.
    """

    outer: Outer
    objective_ticks: int
    bound_ticks: int | None
    plan: Plan

    @property
    def proven(self) -> bool:
        """Whether nothing lies between it and the ones before it."""
        return self.bound_ticks is not None and self.bound_ticks >= self.objective_ticks


def outer_of(plan: Plan) -> Outer:
    """Return the outer choice of a plan."""
    return Outer(plan.variant, len(plan.stages), plan.replicas)


def runners_up(
    problem: Problem, best: Plan, count: int, *, time_limit_s: float | None = None
) -> tuple[tuple[RunnerUp, ...], bool]:
    """Return the best plans of so many other outer choices, best first, and whether those are all that were asked for.

    Stages of those are all of one width.

    Parameters
    ----------
    best
        The plan whose outer choice is left out.
    time_limit_s
        For all of them together: what was found until then is returned, also where it is not proven.
    """
    found = tuple(_each(problem, best, count, None if time_limit_s is None else time.perf_counter() + time_limit_s))
    return found, len(found) == count


def _each(problem: Problem, best: Plan, count: int, end: float | None) -> Iterator[RunnerUp]:
    alike = problem.choices.alike
    known = set() if best.uneven or (alike != problem.choices and best.sharded_inside) else {outer_of(best)}
    problem = replace(problem, choices=alike)
    for _ in range(count):
        result = _solved(problem, frozenset(known), end)
        if result is None or result.plan is None or result.objective_ticks is None:
            return
        outer = outer_of(result.plan)
        yield RunnerUp(outer, result.objective_ticks, result.bound_ticks, result.plan)
        known.add(outer)


def _solved(problem: Problem, known: frozenset[Outer], end: float | None) -> Result | None:
    left = None if end is None else end - time.perf_counter()
    if left is not None and left <= 0:
        return None
    others = problem.with_constraints(*problem.constraints, OtherChoices(known))
    result = solve(others, time_limit_s=left)
    return result if result.status in (Status.OPTIMAL, Status.FEASIBLE) else None
