"""How the time to a proven optimum grows with devices and with layers; preset ``default``, everything free.

    python benchmarks/growth.py [--only TEXT] [--every N] [--limit SECONDS] [--plot FILE] [--json FILE]

Three series: Llama 3 70B and 405B on ever more H100, the batch fixed; and a model as wide as Llama 3 70B with ever more
layers. Each point is posed and solved in a process of its own; exponents are fitted by least squares to the logarithms
of processor seconds, over all points and over the larger half.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from measure import Target, console, growth_exponent, machine, number, options, table, write_json
from run_figures import Figures, measured_document

WIDE = {"family": "llama", "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128256, "seq": 8192}
WIDER = {**WIDE, "hidden": 16384, "heads": 128, "ffn": 53248}
BATCH = 2048
LAYERS_70B, LAYERS_405B = 80, 126
DEVICES_OF_LAYERS = 1024

MOST_EXPONENT = 1.5

SECONDS = (1, 2, 5, 10, 20, 50)
"""Marks of the axis of time."""


@dataclass(frozen=True, slots=True)
class Series:
    """Runs that differ in one size only."""

    name: str
    model: Mapping[str, Any]
    what: str
    sizes: tuple[int, ...]

    @property
    def title(self) -> str:
        """Model and size."""
        return f"{self.name}: {self.what}"

    def documents(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the size and the run file of each point."""
        for size in self.sizes:
            devices, layers = (size, None) if self.what == "devices" else (DEVICES_OF_LAYERS, size)
            model = dict(self.model) if layers is None else {**self.model, "layers": layers}
            run = {"cluster": f"dgx-h100:{devices}", "sequence": 8192, "global_batch": BATCH, "reserve_gib": 4}
            yield size, {**run, "model": model}


SERIES = (
    Series("Llama 3 70B", {**WIDE, "layers": LAYERS_70B}, "devices", tuple(2**power for power in range(6, 18))),
    Series("Llama 3 405B", {**WIDER, "layers": LAYERS_405B}, "devices", tuple(2**power for power in range(8, 18))),
    Series("as wide as 70B", WIDE, "layers", (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)),
)


@dataclass(frozen=True, slots=True)
class Grown:
    """A series as it was measured."""

    series: Series
    points: tuple[Figures, ...]

    @property
    def proven(self) -> list[tuple[int, float]]:
        """Size and processor seconds of the points that are settled, optimal or infeasible."""
        pairs = zip(self.series.sizes, self.points, strict=True)
        return [(size, point.cpu_s) for size, point in pairs if point.cpu_s and point.status in SETTLED]

    def exponent(self, *, last: int = 0) -> float | None:
        """Return the exponent of the fit, over the last points or over all."""
        points = self.proven[-last:]
        return growth_exponent([size for size, _ in points], [seconds for _, seconds in points])


SETTLED = ("optimal", "infeasible")


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    screen = console()
    screen.print(machine(), soft_wrap=True)
    chosen = [replace(each, sizes=each.sizes[:: arguments.every]) for each in SERIES if arguments.only in each.title]
    grown = [measured_series(each, arguments.limit) for each in chosen]
    for each in grown:
        for target in targets_of(each):
            screen.print(target.line(), markup=False)
    if arguments.plot:
        draw(grown, arguments.plot)
    document = [{"series": asdict(each.series), "points": [asdict(point) for point in each.points]} for each in grown]
    write_json(arguments.json, {"machine": machine(), "series": document})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "series with this text in model and size")
    made.add_argument("--every", type=int, default=1, metavar="N", help="only every so many points of a series")
    made.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="for each point (default 120)")
    made.add_argument("--plot", type=Path, metavar="FILE", help="draw the seconds too (needs matplotlib)")
    return made


def measured_series(series: Series, limit_s: float) -> Grown:
    """Measure a series, and print it."""
    runs = []
    for size, document in series.documents():
        runs.append(measured_document(f"{series.what}-{size}", document, limit_s))
        console().print(f"{series.title}: {size:,}: {runs[-1].status}, {number(runs[-1].cpu_s, '.2f')} s of CPU")
    grown = Grown(series, tuple(runs))
    columns = (
        series.what,
        "Best plan",
        "Devices",
        "Variants",
        "Iteration s",
        "Pose CPU s",
        "Solve CPU s",
        "CPU s",
        "s",
    )
    made = table(series.title, columns, left=2)
    for size, run in zip(series.sizes, runs, strict=True):
        figures = (run.pose_cpu_s, run.solve_cpu_s, run.cpu_s, run.seconds)
        plan = run.plan if run.status == "optimal" else run.status
        shown = (f"{size:,}", plan, f"{run.devices:,}", str(run.variants), number(run.objective_s, ".5g"))
        made.add_row(*shown, *(number(each, ".2f") for each in figures))
    console().print(made)
    return grown


def targets_of(grown: Grown) -> list[Target]:
    """Return the targets of a series: every point is settled, and the time grows slowly."""
    name, half = grown.series.title, len(grown.points) // 2
    unsettled = sum(point.status not in SETTLED for point in grown.points)
    return [
        Target(f"{name}: points not settled", unsettled, 0),
        Target(f"{name}: exponent", grown.exponent(), MOST_EXPONENT),
        Target(f"{name}: exponent of the larger half", grown.exponent(last=half), MOST_EXPONENT),
    ]


def draw(grown: Sequence[Grown], path: Path) -> None:
    """Draw processor seconds against sizes, one panel for devices and one for layers, both axes logarithmic."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra, and only plots need it)

    kinds = list(dict.fromkeys(each.series.what for each in grown))
    figure = Figure(figsize=(5 * len(kinds), 4), layout="constrained")
    panels = figure.subplots(1, len(kinds), squeeze=False)[0]
    for panel, what in zip(panels, kinds, strict=True):
        for each in grown:
            if each.series.what == what and each.proven:
                exponent = number(each.exponent(), ".2f")
                panel.loglog(
                    *zip(*each.proven, strict=True), marker="o", label=f"{each.series.name} (power {exponent})"
                )
        sizes = sorted({size for each in grown if each.series.what == what for size, _ in each.proven})
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
        panel.set_yticks(SECONDS, [str(each) for each in SECONDS])
        panel.minorticks_off()
        panel.set(xlabel=what, ylabel="processor seconds to the proof")
        panel.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
