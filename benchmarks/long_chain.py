"""Time a chain of 2,000 layers on 65,536 devices, preset ``artifact``, without sharding.

    python benchmarks/long_chain.py [--only TEXT] [--limit SECONDS] [--growth] [--random COUNT] [--json FILE]

Each case is solved in a process of its own, which is ended after a limit; its time is that of `nest.solve.solve`, its
memory that of the whole process. Layers are drawn from a seed, so that a case can be repeated from what is printed::

    python benchmarks/long_chain.py --one '{"layers": 2000, "fit": 3}'
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np
from measure import Target, console, growth_exponent, in_process, machine, number, options, table, write_json

from nest.cluster import Cluster, Level
from nest.graph import Edge, Layer, LayerGraph
from nest.presets import preset_named
from nest.problem import Choices, Problem, Recompute, Training, Variant
from nest.solve import solve

BANDWIDTHS = (900e9, 100e9, 50e9, 25e9, 12.5e9)
LATENCIES = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5)

PARAMETER_BYTES = 50e6
ACTIVATION_BYTES = 200e6
FORWARD_S = 2e-3
"""Means over the layers."""

LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """A chain and a cluster.

    Attributes
    ----------
    fanouts
        Of the levels, innermost first, at most as many as there are `BANDWIDTHS`; their product is the number of
        devices.
    microbatches
        Of an iteration.
    fit
        Mean layers that fit the memory of a device, parameters and activations of one microbatch.
    edge_bytes
        Mean size of the tensor between two layers.
    recompute
        ``"full"`` or ``"none"``.
    slower
        By how much the network is slower than `BANDWIDTHS` and `LATENCIES`.
    spread
        Figures of layers lie within a factor of ``1 - spread`` to ``1 + spread`` of their means.
    kinds
        How many kinds of layers take turns; 0 where no two are alike.
    preset
        As on the command line.
    """

    layers: int = 2000
    fanouts: tuple[int, ...] = (8, 4, 8, 16, 16)
    microbatches: int = 4096
    fit: float = 40.0
    edge_bytes: float = 20e6
    recompute: Recompute = "full"
    slower: float = 1.0
    spread: float = 0.5
    kinds: int = 0
    seed: int = 1
    preset: str = "artifact"

    @property
    def devices(self) -> int:
        """Devices of the cluster."""
        return prod(self.fanouts)

    @property
    def text(self) -> str:
        """What differs from the default, as JSON."""
        default = Case()
        changed = {
            spec.name: getattr(self, spec.name)
            for spec in fields(self)
            if getattr(self, spec.name) != getattr(default, spec.name)
        }
        return json.dumps(changed)


SETTINGS = {
    "memory binds, recompute": Case(),
    "memory binds hard, recompute": Case(fit=12.0),
    "memory binds hard, recompute, small tensors": Case(fit=3.0, edge_bytes=2e4),
    "one layer fits, recompute, small tensors": Case(fit=1.6, edge_bytes=2e4),
    "memory binds softly, no recompute": Case(recompute="none", fit=1000.0),
    "memory binds, no recompute": Case(recompute="none", fit=400.0),
    "memory binds hard, no recompute": Case(recompute="none", fit=300.0),
    "no plan fits": Case(fit=0.9),
    "no plan fits, no recompute": Case(recompute="none", fit=20.0),
    "memory free": Case(fit=1e6),
    "memory free, no recompute": Case(fit=1e6, recompute="none"),
    "1 microbatch": Case(microbatches=1),
    "16 microbatches": Case(microbatches=16),
    "256 microbatches": Case(microbatches=256),
    "1,000 microbatches": Case(microbatches=1000),
    "65,536 microbatches": Case(microbatches=65_536),
    "1,000,000 microbatches": Case(microbatches=1_000_000),
    "memory free, 1 microbatch": Case(fit=1e6, microbatches=1),
    "memory free, 1,000,000 microbatches": Case(fit=1e6, microbatches=1_000_000),
    "network 1,000 times slower": Case(slower=1e3),
    "network 1,000,000 times slower": Case(slower=1e6),
    "network 1,000,000 times slower, memory free": Case(slower=1e6, fit=1e6),
    "network free": Case(slower=1e-6),
    "layers nearly alike": Case(spread=1e-3),
    "layers most unlike": Case(spread=0.99),
    "all layers alike": Case(kinds=1),
    "all layers alike, memory free": Case(kinds=1, fit=1e6),
    "two kinds in turn": Case(kinds=2),
    "two kinds in turn, memory free": Case(kinds=2, fit=1e6),
    "three kinds in turn": Case(kinds=3),
    "devices no power of two": Case(fanouts=(8, 5, 5, 10, 25)),
    "fewer devices than layers": Case(fanouts=(5, 2, 5, 5, 4), microbatches=64),
}
"""By name; the figures that matter for the target."""

RANDOM: dict[str, tuple[Any, ...]] = {
    "fanouts": ((8, 4, 8, 16, 16), (2, 2, 2, 16, 512), (16, 16, 16, 4, 4), (7, 9, 10, 8, 13)),
    "microbatches": (1, 8, 100, 1000, 4096, 65_536, 1_000_000),
    "fit": (1.6, 2, 3, 5, 10, 20, 40, 100, 300, 500, 1e6),
    "edge_bytes": (0, 2e4, 2e5, 2e6, 2e7, 2e8),
    "recompute": ("full", "none"),
    "slower": (1e-3, 1, 1, 1e3, 1e5),
    "spread": (0.01, 0.5, 0.5, 0.9, 0.99),
    "kinds": (0, 0, 0, 2),
}
"""What random settings draw from; what is listed twice is drawn more often."""

GROWTH_LAYERS = (125, 250, 500, 1000, 2000)
GROWTH_FANOUTS = ((8, 4, 8, 2, 2), (8, 4, 8, 4, 4), (8, 4, 8, 8, 8), (8, 4, 8, 16, 16))
GROWTH = {
    "memory binds": Case(),
    "memory binds, no recompute": Case(recompute="none", fit=400.0),
    "memory free": Case(fit=1e6),
    "many microbatches": Case(microbatches=65_536),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case came to; `status` says so too where its process was ended."""

    name: str
    case: Case
    status: str
    seconds: float | None
    cpu_s: float | None
    peak_mb: float
    stages: int
    replicas: int
    objective: float | None


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    if arguments.one is not None:
        print(json.dumps(solve_case(case_of(arguments.one))))
        return
    screen = console()
    screen.print(machine(), soft_wrap=True)
    chosen = {name: case for name, case in SETTINGS.items() if arguments.only in name}
    outcomes = _show_settings(chosen | random_settings(arguments.random), arguments.limit)
    growth = _show_growth(arguments.limit) if arguments.growth else []
    targets = targets_of(outcomes, arguments.limit)
    for target in targets:
        screen.print(target.line(), markup=False)
    figures = {"settings": [asdict(each) for each in outcomes], "growth": [asdict(each) for each in growth]}
    write_json(arguments.json, {"machine": machine(), **figures})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "settings with this text in their name")
    made.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="for each case (default 60)")
    made.add_argument("--growth", action="store_true", help="also how the time grows with layers and with devices")
    made.add_argument("--random", type=int, default=0, metavar="COUNT", help="also so many random settings")
    made.add_argument("--one", metavar="JSON", help="solve the case that this says, and print the figures as JSON")
    return made


def random_settings(count: int) -> dict[str, Case]:
    """Return settings drawn from `RANDOM`, the same for each seed."""
    drawn = {}
    for seed in range(count):
        source = random.Random(seed)
        drawn[f"random {seed}"] = Case(seed=seed, **{name: source.choice(values) for name, values in RANDOM.items()})
    return drawn


def case_of(text: str) -> Case:
    """Return the case that a JSON object describes; what it does not say is the default."""
    figures = json.loads(text)
    if "fanouts" in figures:
        figures["fanouts"] = tuple(figures["fanouts"])
    return Case(**figures)


def problem_of(case: Case) -> Problem:
    """Return the problem of a case."""
    model = LayerGraph(_layers(case), tuple(_edges(case)))
    cluster = Cluster(case.devices, case.fit * (2 * PARAMETER_BYTES + ACTIVATION_BYTES), _levels(case))
    choices = Choices(zero=frozenset({0}), recompute=case.recompute)
    training = Training(case.microbatches)
    return Problem("long chain", {Variant(1): model}, cluster, training, choices, preset_named(case.preset))


def _levels(case: Case) -> tuple[Level, ...]:
    links = zip(case.fanouts, BANDWIDTHS, LATENCIES, strict=False)
    return tuple(Level(fanout, rate / case.slower, latency * case.slower) for fanout, rate, latency in links)


def _drawn(case: Case, mean: float, column: int) -> Sequence[float]:
    """Return a figure of every layer; each column is a figure of its own."""
    source = np.random.default_rng([case.seed, column])
    count = case.kinds or case.layers
    values = mean * source.uniform(1 - case.spread, 1 + case.spread, count)
    return np.resize(values, case.layers).tolist()


def _layers(case: Case) -> tuple[Layer, ...]:
    forward, backward = _drawn(case, FORWARD_S, 0), _drawn(case, 2 * FORWARD_S, 1)
    parameters, activations = _drawn(case, PARAMETER_BYTES, 2), _drawn(case, ACTIVATION_BYTES, 3)
    figures = zip(forward, backward, parameters, activations, strict=True)
    return tuple(Layer(at, ahead, back, int(own), int(kept)) for at, (ahead, back, own, kept) in enumerate(figures))


def _edges(case: Case) -> list[Edge]:
    sizes = _drawn(case, case.edge_bytes, 4)
    return [Edge(at, at + 1, int(sizes[at])) for at in range(case.layers - 1)]


def solve_case(case: Case) -> dict[str, Any]:
    """Solve a case in this process, and return its figures."""
    problem = problem_of(case)
    begin = time.process_time()
    result = solve(problem)
    return {
        "status": result.status.value,
        "seconds": result.wall_s,
        "cpu_s": time.process_time() - begin,
        "stages": len(result.plan.stages) if result.plan else 0,
        "replicas": result.plan.replicas if result.plan else 0,
        "objective": result.objective_s,
    }


def run_case(name: str, case: Case, limit_s: float) -> Outcome:
    """Solve a case in a process of its own."""
    process = in_process([sys.executable, __file__, "--one", json.dumps(asdict(case))], limit_s)
    if process.exit != 0:
        status = f"ended after {process.seconds:.0f} s" if process.killed else f"exit code {process.exit}"
        return Outcome(name, case, status, None, process.cpu_s, process.peak_mb, 0, 0, None)
    return Outcome(name, case, peak_mb=process.peak_mb, **json.loads(process.output))


def targets_of(outcomes: Sequence[Outcome], limit_s: float) -> list[Target]:
    """Return the targets; a case that was ended counts for the limit.

    The solver runs on one core, so CPU seconds are what a machine without other work takes.
    """
    unsettled = sum(each.status not in {"optimal", "infeasible"} for each in outcomes)
    wall = [limit_s if each.seconds is None else each.seconds for each in outcomes]
    busy = [limit_s if each.cpu_s is None else each.cpu_s for each in outcomes]
    return [
        Target("settings not settled", unsettled, 0),
        Target("slowest setting", max(wall, default=None), LIMIT_S, "s"),
        Target("slowest setting, CPU", max(busy, default=None), LIMIT_S, "s"),
    ]


COLUMNS = ("Setting", "Differs from the default in", "Status", "Seconds", "CPU s", "Peak MB", "Stages", "Replicas")


def _show_settings(settings: dict[str, Case], limit_s: float) -> list[Outcome]:
    outcomes = [run_case(name, case, limit_s) for name, case in settings.items()]
    made = table(f"Default: {json.dumps(asdict(Case()))}", COLUMNS, left=3)
    for each in outcomes:
        figures = (number(each.seconds, ".2f"), number(each.cpu_s, ".2f"), number(each.peak_mb, ".0f"))
        made.add_row(each.name, each.case.text, each.status, *figures, str(each.stages), str(each.replicas))
    console().print(made)
    return outcomes


def _show_growth(limit_s: float) -> list[Outcome]:
    """Show how seconds grow, with layers at all devices and with devices at all layers."""
    found = []
    for name, case in GROWTH.items():
        by_layers = [run_case(name, shortened(case, layers), limit_s) for layers in GROWTH_LAYERS]
        by_devices = [run_case(name, replace(case, fanouts=fanouts), limit_s) for fanouts in GROWTH_FANOUTS]
        _show_series(f"{name}: by layers, {case.devices:,} devices", GROWTH_LAYERS, by_layers)
        _show_series(
            f"{name}: by devices, {case.layers:,} layers", [prod(fanouts) for fanouts in GROWTH_FANOUTS], by_devices
        )
        found += by_layers + by_devices
    return found


def shortened(case: Case, layers: int) -> Case:
    """Return a case with fewer layers and, so that memory binds as much, less memory in the same proportion."""
    return replace(case, layers=layers, fit=case.fit * layers / case.layers)


def _show_series(title: str, sizes: Sequence[int], outcomes: Sequence[Outcome]) -> None:
    done = [(size, each.cpu_s) for size, each in zip(sizes, outcomes, strict=True) if each.cpu_s and each.seconds]
    exponent = growth_exponent([size for size, _ in done], [seconds for _, seconds in done])
    made = table(title, ("", *(f"{size:,}" for size in sizes), "Exponent"))
    made.add_row("seconds", *(number(each.seconds) for each in outcomes), "")
    made.add_row("CPU s", *(number(each.cpu_s) for each in outcomes), number(exponent, ".2f"))
    made.add_row("peak MB", *(number(each.peak_mb, ".0f") for each in outcomes), "")
    console().print(made)


if __name__ == "__main__":
    main()
