"""Claims that prove an answer, the side constraint on memory that they need, and what the checker says to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from nest.certificate import Outcome
from nest.certify import PROVERS, Proof
from nest.constraints import LocalConstraint
from nest.constraints.checks import written
from nest.evaluate import evaluate
from nest.problem import Problem
from nest.solve import Disagreement
from nest.units import Number


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that no plan of a problem takes less than a number of ticks.

    ``nest.certificate.check(claim.problem, claim.value)`` proves or refutes it without the solver.

    Parameters
    ----------
    problem, value
        The problem, with the side constraint on what plans may use, and the ticks.
    text
        What that means.
    """

    problem: Problem
    value: int
    text: str


@dataclass(frozen=True)
class MemoryAtMost(LocalConstraint):
    """No more than ``bytes`` of memory on any device."""

    bytes: Number

    kind: ClassVar[str] = "memory_at_most"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {written(self.bytes)} bytes on each device"

    def memory_limit(self, problem: Problem) -> Number:  # noqa: ARG002 - a hook
        """Return how many bytes a stage may take on a device."""
        return self.bytes


def confirm_claims(claims: Iterable[Claim], time_limit_s: float | None = None) -> tuple[Proof, ...]:
    """Return what the checker finds about each claim, in at most so many seconds each.

    Raises
    ------
    Disagreement
        If it refutes one with a legal plan: a fault of ours.
    """
    return tuple(_confirm(claim, time_limit_s) for claim in claims)


def _confirm(claim: Claim, time_limit_s: float | None) -> Proof:
    proof = PROVERS["checker"](claim.problem, claim.value, time_limit_s)
    if proof.better is None:
        return proof
    if evaluate(claim.problem, proof.better).legal:
        raise Disagreement(f"the solver says: {claim.text}; the checker has a plan")
    return replace(proof, outcome=Outcome.UNDECIDED, better=None)  # a side constraint that the checker does not keep
