"""The objective ``simulated``, exactly: of given plans, one whose simulated iteration is shortest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nest.cost.scale import scale_of
from nest.cost.schedules import Schedule, least_by_wait
from nest.evaluate import evaluate, pipeline_of, sync_of
from nest.pipeline import Pipeline, simulate
from nest.plan import Plan
from nest.problem import Problem

ONE_FORWARD_ONE_BACKWARD = Schedule("1f1b")


@dataclass(frozen=True, slots=True)
class Best:
    """The best of some plans under 1F1B.

    Parameters
    ----------
    plan, ticks
        A plan, and its iteration as simulated, synchronisation included.
    legal, simulated
        How many of the plans are legal, and how many were simulated to be sure.
    """

    plan: Plan
    ticks: int
    legal: int
    simulated: int


def best_simulated(problem: Problem, plans: Iterable[Plan]) -> Best | None:
    """Return the best of some plans, or None if none is legal.

    Plans are simulated in the order of a lower bound on their iteration (`least_by_wait`, plus synchronisation), until
    that of the next is no less than the shortest iteration so far: then none of those left is better. For problems so
    small that all their plans can be listed and judged.
    """
    queue = sorted(
        (
            (_least(pipeline) + sync, at, plan, pipeline, sync)
            for at, (plan, pipeline, sync) in enumerate(_legal(problem, plans))
        ),
        key=lambda entry: entry[:2],
    )
    best: tuple[int, Plan] | None = None
    simulated = 0
    for least, _, plan, pipeline, sync in queue:
        if best is not None and least >= best[0]:
            break
        ticks = simulate(pipeline, ONE_FORWARD_ONE_BACKWARD).makespan + sync
        simulated += 1
        if best is None or ticks < best[0]:
            best = ticks, plan
    return None if best is None else Best(best[1], best[0], len(queue), simulated)


def _legal(problem: Problem, plans: Iterable[Plan]) -> Iterable[tuple[Plan, Pipeline, int]]:
    """Yield the legal plans with their pipelines and their synchronisation."""
    scale = scale_of(problem)
    for plan in plans:
        evaluation = evaluate(problem, plan, scale)
        if evaluation.legal:
            yield plan, pipeline_of(problem, plan, evaluation), sync_of(problem, evaluation)


def _least(pipeline: Pipeline) -> int:
    forwards = [stage.forward_pass for stage in pipeline.stages]
    return least_by_wait(forwards, pipeline.loads, pipeline.microbatches)
