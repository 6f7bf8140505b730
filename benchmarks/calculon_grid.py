"""GPT-3 175B on 1,024 A100 over a superset of Calculon's grid without offload: how long the proof takes.

    python benchmarks/calculon_grid.py [--repeats N] [--limit SECONDS] [--json FILE]

Calculon (Isaev et al., SC 2023, github.com/calculon-ai/calculon; its search is `calculon/llm/optimal_execution.py`)
tries every execution of a grid one after the other. This counts them, by its rules, and says which of its choices our
space has; then it solves three runs: with attention as Calculon's, whose scores are kept or computed again; with fused
attention; and, of the first, only the points of Calculon's grid that our space can tell apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Literal

from measure import Target, console, machine, options, write_json
from run_figures import Figures, measured_document, show

DEVICES, BATCH, SEQUENCE = 1024, 1536, 2048
LAYERS, HIDDEN, HEADS, VOCAB = 96, 12288, 96, 51200
NETWORKS = 2
"""Of Calculon's system `a100_80g`: NVLink, and the network between nodes."""

RATES = (212.0, 234.0)
"""Executions a second of Calculon's search, as measured on a machine of this kind."""

LIMIT_S = 2.0

Recompute = Literal["none", "attn_only", "full"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Tensor, pipeline and data width of an execution; all devices are used."""

    tensor: int
    pipeline: int
    data: int

    @property
    def microbatches(self) -> list[int]:
        """Sizes of a microbatch: what divides the sequences of a replica, and leaves tensor ranks whole tokens."""
        batch = max(BATCH // self.data, 1)
        return [size for size in divisors(batch) if size * SEQUENCE % self.tensor == 0]

    @property
    def interleavings(self) -> list[int]:
        """Chunks of a stage."""
        return [1] if self.pipeline == 1 else divisors(LAYERS // self.pipeline)

    @property
    def networks(self) -> int:
        """Ways to give each kind of parallelism that is there a network."""
        return prod(NETWORKS for width in (self.tensor, self.pipeline, self.data) if width > 1)


@dataclass(frozen=True, slots=True)
class Count:
    """Executions of a grid: all of them, those that our space has, and how many plans they are to it.

    Our space derives from places which network a group crosses, and the framework says what overlaps and whether
    sequence parallel gathers again: such executions are one plan.
    """

    all: int
    covered: int
    plans: int


def main() -> None:
    """Count, measure and print."""
    arguments = parser().parse_args()
    screen = console()
    screen.print(machine(), soft_wrap=True)
    count = counted()
    hours = [count.all / rate / 3600 for rate in RATES]
    screen.print(
        f"executions of Calculon's grid without offload: {count.all:,}, {hours[1]:.1f} to {hours[0]:.1f} hours"
    )
    screen.print(f"of these without chunks, sent whole or with the sequence shared: {count.covered:,}")
    screen.print(f"which our space tells apart as {count.plans:,} plans, out of far more")
    runs = [
        measured_document(name, document, arguments.limit, arguments.repeats) for name, document in documents().items()
    ]
    show("GPT-3 175B on 1,024 A100 of 80 GB, batch 1,536", runs)
    for target in targets_of(runs):
        screen.print(target.line(), markup=False)
    write_json(arguments.json, {"machine": machine(), "count": asdict(count), "runs": [asdict(run) for run in runs]})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__)
    made.add_argument("--repeats", type=int, default=3, metavar="N", help="of the whole process, best (default 3)")
    made.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="for each process (default 60)")
    return made


def divisors(number: int) -> list[int]:
    """Return what divides a number, ascending."""
    return [each for each in range(1, number + 1) if number % each == 0]


def shapes() -> Iterator[Shape]:
    """Yield the shapes of Calculon's grid: widths whose product is all devices, tensor by heads, pipeline by layers."""
    for tensor in divisors(DEVICES):
        if HIDDEN % tensor or HEADS % tensor:
            continue
        for pipeline in divisors(min(DEVICES // tensor, LAYERS)):
            if DEVICES % (tensor * pipeline) == 0 and LAYERS % pipeline == 0:
                yield Shape(tensor, pipeline, DEVICES // (tensor * pipeline))


def counted() -> Count:
    """Count the executions of the grid."""
    total = covered = plans = 0
    for shape in shapes():
        sizes, sharded = len(shape.microbatches), 2 if shape.data > 1 else 1
        modes = sizes * sharded * shape.networks * (3 if shape.tensor > 1 else 1)  # overlap of tensor parallel
        modes *= 2 if shape.data > 1 else 1  # overlap of data parallel
        kinds: tuple[Recompute, ...] = ("none", "attn_only", "full")
        total += sum(modes * len(shape.interleavings) * _exchanges(kind) for kind in kinds)
        covered += sum(modes * (_exchanges(kind) - 1) for kind in kinds)  # parts that are gathered behind a boundary
        plans += sizes * sharded * len(kinds) * (2 if shape.tensor > 1 else 1)
    return Count(total, covered, plans)


def _exchanges(kind: Recompute) -> int:
    """Return how many ways tensor parallel has to exchange: whole, in parts across stages, sharing the sequence.

    Who shares the sequence gathers it once or, unless all is computed again, may do so twice.
    """
    return 3 if kind == "full" else 4


def documents() -> dict[str, Mapping[str, Any]]:
    """Return the runs that are solved, by name."""
    run = {
        "cluster": f"selene:{DEVICES}",
        "sequence": SEQUENCE,
        "global_batch": BATCH,
        "reserve_gib": 4,
        "model": {
            "family": "gpt",
            "layers": LAYERS,
            "hidden": HIDDEN,
            "heads": HEADS,
            "vocab": VOCAB,
            "seq": SEQUENCE,
        },
    }
    widths = sorted({shape.tensor for shape in shapes()})
    sizes = sorted({size for shape in shapes() for size in shape.microbatches})
    free = {"tensor": widths, "microbatch": sizes}
    grid = free | {"context": 1, "zero": [0, 1], "replicas": sorted({shape.data for shape in shapes()})}
    grid["stages"] = sorted({shape.pipeline for shape in shapes()})
    return {
        "superset, scores kept or again": run | {"flash": False, "choices": free},
        "superset, fused attention": run | {"choices": free},
        "widths of the grid only": run | {"flash": False, "choices": grid},
    }


def targets_of(runs: list[Figures]) -> list[Target]:
    """Return the targets: every run is proven in time."""
    return [
        target
        for run in runs
        for target in (
            Target(f"{run.name}: proven", int(run.status == "optimal"), 1, at_least=True),
            Target(f"{run.name}: in process, CPU", run.cpu_s, LIMIT_S, "s"),
        )
    ]


if __name__ == "__main__":
    main()
