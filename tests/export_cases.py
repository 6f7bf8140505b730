"""Plans of real runs, made by hand so that nothing has to be searched."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from nest.evaluate import evaluate
from nest.export import Assignment
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.plan import Plan, Stage, over_replicas
from nest.problem import Choices, Problem, Recompute, Variant
from nest.runs import Run, problem_of, read_run

INSTANCES = Path(__file__).parents[1] / "instances"

CASES: dict[str, tuple[str, Variant, int, tuple[int, ...], Recompute]] = {
    "llama3-70b": (
        "llama3-70b_h100_512",
        Variant(2, context=4, sequence=True),
        16,
        (20, 41, 62, 82),
        "none",
    ),
    "mixtral-8x7b": ("mixtral-8x7b_h100_256", Variant(1, expert=8), 32, (34,), "none"),
    "deepseek-v3": (
        "deepseek-v3_h800_2048",
        Variant(1, expert=8),
        16,
        (*range(3, 60, 4), 63),
        "full",
    ),
    "llama3-8b": ("llama3-8b_h100_64", Variant(1), 64, (34,), "full"),
}
"""Instance, variant, replicas, the end of each stage by block, and what all stages recompute."""


@cache
def posed(instance: str, variant: Variant) -> tuple[Run, Problem]:
    """Return a run and its problem, with one variant only."""
    run = read_run(INSTANCES / f"{instance}.toml")
    choices = Choices(
        tensor=frozenset({variant.tensor}),
        expert=frozenset({variant.expert}),
        context=frozenset({variant.context}),
        microbatch=frozenset({variant.microbatch}),
        sequence=variant.sequence,
    )
    run = replace(run, choices=choices)
    return run, problem_of(run).problem


def case(name: str, zero: int = 1) -> Assignment:
    """Return the plan of a case, with one ZeRO type for all stages, as the judge prices it."""
    instance, variant, replicas, ends, again = CASES[name]
    run, problem = posed(instance, variant)
    return judged(run, problem, plan(problem, variant, replicas, ends, zero=zero, again=again))


def plan(
    problem: Problem,
    variant: Variant,
    replicas: int,
    ends: tuple[int, ...],
    *,
    zero: int = 1,
    again: Recompute = "none",
    layers: int | None = None,
    **more: Any,
) -> Plan:
    """Return a plan whose ranks are numbered as Megatron-LM does; stages recompute in so many layers or all."""
    ids = [layer.id for layer in problem.graphs[variant].layers]
    ranks = problem.copy_ranks(variant, replicas)[0]
    able = [layer.again(again) is not None for layer in problem.graphs[variant].layers]
    stages = tuple(
        Stage(
            tuple(ids[first:end]),
            at * variant.width * replicas,
            variant.width,
            again if any(able[first:end]) else "none",
            over_replicas(zero if ranks > 1 else 0, ranks),
            recomputed=layers if layers is not None and layers < sum(able[first:end]) else None,
        )
        for at, (first, end) in enumerate(pairwise((0, *ends)))
    )
    return replace(Plan(variant, replicas, variant.width, stages, "stage-major"), **more)


def judged(run: Run, problem: Problem, made: Plan) -> Assignment:
    """Return a legal plan with its time."""
    verdict = evaluate(problem, made)
    assert verdict.legal, verdict.violations
    assert verdict.objective_ticks is not None
    return Assignment(run, problem, made, verdict.scale.time.seconds(verdict.objective_ticks))


ONE = Variant(1)
ENDS = (9, 17, 25, 34)
"""Ends of four stages of Llama-3 8B."""

SMALL = Hyperparameters("gpt", 8, 1024, 16, vocab=51200, seq=2048)


def eight(variant: Variant, replicas: int, ends: tuple[int, ...], zero: int = 3, **more: Any) -> Assignment:
    """Return a plan of Llama-3 8B on 64 H100, whose stages recompute everything unless something else is said."""
    run, problem = posed("llama3-8b_h100_64", variant)
    return judged(run, problem, plan(problem, variant, replicas, ends, zero=zero, **{"again": "full", **more}))


def small(batch: int = 32, **choices: Any) -> tuple[Run, Problem]:
    """Return a small GPT on 16 H100."""
    run = Run(from_hyperparameters(SMALL), cluster_named("dgx-h100:16"), 2048, batch, choices=Choices(**choices))
    return run, problem_of(run).problem


def mixed(given: Assignment) -> Plan:
    """Return the plan with a stage of another ZeRO type."""
    first, second, *rest = given.plan.stages
    return replace(given.plan, stages=(first, replace(second, sharding=over_replicas(1, 16)), *rest))


def replica_major(given: Assignment) -> Plan:
    """Return the plan with the stages of a replica as neighbours."""
    stages = tuple(replace(stage, first_device=at) for at, stage in enumerate(given.plan.stages))
    return replace(given.plan, stages=stages, arrangement="replica-major", replica_stride=len(stages))
