"""What is answered to a problem on a graph with branches."""

from __future__ import annotations

from dataclasses import dataclass

from nest.dag.load import Load
from nest.dag.plan import DagStage, Price
from nest.dag.problem import DagProblem
from nest.result import Status


@dataclass(frozen=True, slots=True)
class DagResult:
    """Answer to a problem; loads are in parts of a tick, `value` turns them into the problem's unit of time.

    Parameters
    ----------
    objective, bound
        Judged largest load of the plan, and a load that no plan is below; None where there is none.
    stages, prices
        The plan in pipeline order, and what the judge says that each stage costs; empty where there is no plan.
    reason
        Why there is no plan, or why the search stopped or left something out.
    downsets
        How many were searched.
    complete
        Whether these are all there are.
    wall_s
        How long it took.
    """

    problem: DagProblem
    load: Load
    status: Status
    objective: int | None
    bound: int | None
    stages: tuple[DagStage, ...]
    prices: tuple[Price, ...]
    reason: str
    downsets: int
    complete: bool
    wall_s: float

    @property
    def value(self) -> float | None:
        """Objective in the problem's unit of time."""
        return None if self.objective is None else self.load.value(self.objective)

    @property
    def bound_value(self) -> float | None:
        """Bound in the problem's unit of time."""
        return None if self.bound is None else self.load.value(self.bound)
