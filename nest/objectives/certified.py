"""A plan that was found for the least of something, put to provers: would less do, is as much faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from nest.certificate import Outcome
from nest.certify import PROVERS, Certificate, Finding, Proof, certify
from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.objectives.least import QUANTITIES, Quantity, amount_text, seconds_text
from nest.plan import Plan
from nest.problem import Problem
from nest.units import HARD_LIMIT, Number


@dataclass(frozen=True, slots=True)
class CertifiedLeast:
    """What provers found about a plan that keeps a time with the least of something.

    Parameters
    ----------
    problem
        The problem of the plans that use no more than the plan does.
    certificate
        About the plan among these; refuted also by a plan that keeps the time with less.
    less
        What the checker found about the claim that no plan with less keeps the time; None where nothing is less, or the
        plan breaks a rule.
    claim, among
        That claim, and which plans the certificate is about, in words.
    """

    problem: Problem
    certificate: Certificate
    less: Proof | None
    claim: str
    among: str


def certify_least(
    problem: Problem,
    plan: Plan,
    quantity: Quantity,
    time_at_most_s: Number,
    *,
    provers: Sequence[str] = ("checker",),
    time_limit_s: float | None = None,
) -> CertifiedLeast:
    """Ask whether a plan keeps a time with the least of a quantity, and whether none with as little is faster.

    Parameters
    ----------
    provers, time_limit_s
        As of `nest.certify.certify`; about less the checker is asked.

    Raises
    ------
    InvalidProblem
        If the quantity is none, or as `nest.certify.certify`.
    """
    if quantity not in QUANTITIES:
        raise InvalidProblem("minimized", f"{quantity!r}", f"give one of {', '.join(QUANTITIES)}")
    scale = scale_of(problem)
    amounts = QUANTITIES[quantity](problem, scale)
    used = amounts.used(plan)
    limited, smaller = amounts.limited(used), amounts.limited(used - 1)
    among = f"plans with at most {amount_text(quantity, amounts.size(used))}"
    kept = f"no plan takes at most {seconds_text(time_at_most_s)}"
    claim = f"with at most {amount_text(quantity, amounts.size(used - 1))}, {kept}"
    certificate = certify(limited, plan, provers=provers, time_limit_s=time_limit_s)
    if used - 1 <= amounts.none or certificate.finding is Finding.ILLEGAL:
        return CertifiedLeast(limited, certificate, None, claim, among)
    value = min(Fraction(repr(time_at_most_s)) // scale.time.tick + 1, HARD_LIMIT)
    less = PROVERS["checker"](smaller, value, time_limit_s)
    return CertifiedLeast(limited, _with(certificate, smaller, less), less, claim, among)


def _with(certificate: Certificate, smaller: Problem, less: Proof) -> Certificate:
    """Return a certificate that also says what was found about less."""
    if less.better is not None:
        verdict = evaluate(smaller, less.better)
        if verdict.legal and verdict.objective_ticks is not None:
            better = less.better.with_figures(verdict.loads_s, verdict.memory_bytes)
            return replace(certificate, finding=Finding.REFUTED, better=better, better_ticks=verdict.objective_ticks)
    if less.outcome is not Outcome.PROVEN and certificate.finding is Finding.OPTIMAL:
        return replace(certificate, finding=Finding.UNDECIDED)
    return certificate
