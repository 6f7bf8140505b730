"""A small problem for each feature of the space beyond plain chains under `default`, and all plans of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product

import oracle_chunks
import oracle_default as oracle
import oracle_plans
import oracle_uneven
from random_branches import BRANCHED, cuttings, orders, random_branched, reordered
from random_classes import divided
from random_default import Size, random_problem
from random_places import roomy, spoilt
from random_uneven import SMALL as UNEVEN
from random_uneven import random_problem as random_uneven
from test_chunks_agreement import chunked_problem

from nest.plan import Plan
from nest.presets import SIMULATED
from nest.problem import Problem

TINY = Size(layers=3, devices=6, levels=2, variants=1, batch=6)


@dataclass(frozen=True)
class Feature:
    """A feature: the problem of a seed, and its plans, memory and side constraints apart."""

    problem: Callable[[int], Problem]
    plans: Callable[[Problem], Iterator[Plan]]


def branched_plans(problem: Problem) -> Iterator[Plan]:
    """Yield every plan of a problem whose layers branch."""
    for order in orders(next(iter(problem.graphs.values()))):
        changed = reordered(problem, order)
        for outer in oracle_plans.outer_choices(changed):
            for runs in cuttings(order, outer.stages):
                for picked in product(*(list(oracle_plans.inners(changed, outer, run)) for run in runs)):
                    yield oracle_plans.plan_of(changed, outer, runs, list(picked))


def _scheduled(problem: Problem) -> Iterator[Plan]:
    """Yield every plan under each allowed schedule without chunks; stages of `zb-h1` recompute nothing."""
    for plan, schedule in product(oracle_plans.plans(problem), sorted(problem.choices.schedules - {"interleaved"})):
        if schedule != "zb-h1" or all(stage.recompute == "none" for stage in plan.stages):
            yield replace(plan, schedule=schedule)


def _chunked(problem: Problem) -> Iterator[Plan]:
    yield from _scheduled(problem)
    for chunked in oracle_chunks.choices(problem, oracle.Rounding(6)):
        ways = [list(oracle_chunks.inners(problem, chunked, at)) for at in range(chunked.stages)]
        yield from (oracle_chunks.plan_of(chunked, list(picked)) for picked in product(*ways))


def _uneven(problem: Problem) -> Iterator[Plan]:
    yield from oracle_plans.plans(problem)
    for shape in oracle_uneven.shapes(problem):
        layers = len(problem.graphs[shape.pieces[0].variant])
        for inner in combinations(range(1, layers), len(shape.pieces) - 1):
            cuts = list(pairwise([0, *inner, layers]))
            ways = [list(oracle_uneven.inners(problem, shape, at, run)) for at, run in enumerate(cuts)]
            yield from (oracle_uneven.plan_of(problem, shape, cuts, list(picked)) for picked in product(*ways))


def _few(problem: Problem) -> Problem:
    return problem.with_choices(zero=frozenset({0, 1, 3}))


FEATURES: Mapping[str, Feature] = {
    "chains": Feature(lambda seed: _few(random_problem(seed, TINY)), oracle_plans.plans),
    "idle devices": Feature(lambda seed: _few(roomy(seed)), oracle_plans.plans),
    "reserved devices": Feature(lambda seed: _few(spoilt(seed)), oracle_plans.plans),
    "classes": Feature(lambda seed: divided(_few(random_problem(seed, TINY)), f"classes {seed}"), oracle_plans.plans),
    "gpipe": Feature(
        lambda seed: _few(random_problem(seed, TINY)).with_choices(schedules=frozenset({"gpipe"})), _scheduled
    ),
    "interleaved": Feature(
        lambda seed: _few(chunked_problem(seed, replace(TINY, layers=5))),
        _chunked,
    ),
    "stage_tensor": Feature(lambda seed: random_uneven(seed, UNEVEN), _uneven),
    "branches": Feature(lambda seed: _few(random_branched(seed, BRANCHED)), branched_plans),
    "simulated": Feature(
        lambda seed: replace(_few(random_problem(seed, TINY)), preset=SIMULATED).with_choices(
            schedules=frozenset({"1f1b", "zb-h1"})
        ),
        _scheduled,
    ),
}
