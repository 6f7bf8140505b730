"""Plans as solutions of the programme under the objective `sum`, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nest.constraints.programme import StageWay
from nest.line import Line
from nest.milp.sum_choices import SumChoice
from nest.milp.sum_formulation import SumFormulation
from nest.places import Placing, Shape, placings
from nest.plan import Plan, Stage, over_replicas
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
    tables = made.of(choice)
    arcs = sorted(solution.arcs, key=lambda arc: -int(made.arcs.position[arc]))
    stages = tuple(_stage(made, tables, arc, start) for arc, start in zip(arcs, choice.starts.tolist(), strict=True))
    plan = Plan(choice.variant, choice.replicas, choice.placing.stride, stages, choice.arrangement, choice.schedule)
    technologies = made.problem.cluster.technologies
    return replace(plan, technologies=technologies, line=choice.placing.line, chunks=choice.chunks)


def _stage(made: SumFormulation, tables: GroupedTables, arc: int, start: int) -> Stage:
    layers = made.layers(arc)
    kind, count = int(made.arcs.kind[arc]), int(made.arcs.layers[arc])
    again = tables.repeating[kind - 1] if kind else None
    every = again is None or count == int(again.able[layers].sum())
    return Stage(
        layers=tuple(tables.graph.layers[layer].id for layer in layers.tolist()),
        first_device=start,
        devices=tables.width,
        recompute="none" if again is None else again.kind,
        sharding=over_replicas(*made.way(arc).sharding),
        recomputed=None if every else count,
    )


def encode(made: SumFormulation, plan: Plan) -> SumSolution | None:
    """Return the solution that is a plan; None where the index sets or `decode` rule it out.

    A plan that another arrangement would place alike is that of the arrangement which comes first.
    """
    at = choice_of(made.problem, made.choices, plan)
    if at is None or plan.technologies != made.problem.cluster.technologies:
        return None
    choice, arcs = made.choices[at], list[int]()
    cut = choice.stages if choice.chunks > 1 else made.of(choice).cuts - 1
    for position, stage in enumerate(reversed(plan.stages), start=1):
        found = _arc_of(made, at, position, (cut, stage))
        if found is None:
            return None
        arcs.append(found)
        cut = int(made.arcs.first[found])
    return SumSolution(at, arcs)


def choice_of(problem: Problem, choices: Sequence[SumChoice], plan: Plan) -> int | None:
    """Return the place of the outer choice of a plan; None where it is not there, or no arrangement places it so."""
    placing = _placing_of(problem, plan)
    if placing is None:
        return None
    wanted = plan.variant, len(plan.stages), plan.replicas, plan.schedule, plan.chunks, *_steps(placing, plan)
    for at, each in enumerate(choices):
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


def _arc_of(made: SumFormulation, choice: int, position: int, wanted: tuple[int, Stage]) -> int | None:
    """Return the arc at a position that ends at a cut and is a stage."""
    cut, stage = wanted
    arcs, tables = made.arcs, made.of(made.choices[choice])
    own = made.by_choice[choice]
    among = own[(arcs.position[own] == position) & (arcs.end[own] == cut)]
    known = tables.graph.index
    if any(name not in known for name in stage.layers) or stage.devices != tables.width:
        return None
    layers = np.array(sorted(known[name] for name in stage.layers), dtype=np.int64)
    way = way_of(tables, stage)
    if stage.sharding != over_replicas(*way.sharding):
        return None
    same = (arc for arc in among.tolist() if np.array_equal(made.layers(arc), layers))
    return next((int(arc) for arc in same if made.way(arc) == way), None)


def way_of(tables: GroupedTables, stage: Stage) -> StageWay:
    """Return how a stage of a plan shards and recomputes, with the number of layers that it says do."""
    again = stage.repeats(tables.graph.named(stage.layers), last=tables.problem.training.recomputes_last)
    count = sum(each is not None for each in again) if stage.recomputed is None else stage.recomputed
    return StageWay((stage.sharding.zero, stage.sharding.degree), (stage.recompute, count))
