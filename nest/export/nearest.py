"""The best plan that a framework can run, and the one nearest to a plan that it cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from nest.constraints import LocalConstraint, Mask, Outer, Site
from nest.constraints import Run as Layers
from nest.errors import Infeasible
from nest.export.base import Framework, Inexpressible, same_sharding
from nest.export.numbers import ModelNumbers, numbers_of
from nest.plan import Plan
from nest.problem import Choices, Problem
from nest.result import Report, Result, Status
from nest.runs import Run
from nest.solve import solve


@dataclass(frozen=True)
class RunsOn(LocalConstraint):
    """A side constraint: plans that a framework can run, as far as it is settled by the outer choice and by places.

    Parameters
    ----------
    framework, run, model
        The framework, what is trained, and the numbers of its model.
    """

    framework: Framework
    run: Run
    model: ModelNumbers

    kind: ClassVar[str] = "runs_on"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"{self.framework.title} can run it"

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether the framework has the widths, and one of the ZeRO types that are allowed."""
        framework, again = self.framework, outer.variant.recompute
        if framework.faults(self.run, self.model, outer) or framework.recompute_faults(again):
            return False
        return not all(framework.zero_faults(zero, outer) for zero in problem.choices.zero)

    def admits_place(self, problem: Problem, outer: Outer, run: Layers, site: Site) -> Mask:  # noqa: ARG002 - a hook
        """Return all where the replicas of a stage are neighbours, none otherwise."""
        fits = outer.replicas == 1 or outer.stages == 1 or site.stride == outer.variant.width
        return np.full(np.broadcast(run.first, run.end, site.start).shape, fits)


def problem_for(problem: Problem, run: Run, framework: Framework) -> Problem:
    """Return the problem of the plans that a framework can run, but that stages may have ZeRO types of their own.

    Raises
    ------
    Infeasible
        If the framework has none of the ZeRO types that the problem allows.
    InvalidProblem
        If the model is none that frameworks have.
    """
    zeros = problem.choices.zero & framework.zeros
    if not zeros:
        types = ", ".join(map(str, sorted(framework.zeros)))
        raise Infeasible(f"{framework.title} has ZeRO types {types}, of which the problem allows none")
    constraint = RunsOn(framework, run, numbers_of(run.model))
    return problem.with_constraints(*problem.constraints, constraint).with_choices(zero=zeros)


def best_for(
    problem: Problem,
    run: Run,
    framework: Framework,
    *,
    time_limit_s: float | None = None,
    report: Report | None = None,
) -> Result:
    """Find the best plan that a framework can run.

    It has one ZeRO type for all stages. Stages are free to have their own at first; only where the best such plan mixes
    them, the best plan of each type is found.

    Parameters
    ----------
    problem, run
        A problem, and the run that posed it.
    time_limit_s, report
        As in `nest.solve.solve`; the limit is of all types together.

    Returns
    -------
    Result
        Its bound is of all plans that the framework can run.

    Raises
    ------
    Infeasible, InvalidProblem
        As `problem_for` does.
    """
    begin = time.perf_counter()
    asked = problem_for(problem, run, framework)
    zeros = asked.choices.zero
    found = [solve(asked, time_limit_s=time_limit_s, report=report)]
    if found[0].plan is not None and _mixed(found[0].plan, framework):
        found = []
        for zero in sorted(zeros):
            left = None if time_limit_s is None else max(0.0, time_limit_s - (time.perf_counter() - begin))
            least = min((each.objective_ticks for each in found if each.objective_ticks is not None), default=None)
            one = asked.with_choices(zero=frozenset({zero}))
            found.append(solve(one, time_limit_s=left, report=report, better_than=least))
    return replace(
        _together(found), wall_s=time.perf_counter() - begin, choice=f"the best that {framework.title} can run"
    )


def _mixed(plan: Plan, framework: Framework) -> bool:
    """Whether stages differ in their ZeRO type, or have one that does not go with the outer choice."""
    try:
        zero, _ = same_sharding(plan, framework.title)
    except Inexpressible:
        return True
    return bool(framework.zero_faults(zero, Outer(plan.variant, len(plan.stages), plan.replicas)))


def _together(found: Sequence[Result]) -> Result:
    """Return the best of results for parts of a space, as the result for the space."""
    planned = [each for each in found if each.objective_ticks is not None]
    open_ = [each for each in found if each.status is not Status.INFEASIBLE]
    if not open_:
        return found[0]
    bounds = [each.bound_ticks for each in open_]
    bound = None if None in bounds else min(each for each in bounds if each is not None)
    if not planned:
        return replace(open_[0], bound_ticks=bound)
    best = min(planned, key=lambda each: each.objective_ticks or 0)
    proven = bound is not None and best.objective_ticks is not None and bound >= best.objective_ticks
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    reason = None if proven else next((each.reason for each in open_ if each.status is not Status.NONE_BETTER), None)
    return replace(best, bound_ticks=best.objective_ticks if proven else bound, status=status, reason=reason)


def nearest(problem: Problem, run: Run, plan: Plan, framework: Framework, time_limit_s: float | None = None) -> Result:
    """Return the best plan that a framework can run and that keeps as much of a plan's outer choice as can be.

    Variant, stages and replicas are kept if some such plan exists, else the variant, else nothing.

    Raises
    ------
    Inexpressible
        If the framework can run no plan of the problem.
    """
    result: Result | None = None
    for choices in _ever_wider(problem.choices, plan):
        result = best_for(replace(problem, choices=choices), run, framework, time_limit_s=time_limit_s)
        if result.plan is not None:
            return result
    why = "" if result is None or result.reason is None else f": {result.reason}"
    raise Inexpressible("problem", f"{framework.title} can run no plan of it{why}")


def _ever_wider(choices: Choices, plan: Plan) -> Iterator[Choices]:
    """Yield the choices that leave a plan's outer choice, then its variant, then all that the problem has."""
    variant = plan.variant
    same = replace(
        choices,
        tensor=frozenset({variant.tensor}),
        expert=frozenset({variant.expert}),
        context=frozenset({variant.context}),
        microbatch=frozenset({variant.microbatch}),
        sequence=variant.sequence,
        variant_recompute=frozenset({variant.recompute}),
    )
    yield replace(same, stages=frozenset({len(plan.stages)}), replicas=frozenset({plan.replicas}))
    yield same
    yield choices
