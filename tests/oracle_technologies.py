"""The slow plain reference for menus of technologies: every choice, with every plan of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from nest.cluster import Cluster, Level
from nest.plan import Plan
from nest.problem import Problem


@dataclass(frozen=True)
class Best:
    """The best objective of all choices, its least price, and a plan that has both, or nothing."""

    objective: int | None = None
    price: Fraction | None = None
    plan: Plan | None = None


def choices(problem: Problem) -> Iterator[tuple[tuple[str, ...], Fraction, Problem]]:
    """Yield names, price and a problem without menus for each choice within the budget."""
    cluster, most = problem.cluster, problem.choices.price_at_most
    menus = [level.alternatives or (None,) for level in cluster.levels]
    for picked in product(*menus):
        levels = []
        for level, each in zip(cluster.levels, picked, strict=True):
            figures = level if each is None else each
            links = figures.link, figures.pair_bytes_per_s, figures.in_network_reduction
            levels.append(Level(level.fanout, figures.bandwidth_bytes_per_s, figures.latency_s, level.name, *links))
        kept = [each for each in picked if each is not None]
        price = sum((Fraction(repr(each.price_per_device)) * cluster.devices for each in kept), Fraction(0))
        if most is None or price <= Fraction(repr(most)):
            plain = Cluster(cluster.devices, cluster.hbm_bytes, tuple(levels), "", cluster.partial, cluster.library)
            yield tuple(each.name for each in kept), price, replace(problem, cluster=plain)


def best(problem: Problem, solve: Callable[[Problem], tuple[int, Plan] | None]) -> Best:
    """Return the best of what is best with each choice, of equals the cheapest."""
    found = Best()
    for names, price, plain in choices(problem):
        each = solve(plain)
        if each is None:
            continue
        key = each[0], price
        if found.objective is None or found.price is None or key < (found.objective, found.price):
            found = Best(*key, replace(each[1], technologies=names))
    return found
