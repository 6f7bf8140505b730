"""Solve a problem: pick the solver, run it, judge its plan."""

from __future__ import annotations

import time

from nest.cost.scale import scale_of
from nest.dp import optimum
from nest.errors import InvalidProblem, NestError
from nest.evaluate import evaluate
from nest.problem import Problem
from nest.result import Report, Result, Status
from nest.tables import Tables


class Disagreement(NestError):
    """The judge does not confirm what a solver claims: a fault of ours, never of the problem."""


def solve(problem: Problem, *, time_limit_s: float | None = None, report: Report | None = None) -> Result:
    """Find the best plan of a problem.

    Parameters
    ----------
    time_limit_s
        Give up proving after this many seconds and return the best plan so far with its bound.
    report
        Called now and then with the progress of the search.

    Returns
    -------
    Result
        With a judged plan, or the reason why there is none.

    Raises
    ------
    InvalidProblem
        If the times of the problem lie too far apart to be counted.
    Disagreement
        If the judge prices the plan differently from the solver, or finds a broken rule.
    """
    begin = time.perf_counter()
    deadline = None if time_limit_s is None else begin + time_limit_s
    scale = scale_of(problem)
    found = optimum(Tables(problem, scale), deadline, report)
    if found.complete and found.plan is None and found.reason is None:
        raise InvalidProblem(
            "times",
            "no plan takes less time than ticks can count, and a slower one may exist",
            "check the units of layer times, bandwidths and latencies",
        )
    plan = found.plan
    if plan is not None:
        verdict = evaluate(problem, plan)
        if not verdict.legal or verdict.objective_ticks != found.objective_ticks:
            broken = "; ".join(f"{violation.rule}: {violation.message}" for violation in verdict.violations)
            claim, judged = found.objective_ticks, verdict.objective_ticks
            raise Disagreement(f"the solver says {claim} ticks, the judge {judged} ({broken or 'legal'})")
        plan = plan.with_figures(verdict.loads_s, verdict.memory_bytes)
    return Result(
        status=_status(found.objective_ticks, found.bound_ticks, found.complete),
        objective_ticks=found.objective_ticks,
        bound_ticks=found.bound_ticks,
        time=scale.time,
        time_unit_s=problem.time_unit_s,
        backend="dp",
        wall_s=time.perf_counter() - begin,
        reason=found.reason,
        plan=plan,
    )


def _status(objective: int | None, bound: int | None, complete: bool) -> Status:
    if objective is None:
        return Status.INFEASIBLE if complete else Status.UNKNOWN
    return Status.OPTIMAL if objective == bound else Status.FEASIBLE
