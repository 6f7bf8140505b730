"""Solve a problem: pick the solver, run it, judge its plan."""

from __future__ import annotations

import time
from typing import Literal, TypeAlias

from nest.dp import Outcome, optimum, why_infeasible
from nest.errors import InvalidProblem, NestError
from nest.evaluate import Evaluation, evaluate
from nest.milp import Claim, solve_cpsat, solve_pyomo
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Report, Result, Status
from nest.tables import Tables

Backend: TypeAlias = Literal["auto", "dp", "cpsat", "pyomo"]
"""Which solver: the dynamic program, or the mathematical programme by CP-SAT or by HiGHS through Pyomo."""


class Disagreement(NestError):
    """The judge does not confirm what a solver claims: a fault of ours, never of the problem."""


def solve(
    problem: Problem,
    *,
    backend: Backend = "auto",
    time_limit_s: float | None = None,
    report: Report | None = None,
    better_than: int | None = None,
) -> Result:
    """Find the best plan of a problem.

    Parameters
    ----------
    backend
        Which solver to ask; ``"auto"`` takes the dynamic program, which covers everything.
    time_limit_s
        Give up proving after this many seconds and return the best plan so far with its bound.
    report
        Called now and then with the progress of the dynamic program.
    better_than
        Plans of so many ticks or more are of no interest, which makes the search faster. Where none takes less, the
        status is ``NONE_BETTER`` and the bound, at least this value, is proven; that some plan exists is not.

    Returns
    -------
    Result
        With a judged plan, or the reason why there is none.

    Raises
    ------
    InvalidProblem
        If the times of the problem lie too far apart to be counted.
    OutOfScope
        If the solver that was asked for does not cover the problem.
    SolverUnavailable
        If the package of that solver is not installed.
    Disagreement
        If the judge prices the plan differently from the solver, or finds a broken rule.
    """
    begin = time.perf_counter()
    tables = Tables.of(problem)
    if backend in ("auto", "dp"):
        found = optimum(tables, None if time_limit_s is None else begin + time_limit_s, report, better_than)
    else:
        ask = solve_cpsat if backend == "cpsat" else solve_pyomo
        found = _below(_settle(ask(problem, time_limit_s=time_limit_s), tables), better_than)
    if found.complete and found.plan is None and found.reason is None:
        raise InvalidProblem(
            "times",
            "no plan takes less time than ticks can count, and a slower one may exist",
            "check layer times, bandwidths, latencies and the number of microbatches",
        )
    plan = found.plan
    if plan is not None:
        verdict = _judge(problem, plan, found.objective_ticks)
        plan = plan.with_figures(verdict.loads_s, verdict.memory_bytes)
    return Result(
        status=_status(found.objective_ticks, found.bound_ticks, found.complete),
        objective_ticks=found.objective_ticks,
        bound_ticks=found.bound_ticks,
        time=tables.scale.time,
        time_unit_s=problem.time_unit_s,
        backend="dp" if backend == "auto" else backend,
        wall_s=time.perf_counter() - begin,
        reason=found.reason,
        plan=plan,
    )


def _settle(claim: Claim, tables: Tables) -> Outcome:
    """Return what a claim is worth: its plan at the judge's price, and its bound as far as that price confirms it.

    An incumbent may be priced too high by the solver, never too low; solvers in floating point are a little off.
    """
    complete = claim.status in (Status.OPTIMAL, Status.INFEASIBLE)
    if claim.plan is None:
        reason = why_infeasible(tables) if complete else TIME_LIMIT
        return Outcome(None, None, claim.bound, complete, reason)
    judged = evaluate(tables.problem, claim.plan).objective_ticks
    dearer = claim.objective is None or judged is None or judged > claim.objective
    if (claim.exact and dearer) or (claim.bound is not None and judged is not None and claim.bound > judged):
        raise Disagreement(
            f"{claim.solver} says {claim.objective} ticks and no less than {claim.bound}, the judge {judged}"
        )
    reason = None if claim.bound == judged else INEXACT if complete else TIME_LIMIT
    return Outcome(claim.plan, judged, claim.bound, complete, reason)


def _below(found: Outcome, better_than: int | None) -> Outcome:
    """Leave out a plan that is not better than a value; what is proven stays."""
    if better_than is None or found.objective_ticks is None or found.objective_ticks < better_than:
        return found
    settled = found.bound_ticks is not None and found.bound_ticks >= better_than
    reason = f"no plan takes less than {better_than} ticks" if settled else found.reason
    return Outcome(None, None, found.bound_ticks, settled, reason)


TIME_LIMIT = "the time limit was reached before the search was complete"
INEXACT = "the solver computes in floating point, and its bound does not reach the objective to the tick"


def _judge(problem: Problem, plan: Plan, claimed: int | None) -> Evaluation:
    """Return the judge's verdict on a plan, if it is legal and costs what the solver says."""
    verdict = evaluate(problem, plan)
    if not verdict.legal or verdict.objective_ticks != claimed:
        broken = "; ".join(f"{violation.rule}: {violation.message}" for violation in verdict.violations)
        judged = verdict.objective_ticks
        raise Disagreement(f"the solver says {claimed} ticks, the judge {judged} ({broken or 'legal'})")
    return verdict


def _status(objective: int | None, bound: int | None, complete: bool) -> Status:
    if objective is None and complete:
        return Status.INFEASIBLE if bound is None else Status.NONE_BETTER
    if objective is None:
        return Status.UNKNOWN
    return Status.OPTIMAL if objective == bound else Status.FEASIBLE
