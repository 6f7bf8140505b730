"""Time plans on devices with less memory, where only sharding lets the model fit; preset ``paper``.

    python benchmarks/reduced_memory.py [--only TEXT] [--sweep] [--limit SECONDS] [--json FILE]

First the two cases of arXiv 2603.06798: Llama 3 70B with 24 GB and BERT-large with 120 MB, on 1,024 devices (the sizes
are read in powers of 1024, as the paper's 64 GB are in its inputs). Without ZeRO neither fits; with it, BERT-large does
not either, because one layer of its input keeps 169 MB of activations, which no ZeRO divides. ``--sweep`` also cuts the
memory of five models step by step, until nothing fits, in small steps where ZeRO matters. Each case runs in a process
of its own, ended after a limit; its time is that of `nest.solve.solve`. One case alone::

    python benchmarks/reduced_memory.py --one '{"instance": "llama3-70b_tpuv4_1024", "hbm_bytes": 25769803776}'
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from measure import ROOT, Target, console, in_process, machine, number, options, table, write_json

from nest.evaluate import Evaluation, evaluate
from nest.files import apply_settings, read_problem
from nest.plan import Plan, Stage, inside_stage
from nest.presets import PAPER
from nest.problem import Problem
from nest.solve import solve

INSTANCES = ROOT / "instances"
GIB, MIB = 2**30, 2**20
FREE, NONE = "zero=any", "zero=none"

MODELS = ("bertlarge", "gpt3-175b", "llama2-7b", "llama3-70b", "mixtral-8x7b")
DEVICES = 1024
HALVINGS = 16
STEPS = 12
"""Small steps of the memory where ZeRO matters."""

SLOW_S = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """An instance whose devices have another memory, and a setting as on the command line."""

    instance: str
    hbm_bytes: int
    setting: str = FREE


@dataclass(frozen=True, slots=True)
class Summary:
    """What the tables say about a plan: the devices it uses, and how many stages use each way to shard."""

    devices: int
    stages: int
    replicas: int
    tensor: int
    shardings: str

    @classmethod
    def of(cls, plan: Plan) -> Summary:
        """Return the summary of a plan."""
        devices = plan.replicas * plan.replica_stride
        shardings = spell_shardings(plan.stages)
        return cls(devices, len(plan.stages), plan.replicas, plan.variant.tensor, shardings)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case came to; `status` says so too where its process was ended."""

    case: Case
    status: str
    seconds: float | None = None
    cpu_s: float | None = None
    objective: float | None = None
    reason: str | None = None
    plan: Summary | None = None


Pair: TypeAlias = tuple[Outcome, Outcome]
"""Of one case without ZeRO, and with ZeRO free."""


@dataclass(frozen=True, slots=True)
class Published:
    """A case of the paper, and the plan that it reports: a stage for each layer, the embedding's first.

    Attributes
    ----------
    fits
        Whether the figures of the input leave room for any plan.
    embedding, others
        ZeRO type and degree of the first stage and of all others.
    """

    instance: str
    hbm_bytes: int
    fits: bool
    replicas: int
    embedding: tuple[int, int]
    others: tuple[int, int]


PUBLISHED = (
    Published("llama3-70b_tpuv4_1024", 24 * GIB, True, 1, (0, 1), (3, 8)),
    Published("bertlarge_tpuv4_1024", 120 * MIB, False, 10, (2, 2), (3, 4)),
)


def main() -> None:
    """Measure and print."""
    arguments = parser().parse_args()
    if arguments.one is not None:
        print(json.dumps(solve_case(Case(**json.loads(arguments.one)))))
        return
    screen = console()
    screen.print(machine(), soft_wrap=True)
    published = [each for each in PUBLISHED if arguments.only in each.instance]
    pairs = [_show_published(each, arguments.limit) for each in published]
    targets = [target for each, pair in zip(published, pairs, strict=True) for target in targets_of(each, pair)]
    if arguments.sweep:
        pairs += _show_sweep([model for model in MODELS if arguments.only in model], arguments.limit)
    targets += _slowest(pairs, arguments.limit)
    for target in targets:
        screen.print(target.line(), markup=False)
    outcomes = [asdict(outcome) for pair in pairs for outcome in pair]
    write_json(arguments.json, {"machine": machine(), "outcomes": outcomes})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = options(__doc__, "models with this text in their name")
    made.add_argument("--sweep", action="store_true", help="also cut the memory of five models step by step")
    made.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="for each case (default 60)")
    made.add_argument("--one", metavar="JSON", help="solve the case that this says, and print the figures as JSON")
    return made


def problem_of(case: Case) -> Problem:
    """Return the problem of a case."""
    problem = read_problem(INSTANCES / f"{case.instance}.toml").with_preset(PAPER)
    cluster = replace(problem.cluster, hbm_bytes=case.hbm_bytes)
    return apply_settings(replace(problem, cluster=cluster), [case.setting])


def solve_case(case: Case) -> dict[str, Any]:
    """Solve a case in this process, and return its figures."""
    problem = problem_of(case)
    begin = time.process_time()
    result = solve(problem)
    return {
        "status": result.status.value,
        "seconds": result.wall_s,
        "cpu_s": time.process_time() - begin,
        "objective": result.objective_s,
        "reason": result.reason,
        "plan": asdict(Summary.of(result.plan)) if result.plan else None,
    }


def run_case(case: Case, limit_s: float) -> Outcome:
    """Solve a case in a process of its own."""
    process = in_process([sys.executable, __file__, "--one", json.dumps(asdict(case))], limit_s)
    if process.exit != 0:
        status = f"ended after {process.seconds:.0f} s" if process.killed else f"exit code {process.exit}"
        return Outcome(case, status, cpu_s=process.cpu_s)
    figures = json.loads(process.output)
    plan = figures.pop("plan")
    return Outcome(case, **figures, plan=Summary(**plan) if plan else None)


def run_pair(instance: str, hbm_bytes: int, limit_s: float) -> Pair:
    """Solve a case without ZeRO, and with ZeRO free."""
    without, free = (run_case(Case(instance, hbm_bytes, setting), limit_s) for setting in (NONE, FREE))
    return without, free


def spell_shardings(stages: Iterable[Stage]) -> str:
    """Return how many stages use each way to shard, as in ``"2 none, 79 ZeRO-3 over 8"``."""
    counts = Counter((stage.sharding.zero, stage.sharding.degree) for stage in stages)
    names = (
        f"{count} ZeRO-{zero} over {degree}" if zero else f"{count} none"
        for (zero, degree), count in sorted(counts.items())
    )
    return ", ".join(names)


def published_plan(published: Published, problem: Problem) -> Plan:
    """Return the plan that the paper reports, on the narrowest variant."""
    variant = min(problem.variants)
    layers = problem.graphs[variant].layers
    first, stages = 0, []
    for at, layer in reversed(list(enumerate(layers))):
        zero, degree = published.others if at else published.embedding
        recompute = problem.choices.recompute if at < len(layers) - 1 else "none"
        devices = variant.width * degree
        stages.append(Stage((layer.id,), first, devices, recompute, inside_stage(zero, degree)))
        first += devices
    return Plan(variant, published.replicas, first, tuple(reversed(stages)))


def judged(published: Published) -> str:
    """Return what the judge says about the plan that the paper reports."""
    problem = problem_of(Case(published.instance, published.hbm_bytes))
    plan = published_plan(published, problem)
    verdict = evaluate(problem, plan)
    used = f"{Summary.of(plan).devices} devices, {spell_shardings(plan.stages)}"
    return f"{published.instance}, the paper's plan ({used}): {_price(verdict)}, {_broken(verdict)}"


def _price(verdict: Evaluation) -> str:
    if verdict.objective_ticks is None:
        return "no price"
    return f"{verdict.scale.time.seconds(verdict.objective_ticks):,.4f} s"


def _broken(verdict: Evaluation) -> str:
    broken = Counter(violation.rule for violation in verdict.violations)
    rules = ", ".join(f"{rule} ({count} times)" for rule, count in broken.items())
    return f"breaks {rules}" if rules else "legal"


def targets_of(published: Published, pair: Pair) -> list[Target]:
    """Return the targets of a case of the paper: infeasible without ZeRO for a reason, with it a plan if any fits."""
    without, free = pair
    name = f"{published.instance}, {spell_bytes(published.hbm_bytes)}"
    explained = without.status == "infeasible" and bool(without.reason)
    right = free.status == ("optimal" if published.fits else "infeasible")
    return [
        Target(f"{name}: without ZeRO infeasible, with a reason", int(explained), 1, at_least=True),
        Target(f"{name}: with ZeRO {'a plan' if published.fits else 'infeasible'}", int(right), 1, at_least=True),
    ]


def _slowest(pairs: Sequence[Pair], limit_s: float) -> list[Target]:
    outcomes = [each for pair in pairs for each in pair]
    wall = [limit_s if each.seconds is None else each.seconds for each in outcomes]
    busy = [limit_s if each.cpu_s is None else each.cpu_s for each in outcomes]
    return [
        Target("slowest case", max(wall, default=None), SLOW_S, "s"),
        Target("slowest case, CPU", max(busy, default=None), SLOW_S, "s"),
    ]


COLUMNS = ("Model", "Memory", "Stages by sharding", "No ZeRO: s", "Seconds", "ZeRO free: s", "Seconds", "CPU s")
PLAN_COLUMNS = ("Devices", "Stages", "Replicas", "Tensor")


def _show(title: str, pairs: Iterable[Pair]) -> None:
    """Show a row for each pair: iteration times, or else the status, and how long they took to find."""
    made = table(title, (*COLUMNS, *PLAN_COLUMNS), left=3)
    for without, free in pairs:
        plan, case = free.plan, free.case
        made.add_row(
            case.instance.partition("_")[0],
            spell_bytes(case.hbm_bytes),
            plan.shardings if plan else "",
            _objective(without),
            number(without.seconds),
            _objective(free),
            number(free.seconds),
            number(free.cpu_s),
            *(map(str, (plan.devices, plan.stages, plan.replicas, plan.tensor)) if plan else ()),
        )
    console().print(made)


def _objective(outcome: Outcome) -> str:
    return outcome.status if outcome.objective is None else number(outcome.objective, ",.4f")


def spell_bytes(size: int) -> str:
    """Return a size in GiB, or in MiB where that is short."""
    return f"{size / GIB:.4g} GiB" if size >= GIB else f"{size / MIB:.4g} MiB"


def _show_published(published: Published, limit_s: float) -> Pair:
    screen = console()
    pair = run_pair(published.instance, published.hbm_bytes, limit_s)
    _show(judged(published), [pair])
    for each in pair:
        if each.reason:
            screen.print(f"{each.case.setting}: {each.reason}", markup=False)
    return pair


def _show_sweep(models: Sequence[str], limit_s: float) -> list[Pair]:
    pairs = [pair for model in models for pair in sweep(f"{model}_tpuv4_{DEVICES}", limit_s)]
    _show("Memory cut step by step", pairs)
    return pairs


def sweep(instance: str, limit_s: float) -> list[Pair]:
    """Halve the memory until nothing fits, and take small steps around where only ZeRO fits; most memory first."""
    full = int(read_problem(INSTANCES / f"{instance}.toml").cluster.hbm_bytes)
    pairs: list[Pair] = []
    for memory in (full >> halving for halving in range(HALVINGS)):
        pairs.append(run_pair(instance, memory, limit_s))
        if pairs[-1][1].status == "infeasible":
            break
    pairs += [run_pair(instance, memory, limit_s) for memory in small_steps(pairs)]
    return sorted(pairs, key=lambda pair: -pair[1].case.hbm_bytes)


def small_steps(pairs: Sequence[Pair]) -> list[int]:
    """Return sizes of memory between the least with which nothing fits and twice the least that fits without ZeRO."""
    low = pairs[-1][1].case.hbm_bytes
    high = min((without.case.hbm_bytes for without, _ in pairs if without.plan), default=low)
    return [int(memory) for memory in np.geomspace(low, 2 * high, STEPS + 2)[1:-1]]


if __name__ == "__main__":
    main()
