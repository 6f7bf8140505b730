"""A plan that was found for the least of something, put to provers: would less do, is as much faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

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


@dataclass(frozen=True, slots=True)
class Asked:
    """Who says of some plans of a problem whether one is the best of them, and whether none takes less.

    Parameters
    ----------
    certify
        Takes a problem and a plan of it.
    prove
        Takes a problem and a number of ticks, of which it is claimed that no plan takes less.
    """

    certify: Callable[[Problem, Plan], Certificate]
    prove: Callable[[Problem, int], Proof]


def _checked(time_limit_s: float | None, problem: Problem, value: int) -> Proof:
    return PROVERS["checker"](problem, value, time_limit_s)


def certify_least(
    problem: Problem,
    plan: Plan,
    quantity: Quantity,
    time_at_most_s: Number,
    *,
    provers: Sequence[str] = ("checker",),
    time_limit_s: float | None = None,
    asked: Asked | None = None,
) -> CertifiedLeast:
    """Ask whether a plan keeps a time with the least of a quantity, and whether none with as little is faster.

    Parameters
    ----------
    provers, time_limit_s
        As of `nest.certify.certify`; about less the checker is asked.
    asked
        Who is asked instead, where some plans alone count, such as those that a framework can run.

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
    limited = amounts.limited(used)
    among = f"plans with at most {amount_text(quantity, amounts.size(used))}"
    kept = f"no plan takes at most {seconds_text(time_at_most_s)}"
    claim = f"with at most {amount_text(quantity, amounts.size(used - 1))}, {kept}"
    if asked is None:
        asked = Asked(partial(certify, provers=provers, time_limit_s=time_limit_s), partial(_checked, time_limit_s))
    certificate = asked.certify(limited, plan)
    if used - 1 <= amounts.none or certificate.finding is Finding.ILLEGAL:
        return CertifiedLeast(limited, certificate, None, claim, among)
    smaller = amounts.limited(used - 1)
    value = min(Fraction(repr(time_at_most_s)) // scale.time.tick + 1, HARD_LIMIT)
    less = asked.prove(smaller, value)
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
