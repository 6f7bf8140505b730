"""Random small problems and plans for preset `default`, made so that every rule and every term matters in many."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import oracle_default as oracle
import oracle_plans

from nest.cluster import Cluster, Level
from nest.cost.links import LIBRARIES, LINK_KINDS
from nest.graph import Again, Collective, Edge, Layer, LayerGraph, Recomputed
from nest.plan import Plan
from nest.presets import DEFAULT
from nest.problem import Choices, Copies, Problem, Recompute, Training, Variant

UNIT = 332_640
"""Bytes of which all sizes are multiples: parts of small groups are whole, and times short decimals."""

ZERO_SETS = (frozenset({0, 1, 2, 3}),) * 5 + tuple(map(frozenset, ({0, 3}, {0, 2}, {0, 1}, {3}, {1, 2}, {0})))


@dataclass(frozen=True)
class Size:
    """Limits on a random problem."""

    layers: int = 4
    devices: int = 12
    levels: int = 3
    variants: int = 2
    batch: int = 24


SMALL = Size()


def random_problem(seed: int, size: Size = SMALL, *, ugly: bool = False) -> Problem:
    """Return the problem of a seed; ``ugly`` ones have figures that are no short decimals."""
    rng = random.Random(seed)
    cluster = linked(random.Random(f"links {seed}"), _cluster(rng, size, ugly))
    graphs = _graphs(rng, size, cluster, ugly)
    training = _training(rng, size)
    choices = numbered(random.Random(f"numbers {seed}"), _choices(rng, graphs, cluster))
    problem = Problem(f"seed {seed}", graphs, cluster, training, choices, DEFAULT)
    return replace(problem, cluster=replace(cluster, hbm_bytes=_capacity(rng, problem)))


def _ugly(rng: random.Random, value: float, ugly: bool) -> float:
    return value * rng.uniform(0.5, 2) if ugly else value


def _cluster(rng: random.Random, size: Size, ugly: bool) -> Cluster:
    fanouts: list[int] = []
    least = rng.choice([1, size.devices // 2 + 1])
    while not fanouts or (len(fanouts) < size.levels and (prod(fanouts) < least or rng.random() < 0.3)):
        fanout = rng.choice([1, 2, 2, 2, 2, 3, 3, 4, 5])
        if prod(fanouts) * fanout > size.devices:
            break
        fanouts.append(fanout)
    devices = prod(fanouts)
    speeds = [rng.choice([1e6, 2e6, 5e6, 1e7, 4e7, 1e8, 1e9]) for _ in fanouts]
    delays = [rng.choice([0, 0, 0.001, 0.002, 0.01, 0.05]) for _ in fanouts]
    if rng.random() < 0.6:  # as networks mostly are: the outer, the slower
        speeds, delays = sorted(speeds, reverse=True), sorted(delays)
    levels = [
        Level(fanout, _ugly(rng, speed, ugly), _ugly(rng, delay, ugly))
        for fanout, speed, delay in zip(fanouts, speeds, delays, strict=True)
    ]
    absent = rng.randint(0, devices // 3) if rng.random() < 0.2 else 0
    return Cluster(devices - absent, 1, tuple(levels), partial=absent > 0)


def linked(rng: random.Random, cluster: Cluster) -> Cluster:
    """Return a cluster with kinds of links and a library, plain ones in a quarter of all."""
    if rng.random() < 0.25:
        return cluster
    names = [each.name for each in LINK_KINDS]
    levels = tuple(
        replace(
            level,
            link=rng.choice(names),
            pair_bytes_per_s=level.bandwidth_bytes_per_s / rng.choice([2, 4]) if rng.random() < 0.3 else None,
            in_network_reduction=rng.random() < 0.3,
        )
        for level in cluster.levels
    )
    return replace(cluster, levels=levels, library=rng.choice([each.name for each in LIBRARIES]))


def _graphs(rng: random.Random, size: Size, cluster: Cluster, ugly: bool) -> dict[Variant, LayerGraph]:
    names = list(range(rng.choice([size.layers, size.layers, rng.randint(1, size.layers)])))
    links = list(pairwise(names))
    for _ in range(rng.choice([0, 0, 1, 3]) if len(names) > 2 else 0):
        first, second = sorted(rng.sample(range(len(names)), 2))
        links.append((names[first], names[second]))
    figures = rng.random() < 0.3, rng.choice([20, 300, 2000]), rng.choice([1, 2, 8, 20]), rng.choice([1, 5, 20])
    kinds: list[tuple[Again, ...]] = [(), (), ("full",), ("full",), ("selective",), ("selective", "full")]
    style = _Style(ugly, *figures, rng.choice(kinds))
    graphs: dict[Variant, LayerGraph] = {}
    ties = rng.randrange(10**6)
    while not graphs or (len(graphs) < size.variants and rng.random() < 0.5):
        variant = _variant(rng, cluster)
        layers = tuple(style.layer(rng, name, variant) for name in names)
        layers, table = _tied(ties, layers)
        edges = tuple(Edge(source, target, style.tensor(rng)) for source, target in links)
        graphs[variant] = LayerGraph.sort(layers, edges, table)
    return graphs


def _tied(seed: int, layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int | None]:
    """Let layers use weights of one before them again, in a third of all models; alike for all variants."""
    rng = random.Random(seed)
    if len(layers) == 1 or rng.random() < 0.66:
        return layers, None
    table = rng.choice([0, 0, rng.randrange(len(layers) - 1)])
    copying = {len(layers) - 1, *(rng.sample(range(table + 1, len(layers)), 1) if rng.random() < 0.3 else ())}
    part = rng.choice([1, 0.5])

    def tied(layer: Layer) -> float:
        return int((layer.parameter_bytes - layer.expert_parameter_bytes) * part)

    made = (replace(layer, tied_bytes=tied(layer)) if at in copying else layer for at, layer in enumerate(layers))
    return tuple(made), int(layers[table].id)


def _variant(rng: random.Random, cluster: Cluster) -> Variant:
    """Return a variant that nests with the cluster, nearly always."""
    while True:
        widths = (rng.choice([1, 1, 1, 2, 2, 3, 4]), rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 1, 1, 2]))
        variant = Variant(*widths, rng.random() < 0.2, rng.choice([1, 1, 2]))
        if (variant.width <= cluster.devices and oracle_plans.nests(cluster, variant)) or rng.random() < 0.02:
            return variant


@dataclass(frozen=True)
class _Style:
    """What the figures of one model look like."""

    ugly: bool
    even: bool
    millis: int
    weights: int
    edge: int
    again: tuple[Again, ...]

    def layer(self, rng: random.Random, name: int, variant: Variant) -> Layer:
        def time(part: float = 1.0) -> float:
            if not self.even and rng.random() < 0.15:
                return 0.0
            millis = self.millis if self.even else rng.randint(1, self.millis)
            return _ugly(rng, round(millis * part) / 1000, self.ugly)

        weights = self.size(rng, self.weights)
        experts = rng.choice([0, weights, rng.randint(0, weights // UNIT) * UNIT]) if variant.expert > 1 else 0
        axes = [axis for axis in ("tensor", "context", "expert") if getattr(variant, axis) > 1]
        kept = self.size(rng, rng.choice([0, 1, self.weights, 3 * self.weights if self.again else 1]))
        working = self.size(rng, rng.choice([0, 0, 1, self.weights]))
        passes = time(), time(2)
        collectives = [self.collective(rng, rng.choice(axes)) for _ in range(rng.choice([0, 1, 2])) if axes]
        again = [
            self.recomputed(rng, kind, time(0.5), (kept, working), axes) for kind in self.again if rng.random() < 0.85
        ]
        return Layer(name, *passes, weights, kept, "", experts, working, tuple(collectives), tuple(again))

    def recomputed(
        self, rng: random.Random, kind: Again, again_s: float, sizes: tuple[int, int], axes: list[str]
    ) -> Recomputed:
        """Return figures that mostly are what one expects, and sometimes keep or need more than without."""
        kept, working = (rng.randint(0, size // UNIT) * UNIT for size in sizes)
        if rng.random() < 0.2:
            kept, working = self.size(rng, self.weights), self.size(rng, self.weights)
        elif rng.random() < 0.7:
            working += sizes[0] - kept
        collectives = [replace(self.collective(rng, rng.choice(axes)), when="recompute")] if axes else []
        return Recomputed(kind, again_s, kept, working, tuple(collectives if rng.random() < 0.3 else []))

    def collective(self, rng: random.Random, axis: str) -> Collective:
        kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring")
        when, hidden = rng.choice(["forward", "backward"]), rng.choice([0, 0, 0, 0.01, 0.1])
        return Collective(rng.choice(kinds), self.size(rng, self.edge), axis, when, hidden)  # type: ignore[arg-type]

    def tensor(self, rng: random.Random) -> float:
        return 0 if rng.random() < 0.15 else self.size(rng, self.edge)

    def size(self, rng: random.Random, most: int) -> int:
        return UNIT * (most if self.even else rng.randint(0, most))


def _aside(rng: random.Random) -> random.Random:
    """Return a generator of its own, so that what else is drawn stays as it is."""
    like = random.Random()
    like.setstate(rng.getstate())
    return random.Random(like.random())


def _training(rng: random.Random, size: Size) -> Training:
    many = rng.choice([1, 2, 3, *(rng.randint(4, size.batch) for _ in range(5))])
    by_batch = rng.random() < 0.5
    return Training(
        0 if by_batch else many,
        rng.choice(["sgd", "adam"]),
        many if by_batch else 0,
        rng.choice([None, Copies(6, 2), Copies(2, 1), Copies(0, 0), Copies(2, 1, 0.5, 2, 3), Copies(0, 2, 2, 0.25, 9)]),
        rng.random() < 0.6,
        rng.random() < 0.3,
        rng.random() < 0.3,
        rng.random() < 0.3,
        _aside(rng).random() < 0.3,
        rng.choice([0.0, 0.1, 0.3, 1.0]),
        rng.choice([0.0, 1e-9, 1e-8, 1e-7]),
        rng.choice([0, 0, UNIT, 0.5]),
    )


def with_whole_experts(seed: int, size: Size = SMALL) -> Problem:
    """Return a problem with tensor ranks that share the sequence, and hold experts whole."""
    drawn = (random_problem(each, size) for each in range(seed, seed + 10**7, 10**4))
    return holding_experts(seed, next(each for each in drawn if any(variant.tensor > 1 for variant in each.graphs)))


def holding_experts(seed: int, problem: Problem) -> Problem:
    """Return a problem whose tensor ranks share the sequence, and hold experts whole."""
    rng = random.Random(f"experts {seed}")
    graphs = {
        replace(variant, sequence=variant.sequence or variant.tensor > 1): _with_experts(rng, graph)
        for variant, graph in problem.graphs.items()
    }
    cluster = replace(problem.cluster, hbm_bytes=problem.cluster.hbm_bytes * rng.choice([1, 1, 3]))
    choices = replace(problem.choices, sequence=None)
    training = replace(problem.training, whole_experts=True)
    return replace(problem, graphs=graphs, cluster=cluster, choices=choices, training=training)


def _with_experts(rng: random.Random, graph: LayerGraph) -> LayerGraph:
    """Return a graph in which a part of what layers have as weights of their own is of experts, in most."""
    parts = [rng.choice([0, 0.5, 0.75, 1]) for _ in graph.layers]
    own = [each.parameter_bytes - each.tied_bytes for each in graph.layers]
    layers = tuple(
        replace(layer, expert_parameter_bytes=int(size * part))
        for layer, size, part in zip(graph.layers, own, parts, strict=True)
    )
    return replace(graph, layers=layers)


def framed(seed: int, problem: Problem, *, buffers: bool = True) -> Problem:
    """Return a problem whose stages hold what crosses their boundaries, or recompute their last layers, or both."""
    rng, graphs = random.Random(f"framework {seed}"), problem.graphs
    holds = buffers and rng.random() < 0.7
    if holds and rng.random() < 0.5:
        size = UNIT * rng.choice([1, 5, 20])
        graphs = {variant: _with_results(rng, graph, size) for variant, graph in graphs.items()}
    cluster = replace(problem.cluster, hbm_bytes=problem.cluster.hbm_bytes * rng.choice([1, 1, 2, 5]))
    last = not holds or rng.random() < 0.5
    training = replace(problem.training, buffers_boundaries=holds, recomputes_last=last)
    return replace(problem, training=training, graphs=graphs, cluster=cluster)


def _with_results(rng: random.Random, graph: LayerGraph, size: int) -> LayerGraph:
    """Return a graph whose last layer makes what leaves the model, and another one in some."""
    making = {len(graph) - 1, *([rng.randrange(len(graph))] if rng.random() < 0.3 else [])}
    layers = (replace(each, result_bytes=size) if at in making else each for at, each in enumerate(graph.layers))
    return replace(graph, layers=tuple(layers))


def _choices(rng: random.Random, graphs: dict[Variant, LayerGraph], cluster: Cluster) -> Choices:
    def maybe(*values: int) -> frozenset[int] | None:
        if rng.random() < 0.9:
            return None
        return frozenset(rng.sample(values, rng.randint(1, len(values))))

    kept = rng.choice(list(graphs))
    choices = Choices(
        replicas=maybe(*range(1, cluster.devices + 1)),
        stages=maybe(*range(1, max(len(graph) for graph in graphs.values()) + 1)),
        zero=rng.choice(ZERO_SETS),
        zero_degree=rng.choice([None, None, None, None, frozenset({2, 3}), frozenset({2}), frozenset({4})]),
        stage_recompute=_kinds(rng, graphs),
    )
    if rng.random() < 0.1:
        choices = replace(choices, tensor=frozenset({kept.tensor, 7}), sequence=kept.sequence)
    return choices


def numbered(rng: random.Random, choices: Choices) -> Choices:
    """Return choices that in some cases also say how many layers recompute, or rule groups of replicas out."""
    numbers = frozenset(rng.sample((1, 2, 3, 7), rng.randint(1, 3)))
    return replace(choices, recomputed=numbers if rng.random() < 0.15 else None, hybrid=rng.random() < 0.9)


def _kinds(rng: random.Random, graphs: dict[Variant, LayerGraph]) -> frozenset[Recompute] | None:
    known: set[Recompute] = {kind for graph in graphs.values() for kind in graph.recomputes}
    plain: set[Recompute] = {"none"}
    return rng.choice([*[None] * 7, frozenset(plain), frozenset(known | plain), frozenset(known or plain)])


def _capacity(rng: random.Random, problem: Problem) -> float:
    """Return bytes that just hold some stage of a random plan, or all of one, or are far more or less."""
    plan = random_plan(rng.randrange(10**6), problem)
    if plan.variant.width > problem.cluster.devices:
        return 100 * UNIT
    needs = list(map(float, oracle.memories(problem, plan)))
    some = rng.choice([max(needs), max(needs), rng.choice(needs), min(needs) * rng.uniform(0.3, 1), 100 * max(needs)])
    return max(1, round(some)) + rng.choice([0, 0, 0, 0.5])


def random_plan(seed: int, problem: Problem) -> Plan:
    """Return a plan that keeps to the places and widths of the definition; memory and choices may be broken."""
    rng = random.Random(seed)
    fitting = [variant for variant in problem.graphs if variant.width <= problem.cluster.devices]
    variant = rng.choice(fitting or list(problem.graphs))
    layers, room = len(problem.graphs[variant]), max(1, problem.cluster.devices // variant.width)
    stages = rng.randint(1, min(layers, room))
    cuts = [0, *sorted(rng.sample(range(1, layers), stages - 1)), layers]
    most = max(1, min(room // stages, problem.microbatches(variant)))
    outer = oracle_plans.Outer(
        variant, stages, rng.choice([1, most, rng.randint(1, most)]), rng.choice(["stage-major", "replica-major"])
    )
    runs = list(pairwise(cuts))
    free = problem.with_choices(
        zero=frozenset({0, 1, 2, 3}), zero_degree=None, stage_recompute=None, recomputed=None, hybrid=True
    )
    return oracle_plans.plan_of(
        problem, outer, runs, [rng.choice(list(oracle_plans.inners(free, outer, run))) for run in runs]
    )
