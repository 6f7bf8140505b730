"""Random small problems whose plans may follow several schedules, most of them with several stages."""

from __future__ import annotations

import random
from dataclasses import replace

from random_default import Size, random_problem

from nest.graph import LayerGraph
from nest.presets import DEFAULT, SIMULATED
from nest.problem import Problem

SMALL = Size(layers=4, devices=8, levels=3, variants=1, batch=8)


def scheduled_problem(seed: int, size: Size = SMALL) -> Problem:
    """Return the problem of a seed, under preset `default` or `simulated`."""
    problem = scheduled(seed, random_problem(seed, size))
    rng, room = random.Random(f"stages {seed}"), min(size.layers, max(problem.cluster.devices, 1))
    return problem.with_choices(stages=frozenset(range(2, room + 1))) if room > 1 and rng.random() < 0.6 else problem


def scheduled(seed: int, problem: Problem) -> Problem:
    """Return a problem that allows some schedules without chunks of preset `default` or `simulated`."""
    rng = random.Random(f"schedules {seed}")
    graphs = {variant: _weighted(rng, graph) for variant, graph in problem.graphs.items()}
    preset = rng.choice([SIMULATED, SIMULATED, DEFAULT])
    known = [name for name in preset.schedules if name != "interleaved"]
    names = rng.sample(known, rng.randint(1, len(known)))
    return replace(problem, graphs=graphs, preset=preset).with_choices(schedules=frozenset(names))


def _weighted(rng: random.Random, graph: LayerGraph) -> LayerGraph:
    """Return a graph some of whose layers say what part of their backward pass takes gradients of weights."""
    shares = rng.choice([(None,), (None, 0.25, 0.5, 1.0), (0.0, 0.375)])
    layers = tuple(replace(layer, weight_share=rng.choice(shares)) for layer in graph.layers)
    return replace(graph, layers=layers)
