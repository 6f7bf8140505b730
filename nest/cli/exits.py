"""Exit codes: what each says, and which failure or answer has which."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from nest.errors import Infeasible, InvalidProblem, LimitReached, SolverUnavailable

if TYPE_CHECKING:
    from nest.certify import Certificate
    from nest.result import Result


class ExitCode(IntEnum):
    """What the exit code of a command says."""

    OK = 0
    REFUTED = 1
    INVALID = 2
    INFEASIBLE = 3
    LIMIT = 4
    INTERNAL = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


FAILURES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (InvalidProblem, ExitCode.INVALID),
    (SolverUnavailable, ExitCode.INVALID),
    (Infeasible, ExitCode.INFEASIBLE),
    (LimitReached, ExitCode.LIMIT),
)
"""The code of each kind of failure; every other kind is an internal error."""


def result_code(result: Result) -> ExitCode:
    """Return the code of a solver's answer: a plan is a success, proven or not."""
    from nest.result import Status

    if result.plan is not None:
        return ExitCode.OK
    return ExitCode.INFEASIBLE if result.status is Status.INFEASIBLE else ExitCode.LIMIT


def finding_code(certificate: Certificate) -> ExitCode:
    """Return the code of what provers found."""
    from nest.certify import Finding

    codes = {Finding.OPTIMAL: ExitCode.OK, Finding.REFUTED: ExitCode.REFUTED, Finding.UNDECIDED: ExitCode.LIMIT}
    return codes.get(certificate.finding, ExitCode.INFEASIBLE)
