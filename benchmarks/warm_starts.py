"""Time CP-SAT with and without the dynamic program's plan as a hint, without ZeRO and under both presets.

    python benchmarks/warm_starts.py INPUTS [--only TEXT] [--limit SECONDS] [--repeats N] [--json FILE]

Each input is solved in this process to the proven optimum, once with nothing given but the problem and once with the
plan that the dynamic program finds. Times are processor seconds from the problem to the claim, which hardly depend on
how busy the machine is; the dynamic program's own are left out. Then each is solved again with the hint under a limit
that is too short to find anything: what is claimed should still be at least as good as the plan that was given.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from measure import Target, console, geometric_mean, machine, number, options, table, write_json

from nest.files import read_problem
from nest.milp import solve_cpsat
from nest.plan import Plan
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve

NO_ZERO = frozenset({0})
LIMIT_S = 60.0
NO_TIME_S = 0.01
"""Too short for CP-SAT to find a plan of its own."""

NOTICEABLE_S = 0.1
"""Runs that end sooner have no ratio: their times are mostly noise."""


@dataclass(frozen=True, slots=True)
class Run:
    """One input under one preset.

    Attributes
    ----------
    cold, warm
        Status of either claim.
    cold_s, warm_s
        Processor seconds without and with the hint, the fewest of several runs.
    kept
        Whether the claim of the shortened run with the hint has a plan as good as the hint.
    """

    input: str
    preset: str
    cold: str
    warm: str
    cold_s: float
    warm_s: float
    kept: bool

    @property
    def ratio(self) -> float | None:
        """How many times faster it is with the hint; None where both are too short to tell."""
        return None if max(self.cold_s, self.warm_s) < NOTICEABLE_S else self.cold_s / self.warm_s


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    paths = sorted(path for path in arguments.inputs.iterdir() if path.suffix in (".json", ".toml"))
    problems = [read_problem(path).with_choices(zero=NO_ZERO) for path in paths if arguments.only in path.stem]
    head = machine()
    runs = [
        measure(problem.with_preset(preset), arguments.limit, arguments.repeats)
        for problem in problems
        for preset in (ARTIFACT, PAPER)
    ]
    targets = targets_of(runs)
    _show(head, runs, targets)
    document = [asdict(run) | {"ratio": run.ratio} for run in runs]
    write_json(arguments.json, {"machine": head, "runs": document, "summary": summary(runs)})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "inputs with this text in their name")
    made.add_argument("inputs", type=Path, help="folder of problem files")
    made.add_argument("--limit", type=float, default=LIMIT_S, help=f"seconds for each run (default {LIMIT_S:g})")
    made.add_argument("--repeats", type=int, default=1, help="runs of which the fastest counts (default 1)")
    return made


def measure(problem: Problem, limit_s: float, repeats: int) -> Run:
    """Solve a problem with and without the hint, in turns, and under the short limit.

    Raises
    ------
    ValueError
        If the problem has no plan that could be a hint.
    """
    wanted = solve(problem)
    if wanted.plan is None or wanted.objective_ticks is None:
        raise ValueError(f"{problem.name}: no plan to start from, {wanted.reason}")
    turns = [(timed(problem, limit_s, None), timed(problem, limit_s, wanted.plan)) for _ in range(max(repeats, 1))]
    cold, warm = (min(claims, key=lambda timing: timing.cpu_s) for claims in zip(*turns, strict=True))
    return Run(
        input=problem.name,
        preset=problem.preset.name,
        cold=cold.status.value,
        warm=warm.status.value,
        cold_s=cold.cpu_s,
        warm_s=warm.cpu_s,
        kept=kept(problem, wanted.plan, wanted.objective_ticks),
    )


class Timing(NamedTuple):
    """Status of a claim, and the processor seconds that it took."""

    status: Status
    cpu_s: float


def timed(problem: Problem, limit_s: float, hint: Plan | None) -> Timing:
    """Solve a problem once."""
    begin = time.process_time()
    claim = solve_cpsat(problem, time_limit_s=limit_s, hint=hint)
    return Timing(claim.status, time.process_time() - begin)


def kept(problem: Problem, hint: Plan, ticks: int) -> bool:
    """Return whether a claim made in no time has a plan as good as the hint, which takes so many ticks."""
    claim = solve_cpsat(problem, time_limit_s=NO_TIME_S, hint=hint)
    return claim.plan is not None and claim.objective is not None and claim.objective <= ticks


def summary(runs: Sequence[Run]) -> dict[str, float | None]:
    """Return median, mean, least and largest of the ratios, and all seconds without and with the hint."""
    ratios = [ratio for run in runs if (ratio := run.ratio) is not None]
    return {
        "median": statistics.median(ratios) if ratios else None,
        "geometric mean": geometric_mean(ratios),
        "least": min(ratios, default=None),
        "largest": max(ratios, default=None),
        "seconds without": sum(run.cold_s for run in runs),
        "seconds with": sum(run.warm_s for run in runs),
    }


def targets_of(runs: Sequence[Run]) -> list[Target]:
    """Return the targets: all proven with and without, and no hint lost."""
    unproven = [run for run in runs if {run.cold, run.warm} != {Status.OPTIMAL.value}]
    return [
        Target("runs without a proven optimum, with the hint or without", len(unproven), 0),
        Target(f"hints lost at a limit of {NO_TIME_S} s", sum(not run.kept for run in runs), 0),
    ]


def _show(head: str, runs: Sequence[Run], targets: Sequence[Target]) -> None:
    screen = console()
    screen.print(head, soft_wrap=True)
    made = table(
        "CP-SAT, one thread",
        ("Input", "Preset", "Without", "With", "CPU s without", "with", "Ratio", f"Kept at {NO_TIME_S} s"),
        left=2,
    )
    for run in runs:
        times = (number(run.cold_s), number(run.warm_s), number(run.ratio, ".2f"))
        made.add_row(run.input, run.preset, run.cold, run.warm, *times, "yes" if run.kept else "no")
    screen.print(made)
    for name, figure in summary(runs).items():
        screen.print(f"{name}: {number(figure, '.2f')}")
    for target in targets:
        screen.print(target.line(), markup=False)


if __name__ == "__main__":
    main()
