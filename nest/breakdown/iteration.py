"""Where an iteration's time goes, as the stage with the largest load sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from nest.breakdown.load import LoadParts
from nest.cost.scale import scale_of
from nest.errors import InvalidPlan
from nest.evaluate import Evaluation
from nest.graph import Layer
from nest.plan import Plan
from nest.problem import Problem, Variant
from nest.simulate import sync_of
from nest.tables.speeds import SURE, least_work


@dataclass(frozen=True, slots=True)
class IterationParts:
    """Ticks of an iteration; they add up to the objective.

    Parameters
    ----------
    compute, recompute, tensor, context, expert, transfer, sharding
        As in `LoadParts`: those of all microbatches on the first of the stages with the largest load.
    bubble
        What the objective counts beside the load of that stage's microbatches: filling and draining the pipeline.
    sync, step
        Once: what is left of exchanging gradients and weights, and the optimizer's step, of the slowest stage.
    """

    compute: int
    recompute: int
    tensor: int
    context: int
    expert: int
    transfer: int
    sharding: int
    bubble: int
    sync: int
    step: int

    @property
    def total(self) -> int:
        """The objective."""
        return sum(self.as_dict().values())

    @property
    def communication(self) -> int:
        """What nothing hides, synchronisation apart."""
        return self.tensor + self.context + self.expert + self.transfer + self.sharding

    def as_dict(self) -> dict[str, int]:
        """Return the parts by name."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


def iteration_parts(problem: Problem, plan: Plan, evaluation: Evaluation, parts: Sequence[LoadParts]) -> IterationParts:
    """Return where an iteration's time goes.

    Parameters
    ----------
    evaluation, parts
        The judge's, and the parts of its loads.

    Raises
    ------
    InvalidPlan
        If the plan has no price.
    """
    if evaluation.objective_ticks is None:
        raise InvalidPlan("plan", "it has no price", "repair it as 'nest evaluate' says")
    microbatches = -(-problem.microbatches(plan.variant) // plan.replicas)
    slowest = max(parts, key=lambda each: each.total)
    once = sync_of(problem, evaluation)
    bubble = evaluation.objective_ticks - microbatches * slowest.total - once
    step = next(stage.step for stage in evaluation.stages if stage.sync == once)
    times = {name: microbatches * ticks for name, ticks in slowest.as_dict().items()}
    return IterationParts(**times, bubble=bubble, sync=once - step, step=step)


def compute_limit(problem: Problem) -> tuple[int, Variant]:
    """Return ticks below which no plan gets, and the variant that comes nearest: all devices only compute.

    Every microbatch passes every layer forward and backward on as many devices as the variant is wide, whatever else a
    plan does. Spread over all devices of the cluster, without a wait and without a byte on the network, that takes at
    least the sum over the layers, times the width, times the microbatches, divided by the devices; of several classes,
    slower ones count in part.
    """
    scale, devices = scale_of(problem), problem.cluster.devices
    limits = []
    for variant in problem.variants:
        if problem.cluster.classes:
            once = int(least_work(problem, scale, variant, devices / variant.width) * SURE)
            limits.append((problem.microbatches(variant) * once, variant))
        else:
            once = sum(scale.time.ticks(s) for each in problem.graphs[variant].layers for s in _passes(each))
            limits.append((problem.microbatches(variant) * variant.width * once // devices, variant))
    for family in problem.families:
        rows = [
            [form.width * sum(map(scale.time.ticks, _passes(layer))) for layer in problem.graphs[form.variant].layers]
            for form in family
        ]
        least, whole = sum(map(min, zip(*rows, strict=True))), family[0].whole
        limits.append((problem.microbatches(whole) * least // devices, whole))
    return min(limits)


def _passes(layer: Layer) -> tuple[float, float]:
    return layer.forward_s, layer.backward_s
