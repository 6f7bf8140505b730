"""What sharding inside the stage gains, with and without a part of the batch on each device; preset ``default``.

    python benchmarks/shard_inside.py [--only TEXT] [--json FILE]

Each row is a model on some devices, with a batch. Everything is free, but where the row says that layers are whole:
then tensor and context width are 1, as for models that nobody has cut. First no stage is sharded inside, then each may
take 1, 2 or 4 times its devices (``shard_inside``), which only hold shards, and then such as split the microbatch as
well (``splits_batch``). All three are proven optima, or that there is no plan is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import groupby

from measure import Target, console, machine, options, table, write_json
from stage_widths import MODELS, timed

from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.plan import Plan, Stage
from nest.problem import Choices
from nest.result import Result, Status
from nest.runs import Run, problem_of

DEGREES = frozenset({1, 2, 4})
LLAMA, SMALL = MODELS
LARGE = Hyperparameters(
    "llama", layers=46, hidden=4608, heads=32, kv_heads=16, head_width=128, ffn=36864, vocab=256128, seq=4096,
    name="shape of Gemma 2 27B",
)  # fmt: skip
CASES = (
    (LARGE, "l4:64", 1, 4096, True),
    (SMALL, "dgx-a100-40gb:3", 2, 8192, True),
    (SMALL, "dgx-h100:24", 1, 8192, True),
    (SMALL, "dgx-a100-40gb:3", 2, 8192, False),
    (SMALL, "dgx-a100-40gb:6", 4, 8192, False),
    (SMALL, "dgx-a100-40gb:24", 4, 8192, False),
    (LLAMA, "dgx-h100:24", 16, 8192, False),
)
"""Model, cluster, sequences of an iteration, tokens of a sequence, and whether layers are whole."""

SECONDS = 60
"""Processor seconds that a search may take."""


@dataclass(frozen=True, slots=True)
class Row:
    """A problem, its optima, the better plan that shards inside, and what the searches took; None for no plan."""

    name: str
    plain_s: float | None
    holds_s: float | None
    splits_s: float | None
    plan: str
    cpu_s: tuple[float, ...]
    proven: bool


def main() -> None:
    """Solve and print."""
    arguments = options(__doc__, "problems with this text in their name").parse_args()
    screen = console()
    screen.print(machine(), soft_wrap=True)
    rows = [row_of(run) for run in runs() if arguments.only in run.name]
    show(rows)
    screen.print(Target("answers without a proof", sum(not row.proven for row in rows), 0).line(), markup=False)
    longest = max((max(row.cpu_s) for row in rows), default=None)
    screen.print(Target("processor seconds of a search", longest, SECONDS).line(), markup=False)
    write_json(arguments.json, {"machine": machine(), "rows": [asdict(row) for row in rows]})


def runs() -> list[Run]:
    """Return the cases as runs."""
    found = []
    for model, cluster, batch, tokens, whole in CASES:
        widths = frozenset({1}) if whole else None
        choices = Choices(tensor=widths, context=widths)
        name = f"{model.name}, {cluster}, {batch} x {tokens}{', whole layers' if whole else ''}"
        hardware = cluster_named(cluster)
        found.append(
            Run(from_hyperparameters(model), hardware, tokens, batch, name=name, choices=choices, reserve_bytes=2**31)
        )
    return found


def row_of(run: Run) -> Row:
    """Solve a run in three ways."""
    found = []
    for degrees, splits in ((None, False), (DEGREES, False), (DEGREES, True)):
        choices = replace(run.choices, shard_inside=degrees, splits_batch=splits)
        found.append(timed(problem_of(replace(run, choices=choices)).problem))
    plain, holds, splits_ = (result for result, _ in found)
    best = min((holds, splits_), key=lambda each: each.objective_ticks or 2**63)
    proven = all(each.status in (Status.OPTIMAL, Status.INFEASIBLE) for each, _ in found)
    plan = "none" if best.plan is None else shape_of(best.plan)
    times = tuple(cpu_s for _, cpu_s in found)
    return Row(run.name, _seconds(plain), _seconds(holds), _seconds(splits_), plan, times, proven)


def _seconds(result: Result) -> float | None:
    return None if result.objective_ticks is None else result.objective_ticks * result.time.tick_s


def shape_of(plan: Plan) -> str:
    """Return replicas, and layers and devices of each stage, as in ``d1: 16 on 4 split, 2 x 4 on 2``."""
    runs = [(text, len(list(alike))) for text, alike in groupby(map(_stage, plan.stages))]
    return f"d{plan.replicas}: " + ", ".join(text if count == 1 else f"{count} x {text}" for text, count in runs)


def _stage(stage: Stage) -> str:
    text = f"{len(stage.layers)} on {stage.devices}"
    if stage.inside == 1:
        return text
    return f"{text} {'split' if stage.sharding.splits_batch else 'inside'}"


def show(rows: list[Row]) -> None:
    """Show the times."""
    heads = ("Problem", "Plain s", "Holds shards s", "Splits s", "Plan", "CPU s")
    made = table("Iteration without sharding inside the stage, and with it", heads)
    for row in rows:
        times = ("no plan" if each is None else f"{each:.4g}" for each in (row.plain_s, row.holds_s, row.splits_s))
        made.add_row(row.name, *times, row.plan, " ".join(f"{each:.2f}" for each in row.cpu_s))
    console().print(made)


if __name__ == "__main__":
    main()
