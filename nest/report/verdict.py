"""The judge's findings on a plan from a file: price, figures by stage, broken rules, claims that do not hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from nest.evaluate import Evaluation
from nest.plan import Plan
from nest.problem import Problem
from nest.report.figures import PricedPlan
from nest.report.format import level_name
from nest.report.runners import runners_document
from nest.report.shown import NOTHING_ELSE, Shown
from nest.units import RELATIVE_ERROR, Number


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that the plan's file claims, and its judged value."""

    where: str
    claimed: Number
    judged: Number


def differences(priced: PricedPlan | None, objective: Number | None = None) -> list[Difference]:
    """Return the claims that are off by more than rounding; what is not claimed, or not priced, is no difference.

    Parameters
    ----------
    objective
        Claimed objective in the problem's unit of time, where the file holds one.
    """
    if priced is None:
        return []
    claims = [] if objective is None else [Difference("objective", objective, priced.objective)]
    claims += _stage_claims(priced)
    return [claim for claim in claims if abs(claim.claimed - claim.judged) > RELATIVE_ERROR * abs(claim.judged)]


def verdict_document(
    problem: Problem,
    plan: Plan,
    evaluation: Evaluation,
    objective: Number | None = None,
    *,
    shown: Shown = NOTHING_ELSE,
) -> dict[str, object]:
    """Return everything `nest evaluate` says, ready for JSON; ``objective`` is the claimed one, as in `differences`."""
    priced = PricedPlan.of(problem, plan, evaluation, shown.work)
    return {
        "problem": problem.name,
        "preset": problem.preset.name,
        "legal": evaluation.legal,
        "objective": None if priced is None else priced.objective,
        "objective_ticks": evaluation.objective_ticks,
        "tick_s": evaluation.scale.time.tick_s,
        "violations": [asdict(violation) for violation in evaluation.violations],
        "differences": [asdict(difference) for difference in differences(priced, objective)],
        "iteration": None if priced is None else _iteration(priced),
        "stages": [] if priced is None else _stages(priced),
        "levels": [] if priced is None else _levels(priced),
        **runners_document(problem, shown.runners),
    }


def _stage_claims(priced: PricedPlan) -> Iterator[Difference]:
    judged = priced.evaluation
    figures = zip(priced.plan.stages, judged.loads_s, judged.memory_bytes, strict=True)
    for at, (stage, load_s, memory_bytes) in enumerate(figures):
        if stage.load_s is not None:
            yield Difference(f"stages[{at}].load_s", stage.load_s, load_s)
        if stage.memory_bytes is not None:
            yield Difference(f"stages[{at}].memory_bytes", stage.memory_bytes, memory_bytes)


def _iteration(priced: PricedPlan) -> dict[str, object]:
    """Return the terms of the objective and what they rest on."""
    names = ("iteration_s", "load_s", "rounds", "sync_s", "slowest", "microbatches", "devices_used", "limit_s", "mfu")
    spent = {name: priced.seconds(ticks) for name, ticks in priced.spent.as_dict().items()}
    return {name: getattr(priced, name) for name in names} | {"spent_s": spent}


def _levels(priced: PricedPlan) -> list[dict[str, object]]:
    """Return what an iteration sends over each level or one outside it, where the preset counts it."""
    cluster = priced.problem.cluster
    return [{"level": level_name(cluster, at), "crossing_bytes": sent} for at, sent in enumerate(priced.crossing)]


def _stages(priced: PricedPlan) -> list[dict[str, object]]:
    sizes, parts = priced.evaluation.memory_bytes, zip(priced.loads, priced.memory, strict=True)
    judged = zip(priced.evaluation.stages, sizes, (*priced.boundaries, None), parts, strict=True)
    return [
        {
            "load_s": priced.seconds(stage.load),
            "forward_s": priced.seconds(stage.forward),
            "backward_s": priced.seconds(stage.backward),
            "sharding_s": priced.seconds(stage.sharding),
            "sync_s": priced.seconds(stage.sync),
            "memory_bytes": memory_bytes,
            "boundary_level": level,
            **({"classes": sorted(stage.classes)} if stage.classes else {}),
            "load_parts_s": {name: priced.seconds(ticks) for name, ticks in loads.as_dict().items()},
            "memory_parts_bytes": {name: priced.bytes(quanta) for name, quanta in held.as_dict().items()},
        }
        for stage, memory_bytes, level, (loads, held) in judged
    ]
