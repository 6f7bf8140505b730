"""Plans as solutions of the programme under the objective `sum`, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nest.constraints.programme import StageWay
from nest.milp.sum_choices import SumChoice
from nest.milp.sum_formulation import SumFormulation
from nest.plan import Plan, Stage, over_replicas
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
    starts, stride = tables.places(choice.stages, choice.replicas, choice.arrangement)
    arcs = sorted(solution.arcs, key=lambda arc: -int(made.arcs.position[arc]))
    stages = tuple(_stage(made, tables, arc, start) for arc, start in zip(arcs, starts.tolist(), strict=True))
    technologies = made.problem.cluster.technologies
    return Plan(choice.variant, choice.replicas, stride, stages, choice.arrangement, technologies=technologies)


def _stage(made: SumFormulation, tables: GroupedTables, arc: int, start: int) -> Stage:
    layers = tables.between(int(made.arcs.first[arc]), int(made.arcs.end[arc]))
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

    With one stage or one replica it is that of the first arrangement, which is the same but for its name.
    """
    at = choice_of(made.choices, plan)
    if at is None:
        return None
    tables, arcs = made.of(made.choices[at]), list[int]()
    cut = tables.cuts - 1
    for position, stage in enumerate(reversed(plan.stages), start=1):
        found = _arc_of(made, at, position, (cut, stage))
        if found is None:
            return None
        arcs.append(found)
        cut = int(made.arcs.first[found])
    solution = SumSolution(at, arcs)
    return solution if same_plan(decode(made, solution), plan) else None


def choice_of(choices: list[SumChoice], plan: Plan) -> int | None:
    """Return the place of the outer choice of a plan."""
    alike = len(plan.stages) == 1 or plan.replicas == 1
    for at, choice in enumerate(choices):
        found = choice.variant, choice.stages, choice.replicas
        same = found == (plan.variant, len(plan.stages), plan.replicas)
        if same and (alike or choice.arrangement == plan.arrangement):
            return at
    return None


def _arc_of(made: SumFormulation, choice: int, position: int, wanted: tuple[int, Stage]) -> int | None:
    """Return the arc at a position that ends at a cut and is a stage."""
    cut, stage = wanted
    arcs, tables = made.arcs, made.of(made.choices[choice])
    own = made.by_choice[choice]
    among = own[(arcs.position[own] == position) & (arcs.end[own] == cut)]
    known = tables.graph.index
    if any(name not in known for name in stage.layers):
        return None
    layers = np.array(sorted(known[name] for name in stage.layers), dtype=np.int64)
    way = way_of(tables, stage)
    same = (arc for arc in among.tolist() if np.array_equal(tables.between(int(arcs.first[arc]), cut), layers))
    return next((int(arc) for arc in same if made.way(arc) == way), None)


def way_of(tables: GroupedTables, stage: Stage) -> StageWay:
    """Return how a stage of a plan shards and recomputes, with the number of layers that it says do."""
    again = stage.repeats(tables.graph.named(stage.layers))
    count = sum(each is not None for each in again) if stage.recomputed is None else stage.recomputed
    return StageWay((stage.sharding.zero, stage.sharding.degree), (stage.recompute, count))


def same_plan(made: Plan, given: Plan) -> bool:
    """Whether two plans are the same but for figures, and for what makes no difference to one stage or one replica."""
    free = len(made.stages) == 1 or made.replicas == 1
    bare = [
        replace(
            plan,
            stages=tuple(replace(stage, load_s=None, memory_bytes=None, recomputed=None) for stage in plan.stages),
            replica_stride=0 if made.replicas == 1 else plan.replica_stride,
            arrangement=made.arrangement if free else plan.arrangement,
        )
        for plan in (made, given)
    ]
    return bare[0] == bare[1]
