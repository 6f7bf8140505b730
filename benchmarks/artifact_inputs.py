"""Time the inputs of the artifact of arXiv 2603.06798, and lay the times beside the artifact's own.

    python benchmarks/artifact_inputs.py INPUTS [--measured FILE] [--optima FILE] [--json FILE]

For each input, in one process: from the file to the plan under preset ``artifact`` without sharding, the best of
several runs, and under preset ``paper`` with ZeRO free. Then, each in a process of its own, ``nest solve``, interpreter
included.

``--measured`` has the artifact's own runs: ``runs``, a list of objects with ``input``, ``build``, ``wall_s`` and
``exit``. Only runs of the build ``-O3`` that ended well count; a run that was killed bounds a ratio from below.
``--optima`` is a JSON object from the name of an input to its optimum under preset ``artifact`` without sharding.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from measure import (
    PROGRAM,
    Process,
    Target,
    best_of,
    console,
    geometric_mean,
    in_process,
    machine,
    number,
    options,
    table,
    write_json,
)

from nest.files import read_problem
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve

NO_ZERO = frozenset({0})
ANY_ZERO = frozenset({0, 1, 2, 3})
BUILD = "-O3"
KILLED = frozenset({137, 143})
LARGE = "llama2_1024"
"""End of the name of the input whose whole process has a target of its own."""

LIMIT_S = 600.0
BUDGET_S = 2.0
"""Nothing is repeated for longer."""

PROCESS_REPEATS = 3
PER_MILLE = 1e3


@dataclass(frozen=True, slots=True)
class Original:
    """What is known of the artifact's own run of an input.

    Attributes
    ----------
    wall_s
        Seconds until it ended or was killed; None where there is no run.
    ended
        ``"well"``, ``"killed"``, ``"crashed"`` or ``"no run"``.
    """

    wall_s: float | None
    ended: str

    def ratio(self, seconds: float) -> float | None:
        """How many times longer it took than ``seconds``; a lower bound where it was killed."""
        return None if self.wall_s is None or self.ended not in {"well", "killed"} else self.wall_s / seconds

    def spell(self, seconds: float) -> str:
        """Return the ratio as a table shows it, or why there is none."""
        ratio = self.ratio(seconds)
        if ratio is None:
            return self.ended
        return f"> {ratio:,.0f}" if self.ended == "killed" else f"{ratio:,.0f}"


@dataclass(frozen=True, slots=True)
class Run:
    """One input, solved in this process.

    Attributes
    ----------
    seconds, paper_s
        From file to plan under presets ``artifact`` without sharding and ``paper`` with ZeRO free.
    error
        Relative error of the objective against the known optimum; None where it is not known.
    gain
        By how much ZeRO makes the best plan of preset ``paper`` faster, per mille; infinite where only ZeRO fits.
    stages, replicas, sharded
        Of the plan under ``paper``: how many, and how many of its stages shard.
    """

    input: str
    status: str
    seconds: float
    objective: float | None
    error: float | None
    paper_status: str
    paper_s: float
    paper_objective: float | None
    gain: float | None
    stages: int
    replicas: int
    sharded: int


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    paths = sorted(path for path in arguments.inputs.glob("*.json") if arguments.only in path.stem)
    originals = original_runs(_read(arguments.measured).get("runs", []))
    optima = {name: optimum["value"] for name, optimum in _read(arguments.optima).items()}
    head = machine()
    runs = [run_input(path, optima.get(path.stem), arguments.repeats) for path in paths]
    chosen = [path for path in paths if arguments.processes in path.stem and not arguments.in_process]
    processes = {path.stem: whole_process(path, "artifact", "zero=none") for path in chosen}
    plain = {path.stem: whole_process(path, "paper", "zero=any") for path in chosen if _large(path.stem)}
    targets = targets_of(runs, originals, processes, plain)
    _show(head, runs, originals, processes, targets)
    document = {
        "machine": head,
        "runs": [asdict(run) | {"original": asdict(originals.get(run.input, NO_RUN))} for run in runs],
        "processes": {name: _figures(process) for name, process in processes.items()},
        "processes_paper": {name: _figures(process) for name, process in plain.items()},
        "targets": [asdict(target) | {"met": target.met} for target in targets],
    }
    write_json(arguments.json, document)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "inputs with this text in their name")
    made.add_argument("inputs", type=Path, help="folder of the artifact's inputs")
    made.add_argument("--measured", type=Path, help="the artifact's own runs")
    made.add_argument("--optima", type=Path, help="optima under preset artifact, without sharding")
    made.add_argument("--repeats", type=int, default=20, help="most runs of which the best counts (default 20)")
    made.add_argument("--processes", default="", metavar="TEXT", help="whole processes only for inputs with this text")
    made.add_argument("--in-process", action="store_true", help="no whole processes")
    return made


def _read(path: Path | None) -> Any:
    return {} if path is None else json.loads(path.read_text(encoding="utf-8"))


NO_RUN = Original(None, "no run")


def original_runs(runs: Iterable[Mapping[str, Any]]) -> dict[str, Original]:
    """Return the artifact's run of each input: of its fastest build, one that ended well before any other."""
    found: dict[str, Original] = {}
    for run in runs:
        if run["build"] != BUILD:
            continue
        code = run["exit"]
        known = Original(run["wall_s"], "well" if code == 0 else "killed" if code in KILLED else "crashed")
        if code == 0 or run["input"] not in found:
            found[run["input"]] = known
    return found


def run_input(path: Path, optimum: float | None, repeats: int) -> Run:
    """Solve an input under both presets, in this process."""
    seconds, result = best_of(
        repeats, _solver(path, lambda problem: problem.with_preset(ARTIFACT), NO_ZERO), budget_s=BUDGET_S
    )
    paper_s, paper = best_of(
        repeats, _solver(path, lambda problem: problem.with_preset(PAPER), ANY_ZERO), budget_s=BUDGET_S
    )
    without = solve(read_problem(path).with_preset(PAPER).with_choices(zero=NO_ZERO))
    stages = paper.plan.stages if paper.plan else ()
    return Run(
        input=path.stem,
        status=result.status.value,
        seconds=seconds,
        objective=result.objective,
        error=relative_error(result.objective, optimum),
        paper_status=paper.status.value,
        paper_s=paper_s,
        paper_objective=paper.objective,
        gain=gain(without.objective, paper.objective),
        stages=len(stages),
        replicas=paper.plan.replicas if paper.plan else 0,
        sharded=sum(stage.sharding.zero > 0 for stage in stages),
    )


def _solver(path: Path, under: Callable[[Problem], Problem], zero: frozenset[int]) -> Callable[[], Result]:
    return lambda: solve(under(read_problem(path)).with_choices(zero=zero))


def relative_error(found: float | None, known: float | None) -> float | None:
    """Return the relative error of an objective; None where the optimum is not known."""
    if known is None:
        return None
    return math.inf if found is None else abs(found - known) / known


def gain(without: float | None, free: float | None) -> float | None:
    """Return by how much ZeRO makes an iteration faster, per mille; infinite where only ZeRO fits."""
    if free is None:
        return None
    return math.inf if without is None else PER_MILLE * (without / free - 1)


def whole_process(path: Path, preset: str, setting: str) -> Process:
    """Run ``nest solve`` on an input a few times, and return the fastest run.

    Raises
    ------
    CalledProcessError
        If it finds no plan.
    """
    command = [*PROGRAM, "solve", str(path), "--preset", preset, "--set", setting, "--json"]
    runs = [in_process(command, LIMIT_S) for _ in range(PROCESS_REPEATS)]
    for run in runs:
        if run.exit != 0:
            raise CalledProcessError(run.exit, command, run.output)
    return min(runs, key=lambda run: run.seconds)


def _large(name: str) -> bool:
    return name.endswith(LARGE)


def ratios(seconds: Mapping[str, float], originals: Mapping[str, Original]) -> list[float]:
    """Return the ratios of the inputs on which the artifact ended well; lower bounds do not count."""
    found = [originals[name].ratio(spent) for name, spent in seconds.items() if _ended_well(originals, name)]
    return [ratio for ratio in found if ratio is not None]


def _ended_well(originals: Mapping[str, Original], name: str) -> bool:
    return name in originals and originals[name].ended == "well"


def targets_of(
    runs: Sequence[Run],
    originals: Mapping[str, Original],
    processes: Mapping[str, Process],
    plain: Mapping[str, Process],
) -> list[Target]:
    """Return the targets; those of whole processes hold for both presets."""
    seconds = [run.seconds for run in runs]
    large = [process for group in (processes, plain) for name, process in group.items() if _large(name)]
    unproven = [run for run in runs if {run.status, run.paper_status} != {Status.OPTIMAL.value}]
    mean = geometric_mean(ratios({run.input: run.seconds for run in runs}, originals))
    return [
        Target("inputs without a proven optimum", len(unproven), 0),
        Target("largest relative error", _most(run.error for run in runs if run.error is not None), 1e-9),
        Target("artifact without ZeRO, slowest", _most(seconds), 0.3, "s"),
        Target("artifact without ZeRO, all together", sum(seconds) if seconds else None, 3.0, "s"),
        Target("geometric mean of the ratios, in process", mean, 300, at_least=True),
        Target("paper with ZeRO free, slowest", _most(run.paper_s for run in runs), 2.0, "s"),
        Target(f"nest solve on {LARGE}, slower preset", _most(process.seconds for process in large), 0.7, "s"),
        Target(f"nest solve on {LARGE}, larger preset", _most(process.peak_mb for process in large), 150, "MB"),
    ]


def _most(values: Iterable[float]) -> float | None:
    return max(values, default=None)


def _figures(process: Process) -> dict[str, float]:
    return {"seconds": process.seconds, "peak_mb": process.peak_mb, "exit": process.exit}


def _show(
    head: str,
    runs: Sequence[Run],
    originals: Mapping[str, Original],
    processes: Mapping[str, Process],
    targets: Sequence[Target],
) -> None:
    screen = console()
    screen.print(head, soft_wrap=True)
    screen.print()
    _show_runs(runs, originals, processes)
    _show_means(runs, originals, processes)
    screen.print()
    for target in targets:
        screen.print(target.line(), markup=False)


def _show_runs(runs: Sequence[Run], originals: Mapping[str, Original], processes: Mapping[str, Process]) -> None:
    screen = console()
    columns = ("Input", "Rel. error", "Seconds", "Original", "Ratio", "Paper, ZeRO", "Gain/1000", "Stages", "Sharded")
    made = table("In process", (*columns, "Replicas", "Process", "Peak MB", "Ratio"))
    for run in runs:
        original, process = originals.get(run.input, NO_RUN), processes.get(run.input)
        made.add_row(
            run.input,
            number(run.error, ".1e"),
            number(run.seconds, ".4f"),
            number(original.wall_s, ".2f"),
            original.spell(run.seconds),
            number(run.paper_s, ".4f"),
            number(run.gain, ".2f"),
            str(run.stages),
            str(run.sharded),
            str(run.replicas),
            number(process.seconds if process else None),
            number(process.peak_mb if process else None, ".0f"),
            original.spell(process.seconds) if process else "-",
        )
    made.add_section()
    made.add_row("sum", "", number(sum(run.seconds for run in runs)), "", "", number(sum(run.paper_s for run in runs)))
    made.add_row(
        "max", "", number(_most(run.seconds for run in runs)), "", "", number(_most(run.paper_s for run in runs))
    )
    screen.print(made)


def _show_means(runs: Sequence[Run], originals: Mapping[str, Original], processes: Mapping[str, Process]) -> None:
    screen = console()
    inside = ratios({run.input: run.seconds for run in runs}, originals)
    whole = ratios({name: process.seconds for name, process in processes.items()}, originals)
    for name, found in (("in process", inside), ("whole process", whole)):
        mean = geometric_mean(found)
        if mean is not None:
            spread = f"{min(found):,.0f} to {max(found):,.0f}"
            screen.print(f"Ratio {name}: geometric mean {mean:,.0f} over {len(found)} inputs, {spread}")


if __name__ == "__main__":
    main()
