"""Random small problems whose stages may be sharded inside, and such plans of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import oracle_default as oracle
import oracle_plans
import oracle_uneven
import random_default
import random_uneven
from random_uneven import Size

from nest.cluster import Cluster
from nest.graph import LayerGraph
from nest.plan import Plan
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, Variant

__all__ = ["SMALL", "Size", "random_plan", "random_problem"]

SMALL = Size(layers=3, devices=8, levels=3, batch=8)


def random_problem(seed: int, size: Size = SMALL) -> Problem:
    """Return the problem of a seed: nearly always one in which some stage can be sharded inside."""
    rng = random.Random(f"inside {seed}")
    while True:
        problem = _drawn(rng, size, f"inside {seed}")
        inside = any(piece.inside > 1 for shape in oracle_uneven.shapes(_free(problem)) for piece in shape.pieces)
        if inside or rng.random() < 0.05:
            return replace(problem, cluster=replace(problem.cluster, hbm_bytes=_capacity(rng, problem)))


def _drawn(rng: random.Random, size: Size, name: str) -> Problem:
    limits = random_default.Size(size.layers, size.devices, size.levels, 1, size.batch)
    cluster = random_default.linked(rng, random_uneven._cluster(rng, limits))
    cluster = random_uneven._faster(cluster, rng.choice([1, 20, 20, 400]))
    graphs = random_uneven._graphs(rng, size, cluster, _variants)
    if rng.random() < 0.7:
        graphs = _by_sequence(graphs)
    training = random_default._training(rng, replace(limits, batch=rng.choice([4, 24])))
    if rng.random() < 0.4:  # few microbatches make few replicas
        few = rng.choice([1, 2, 4, 8])
        training = replace(training, microbatches=0, global_batch=few)
    aside = random.Random(f"training of {name}")
    training = replace(training, whole_experts=aside.random() < 0.3, buffers_boundaries=aside.random() < 0.3)
    return Problem(name, graphs, cluster, training, _choices(rng, graphs, cluster), DEFAULT)


def _free(problem: Problem) -> Problem:
    return problem.with_choices(zero=frozenset({0, 1, 2, 3}), stages=None, replicas=None, sequence=None)


def _by_sequence(graphs: dict[Variant, LayerGraph]) -> dict[Variant, LayerGraph]:
    """Return graphs whose layers take as long, and send and keep as much, as they have sequences."""
    made = dict[Variant, LayerGraph]()
    for variant in graphs:
        least = min(each for each in graphs if replace(each, microbatch=1) == replace(variant, microbatch=1))
        times, graph = variant.microbatch / least.microbatch, graphs[least]
        layers = (
            replace(
                layer,
                forward_s=round(1000 * layer.forward_s * times) / 1000,
                backward_s=round(1000 * layer.backward_s * times) / 1000,
                activation_bytes=int(layer.activation_bytes * times),
            )
            for layer in graph.layers
        )
        edges = tuple(replace(edge, bytes=int(edge.bytes * times)) for edge in graph.edges)
        made[variant] = replace(graph, layers=tuple(layers), edges=edges)
    return made


def _capacity(rng: random.Random, problem: Problem) -> float:
    """Return bytes that mostly hold just the stages of a random plan, or of that of several which needs the least."""
    plans = [random_plan(rng.randrange(10**6), problem) for _ in range(rng.choice([1, 5]))]
    found = [oracle_uneven.price(problem, plan, oracle.Rounding(6))[1] for plan in plans if plan is not None]
    if not found:
        return 100 * random_default.UNIT
    needs = min(([float(each.memory) for each in figures] for figures in found), key=max)
    some = rng.choice([*[max(needs)] * 4, rng.choice(needs), *[100 * max(needs)] * 2])
    return max(1, round(some)) + rng.choice([0, 0, 0, 0.5])


def random_plan(seed: int, problem: Problem) -> Plan | None:
    """Return a plan, most often one that shards inside some stage, and in one of two cases with several replicas."""
    rng = random.Random(f"inside plan {seed}")
    several = rng.random() < 0.5

    def wanted(plan: Plan | None) -> bool:
        return plan is not None and plan.sharded_inside and (plan.replicas > 1 or not several)

    tries = [random_uneven.random_plan(rng.randrange(10**6), problem) for _ in range(6)]
    return next((plan for plan in tries if wanted(plan)), next(filter(None, tries), None))


def _variants(rng: random.Random, cluster: Cluster) -> list[Variant]:
    while True:
        widths = rng.choice([(1,), (1,), (1, 2), (1, 2), (2,), (1, 3)])
        sizes = rng.choice([(1,), (1, 2), (1, 2), (2, 4), (1, 3), (1, 2, 4), (2, 3, 6)])
        rest = rng.choice([1, 1, 1, 2]), rng.choice([1, 1, 1, 2]), rng.random() < 0.4
        pairs = product(widths, sizes)
        found = [Variant(width, *rest[:2], rest[2] and width > 1, each) for width, each in pairs]
        kept = [each for each in found if each.width <= cluster.devices and oracle_plans.nests(cluster, each)]
        if kept and rng.random() < 0.2 and len(kept) > 1:
            kept.remove(rng.choice(kept))
        if kept:
            return kept


def _choices(rng: random.Random, graphs: dict[Variant, LayerGraph], cluster: Cluster) -> Choices:
    def maybe(*values: int) -> frozenset[int] | None:
        return None if rng.random() < 0.9 else frozenset(rng.sample(values, rng.randint(1, len(values))))

    widths = sorted({variant.tensor for variant in graphs})
    sizes = sorted({variant.microbatch for variant in graphs})
    choices = Choices(
        replicas=rng.choice([maybe(*range(1, cluster.devices + 1)), *(frozenset({count}) for count in (1, 1, 2))]),
        stages=maybe(1, 2, 3),
        zero=rng.choice([*random_default.ZERO_SETS, *map(frozenset, ({0, 1}, {0, 2}, {0, 3}, {0, 3}))]),
        zero_degree=rng.choice([None, None, None, None, frozenset({2, 3}), frozenset({2})]),
        stage_recompute=random_default._kinds(rng, graphs),
        stage_tensor=frozenset(widths) if rng.random() < 0.6 else None,
        shard_inside=rng.choice(list(map(frozenset, ({1, 2}, {1, 2}, {1, 2, 4}, {2}, {1, 3}, {1, 2, 3}, {2, 4})))),
        splits_batch=rng.choice([False, True, True, None]),
    )
    if rng.random() < 0.2:
        choices = replace(choices, microbatch=frozenset({rng.choice(sizes)}))
    return random_default.numbered(rng, choices)
