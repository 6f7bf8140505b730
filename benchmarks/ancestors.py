"""Solve the inputs of dnn-partitioning and Piper, and lay times and memory beside the originals' own.

    python benchmarks/ancestors.py FOLDER [--only TEXT] [--repeats N] [--growth] [--json FILE]

FOLDER has `optima.json`, a list of cases: ``suite``, ``file``, the ``variant``, the proven ``value`` and ``wall_s``,
the seconds of other methods, the original's among them (``dp_exe`` or ``piper``); and the inputs in `dnn_partitioning/`
and `piper/`. Each case is a process of its own, ``nest solve FILE --set ... --json``, interpreter included; the best of
N counts.
``--growth`` also solves graphs of several equal branches, with more and more downsets.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from measure import PROGRAM, Process, Target, console, in_process, machine, number, table, write_json

from nest.dag import DNN_PARTITIONING, DagEdge, DagLayer, DagProblem, DeviceClass, Option, solve_dag

FOLDERS = {"dnn-partitioning": "dnn_partitioning", "piper": "piper"}
ORIGINALS = {"dnn-partitioning": "dp_exe", "piper": "piper"}
PIPER_NAMES = {"maxDevices": "device", "mbsInBatch": "microbatches", "maxMemoryPerDevice": "memory_bytes"}

LIMIT_S = 60.0
TARGET_S = 5.0
TARGET_MB = 1073.7
"""1 GiB."""

TOLERANCE = 1e-6
BRANCHES = ((3, 10), (3, 20), (3, 32), (4, 12), (5, 7), (6, 5))
"""Branches and layers in each."""


@dataclass(frozen=True, slots=True)
class Row:
    """A case: its proven value and the original's seconds, and what we need; None for what is not known."""

    name: str
    expected: float | None
    value: float | None
    status: str
    seconds: float
    cpu_s: float
    peak_mb: float
    downsets: int | None
    original_s: float | None

    @property
    def error(self) -> float:
        """Relative error of the value; 0 where both say that there is no plan, infinite where one does."""
        if self.status not in ("optimal", "infeasible") or (self.expected is None) != (self.value is None):
            return math.inf
        return 0.0 if self.expected is None or self.value is None else abs(self.value / self.expected - 1)


@dataclass(frozen=True, slots=True)
class Growth:
    """A graph of equal branches, and what it takes to solve it."""

    branches: int
    layers: int
    downsets: int
    status: str
    seconds: float
    cpu_s: float


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    cases = json.loads((arguments.folder / "optima.json").read_text())
    rows = [row_of(arguments.folder, case, arguments.repeats) for case in cases if arguments.only in case["file"]]
    growth = [grown(*size) for size in BRANCHES] if arguments.growth else []
    show(rows, growth)
    write_json(
        arguments.json,
        {"machine": machine(), "rows": list(map(asdict, rows)), "growth": list(map(asdict, growth))},
    )


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="the inputs and optima.json")
    options.add_argument("--only", metavar="TEXT", default="", help="only files whose name holds TEXT")
    options.add_argument("--repeats", metavar="N", type=int, default=3, help="runs of each case, default 3")
    options.add_argument("--growth", action="store_true", help="also graphs of equal branches")
    options.add_argument("--json", metavar="FILE", type=Path, help="write everything as JSON, too")
    return options


def settings(case: dict[str, Any]) -> list[str]:
    """Return the devices of a case as ``--set`` takes them."""
    if case["suite"] == "piper":
        pairs = (pair.split("=") for pair in case["variant"].split())
        return [f"{PIPER_NAMES.get(name, name)}={value}" for name, value in pairs]
    counts = f"accelerator={case['accelerators']}", f"cpu={case['cpus']}"
    return [*counts, f"memory_bytes={case['mem_limit_bytes']}"]


def row_of(folder: Path, case: dict[str, Any], repeats: int) -> Row:
    """Solve a case a few times, each in a process of its own."""
    path = folder / FOLDERS[case["suite"]] / case["file"]
    typed = [part for setting in settings(case) for part in ("--set", setting)]
    runs = [in_process([*PROGRAM, "solve", str(path), "--json", *typed], LIMIT_S) for _ in range(max(repeats, 1))]
    best: Process = min(runs, key=lambda run: run.seconds)
    answer = json.loads(best.output) if best.output else {}
    return Row(
        f"{path.stem} {', '.join(settings(case)[:2])}",
        None if case["value"] == "infeasible" else case["value"],
        answer.get("objective"),
        answer.get("status", f"exit {best.exit}"),
        best.seconds,
        min(run.cpu_s for run in runs),
        max(run.peak_mb for run in runs),
        answer.get("downsets"),
        case["wall_s"].get(ORIGINALS[case["suite"]]),
    )


def grown(branches: int, length: int) -> Growth:
    """Solve a graph of equal branches between a first and a last layer, with random times and costs, on six devices."""
    draw = random.Random(1)
    names = ["first", *(f"{branch}.{at}" for branch in range(branches) for at in range(length)), "last"]
    layers = tuple(DagLayer(name, {("device", 1): (Option("only", draw.uniform(0.5, 2)),)}) for name in names)
    cost = {name: draw.uniform(0.05, 0.8) for name in names}
    ends: list[tuple[str, str]] = []
    for branch in range(branches):
        path = ["first", *(f"{branch}.{at}" for at in range(length)), "last"]
        ends += pairwise(path)
    edges = tuple(DagEdge(source, target, cost[source]) for source, target in ends)
    problem = DagProblem("branches", DNN_PARTITIONING, layers, edges, (DeviceClass("device", 6, None),))
    begin, cpu = time.perf_counter(), time.process_time()
    result = solve_dag(problem)
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    return Growth(branches, length, result.downsets, result.status.value, seconds, cpu_s)


def show(rows: Sequence[Row], growth: Sequence[Growth]) -> None:
    """Print tables and verdicts."""
    screen = console()
    columns = ("Input", "Proven", "Ours", "Status", "Downsets", "Original s", "Ours s", "CPU s", "MB")
    inputs = table("Inputs of dnn-partitioning and Piper", columns)
    for row in rows:
        figures = number(row.expected, ".9g"), number(row.value, ".9g"), row.status, number(row.downsets, "d")
        times = number(row.original_s, ".2f"), number(row.seconds, ".2f"), number(row.cpu_s, ".2f")
        inputs.add_row(row.name, *figures, *times, number(row.peak_mb, ".0f"))
    screen.print(machine(), inputs)
    if growth:
        grow = table(
            "Equal branches on six devices", ("Branches", "Layers", "Downsets", "Status", "s", "CPU s"), left=0
        )
        for line in growth:
            figures = str(line.branches), str(line.layers), f"{line.downsets:,}", line.status
            grow.add_row(*figures, number(line.seconds, ".2f"), number(line.cpu_s, ".2f"))
        screen.print(grow)
    if rows:
        worst = max(rows, key=lambda row: row.seconds)
        screen.print(Target("largest relative error", max(row.error for row in rows), TOLERANCE).line())
        screen.print(Target(f"slowest ({worst.name})", worst.seconds, TARGET_S, "s").line())
        screen.print(Target("its CPU", worst.cpu_s, TARGET_S, "s").line())
        screen.print(Target("largest peak", max(row.peak_mb for row in rows), TARGET_MB, "MB").line())


if __name__ == "__main__":
    main()
