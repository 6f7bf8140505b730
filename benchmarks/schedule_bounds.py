"""How near formulas come to the simulated makespan of 1F1B on random uneven pipelines, and how fast the simulator is.

Loads are whole numbers from 1,000 to ``1,000 * spread``, transfers take no time. With ``--ratio-spread 0`` a backward
pass takes twice as long as its forward pass on every stage; with 0.5 that factor lies between 1 and 3, by stage.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from statistics import mean

from nest.cost.schedule import iteration, summed
from nest.cost.schedules import Schedule, least_by_load, least_by_wait
from nest.simulate import Pipeline, StageTimes, simulate

ONE = Schedule("1f1b")
SIZES = ((16, 512), (64, 2000))
TIMED = (ONE, Schedule("gpipe"), Schedule("zb-h1"), Schedule("interleaved", 4))


def random_stages(rng: random.Random, spread: float, ratio_spread: float) -> tuple[StageTimes, ...]:
    """Return 2 to 16 stages."""
    stages = []
    for _ in range(rng.randint(2, 16)):
        load = rng.randint(1000, round(1000 * spread))
        forward = round(load / (1 + 2 * (1 + rng.uniform(-ratio_spread, ratio_spread))))
        stages.append(StageTimes(forward, load - forward))
    return tuple(stages)


def formulas(pipeline: Pipeline) -> dict[str, int]:
    """Return the makespan as each formula has it."""
    loads, count = pipeline.loads, pipeline.microbatches
    forwards = [stage.forward for stage in pipeline.stages]
    return {
        "by load": least_by_load(loads, count),
        "by wait": least_by_wait(forwards, loads, count),
        "sum": summed(sum(loads), max(loads), count, 0),
        "bottleneck": iteration(max(loads), count, 1, len(loads), 0),
    }


def apart(pipelines: int, factor: int, spread: float, ratio_spread: float, seed: int) -> dict[str, list[float]]:
    """Return how far each formula is from the simulated makespan, as parts of it, for ``m = factor * S``."""
    rng = random.Random(seed)
    found: dict[str, list[float]] = {}
    for _ in range(pipelines):
        stages = random_stages(rng, spread, ratio_spread)
        pipeline = Pipeline(stages, factor * len(stages))
        taken = simulate(pipeline, ONE).makespan
        for name, ticks in formulas(pipeline).items():
            found.setdefault(name, []).append(ticks / taken - 1)
    return found


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that something takes, the best of three."""
    walls = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        walls.append(time.perf_counter() - begin)
    return min(walls)


def main() -> None:
    """Print both tables."""
    asked = parser().parse_args()
    print("m       formula       mean %   least %   most %   below the simulated")
    for factor in (1, 4, 16):
        for name, parts in apart(asked.pipelines, factor, asked.spread, asked.ratio_spread, asked.seed).items():
            figures = "".join(f"{100 * part:10.2f}" for part in (mean(parts), min(parts), max(parts)))
            print(f"{factor:>2} S    {name:<10}{figures}   {sum(part < 0 for part in parts)} of {len(parts)}")
    print("\nstages  microbatches  schedule     seconds")
    for stages, microbatches in SIZES:
        pipeline = Pipeline((StageTimes(30, 60, 30),) * stages, microbatches)
        for schedule in TIMED:
            wall_s = timed(lambda pipeline=pipeline, schedule=schedule: simulate(pipeline, schedule))  # type: ignore[misc]
            print(f"{stages:>6}  {microbatches:>12}  {schedule.name:<12} {wall_s:.2f}")


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--pipelines", type=int, default=2000, help="random pipelines for each m")
    options.add_argument("--spread", type=float, default=2.0, help="largest possible load over the smallest")
    options.add_argument("--ratio-spread", type=float, default=0.0, help="by how much backward / forward varies")
    options.add_argument("--seed", type=int, default=1)
    return options


if __name__ == "__main__":
    main()
