"""Certificates of plans for a framework: that none is faster of those that it can run."""

from __future__ import annotations

from dataclasses import replace

from nest.certify import Certificate, Finding, certify, confirm_parts
from nest.evaluate import evaluate
from nest.export.base import Assignment, Framework, Inexpressible
from nest.export.exporting import exported, run_with
from nest.export.nearest import best_for
from nest.plan import Plan
from nest.result import Result, Status
from nest.runs import SelfContained


def certify_for(found: SelfContained, framework: Framework, *, time_limit_s: float | None = None) -> Certificate:
    """Ask whether any plan that a framework can run takes less than one.

    The space is parted, as by `best_for`, until no part has a better plan that it can run, and the checker is put each
    part.

    Parameters
    ----------
    time_limit_s
        For the parting, and again for the checker.

    Raises
    ------
    Inexpressible
        Naming the first stage or width of the plan that the framework cannot run.
    InvalidProblem
        If the plan's problem is a file of costs.
    Disagreement
        If the checker finds a better plan where the search found none: a fault of ours.
    """
    problem, run = found.problem, run_with(found)
    verdict = evaluate(problem, found.plan)
    ticks = verdict.objective_ticks
    if ticks is None or not verdict.legal:
        return certify(problem, found.plan)
    plan = found.plan.with_figures(verdict.loads_s, verdict.memory_bytes)
    try:
        exported(Assignment(run, problem, plan, verdict.scale.time.seconds(ticks)), framework)
    except Inexpressible as fault:
        raise Inexpressible(
            fault.where, fault.problem, f"nest solve --for {framework.name} finds what it runs"
        ) from None
    search = best_for(problem, run, framework, time_limit_s=time_limit_s, better_than=ticks)
    result = search.result
    if result.plan is not None:
        return _refuted(plan, ticks, result)
    proven = result.status in (Status.NONE_BETTER, Status.INFEASIBLE)
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    claim = replace(result, plan=plan, objective_ticks=ticks, status=status)
    return confirm_parts(problem, claim, search.parts, time_limit_s=time_limit_s)


def _refuted(plan: Plan, ticks: int, result: Result) -> Certificate:
    """Return that a plan is not the best, by a judged one that is better."""
    return Certificate(
        Finding.REFUTED,
        result.time,
        result.time_unit_s,
        plan,
        ticks,
        better=result.plan,
        better_ticks=result.objective_ticks,
    )
