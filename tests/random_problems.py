"""Random small problems and plans, made so that every rule and every cost term matters in many of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise, product
from math import ceil, prod

from nest.cluster import Cluster, Level
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan, Sharding, Stage, inside_stage
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Choices, Problem, Training, Variant

ZERO_SETS = (frozenset({0, 1, 2, 3}),) * 5 + tuple(map(frozenset, ({0, 3}, {0, 2}, {0, 1}, {3}, {1, 2}, {0})))


@dataclass(frozen=True)
class Size:
    """Limits on a random problem."""

    layers: int = 5
    devices: int = 12
    levels: int = 4
    variants: int = 3
    microbatches: int = 40


SMALL = Size()


def random_problem(seed: int, size: Size = SMALL, *, ugly: bool = False) -> Problem:
    """Return the problem of a seed; ``ugly`` ones have figures that are no short decimals."""
    rng = random.Random(seed)
    cluster = _cluster(rng, size, ugly)
    graphs = _graphs(rng, size, cluster, ugly)
    recompute = rng.random() < 0.5
    many = rng.choice([1, 2, 3, *(rng.randint(4, size.microbatches) for _ in range(5))])
    training = Training(many, rng.choice(["sgd", "adam"]))
    cluster = replace(cluster, hbm_bytes=_capacity(rng, graphs, training, recompute))
    choices = _choices(rng, graphs, cluster, "full" if recompute else "none")
    return Problem(f"seed {seed}", graphs, cluster, training, choices, rng.choice([PAPER, ARTIFACT]))


def _nice_or_ugly(rng: random.Random, value: float, ugly: bool) -> float:
    return value * rng.uniform(0.5, 2) if ugly else value


def _cluster(rng: random.Random, size: Size, ugly: bool) -> Cluster:
    fanouts: list[int] = []
    devices = 1
    least = rng.choice([1, size.devices // 2 + 1])
    while not fanouts or (len(fanouts) < size.levels and (devices < least or rng.random() < 0.3)):
        fanout = rng.choice([1, 2, 2, 2, 2, 3, 3, 4, 5])
        if devices * fanout > size.devices:
            break
        fanouts.append(fanout)
        devices *= fanout
    speeds = [rng.choice([10, 20, 50, 100, 400, 1000, 5000]) for _ in fanouts]
    delays = [rng.choice([0, 0, 0.001, 0.002, 0.01, 0.05]) for _ in fanouts]
    if rng.random() < 0.6:  # as networks mostly are: the outer, the slower
        speeds, delays = sorted(speeds, reverse=True), sorted(delays)
    levels = [
        Level(fanout, _nice_or_ugly(rng, float(speed), ugly), _nice_or_ugly(rng, delay, ugly))
        for fanout, speed, delay in zip(fanouts, speeds, delays, strict=True)
    ]
    absent = rng.randint(0, devices // 3) if rng.random() < 0.15 else 0
    return Cluster(devices - absent, 1, tuple(levels), partial=absent > 0)


def _graphs(rng: random.Random, size: Size, cluster: Cluster, ugly: bool) -> dict[Variant, LayerGraph]:
    count = rng.choice([size.layers, size.layers, rng.randint(1, size.layers)])
    names: list[int | str] = [f"layer{at}" if rng.random() < 0.1 else at for at in range(-1, count - 1)]
    links = list(pairwise(names))
    for _ in range(rng.choice([0, 0, 1, 3, 6]) if len(names) > 2 else 0):
        first, second = sorted(rng.sample(range(len(names)), 2))
        links.append((names[first], names[second]))
    style = _Style.draw(rng, ugly)
    graphs: dict[Variant, LayerGraph] = {}
    while not graphs or (len(graphs) < size.variants and rng.random() < 0.4):
        others = [1] * 6 + [2]
        widths = rng.choice([1, 1, 1, 2, 2, 3, 4]), rng.choice(others), rng.choice(others)
        if prod(widths) > cluster.devices / 2 and rng.random() < 0.9:
            widths = 1, 1, 1
        variant = Variant(*widths, rng.random() < 0.2, rng.choice([1, 1, 2]))
        layers = tuple(style.layer(rng, name, variant.tensor) for name in names)
        edges = tuple(Edge(source, target, style.tensor(rng)) for source, target in links)
        graphs[variant] = LayerGraph.sort(layers, edges)
    return graphs


@dataclass(frozen=True)
class _Style:
    """What the figures of one model look like."""

    ugly: bool
    even: bool
    fractional: bool
    millis: int
    weights: int
    edge: int

    @classmethod
    def draw(cls, rng: random.Random, ugly: bool) -> _Style:
        """Compute heavy, network heavy or synchronisation heavy; equal layers or not."""
        return cls(
            ugly,
            even=rng.random() < 0.3,
            fractional=rng.random() < 0.25,
            millis=rng.choice([20, 300, 2000]),
            weights=rng.choice([2, 8, 20, 200]),
            edge=rng.choice([1, 5, 20, 200]),
        )

    def layer(self, rng: random.Random, name: int | str, tensor: int) -> Layer:
        def time() -> float:
            if not self.even and rng.random() < 0.15:
                return 0.0
            millis = self.millis if self.even else rng.randint(1, self.millis)
            return _nice_or_ugly(rng, millis / 1000 / rng.choice([1, tensor, tensor]), self.ugly)

        kept = rng.choice([0, 1, self.weights // 4, self.weights])
        return Layer(name, time(), time(), self.size(rng, self.weights), self.size(rng, kept))

    def tensor(self, rng: random.Random) -> float:
        return 0 if rng.random() < 0.15 else self.size(rng, self.edge)

    def size(self, rng: random.Random, most: int) -> float:
        value: float = most if self.even else rng.randint(0, most)
        if self.fractional and rng.random() < 0.5:
            value += rng.choice([0.5, 0.1, 0.25, 0.125])
        return value


def _capacity(rng: random.Random, graphs: Mapping[Variant, LayerGraph], training: Training, recompute: bool) -> float:
    """Return bytes that just hold some stage, or between little (nothing fits) and much (everything fits)."""
    graph = rng.choice(list(graphs.values()))
    if rng.random() < 0.4:
        return _need_of_a_stage(rng, graph, training, recompute)
    copies = 8 if training.optimizer == "adam" else 2
    needs = [copies * layer.parameter_bytes + layer.activation_bytes for layer in graph.layers]
    low, high = float(max(needs)), float(sum(needs))
    value = low + (high - low) * rng.uniform(0, 1) if rng.random() < 0.7 else low * rng.uniform(0.25, 3)
    return max(1, round(value)) + rng.choice([0, 0, 0, 0.5])


def _need_of_a_stage(rng: random.Random, graph: LayerGraph, training: Training, recompute: bool) -> float:
    """Return what a random stage needs to the last byte, somewhere in the pipeline and under some ZeRO."""
    first, end = sorted(rng.sample(range(len(graph) + 1), 2))
    layers, further = graph.layers[first:end], rng.choice([0, 0, 1, 2])
    parameters = sum(Fraction(repr(layer.parameter_bytes)) for layer in layers)
    kept = sum(Fraction(repr(layer.activation_bytes)) for layer in layers)
    entering = (edge for edge in graph.edges if graph.index[edge.source] < first <= graph.index[edge.target] < end)
    stash = sum(Fraction(repr(edge.bytes)) for edge in entering) if recompute else kept
    copies = (6 if training.optimizer == "adam" else 0, 1, 1)
    zero, degree = rng.choice([(0, 1), (0, 1), (1, 2), (2, 2), (3, 2), (3, 4)])
    sharded = ceil(sum(copies[:zero]) * parameters / degree)
    exact = Fraction(sum(copies[zero:]) * parameters + sharded + kept + further * stash)
    return max(1, int(exact) if exact.denominator == 1 else float(exact))


def _choices(rng: random.Random, graphs: Mapping[Variant, LayerGraph], cluster: Cluster, recompute: str) -> Choices:
    def maybe(*values: int) -> frozenset[int] | None:
        if rng.random() < 0.9:
            return None
        return frozenset(rng.sample(values, rng.randint(1, len(values))))

    layers = max(len(graph) for graph in graphs.values())
    choices = Choices(
        replicas=maybe(*range(1, cluster.devices + 1)),
        stages=maybe(*range(1, layers + 1)),
        zero=rng.choice(ZERO_SETS),
        zero_degree=rng.choice([None, None, None, frozenset({2, 3}), frozenset({1, 3, 6}), frozenset({4})]),
        recompute="full" if recompute == "full" else "none",
    )
    kept = rng.choice(list(graphs))
    if rng.random() < 0.15:
        choices = replace(choices, tensor=frozenset({kept.tensor, 7}))
    if rng.random() < 0.1:
        choices = replace(choices, expert=frozenset({kept.expert}), context=frozenset({kept.context}))
    if rng.random() < 0.1:
        choices = replace(choices, sequence=kept.sequence, microbatch=frozenset({kept.microbatch}))
    return choices


def random_plan(seed: int, problem: Problem) -> Plan:
    """Return a plan that keeps to the places and widths of the definition; memory and choices may be broken."""
    rng = random.Random(seed)
    fitting = [variant for variant in problem.graphs if variant.width <= problem.cluster.devices]
    variant = rng.choice(fitting or list(problem.graphs))
    layers = problem.graphs[variant].layers
    count = rng.randint(1, max(1, min(len(layers), problem.cluster.devices // variant.width)))
    cuts = [0, *sorted(rng.sample(range(1, len(layers)), count - 1)), len(layers)]
    spare = problem.cluster.devices // variant.width - count
    shardings = []
    for _ in range(count):
        degree = rng.choice([1, 1, *problem.zero_degrees(variant.width)])
        degree = degree if degree - 1 <= spare else 1
        spare -= degree - 1
        shardings.append(inside_stage(rng.choice([1, 2, 3]), degree))
    used = variant.width * sum(sharding.degree for sharding in shardings)
    most = min(problem.cluster.devices // used, problem.training.microbatches)
    return placed_plan(problem, variant, cuts, shardings, rng.randint(1, max(1, most)))


def placed_plan(
    problem: Problem, variant: Variant, cuts: Sequence[int], shardings: Sequence[Sharding], replicas: int
) -> Plan:
    """Return the plan with these choices, everything else as the definition has it."""
    layers = problem.graphs[variant].layers
    stages: list[Stage] = []
    device = 0
    for (first, end), sharding in reversed(list(zip(pairwise(cuts), shardings, strict=True))):
        recompute = problem.choices.recompute if end < len(layers) else "none"
        ids = tuple(layer.id for layer in layers[first:end])
        stages.insert(0, Stage(ids, device, variant.width * sharding.degree, recompute, sharding))
        device += variant.width * sharding.degree
    return Plan(variant, replicas, device, tuple(stages))


def neighbours(problem: Problem, plan: Plan) -> Iterator[Plan]:
    """Yield the plans that differ in one cut, one sharding, one stage more or less, or the replicas."""
    cuts = [0, *accumulate(len(stage.layers) for stage in plan.stages)]
    shardings = [stage.sharding for stage in plan.stages]

    def other(cuts: list[int], shardings: list[Sharding]) -> Plan:
        return placed_plan(problem, plan.variant, cuts, shardings, plan.replicas)

    for change in (-1, 1):
        yield replace(plan, replicas=plan.replicas + change)
    for at in range(1, len(plan.stages)):
        yield other(cuts[:at] + cuts[at + 1 :], shardings[:at] + shardings[at + 1 :])
        for moved in range(cuts[at - 1] + 1, cuts[at + 1]):
            yield other([*cuts[:at], moved, *cuts[at + 1 :]], shardings)
    for at, sharding in enumerate(shardings):
        for cut in range(cuts[at] + 1, cuts[at + 1]):
            yield other([*cuts[: at + 1], cut, *cuts[at + 1 :]], [*shardings[:at], sharding, *shardings[at:]])
        for zero, degree in product((1, 2, 3), (1, *problem.zero_degrees(plan.variant.width))):
            yield other(cuts, [*shardings[:at], inside_stage(zero, degree), *shardings[at + 1 :]])


def broken_plan(seed: int, problem: Problem) -> Plan:
    """Return a random plan with one or two things changed at random, most of them against a rule."""
    rng = random.Random(seed)
    plan = random_plan(seed, problem)
    for _ in range(rng.randint(1, 2)):
        plan = rng.choice([_moved, _spread, _wider, _other_layers, _other_recompute, _other_sharding, _more])(rng, plan)
    return plan


def _with_stage(plan: Plan, at: int, stage: Stage) -> Plan:
    return replace(plan, stages=(*plan.stages[:at], stage, *plan.stages[at + 1 :]))


def _moved(rng: random.Random, plan: Plan) -> Plan:
    at = rng.randrange(len(plan.stages))
    return _with_stage(plan, at, replace(plan.stages[at], first_device=rng.randint(-1, 2 * plan.replica_stride)))


def _spread(rng: random.Random, plan: Plan) -> Plan:
    return replace(plan, replica_stride=plan.replica_stride + rng.randint(-1, 2))


def _wider(rng: random.Random, plan: Plan) -> Plan:
    at = rng.randrange(len(plan.stages))
    return _with_stage(plan, at, replace(plan.stages[at], devices=plan.stages[at].devices + rng.choice([-1, 1])))


def _other_layers(rng: random.Random, plan: Plan) -> Plan:
    at = rng.randrange(len(plan.stages))
    layers = list(plan.stages[at].layers)
    change = rng.choice([layers[::-1], layers[1:], layers * 2])
    return _with_stage(plan, at, replace(plan.stages[at], layers=tuple(change)))


def _other_recompute(rng: random.Random, plan: Plan) -> Plan:
    at = rng.randrange(len(plan.stages))
    return _with_stage(plan, at, replace(plan.stages[at], recompute=rng.choice(["none", "full"])))


def _other_sharding(rng: random.Random, plan: Plan) -> Plan:
    at = rng.randrange(len(plan.stages))
    sharding = rng.choice([Sharding(), Sharding("stage", 3, 5), Sharding("stage", 2, 2), Sharding("replicas", 1, 2)])
    return _with_stage(plan, at, replace(plan.stages[at], sharding=sharding))


def _more(rng: random.Random, plan: Plan) -> Plan:
    return replace(plan, replicas=plan.replicas + rng.randint(-1, 2))


def show_problem(problem: Problem) -> str:
    """Return a problem as one Python expression that builds it again."""
    graphs = ", ".join(f"{variant}: {graph}" for variant, graph in problem.graphs.items())
    preset: Preset = problem.preset
    constraints = f",\n  constraints={problem.constraints}" if problem.constraints else ""
    return (
        f"Problem({problem.name!r}, {{{graphs}}},\n  {problem.cluster},\n  {problem.training},\n  {problem.choices},\n"
        f"  {preset.name.upper()}{constraints})"
    )


def show_plan(plan: Plan | None) -> str:
    """Return a plan as JSON, a stage a line."""
    if plan is None:
        return "no plan"
    head = {"variant": asdict(plan.variant), "replicas": plan.replicas, "replica_stride": plan.replica_stride}
    return "\n  ".join([json.dumps(head), *(json.dumps(asdict(stage)) for stage in plan.stages)])
