"""Random problems under preset `default` on clusters with several classes of devices."""

from __future__ import annotations

import random
from dataclasses import replace

from oracle_places import groups
from random_default import SMALL, Size, random_problem
from random_places import roomy, spoilt

from nest.cluster import Cluster, DeviceClass
from nest.graph import Collective, Layer, LayerGraph
from nest.problem import Problem

FEW = Size(layers=3, devices=8, levels=3, variants=2, batch=12)
"""Small enough for every plan on every line to be tried."""

FACTORS = (0.5, 0.5, 0.25, 0.75, 1.0, 1.5, 2.0, 3.0)


def mixed(seed: int, size: Size = SMALL) -> Problem:
    """Return the problem of a seed with one or two further classes of devices."""
    return divided(random_problem(seed, size), f"classes {seed}")


def mixed_places(seed: int) -> Problem:
    """Return a problem in which plans leave devices idle, or stand around some that are down."""
    return divided((spoilt if seed % 2 else roomy)(seed), f"classes {seed}")


def divided(problem: Problem, seed: str) -> Problem:
    """Return a problem in which some of its devices are of other classes; the same where it has a single device."""
    rng, cluster = random.Random(seed), problem.cluster
    ranges = _ranges(rng, cluster)
    if not ranges:
        return problem
    classes = tuple(
        DeviceClass(name, each, _memory(rng, cluster), rng.choice([None, 1e-9, 1e-7]))
        for name, each in zip(("fast", "old"), ranges, strict=False)
    )
    graphs = {}
    for variant, graph in problem.graphs.items():
        others = tuple((each.name, tuple(_layers(rng, graph.layers))) for each in classes)
        graphs[variant] = LayerGraph(graph.layers, graph.edges, graph.table, others)
    cluster = replace(cluster, own_class="usual", classes=classes)
    return replace(problem, graphs=graphs, cluster=cluster)


def _ranges(rng: random.Random, cluster: Cluster) -> list[tuple[tuple[int, int], ...]]:
    """Return the devices of one or two further classes: mostly whole groups at an end, or any devices at all."""
    devices = cluster.devices
    sizes = [size for size in (1, *groups(cluster)) if size < devices]
    if not sizes:
        return []
    size = rng.choice(sizes)
    cells = list(range(-(-devices // size)))
    picked = cells[rng.randrange(1, len(cells)) :]
    if rng.random() < 0.3:
        picked = sorted(rng.sample(cells, len(picked)))
    elif rng.random() < 0.3:
        picked = cells[: len(picked)]
    parts = [picked]
    if len(picked) > 1 and rng.random() < 0.4:
        parts = [picked[: len(picked) // 2], picked[len(picked) // 2 :]]
    return [_joined({one for cell in part for one in _cell(cell, size, devices)}) for part in parts]


def _cell(at: int, size: int, devices: int) -> range:
    return range(at * size, min((at + 1) * size, devices))


def _joined(devices: set[int]) -> tuple[tuple[int, int], ...]:
    firsts = sorted(one for one in devices if one - 1 not in devices)
    return tuple(zip(firsts, sorted(one + 1 for one in devices if one + 1 not in devices), strict=True))


def _memory(rng: random.Random, cluster: Cluster) -> float:
    return max(1, round(cluster.hbm_bytes * rng.choice([1, 1, 0.6, 1.5, 2])))


def _layers(rng: random.Random, layers: tuple[Layer, ...]) -> list[Layer]:
    """Return layers with other times: all by one factor, or each by one of its own."""
    factor, alike = rng.choice(FACTORS), rng.random() < 0.5

    def times() -> float:
        return factor if alike else rng.choice(FACTORS)

    return [
        replace(
            layer,
            forward_s=layer.forward_s * times(),
            backward_s=layer.backward_s * times(),
            collectives=_beside(layer.collectives, times()),
            recomputed=tuple(
                replace(each, repeated_s=each.repeated_s * times(), collectives=_beside(each.collectives, times()))
                for each in layer.recomputed
            ),
        )
        for layer in layers
    ]


def _beside(collectives: tuple[Collective, ...], factor: float) -> tuple[Collective, ...]:
    return tuple(replace(each, hidden_s=each.hidden_s * factor) for each in collectives)
