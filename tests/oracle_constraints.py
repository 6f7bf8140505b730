"""The side constraints, written out again for complete plans from `docs/constraints.md`, device by device.

Shares with `nest` the data classes that hold the figures of a constraint, and none of their hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from nest.cluster import Cluster
from nest.graph import LayerGraph, LayerId
from nest.plan import Plan
from nest.problem import Problem


@dataclass(frozen=True)
class Case:
    """A plan with its places as the definition has them, its memory by stage in bytes, and seconds of an iteration."""

    problem: Problem
    plan: Plan
    memory: Sequence[Fraction]
    iteration_s: Fraction

    @property
    def graph(self) -> LayerGraph:
        """The layers under the plan's variant."""
        return self.problem.graphs[self.plan.variant]

    @property
    def stages(self) -> list[tuple[LayerId, ...]]:
        """The layers of each stage."""
        return [stage.layers for stage in self.plan.stages]

    def devices(self, replica: int, stage: int) -> list[int]:
        """Return the devices of a stage in a replica."""
        placed = self.plan.stages[stage]
        return [replica * self.plan.replica_stride + placed.first_device + at for at in range(placed.devices)]

    def all_devices(self) -> set[int]:
        """Return every device that the plan takes."""
        each = [(r, s) for r in range(self.plan.replicas) for s in range(len(self.plan.stages))]
        return {device for replica, stage in each for device in self.devices(replica, stage)}

    def stage_of(self, name: LayerId) -> int:
        """Return the number of the stage that holds a layer."""
        return next(at for at, layers in enumerate(self.stages) if name in layers)


def broken(case: Case) -> set[str]:
    """Return the kinds of the side constraints that a plan breaks."""
    return {each.kind for each in case.problem.constraints if not RULES[each.kind](each, case)}


def stage_allowed(problem: Problem, layers: Sequence[LayerId], first: bool, memory: Fraction) -> bool:
    """Whether a stage keeps what can be seen of it alone; ``first`` says whether it begins the pipeline."""
    return all(
        EARLY[each.kind](each, problem, layers, first, memory) for each in problem.constraints if each.kind in EARLY
    )


def _number(value: float) -> Fraction:
    return Fraction(repr(value))


def _level(cluster: Cluster, level: int | str) -> int:
    if isinstance(level, int):
        return level
    return [each.name for each in cluster.levels].index(level)


def _group(cluster: Cluster, level: int, device: int) -> int:
    for each in cluster.levels[: level + 1]:
        device //= each.fanout
    return device


def _span(cluster: Cluster, one: int, other: int) -> int:
    return next(
        level for level in range(len(cluster.levels)) if _group(cluster, level, one) == _group(cluster, level, other)
    )


def _allowed_degrees(rule: Any, case: Case) -> bool:
    plan, variant = case.plan, case.plan.variant
    value = {
        "tensor": variant.tensor,
        "expert": variant.expert,
        "context": variant.context,
        "microbatch": variant.microbatch,
        "replicas": plan.replicas,
        "stages": len(plan.stages),
    }[rule.axis]
    return value in rule.values


def _divides(rule: Any, case: Case) -> bool:
    variant = case.plan.variant
    pairs = [
        (rule.heads, variant.tensor),
        (rule.vocabulary, variant.tensor),
        (rule.experts, variant.expert),
        (rule.sequence, variant.context),
        (case.problem.training.microbatches if rule.batch else None, case.plan.replicas),
    ]
    if any(total is not None and total % width != 0 for total, width in pairs):
        return False
    if rule.kv_heads is None:
        return True
    shared: bool = rule.kv_heads % variant.tensor == 0
    replicated: bool = rule.replicate_kv and variant.tensor % rule.kv_heads == 0
    return shared or replicated


def _together(rule: Any, case: Case) -> bool:
    return len({case.stage_of(name) for name in rule.layers}) == 1


def _apart(rule: Any, case: Case) -> bool:
    return len({case.stage_of(name) for name in rule.layers}) == len(rule.layers)


def _cuts_at(rule: Any, case: Case) -> bool:
    return all(layers[0] in rule.layers for layers in case.stages[1:])


def _equal_stages(rule: Any, case: Case) -> bool:
    counting = [layer.id for layer in case.graph.layers] if rule.counting is None else rule.counting
    have = [sum(name in counting for name in layers) for layers in case.stages]
    have[0] += rule.first_lighter
    have[-1] += rule.last_lighter
    return len(set(have)) == 1


def _within_level(rule: Any, case: Case) -> bool:
    cluster, variant = case.problem.cluster, case.plan.variant
    level = _level(cluster, rule.level)
    for replica in range(case.plan.replicas):
        for stage in range(len(case.plan.stages)):
            groups: dict[tuple[int, ...], set[int]] = {}
            for at, device in enumerate(case.devices(replica, stage)):
                rest, tensor = divmod(at, variant.tensor)
                rest, context = divmod(rest, variant.context)
                zero, expert = divmod(rest, variant.expert)
                others = {
                    "tensor": (context, expert, zero),
                    "context": (tensor, expert, zero),
                    "expert": (tensor, context, zero),
                    "stage": (),
                }[rule.what]
                groups.setdefault(others, set()).add(_group(cluster, level, device))
            if any(len(places) > 1 for places in groups.values()):
                return False
    return True


def _pin(rule: Any, case: Case) -> bool:
    count = len(case.plan.stages)
    if rule.layer is not None:
        stage = case.stage_of(rule.layer)
    else:
        stage = rule.stage if rule.stage >= 0 else count + rule.stage
        if not 0 <= stage < count:
            return False
    return all(rule.devices[0] <= device <= rule.devices[1] for device in case.devices(0, stage))


def traffic(case: Case, level: int) -> Fraction:
    """Return the bytes of an iteration that cross a level."""
    problem, plan, cluster = case.problem, case.plan, case.problem.cluster
    share, rest = divmod(problem.training.microbatches, plan.replicas)
    total = Fraction(0)
    for replica in range(plan.replicas):
        for at in range(1, len(plan.stages)):
            upper, lower = case.devices(replica, at - 1), case.devices(replica, at)
            far = upper[0] if problem.preset.name == "artifact" else upper[-1]
            if _span(cluster, lower[0], far) >= level:
                total += (share + (rest > 0)) * sum(_over_boundary(case, at))
    if plan.replicas > 1 and _span(cluster, 0, (plan.replicas - 1) * plan.replica_stride) >= level:
        total += 2 * plan.replicas * sum(_gradients(case, at) for at in range(len(plan.stages)))
    return total


def _over_boundary(case: Case, at: int) -> Iterator[Fraction]:
    """Yield what crosses the boundary before stage ``at``: what enters it, and the gradients of what left the other."""
    for edge in case.graph.edges:
        source, target = case.stage_of(edge.source), case.stage_of(edge.target)
        if source < at == target:
            yield _number(edge.bytes)
        if source == at - 1 < target:
            yield _number(edge.bytes)


def _gradients(case: Case, at: int) -> Fraction:
    stage = case.plan.stages[at]
    own = [_number(layer.parameter_bytes) for layer in case.graph.layers if layer.id in stage.layers]
    sharded = case.problem.preset.name == "paper" and stage.sharding.zero == 3
    return sum(own, Fraction(0)) / (stage.sharding.degree if sharded else 1)


def _level_traffic(rule: Any, case: Case) -> bool:
    return traffic(case, _level(case.problem.cluster, rule.level)) <= _number(rule.most_bytes)


def shapes(case: Case) -> int:
    """Return how many stages have no like before them."""
    costs = {
        layer.id: (layer.forward_s, layer.backward_s, layer.parameter_bytes, layer.activation_bytes)
        for layer in case.graph.layers
    }
    each = [
        ([costs[name] for name in stage.layers], stage.sharding, stage.recompute == "full")
        for stage in case.plan.stages
    ]
    return sum(shape not in each[:at] for at, shape in enumerate(each))


def _budget(rule: Any, case: Case) -> bool:
    rates = {
        "rate_per_device_s": Fraction(1),
        "watts_per_device": Fraction(1),
        "price_per_device_hour": Fraction(1, 3600),
    }
    rate = sum(
        (_number(getattr(rule, name)) * part for name, part in rates.items() if getattr(rule, name) is not None),
        Fraction(0),
    )
    return len(case.all_devices()) * case.iteration_s * rate <= _number(rule.most)


def _same_sharding(rule: Any, case: Case) -> bool:
    return len({case.plan.stages[case.stage_of(name)].sharding for name in rule.layers}) == 1


def _left(rule: Any, problem: Problem) -> Fraction:
    have = _number(problem.cluster.hbm_bytes)
    return have - (have * _number(rule.fraction) if rule.bytes is None else _number(rule.bytes))


Rule: TypeAlias = Callable[[Any, Case], bool]

RULES: dict[str, Rule] = {
    "allowed_degrees": _allowed_degrees,
    "divides": _divides,
    "max_stages": lambda rule, case: len(case.plan.stages) <= rule.stages,
    "max_devices": lambda rule, case: len(case.all_devices()) <= rule.devices,
    "reserved_devices": lambda rule, case: not case.all_devices() & set(rule.devices),
    "memory_headroom": lambda rule, case: all(need <= _left(rule, case.problem) for need in case.memory),
    "together": _together,
    "apart": _apart,
    "cuts_at": _cuts_at,
    "equal_stages": _equal_stages,
    "within_level": _within_level,
    "pin": _pin,
    "level_traffic": _level_traffic,
    "budget": _budget,
    "distinct_stages": lambda rule, case: shapes(case) <= rule.most,
    "same_sharding": _same_sharding,
}

EARLY: dict[str, Callable[[Any, Problem, Sequence[LayerId], bool, Fraction], bool]] = {
    "together": lambda rule, _p, layers, _f, _m: sum(n in layers for n in rule.layers) in (0, len(rule.layers)),
    "apart": lambda rule, _p, layers, _f, _m: sum(n in layers for n in rule.layers) <= 1,
    "cuts_at": lambda rule, _p, layers, first, _m: first or layers[0] in rule.layers,
    "memory_headroom": lambda rule, problem, _l, _f, memory: memory <= _left(rule, problem),
}
"""What a stage shows by itself, so that the reference need not complete plans that are lost."""
