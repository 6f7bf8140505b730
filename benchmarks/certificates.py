"""Time the optimality checker on the runs of `instances/` under preset `default` or `simulated`.

    python benchmarks/certificates.py [--only TEXT] [--preset NAME] [--json FILE]

Each claim begins above the optimum of the index, so far that it is refuted. Then the plan that does takes its place,
until a claim is proven: nothing is solved. What is timed is the last claim, proven, and one tick more, refuted. Left
out are runs without an optimum in the index, and those in which it is to be chosen what links are: a claim is about
given links. Under `simulated` runs on several classes of devices are left out, too.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measure import console, machine, table, write_json

from nest.certificate import Verdict, check
from nest.cost.scale import scale_of
from nest.evaluate import evaluate
from nest.presets import DEFAULT, SIMULATED
from nest.problem import Problem
from nest.runs import problem_of, read_run

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
KIB_PER_MIB = 1024
PRESETS = {each.name: each for each in (DEFAULT, SIMULATED)}
RAISED = 50


@dataclass(frozen=True, slots=True)
class Proof:
    """What became of one run.

    Attributes
    ----------
    seconds, cpu_s
        Wall time and processor time of the proof; of the refutation of one tick more ``refuted_s``.
    plans
        How many were found, each faster than the one before, until one was proven to be the best.
    peak_mib
        Most memory that the process had until then.
    """

    run: str
    devices: int
    variants: int
    choices: int
    closed: int
    seconds: float
    cpu_s: float
    refuted_s: float
    plans: int
    objective_s: float
    peak_mib: int


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    index: list[dict[str, Any]] = json.loads((INSTANCES / "index.json").read_text())
    entries = [each for each in index if each["optimum"].get("default") and arguments.only in each["file"]]
    problems = [(each, problem_of(read_run(INSTANCES / each["file"]), every=True).problem) for each in entries]
    preset = PRESETS[arguments.preset]
    alike = [pair for pair in problems if preset is DEFAULT or not pair[1].cluster.classes]
    proofs = [measure(each, one.with_preset(preset)) for each, one in alike if not one.cluster.menus]
    head = machine()
    shown = table(f"{head}: proofs under preset {arguments.preset}", COLUMNS)
    for each in proofs:
        shown.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in asdict(each).values()))
    console().print(shown)
    write_json(arguments.json, {"machine": head, "proofs": [asdict(each) for each in proofs]})


SIZES = ("run", "devices", "variants", "choices", "closed")
COLUMNS = (*SIZES, "s", "cpu s", "refuted s", "plans", "objective s", "MiB")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="runs whose file name has this in it")
    parser.add_argument("--preset", choices=PRESETS, default="default", help="how plans are priced")
    parser.add_argument("--json", type=Path, help="write all figures there")
    return parser


def measure(entry: dict[str, Any], problem: Problem) -> Proof:
    """Prove one optimum."""
    scale = scale_of(problem).time
    value, plans = scale.ticks(entry["optimum"]["default"]["objective_s"]), 0
    verdict, seconds, cpu_s = timed(problem, value + 1)
    while verdict.better is None:  # the costs have changed since
        value += value // RAISED
        verdict, seconds, cpu_s = timed(problem, value)
    while verdict.better is not None:
        ticks = evaluate(problem, verdict.better).objective_ticks
        if ticks is None:
            raise AssertionError("a plan without a price refutes nothing")
        value, plans = ticks, plans + 1
        verdict, seconds, cpu_s = timed(problem, value)
    refuted, refuted_s, _ = timed(problem, value + 1)
    if not verdict.holds or refuted.better is None:
        raise AssertionError(f"{entry['file']}: {verdict.outcome} at {value} ticks, {refuted.outcome} above")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // KIB_PER_MIB
    sizes = entry["devices"], len(problem.variants), verdict.choices, len(verdict.closed)
    times = seconds, cpu_s, refuted_s
    return Proof(entry["file"].removesuffix(".toml"), *sizes, *times, plans, scale.seconds(value), peak)


def timed(problem: Problem, value: int) -> tuple[Verdict, float, float]:
    """Return what becomes of a claim, and the wall and processor time that it takes."""
    begin, cpu = time.perf_counter(), time.process_time()
    verdict = check(problem, value)
    return verdict, time.perf_counter() - begin, time.process_time() - cpu


if __name__ == "__main__":
    main()
