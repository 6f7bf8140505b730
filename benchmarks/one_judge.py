"""Plans by rules of other planners and of practice, and the proven optimum, priced by one judge; preset ``default``.

    python benchmarks/one_judge.py [--only TEXT] [--json FILE]

Each rule is a few lines below and says what it stands for. These are not the programs of those planners: a plan here is
one *by the rule of* a planner, made with our costs and priced by our judge, so that only the rule differs from the
optimum. Runs are those of `instances/`; `usual_layouts.py` has layouts that were published for single models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import gcd
from typing import Any

from freed_choices import all_again
from measure import ROOT, Target, console, geometric_mean, machine, options, table, write_json
from run_figures import plan_of as spelled

from nest.constraints import EqualStages
from nest.costing import Layout
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.plan import Plan
from nest.problem import Choices, Problem, Recompute, Variant
from nest.result import Result, Status
from nest.runs import Given, Run, contenders, is_run, problem_of, read_run
from nest.solve import solve

INSTANCES = ROOT / "instances"
NODE = 8
ONE = frozenset({1})
BOUNDLESS = 2**60
CHUNK = 16
"""Stages that layer-uniform pipelines of models with odd numbers of layers are made for, by lighter ends."""

KINDS: tuple[Recompute, ...] = ("none", "full")


@dataclass(frozen=True, slots=True)
class Judged:
    """What a rule comes to on a run: its time and its plan, or why there is none."""

    rule: str
    seconds: float | None
    plan: str


@dataclass(frozen=True, slots=True)
class Row:
    """A run, its optimum and the rules."""

    name: str
    best_s: float
    best_plan: str
    judged: tuple[Judged, ...]


@dataclass(frozen=True)
class Case:
    """A run, and its problem of the usual context widths and microbatches, which have the plans of the rules."""

    run: Run
    problem: Problem

    @property
    def batch(self) -> int:
        """Sequences of an iteration."""
        return self.run.global_batch

    @property
    def experts(self) -> int:
        """Widest expert width within a node."""
        return max(variant.expert for variant in self.problem.graphs if variant.expert <= NODE)

    @property
    def layers(self) -> tuple[int, ...]:
        """Ids of the layers that repeat: all but the ends."""
        graph = next(iter(self.problem.graphs.values()))
        return tuple(int(layer.id) for layer in graph.layers if layer.recomputed)

    def variant(self, tensor: int, context: int = 1, expert: int = 1) -> Variant | None:
        """Return the variant of one sequence with these widths, the sequence shared, if there is one."""
        for sequence in (True, False):
            made = Variant(tensor, expert, context, sequence, 1)
            if made in self.problem.graphs:
                return made
        return None

    def alone(self, variant: Variant) -> Problem:
        """Return the problem with one variant only."""
        return replace(self.problem, graphs={variant: self.problem.graphs[variant]})

    def best(self, choices: Choices, change: Callable[[Problem], Problem]) -> Result:
        """Return the optimum under choices of a variant, whatever its width and microbatch, after a change."""
        return solve(change(contenders(replace(self.run, choices=choices), change=change).problem))

    def planned(
        self, variant: Variant | None, stages: int, replicas: int, zero: int, recompute: Recompute
    ) -> tuple[float, Plan] | None:
        """Return seconds and plan of equal stages, the same on each; None where there is none, or it does not fit."""
        if variant is None or replicas < 1 or stages > len(self.layers):
            return None
        layout = Layout(self.batch, replicas, stages, zero=zero, recompute=recompute)
        problem = self.alone(variant)
        try:
            run = self.run
            plan = Given(run.model, run.hardware, run.setting(variant), layout, run.recipe, run.profile).plan
        except InvalidProblem:
            return None
        verdict = evaluate(problem, plan)
        if not verdict.legal or verdict.objective_ticks is None:
            return None
        return verdict.scale.time.seconds(verdict.objective_ticks), plan


def megatron(case: Case) -> Judged:
    """Follow Megatron-LM's advice (arXiv 2104.04473, takeaways 1 to 3, and its guide).

    As little model parallel as fits: tensor parallel first, up to a node, then pipeline stages with equally many
    layers, replicas for the rest; optimizer sharded, one sequence a microbatch; computed again only if nothing fits.
    """
    devices = case.problem.cluster.devices
    shapes = [(tensor, 1) for tensor in (1, 2, 4, NODE)]
    shapes += [(NODE, 2**power) for power in range(1, len(case.layers).bit_length())]
    for recompute in KINDS:
        for tensor, stages in shapes:
            replicas = devices // (tensor * stages * case.experts)
            if replicas <= max(case.batch // case.experts, 1):
                found = case.planned(case.variant(tensor, 1, case.experts), stages, replicas, 1, recompute)
                if found:
                    return Judged("Megatron-LM's advice", found[0], spelled(found[1]))
    return Judged("Megatron-LM's advice", None, "nothing fits")


def fsdp(case: Case) -> Judged:
    """Shard everything over all devices (ZeRO-3, FSDP), no tensor parallel and no pipeline.

    The sequence is cut where there are more devices than sequences; computed again if nothing fits without.
    """
    context = 1
    while case.problem.cluster.devices // context > case.batch:
        context *= 2
    replicas = case.problem.cluster.devices // context
    for recompute in KINDS:
        found = case.planned(case.variant(1, context), 1, replicas, 3, recompute)
        if found:
            return Judged("all ZeRO-3", found[0], spelled(found[1]))
    return Judged("all ZeRO-3", None, "does not fit, or there is no such context width")


def equal_cost(case: Case) -> Judged:
    """Balance the stages by time without looking at memory, as Alpa's inter-operator pass cuts (arXiv 2201.12023).

    Widths, stages, cuts and replicas are the fastest were memory boundless, microbatches of one sequence, no ZeRO;
    with everything computed again where that does not fit.
    """
    boundless = replace(case.problem, cluster=replace(case.problem.cluster, hbm_bytes=BOUNDLESS))
    rule = "equal cost, no memory"
    chosen, plans = Choices(microbatch=ONE, context=ONE, zero=frozenset({0}), stage_recompute=frozenset({"none"})), []
    for flagged in (_plain, all_again):
        plan = solve(replace(flagged(boundless), choices=chosen)).plan
        if plan is None:
            continue
        plans.append(plan)
        verdict = evaluate(flagged(case.problem), plan)
        if verdict.legal and verdict.objective_ticks is not None:
            return Judged(rule, verdict.scale.time.seconds(verdict.objective_ticks), spelled(plan))
    return Judged(rule, None, " and ".join(f"{spelled(plan)} does not fit" for plan in plans))


def layer_uniform(case: Case) -> Judged:
    """Give all layers the same strategy and all stages equally many, and take the best of the grid.

    That is the space of planners that enumerate uniform plans, as Galvatron's baseline (arXiv 2211.13878) and Metis on
    equal devices (ATC 2024): widths, stages, replicas, microbatch, one type of ZeRO, one recomputation. Ends may be
    lighter where the number of layers divides badly.
    """
    if case.problem.branches:
        return Judged("layer-uniform grid", None, "asks for a chain")
    best: tuple[float, Plan] | None = None
    for rule in _equal(case.layers):
        for zero in (0, 1, 3):
            for flagged in (_plain, all_again):
                chosen = {"zero": frozenset({zero}), "stage_recompute": frozenset({"none"})}
                result = case.best(Choices(context=ONE), partial(_uniform, flagged, rule, chosen))
                if result.plan and result.objective_s and (best is None or result.objective_s < best[0]):
                    best = result.objective_s, result.plan
    return Judged("layer-uniform grid", *((best[0], spelled(best[1])) if best else (None, "nothing fits")))


def _uniform(
    flagged: Callable[[Problem], Problem], rule: EqualStages, chosen: Mapping[str, Any], problem: Problem
) -> Problem:
    return replace(flagged(problem).with_choices(**chosen), constraints=(rule,))


def _plain(problem: Problem) -> Problem:
    return problem


def _equal(layers: Sequence[int]) -> Iterator[EqualStages]:
    """Yield constraints for equal stages, also with lighter ends where the layers divide badly."""
    yield EqualStages(counting=layers)
    missing = -len(layers) % CHUNK
    if gcd(len(layers), CHUNK) < CHUNK and missing <= NODE // 2:
        yield EqualStages(missing // 2, missing - missing // 2, layers)


RULES: tuple[Callable[[Case], Judged], ...] = (megatron, fsdp, equal_cost, layer_uniform)


def main() -> None:
    """Solve, judge and print."""
    arguments = options(__doc__, "runs with this text in their name").parse_args()
    screen = console()
    screen.print(machine(), soft_wrap=True)
    rows = []
    for path in sorted(INSTANCES.glob("*.toml")):
        if arguments.only in path.stem and is_run(path):
            rows.append(row_of(read_run(path)))
            screen.print(line(rows[-1]), markup=False, soft_wrap=True)
    show(rows)
    least = min((ratio for row in rows for ratio in ratios(row) if ratio), default=None)
    screen.print(Target("smallest ratio", least, 1, at_least=True).line(), markup=False)
    write_json(arguments.json, {"machine": machine(), "rows": [asdict(row) for row in rows]})


def row_of(run: Run) -> Row:
    """Solve a run, and judge the plans of all rules on it."""
    case = Case(run, problem_of(run).problem)
    best = case.best(Choices(), _plain)
    if best.status is not Status.OPTIMAL or best.plan is None or best.objective_s is None:
        raise InvalidProblem(run.name, f"{best.status.value}: {best.reason}", "give a run that has an optimum")
    return Row(run.name, best.objective_s, spelled(best.plan), tuple(rule(case) for rule in RULES))


def ratios(row: Row) -> list[float | None]:
    """Return the times of the rules over the optimum."""
    return [each.seconds / row.best_s if each.seconds else None for each in row.judged]


def line(row: Row) -> str:
    """Return the plans of a run."""
    plans = "; ".join(f"{each.rule}: {each.plan}" for each in row.judged)
    return f"{row.name}: optimum {row.best_s:.5g} s, {row.best_plan}; {plans}"


def show(rows: Sequence[Row]) -> None:
    """Show the ratios, and their geometric means over the runs on which a rule has a plan."""
    rules = [each.rule for each in rows[0].judged] if rows else []
    made = table("Iteration of a plan by a rule over the optimum", ("Run", "Optimum s", *rules))
    for row in rows:
        made.add_row(row.name, f"{row.best_s:.4g}", *(_spelled(ratio) for ratio in ratios(row)))
    columns = zip(*(ratios(row) for row in rows), strict=True)
    means = (geometric_mean([ratio for ratio in column if ratio]) for column in columns)
    made.add_row("geometric mean", "", *map(_spelled, means))
    console().print(made)


def _spelled(ratio: float | None) -> str:
    return "no plan" if ratio is None else f"{ratio:.3f}"


if __name__ == "__main__":
    main()
