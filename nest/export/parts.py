"""The best plan whose stages are alike in what a framework has one setting for: a search that parts the space.

The best plan of a part, where stages are free to differ, bounds all of its plans. Where its stages differ, the part is
parted by what they differ in, such that no part has that plan, and every plan whose stages are alike is in one. Parts
come in the order of their bounds, so that a plan whose stages are alike is the best once no part has a lower bound.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple

from nest.constraints import LocalConstraint, Outer
from nest.evaluate import evaluate
from nest.export.base import Framework, Inexpressible, able_layers, same_recompute
from nest.plan import Plan, Sharding, Stage, over_replicas
from nest.problem import RECOMPUTE, Problem, Recompute
from nest.result import Report, Result, Status
from nest.solve import solve

COMPLETE = (Status.INFEASIBLE, Status.NONE_BETTER)
"""What there is to say of a part without a plan of interest."""


class AlikeSearch:
    """Searches the plans of a problem that a framework can run.

    Parameters
    ----------
    problem
        Whose plans the framework can run, but that stages may differ.
    framework
        The framework.
    report, better_than, within
        As in `nest.solve.solve`.

    Attributes
    ----------
    parts
        Once the search is over: problems that hold, together, every plan that the framework can run. If the best plan
        is proven to be the best, no plan of them takes less, whether its stages are alike or not.
    """

    def __init__(
        self,
        problem: Problem,
        framework: Framework,
        report: Report | None,
        better_than: int | None = None,
        within: float = 0.0,
    ) -> None:
        self.problem, self.framework, self.report = problem, framework, report
        self.better_than, self.within = better_than, within
        self.best_found: Result | None = None
        self._closed: list[Problem] = []
        self._none_better = False
        self._open: list[tuple[int, int, Problem]] = []
        self._count = 0
        for part in opening(problem, framework):
            self._add(0, part)

    def best(self, end: float | None) -> Result:
        """Return the best plan, or the best by a time as `time.perf_counter` has it, with the bound of what is open."""
        last: Result | None = None
        while self._open and self._is_wanted(self._open[0][0]):
            left = None if end is None else max(end - time.perf_counter(), 0.0)
            if last is not None and left == 0:
                break
            bound, _, part = heapq.heappop(self._open)
            last = solve(part, time_limit_s=left, report=self.report, better_than=self._least, within=self.within)
            self._take(last, part, bound)
        if last is None:  # no plan takes less than nothing
            return solve(self.problem, better_than=self.better_than)
        return self._settled(last)

    @property
    def parts(self) -> tuple[Problem, ...]:
        """Problems that hold every plan which the framework can run."""
        return (*self._closed, *(part for _, _, part in self._open))

    @property
    def _least(self) -> int | None:
        return self.better_than if self.best_found is None else self.best_found.objective_ticks

    def _is_wanted(self, bound: int) -> bool:
        """Whether a part with such a bound may have a plan that is better than the best by enough."""
        least = self._least
        return least is None or bound < (least if self.best_found is None else (1 - self.within) * least)

    def _add(self, bound: int, part: Problem) -> None:
        self._count += 1
        heapq.heappush(self._open, (bound, self._count, part))

    def _take(self, result: Result, part: Problem, bound: int) -> None:
        """Enter what was found of a part, and what is left of it."""
        bound = max(bound, result.bound_ticks or 0)
        if result.plan is None:
            if result.status in COMPLETE:
                self._closed.append(part)
                self._none_better |= result.status is Status.NONE_BETTER
            else:
                self._add(bound, part)
            return
        parts = parted(part, result.plan, self.framework)
        for more in parts:
            self._add(bound, more)
        if parts:
            self._offer_alike(result)
            return
        self._offer(result)
        if result.status is Status.OPTIMAL:
            self._closed.append(part)
        else:
            self._add(bound, part)

    def _offer(self, result: Result) -> None:
        least = self._least
        if least is None or (result.objective_ticks is not None and result.objective_ticks < least):
            self.best_found = result

    def _offer_alike(self, result: Result) -> None:
        """Offer the same cuts with stages that are alike, wherever that is legal."""
        assert result.plan is not None, "there are cuts"
        for plan in alike_plans(self.problem, result.plan):
            if parted(self.problem, plan, self.framework):
                continue
            verdict = evaluate(self.problem, plan)
            if verdict.legal and verdict.objective_ticks is not None:
                judged = plan.with_figures(verdict.loads_s, verdict.memory_bytes)
                self._offer(replace(result, plan=judged, objective_ticks=verdict.objective_ticks))

    def _settled(self, last: Result) -> Result:
        """Return the best result as that of all parts."""
        found, bounds = self.best_found, [bound for bound, *_ in self._open]
        if found is None:
            return self._none(last, bounds)
        least = found.objective_ticks
        assert least is not None, "it is a plan's"
        bound = min([least, *bounds])
        proven = bound == least
        status = Status.OPTIMAL if proven else Status.FEASIBLE
        return replace(found, bound_ticks=bound, status=status, reason=None if proven else last.reason or found.reason)

    def _none(self, last: Result, bounds: list[int]) -> Result:
        """Return that there is no plan, none that is better than it has to be, or that it is not known."""
        value, bound = self.better_than, min(bounds, default=None)
        if value is not None and (self._none_better or bound is not None) and (bound is None or bound >= value):
            status, bound = Status.NONE_BETTER, value
        else:
            status = Status.INFEASIBLE if bound is None else Status.UNKNOWN
        return replace(last, status=status, bound_ticks=bound, plan=None, objective_ticks=None)


@dataclass(frozen=True)
class Interleaves(LocalConstraint):
    """A side constraint: outer choices whose microbatches a framework can interleave.

    Parameters
    ----------
    framework
        The framework.
    """

    framework: Framework

    kind: ClassVar[str] = "interleaves"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"{self.framework.title} can interleave the microbatches"

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether the framework takes so many microbatches of a replica in turn."""
        microbatches = -(-problem.microbatches(outer.variant) // outer.replicas)
        return not self.framework.turn_faults(outer.stages, microbatches)


def opening(problem: Problem, framework: Framework) -> list[Problem]:
    """Return parts of a problem that hold all that a framework can run: plans with chunks are one by themselves.

    Frameworks count layers that recompute in each chunk, a plan in each stage: with chunks all recompute, or none.
    """
    schedules = problem.choices.schedules
    if "interleaved" not in schedules:
        return [problem]
    chunked = all_layers(problem.with_choices(schedules=frozenset({"interleaved"})))
    chunked = chunked.with_constraints(*problem.constraints, Interleaves(framework))
    others = schedules - {"interleaved"}
    return [chunked, problem.with_choices(schedules=others, chunks=None)] if others else [chunked]


def all_layers(problem: Problem) -> Problem:
    """Return the problem with all layers of a stage that can recomputing, where any do."""
    return problem.with_choices(recomputed=frozenset({max(_numbers(problem))}))


def _numbers(problem: Problem) -> frozenset[int]:
    """Return the numbers of layers that may recompute; as many as the model has stand for all."""
    most = max(len(graph) for graph in problem.graphs.values())
    allowed = problem.choices.recomputed
    return frozenset(range(1, most + 1)) if allowed is None else frozenset(min(each, most) for each in allowed)


def parted(problem: Problem, plan: Plan, framework: Framework) -> list[Problem]:
    """Return parts of a problem without a plan that a framework cannot run; nothing where it can run it.

    All that the framework can run of the problem is in the parts.
    """
    changes = _parts(problem, plan, framework)
    return [problem.with_choices(**each) for each in changes if all(each.values())]


def _parts(problem: Problem, plan: Plan, framework: Framework) -> list[dict[str, Any]]:
    """Return the choices that make the parts; where one of them has no values, there is no such part."""
    outer, choices = Outer(plan.variant, len(plan.stages), plan.replicas), problem.choices
    types = {stage.sharding.zero for stage in plan.stages}
    degrees = {stage.sharding.degree for stage in plan.stages}
    apart = len(degrees) > 1 or bool(framework.degree_faults(min(degrees), outer))
    wrong_type = len(types) > 1 or bool(framework.zero_faults(min(types), outer))
    if wrong_type or (apart and len(choices.zero) > 1):
        return [{"zero": frozenset({zero})} for zero in sorted(choices.zero)]
    if apart:
        return _by_degree(problem, max(degrees))
    if _recomputes_alike(problem, plan, framework):
        return []
    kinds = choices.stage_recompute or frozenset(RECOMPUTE)
    if len(kinds) > 1:
        return [_of_kind(problem, kind, framework) for kind in sorted(kinds)]
    return _by_number(problem, plan)


def _by_degree(problem: Problem, degree: int) -> list[dict[str, Any]]:
    allowed = problem.choices.zero_degree or range(2, problem.cluster.devices + 1)
    less, more = (each for each in allowed if each < degree), (each for each in allowed if each > degree)
    return [{"zero_degree": frozenset(values)} for values in (less, [degree], more)]


def _recomputes_alike(problem: Problem, plan: Plan, framework: Framework) -> bool:
    try:
        return not framework.recompute_faults(*same_recompute(problem, plan, framework.title), plan.chunks)
    except Inexpressible:
        return False


def _of_kind(problem: Problem, kind: Recompute, framework: Framework) -> dict[str, Any]:
    only: dict[str, Any] = {"stage_recompute": frozenset({kind})}
    some = kind in framework.parts and not problem.training.recomputes_last
    return only if some else only | {"recomputed": all_layers(problem).choices.recomputed}


def _by_number(problem: Problem, plan: Plan) -> list[dict[str, Any]]:
    """Part by the most layers that a stage recomputes: the others, too, have as many, or none has."""
    most = max(each.layers for each in _repeating(problem, plan))
    numbers = _numbers(problem)
    fewer, enough = (each for each in numbers if each < most), (each for each in numbers if each >= most)
    return [{"recomputed": frozenset(values)} for values in (enough, fewer)]


class _Again(NamedTuple):
    """What a stage recomputes, and in how many layers."""

    kind: Recompute
    layers: int


def _repeating(problem: Problem, plan: Plan) -> list[_Again]:
    """Return what the stages recompute that do."""
    found = []
    for at, stage in enumerate(plan.stages):
        if stage.recompute != "none":
            able = able_layers(problem, plan, stage.recompute)[at]
            found.append(_Again(stage.recompute, stage.recomputed or able))
    return found


def alike_plans(problem: Problem, plan: Plan) -> Iterator[Plan]:
    """Yield plans of the same cuts whose stages all shard and recompute as some of them do, or as most of them can."""
    ranks = problem.copy_ranks(plan.variant, plan.replicas)[0]
    shardings = {stage.sharding for stage in plan.stages}
    shardings |= {over_replicas(each.zero, ranks) for each in shardings}
    again = _repeating(problem, plan)
    ways = {_Again("none", 0)} if len(again) < len(plan.stages) else set()
    for kind in {each.kind for each in again}:
        able = max(able_layers(problem, plan, kind))
        ways |= {_Again(kind, max(each.layers for each in again if each.kind == kind)), _Again(kind, able)}
    for sharding, way in product(sorted(shardings, key=str), sorted(ways)):
        yield replace(plan, stages=tuple(_alike(problem, plan, sharding, way)))


def _alike(problem: Problem, plan: Plan, sharding: Sharding, way: _Again) -> Iterator[Stage]:
    """Yield the stages of a plan, sharded and recomputing in one way."""
    for stage, able in zip(plan.stages, able_layers(problem, plan, way.kind), strict=True):
        kind: Recompute = way.kind if able else "none"
        yield replace(stage, sharding=sharding, recompute=kind, recomputed=way.layers if able > way.layers else None)
