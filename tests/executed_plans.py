"""Small problems and plans of every shape, to be executed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from nest.cluster import Cluster, Level
from nest.graph import Edge, Layer, LayerGraph, Recomputed
from nest.plan import Plan, Stage, over_replicas
from nest.presets import DEFAULT
from nest.problem import Problem, Recompute, Training, Variant


def problem_of(layers: int, variant: Variant, *, skips: bool = False) -> Problem:
    """Return a chain of so many layers, of which the second feeds the last where it ``skips``."""
    again = Recomputed("selective", 0.5, 4), Recomputed("full", 1.0, 2)
    nodes = tuple(Layer(at, 1.0, 2.0, 10, 5, recomputed=again * (0 < at < layers - 1)) for at in range(layers))
    edges = [Edge(at, at + 1, 100) for at in range(layers - 1)]
    if skips:
        edges.append(Edge(1, layers - 1, 100))
    cluster = Cluster(64, 10**6, (Level(64, 1e3, 0.0),))
    graphs = {variant: LayerGraph(nodes, tuple(edges))}
    return Problem("chain", graphs, cluster, Training(global_batch=64, optimizer="adam"), preset=DEFAULT)


def plan_of(
    cuts: Sequence[int],
    variant: Variant,
    *,
    replicas: int = 1,
    zero: Sequence[int] = (),
    again: Sequence[Recompute] = (),
    layers_again: Sequence[int | None] = (),
    together: int = 0,
) -> Plan:
    """Return a plan whose stages have so many layers, ZeRO types and recomputation (none where not given).

    ``layers_again`` has how many layers of each stage recompute, ``together`` how many replicas share weights (all of
    them where neither is given).
    """
    ends = [0, *accumulate(cuts)]
    copies = (together or replicas) * variant.context * variant.expert
    stages = []
    for at, (first, end) in enumerate(pairwise(ends)):
        sharding = over_replicas(zero[at] if zero else 0, copies)
        layers = tuple(range(first, end))
        kind = again[at] if again else "none"
        count = layers_again[at] if layers_again else None
        first_device = at * replicas * variant.width
        stages.append(Stage(layers, first_device, variant.width, kind, sharding, recomputed=count))
    return Plan(variant, replicas, variant.width, tuple(stages), "stage-major")
