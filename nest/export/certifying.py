"""Certificates of plans for a framework: that none is faster of those that it can run."""

from __future__ import annotations

from dataclasses import replace

from nest import __version__
from nest.certificate import Outcome
from nest.certify import Certificate, Finding, Proof, certify, confirm_parts
from nest.evaluate import evaluate
from nest.export.base import Assignment, Framework, Inexpressible
from nest.export.exporting import exported, run_with
from nest.export.nearest import best_for
from nest.objectives import CertifiedLeast, Quantity, certify_least
from nest.objectives.certified import Asked
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result, Status
from nest.runs import Run, SelfContained
from nest.units import Number


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
    return _certificate(found.problem, found.plan, run_with(found), framework, time_limit_s)


def certify_least_for(
    found: SelfContained,
    framework: Framework,
    quantity: Quantity,
    time_at_most_s: Number,
    *,
    time_limit_s: float | None = None,
) -> CertifiedLeast:
    """Ask about a plan that was found for the least of something as `certify_least`, of a framework's plans alone.

    Parameters
    ----------
    time_limit_s
        For each question, as of `certify_for`.

    Raises
    ------
    Inexpressible, InvalidProblem, Disagreement
        As `certify_for` and `certify_least`.
    """
    run = run_with(found)

    def certified(problem: Problem, plan: Plan) -> Certificate:
        """Return what the checker says of plans that the framework can run."""
        return _certificate(problem, plan, run, framework, time_limit_s)

    def proven(problem: Problem, value: int) -> Proof:
        """Return whether the solver finds none that is better."""
        search = best_for(problem, run, framework, time_limit_s=time_limit_s, better_than=value)
        better, known = search.result.plan, search.result.status in (Status.NONE_BETTER, Status.INFEASIBLE)
        if better is not None:
            detail = f"a plan that {framework.title} can run"
            return Proof("search", __version__, Outcome.REFUTED, None, search.result.wall_s, {}, detail, better)
        claim = replace(search.result, objective_ticks=value, status=Status.OPTIMAL)
        if known:
            return confirm_parts(problem, claim, search.parts, time_limit_s=time_limit_s).proofs[0]
        return Proof("search", __version__, Outcome.UNDECIDED, None, search.result.wall_s, {}, "the limit was reached")

    asked = Asked(certified, proven)
    return certify_least(found.problem, found.plan, quantity, time_at_most_s, asked=asked)


def _certificate(
    problem: Problem, given: Plan, run: Run, framework: Framework, time_limit_s: float | None
) -> Certificate:
    """Return what is found about a plan among those that a framework can run."""
    verdict = evaluate(problem, given)
    ticks = verdict.objective_ticks
    if ticks is None or not verdict.legal:
        return certify(problem, given)
    plan = given.with_figures(verdict.loads_s, verdict.memory_bytes)
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
