"""Training across sites: which axis crosses the slow link, what waiting costs, and what deciding one by one loses.

    python benchmarks/scale_across.py [--only local|waiting|flip|sequential]

The figures of `docs/scale_across.md` are what this prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
)
"""Widths of the clean case: two stages, so that either axis crosses on the links of all devices."""


def posed(levels: Sequence[Level], batch: int, choices: Choices) -> Problem:
    """Return Llama 3 70B on H100 with gradients of two bytes, nothing of which hides behind computation."""
    device = device_named("h100-sxm")
    devices = 1
    for level in levels:
        devices *= level.fanout
    cluster = Cluster(devices, device.hbm_bytes, tuple(levels), "sites", library="nccl")
    hardware = Hardware(device, cluster, (LevelFacts(),) * len(levels))
    recipe, framework = recipe_named("mixed-half"), framework_named("mist")
    return problem_of(Run(read_run(INSTANCE).model, hardware, SEQUENCE, batch, recipe, framework, choices=choices)).problem


def two_sites(bandwidth: float, latency_s: float, site: Sequence[Level] = (NODE, BUILDING)) -> tuple[Level, ...]:
    """Return two sites joined by links of so many bytes/s a device, as long as RDMA reaches."""
    return (*site, Level(2, bandwidth, latency_s, "campus", link="rdma"))


def crossing(problem: Problem, plan: Plan) -> str:
    """Return which axis crosses the outermost level: ``pipeline``, ``data``, both with a plus, or ``nothing``."""
    site = problem.cluster.group_sizes[-2]
    starts = [[stage.first_device + at * plan.replica_stride for at in range(plan.replicas)] for stage in plan.stages]
    sites = [[start // site for start in row] for row in starts]
    found = {
        "pipeline": any(here != there for one, next_ in zip(sites, sites[1:], strict=False) for here, there in zip(one, next_, strict=True)),
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


def exact_flip(devices: int, bandwidth: float, latency_s: float, launch_s: float = 7e-6, reached: float = 0.96) -> float:
    """Return the tokens from which summing gradients is faster than passing activations, bubble and latency included.

    Two stages of ``devices / 16`` replicas with tensor width 8. A microbatch adds ``x = launch + latency + bytes /
    bandwidth`` to the slowest stage, and once more to fill: ``(m + 1) x``. The gradients of a stage are summed inside a
    site, and by a tree across, whose pieces wait: ``A + T + 2 sqrt(A T)`` with ``A = 2 latency``.
    """
    replicas, speed = devices // 16, bandwidth * reached
    share = 2.0 * PARAMETERS / 16 / (replicas // 2)
    whole, path = share / speed, 2 * latency_s
    gradients = launch_s + path + whole + 2 * (path * whole) ** 0.5
    each = launch_s + latency_s + SEQUENCE * HIDDEN * 2.0 / 8 / speed
    return (gradients / each - 1) * replicas * SEQUENCE


# One after the other -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decided:
    """How a plan was decided, and what it takes."""

    how: str
    technologies: tuple[str, ...]
    seconds: float
    crossing: str


def menus() -> Problem:
    """Return a problem with a menu in the buildings and one between them, and a budget that does not reach for both."""
    inside = [
        Technology("100 Gb/s", 12.5e9, 14e-6, 1, "rdma"),
        Technology("400 Gb/s", 50e9, 14e-6, 3, "rdma"),
    ]
    across = [
        Technology("4 waves", 0.5e9, 25e-6, 0.2, "rdma"),
        Technology("32 waves", 4e9, 25e-6, 1, "rdma"),
        Technology("64 waves", 8e9, 25e-6, 2.2, "rdma"),
    ]
    levels = (NODE, Level.menu(8, inside, "building"), Level.menu(2, across, "campus"))
    return posed(levels, 128, Choices(stage_recompute=frozenset({"none"}), price_at_most=128 * 3.4))


def together(problem: Problem) -> Decided:
    """Decide everything together."""
    result = solve(problem)
    assert result.plan is not None
    assert result.objective_s is not None
    return Decided("together", result.plan.technologies, result.objective_s, crossing(problem, result.plan))


def technology_first(problem: Problem) -> Decided:
    """Buy the most bandwidth for each price that the budget still allows, level by level from the inside, then plan."""
    chosen: list[Technology] = []
    for level in problem.cluster.menus:
        left = [each for each in affordable(problem) if list(each.technologies[: len(chosen)]) == chosen]
        on = {each.technologies[len(chosen)] for each in left}
        chosen.append(max(on & set(level.alternatives), key=_worth))
    built = problem.built(chosen)
    result = solve(built)
    assert result.plan is not None
    assert result.objective_s is not None
    return Decided("technology first", result.plan.technologies, result.objective_s, crossing(built, result.plan))


def _worth(each: Technology) -> float:
    return each.bandwidth_bytes_per_s / float(each.price_per_device)


def placement_first(problem: Problem) -> Decided:
    """Plan for the first technology of each menu, then take the one with which this plan is fastest."""
    first = [level.alternatives[0] for level in problem.cluster.menus]
    plan = solve(problem.built(first)).plan
    assert plan is not None
    seconds, names = min(_priced(problem, plan, affordable(problem)))
    return Decided("placement first", names, seconds, crossing(problem, plan))


def _priced(
    problem: Problem, plan: Plan, choices: Sequence[Combination]
) -> Iterator[tuple[float, tuple[str, ...]]]:
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
    for bandwidth, latency_s in ((2e9, 0.0), (2e9, 25e-6), (2e9, 5e-4), (0.5e9, 25e-6)):
        levels = two_sites(bandwidth, latency_s)
        batch = flip(levels, WIDTHS, 64, 4096, 8)
        exact = exact_flip(128, bandwidth, latency_s) / 1e6
        tokens = batch * SEQUENCE / 1e6
        print(f"{bandwidth / 1e9:g} GB/s, {2e3 * latency_s:g} ms: flips at {tokens:.2f}, by formula {exact:.2f} million")
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
        print(f"{each.how}: {', '.join(each.technologies)}: {each.seconds:.4f} s (+{lost:.1f} %), {each.crossing} crosses")


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
