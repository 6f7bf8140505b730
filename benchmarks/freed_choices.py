"""What freeing each choice gains over the paper's space: iteration times, restricted over freed; preset ``default``.

    python benchmarks/freed_choices.py [--only TEXT] [--json FILE]

The restricted space is that of arXiv 2603.06798 as preset ``default`` has it: microbatches of one sequence, the same
recomputation for all stages, ZeRO only where nothing fits without, context width 1, one expert width, stages of one
replica next to each other. It keeps what that paper's search has: tensor width, a shared sequence, stages cut
anywhere, and their and the replicas' number. Of what a flag of that program settles, recomputation, the better is
taken, so that the ratios are what one plan loses, not what a badly set flag does. Then one choice is freed at a time,
and all of them together; every time is a proven optimum. Problems are the paper's five models on 512 devices of its
fat-tree, batch 4,096, and the runs of `instances/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from measure import ROOT, Target, console, machine, options, table, write_json
from run_figures import plan_of

from nest.cluster import Cluster
from nest.families import Hyperparameters, from_hyperparameters
from nest.files import read_problem
from nest.graph import Layer
from nest.hardware import Hardware, device_named
from nest.hardware.setup import LevelFacts
from nest.problem import Choices, Problem, Recompute
from nest.result import Result, Status
from nest.runs import Run, contenders, is_run, read_run
from nest.solve import solve

INSTANCES = ROOT / "instances"
FAT_TREE = INSTANCES / "gpt3-175b_tpuv4_512.toml"
BATCH = 4096
NONE: frozenset[Recompute] = frozenset({"none"})
WHOLE, ANY_ZERO = frozenset({0}), frozenset(range(4))
LEAST_RATIO = 1 - 1e-9
"""Two problems of a run may count in different ticks."""

PAPER_MODELS = (
    Hyperparameters("llama", layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000, seq=4096, name="Llama 2 7B"),
    Hyperparameters(
        "llama", layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=128256, seq=4096, name="Llama 3 70B"
    ),
    Hyperparameters("bert", layers=24, hidden=1024, heads=16, vocab=30522, seq=512, name="BERT-large"),
    Hyperparameters("gpt", layers=96, hidden=12288, heads=96, vocab=51200, seq=2048, name="GPT-3 175B"),
    Hyperparameters(
        "moe", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000, seq=4096, experts=8, top_k=2,
        name="Mixtral 8x7B",
    ),
)  # fmt: skip
"""The paper's five models, with its sequences."""

EXPERT_WIDTHS = {"Mixtral 8x7B": 4, "DeepSeek-V3": 64}
"""Expert width that is published for a model: the paper's Mixtral, and arXiv 2412.19437, section 3.2.1."""

FREED: dict[str, dict[str, Any]] = {
    "microbatch": {},
    "recompute": {"stage_recompute": None},
    "ZeRO": {"zero": ANY_ZERO},
    "context": {},
    "expert": {},
    "arrangement": {},
}
"""What each column changes in the choices, beside widths and arrangement."""


@dataclass(frozen=True, slots=True)
class Row:
    """A problem, its optimum in the restricted space, and the ratios that freed choices gain.

    Attributes
    ----------
    restricted_s, best_s
        Iterations, None where nothing fits.
    flag
        Recomputation that the restricted optimum takes.
    forced
        Whether nothing fits without ZeRO, so that it is free.
    ratios
        By freed choice, ``all`` for all of them together.
    unproven
        How many of the solves ended without a proof.
    """

    name: str
    restricted_s: float | None
    best_s: float | None
    flag: str
    forced: bool
    restricted_plan: str
    best_plan: str
    ratios: dict[str, float] = field(default_factory=dict)
    unproven: int = 0


def main() -> None:
    """Solve and print."""
    arguments = options(__doc__, "problems with this text in their name").parse_args()
    screen = console()
    screen.print(machine(), soft_wrap=True)
    rows = []
    for run in runs():
        if arguments.only in run.name:
            rows.append(row_of(run))
            screen.print(line(rows[-1]), markup=False, soft_wrap=True)
    show(rows)
    screen.print(Target("solves without a proof", sum(row.unproven for row in rows), 0).line(), markup=False)
    lowest = min((ratio for row in rows for ratio in row.ratios.values()), default=None)
    screen.print(Target("smallest ratio", lowest, LEAST_RATIO, at_least=True).line(), markup=False)
    write_json(arguments.json, {"machine": machine(), "rows": [asdict(row) for row in rows]})


def runs() -> Iterator[Run]:
    """Yield the paper's models on its fat-tree, then the runs of the instances."""
    yield from paper_runs(read_problem(FAT_TREE).cluster)
    for path in sorted(INSTANCES.glob("*.toml")):
        if is_run(path):
            yield read_run(path)


def paper_runs(cluster: Cluster) -> Iterator[Run]:
    """Yield the paper's models on a fat-tree with its devices: TPU v4 with 64 GB, links as rated."""
    hardware = Hardware(device_named("tpu-v4"), cluster, tuple(LevelFacts() for _ in cluster.levels))
    for model in PAPER_MODELS:
        name = f"{model.name}, fat-tree of {cluster.devices}"
        yield Run(from_hyperparameters(model), hardware, model.seq, BATCH, name=name)


@dataclass(frozen=True)
class Space:
    """A part of the space of a run, of which all variants are there that could have its best plan.

    Attributes
    ----------
    widths
        Choices of a variant that are settled; the others are free.
    choices
        Further ones.
    again
        Whether all layers compute all again.
    apart
        Whether both arrangements are there, not only that with the stages of a replica next to each other.
    """

    run: Run
    widths: dict[str, frozenset[int]]
    choices: dict[str, Any]
    again: bool = False
    apart: bool = False

    def freed(self, name: str) -> Space:
        """Return the space with a choice freed."""
        if name == "arrangement":
            return replace(self, apart=True)
        if name in self.widths:
            return replace(self, widths={key: value for key, value in self.widths.items() if key != name})
        return replace(self, choices=self.choices | FREED[name], again=self.again and name != "recompute")

    def best(self) -> Result:
        """Return its optimum."""
        run = replace(self.run, choices=Choices(**self.widths))  # type: ignore[arg-type]  # all are sets of widths
        return solve(self._changed(contenders(run, change=self._changed).problem))

    def _changed(self, problem: Problem) -> Problem:
        problem = (all_again(problem) if self.again else problem).with_choices(**self.choices)
        if self.apart:
            return problem
        return replace(problem, preset=replace(problem.preset, arrangements=("replica-major",)))


def restricted(run: Run) -> Space:
    """Return the space of a run with the restrictions of the paper, nothing computed again and ZeRO left out."""
    width = next((width for name, width in EXPERT_WIDTHS.items() if name in (run.model.name or "")), 1)
    widths = {"microbatch": frozenset({1}), "context": frozenset({1}), "expert": frozenset({width})}
    return Space(run, widths, {"zero": WHOLE, "stage_recompute": NONE})


def row_of(run: Run) -> Row:
    """Solve all spaces of a run."""
    space, base = baseline(restricted(run))
    results = {name: space.freed(name).best() for name in FREED}
    results["all"] = best = solve(contenders(run).problem)
    theirs, ours = base.objective_s, best.objective_s
    return Row(
        run.name,
        theirs,
        ours,
        "full" if space.again else "none",
        space.choices["zero"] == ANY_ZERO,
        plan_of(base.plan) if base.plan else base.reason or "",
        plan_of(best.plan) if best.plan else best.reason or "",
        {name: theirs / each.objective_s for name, each in results.items() if theirs and each.objective_s},
        sum(each.status not in (Status.OPTIMAL, Status.INFEASIBLE) for each in (base, *results.values())),
    )


def baseline(space: Space) -> tuple[Space, Result]:
    """Return a space with the better flag and the types of ZeRO that it takes for something to fit; and its optimum."""
    for zero in (WHOLE, ANY_ZERO):
        flagged = [replace(space, choices=space.choices | {"zero": zero}, again=again) for again in (False, True)]
        solved = [(each, each.best()) for each in flagged]
        found = [(each, result) for each, result in solved if result.objective_s is not None]
        if found:
            return min(found, key=lambda pair: pair[1].objective_s or 0.0)
    return solved[-1]


def all_again(problem: Problem) -> Problem:
    """Return a problem in which every layer that can recomputes all, as by a flag for the whole plan.

    A stage that may recompute chooses for how many of its layers; so the layers themselves are those that do.
    """
    graphs = {
        variant: replace(
            graph, layers=_all(graph.layers), others=tuple((name, _all(layers)) for name, layers in graph.others)
        )
        for variant, graph in problem.graphs.items()
    }
    return replace(problem, graphs=graphs)


def _all(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    return tuple(_again(layer) for layer in layers)


def _again(layer: Layer) -> Layer:
    full = layer.again("full")
    if full is None:
        return replace(layer, recomputed=())
    return replace(
        layer,
        backward_s=layer.backward_s + full.repeated_s,
        activation_bytes=full.activation_bytes,
        working_bytes=full.working_bytes,
        collectives=(*layer.collectives, *(replace(each, when="backward") for each in full.collectives)),
        recomputed=(),
    )


def line(row: Row) -> str:
    """Return what stands behind the ratios of a problem."""
    ours = "nothing fits" if row.best_s is None else f"{row.best_s:.5g} s ({row.best_plan})"
    if row.restricted_s is None:
        return f"{row.name}: restricted: {row.restricted_plan}; free {ours}"
    flags = f"recompute {row.flag}" + (", ZeRO forced" if row.forced else "")
    ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in row.ratios.items())
    return f"{row.name}: restricted {row.restricted_s:.5g} s ({row.restricted_plan}; {flags}), free {ours}; {ratios}"


def show(rows: list[Row]) -> None:
    """Show the ratios."""
    names = (*FREED, "all")
    made = table("Iteration in the restricted space over that with a choice freed", ("Problem", *names))
    for row in rows:
        made.add_row(row.name, *(f"{row.ratios[name]:.3f}" if name in row.ratios else "-" for name in names))
    console().print(made)


if __name__ == "__main__":
    main()
