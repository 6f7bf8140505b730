"""Random problems and plans under preset `default` in which devices are left idle, or are down."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import oracle_plans
from oracle_places import groups, reserved, spots
from random_default import Size, random_problem

from nest.constraints import ReservedDevices
from nest.plan import Plan
from nest.problem import Problem

ROOMY = Size(layers=3, devices=16, levels=3, variants=1, batch=6)
"""Few layers and replicas on many devices, so that most plans leave some idle."""

LEAST = 7
"""Devices that there are at least."""


def idle_plan(seed: int, problem: Problem) -> Plan | None:
    """Return a plan in any of its places, None where the variant does not fit; memory may be broken."""
    rng = random.Random(seed)
    variant = rng.choice(list(problem.graphs))
    layers, room = len(problem.graphs[variant]), problem.cluster.devices // variant.width
    if not room or not oracle_plans.nests(problem.cluster, variant):
        return None
    stages = rng.randint(1, min(layers, room))
    replicas = rng.randint(1, max(1, min(room // stages, oracle_plans.microbatches(problem, variant))))
    found = list(spots(problem.cluster, variant.width, stages, replicas, reserved(problem)))
    if not found:
        return None
    spot = rng.choice(found)
    outer = oracle_plans.Outer(variant, stages, replicas, spot.arrangement, spot)
    runs = list(pairwise([0, *sorted(rng.sample(range(1, layers), stages - 1)), layers]))
    free = problem.with_choices(zero=frozenset({0, 1, 2, 3}), zero_degree=None, stage_recompute=None)
    return oracle_plans.plan_of(
        problem, outer, runs, [rng.choice(list(oracle_plans.inners(free, outer, run))) for run in runs]
    )


def roomy(seed: int) -> Problem:
    """Return a problem of a seed; most have few stages and replicas, and room in memory."""
    drawn = (random_problem(each, ROOMY) for each in range(seed, seed + 10**6, 10**4))
    problem = next(each for each in drawn if each.cluster.devices >= LEAST)
    rng = random.Random(f"places {seed}")
    if rng.random() < 0.7:
        problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=1e12))
    wanted = rng.choice([(None, None), ({1}, {2, 3}), ({2}, None), ({2}, {2}), ({2, 3}, {2, 3})])
    stages, replicas = (None if each is None else frozenset(each) for each in wanted)
    return problem.with_choices(stages=stages, replicas=replicas)


def spoilt(seed: int) -> Problem:
    """Return a problem with devices that are down: single ones, or a whole group."""
    problem, rng = roomy(seed), random.Random(f"down {seed}")
    devices = problem.cluster.devices
    size = rng.choice([1, 1, 1, *(size for size in groups(problem.cluster) if size < devices)])
    picked = [rng.randrange(-(-devices // size)) for _ in range(rng.choice([1, 1, 2, 3]))]
    down = {each for group in picked for each in range(group * size, min((group + 1) * size, devices))}
    return problem.with_constraints(ReservedDevices(sorted(down)))
