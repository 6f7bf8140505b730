"""Random small problems whose stages may have tensor widths of their own, and such plans of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

import oracle_default as oracle
import oracle_uneven
import random_default

from nest.cluster import Cluster
from nest.graph import Edge, LayerGraph
from nest.plan import Plan
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, Variant


@dataclass(frozen=True)
class Size:
    """Limits on a random problem."""

    layers: int = 3
    devices: int = 8
    levels: int = 3
    widths: int = 3
    batch: int = 8


SMALL = Size()


def random_problem(seed: int, size: Size = SMALL) -> Problem:
    """Return the problem of a seed."""
    rng = random.Random(f"uneven {seed}")
    limits = random_default.Size(size.layers, size.devices, size.levels, 1, size.batch)
    cluster = random_default.linked(rng, random_default._cluster(rng, limits, False))
    graphs = _graphs(rng, size, cluster)
    choices = _choices(rng, graphs, cluster)
    training = random_default._training(rng, limits)
    problem = Problem(f"uneven {seed}", graphs, cluster, training, choices, DEFAULT)
    return replace(problem, cluster=replace(cluster, hbm_bytes=_capacity(rng, problem)))


def _graphs(rng: random.Random, size: Size, cluster: Cluster) -> dict[Variant, LayerGraph]:
    names = list(range(rng.choice([size.layers, size.layers, rng.randint(1, size.layers)])))
    links = list(pairwise(names))
    if len(names) > 2 and rng.random() < 0.3:
        first, second = sorted(rng.sample(names, 2))
        links.append((first, second))
    figures = rng.random() < 0.3, rng.choice([20, 300]), rng.choice([1, 2, 8]), rng.choice([1, 5, 20])
    style = random_default._Style(False, *figures, rng.choice([(), (), ("full",), ("selective", "full")]))
    ties = rng.randrange(10**6)
    graphs = dict[Variant, LayerGraph]()
    for variant in _variants(rng, size, cluster):
        layers = tuple(style.layer(rng, name, variant) for name in names)
        layers, table = random_default._tied(ties, layers)
        edges = tuple(Edge(source, target, style.tensor(rng)) for source, target in links)
        graphs[variant] = LayerGraph.sort(layers, edges, table)
    return graphs


def _variants(rng: random.Random, size: Size, cluster: Cluster) -> list[Variant]:
    while True:
        widths = rng.sample([1, 2, 3, 4, 6], rng.choice([2, 2, size.widths]))
        rest = rng.choice([1, 1, 1, 2]), rng.choice([1, 1, 1, 2]), rng.random() < 0.4
        found = [Variant(width, *rest[:2], rest[2] and width > 1) for width in widths]
        kept = [each for each in found if each.width <= cluster.devices and oracle.nests(cluster, each)]
        if rng.random() < 0.2 and kept:
            kept.append(replace(kept[0], microbatch=2))
        if len(kept) > 1 or rng.random() < 0.02:
            return kept or found


def _choices(rng: random.Random, graphs: dict[Variant, LayerGraph], cluster: Cluster) -> Choices:
    def maybe(*values: int) -> frozenset[int] | None:
        return None if rng.random() < 0.9 else frozenset(rng.sample(values, rng.randint(1, len(values))))

    widths = sorted({variant.tensor for variant in graphs})
    asked = widths if rng.random() < 0.7 else rng.sample([*widths, 7], rng.randint(1, len(widths)))
    choices = Choices(
        replicas=maybe(*range(1, cluster.devices + 1)),
        stages=maybe(1, 2, 3),
        zero=rng.choice(random_default.ZERO_SETS),
        zero_degree=rng.choice([None, None, None, None, frozenset({2, 3}), frozenset({2})]),
        stage_recompute=random_default._kinds(rng, graphs),
        stage_tensor=frozenset(asked),
    )
    if rng.random() < 0.1:
        choices = replace(choices, tensor=frozenset({widths[0]}), sequence=rng.choice([None, False, True]))
    if not any(choices.admits(variant) for variant in graphs):
        choices = replace(choices, tensor=None, sequence=None)
    return random_default.numbered(rng, choices)


def _capacity(rng: random.Random, problem: Problem) -> float:
    plan = random_plan(rng.randrange(10**6), problem)
    needs = [] if plan is None else [float(each.memory) for each in oracle_uneven.price(problem, plan, oracle.Rounding(6))[1]]
    if not needs:
        return 100 * random_default.UNIT
    some = rng.choice([max(needs), max(needs), rng.choice(needs), min(needs) * rng.uniform(0.3, 1), 100 * max(needs)])
    return max(1, round(some)) + rng.choice([0, 0, 0, 0.5])


def random_plan(seed: int, problem: Problem) -> Plan | None:
    """Return a plan that keeps to the widths and places of the definition; memory and choices may be broken."""
    rng = random.Random(f"plan {seed}")
    free = problem.with_choices(
        zero=frozenset({0, 1, 2, 3}), zero_degree=None, stage_recompute=None, recomputed=None, hybrid=True,
        stages=None, replicas=None, sequence=None,
    )  # fmt: skip
    every = list(oracle_uneven.shapes(free))
    if not every:
        return None
    uneven = [shape for shape in every if len(set(shape.variants)) > 1]
    shape = rng.choice(uneven if uneven and rng.random() < 0.8 else every)
    layers = len(problem.graphs[shape.variants[0]])
    cuts = [0, *sorted(rng.sample(range(1, layers), len(shape.variants) - 1)), layers]
    runs = list(pairwise(cuts))
    picked = [
        rng.choice(list(oracle.inners(free, oracle_uneven._outer(shape, at), run))) for at, run in enumerate(runs)
    ]
    return oracle_uneven.plan_of(free, shape, runs, picked)
