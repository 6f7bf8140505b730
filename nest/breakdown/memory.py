"""The memory of each stage by what is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import mul

from nest.cost.memory import state
from nest.cost.schedules import Schedule
from nest.evaluate import Evaluation, sharing_replicas
from nest.evaluate.rules import priced_sharding
from nest.graph import Layer
from nest.pipeline import flights
from nest.plan import Plan
from nest.problem import OPTIMIZER_COPIES, Copies, Problem, exchanging_type
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
    stepping
        What the optimizer's step takes more than activations and what is in use for a moment, which are gone by then.
    """

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    working: int = 0
    overhead: int = 0
    stepping: int = 0

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
    kept = kept_quanta(problem, plan, evaluation, at)
    moments = flights(Schedule(plan.schedule, plan.chunks), len(plan.stages), at, microbatches)
    activations = max(sum(map(mul, each.kept, kept)) for each in moments)
    overhead = quanta(problem.training.overhead_bytes, per_byte)
    peak = left - overhead
    passing = peak - evaluation.stages[at].stepping
    return MemoryParts(weights, gradients, optimizer, activations, passing - activations, overhead, peak - passing)


def kept_quanta(problem: Problem, plan: Plan, evaluation: Evaluation, at: int) -> tuple[int, ...]:
    """Return what a microbatch keeps in each chunk of a stage."""
    layers = _layers(problem, plan, at)
    again = plan.stages[at].repeats(layers, last=problem.training.recomputes_last)
    held_by = [each or layer for layer, each in zip(layers, again, strict=True)]
    kept = iter([quanta(each.activation_bytes, evaluation.scale.quanta_per_byte) for each in held_by])
    parts = plan.parts(problem.graphs[plan.variant], at)
    return tuple(sum(islice(kept, len(part))) for part in parts)


def _layers(problem: Problem, plan: Plan, at: int) -> tuple[Layer, ...]:
    return problem.graphs[plan.stage_variants[at]].named(plan.stages[at].layers)


def _states(problem: Problem, plan: Plan, per_byte: int, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield weights, gradients and optimizer on a device, of dense weights and, where they are apart, of experts."""
    layers = _layers(problem, plan, at)
    whole = sum(quanta(layer.parameter_bytes, per_byte) for layer in layers)
    zero, degree = priced_sharding(problem, plan.stages[at])
    zero = exchanging_type(zero, len(plan.stages), problem.training)
    if problem.preset.collectives != "groups":
        yield _state(whole, Copies(OPTIMIZER_COPIES[problem.training.optimizer]), zero, degree)
        return
    experts = sum(quanta(layer.expert_parameter_bytes, per_byte) for layer in layers)
    ranks = problem.copy_ranks(plan.stage_variants[at], sharing_replicas(problem, plan, at))
    graph = problem.graphs[plan.stage_variants[at]]
    tied = (
        sum(quanta(layer.tied_bytes, per_byte) for layer in layers) if graph.layers[graph.table_place] in layers else 0
    )
    for weights, holders in zip((whole - experts - tied, experts), ranks, strict=True):
        yield _state(weights, problem.training.held, zero, holders * plan.stages[at].inside)


def _state(weights: int, copies: Copies, zero: int, degree: int) -> tuple[int, int, int]:
    """Return the parts of `nest.cost.memory.state`: what each adds to the ones before it."""
    alone = state(weights, replace(copies, optimizer=0, gradients=0), zero, degree)
    trained = state(weights, replace(copies, optimizer=0), zero, degree)
    return alone, trained - alone, state(weights, copies, zero, degree) - trained
