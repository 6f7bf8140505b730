"""Many plans of one problem, judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nest.cost.scale import scale_of
from nest.evaluate import Evaluation, evaluate
from nest.plan import Plan
from nest.problem import Problem


def judged(problem: Problem, plans: Iterable[Plan]) -> Iterator[tuple[Plan, Evaluation]]:
    """Yield plans with what the judge says of each, who looks only once for the tick of the problem."""
    scale = None
    for plan in plans:
        scale = scale or scale_of(problem)
        yield plan, evaluate(problem, plan, scale)
