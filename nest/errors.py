"""The ways in which a request can fail, one class for each answer a caller can act on."""

from __future__ import annotations


class NestError(Exception):
    """Base of every error that `nest` raises on purpose."""


class InvalidProblem(NestError):
    """The problem as given makes no sense: names where, what, and what would be right.

    Parameters
    ----------
    where
        Path of the key, as in ``cluster.levels[2].fanout``.
    problem
        What is wrong with it, with the value.
    remedy
        What would be right.
    source
        File that holds the key; filled in by the readers.
    """

    def __init__(self, where: str, problem: str, remedy: str = "", source: str = "") -> None:
        self.where, self.problem, self.remedy, self.source = where, problem, remedy, source
        super().__init__(where, problem, remedy, source)

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.source, self.where, self.problem) if part)
        line = f"{head}; {self.remedy}" if self.remedy else head
        return " ".join(line.split())

    def at(self, source: str) -> InvalidProblem:
        """Return the same error, naming the file it came from."""
        return type(self)(self.where, self.problem, self.remedy, source)


class InvalidPlan(InvalidProblem):
    """A plan that is not even a plan of this problem (an unknown layer, a missing key)."""


class Infeasible(NestError):
    """No plan exists; the message is the reason that rules out the most."""


class LimitReached(NestError):
    """A limit (of time) was reached before the work was done."""


class OutOfScope(InvalidProblem):
    """A problem that the solver asked for does not cover, although another one does."""


class SolverUnavailable(NestError):
    """The package of a solver is not installed; the message says how to get it."""
