"""What a plan is worth where the problem's figures are others: judged again, and beside the best plan there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from nest.errors import InvalidPlan, InvalidProblem, OutOfScope
from nest.evaluate import evaluate
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a problem.

    Parameters
    ----------
    figure, value
        What is changed, and to what, for people to read.
    apply
        Returns the changed problem.
    """

    figure: str
    value: str
    apply: Callable[[Problem], Problem]


@dataclass(frozen=True, slots=True)
class Changed:
    """A plan, and the best one, under a change; times in seconds.

    Parameters
    ----------
    plan_s
        Iteration of the plan; None where it has no price.
    broken
        Rules that it breaks.
    best_s, best
        Of the best plan known; None where there is none, or none was searched for. It is never slower than the plan
        itself, where that is legal.
    status
        ``OPTIMAL`` where nothing is better than that, else how far the search came; None where none took place.
    work
        Microbatches or sequences of an iteration over those of the problem as it is: times are to be compared by it.
    """

    change: Change
    plan_s: float | None
    broken: tuple[str, ...]
    best_s: float | None = None
    best: Plan | None = None
    status: Status | None = None
    work: float = 1.0


def sensitivity(
    problem: Problem, plan: Plan, *, changes: Sequence[Change] | None = None, time_limit_s: float = 0.0
) -> tuple[Changed, ...]:
    """Return what the plan takes under each change, and the best plan does.

    Parameters
    ----------
    changes
        `CHANGES` if None. Those that do not go with the problem are left out.
    time_limit_s
        For all searches together; each has its share of what is left. 0 judges only.
    """
    end = time.perf_counter() + time_limit_s
    given = CHANGES if changes is None else changes
    possible = [(change, changed) for change in given if (changed := _changed(problem, change)) is not None]
    return tuple(
        _row(change, problem, changed, plan, (end - time.perf_counter()) / (len(possible) - at))
        for at, (change, changed) in enumerate(possible)
    )


def _changed(problem: Problem, change: Change) -> Problem | None:
    try:
        return change.apply(problem)
    except InvalidProblem:
        return None


def _row(change: Change, problem: Problem, changed: Problem, plan: Plan, limit_s: float) -> Changed:
    try:
        evaluation = evaluate(changed, plan)
    except (InvalidPlan, InvalidProblem):
        return Changed(change, None, ("range",))
    ticks, work = evaluation.objective_ticks, _work(changed) / _work(problem)
    plan_s = None if ticks is None else evaluation.scale.time.seconds(ticks)
    broken = tuple(dict.fromkeys(violation.rule for violation in evaluation.violations))
    row = Changed(change, plan_s, broken, work=work)
    return row if limit_s <= 0 else _searched(changed, row, plan, None if broken else ticks, limit_s)


def _searched(problem: Problem, row: Changed, plan: Plan, ticks: int | None, limit_s: float) -> Changed:
    """Return a row with the best plan known; ``ticks`` are those of the plan, where it is legal."""
    try:
        result = solve(problem, time_limit_s=limit_s, better_than=ticks)
    except (InvalidProblem, OutOfScope):
        return row
    if result.plan is not None or ticks is None:
        return replace(row, best_s=result.objective_s, best=result.plan, status=result.status)
    status = Status.OPTIMAL if result.status is Status.NONE_BETTER else Status.FEASIBLE
    return replace(row, best_s=row.plan_s, best=plan, status=status)


def _work(problem: Problem) -> int:
    return problem.training.global_batch or problem.training.microbatches


def _memory(factor: float) -> Callable[[Problem], Problem]:
    def apply(problem: Problem) -> Problem:
        """Return the problem with the memory of all devices scaled, in whole bytes."""
        cluster = problem.cluster
        classes = tuple(replace(each, hbm_bytes=int(each.hbm_bytes * factor)) for each in cluster.classes)
        scaled = replace(cluster, hbm_bytes=int(cluster.hbm_bytes * factor), classes=classes)
        return replace(problem, cluster=scaled)

    return apply


def _bandwidth(factor: float, *, outer: bool) -> Callable[[Problem], Problem]:
    """Return what changes the bandwidth of the innermost level, or of all others."""

    def apply(problem: Problem) -> Problem:
        """Return the problem with wider or narrower levels; errors where none are outside the innermost."""
        levels = problem.cluster.levels
        if outer and len(levels) == 1:
            raise InvalidProblem("cluster.levels", "there is one", "change the innermost level")
        changed = tuple(level.widened(factor if bool(at) == outer else 1) for at, level in enumerate(levels))
        return replace(problem, cluster=replace(problem.cluster, levels=changed))

    return apply


def _batch(factor: float) -> Callable[[Problem], Problem]:
    def apply(problem: Problem) -> Problem:
        """Return the problem with the batch scaled; errors where that is no whole number."""
        training = problem.training
        size = (training.global_batch or training.microbatches) * factor
        if size % 1:
            raise InvalidProblem("training", f"a batch of {size}", "give a whole number")
        if training.global_batch:
            return replace(problem, training=replace(training, global_batch=int(size)))
        return replace(problem, training=replace(training, microbatches=int(size)))

    return apply


def _changes() -> Iterator[Change]:
    for factor, value in ((0.8, "-20 %"), (0.9, "-10 %"), (1.1, "+10 %"), (1.25, "+25 %")):
        yield Change("device memory", value, _memory(factor))
    for factor, value in ((0.5, "half"), (2.0, "double")):
        yield Change("bandwidth inside nodes", value, _bandwidth(factor, outer=False))
    for factor, value in ((0.5, "half"), (2.0, "double")):
        yield Change("bandwidth between nodes", value, _bandwidth(factor, outer=True))
    for factor, value in ((0.5, "half"), (2.0, "double")):
        yield Change("batch", value, _batch(factor))


CHANGES: tuple[Change, ...] = tuple(_changes())
"""Memory of a device, bandwidth inside and between the innermost groups, batch."""
