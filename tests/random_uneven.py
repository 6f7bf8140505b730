"""Random small problems whose stages may have tensor widths of their own, and such plans of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import oracle_default as oracle
import oracle_plans
import oracle_uneven
import random_default

from nest.cluster import Cluster
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, Variant


@dataclass(frozen=True)
class Size:
    """Limits on a random problem."""

    layers: int = 3
    devices: int = 8
    levels: int = 3
    batch: int = 8


SMALL = Size()

Variants: TypeAlias = Callable[[random.Random, Cluster], list[Variant]]
"""Draws variants that fit on a cluster."""


def random_problem(seed: int, size: Size = SMALL) -> Problem:
    """Return the problem of a seed."""
    rng = random.Random(f"uneven {seed}")
    limits = random_default.Size(size.layers, size.devices, size.levels, 1, size.batch)
    cluster = random_default.linked(rng, _cluster(rng, limits))
    cluster = _faster(cluster, rng.choice([1, 20, 20, 400]))
    graphs = _graphs(rng, size, cluster)
    choices = _choices(rng, graphs, cluster)
    training = random_default._training(rng, replace(limits, batch=rng.choice([4, 24])))
    problem = Problem(f"uneven {seed}", graphs, cluster, training, choices, DEFAULT)
    return replace(problem, cluster=replace(cluster, hbm_bytes=_capacity(rng, problem)))


def _cluster(rng: random.Random, limits: random_default.Size) -> Cluster:
    """Return a cluster of three devices at least."""
    while True:
        cluster = random_default._cluster(rng, limits, False)
        if cluster.devices > 2:
            return cluster


def _faster(cluster: Cluster, times: int) -> Cluster:
    """Return a cluster whose links are as many times as fast, so that layers matter more than what they exchange."""
    levels = (
        replace(
            level,
            bandwidth_bytes_per_s=times * level.bandwidth_bytes_per_s,
            latency_s=level.latency_s / times,
            pair_bytes_per_s=None if level.pair_bytes_per_s is None else times * level.pair_bytes_per_s,
        )
        for level in cluster.levels
    )
    return replace(cluster, levels=tuple(levels))


def _graphs(
    rng: random.Random, size: Size, cluster: Cluster, variants: Variants | None = None
) -> dict[Variant, LayerGraph]:
    names = list(range(rng.choice([*[size.layers] * 3, rng.randint(1, size.layers)])))
    links = list(pairwise(names))
    if len(names) > 2 and rng.random() < 0.3:
        first, second = sorted(rng.sample(names, 2))
        links.append((first, second))
    figures = rng.random() < 0.3, rng.choice([300, 2000]), rng.choice([1, 2, 8]), rng.choice([1, 1, 5])
    style = random_default._Style(False, *figures, rng.choice([(), (), ("full",), ("selective", "full")]))
    ties = rng.randrange(10**6)
    graphs = dict[Variant, LayerGraph]()
    gains = None if rng.random() < 0.2 else [rng.choice([0.0, 0.0, 0.8, 1.0, 1.2]) for _ in names]
    bases = [style.layer(rng, name, Variant(1)) for name in names]
    if gains is not None and rng.random() < 0.6:
        heavy = rng.choice(names)
        bases[heavy] = replace(bases[heavy], forward_s=4.0, backward_s=8.0)
        gains[heavy] = rng.choice([0.8, 1.0, 1.2])
    for variant in (variants or _variants)(rng, cluster):
        layers = tuple(style.layer(rng, name, variant) for name in names)
        if gains is not None:
            layers = tuple(map(_spread, bases, layers, gains, [variant.tensor] * len(names)))
        layers, table = random_default._tied(ties, layers)
        edges = tuple(Edge(source, target, style.tensor(rng)) for source, target in links)
        graphs[variant] = LayerGraph.sort(layers, edges, table)
    return graphs


def _spread(base: Layer, layer: Layer, gain: float, tensor: int) -> Layer:
    """Return a layer that tensor ranks share: much of what it takes or nothing of it, and with few collectives."""
    times = (round(1000 * each * tensor**-gain) / 1000 for each in (base.forward_s, base.backward_s))
    shared = tensor if gain else 1
    weights = base.parameter_bytes // random_default.UNIT // shared * random_default.UNIT
    forward_s, backward_s = times
    return replace(
        layer,
        forward_s=forward_s,
        backward_s=backward_s,
        parameter_bytes=weights,
        expert_parameter_bytes=min(layer.expert_parameter_bytes, weights),
        collectives=layer.collectives[:1],
    )


def _variants(rng: random.Random, cluster: Cluster) -> list[Variant]:
    while True:
        widths = rng.choice([(1, 2), (1, 2), (1, 2), (1, 2, 4), (1, 2, 4), (1, 3), (1, 2, 3), (2, 4), (2, 3, 6)])
        rest = rng.choice([1, 1, 1, 1, 1, 2]), rng.choice([1, 1, 1, 1, 1, 2]), rng.random() < 0.4
        found = [Variant(width, *rest[:2], rest[2] and width > 1) for width in widths]
        kept = [each for each in found if each.width <= cluster.devices and oracle_plans.nests(cluster, each)]
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
        replicas=rng.choice([maybe(*range(1, cluster.devices + 1)), *(frozenset({count}) for count in (1, 1, 2))]),
        stages=maybe(1, 2, 3),
        zero=rng.choice([*random_default.ZERO_SETS, *[frozenset({0, 1})] * 8]),
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
    needs = (
        []
        if plan is None
        else [float(each.memory) for each in oracle_uneven.price(problem, plan, oracle.Rounding(6))[1]]
    )
    if not needs:
        return 100 * random_default.UNIT
    some = rng.choice([max(needs), max(needs), rng.choice(needs), *[100 * max(needs)] * 4])
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
    uneven = [shape for shape in every if len(set(shape.pieces)) > 1]
    shape = rng.choice(uneven if uneven and rng.random() < 0.8 else every)
    layers = len(problem.graphs[shape.pieces[0].variant])
    cuts = [0, *sorted(rng.sample(range(1, layers), len(shape.pieces) - 1)), layers]
    runs = list(pairwise(cuts))
    picked = [rng.choice(list(oracle_uneven.inners(free, shape, at, run))) for at, run in enumerate(runs)]
    return oracle_uneven.plan_of(free, shape, runs, picked)
