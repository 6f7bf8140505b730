"""Judge the plans of the artifact of arXiv 2603.06798 and of its baselines, beside the proven optimum.

    python benchmarks/artifact_plans.py INPUTS --measured FILE [--only TEXT] [--json FILE]

INPUTS is a folder of the artifact's JSON inputs, FILE its own runs: ``runs``, a list of objects with ``input``,
``build``, ``exit``, ``value``, ``plan`` (``t``, ``p``, ``d``) and ``baselines``. Everything is priced by
`nest.evaluate`, without sharding. What is printed are the tables of `docs/artifact_plans.md`, in Markdown.

A run tells the shape of its plan (tensor width, stages, replicas) and what the artifact says that it costs, not where
it is cut. The plan that is judged is the best of this shape under preset ``artifact``; that it costs there what the run
says is one of the figures. Beside it stand bounds on all plans of the shape that cost so much, see `price_range`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from artifact_inputs import BUILD, KILLED
from measure import machine, number, options, write_json
from price_range import Shape, price_range

from nest.cost.schedule import iteration
from nest.evaluate import Evaluation, evaluate
from nest.files import read_problem
from nest.plan import Plan, Stage
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem, Variant
from nest.solve import solve
from nest.tables import Tables

ONE_UNIT = replace(ARTIFACT, name="artifact in one unit", network_factor=1.0)
"""The artifact's evaluation with its mixed units put right, and nothing else."""

NO_ZERO = frozenset({0})
ANY_ZERO = frozenset({0, 1, 2, 3})
WIDE_DEVICES = 1024
BASELINES = ("Manual", "MCMC", "Phaze")
MS_PER_S = 1e3


@dataclass(frozen=True, slots=True)
class Judged:
    """A plan of the artifact's shape; times are those of an iteration, ratios are to the proven optimum.

    Attributes
    ----------
    says_ms
        What the run says, in the artifact's mixed unit.
    own_ms
        What the judged plan costs under preset ``artifact``.
    own, one_unit, true, zero
        Ratios of the judged plan under presets ``artifact``, `ONE_UNIT` and ``paper``, and to the optimum of ``paper``
        with ZeRO free.
    best
        Ratio of the best plan of the shape, under ``paper``.
    least, most
        Between which ratios under ``paper`` every plan of the shape lies that costs what the run says; None where no
        plan of the shape costs that.
    true_s
        Price under ``paper``.
    rules
        Which the plan breaks under ``paper``.
    """

    shape: str
    says_ms: float
    own_ms: float
    own: float
    one_unit: float
    true_s: float
    best: float
    true: float
    least: float | None
    most: float | None
    zero: float
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline of an input; ratios are to the proven optimum, None where a plan has no price.

    Attributes
    ----------
    recorded_ms, reversed_ms
        What the run says, and our price with the stages in reverse order, as the artifact has it.
    reversed, own, true
        Ratios under preset ``artifact`` with the stages reversed and in their order, and under ``paper``.
    rules
        Which the plan breaks in its order.
    """

    name: str
    shape: str
    recorded_ms: float | None
    reversed_ms: float | None
    reversed: float | None
    own: float | None
    true: float | None
    rules: tuple[str, ...]

    def __str__(self) -> str:
        if self.true is None:
            return ", ".join(self.rules)
        ratios = " / ".join(number(ratio, ".3f") for ratio in (self.reversed, self.own, self.true))
        return f"{ratios} {', '.join(self.rules)}".rstrip()


@dataclass(frozen=True, slots=True)
class Row:
    """One input: how its run ended (``"well"``, ``"killed"``, ``"crashed"``, ``"no run"``), its plan and baselines."""

    input: str
    ended: str
    plan: Judged | None
    baselines: tuple[Baseline, ...]


class Optima:
    """Proven optima of a problem, in ticks.

    Attributes
    ----------
    problem
        Without sharding, as are all optima but `zero`.
    """

    def __init__(self, problem: Problem) -> None:
        self.free, self.problem = problem, problem.with_choices(zero=NO_ZERO)

    @cached_property
    def own(self) -> int:
        """Under preset ``artifact``."""
        return optimum_ticks(self.problem.with_preset(ARTIFACT))

    @cached_property
    def one_unit(self) -> int:
        """Under `ONE_UNIT`."""
        return optimum_ticks(self.problem.with_preset(ONE_UNIT))

    @cached_property
    def paper(self) -> int:
        """Under preset ``paper``."""
        return optimum_ticks(self.problem.with_preset(PAPER))

    @cached_property
    def zero(self) -> int:
        """Under preset ``paper`` with ZeRO free."""
        return optimum_ticks(self.free.with_choices(zero=ANY_ZERO).with_preset(PAPER))


def main() -> None:
    """Judge and print."""
    arguments = parser().parse_args()
    paths = [path for path in sorted(arguments.inputs.glob("*.json")) if arguments.only in path.stem]
    runs = runs_by_input(json.loads(arguments.measured.read_text(encoding="utf-8"))["runs"])
    rows = [judge_input(path, runs.get(path.stem)) for path in paths]
    wide = [judge_wide(path) for path in paths if path.stem.startswith("h100")]
    print(machine())
    for lines in (plan_table(rows), wide_table(wide), baseline_table(rows)):
        print("\n".join(["", *lines]))
    document = {"machine": machine(), "rows": [asdict(row) for row in rows], "wide": dict(wide)}
    write_json(arguments.json, document)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "inputs with this text in their name")
    made.add_argument("inputs", type=Path, help="folder of the artifact's inputs")
    made.add_argument("--measured", type=Path, required=True, help="the artifact's own runs")
    return made


def runs_by_input(runs: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the artifact's run of each input, of its fastest build."""
    return {run["input"]: run for run in runs if run["build"] == BUILD}


def judge_input(path: Path, run: Mapping[str, Any] | None) -> Row:
    """Judge the plan of a run, if there is one, and the baselines of its input."""
    problem = read_problem(path)
    optima = Optima(problem)
    given = json.loads(path.read_text(encoding="utf-8")).get("baselines", {})
    recorded = (run or {}).get("baselines", {})
    return Row(
        input=path.stem,
        ended=ending(run),
        plan=None if ending(run) != "well" or run is None else judge_plan(problem, optima, run),
        baselines=tuple(judge_baseline(optima, name, given[name], recorded.get(name)) for name in sorted(given)),
    )


def ending(run: Mapping[str, Any] | None) -> str:
    """Return how a run ended, in a word or two."""
    if run is None:
        return "no run"
    return "well" if run["exit"] == 0 else "killed" if run["exit"] in KILLED else "crashed"


def judge_plan(problem: Problem, optima: Optima, run: Mapping[str, Any]) -> Judged:
    """Judge a plan of the shape that a run found: the best of the shape under the artifact's own evaluation."""
    known = run["plan"]
    shape = Shape(variant_of(problem, known["t"]), known["p"], known["d"])
    own, paper = optima.problem.with_preset(ARTIFACT), optima.problem.with_preset(PAPER)
    plan = best_plan(shape.only(own))
    verdict, ticks = evaluate(paper, plan), price(own, plan)
    bounds, best = price_range(shape, own, paper, run["value"] / MS_PER_S), optimum_ticks(shape.only(paper))
    least, most = (None, None) if bounds is None else (max(bounds[0], best) / optima.paper, bounds[1] / optima.paper)
    return Judged(
        shape=str(shape),
        says_ms=run["value"],
        own_ms=milliseconds(own, ticks),
        own=ticks / optima.own,
        one_unit=price(optima.problem.with_preset(ONE_UNIT), plan) / optima.one_unit,
        true_s=verdict.scale.time.seconds(price(paper, plan)),
        best=best / optima.paper,
        true=price(paper, plan) / optima.paper,
        least=least,
        most=most,
        zero=price(paper, plan) / optima.zero,
        rules=rules_of(verdict),
    )


def variant_of(problem: Problem, tensor: int) -> Variant:
    """Return the variant of a tensor width; the artifact's inputs have one of each."""
    return next(variant for variant in problem.variants if variant.tensor == tensor)


def best_plan(problem: Problem) -> Plan:
    """Return the best plan of a problem that has one.

    Raises
    ------
    ValueError
        If it has none.
    """
    result = solve(problem)
    if result.plan is None:
        raise ValueError(f"{problem.name}: {result.reason}")
    return result.plan


def optimum_ticks(problem: Problem) -> int:
    """Return the proven optimum of a problem that has one."""
    return price(problem, best_plan(problem))


def price(problem: Problem, plan: Plan) -> int:
    """Return what a plan costs, in ticks.

    Raises
    ------
    ValueError
        If it is too broken to have a price.
    """
    verdict = evaluate(problem, plan)
    if verdict.objective_ticks is None:
        raise ValueError(f"{problem.name}: {', '.join(rules_of(verdict))}")
    return verdict.objective_ticks


def rules_of(verdict: Evaluation) -> tuple[str, ...]:
    """Return the names of the rules that a plan breaks, each once."""
    return tuple(dict.fromkeys(violation.rule for violation in verdict.violations))


def milliseconds(problem: Problem, ticks: int) -> float:
    """Return ticks of a problem as milliseconds, the unit of the artifact."""
    return MS_PER_S * Tables.of(problem).scale.time.seconds(ticks)


def cut_plan(problem: Problem, shape: Shape, cuts: Sequence[int]) -> Plan:
    """Return the plan of a shape whose stage ``k`` has the layers ``[cuts[k], cuts[k + 1])`` of the order."""
    layers, width = problem.graphs[shape.variant].layers, shape.variant.width
    last = shape.stages - 1
    stages = tuple(
        Stage(
            layers=tuple(layer.id for layer in layers[first:end]),
            first_device=(last - at) * width,
            devices=width,
            recompute=problem.choices.recompute if at < last else "none",
        )
        for at, (first, end) in enumerate(pairwise(cuts))
    )
    return Plan(shape.variant, shape.replicas, shape.stages * width, stages)


def judge_wide(path: Path) -> tuple[str, dict[str, float]]:
    """Return an input, with so many outermost groups that it has `WIDE_DEVICES`, and what its own best plan is worth.

    The plan is the optimum of preset ``artifact``, as the artifact's own run, which is not recorded, should find it.
    """
    problem = widened(read_problem(path), WIDE_DEVICES)
    optima = Optima(problem)
    plan = best_plan(optima.problem.with_preset(ARTIFACT))
    shape = Shape(plan.variant, len(plan.stages), plan.replicas)
    paper = optima.problem.with_preset(PAPER)
    return f"{path.stem} ({shape})", {
        "one unit": price(optima.problem.with_preset(ONE_UNIT), plan) / optima.one_unit,
        "best of shape": optimum_ticks(shape.only(paper)) / optima.paper,
        "judged": price(paper, plan) / optima.paper,
    }


def widened(problem: Problem, devices: int) -> Problem:
    """Return a problem with more groups at the outermost level, and so many devices."""
    cluster = problem.cluster
    inner, outer = cluster.levels[:-1], cluster.levels[-1]
    levels = (*inner, replace(outer, fanout=outer.fanout * devices // cluster.devices))
    return replace(problem, cluster=replace(cluster, devices=devices, levels=levels))


def judge_baseline(optima: Optima, name: str, given: Mapping[str, Any], recorded_ms: float | None) -> Baseline:
    """Judge a baseline with its stages in their order, and price it as the artifact does."""
    own, paper = optima.problem.with_preset(ARTIFACT), optima.problem.with_preset(PAPER)
    shape = Shape(variant_of(own, given["t"]), given["p"], given["d"])
    plan = cut_plan(own, shape, baseline_cuts(given, len(own.graphs[shape.variant])))
    verdict, turned, value = evaluate(paper, plan), reversed_ticks(own, plan), evaluate(own, plan).objective_ticks
    true = verdict.objective_ticks
    return Baseline(
        name=name,
        shape=str(shape),
        recorded_ms=recorded_ms,
        reversed_ms=None if turned is None else milliseconds(own, turned),
        reversed=None if turned is None else turned / optima.own,
        own=None if value is None else value / optima.own,
        true=None if true is None else true / optima.paper,
        rules=rules_of(verdict),
    )


def baseline_cuts(given: Mapping[str, Any], layers: int) -> list[int]:
    """Return where the artifact cuts a baseline.

    As many layers as a stage gets of the transformer's, counted from the first layer of the input, which is the
    embedding; the last stage takes what is left (`fixedConfigTimePerBatch` of the artifact).
    """
    stages, blocks = given["p"], given["num_transformer_layers"]
    each = -(-blocks // stages)
    parts = given.get("layer_partition") or [each] * stages
    starts = np.minimum(np.cumsum([0, *parts[:-1]]), blocks)
    return [*starts.tolist(), layers]


def reversed_ticks(problem: Problem, plan: Plan) -> int | None:
    """Return what the artifact says of a baseline: the last stage is taken for the first, in all but its place.

    So all stages but the first recompute, and the synchronisation is that of the last.
    """
    again = problem.choices.recompute
    stages = tuple(replace(stage, recompute=again if at else "none") for at, stage in enumerate(plan.stages))
    figures = evaluate(problem, replace(plan, stages=stages)).stages
    if not figures:
        return None
    load = max(stage.load for stage in figures)
    return iteration(load, problem.training.microbatches, plan.replicas, len(figures), figures[-1].sync)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, its first column of words."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def plan_table(rows: Sequence[Row]) -> list[str]:
    """Return the table of the artifact's plans."""
    ratios = ("`artifact`", "One unit", "`paper`", "at least", "at most", "ZeRO free")
    return markdown(("Input", "t, p, d", "Says, ms", "Judged, s", *ratios, "Breaks"), map(_plan_cells, rows))


def _plan_cells(row: Row) -> list[str]:
    plan = row.plan
    if plan is None:
        return [row.input, row.ended, *[""] * 9]
    ratios = (plan.own, plan.one_unit, plan.true, plan.least, plan.most, plan.zero)
    figures = (f"{plan.says_ms:,.2f}", f"{plan.true_s:,.3f}", *(number(ratio, ".4f") for ratio in ratios))
    return [row.input, plan.shape, *figures, ", ".join(plan.rules) or "-"]


def wide_table(wide: Sequence[tuple[str, Mapping[str, float]]]) -> list[str]:
    """Return the table of the inputs with more devices."""
    columns = ("Input (t, p, d)", "One unit", "`paper`: best of shape", "judged")
    return markdown(columns, ([name, *(f"{ratio:.4f}" for ratio in ratios.values())] for name, ratios in wide))


def baseline_table(rows: Sequence[Row]) -> list[str]:
    """Return the table of the baselines."""
    cells = ([row.input, *_baseline_cells(row.baselines)] for row in rows if row.baselines)
    return markdown(("Input", *BASELINES), cells)


def _baseline_cells(baselines: Iterable[Baseline]) -> list[str]:
    known = {baseline.name: str(baseline) for baseline in baselines}
    return [known.get(name, "") for name in BASELINES]


if __name__ == "__main__":
    main()
