"""The best plans of other outer choices, as a table: what the best one is better than, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from rich.table import Table

from nest.alternatives import RunnerUp
from nest.cost.scale import scale_of
from nest.problem import Problem
from nest.report.figures import PricedPlan
from nest.report.format import count, duration, short_widths
from nest.report.layout import Column, ruled_table

UNPROVEN = "°: as far as found in the time for it; a plan of such choices may be faster"


def runners_table(best: PricedPlan, runners: Sequence[RunnerUp]) -> Table:
    """Return a row for the plan and for each other one, with what it loses."""
    columns = [Column("Rank", number=True), Column("Tensor x expert x context", folds=True, least=12)]
    columns += [Column(name, number=True) for name in ("Stages", "Replicas", "Iteration", "Loses")]
    rows = [_row("1", best, best.objective_ticks, "-")]
    for rank, each in enumerate(runners, 2):
        loses = lost(best.objective_ticks, each.objective_ticks)
        priced = PricedPlan.judged(best.problem, each.plan)
        assert priced is not None
        rows.append(_row(f"{rank}{'' if each.proven else '°'}", priced, each.objective_ticks, loses))
    return ruled_table(columns, rows, [0])


def lost(best_ticks: int, ticks: int) -> str:
    """Return by how much a plan is slower than the best one, as in ``+0.21 %``."""
    return f"{100 * (ticks - best_ticks) / best_ticks:+.2f} %" if best_ticks else "-"


def runners_document(problem: Problem, runners: Sequence[RunnerUp] | None) -> dict[str, object]:
    """Return the runners-up ready for JSON; nothing where nobody asked."""
    if runners is None:
        return {}
    seconds = scale_of(problem).time.seconds
    rows = [
        {
            **{spec.name: getattr(each.outer.variant, spec.name) for spec in fields(each.outer.variant)},
            "stages": each.outer.stages,
            "replicas": each.outer.replicas,
            "objective_ticks": each.objective_ticks,
            "iteration_s": seconds(each.objective_ticks),
            "proven": each.proven,
        }
        for each in runners
    ]
    return {"runners_up": rows}


def _row(rank: str, priced: PricedPlan, ticks: int, loses: str) -> tuple[str, ...]:
    plan = priced.plan
    counts = count(len(plan.stages)), count(plan.replicas)
    return (rank, short_widths(plan.variant), *counts, duration(priced.seconds(ticks), aligned=True), loses)
