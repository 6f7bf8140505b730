"""Plans as solutions of the programme under the objective `sum`, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nest.constraints.programme import StageWay
from nest.line import Line
from nest.milp.sum_choices import AnyChoice, SumChoice
from nest.milp.sum_formulation import SumFormulation
from nest.milp.wide_choices import WideChoice
from nest.milp.wide_plans import Walk, walks_of, wide_plan
from nest.places import Placing, Shape, placings
from nest.plan import Plan, Sharding, Stage, inside_stage, over_replicas
from nest.problem import Problem
from nest.tables import GroupedTables


@dataclass(frozen=True, slots=True)
class SumSolution:
    """What is taken: an outer choice, and an arc for each stage, by their indices."""

    choice: int
    arcs: list[int]


NOTHING = SumSolution(-1, [])
"""What is taken for a plan that the programme does not have; no rule lets it pass."""


def decode(made: SumFormulation, solution: SumSolution) -> Plan:
    """Return the plan of a solution; C8 and C9 hold by how it is built."""
    choice = made.choices[solution.choice]
    arcs = sorted(solution.arcs, key=lambda arc: -int(made.arcs.position[arc]))
    if isinstance(choice, WideChoice):
        states, first = made.states_of(choice), made.arcs.first
        stages = [_stage(made, arc, states.start(int(first[arc]))) for arc in arcs]
        return wide_plan(choice, [int(made.arcs.form[arc]) for arc in arcs], stages)
    alike = tuple(_stage(made, arc, start) for arc, start in zip(arcs, choice.starts.tolist(), strict=True))
    plan = Plan(choice.variant, choice.replicas, choice.placing.stride, alike, choice.arrangement, choice.schedule)
    technologies = made.problem.cluster.technologies
    return replace(plan, technologies=technologies, line=choice.placing.line, chunks=choice.chunks)


def _stage(made: SumFormulation, arc: int, start: int) -> Stage:
    layers, tables = made.layers(arc), made.of_arc(arc)
    kind, count = int(made.arcs.kind[arc]), int(made.arcs.layers[arc])
    again = tables.repeating[kind - 1] if kind else None
    every = again is None or count == int(again.able[layers].sum())
    return Stage(
        layers=tuple(tables.graph.layers[layer].id for layer in layers.tolist()),
        first_device=start,
        devices=tables.width,
        recompute="none" if again is None else again.kind,
        sharding=sharding_of(made, arc),
        recomputed=None if every else count,
    )


def sharding_of(made: SumFormulation, arc: int) -> Sharding:
    """Return how the stage of an arc shards."""
    choice, (zero, degree) = made.choices[made.arcs.choice[arc]], made.way(arc).sharding
    shape = choice.tables.shapes[made.arcs.form[arc]] if isinstance(choice, WideChoice) else None
    if shape is None or shape.inside == 1:
        return over_replicas(zero, degree)
    return inside_stage(zero, shape.inside, splits_batch=shape.splits)


def encode(made: SumFormulation, plan: Plan) -> SumSolution | None:
    """Return the solution that is a plan; None where the index sets or `decode` rule it out.

    A plan that another arrangement would place alike is that of the arrangement which comes first.
    """
    if plan.technologies != made.problem.cluster.technologies:
        return None
    at = choice_of(made.problem, made.choices, plan)
    alike = None if at is None else _of_alike(made, at, plan)
    found = (_between(made, walk, plan) for walk in walks_of(made, plan))
    return alike or next((each for each in found if each is not None), None)


def _of_alike(made: SumFormulation, at: int, plan: Plan) -> SumSolution | None:
    """Return the solution that is a plan all of whose stages are alike."""
    choice, arcs = made.choices[at], list[int]()
    cut = choice.stages if choice.chunks > 1 else made.of(choice).cuts - 1
    for position, stage in enumerate(reversed(plan.stages), start=1):
        own = made.by_choice[at]
        among = own[(made.arcs.position[own] == position) & (made.arcs.end[own] == cut)]
        found = _arc_of(made, among.tolist(), made.of(choice), stage)
        if found is None:
            return None
        arcs.append(found)
        cut = int(made.arcs.first[found])
    return SumSolution(at, arcs)


def _between(made: SumFormulation, walk: Walk, plan: Plan) -> SumSolution | None:
    """Return the solution that is a plan whose stages lie between some states."""
    arcs, own, found = made.arcs, made.by_choice[walk.choice], list[int]()
    for at, (stage, form, first, end) in enumerate(zip(plan.stages, walk.forms, walk.firsts, walk.ends, strict=True)):
        same = (arcs.position[own] == len(plan.stages) - at) & (arcs.first[own] == first)
        among = own[same & (arcs.end[own] == end) & (arcs.form[own] == form)]
        arc = _arc_of(made, among.tolist(), made.of(made.choices[walk.choice], form), stage)
        if arc is None:
            return None
        found.append(arc)
    return SumSolution(walk.choice, found)


def choice_of(problem: Problem, choices: Sequence[AnyChoice], plan: Plan) -> int | None:
    """Return the place of the outer choice of a plan all of whose stages are alike.

    None where it is not there, or no arrangement places it so.
    """
    placing = _placing_of(problem, plan)
    if placing is None:
        return None
    wanted = plan.variant, len(plan.stages), plan.replicas, plan.schedule, plan.chunks, *_steps(placing, plan)
    for at, each in enumerate(choices):
        if not isinstance(each, SumChoice):
            continue
        found = each.variant, each.stages, each.replicas, each.schedule, each.chunks, *_steps(each.placing, plan)
        if found == wanted:
            return at
    return None


def _placing_of(problem: Problem, plan: Plan) -> Placing | None:
    """Return the placing of a plan among those of its own arrangement."""
    if plan.arrangement not in problem.preset.arrangements or plan.replicas < 1:
        return None
    cluster, shape = problem.cluster, Shape(plan.variant.width, len(plan.stages), plan.replicas)
    starts = tuple(plan.line.position(stage.first_device) for stage in plan.stages)
    found = placings(plan.arrangement, shape, plan.line.length(cluster.devices), cluster.group_sizes)
    same = (each for each in found if (each.starts(shape.stages), each.stride) == (starts, plan.replica_stride))
    return next((each._replace(line=plan.line) for each in same), None)


def _steps(placing: Placing, plan: Plan) -> tuple[int, int, Line]:
    """Return what of a placing makes a difference to so many stages and replicas."""
    return placing.pitch * (len(plan.stages) > 1), placing.stride * (plan.replicas > 1), placing.line


def _arc_of(made: SumFormulation, among: Sequence[int], tables: GroupedTables, stage: Stage) -> int | None:
    """Return the arc among some of one form that is a stage."""
    known = tables.graph.index
    if any(name not in known for name in stage.layers) or stage.devices != tables.width:
        return None
    layers, again = np.array(sorted(known[name] for name in stage.layers), dtype=np.int64), way_of(tables, stage)
    same = (arc for arc in among if np.array_equal(made.layers(arc), layers))
    ways = ((arc, made.way(arc).recompute, sharding_of(made, arc)) for arc in same)
    return next((arc for arc, *way in ways if way == [again.recompute, stage.sharding]), None)


def way_of(tables: GroupedTables, stage: Stage) -> StageWay:
    """Return how a stage of a plan shards and recomputes, with the number of layers that it says do."""
    again = stage.repeats(tables.graph.named(stage.layers), last=tables.problem.training.recomputes_last)
    count = sum(each is not None for each in again) if stage.recomputed is None else stage.recomputed
    return StageWay((stage.sharding.zero, stage.sharding.degree), (stage.recompute, count))
