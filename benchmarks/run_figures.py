"""How long training runs take to solve, what their optima are, and in how much memory: every run of `instances/`.

    python benchmarks/run_figures.py [--only TEXT] [--repeats N] [--limit SECONDS] [--json FILE]

Each run is posed and solved once in a process of its own, which gives the seconds of both and the optimum; then
``nest solve FILE --json`` runs as a whole, interpreter and imports included, which gives seconds and peak memory. One
run file alone, its figures as JSON::

    python benchmarks/run_figures.py --one instances/gpt3-175b_a100_1024.toml
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import PROGRAM, ROOT, Process, Target, console, in_process, machine, number, options, table, write_json

from nest.plan import Plan
from nest.runs import contenders, is_run, read_run
from nest.solve import solve

INSTANCES = ROOT / "instances"

LIMITS_S: Mapping[str, float] = {
    "gpt3-175b_a100_1024": 2.0,
    "llama3-405b_h100_16384": 5.0,
    "llama3-405b_131072": 20.0,
    "deepseek-v3_h800_2048": 10.0,
}
"""Most seconds of processor time, posing and solving together; the others have 2 s."""

USUAL_LIMIT_S = 2.0
MOST_MB = 2**30 / 1e6


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to.

    Attributes
    ----------
    name
        Of its file, without ending.
    status
        Of the result, or how its process ended.
    devices, variants
        Of the problem.
    objective_s, plan
        The optimum, and its plan in a few letters.
    pose_s, pose_cpu_s, solve_s, solve_cpu_s
        Seconds from the file to the problem, and from there to the judged plan.
    whole
        ``nest solve FILE --json``; None where it was not run.
    """

    name: str
    status: str
    devices: int = 0
    variants: int = 0
    objective_s: float | None = None
    plan: str = ""
    pose_s: float | None = None
    pose_cpu_s: float | None = None
    solve_s: float | None = None
    solve_cpu_s: float | None = None
    whole: Process | None = None

    @property
    def cpu_s(self) -> float | None:
        """Processor seconds from the file to the judged plan."""
        if self.pose_cpu_s is None or self.solve_cpu_s is None:
            return None
        return self.pose_cpu_s + self.solve_cpu_s

    @property
    def seconds(self) -> float | None:
        """Seconds from the file to the judged plan."""
        return None if self.pose_s is None or self.solve_s is None else self.pose_s + self.solve_s


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    if arguments.one is not None:
        print(json.dumps(asdict(solved(arguments.one))))
        return
    screen = console()
    screen.print(machine(), soft_wrap=True)
    paths = [path for path in sorted(INSTANCES.glob("*.toml")) if arguments.only in path.stem and is_run(path)]
    runs = [measured(path, arguments.limit, arguments.repeats) for path in paths]
    show("Training runs", runs)
    for run in runs:
        for target in targets_of(run):
            screen.print(target.line(), markup=False)
    write_json(arguments.json, {"machine": machine(), "runs": [asdict(run) for run in runs]})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "runs with this text in their name")
    made.add_argument("--repeats", type=int, default=3, metavar="N", help="of the whole process, best (default 3)")
    made.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="for each process (default 120)")
    made.add_argument("--one", type=Path, metavar="FILE", help="solve this run, and print the figures as JSON")
    return made


def solved(path: Path) -> Figures:
    """Pose and solve a run in this process."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    problem = contenders(read_run(path)).problem
    posed, posed_cpu = time.perf_counter(), time.process_time()
    result = solve(problem)
    return Figures(
        path.stem,
        result.status.value,
        problem.cluster.devices,
        len(problem.variants),
        result.objective_s,
        plan_of(result.plan) if result.plan else result.reason or "",
        posed - begin,
        posed_cpu - begin_cpu,
        time.perf_counter() - posed,
        time.process_time() - posed_cpu,
    )


def measured(path: Path, limit_s: float, repeats: int = 0) -> Figures:
    """Return the figures of a run file, solved in a process of its own; ``repeats`` are of the whole process."""
    process = in_process([sys.executable, __file__, "--one", str(path)], limit_s)
    if process.exit != 0:
        status = f"ended after {process.seconds:.0f} s" if process.killed else f"exit code {process.exit}"
        return Figures(path.stem, status)
    figures = json.loads(process.output.splitlines()[-1])
    wholes = [in_process([*PROGRAM, "solve", str(path), "--json"], limit_s) for _ in range(repeats)]
    figures["whole"] = min(wholes, key=lambda each: each.cpu_s, default=None)
    return Figures(**figures)


def measured_document(name: str, document: Mapping[str, Any], limit_s: float, repeats: int = 0) -> Figures:
    """Return the figures of a run that is no file yet: the tables of one."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        path.write_text(json.dumps({"schema": "nest.run/1", **document}), encoding="utf-8")
        return measured(path, limit_s, repeats)


def plan_of(plan: Plan) -> str:
    """Return a plan in a few letters: widths, stages, replicas, microbatch, and what its stages shard and recompute."""
    variant = plan.variant
    widths = {"t": variant.tensor, "c": variant.context, "e": variant.expert}
    parts = [f"{letter}{width}" for letter, width in widths.items() if width > 1]
    parts += ["sp"] if variant.sequence else []
    parts += [f"p{len(plan.stages)}", f"d{plan.replicas}", f"b{variant.microbatch}"]
    zero = sorted({stage.sharding.zero for stage in plan.stages})
    kinds = {stage.recompute + ("" if stage.recomputed is None else " in part") for stage in plan.stages}
    repeated = sorted(kinds - {"none"})
    return f"{' '.join(parts)}, ZeRO-{'/'.join(map(str, zero))}" + (f", {', '.join(repeated)}" if repeated else "")


def targets_of(run: Figures) -> list[Target]:
    """Return the targets of a run: it is proven in time, and in little memory."""
    limit = LIMITS_S.get(run.name, USUAL_LIMIT_S)
    made = [
        Target(f"{run.name}: proven", int(run.status == "optimal"), 1, at_least=True),
        Target(f"{run.name}: in process, CPU", run.cpu_s, limit, "s"),
    ]
    if run.whole:
        made.append(Target(f"{run.name}: peak", run.whole.peak_mb, MOST_MB, "MB"))
    return made


COLUMNS = ("Run", "Best plan", "Devices", "Variants", "Iteration s", "Pose CPU s", "Solve CPU s", "Seconds")
WHOLE_COLUMNS = ("Whole s", "Whole CPU s", "Peak MB")


def show(title: str, runs: Sequence[Figures]) -> None:
    """Show a row for each run."""
    made = table(title, (*COLUMNS, *WHOLE_COLUMNS), left=2)
    for run in runs:
        whole = run.whole
        made.add_row(
            run.name,
            run.plan if run.status == "optimal" else f"{run.status}: {run.plan}",
            f"{run.devices:,}",
            str(run.variants),
            number(run.objective_s, ".5g"),
            *(number(each, ".2f") for each in (run.pose_cpu_s, run.solve_cpu_s, run.seconds)),
            *(
                (number(whole.seconds, ".2f"), number(whole.cpu_s, ".2f"), number(whole.peak_mb, ".0f"))
                if whole
                else ()
            ),
        )
    console().print(made)


if __name__ == "__main__":
    main()
