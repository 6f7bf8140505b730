"""The memory of each stage by what is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import accumulate

from nest.cost.memory import state
from nest.cost.schedules import Schedule, in_flight
from nest.evaluate import Evaluation
from nest.evaluate.rules import priced_sharding
from nest.graph import Layer
from nest.plan import Plan
from nest.problem import OPTIMIZER_COPIES, Copies, Problem
from nest.units import quanta


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Quanta on each device of a stage.

    Parameters
    ----------
    weights, gradients, optimizer
        As far as they are not sharded away. A sharded sum is rounded up once; what that adds is with the last of them
        that are sharded.
    activations
        Of all microbatches in flight.
    working
        The most that a layer has in use for a moment, gathered weights and whole gradients included.
    overhead
        What framework and communication take.
    """

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    working: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, int]:
        """Return the parts by name."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


def memory_parts(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[MemoryParts, ...]:
    """Return what each device of each stage holds; nothing where the plan has no price.

    Parameters
    ----------
    evaluation
        The judge's, of this plan.
    """
    return tuple(_parts(problem, plan, evaluation, at) for at in range(len(evaluation.stages)))


def _parts(problem: Problem, plan: Plan, evaluation: Evaluation, at: int) -> MemoryParts:
    memory, per_byte = evaluation.stages[at].memory, evaluation.scale.quanta_per_byte
    states = list(_states(problem, plan, per_byte, at))
    weights, gradients, optimizer = (sum(each[part] for each in states) for part in range(3))
    left = memory - weights - gradients - optimizer
    if problem.preset.collectives != "groups":
        return MemoryParts(weights, gradients, optimizer, activations=left)
    microbatches = -(-problem.microbatches(plan.variant) // plan.replicas)
    layers = _layers(problem, plan, at)
    held_by = [again or layer for layer, again in zip(layers, plan.stages[at].repeats(layers), strict=True)]
    kept = sum(quanta(each.activation_bytes, per_byte) for each in held_by)
    activations = in_flight(Schedule(plan.schedule), len(plan.stages), at, microbatches) * kept
    overhead = quanta(problem.training.overhead_bytes, per_byte)
    return MemoryParts(weights, gradients, optimizer, activations, left - activations - overhead, overhead)


def _layers(problem: Problem, plan: Plan, at: int) -> tuple[Layer, ...]:
    ends = [0, *accumulate(len(stage.layers) for stage in plan.stages)]
    return problem.graphs[plan.variant].layers[ends[at] : ends[at + 1]]


def _states(problem: Problem, plan: Plan, per_byte: int, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield weights, gradients and optimizer on a device, of dense weights and, where they are apart, of experts."""
    layers = _layers(problem, plan, at)
    whole = sum(quanta(layer.parameter_bytes, per_byte) for layer in layers)
    zero, degree = priced_sharding(problem, plan.stages[at])
    if problem.preset.collectives != "groups":
        yield _state(whole, Copies(OPTIMIZER_COPIES[problem.training.optimizer]), zero, degree)
        return
    experts = sum(quanta(layer.expert_parameter_bytes, per_byte) for layer in layers)
    ranks = problem.copy_ranks(plan.variant, _together(problem, plan, at))
    for weights, holders in zip((whole - experts, experts), ranks, strict=True):
        yield _state(weights, problem.training.held, zero, holders)


def _together(problem: Problem, plan: Plan, at: int) -> int:
    """Return how many neighbouring replicas share weights between them; all where their number is not legal."""
    each, degree = problem.copy_ranks(plan.variant, 1)[0], plan.stages[at].sharding.degree
    legal = plan.stages[at].sharding.zero and degree % each == 0 and plan.replicas % (degree // each) == 0
    return degree // each if legal else plan.replicas


def _state(weights: int, copies: Copies, zero: int, degree: int) -> tuple[int, int, int]:
    """Return the parts of `nest.cost.memory.state`: what each adds to the ones before it."""
    alone = state(weights, Copies(0, 0), zero, degree)
    trained = state(weights, Copies(0, copies.gradients), zero, degree)
    return alone, trained - alone, state(weights, copies, zero, degree) - trained
