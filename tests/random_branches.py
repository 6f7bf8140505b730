"""Random small problems whose layers branch, under preset `default`, and the best of all ways to cut them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, count, pairwise, permutations, product

import oracle_default as oracle
import oracle_plans
from oracle_groups import decimal
from random_default import SMALL, UNIT, Size, random_problem

from nest.graph import Edge, LayerGraph
from nest.plan import Plan
from nest.problem import Problem

BRANCHED = replace(SMALL, layers=5, devices=8, levels=2, variants=1, batch=8)


def random_branched(seed: int, size: Size = BRANCHED, *, ugly: bool = False) -> Problem:
    """Return the problem of a seed; one of so few layers that nothing can branch stays a chain."""
    rng = random.Random(f"branches {seed}")
    wide = (random_problem(rng.randrange(10**9), size, ugly=ugly) for _ in count())
    problem = next(each for each in wide if each.cluster.devices > 2)
    layers = len(next(iter(problem.graphs.values())))
    pairs = _pairs(rng, layers)
    many = rng.random() < 0.3
    graphs = {
        variant: LayerGraph(graph.layers, tuple(Edge(*pair, _bytes(rng, many)) for pair in pairs), graph.table)
        for variant, graph in problem.graphs.items()
    }
    problem = replace(problem, graphs=graphs, name=f"branches {seed}")
    room = problem.cluster.hbm_bytes * rng.choice([1, 1, 2, 10])
    problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=room))
    blocks = max(problem.cluster.devices // variant.width for variant in graphs)
    stages = frozenset(each for each in (2, 3, 4) if each <= min(blocks, layers) and rng.random() < 0.6)
    return problem.with_choices(stages=stages, replicas=None) if stages else problem


def _bytes(rng: random.Random, many: bool) -> int:
    return UNIT * rng.choice([0, 1, 1, 2, 5, 20 if many else 3])


def _pairs(rng: random.Random, layers: int) -> list[tuple[int, int]]:
    """Return edges that make the layers one piece, and leave some neighbours loose where there are three."""
    while True:
        likely = rng.choice([0.2, 0.3, 0.5])
        pairs = {pair for pair in combinations(range(layers), 2) if rng.random() < likely}
        while len(parts := _pieces(layers, pairs)) > 1:
            one, other = rng.choice(sorted(parts[0])), rng.choice(sorted(parts[1]))
            pairs.add((min(one, other), max(one, other)))
        if layers < 3 or any(pair not in pairs for pair in pairwise(range(layers))):
            return sorted(pairs)


def _pieces(layers: int, pairs: set[tuple[int, int]]) -> list[set[int]]:
    """Return the sets of layers that edges join."""
    pieces: list[set[int]] = [{at} for at in range(layers)]
    for pair in pairs:
        joined = [piece for piece in pieces if piece & {*pair}]
        pieces = [piece for piece in pieces if piece not in joined] + [set().union(*joined)]
    return sorted(pieces, key=min)


def orders(graph: LayerGraph) -> Iterator[tuple[int, ...]]:
    """Yield every topological order of a graph, as places."""
    for order in permutations(range(len(graph))):
        rank = {place: at for at, place in enumerate(order)}
        if all(rank[source] < rank[target] for source, target in graph.places):
            yield order


class _Reordered(LayerGraph):
    """A graph in which a layer may come before the table whose weights it uses again, where no edge orders the two."""

    def _check_ties(self) -> None:
        """Take what was checked before it was put in another order."""


def reordered(problem: Problem, order: Sequence[int]) -> Problem:
    """Return a problem whose layers are in another order."""
    graphs = {
        variant: _Reordered(tuple(graph.layers[at] for at in order), graph.edges, graph.table)
        for variant, graph in problem.graphs.items()
    }
    return replace(problem, graphs=graphs)


def cuttings(order: Sequence[int], stages: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the runs of an order that are so many stages, each ascending: then all orders have each chain once."""
    for inner in combinations(range(1, len(order)), stages - 1):
        runs = list(pairwise([0, *inner, len(order)]))
        if all(list(order[first:end]) == sorted(order[first:end]) for first, end in runs):
            yield runs


class _Cutting:
    """Prices the stages of one outer choice along one order after the other, each stage once."""

    def __init__(self, problem: Problem, outer: oracle_plans.Outer, rounding: oracle.Rounding) -> None:
        self.problem, self.outer, self.rounding = problem, outer, rounding
        self.most = decimal(problem.cluster.hbm_bytes)
        self.group = oracle.Costs(problem, outer, rounding).group
        self._known: dict[
            tuple[int, frozenset[int], frozenset[int]], list[tuple[oracle.Figures, oracle_plans.Inner]]
        ] = {}

    def options(
        self, order: Sequence[int], runs: list[tuple[int, int]]
    ) -> list[list[tuple[oracle.Figures, oracle_plans.Inner]]]:
        """Return what each stage may choose, with what it costs."""
        found = []
        for at, (first, end) in enumerate(runs):
            key = frozenset(order[:first]), frozenset(order[first:end])
            if (at, *key) not in self._known:
                self._known[(at, *key)] = self._priced(order, at, (first, end))
            found.append(self._known[(at, *key)])
        return found

    def _priced(
        self, order: Sequence[int], at: int, run: tuple[int, int]
    ) -> list[tuple[oracle.Figures, oracle_plans.Inner]]:
        changed = reordered(self.problem, order)
        costs = oracle.Costs(changed, self.outer, self.rounding)
        costs.group = self.group
        priced = [(costs.stage(at, *run, each), each) for each in oracle_plans.inners(changed, self.outer, run)]
        return [(figures, each) for figures, each in priced if figures.memory <= self.most]


def best(problem: Problem, rounding: oracle.Rounding) -> oracle.Best:
    """Try every plan: each topological order, cut in each way."""
    found = oracle.Best(None, None)
    every = list(orders(next(iter(problem.graphs.values()))))
    for outer in oracle_plans.outer_choices(problem):
        cutting, costs = _Cutting(problem, outer, rounding), oracle.Costs(problem, outer, rounding)
        for order in every:
            for runs in cuttings(order, outer.stages):
                for picked in product(*cutting.options(order, runs)):
                    objective = costs.objective([figures for figures, _ in picked])
                    if found.objective is None or objective < found.objective:
                        chosen = [each for _, each in picked]
                        found = oracle.Best(
                            objective, oracle_plans.plan_of(reordered(problem, order), outer, runs, chosen)
                        )
    return found


def random_branched_plan(seed: int, problem: Problem) -> Plan:
    """Return a plan along a random order; memory and choices may be broken."""
    rng = random.Random(seed)
    variant = rng.choice([each for each in problem.graphs if each.width <= problem.cluster.devices])
    order = rng.choice(list(orders(problem.graphs[variant])))
    changed, room = reordered(problem, order), max(1, problem.cluster.devices // variant.width)
    stages = rng.randint(1, min(len(order), room))
    ways = list(cuttings(order, stages))
    changed, runs = (changed, rng.choice(ways)) if ways else (problem, [(0, len(order))])
    most = max(1, min(room // len(runs), problem.microbatches(variant)))
    outer = oracle_plans.Outer(variant, len(runs), rng.randint(1, most), rng.choice(["stage-major", "replica-major"]))
    free = changed.with_choices(zero=frozenset({0, 1, 2, 3}), zero_degree=None, stage_recompute=None)
    return oracle_plans.plan_of(
        changed, outer, runs, [rng.choice(list(oracle_plans.inners(free, outer, run))) for run in runs]
    )
