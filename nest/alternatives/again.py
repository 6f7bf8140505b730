"""The search once more, for a better plan: what there is to say where no independent prover covers a problem."""

from __future__ import annotations

import time

from nest import __version__
from nest.certificate import Outcome
from nest.certify import Certificate, Finding, Proof
from nest.evaluate import Evaluation
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve

_SAID = {
    Outcome.PROVEN: "searched again for a plan that takes less: there is none",
    Outcome.REFUTED: "searched again, and found a plan that takes less",
    Outcome.UNDECIDED: "searched again for a plan that takes less, and did not finish",
}


def search_again(
    problem: Problem, plan: Plan, evaluation: Evaluation, *, time_limit_s: float | None = None
) -> Certificate:
    """Return what the solver says about a plan when it looks for a better one.

    This is no second opinion on the solver: an independent prover (`nest.certify`) is worth more where one covers the
    problem.

    Parameters
    ----------
    evaluation
        The judge's, of this plan.
    """
    begin = time.perf_counter()
    ticks, scale = evaluation.objective_ticks, evaluation.scale.time
    if ticks is None or not evaluation.legal:
        return Certificate(Finding.ILLEGAL, scale, problem.time_unit_s, plan, ticks, violations=evaluation.violations)
    result = solve(problem, time_limit_s=time_limit_s, better_than=ticks)
    outcome = _outcome(result)
    parameters = {"time_limit_s": time_limit_s, "better_than": ticks}
    took = time.perf_counter() - begin
    proof = Proof(
        result.backend, __version__, outcome, result.bound_ticks, took, parameters, _SAID[outcome], result.plan
    )
    findings = {Outcome.PROVEN: Finding.OPTIMAL, Outcome.REFUTED: Finding.REFUTED}
    finding = findings.get(outcome, Finding.UNDECIDED)
    better = (result.plan, result.objective_ticks) if outcome is Outcome.REFUTED else (None, None)
    return Certificate(finding, scale, problem.time_unit_s, plan, ticks, (proof,), *better)


def _outcome(result: Result) -> Outcome:
    if result.status is Status.NONE_BETTER:
        return Outcome.PROVEN
    return Outcome.UNDECIDED if result.plan is None else Outcome.REFUTED
