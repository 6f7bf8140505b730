"""What parts of the optimisation are worth, row by row: as text for a person, as JSON and as CSV for programs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from io import StringIO
from itertools import groupby

from nest.ablate import FULL, Outcome, Overflow, Row, Verdict, blinding_named, digest
from nest.files import plan_document
from nest.plan import Plan
from nest.problem import Problem
from nest.report.format import counted, duration, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

SCHEMA = "nest.ablation/1"

_SHOWN_STAGES = 6
"""Of the stages that do not fit so many are listed, the rest is counted."""

_PLAN_NOTE = "Plan: tensor x expert x context widths, p stages, d replicas, z ZeRO types."

_FINDING_WIDTH = 24

_FULL_FINDINGS = {True: "optimal", False: "best found, not proven optimal"}

_PLANLESS = {
    Verdict.INFEASIBLE: "sees no plan",
    Verdict.UNKNOWN: "finds no plan",
    Verdict.REFUSED: "cannot be asked",
}

_SAME = 5e-4
"""A difference that is no longer worth a figure."""


def ablation_text(problem: Problem, rows: Sequence[Row], screen: Screen) -> str:
    """Return the rows as a table, with what each blinding means and comes to below it."""
    keys = [key for key, _ in rows[0].point]
    columns = [*(Column(key, number=True) for key in keys), Column("Without"), Column("Iteration", number=True)]
    columns += [Column("Plan"), Column("Finding", folds=True, least=_FINDING_WIDTH)]
    full = [at for at, row in enumerate(rows) if row.blinding == FULL]
    table = ruled_table(columns, [tuple(_cells(row)) for row in rows], full)
    summary = Summary()
    devices = counted(problem.cluster.devices, "device")
    summary.add("Problem", f"{problem.name} on {devices}, preset {problem.preset.name}")
    summary.extend("Without", _meanings(rows))
    summary.extend("Worth", _worths(rows) if keys else ())
    summary.extend("Overflow", () if keys else _overflows(rows), "red")
    summary.extend("No plan", _reasons(rows))
    return render(screen, table, "", _PLAN_NOTE, "", summary.table)


def ablation_document(
    problem: Problem, rows: Sequence[Row], provenance: Mapping[str, str], time_limit_s: float | None = None
) -> dict[str, object]:
    """Return everything about a study as plain objects under ``nest.ablation/1``: seconds, bytes, ticks.

    Parameters
    ----------
    problem
        The full problem, before any sweep.
    provenance
        Versions of what it was computed with.
    time_limit_s
        Of each solve.
    """
    names = dict.fromkeys(row.blinding for row in rows if row.blinding != FULL)
    return {
        "schema": SCHEMA,
        "problem": problem.name,
        "problem_sha256": digest(problem),
        "preset": problem.preset.name,
        "time_unit_s": problem.time_unit_s,
        "time_limit_s": time_limit_s,
        "blindings": {name: blinding_named(name).text for name in names},
        "provenance": dict(provenance),
        "rows": [_row_document(problem, row) for row in rows],
    }


def ablation_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV: a column for each key of the sweeps, then the figures of `ablation_document`."""
    text = StringIO()
    documents = [_flat(row) for row in rows]
    writer = csv.DictWriter(text, list(documents[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(documents)
    return text.getvalue()


def finding(row: Row) -> str:
    """Return in a few words what became of a row; why there is no plan is in its outcome."""
    outcome = row.outcome
    if row.blinding == FULL:
        return _FULL_FINDINGS[outcome.proven] if outcome.verdict is Verdict.LEGAL else outcome.verdict.value
    if not row.hides:
        return "hides nothing here"
    if outcome.verdict is Verdict.LEGAL:
        return f"{_comparison(row.ratio)}{'' if outcome.proven else ', not proven to be its best'}"
    if outcome.verdict is Verdict.BROKEN:
        return _misfit(outcome.overflows) or _broken(outcome)
    return {Verdict.INFEASIBLE: "sees no plan", Verdict.UNKNOWN: "finds no plan"}.get(
        outcome.verdict, "cannot be asked"
    )


def _comparison(ratio: float | None) -> str:
    if ratio is None:
        return "legal, with no full plan beside it"
    if ratio == 1:
        return "as fast"
    if abs(ratio - 1) < _SAME:
        return f"{100 * abs(ratio - 1):.1g} % {'slower' if ratio > 1 else 'faster'}"
    digits = ".4f" if abs(ratio - 1) < 0.01 else ".3g" if ratio < 100 else ",.0f"
    return f"{ratio:{digits}} times as long"


def _misfit(overflows: Sequence[Overflow]) -> str:
    """Name the stage that fits the least."""
    if not overflows:
        return ""
    worst = max(overflows, key=lambda each: each.needed_bytes)
    others = f", and {counted(len(overflows) - 1, 'other stage')}" if len(overflows) > 1 else ""
    needed, have = size(worst.needed_bytes), size(worst.device_bytes)
    return f"does not fit: stage {worst.stage} needs {needed}, a device has {have}{others}"


def _broken(outcome: Outcome) -> str:
    rules = [f"{violation.rule}: {violation.message}" for violation in outcome.violations]
    return f"breaks {rules[0]}{f' (and {len(rules) - 1} more)' if len(rules) > 1 else ''}"


def _cells(row: Row) -> Iterator[str]:
    yield from (value for _, value in row.point)
    yield "-" if row.blinding == FULL else row.blinding
    objective, plan = row.outcome.objective, row.outcome.plan
    yield "-" if objective is None else duration(float(objective), aligned=True)
    yield "-" if plan is None else _short(plan)
    yield finding(row)


def _short(plan: Plan) -> str:
    """Return what a plan decides once, as in ``4x1x1 p8 d16 z1,3``."""
    variant = plan.variant
    parts = [f"{variant.tensor}x{variant.expert}x{variant.context}", f"p{len(plan.stages)}", f"d{plan.replicas}"]
    parts += [f"z{zero}"] if (zero := _zero(plan)) else []
    parts += ["sp"] if variant.sequence else []
    parts += [f"b{variant.microbatch}"] if variant.microbatch > 1 else []
    return " ".join(parts)


def _zero(plan: Plan) -> str:
    """Return the ZeRO types that stages take, as in ``1,3``."""
    return ",".join(str(zero) for zero in sorted({stage.sharding.zero for stage in plan.stages} - {0}))


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each reason for which some row has no plan, with the first such row."""
    known: dict[str, list[Row]] = {}
    for row in rows:
        if row.outcome.reason and (row.hides or row.blinding == FULL):
            known.setdefault(row.outcome.reason, []).append(row)
    for reason, alike in known.items():
        others = f" (and {counted(len(alike) - 1, 'other row')})" if len(alike) > 1 else ""
        yield f"{_name(alike[0])}{others}: {reason}"


def _name(row: Row) -> str:
    point = [f"{key}={value}" for key, value in row.point]
    return ", ".join([*point, row.blinding])


def _meanings(rows: Sequence[Row]) -> Iterator[str]:
    for name in dict.fromkeys(row.blinding for row in rows if row.blinding != FULL):
        yield f"{name}: {blinding_named(name).text}"


def _worths(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what each blinding comes to over the points at which it hides something."""
    blinded = sorted((row for row in rows if row.blinding != FULL), key=lambda row: row.blinding)
    worths = {name: list(group) for name, group in groupby(blinded, key=lambda row: row.blinding)}
    for name in dict.fromkeys(row.blinding for row in rows if row.blinding != FULL):
        hiding = [row for row in worths[name] if row.hides]
        yield f"{name}: {_worth(hiding) if hiding else 'hides nothing'}"


def _worth(rows: Sequence[Row]) -> str:
    ratios = sorted(row.ratio for row in rows if row.ratio is not None)
    broken = sum(row.outcome.verdict is Verdict.BROKEN for row in rows)
    none = sum(row.outcome.plan is None for row in rows)
    parts = []
    if ratios:
        ends = [f"{ratio:.4g}" for ratio in (ratios[0], ratios[-1])]
        span = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        parts.append(f"{'as fast' if ends == ['1', '1'] else f'{span} times as long'} at {len(ratios)}")
    if broken:
        parts.append(f"breaks a rule at {broken}")
    if none:
        parts.append(f"no plan at {none}")
    rest = len(rows) - len(ratios) - broken - none
    if rest:
        parts.append(f"nothing to compare with at {rest}")
    return f"{', '.join(parts)} of {counted(len(rows), 'point')}"


def _overflows(rows: Sequence[Row]) -> Iterator[str]:
    """Yield by how much each stage of a plan does not fit."""
    for row in rows:
        stages = [f"stage {each.stage} by {size(each.excess_bytes)}" for each in row.outcome.overflows]
        more = f" and {len(stages) - _SHOWN_STAGES} more" if len(stages) > _SHOWN_STAGES else ""
        if stages:
            yield f"{row.blinding}: {', '.join(stages[:_SHOWN_STAGES])}{more}"


def _row_document(problem: Problem, row: Row) -> dict[str, object]:
    outcome = row.outcome
    objective = outcome.objective
    return {
        "point": dict(row.point),
        "blinding": row.blinding,
        "hides": row.hides,
        "verdict": outcome.verdict.value,
        "proven": outcome.proven,
        "objective_s": None if objective is None else float(objective),
        "objective": None if objective is None else float(objective / Fraction(repr(problem.time_unit_s))),
        "objective_ticks": outcome.objective_ticks,
        "tick_s": None if outcome.time is None else outcome.time.tick_s,
        "ratio": row.ratio,
        "believed_s": outcome.believed_s,
        "violations": [{"rule": each.rule, "message": each.message} for each in outcome.violations],
        "overflows": [_overflow_document(each) for each in outcome.overflows],
        "reason": outcome.reason,
        "wall_s": outcome.wall_s,
        "plan": None if outcome.plan is None else plan_document(outcome.plan),
    }


def _overflow_document(overflow: Overflow) -> dict[str, object]:
    return {
        "stage": overflow.stage,
        "needed_bytes": overflow.needed_bytes,
        "device_bytes": overflow.device_bytes,
        "excess_bytes": overflow.excess_bytes,
    }


def _flat(row: Row) -> dict[str, object]:
    """Return a row for a table of values; what is not known is empty."""
    outcome, plan = row.outcome, row.outcome.plan
    worst = max(outcome.overflows, key=lambda each: each.needed_bytes, default=None)
    names = ("tensor", "expert", "context", "sequence", "microbatch")
    return {
        **dict(row.point),
        "blinding": row.blinding,
        "hides": row.hides,
        "verdict": outcome.verdict.value,
        "proven": outcome.proven,
        "objective_s": None if outcome.objective is None else float(outcome.objective),
        "ratio": row.ratio,
        "believed_s": outcome.believed_s,
        **{name: None if plan is None else getattr(plan.variant, name) for name in names},
        "stages": None if plan is None else len(plan.stages),
        "replicas": None if plan is None else plan.replicas,
        "zero": None if plan is None else _zero(plan),
        "worst_stage": None if worst is None else worst.stage,
        "worst_excess_bytes": None if worst is None else worst.excess_bytes,
        "finding": finding(row),
        "wall_s": outcome.wall_s,
    }
