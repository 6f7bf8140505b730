"""Plans to start from: the programme of a single plan, which says what it takes and whether it is legal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nest.constraints import LocalConstraint, Mask, Outer, Run
from nest.milp.formulation import Formulation
from nest.milp.space import Space
from nest.plan import Plan
from nest.problem import Problem, Variant
from nest.tables import Tables


@dataclass(frozen=True)
class _Only(LocalConstraint):
    """The outer choice of a plan, and the layers of its stages."""

    plan: Plan
    runs: frozenset[tuple[int, int]]

    kind: ClassVar[str] = "only"

    @property
    def text(self) -> str:
        """What it asks for."""
        return "one plan"

    def device_limit(self, problem: Problem) -> int:  # noqa: ARG002 - a hook
        """Return how many devices the plan takes."""
        return max(self.plan.replicas * self.plan.replica_stride, 0)

    def admits(self, problem: Problem, outer: Outer) -> bool:  # noqa: ARG002 - a hook
        """Whether an outer choice is the plan's."""
        return (outer.variant, outer.stages, outer.replicas) == (
            self.plan.variant,
            len(self.plan.stages),
            self.plan.replicas,
        )

    def admits_run(self, problem: Problem, variant: Variant, run: Run) -> Mask:  # noqa: ARG002 - a hook
        """Return which runs are stages of the plan."""
        found = np.zeros(np.broadcast(run.first, run.end).shape, dtype=bool)
        for first, end in self.runs:
            found |= (run.first == first) & (run.end == end)
        return found


def alone(tables: Tables, plan: Plan) -> Formulation | None:
    """Return a programme with a plan and little else; None where it is easily seen that no programme has it."""
    problem = _narrowed(tables.problem, plan)
    index = tables.problem.graphs[plan.variant].index if problem is not None else {}
    if problem is None or any(
        name not in index for stage in plan.stages for name in stage.layers[:: len(stage.layers)]
    ):
        return None
    runs = frozenset((index[stage.layers[0]], index[stage.layers[0]] + len(stage.layers)) for stage in plan.stages)
    problem = problem.with_constraints(*problem.constraints, _Only(plan, runs))
    found = Formulation(Space(Tables(problem, tables.scale), dominated=True))
    return found if found.choices else None


def _narrowed(problem: Problem, plan: Plan) -> Problem | None:
    """Return the problem with the variant and the ways to shard of a plan; None where it does not allow them."""
    variant = plan.variant
    if variant not in problem.variants or any(not stage.layers for stage in plan.stages):
        return None
    types = frozenset(stage.sharding.zero for stage in plan.stages)
    degrees = frozenset(stage.sharding.degree for stage in plan.stages)
    if not (types <= problem.choices.zero and degrees <= {1, *problem.zero_degrees(variant.width)}):
        return None
    return problem.with_choices(
        tensor=frozenset({variant.tensor}),
        expert=frozenset({variant.expert}),
        context=frozenset({variant.context}),
        microbatch=frozenset({variant.microbatch}),
        sequence=variant.sequence,
        zero=types,
        zero_degree=degrees,
    )
