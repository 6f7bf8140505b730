"""Small problems whose best plans are known by hand, for the tests of ablations."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from nest.ablate import Row
from nest.cluster import Cluster, Level
from nest.graph import Edge, Layer, LayerGraph
from nest.problem import Choices, Problem, Training, Variant


def problem_of(
    layers: int, levels: tuple[Level, ...], *, hbm: float = 1000, microbatches: int = 4, edge: float = 0, **choices: Any
) -> Problem:
    """Return a chain of layers of 1 s forward, 2 s backward and 10 bytes of parameters."""
    nodes = tuple(Layer(at, 1.0, 2.0, 10, 0) for at in range(layers))
    graph = LayerGraph(nodes, tuple(Edge(at, after, edge) for at, after in pairwise(range(layers))))
    devices = 1
    for level in levels:
        devices *= level.fanout
    cluster, training = Cluster(devices, hbm, levels), Training(microbatches)
    return Problem("by hand", {Variant(1): graph}, cluster, training, Choices(**choices))


TWO_LEVELS = (Level(2, 100.0, 0.0, "node"), Level(2, 1.0, 0.0, "rack"))
UNSHARDED = frozenset({0})

ONE_LAYER = problem_of(1, TWO_LEVELS, zero=UNSHARDED)
"""The best plan has 2 replicas, in one node: 3 s x 2 microbatches + 10 bytes / 100 = 6.1 s.

With all 4 it is 3 s x 1 + (0.1 + 0.05 + 2 x 10) = 23.15 s, and 3 s x 4 = 12 s with 1.
"""


def timeless(row: Row) -> Row:
    """Return a row without how long it took."""
    return replace(row, outcome=replace(row.outcome, wall_s=0.0), full=replace(row.full, wall_s=0.0))
