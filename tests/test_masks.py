"""Local side constraints in the dynamic program: hooks that admit at random, against every plan of a small problem."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import ClassVar

import numpy as np
import pytest
from judging import judged
from random_problems import Size, placed_plan, random_problem, show_problem
from seeds import seeds

from nest.constraints import LocalConstraint, Mask, Outer, Run, Site
from nest.explain import explain
from nest.plan import Plan, inside_stage
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem, Variant
from nest.result import Status
from nest.solve import solve
from nest.units import Ints, Number


def drawn(*keys: Ints | int) -> Ints:
    """Return a number of 0 to 999 for each combination of keys (they broadcast), always the same one."""
    state = np.full(np.broadcast(*keys).shape, 7, dtype=np.int64)
    for each in keys:
        state = (state * 40_503 + np.asarray(each) + 1) % 2_147_483_647
        state ^= state >> 7
    return state % 1000


@dataclass(frozen=True)
class Drawn(LocalConstraint):
    """Admits about ``keep`` of a thousand, by chance."""

    kind: ClassVar[str] = "drawn"
    seed: int
    keep: int

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"luck {self.seed}"


class DrawnOuter(Drawn):
    """Draws for outer choices."""

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether an outer choice is lucky."""
        return bool(drawn(self.seed, outer.variant.tensor, outer.stages, outer.replicas) < self.keep)


class DrawnRun(Drawn):
    """Draws for runs of layers."""

    def admits_run(self, problem: Problem, variant: Variant, run: Run) -> Mask:
        """Return the lucky runs."""
        return drawn(self.seed, variant.tensor, run.first, run.end) < self.keep


class DrawnStage(Drawn):
    """Draws for stages in their pipeline."""

    def admits_stage(self, problem: Problem, variant: Variant, stages: int, position: int, run: Run) -> Mask:
        """Return the lucky runs."""
        return drawn(self.seed, variant.tensor, stages, position, run.first, run.end) < self.keep


class DrawnPlace(Drawn):
    """Draws for stages in their place."""

    def admits_place(self, problem: Problem, outer: Outer, run: Run, site: Site) -> Mask:
        """Return the lucky runs."""
        where = (outer.stages, outer.replicas, site.position, site.start, site.devices, site.stride)
        return drawn(self.seed, *where, run.first, run.end) < self.keep


class DrawnLimits(Drawn):
    """Draws how much may be used."""

    def device_limit(self, problem: Problem) -> int:
        """Return a number of devices."""
        return max(1, problem.cluster.devices * self.keep // 1000)

    def memory_limit(self, problem: Problem) -> Number:
        """Return a number of bytes."""
        return problem.cluster.hbm_bytes * (900 + self.keep // 10) / 1000


KINDS = (DrawnOuter, DrawnRun, DrawnStage, DrawnPlace, DrawnLimits)


def plans(problem: Problem) -> Iterator[Plan]:
    """Yield every plan that keeps to the places of the definition."""
    for variant in problem.variants:
        layers, blocks = len(problem.graphs[variant]), problem.cluster.devices // variant.width
        shardings = [inside_stage(0, 1)] if 0 in problem.choices.zero else []
        types = sorted(problem.choices.zero - {0})
        shardings += [inside_stage(*each) for each in product(types, problem.zero_degrees(variant.width))]
        for stages in range(1, min(layers, blocks) + 1):
            for cuts, chosen in product(combinations(range(1, layers), stages - 1), product(shardings, repeat=stages)):
                size = sum(sharding.degree for sharding in chosen)
                for replicas in range(1, min(problem.training.microbatches, blocks // size) + 1):
                    yield placed_plan(problem, variant, [0, *cuts, layers], chosen, replicas)


def best(problem: Problem) -> int | None:
    """Return the judge's price of the best of all plans."""
    legal = (verdict for _, verdict in judged(problem, plans(problem)) if verdict.legal)
    return min((each.objective_ticks or 0 for each in legal), default=None)


def constrained(seed: int) -> Problem:
    """Return a small random problem with one or two constraints that draw."""
    rng = random.Random(seed)
    problem = random_problem(seed, Size(layers=4, devices=9)).with_preset(rng.choice([ARTIFACT, PAPER]))
    drawn = (
        rng.choice(KINDS)(rng.randrange(10**6), rng.choice([600, 800, 900, 950])) for _ in range(rng.choice([1, 2]))
    )
    return problem.with_constraints(*drawn)


def check(seed: int) -> None:
    """Assert that the solver's optimum is that of all plans, and that infeasibility is explained by what is true."""
    problem = constrained(seed)
    want, got = best(problem), solve(problem)
    shown = f"{show_problem(problem)}\n{problem.constraints}\n{got}\nwant {want}"
    assert got.objective_ticks == want, shown
    assert got.status is (Status.INFEASIBLE if want is None else Status.OPTIMAL), shown
    if want is None:
        assert got.reason, shown


@pytest.mark.parametrize("seed", seeds(50, 100))
def test_random_hooks(seed: int) -> None:
    """Whatever a local constraint looks at, the dynamic program stays exact under it."""
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_more_random_hooks(seed: int) -> None:
    """The same for many more."""
    check(seed)


def test_explained_by_constraints() -> None:
    """Where side constraints rule every plan out, they are in the conflict, and whatever is suggested helps."""
    found = 0
    for seed in range(50):
        problem = constrained(seed)
        free = problem.with_constraints()
        if solve(problem).plan is None and solve(free).plan is not None:
            explanation = explain(problem, time_limit_s=None)
            assert explanation is not None
            assert any(name.startswith("drawn: ") for name in explanation.conflict), explanation
            dropped = [each for each in explanation.relaxations if each.text.startswith("drop drawn: ")]
            assert all(solve(each.problem).plan is not None for each in explanation.relaxations), explanation
            found += bool(dropped)
    assert found > 1
