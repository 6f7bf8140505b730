"""What a solver says about a problem: a claim, to be judged before anyone relies on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nest.plan import Plan
from nest.result import Status


@dataclass(frozen=True, slots=True)
class Claim:
    """What a solver claims, and which solver it was.

    Attributes
    ----------
    objective
        Ticks that the plan takes, as the solver has it; an incumbent's largest load may be stated too high.
    bound
        Ticks that every plan takes at least, as the solver has it.
    solver, version, parameters
        What made the claim; ``"index sets"`` where there is no path, so that no solver had to run.
    exact
        Whether the solver computed in whole numbers.
    """

    status: Status
    plan: Plan | None
    objective: int | None
    bound: int | None
    solver: str
    version: str
    parameters: Mapping[str, float | int | str]
    wall_s: float
    exact: bool


NO_PATH = Claim(Status.INFEASIBLE, None, None, None, "index sets", "", {}, 0.0, exact=True)
"""No path leads through stages that fit, to an allowed number of stages with a number of replicas."""
