"""Certificates: put the claim that a plan is the best one to independent provers, and say what each of them found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from nest import __version__
from nest.certificate import Outcome, Verdict, check
from nest.constraints import Filters
from nest.cost.scale import scale_of
from nest.errors import InvalidProblem, OutOfScope, SolverUnavailable
from nest.evaluate import Violation, evaluate
from nest.milp.scope import require_scope
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import Disagreement
from nest.technologies import affordable, why_none_affordable
from nest.units import HARD_LIMIT, TimeScale


class Finding(StrEnum):
    """What a certificate says about a plan, or about a problem without one."""

    OPTIMAL = "optimal"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    INFEASIBLE = "infeasible"
    ILLEGAL = "illegal"


@dataclass(frozen=True, slots=True)
class Proof:
    """What one prover found about the claim that no plan takes less.

    Parameters
    ----------
    name, version
        Of the prover.
    outcome
        Whether the claim is proven, refuted by ``better``, or neither within the limit.
    bound_ticks
        Of which the prover says that no plan takes less; None where it cannot say.
    wall_s
        How long it took.
    parameters
        With which it ran.
    detail
        How it came to its answer.
    better
        A plan that takes less.
    """

    name: str
    version: str
    outcome: Outcome
    bound_ticks: int | None
    wall_s: float
    parameters: Mapping[str, object]
    detail: str
    better: Plan | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """A plan, or that there is none, and what the provers found about it.

    Parameters
    ----------
    plan, objective_ticks
        With the judge's figures; None where there is no plan, or it has no price.
    better, better_ticks
        The best of the plans that the provers found to take less; None where they found none.
    violations
        Rules that the plan breaks; if there are any, no prover was asked.
    """

    finding: Finding
    time: TimeScale
    time_unit_s: float
    plan: Plan | None = None
    objective_ticks: int | None = None
    proofs: tuple[Proof, ...] = ()
    better: Plan | None = None
    better_ticks: int | None = None
    violations: tuple[Violation, ...] = field(default=())


Prover: TypeAlias = Callable[[Problem, int, "float | None"], Proof]
"""Takes a problem, a number of ticks of which it is claimed that no plan takes less, and a limit in seconds."""


def certify(
    problem: Problem, plan: Plan, *, provers: Sequence[str] = ("checker",), time_limit_s: float | None = None
) -> Certificate:
    """Judge a plan, and ask whether any other is better.

    Parameters
    ----------
    provers
        Names out of `PROVERS`.
    time_limit_s
        What each of them may take.

    Raises
    ------
    InvalidProblem
        If a prover is not available, or the plan is none of this problem.
    Disagreement
        If one prover refutes what another proves.
    """
    require(provers, problem)
    evaluation = evaluate(problem, plan)
    if evaluation.objective_ticks is not None:
        plan = plan.with_figures(evaluation.loads_s, evaluation.memory_bytes)
    certificate = Certificate(
        Finding.ILLEGAL,
        evaluation.scale.time,
        problem.time_unit_s,
        plan,
        evaluation.objective_ticks,
        violations=evaluation.violations,
    )
    if evaluation.objective_ticks is None or not evaluation.legal:
        return certificate
    return _ask(problem, certificate, provers, time_limit_s)


def certify_result(
    problem: Problem, result: Result, *, provers: Sequence[str] = ("checker",), time_limit_s: float | None = None
) -> Certificate:
    """Ask whether a solver's answer is right; as `certify`, and an infeasible problem is confirmed to be so.

    An answer that is unknown claims nothing: the certificate is undecided and no prover is asked.
    """
    require(provers, problem)
    if result.plan is not None:
        return certify(problem, result.plan, provers=provers, time_limit_s=time_limit_s)
    certificate = Certificate(Finding.UNDECIDED, scale_of(problem).time, problem.time_unit_s)
    if result.status is not Status.INFEASIBLE:
        return certificate
    return _ask(problem, certificate, provers, time_limit_s)


def confirm(problem: Problem, result: Result, *, time_limit_s: float | None = None) -> Certificate:
    """Return the certificate of a solver's answer by the checker, and by CP-SAT where side constraints tie stages.

    Raises
    ------
    Disagreement
        If a prover refutes what the solver claims to have proven: a fault of ours.
    """
    tied = bool(Filters(problem).coupling) and _covers(problem)
    provers = ("checker", "cpsat") if tied else ("checker",)
    certificate = certify_result(problem, result, provers=provers, time_limit_s=time_limit_s)
    if certificate.finding is Finding.REFUTED and result.status in (Status.OPTIMAL, Status.INFEASIBLE):
        claim = "infeasible" if result.objective_ticks is None else f"optimal with {result.objective_ticks} ticks"
        found = f"a plan with {certificate.better_ticks} ticks"
        raise Disagreement(f"the solver says {claim}, a prover has {found}")
    return certificate


def confirm_parts(
    problem: Problem, result: Result, parts: Sequence[Problem], *, time_limit_s: float | None = None
) -> Certificate:
    """Have the checker confirm an answer in parts: problems that hold, together, every plan which it is about.

    Parameters
    ----------
    problem, result
        A problem that holds all of them, and what is claimed to be the best of them.
    time_limit_s
        For all parts together.

    Raises
    ------
    Disagreement
        If the checker refutes in some part what the solver claims to have proven: a fault of ours.
    """
    value = HARD_LIMIT if result.objective_ticks is None else result.objective_ticks
    plan, begin = result.plan, time.perf_counter()
    certificate = Certificate(
        Finding.UNDECIDED, scale_of(problem).time, problem.time_unit_s, plan, result.objective_ticks
    )
    if result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return certificate
    proofs = []
    for at, part in enumerate(parts):
        left = (
            None if time_limit_s is None else max(0.0, time_limit_s - (time.perf_counter() - begin)) / (len(parts) - at)
        )
        proofs.append(_checker(part, value, left))
    if any(each.outcome is Outcome.REFUTED for each in proofs):
        raise Disagreement(f"the solver says that no plan takes less than {value} ticks, the checker has one")
    proven = all(each.outcome is Outcome.PROVEN for each in proofs)
    whole = Proof(
        "checker",
        __version__,
        Outcome.PROVEN if proven else Outcome.UNDECIDED,
        value if proven else None,
        time.perf_counter() - begin,
        {"time_limit_s": time_limit_s},
        "; ".join(each.detail for each in proofs) if len(proofs) == 1 else f"all plans in {len(proofs)} parts",
    )
    found = Finding.OPTIMAL if plan is not None else Finding.INFEASIBLE
    return replace(certificate, finding=found if proven else Finding.UNDECIDED, proofs=(whole,))


def require(provers: Sequence[str], problem: Problem | None = None) -> None:
    """Raise `InvalidProblem` if a prover is unknown, cannot be loaded or does not cover a problem, naming it."""
    for name in provers:
        if name not in PROVERS:
            raise InvalidProblem("--with", f"{name!r} is no prover", f"choose from {', '.join(PROVERS)}")
        if name in MODELS:
            _model_solver(name)
        if name in MODELS and problem is not None:
            try:
                require_scope(problem)
            except OutOfScope as fault:
                what = f"prover {name!r} does not cover the problem: {fault.where}: {fault.problem}"
                raise InvalidProblem("--with", what, "use checker") from None


def _covers(problem: Problem) -> bool:
    """Whether the provers that solve a model of the whole problem cover it."""
    try:
        require_scope(problem)
    except OutOfScope:
        return False
    return True


def _ask(problem: Problem, certificate: Certificate, provers: Sequence[str], time_limit_s: float | None) -> Certificate:
    """Return the certificate with what the provers found about its plan, or about there being none."""
    value = HARD_LIMIT if certificate.objective_ticks is None else certificate.objective_ticks
    proofs = tuple(PROVERS[name](problem, value, time_limit_s) for name in dict.fromkeys(provers))
    judged = [(evaluate(problem, proof.better), proof.better) for proof in proofs if proof.better is not None]
    found = [
        (verdict.objective_ticks, plan.with_figures(verdict.loads_s, verdict.memory_bytes))
        for verdict, plan in judged
        if verdict.legal and verdict.objective_ticks is not None and verdict.objective_ticks < value
    ]
    ticks, better = min(found, key=lambda each: each[0]) if found else (None, None)
    proven = [proof.name for proof in proofs if proof.outcome is Outcome.PROVEN]
    if proven and better is not None:
        raise Disagreement(f"{', '.join(proven)} says that no plan takes less than {value} ticks, one takes {ticks}")
    finding = Finding.INFEASIBLE if certificate.plan is None else Finding.OPTIMAL
    if not proven:
        finding = Finding.UNDECIDED if better is None else Finding.REFUTED
    return Certificate(
        finding,
        certificate.time,
        certificate.time_unit_s,
        certificate.plan,
        certificate.objective_ticks,
        proofs,
        better,
        ticks,
    )


def _checker(problem: Problem, value: int, time_limit_s: float | None) -> Proof:
    """Ask the optimality checker."""
    begin = time.perf_counter()
    verdict = check(problem, value, None if time_limit_s is None else begin + time_limit_s)
    return Proof(
        "checker",
        __version__,
        verdict.outcome,
        value if verdict.holds else None,
        time.perf_counter() - begin,
        {"time_limit_s": time_limit_s},
        _settled(verdict),
        verdict.better,
    )


def _settled(verdict: Verdict) -> str:
    """Say which argument ruled out how many outer choices."""
    ways = {
        "no faster than with fewer replicas": verdict.by_replicas,
        "too slow on average": verdict.by_mean,
        "without the memory": verdict.by_memory,
        "too slow at the nearest levels": verdict.by_levels,
        "closed": len(verdict.closed),
        "not settled": verdict.choices - verdict.settled,
    }
    parts = [f"{count} {way}" for way, count in ways.items() if count]
    return f"{verdict.choices} outer choices: {', '.join(parts) or 'nothing to rule out'}"


MODELS = {"cpsat": "solve_cpsat", "pyomo": "solve_pyomo"}
"""Provers that solve a model of the whole problem, and the functions of `nest.milp` that run them."""


def _model(name: str, problem: Problem, value: int, time_limit_s: float | None) -> Proof:
    """Ask a solver of a model for its own optimum, and compare."""
    begin = time.perf_counter()
    claim = _model_solver(name)(problem, time_limit_s=time_limit_s)
    if str(claim.status) == Status.INFEASIBLE:
        bound, outcome = None, Outcome.PROVEN if value >= HARD_LIMIT else Outcome.UNDECIDED
    else:
        bound = claim.bound
        outcome = Outcome.PROVEN if bound is not None and bound >= value else Outcome.UNDECIDED
    better = getattr(claim, "plan", None)
    if outcome is Outcome.UNDECIDED and better is not None and claim.objective is not None and claim.objective < value:
        outcome = Outcome.REFUTED
    said = "no objective" if claim.objective is None else f"objective {claim.objective} ticks"
    return Proof(
        name,
        f"{claim.solver} {claim.version}",
        outcome,
        bound,
        time.perf_counter() - begin,
        dict(claim.parameters),
        f"says {claim.status}, {said}",
        better if outcome is Outcome.REFUTED else None,
    )


def _model_solver(name: str) -> Callable[..., Any]:
    """Return the function that solves a model, whose package is optional."""
    try:
        solver: Callable[..., Any] = getattr(import_module("nest.milp"), MODELS[name])
    except (ImportError, AttributeError, SolverUnavailable) as fault:
        why = str(fault) if isinstance(fault, SolverUnavailable) else "its package is not installed"
        raise InvalidProblem("--with", f"prover {name!r} is not available", f"{why}; use checker") from None
    return solver


def _everywhere(prover: Prover, problem: Problem, value: int, time_limit_s: float | None) -> Proof:
    """Ask a prover once, or for each choice of what the links are, as far as the budget reaches.

    No choice is left out for being no better than another: the proof does not rest on that.
    """
    if not problem.cluster.menus:
        return prover(problem, value, time_limit_s)
    found = affordable(problem)
    if not found:
        reason = why_none_affordable(problem)
        return Proof("budget", __version__, Outcome.PROVEN, None, 0.0, {}, reason)
    each_s = None if time_limit_s is None else time_limit_s / len(found)
    return _together([prover(problem.built(each.technologies), value, each_s) for each in found])


def _together(proofs: Sequence[Proof]) -> Proof:
    """Return what a prover found about all choices of what the links are: a bound on all is the least of theirs."""
    outcomes = [proof.outcome for proof in proofs]
    worst = next((each for each in (Outcome.REFUTED, Outcome.UNDECIDED) if each in outcomes), Outcome.PROVEN)
    at = outcomes.index(worst)
    bounds = [proof.bound_ticks for proof in proofs if proof.bound_ticks is not None]
    silent = any(proof.bound_ticks is None and proof.outcome is not Outcome.PROVEN for proof in proofs)
    return replace(
        proofs[at],
        bound_ticks=None if silent else min(bounds, default=None),
        wall_s=sum(proof.wall_s for proof in proofs),
        detail=f"{len(proofs)} choices of technologies, one of them: {proofs[at].detail}",
    )


PROVERS: Mapping[str, Prover] = {
    "checker": partial(_everywhere, _checker),
    **{name: partial(_everywhere, partial(_model, name)) for name in MODELS},
}
"""Provers by name."""
