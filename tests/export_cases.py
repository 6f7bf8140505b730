"""Plans of real runs, made by hand so that nothing has to be searched."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from nest.evaluate import evaluate
from nest.export import Assignment
from nest.plan import Plan, Stage, over_replicas
from nest.problem import Choices, Problem, Recompute, Variant
from nest.runs import Run, problem_of, read_run

INSTANCES = Path(__file__).parents[1] / "instances"

CASES: dict[str, tuple[str, Variant, int, tuple[int, ...]]] = {
    "llama3-70b": (
        "llama3-70b_h100_512",
        Variant(2, context=4, sequence=True),
        16,
        (20, 41, 62, 82),
    ),
    "mixtral-8x7b": ("mixtral-8x7b_h100_256", Variant(1, expert=8), 32, (34,)),
    "deepseek-v3": (
        "deepseek-v3_h800_2048",
        Variant(1, expert=8, recompute="full"),
        16,
        (*range(3, 60, 4), 63),
    ),
    "llama3-8b": ("llama3-8b_h100_64", Variant(1, recompute="full"), 64, (34,)),
}
"""Instance, variant, replicas, and the end of each stage by block."""


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
        variant_recompute=frozenset({variant.recompute}),
    )
    run = replace(run, choices=choices)
    return run, problem_of(run).problem


def case(name: str, zero: int = 1) -> Assignment:
    """Return the plan of a case, with one ZeRO type for all stages, as the judge prices it."""
    instance, variant, replicas, ends = CASES[name]
    run, problem = posed(instance, variant)
    return judged(run, problem, plan(problem, variant, replicas, ends, zero=zero))


def plan(
    problem: Problem, variant: Variant, replicas: int, ends: tuple[int, ...], *, zero: int = 1, **more: Any
) -> Plan:
    """Return a plan whose ranks are numbered as Megatron-LM does."""
    ids = [layer.id for layer in problem.graphs[variant].layers]
    ranks = problem.copy_ranks(variant, replicas)[0]
    again: Recompute = variant.recompute
    stages = tuple(
        Stage(
            tuple(ids[first:end]),
            at * variant.width * replicas,
            variant.width,
            again,
            over_replicas(zero if ranks > 1 else 0, ranks),
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
