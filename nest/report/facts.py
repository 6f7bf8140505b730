"""What was read: the figures of a problem by which a person checks that the file says what it should."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from nest.cluster import Level
from nest.graph import LayerGraph
from nest.problem import Choices, Problem, Training, Variant
from nest.report.space import plans_of
from nest.training import SWITCHES
from nest.units import Number


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """Sums over all layers of one allowed variant, for one microbatch on one device of each stage.

    Parameters
    ----------
    plans
        How many plans of this variant fit on the devices, but for those that `nest.report.space` leaves out.
    """

    variant: Variant
    layers: int
    parameter_bytes: Number
    activation_bytes: Number
    forward_s: float
    backward_s: float
    plans: int


def variant_facts(problem: Problem) -> tuple[VariantFacts, ...]:
    """Return the facts of each variant that the choices allow."""
    return tuple(_facts(variant, problem.graphs[variant], plans) for variant, plans in plans_of(problem).items())


def choice_values(choices: Choices) -> dict[str, object]:
    """Return the choices by name, sets as ascending lists; None where every value is allowed."""
    values = {spec.name: getattr(choices, spec.name) for spec in fields(choices)}
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in values.items()}


def problem_facts(problem: Problem) -> dict[str, object]:
    """Return everything `nest show` says, ready for JSON."""
    cluster, training = problem.cluster, problem.training
    variants = variant_facts(problem)
    return {
        "name": problem.name,
        "source": problem.source,
        "preset": problem.preset.name,
        "time_unit_s": problem.time_unit_s,
        "variants": [_variant_document(facts) for facts in variants],
        "cluster": {
            "name": cluster.name,
            "devices": cluster.devices,
            "partial": cluster.partial,
            "hbm_bytes": cluster.hbm_bytes,
            "class": cluster.own_class,
            "classes": [asdict(each) for each in cluster.classes],
            "library": cluster.library,
            "technologies": list(cluster.technologies),
            "levels": [_level(level) for level in cluster.levels],
        },
        "training": _training(training),
        "choices": choice_values(problem.choices),
        "constraints": [{"kind": each.kind, "text": each.text} for each in problem.constraints],
        "plans": sum(facts.plans for facts in variants),
    }


def _level(level: Level) -> dict[str, object]:
    """Return the figures of a level, and those of its menu where it has one."""
    figures = {spec.name: getattr(level, spec.name) for spec in fields(level) if spec.name != "alternatives"}
    return figures | ({"alternatives": [asdict(each) for each in level.alternatives]} if level.alternatives else {})


def _training(training: Training) -> dict[str, object]:
    """Return what the training says; what it leaves out has no key."""
    batch = "global_batch" if training.global_batch else "microbatches"
    figures: dict[str, object] = {batch: getattr(training, batch), "optimizer": training.optimizer}
    if training.copies is not None:
        figures["copies"] = training.copies.figures
    names = (
        *SWITCHES,
        "overlap_tax",
        "step_s_per_byte",
        "overhead_bytes",
    )
    return figures | {name: getattr(training, name) for name in names if getattr(training, name)}


def _facts(variant: Variant, graph: LayerGraph, plans: int) -> VariantFacts:
    return VariantFacts(
        variant=variant,
        layers=len(graph),
        parameter_bytes=sum(layer.parameter_bytes for layer in graph.layers),
        activation_bytes=sum(layer.activation_bytes for layer in graph.layers),
        forward_s=sum(layer.forward_s for layer in graph.layers),
        backward_s=sum(layer.backward_s for layer in graph.layers),
        plans=plans,
    )


def _variant_document(facts: VariantFacts) -> dict[str, object]:
    variant = {spec.name: getattr(facts.variant, spec.name) for spec in fields(facts.variant)}
    return variant | {spec.name: getattr(facts, spec.name) for spec in fields(facts) if spec.name != "variant"}
