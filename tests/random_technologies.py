"""Random small problems whose networks have menus: technologies that are better, worse, neither, cheaper or dearer."""

from __future__ import annotations

import random
from dataclasses import replace

from random_default import SMALL, Size, random_problem

from nest.cluster import Level, Technology
from nest.cost.links import LINK_KINDS
from nest.problem import Problem


def with_menus(rng: random.Random, problem: Problem, most: int = 3) -> Problem:
    """Return a problem with menus at one level or two, and a budget in a half of all."""
    cluster = problem.cluster
    chosen = rng.sample(range(len(cluster.levels)), min(len(cluster.levels), rng.choice([1, 1, 2])))
    levels = [_menu(rng, level, most) if at in chosen else level for at, level in enumerate(cluster.levels)]
    built = replace(cluster, levels=tuple(levels))
    prices = sorted(float(built.price(each)) for each in built.combinations())
    budget = rng.choice([None, None, rng.choice(prices), rng.choice(prices), prices[0] - 1 if prices[0] >= 1 else 0])
    return replace(problem, cluster=built).with_choices(price_at_most=budget)


def _menu(rng: random.Random, level: Level, most: int) -> Level:
    """Return a level that may have its own links, or some that differ in one thing or in all."""
    own = Technology(
        "own",
        level.bandwidth_bytes_per_s,
        level.latency_s,
        rng.choice([0, 1, 2.5, 4]),
        level.link,
        level.pair_bytes_per_s,
        level.in_network_reduction,
    )
    found = [own, *(_other(rng, own, at) for at in range(rng.randint(1, most - 1)))]
    rng.shuffle(found)
    return replace(Level.menu(level.fanout, found, level.name))


def _other(rng: random.Random, own: Technology, at: int) -> Technology:
    links = own.link if rng.random() < 0.7 else rng.choice([each.name for each in LINK_KINDS])
    return replace(
        own,
        name=f"other {at}",
        bandwidth_bytes_per_s=own.bandwidth_bytes_per_s * rng.choice([0.5, 1, 1, 2, 8]),
        latency_s=own.latency_s * rng.choice([0, 0.5, 1, 1, 2]) + rng.choice([0, 0, 0.002]),
        price_per_device=rng.choice([0, 1, 2.5, 4]),
        link=links,
        in_network_reduction=rng.random() < 0.2 if rng.random() < 0.2 else own.in_network_reduction,
    )


def random_menus(seed: int, size: Size = SMALL) -> Problem:
    """Return the problem of a seed."""
    return with_menus(random.Random(f"menus {seed}"), random_problem(seed, size))
