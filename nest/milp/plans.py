"""Plans as solutions of the programme, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from nest.milp.formulation import Formulation
from nest.plan import Plan, Stage, StageChoice, inside_stage
from nest.tables import VariantTables

Indices: TypeAlias = list[int]


@dataclass(frozen=True, slots=True)
class Solution:
    """What is taken: an outer choice, and an arc, a place and an option for each stage, by their indices.

    Without options no stage shards, and there are no places.
    """

    choice: int
    arcs: Indices
    options: Indices
    places: Indices


NOTHING = Solution(-1, [], [], [])
"""What is taken for a plan that the programme does not have; no rule lets it pass."""


def decode(formulation: Formulation, solution: Solution) -> Plan:
    """Return the plan of a solution; C6, C8 and C9 hold by how it is built, so that its places are not needed."""
    arcs, options = formulation.arcs, formulation.options
    chosen = formulation.choices[solution.choice]
    ways = {int(options.position[at]): (int(options.zero[at]), int(options.degree[at])) for at in solution.options}
    stages = [
        StageChoice(int(arcs.first[arc]), int(arcs.end[arc]), *ways.get(int(arcs.position[arc]), (0, 1)))
        for arc in sorted(solution.arcs, key=lambda arc: -int(arcs.position[arc]))
    ]
    return plan_of(formulation.tables.variants[chosen.variant], stages, chosen.replicas)


def encode(formulation: Formulation, plan: Plan) -> Solution | None:
    """Return the solution that is a plan; None where the index sets or `decode` rule it out."""
    choice = _choice_of(formulation, plan)
    if choice is None:
        return None
    variant = formulation.choices[choice].variant
    arcs, options, places = Indices(), Indices(), Indices()
    ways = _Ways(formulation, variant)
    for position, stage in enumerate(reversed(plan.stages), start=1):
        arcs += ways.arc(position, stage)
        options += ways.option(position, stage)
        places += ways.place(position, stage)
    whole = len(arcs) == len(plan.stages) and len(options) == len(places) == (len(arcs) if formulation.sharded else 0)
    solution = Solution(choice, arcs, options, places)
    bare = replace(plan, stages=tuple(replace(stage, load_s=None, memory_bytes=None) for stage in plan.stages))
    return solution if whole and decode(formulation, solution) == bare else None


def _choice_of(formulation: Formulation, plan: Plan) -> int | None:
    """Return the outer choice of a plan."""
    for at, choice in enumerate(formulation.choices):
        tables = formulation.tables.variants[choice.variant]
        found = (tables.variant, choice.stages, choice.replicas, choice.stride * tables.width)
        if found == (plan.variant, len(plan.stages), plan.replicas, plan.replica_stride):
            return at
    return None


class _Ways:
    """Finds the arcs, options and places of the stages of one variant."""

    def __init__(self, formulation: Formulation, variant: int) -> None:
        self.formulation, self.variant = formulation, variant
        self.index = formulation.tables.variants[variant].graph.index
        self.width = formulation.tables.variants[variant].width

    def arc(self, position: int, stage: Stage) -> Indices:
        """Return the arc of a stage, if there is one."""
        arcs = self.formulation.arcs
        if not stage.layers:
            return []
        layers = self.index[stage.layers[0]], self.index[stage.layers[-1]] + 1
        among = self.formulation.by_position.get((self.variant, position), [])
        return [arc for arc in among if (arcs.first[arc], arcs.end[arc]) == layers]

    def option(self, position: int, stage: Stage) -> Indices:
        """Return the option of a stage, if there is one."""
        options, sharding = self.formulation.options, stage.sharding
        among = self.formulation.options_by_position.get((self.variant, position), [])
        return [at for at in among if (options.zero[at], options.degree[at]) == (sharding.zero, sharding.degree)]

    def place(self, position: int, stage: Stage) -> Indices:
        """Return the place of a stage, if there is one."""
        places, block = self.formulation.places, (stage.first_device, stage.sharding.degree * self.width)
        among = self.formulation.places_by_position.get((self.variant, position), [])
        return [at for at in among if (places.start[at] * self.width, places.degree[at] * self.width) == block]


def plan_of(tables: VariantTables, choices: Sequence[StageChoice], replicas: int) -> Plan:
    """Return the plan of stages, given from the first of the pipeline on."""
    layers, stages, start = tables.graph.layers, list[Stage](), 0
    for choice in reversed(choices):
        stage = Stage(
            layers=tuple(layer.id for layer in layers[choice.first : choice.end]),
            first_device=start,
            devices=choice.degree * tables.width,
            recompute="full" if tables.recompute and stages else "none",
            sharding=inside_stage(choice.zero, choice.degree),
        )
        stages.append(stage)
        start += stage.devices
    technologies = tables.problem.cluster.technologies
    return Plan(tables.variant, replicas, start, tuple(reversed(stages)), technologies=technologies)
