"""What tensor widths of single stages gain over one width for all; preset ``default``.

    python benchmarks/stage_widths.py [--only TEXT] [--json FILE]

Each row is a model on so many H100, with a batch. Choices: context width 1, everything else free. First all stages are
of one variant, then each may have a tensor width of 1, 2, 4 or 8 of its own (``stage_tensor``). Both are proven optima.
Where the batch is large enough for replicas to take all devices, or context parallel may split sequences, single widths
gain nothing; they do where a pipeline has to be cut into stages that no one width divides the devices for.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from measure import Target, console, machine, options, table, write_json

from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.plan import Plan
from nest.problem import Choices, Problem
from nest.result import Result, Status
from nest.runs import Run, problem_of
from nest.solve import solve

WIDTHS = frozenset({1, 2, 4, 8})
MODELS = (
    Hyperparameters(
        "llama", layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=128256, seq=8192, name="Llama 3 70B"
    ),
    Hyperparameters(
        "llama", layers=18, hidden=2048, heads=8, kv_heads=1, head_width=256, ffn=16384, vocab=256128, seq=8192,
        name="shape of Gemma 2B",
    ),
)  # fmt: skip
CASES = (
    (0, 24, 64, 8192),
    (0, 24, 32, 8192),
    (0, 24, 16, 8192),
    (0, 24, 64, 2048),
    (0, 48, 16, 8192),
    (1, 24, 4, 8192),
)
"""Place of the model, devices, sequences of an iteration, tokens of a sequence."""

SECONDS = 60
"""Processor seconds that the search with single widths may take."""


@dataclass(frozen=True, slots=True)
class Row:
    """A problem, its optima, and what they took."""

    name: str
    one_width_s: float
    own_widths_s: float
    plan: str
    one_width_cpu_s: float
    own_widths_cpu_s: float
    proven: bool

    @property
    def gain(self) -> float:
        """Return one width over own widths."""
        return self.one_width_s / self.own_widths_s


def main() -> None:
    """Solve and print."""
    arguments = options(__doc__, "problems with this text in their name").parse_args()
    screen = console()
    screen.print(machine(), soft_wrap=True)
    rows = [row_of(run) for run in runs() if arguments.only in run.name]
    show(rows)
    screen.print(Target("solves without a proof", sum(not row.proven for row in rows), 0).line(), markup=False)
    longest = max((row.own_widths_cpu_s for row in rows), default=None)
    screen.print(Target("processor seconds with own widths", longest, SECONDS).line(), markup=False)
    write_json(arguments.json, {"machine": machine(), "rows": [asdict(row) for row in rows]})


def runs() -> list[Run]:
    """Return the cases as runs."""
    fixed = Choices(context=frozenset({1}))
    found = []
    for at, devices, batch, tokens in CASES:
        model = MODELS[at]
        name = f"{model.name}, {devices} H100, {batch} x {tokens}"
        hardware = cluster_named(f"dgx-h100:{devices}")
        found.append(
            Run(from_hyperparameters(model), hardware, tokens, batch, name=name, choices=fixed, reserve_bytes=4 * 2**30)
        )
    return found


def row_of(run: Run) -> Row:
    """Solve a run in both ways."""
    problem = problem_of(run).problem
    (one, one_cpu_s), (own, own_cpu_s) = (timed(problem.with_choices(stage_tensor=each)) for each in (None, WIDTHS))
    if one.objective_s is None or own.objective_s is None or own.plan is None:
        raise AssertionError(f"{run.name} has plans")
    proven = one.status is own.status is Status.OPTIMAL
    return Row(run.name, one.objective_s, own.objective_s, shape_of(own.plan), one_cpu_s, own_cpu_s, proven)


def timed(problem: Problem) -> tuple[Result, float]:
    """Return an answer, and the processor seconds that it took."""
    begin = time.process_time()
    return solve(problem), time.process_time() - begin


def shape_of(plan: Plan) -> str:
    """Return replicas, and layers and tensor width of each stage, as in ``d2: 26 t8, 15 t4``."""
    each = zip(plan.stages, plan.stage_variants, strict=True)
    return f"d{plan.replicas}: " + ", ".join(f"{len(stage.layers)} t{variant.tensor}" for stage, variant in each)


def show(rows: list[Row]) -> None:
    """Show the gains."""
    heads = ("Problem", "One width s", "Own widths s", "Gain", "Plan", "CPU s", "CPU s")
    made = table("Iteration with one tensor width for all stages, and with one of their own", heads)
    for row in rows:
        times = (f"{each:.2f}" for each in (row.one_width_cpu_s, row.own_widths_cpu_s))
        made.add_row(row.name, f"{row.one_width_s:.4g}", f"{row.own_widths_s:.4g}", f"{row.gain:.4f}", row.plan, *times)
    console().print(made)


if __name__ == "__main__":
    main()
