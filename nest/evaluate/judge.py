"""Judging a plan: rules, price, side constraints."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from nest.constraints import Filters, Outer, Whole
from nest.constraints.judge import broken
from nest.cost.scale import Scale, scale_of
from nest.cost.schedule import iteration, summed
from nest.cost.schedules import Schedule
from nest.errors import InvalidPlan
from nest.evaluate.crossing import crossing
from nest.evaluate.grouped import grouped_figures
from nest.evaluate.levelled import levelled_figures
from nest.evaluate.played import chunk_times, stage_times
from nest.evaluate.rules import (
    choice_violations,
    chunk_violations,
    cover_violations,
    memory_violations,
    of_own_widths,
    placement_violations,
    priced_sharding,
    range_violations,
    technology_violations,
)
from nest.evaluate.verdict import Evaluation, StageFigures, Violation
from nest.graph import LayerGraph
from nest.pipeline import Pipeline, simulate
from nest.plan import Plan, Stage
from nest.problem import Problem
from nest.units import bytes_of


def evaluate(problem: Problem, plan: Plan, scale: Scale | None = None) -> Evaluation:
    """Judge a plan.

    Parameters
    ----------
    scale
        That of the problem, where whoever asks has it: to find it takes a look at all variants.

    Returns
    -------
    Evaluation
        Price, figures by stage, and every violated rule.

    Raises
    ------
    InvalidPlan
        If the plan names a layer or a variant that the problem does not have, or has no stage.
    InvalidProblem
        If nobody prices as the preset says.
    OutOfScope
        If stages have widths of their own and a side constraint is one for stages of one width.
    """
    problem.preset.require_prices()
    graph = _graph(problem, plan)
    scale = scale or scale_of(problem)
    technology, technologies = list(technology_violations(problem, plan)), problem.cluster.named(plan.technologies)
    violations = [*choice_violations(problem, plan), *chunk_violations(problem, plan)]
    violations += [*technology, *cover_violations(graph, plan)]
    if technologies is None or any(violation.rule in ("cover", "order") for violation in violations):
        return Evaluation(scale, None, (), tuple(violations))
    problem = problem.built(technologies)
    placement = list(placement_violations(problem, plan))
    violations += placement
    if (
        plan.schedule not in problem.preset.schedules
        or (plan.chunks > 1) != (plan.schedule == "interleaved")
        or plan.replicas < 1
        or any(violation.rule == "devices" for violation in placement)
    ):
        return Evaluation(scale, None, (), tuple(violations))
    priced = grouped_figures if problem.preset.collectives == "groups" else levelled_figures
    figures = tuple(priced(problem, plan, graph, scale))
    violations += memory_violations(problem, scale, figures)
    objective, sync = _objective(problem, plan, scale, figures)
    violations += range_violations(scale, max(stage.load for stage in figures), objective)
    if problem.constraints:
        if of_own_widths(problem, plan):
            Filters(problem).require_limits("stages")
        whole = _whole(problem, plan, scale, figures, (objective, sync))
        if Filters(problem).crossed:
            whole = replace(whole, crossing=crossing(problem, plan, scale))
        memory = [bytes_of(stage.memory, scale.quanta_per_byte) for stage in figures]
        violations += [Violation(kind, how) for kind, how in broken(problem, whole, memory)]
    return Evaluation(scale, objective, figures, tuple(violations))


def _objective(problem: Problem, plan: Plan, scale: Scale, figures: tuple[StageFigures, ...]) -> tuple[int, int]:
    """Return the time of an iteration, and of the synchronisation in it."""
    counted = figures if problem.preset.sync_all_stages else figures[:1]
    sync, load = max(stage.sync for stage in counted), max(stage.load for stage in figures)
    microbatches = problem.microbatches(plan.variant)
    each = -(-microbatches // plan.replicas)
    if problem.preset.objective == "simulated":
        pipeline = Pipeline(stage_times(problem, plan, scale, figures), each, chunks=chunk_times(figures))
        return simulate(pipeline, Schedule(plan.schedule, plan.chunks)).makespan + sync, sync
    if problem.preset.objective == "sum":
        return summed(sum(stage.load for stage in figures), load, each, sync, plan.chunks), sync
    return iteration(load, microbatches, plan.replicas, len(figures), sync), sync


def _graph(problem: Problem, plan: Plan) -> LayerGraph:
    if not plan.stages:
        raise InvalidPlan("stages", "the plan has no stage", "give at least one")
    for at, stage in enumerate(plan.stages):
        if stage.sharding.splits_batch and plan.variant.microbatch % stage.inside:
            what = f"{stage.inside} parts of a microbatch of {plan.variant.microbatch} sequences"
            raise InvalidPlan(f"stages[{at}].sharding", what, "give a degree that divides it, or splits_batch = false")
    for variant in (plan.variant, *plan.stage_variants):
        if variant not in problem.graphs:
            raise InvalidPlan("plan", f"the problem has no costs for {variant}", "use a variant of the problem")
    graph = problem.graphs[plan.variant]
    index = graph.index
    for at, stage in enumerate(plan.stages):
        for name in stage.layers:
            if name not in index:
                raise InvalidPlan(f"stages[{at}].layers", f"{name!r} is no layer of the problem", "name a layer's id")
    return graph


def _whole(
    problem: Problem, plan: Plan, scale: Scale, figures: tuple[StageFigures, ...], times: tuple[int, int]
) -> Whole:
    """Return a plan as side constraints see it; ``times`` are of an iteration, and of the synchronisation in it."""
    (objective, sync), graph = times, problem.graphs[plan.variant]
    ends = list(accumulate(len(stage.layers) for stage in plan.stages))
    return Whole(
        Outer(plan.variant, len(plan.stages), plan.replicas),
        tuple(zip([0, *ends], ends, strict=False)),
        tuple(stage.first_device for stage in plan.stages),
        tuple(stage.devices for stage in plan.stages),
        tuple(priced_sharding(problem, stage) for stage in plan.stages),
        plan.replica_stride,
        tuple(scale.time.seconds(stage.load) for stage in figures),
        scale.time.seconds(sync),
        scale.time.seconds(objective),
        tuple(_recomputed(problem, graph, stage) for stage in plan.stages),
        objective * scale.time.tick,
        plan.used_devices,
        plan.line,
    )


def _recomputed(problem: Problem, graph: LayerGraph, stage: Stage) -> tuple[str, int | None]:
    """Return what a stage recomputes, and, where each stage chooses, in how many layers, however the plan says it."""
    if problem.preset.recompute == "choices":
        return stage.recompute, None
    again = stage.repeats(graph.named(stage.layers), last=problem.training.recomputes_last)
    return stage.recompute, sum(each is not None for each in again)
