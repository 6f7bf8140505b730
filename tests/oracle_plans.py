"""Which plans a small problem of preset `default` has by `docs/formulation.md`, memory and side constraints apart.

For the slow plain reference, `oracle_default`, which prices them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product

from oracle_places import Spot, reserved, spots

from nest.cluster import Cluster
from nest.graph import Layer
from nest.line import Line
from nest.plan import Plan, Sharding, Stage
from nest.presets import Arrangement
from nest.problem import Problem, Variant


@dataclass(frozen=True)
class Outer:
    """What a plan has one of."""

    variant: Variant
    stages: int
    replicas: int
    arrangement: Arrangement
    spot: Spot | None = None

    def block(self, at: int, replica: int) -> int:
        """Return the first device of a stage: where the spot has it, or without a gap."""
        if self.spot:
            return self.spot.blocks[at][replica]
        if self.arrangement == "stage-major":
            return (at * self.replicas + replica) * self.variant.width
        return (replica * self.stages + at) * self.variant.width


@dataclass(frozen=True)
class Inner:
    """What a stage chooses: ZeRO type, replicas of a group that shares its weights, what how many layers recompute."""

    zero: int
    group: int
    kind: str = "none"
    count: int = 0


def microbatches(problem: Problem, variant: Variant) -> int:
    """Return the microbatches of an iteration."""
    batch = problem.training.global_batch
    return -(-batch // (variant.expert * variant.microbatch)) if batch else problem.training.microbatches


def nests(cluster: Cluster, variant: Variant) -> bool:
    """Whether the units of a variant and the groups of the network divide each other."""
    size, groups = 1, []
    for level in cluster.levels:
        size *= level.fanout
        groups.append(size)
    units = [variant.tensor, variant.tensor * variant.context, variant.tensor * variant.context * variant.expert]
    return all(unit % group == 0 or group % unit == 0 for unit in units for group in groups if group < cluster.devices)


def outer_choices(problem: Problem) -> Iterator[Outer]:
    """Yield every outer choice that the rules allow, memory apart."""
    choices = problem.choices
    for variant, graph in problem.graphs.items():
        width = variant.tensor * variant.context * variant.expert
        pairs = [
            (choices.tensor, variant.tensor),
            (choices.expert, variant.expert),
            (choices.context, variant.context),
            (choices.microbatch, variant.microbatch),
            (None if choices.sequence is None else {choices.sequence}, variant.sequence),
        ]
        if not nests(problem.cluster, variant) or any(ok is not None and value not in ok for ok, value in pairs):
            continue
        for stages, replicas in product(range(1, len(graph) + 1), range(1, microbatches(problem, variant) + 1)):
            fits = stages * replicas * width <= problem.cluster.devices
            if not fits or (choices.stages is not None and stages not in choices.stages):
                continue
            if choices.replicas is None or replicas in choices.replicas:
                for spot in spots(problem.cluster, width, stages, replicas, reserved(problem)):
                    yield Outer(variant, stages, replicas, spot.arrangement, spot)


def inners(problem: Problem, outer: Outer, run: tuple[int, int]) -> Iterator[Inner]:
    """Yield all that a stage may choose."""
    choices, d = problem.choices, outer.replicas
    ranks = outer.variant.context * outer.variant.expert
    again = _recomputations(problem, outer, run)
    for zero in sorted(choices.zero):
        for group in range(1, d + 1):
            degrees = choices.zero_degree
            shards = group * ranks > 1 and d % group == 0 and (degrees is None or group * ranks in degrees)
            shards = shards and (choices.hybrid or group == d)
            if shards if zero else group == d:
                yield from (Inner(zero, group, kind, count) for kind, count in again)


def _recomputations(problem: Problem, outer: Outer, run: tuple[int, int]) -> list[tuple[str, int]]:
    allowed = problem.choices.stage_recompute
    layers = problem.graphs[outer.variant].layers[slice(*run)]
    found = []
    for kind in ("selective", "full"):
        if allowed is None or kind in allowed:
            able = sum(any(each.kind == kind for each in layer.recomputed) for layer in layers)
            numbers = problem.choices.recomputed or range(1, able + 1)
            found += [(kind, count) for count in sorted({min(number, able) for number in numbers} - {0})]
    return found if found and allowed is not None and "none" not in allowed else [("none", 0), *found]


def repeating(problem: Problem, layers: tuple[Layer, ...], inner: Inner) -> list[bool]:
    """Return which layers of a stage compute something again."""
    able = [at for at, layer in enumerate(layers) if any(each.kind == inner.kind for each in layer.recomputed)]
    if problem.training.recomputes_last:
        able.reverse()
    return [at in able[: inner.count] for at in range(len(layers))]


def inner_of(plan: Plan, stage: Stage) -> Inner:
    """Return what a stage of a plan chooses."""
    ranks, zero = plan.variant.context * plan.variant.expert, stage.sharding.zero
    count = len(stage.layers) if stage.recomputed is None else stage.recomputed
    return Inner(zero, stage.sharding.degree // ranks if zero else plan.replicas, stage.recompute, count)


def plan_of(problem: Problem, outer: Outer, cuts: list[tuple[int, int]], inner: list[Inner]) -> Plan:
    """Return the plan with these choices, everything else as the definition has it."""
    variant, layers = outer.variant, problem.graphs[outer.variant].layers
    width, ranks = variant.width, variant.context * variant.expert
    least = width * (1 if outer.arrangement == "stage-major" else outer.stages)
    stages = [
        Stage(
            tuple(layer.id for layer in layers[first:end]),
            outer.block(at, 0),
            width,
            each.kind,  # type: ignore[arg-type]
            Sharding("replicas", each.zero, each.group * ranks) if each.zero and each.group * ranks > 1 else Sharding(),
            recomputed=each.count or None,
        )
        for at, ((first, end), each) in enumerate(zip(cuts, inner, strict=True))
    ]
    stride = outer.spot.stride if outer.spot else least
    line = Line(outer.spot.left_out, outer.spot.order) if outer.spot else Line()
    return Plan(variant, outer.replicas, stride, tuple(stages), arrangement=outer.arrangement, line=line)


def plans(problem: Problem) -> Iterator[Plan]:
    """Yield every plan of a problem that the rules allow, memory and side constraints apart."""
    for outer in outer_choices(problem):
        layers = len(problem.graphs[outer.variant])
        for inner in combinations(range(1, layers), outer.stages - 1):
            cuts = list(pairwise([0, *inner, layers]))
            for picked in product(*(list(inners(problem, outer, run)) for run in cuts)):
                yield plan_of(problem, outer, cuts, list(picked))
