"""Fill in the optima of `instances/index.json` that the solver proves, and check those it already has.

    python benchmarks/fill_index.py [--only TEXT] [--instances FOLDER]

The optimum under preset ``artifact`` without sharding was found by another method; it is checked, not replaced. Those
under preset ``paper``, without and with ZeRO, are written, but only where the solver proves them. Training runs have
one optimum, under preset ``default``, with its plan and the time that the proof took.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measure import ROOT

from nest.files import apply_settings, read_problem
from nest.plan import Plan, Stage
from nest.presets import preset_named
from nest.result import Result, Status
from nest.runs import contenders, read_run
from nest.solve import solve

WITHIN = 1e-9

FILLED = {"paper": ("paper", "zero=none"), "paper_zero": ("paper", "zero=any")}
"""Preset and setting of each optimum, by its name in the index."""


def main() -> None:
    """Fill the index, and exit with 1 if anything is wrong."""
    arguments = parser().parse_args()
    index = arguments.instances / "index.json"
    entries = json.loads(index.read_text(encoding="utf-8"))
    faults = []
    for entry in entries:
        if arguments.only in entry["file"]:
            faults += fill(entry, arguments.instances)
            print(entry["file"], *(f"{name}={_figure(known)}" for name, known in entry["optimum"].items()), flush=True)
    index.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", default="", metavar="TEXT", help="only instances with this text in their name")
    made.add_argument("--instances", type=Path, default=ROOT / "instances", help="folder of the index")
    return made


def fill(entry: dict[str, Any], folder: Path) -> list[str]:
    """Fill in the optima of an entry of the index, in place, and return what is wrong."""
    path, optimum = folder / entry["file"], entry["optimum"]
    if "default" in optimum:
        return fill_run(path, optimum)
    faults = check(path, optimum["artifact"])
    for name, (preset, setting) in FILLED.items():
        result = solved(path, preset, setting)
        if result.status is Status.OPTIMAL:
            optimum[name] = {"settings": [setting], "objective_s": result.objective_s}
        else:
            optimum[name] = None
            faults.append(f"{path.name}: {name}: {result.status.value}: {result.reason}")
    return faults


def fill_run(path: Path, optimum: dict[str, Any]) -> list[str]:
    """Fill in the optimum of a training run."""
    begin = time.perf_counter()
    result = solve(contenders(read_run(path)).problem)
    optimum["default"] = None
    if result.status is not Status.OPTIMAL or result.plan is None:
        return [f"{path.name}: default: {result.status.value}: {result.reason}"]
    wall_s = round(time.perf_counter() - begin, 1)
    optimum["default"] = {
        "settings": [],
        "objective_s": result.objective_s,
        "plan": plan_facts(result.plan),
        "wall_s": wall_s,
    }
    return []


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Return what sets a plan apart, without its places."""
    return {
        **asdict(plan.variant),
        "stages": len(plan.stages),
        "replicas": plan.replicas,
        "arrangement": plan.arrangement,
        "recompute": sorted({stage.recompute for stage in plan.stages}),
        "recomputed": [_recomputed(stage) for stage in plan.stages],
        "zero": sorted({stage.sharding.zero for stage in plan.stages}),
        "layers": [len(stage.layers) for stage in plan.stages],
        **({"technologies": list(plan.technologies)} if plan.technologies else {}),
    }


def _recomputed(stage: Stage) -> int | str:
    """Return how many layers of a stage recompute."""
    return 0 if stage.recompute == "none" else "all" if stage.recomputed is None else stage.recomputed


def check(path: Path, known: dict[str, Any] | None) -> list[str]:
    """Return what is wrong with the known optimum under preset ``artifact``."""
    if known is None:
        return [f"{path.name}: artifact: no optimum is known"]
    found = solved(path, "artifact", *known["settings"]).objective_s
    if found is None or abs(found - known["objective_s"]) > WITHIN * known["objective_s"]:
        return [f"{path.name}: artifact: the index has {known['objective_s']!r} s, the solver finds {found!r} s"]
    return []


def solved(path: Path, preset: str, *settings: str) -> Result:
    """Solve an instance under a preset."""
    return solve(apply_settings(read_problem(path).with_preset(preset_named(preset)), settings))


def _figure(known: dict[str, Any] | None) -> str:
    return "-" if known is None else f"{known['objective_s']:.9g}"


if __name__ == "__main__":
    main()
