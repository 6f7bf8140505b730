"""Time the mathematical programme on problem files, under both presets, against the dynamic program.

    python benchmarks/provers.py INPUTS [--backend cpsat] [--zero none] [--only TEXT] [--limit SECONDS] [--json FILE]
    python benchmarks/provers.py --runs [--backend cpsat] [--only TEXT] [--limit SECONDS] [--json FILE]

Each input is solved in this process, from the problem to the judged plan, with nothing given but the problem. With
``--runs`` they are the runs of `instances/` under preset `default`, but for those in which it is to be chosen what
links are.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measure import Target, console, machine, number, options, table, write_json

from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem
from nest.result import Status
from nest.runs import problem_of, read_run
from nest.solve import Backend, solve

INSTANCES = Path(__file__).resolve().parents[1] / "instances"

ZERO = {"none": frozenset({0}), "any": frozenset({0, 1, 2, 3})}
"""Types of ZeRO that stages may have."""

TARGETS_S = {("cpsat", "none"): 60.0, ("cpsat", "any"): 120.0, ("pyomo", "none"): 120.0, ("pyomo", "any"): 120.0}
GAPS = {"cpsat": 0.0, "pyomo": 1e-6}
"""HiGHS computes in floating point, and does not prove to the tick."""


@dataclass(frozen=True, slots=True)
class Run:
    """One input under one preset.

    Attributes
    ----------
    layers, variants, devices
        Its size.
    seconds, cpu_s
        Wall time, and processor time, which hardly depends on how busy the machine is.
    above
        By which part the plan is slower than the optimum of the dynamic program; None without a plan.
    gap
        Distance from the plan to the proven bound, as a part of the plan; None without either.
    """

    input: str
    preset: str
    layers: int
    variants: int
    devices: int
    status: str
    seconds: float
    cpu_s: float
    above: float | None
    gap: float | None


def main() -> None:
    """Measure and print."""
    made = parser()
    arguments = made.parse_args()
    if (arguments.inputs is None) != arguments.runs:
        made.error("give a folder of problem files, or --runs")
    head, backend = machine(), arguments.backend
    zero = "any" if arguments.runs else arguments.zero
    problems = of_runs(arguments.only) if arguments.runs else of_files(arguments.inputs, arguments.only, ZERO[zero])
    runs = [measure(problem, backend, arguments.limit) for problem in problems]
    targets = targets_of(runs, backend, zero)
    _show(head, runs, f"{backend}, ZeRO {zero}", targets)
    found = {"machine": head, "backend": backend, "zero": zero, "runs": [asdict(run) for run in runs]}
    write_json(arguments.json, found)


def of_files(folder: Path, only: str, zero: frozenset[int]) -> Iterator[Problem]:
    """Yield the problems of files under both presets."""
    for path in sorted(folder.iterdir()):
        if only in path.stem and path.suffix in (".json", ".toml"):
            problem = read_problem(path).with_choices(zero=zero)
            yield from (problem.with_preset(preset) for preset in (ARTIFACT, PAPER))


def of_runs(only: str) -> Iterator[Problem]:
    """Yield the problems of runs that have an optimum in the index."""
    index: list[dict[str, Any]] = json.loads((INSTANCES / "index.json").read_text())
    for each in index:
        if each["optimum"].get("default") and only in each["file"]:
            problem = problem_of(read_run(INSTANCES / each["file"]), every=True).problem
            if not problem.cluster.menus:
                yield problem


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "inputs with this text in their name")
    made.add_argument("inputs", type=Path, nargs="?", help="folder of problem files")
    made.add_argument("--runs", action="store_true", help="the runs of instances/, under preset default")
    made.add_argument("--backend", choices=sorted(GAPS), default="cpsat", help="which solver (default cpsat)")
    made.add_argument("--zero", choices=sorted(ZERO), default="none", help="ZeRO of the stages (default none)")
    made.add_argument("--limit", type=float, default=300.0, help="seconds for each (default 300)")
    return made


def measure(problem: Problem, backend: Backend, limit_s: float) -> Run:
    """Solve a problem once, and compare with the dynamic program."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = solve(problem, backend=backend, time_limit_s=limit_s)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    wanted = solve(problem).objective_ticks
    found = result.objective_ticks
    return Run(
        input=problem.name,
        preset=problem.preset.name,
        layers=max(len(problem.graphs[variant]) for variant in problem.variants),
        variants=len(problem.variants),
        devices=problem.cluster.devices,
        status=result.status.value,
        seconds=wall,
        cpu_s=cpu,
        above=None if found is None or wanted is None else found / wanted - 1,
        gap=None if found is None or result.bound_ticks is None else (found - result.bound_ticks) / found,
    )


def targets_of(runs: Sequence[Run], backend: Backend, zero: str) -> list[Target]:
    """Return the targets: every optimum found, proven, and in time."""
    gaps = [0.0 if run.status == Status.INFEASIBLE.value else math.inf if run.gap is None else run.gap for run in runs]
    return [
        Target(f"{backend}: largest gap", max(gaps, default=None), GAPS[backend]),
        Target(
            f"{backend}: largest distance from the optimum", max((run.above or 0.0 for run in runs), default=None), 0
        ),
        Target(f"{backend}: slowest", max((run.seconds for run in runs), default=None), TARGETS_S[backend, zero], "s"),
    ]


def _show(head: str, runs: Sequence[Run], title: str, targets: Sequence[Target]) -> None:
    screen = console()
    screen.print(head, soft_wrap=True)
    made = table(
        title,
        ("Input", "Preset", "Layers", "Variants", "Devices", "Status", "Above", "Gap", "Seconds", "CPU s"),
        left=2,
    )
    for run in runs:
        sizes = (str(run.layers), str(run.variants), str(run.devices))
        times = (number(run.above, ".1e"), number(run.gap, ".1e"), number(run.seconds, ".2f"), number(run.cpu_s, ".2f"))
        made.add_row(run.input, run.preset, *sizes, run.status, *times)
    screen.print(made)
    for target in targets:
        screen.print(target.line(), markup=False)


if __name__ == "__main__":
    main()
