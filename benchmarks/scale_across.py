"""Training across sites: which axis crosses the slow link, what waiting costs, and what deciding one by one loses.

    python benchmarks/scale_across.py [--only local|waiting|flip|sequential]

The figures of `docs/scale_across.md` are what this prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

from measure import ROOT

from nest.cluster import Cluster, Level, Technology
from nest.costing import framework_named, recipe_named
from nest.evaluate import evaluate
from nest.hardware import Hardware, LevelFacts, device_named
from nest.plan import Plan
from nest.problem import Choices, Problem
from nest.result import Result
from nest.runs import Run, problem_of, read_run
from nest.solve import solve
from nest.technologies import Combination, affordable

INSTANCE = ROOT / "instances" / "llama3-70b_two_buildings.toml"
SEQUENCE, HIDDEN, PARAMETERS = 8192, 8192, 70.55e9

NODE = Level(8, 450e9, 3.4e-6, "node", link="nvlink")
BUILDING = Level(8, 50e9, 14e-6, "building", link="rdma")

WIDTHS = Choices(
    tensor=frozenset({8}),
    sequence=True,
    context=frozenset({1}),
    microbatch=frozenset({1}),
    stages=frozenset({2}),
    stage_recompute=frozenset({"none"}),
    zero=frozenset({0}),
)
"""Widths of the clean case: two stages, so that either axis crosses on the links of all devices, and nothing shared."""


def posed(levels: Sequence[Level], batch: int, choices: Choices) -> Problem:
    """Return Llama 3 70B on H200 with gradients of two bytes, nothing of which hides behind computation."""
    device = device_named("h200")
    devices = 1
    for level in levels:
        devices *= level.fanout
    cluster = Cluster(devices, device.hbm_bytes, tuple(levels), "sites", library="nccl")
    hardware = Hardware(device, cluster, (LevelFacts(),) * len(levels))
    recipe, framework = recipe_named("mixed-half"), framework_named("mist")
    return problem_of(
        Run(read_run(INSTANCE).model, hardware, SEQUENCE, batch, recipe, framework, choices=choices)
    ).problem


def two_sites(bandwidth: float, latency_s: float, site: Sequence[Level] = (NODE, BUILDING)) -> tuple[Level, ...]:
    """Return two sites joined by links of so many bytes/s a device, as long as RDMA reaches."""
    return (*site, Level(2, bandwidth, latency_s, "campus", link="rdma"))


def crossing(problem: Problem, plan: Plan) -> str:
    """Return which axis crosses the outermost level: ``pipeline``, ``data``, both with a plus, or ``nothing``."""
    site = problem.cluster.group_sizes[-2]
    starts = [[stage.first_device + at * plan.replica_stride for at in range(plan.replicas)] for stage in plan.stages]
    sites = [[start // site for start in row] for row in starts]
    found = {
        "pipeline": any(
            here != there for one, after in pairwise(sites) for here, there in zip(one, after, strict=True)
        ),
        "data": any(len(set(row)) > 1 for row in sites),
    }
    return "+".join(name for name, crosses in found.items() if crosses) or "nothing"


# Local values --------------------------------------------------------------------------------------------------------


def local_pair(batch: int = 64) -> tuple[Problem, Problem]:
    """Return two sites whose link is as good as those inside, and a single site of all devices."""
    choices = replace(WIDTHS, stages=None, tensor=frozenset({4, 8}))
    across = two_sites(BUILDING.bandwidth_bytes_per_s, BUILDING.latency_s)
    single = (NODE, replace(BUILDING, fanout=2 * BUILDING.fanout))
    return posed(across, batch, choices), posed(single, batch, choices)


# Waiting -------------------------------------------------------------------------------------------------------------

ROUND_TRIPS_S = (28e-6, 1e-4, 1e-3, 5e-3, 10e-3, 50e-3, 0.1)


def waiting(batch: int = 512) -> Iterator[tuple[float, Problem, Result]]:
    """Yield the best plan for each round trip between two sites, all at one tick: each is one choice of one menu."""
    menu = [Technology(f"{trip:g} s", 12.5e9, trip / 2, link="rdma") for trip in ROUND_TRIPS_S]
    problem = posed((NODE, BUILDING, Level.menu(2, menu, "campus")), batch, replace(WIDTHS, stages=None))
    for trip, (each,) in zip(ROUND_TRIPS_S, problem.cluster.combinations(), strict=True):
        built = problem.built([each])
        yield trip, built, solve(built)


# The flip ------------------------------------------------------------------------------------------------------------


SLOW_LINKS = ((2e9, 25e-6), (0.5e9, 25e-6), (0.125e9, 25e-6), (0.5e9, 0.5e-3), (0.5e9, 5e-3))
"""Bytes/s of a device and latency of the links between the sites."""


def predicted_tokens(gradient_bytes: float = 2.0, element_bytes: float = 2.0) -> float:
    """Return at how many tokens either axis sends as many bytes one way over the slow link.

    Gradients of two halves that are each summed inside a site: ``2 (N - 1) / N`` of all with ``N = 2``. Activations: a
    hidden vector for each token there, and as much for its gradient back.
    """
    return 2 * (1 / 2) * gradient_bytes * PARAMETERS / (HIDDEN * element_bytes)


def sweep(levels: Sequence[Level], batches: Sequence[int], choices: Choices) -> Iterator[tuple[int, Problem, Result]]:
    """Yield the best plan for each batch."""
    for batch in batches:
        problem = posed(levels, batch, choices)
        yield batch, problem, solve(problem)


def flip(levels: Sequence[Level], choices: Choices, low: int, high: int, step: int) -> int:
    """Return the least batch, to a step, with which data parallel crosses; it does with ``high``, not with ``low``."""
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        ((_, problem, result),) = sweep(levels, [middle], choices)
        assert result.plan is not None
        low, high = (low, middle) if "data" in crossing(problem, result.plan) else (middle, high)
    return high


def exact_flip(bandwidth: float, latency_s: float, launch_s: float = 7e-6, reached: float = 0.96) -> float:
    """Return the tokens from which the sum across takes less than the transfers, bubble, latency and sites included.

    Eight replicas of two stages of tensor width 8. Where the pipeline crosses, ``m`` microbatches and one more to fill
    pass the slow link, and a ring sums gradients over 8 devices of one site; where data parallel does, transfers stay
    inside, and a tree sums over both sites, 4 devices of each sending at once, in pieces that wait for each other
    (``A + T + 2 sqrt(A T)``, `nest.cost.algorithms.tree`).
    """
    replicas, inside_s, inside = 8, BUILDING.latency_s, BUILDING.bandwidth_bytes_per_s * reached
    weights, moved = 2.0 * PARAMETERS / 16, SEQUENCE * HIDDEN * 2.0 / 8
    path, flow = 2 * (2 * inside_s + latency_s), weights / (replicas / 2) / (bandwidth * reached)
    tree = launch_s + path + flow + 2 * sqrt(path * flow)
    steps = 2 * (replicas - 1)
    ring = launch_s + steps * inside_s + steps / replicas * weights / inside
    longer = (latency_s - inside_s) + moved * (1 / (bandwidth * reached) - 1 / inside)
    return ((tree - ring) / longer - 1) * replicas * SEQUENCE


# One after the other -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decided:
    """How a plan was decided, and what it takes."""

    how: str
    technologies: tuple[str, ...]
    seconds: float
    crossing: str


def menus() -> Problem:
    """Return a problem with a menu in the buildings, one between them, and a budget that does not reach for the best.

    Prices are ours: a card and its port at 100 or 400 Gb/s, and the part of a device in 256 Gb/s or 4 Tb/s of a site.
    """
    inside = [Technology("100 Gb/s", 12.5e9, 14e-6, 1, "rdma"), Technology("400 Gb/s", 50e9, 14e-6, 3, "rdma")]
    across = [Technology("256 Gb/s", 0.5e9, 25e-6, 0.25, "rdma"), Technology("4 Tb/s", 8e9, 25e-6, 2.2, "rdma")]
    levels = (NODE, Level.menu(8, inside, "building"), Level.menu(2, across, "campus"))
    free = Choices(stage_recompute=frozenset({"none"}), context=frozenset({1}), price_at_most=128 * 3.3)
    return posed(levels, 32, free)


def together(problem: Problem) -> Decided:
    """Decide everything together."""
    result = solve(problem)
    assert result.plan is not None
    assert result.objective_s is not None
    return Decided("together", result.plan.technologies, result.objective_s, crossing(problem, result.plan))


def technology_first(problem: Problem) -> Decided:
    """Widen the narrowest links first: the most bandwidth that the budget allows, from the outside in; then plan."""
    best = max(affordable(problem), key=lambda each: [one.bandwidth_bytes_per_s for one in reversed(each.technologies)])
    built = problem.built(best.technologies)
    result = solve(built)
    assert result.plan is not None
    assert result.objective_s is not None
    return Decided("technology first", result.plan.technologies, result.objective_s, crossing(built, result.plan))


def placement_first(problem: Problem) -> Decided:
    """Plan for the first technology of each menu, then take the one with which this plan is fastest."""
    first = [level.alternatives[0] for level in problem.cluster.menus]
    plan = solve(problem.built(first)).plan
    assert plan is not None
    seconds, names = min(_priced(problem, plan, affordable(problem)))
    return Decided("placement first", names, seconds, crossing(problem, plan))


def _priced(problem: Problem, plan: Plan, choices: Sequence[Combination]) -> Iterator[tuple[float, tuple[str, ...]]]:
    for each in choices:
        names = tuple(one.name for one in each.technologies)
        verdict = evaluate(problem, replace(plan, technologies=names))
        assert verdict.legal
        assert verdict.objective_ticks is not None
        yield verdict.scale.time.seconds(verdict.objective_ticks), names


# Printing ------------------------------------------------------------------------------------------------------------


def print_local() -> None:
    """Print whether a link as good as those inside is no link at all."""
    across, single = (solve(problem) for problem in local_pair())
    assert across.plan is not None
    assert single.plan is not None
    print(f"two sites {across.objective_ticks} ticks, one site {single.objective_ticks} ticks")
    print(f"the same stages: {across.plan.stages == single.plan.stages}")


def print_waiting() -> None:
    """Print the iteration by round trip."""
    for trip, problem, result in waiting():
        assert result.plan is not None
        print(f"round trip {1e3 * trip:8.3f} ms: {result.objective_s:.6f} s, {crossing(problem, result.plan)} crosses")


def print_flip() -> None:
    """Print the batches at which data parallel begins to cross, beside what the bytes say."""
    print(f"bytes: {predicted_tokens() / 1e6:.2f} million tokens")
    for bandwidth, latency_s in SLOW_LINKS:
        levels = two_sites(bandwidth, latency_s)
        batch = flip(levels, WIDTHS, 64, 4096, 8)
        exact = exact_flip(bandwidth, latency_s) / 1e6
        tokens = batch * SEQUENCE / 1e6
        link = f"{bandwidth / 1e9:g} GB/s, round trip {2e3 * latency_s:g} ms"
        print(f"{link}: flips at {tokens:.2f}, by formula {exact:.2f} million")
    free = Choices(stage_recompute=frozenset({"none"}), sequence=True, context=frozenset({1}))
    for batch, problem, result in sweep(two_sites(2e9, 25e-6), (128, 256, 512, 1024, 2048), free):
        plan = result.plan
        assert plan is not None
        shape = f"t {plan.variant.tensor}, {len(plan.stages)} stages, {plan.replicas} replicas"
        print(f"free, batch {batch}: {result.objective_s:.3f} s, {shape}, {crossing(problem, plan)} crosses")


def print_sequential() -> None:
    """Print what deciding one by one loses."""
    problem = menus()
    best = together(problem)
    for each in (best, technology_first(problem), placement_first(problem)):
        lost = 100 * (each.seconds / best.seconds - 1)
        print(
            f"{each.how}: {', '.join(each.technologies)}: {each.seconds:.4f} s (+{lost:.1f} %), {each.crossing} crosses"
        )


PARTS = {"local": print_local, "waiting": print_waiting, "flip": print_flip, "sequential": print_sequential}


def main() -> None:
    """Print one part, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(PARTS))
    only = parser.parse_args().only
    for name, print_part in PARTS.items():
        if only in (None, name):
            print(f"== {name}", flush=True)
            print_part()


if __name__ == "__main__":
    main()
