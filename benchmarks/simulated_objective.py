"""How often the best plan by simulated time beats the best by `sum`, by how much, and how long it takes to find.

    python benchmarks/simulated_objective.py [--problems COUNT] [--runs] [--schedules NAMES] [--limit SECONDS]

Random problems are those of the tests, a chain of a few layers on a few devices each. Runs are models on clusters.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.families import Hyperparameters, from_hyperparameters
from nest.files.allowed import parse_schedules
from nest.hardware import cluster_named
from nest.presets import DEFAULT, SIMULATED, ScheduleName
from nest.problem import Problem
from nest.result import Result
from nest.runs import Run, problem_of
from nest.solve import solve

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from random_default import Size, random_problem

ONE: frozenset[ScheduleName] = frozenset({"1f1b"})
SMALL = Size(layers=7, devices=16, levels=3, variants=1, batch=24)

RUNS = (
    ("gpt 24 layers", Hyperparameters("gpt", 24, 2048, 16, 16, ffn=8192, vocab=50304, seq=2048), "dgx-h100:32", 64),
    (
        "llama 32 layers",
        Hyperparameters("llama", 32, 4096, 32, 8, ffn=14336, vocab=128256, seq=4096),
        "dgx-h100:64",
        128,
    ),
    (
        "llama 80 layers",
        Hyperparameters("llama", 80, 8192, 64, 8, ffn=28672, vocab=128256, seq=4096),
        "dgx-h100:64",
        32,
    ),
    (
        "llama 80 layers wide",
        Hyperparameters("llama", 80, 8192, 64, 8, ffn=28672, vocab=128256, seq=4096),
        "dgx-h100:512",
        128,
    ),
    (
        "llama 126 layers",
        Hyperparameters("llama", 126, 16384, 128, 8, ffn=53248, vocab=128256, seq=4096),
        "dgx-h100:1024",
        128,
    ),
)


def compared(
    problem: Problem, limit_s: float | None, names: frozenset[ScheduleName]
) -> tuple[int, Result, float, float] | None:
    """Return the simulated time of the best plan by `sum`, the best by simulation, and the seconds both took."""
    begin = time.perf_counter()
    plan = solve(problem.with_preset(DEFAULT), time_limit_s=limit_s).plan
    middle = time.perf_counter()
    played = problem.with_preset(SIMULATED).with_choices(schedules=names)
    found = solve(played, time_limit_s=limit_s)
    end = time.perf_counter()
    ticks = None if plan is None else evaluate(played, plan).objective_ticks
    if found.plan is not None and names != ONE:
        print(f"{problem.name}: {found.plan.schedule}, {len(found.plan.stages)} stages")
    return None if ticks is None else (ticks, found, middle - begin, end - middle)


def random_problems(count: int) -> Iterator[Problem]:
    """Yield random problems of the tests."""
    for seed in range(count):
        yield random_problem(10**6 + seed, SMALL)


def on_random(count: int) -> None:
    """Print how the two optima differ on random problems."""
    gains, seconds, feasible = list[float](), list[float](), 0
    for problem in random_problems(count):
        try:
            found = compared(problem, None, ONE)
        except InvalidProblem:
            continue
        if found is None or found[1].objective_ticks is None:
            continue
        feasible += 1
        seconds.append(found[3])
        if found[1].objective_ticks < found[0]:
            gains.append(1 - found[1].objective_ticks / found[0])
    some = f", by {100 * mean(gains):.2f} % on average and {100 * max(gains):.2f} % at most" if gains else ""
    print(f"{count} problems, {feasible} with a plan: the best by simulation is faster in {len(gains)}{some}")
    print(f"seconds for each: {mean(seconds):.3f} on average, {max(seconds):.3f} at most")


def on_runs(limit_s: float, only: str, names: frozenset[ScheduleName]) -> None:
    """Print the same for runs of models."""
    for name, hyperparameters, cluster, batch in RUNS:
        if only not in name:
            continue
        run = Run(from_hyperparameters(hyperparameters), cluster_named(cluster), hyperparameters.seq, batch)
        found = compared(problem_of(run).problem, limit_s, names)
        if found is None or found[1].objective_ticks is None or found[1].bound_ticks is None:
            print(f"{name} on {cluster}, batch {batch}: no plan within {limit_s} s")
            continue
        by_sum, best, first_s, second_s = found
        assert best.objective_ticks is not None
        assert best.bound_ticks is not None
        gap, gain = 1 - best.bound_ticks / best.objective_ticks, 1 - best.objective_ticks / by_sum
        print(
            f"{name} on {cluster}, batch {batch}: {best.status}, {100 * gain:.3f} % below the best by sum, "
            f"gap {100 * gap:.3f} %; {first_s:.1f} s by sum, {second_s:.1f} s by simulation"
        )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--runs", action="store_true", help="runs instead of random problems")
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    parser.add_argument("--schedules", default="1f1b", help="allowed ones of the search by simulation, with commas")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each solve of a run")
    asked = parser.parse_args()
    if asked.runs:
        on_runs(asked.limit, asked.only, parse_schedules(asked.schedules))
    else:
        on_random(asked.problems)


if __name__ == "__main__":
    main()
