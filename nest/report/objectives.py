"""Answers to other objectives than time: as text for a person, a front also as CSV for programs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO

from nest.certificate import Outcome
from nest.certify import Proof
from nest.explain import Explanation
from nest.objectives import CertifiedLeast, Frontier, Least, Point, PriceFrontier, PricePoint, amount_text, seconds_text
from nest.report.figures import PricedPlan
from nest.report.format import count, counted, duration, short_widths, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table
from nest.report.terminal import explain_into, plan_parts, proof_text, title
from nest.result import Status
from nest.runs import EVERY_PLAN, Tried

_STYLES = {Status.OPTIMAL: "green", Status.FEASIBLE: "yellow"}

_WIDTHS_NOTE = "Widths: tensor x expert x context. Device time: of an iteration, all devices."


def least_text(
    least: Least,
    screen: Screen,
    proofs: Sequence[Proof] = (),
    explanation: Explanation | None = None,
    *,
    tried: Tried = EVERY_PLAN,
) -> str:
    """Return the plan with the least of a quantity, what is proven about it, or why there is none.

    Parameters
    ----------
    tried
        How much of the space the answer is about.
    """
    result, problem = least.result, least.amounts.problem
    summary = Summary()
    summary.add("Problem", title(problem))
    what = "the fewest devices" if least.quantity == "devices" else "the least memory on each device"
    summary.add("Asked for", f"{what}, an iteration taking at most {seconds_text(least.time_at_most_s)}")
    summary.add("Status", _status(least, tried), _STYLES.get(result.status, "red"))
    parts = plan_parts(PricedPlan.judged(problem, result.plan), summary)
    explain_into(summary, explanation)
    summary.extend("Proven", (claim.text for claim in least.claims()))
    chosen = f": {result.choice}" if result.choice else ""
    summary.add("Solver", f"{result.backend}, {duration(result.wall_s)}{chosen}")
    summary.extend("Proof", map(proof_text, proofs))
    return render(screen, *parts, summary.table)


def least_lines(least: CertifiedLeast) -> Iterator[str]:
    """Yield which plans a certificate about the least of something is about, and whether less would do."""
    yield f"{'Among':<11}{least.among}; --time-only asks about all"
    if least.less is not None:
        said = {Outcome.PROVEN: "proven", Outcome.REFUTED: "wrong"}.get(least.less.outcome, "undecided")
        yield f"{'Less':<11}{said}: {least.claim}"


def least_facts(least: CertifiedLeast) -> dict[str, object]:
    """Return the same, ready for JSON."""
    outcome = None if least.less is None else least.less.outcome.value
    return {"among": least.among, "less": {"claim": least.claim, "outcome": outcome}}


def frontier_text(
    frontier: Frontier,
    screen: Screen,
    proofs: Sequence[Proof] = (),
    explanation: Explanation | None = None,
    *,
    tried: Tried = EVERY_PLAN,
) -> str:
    """Return a front as a table, a point a row, with what is proven below it; ``tried`` as of `least_text`."""
    problem, points = frontier.problem, frontier.points
    summary = Summary()
    summary.add("Problem", title(problem))
    style = "red" if not points else "green" if frontier.complete else "yellow"
    summary.add("Status", _frontier_status(frontier, tried), style)
    explain_into(summary, explanation)
    summary.add("Solver", f"dp, {duration(frontier.wall_s)}")
    summary.extend("Proof", _proofs(frontier, proofs))
    if not points:
        return render(screen, summary.table)
    columns = [Column("Devices", number=True), Column("Iteration", number=True), Column("Device time", number=True)]
    columns += [Column("Memory", number=True), Column("Widths"), Column("Stages", number=True)]
    columns += [Column("Replicas", number=True), Column("ZeRO")]
    table = ruled_table(columns, [_cells(frontier, point) for point in points])
    return render(screen, table, "", _WIDTHS_NOTE, "", summary.table)


def price_frontier_text(
    frontier: PriceFrontier,
    screen: Screen,
    explanation: Explanation | None = None,
    *,
    tried: Tried = EVERY_PLAN,
) -> str:
    """Return a front of price and time as a table, a point a row; ``tried`` as of `least_text`."""
    problem, points, summary = frontier.problem, frontier.points, Summary()
    summary.add("Problem", title(problem))
    why = f": {frontier.reason}" if frontier.reason else ""
    complete = f"complete: {counted(len(points), 'point')}, each optimal{tried.aside}"
    done = complete if points else f"{tried.infeasible}{why}"
    style = "red" if not points else "green" if frontier.complete else "yellow"
    summary.add("Status", done if frontier.complete else f"the fastest points only{why}", style)
    explain_into(summary, explanation)
    summary.add("Solver", f"dp, {duration(frontier.wall_s)}")
    if not points:
        return render(screen, summary.table)
    columns = [Column("Price", number=True), Column("Iteration", number=True), Column("Network"), Column("Widths")]
    columns += [Column("Stages", number=True), Column("Replicas", number=True)]
    rows = [_priced_cells(frontier, point) for point in points]
    return render(screen, ruled_table(columns, rows), "", summary.table)


def _priced_cells(frontier: PriceFrontier, point: PricePoint) -> list[str]:
    plan = point.plan
    price, seconds = f"{float(point.price):,.10g}", duration(frontier.time.seconds(point.ticks), aligned=True)
    shape = [short_widths(plan.variant), count(len(plan.stages)), count(plan.replicas)]
    return [price, seconds, ", ".join(plan.technologies), *shape]


def frontier_csv(frontier: Frontier) -> str:
    """Return a front as CSV, a point a row: devices, seconds, bytes, and what the plan decides once."""
    text = StringIO()
    names = ("tensor", "expert", "context", "sequence", "microbatch")
    figures = ("devices", "objective_s", "objective_ticks", "device_s", "memory_bytes", "proven")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*figures, *names, "stages", "replicas", "zero"])
    for point in frontier.points:
        seconds, plan = frontier.time.seconds(point.ticks), point.plan
        row = [point.devices, seconds, point.ticks, point.devices * seconds, point.memory_bytes, point.proven]
        row += [getattr(plan.variant, name) for name in names]
        writer.writerow([*row, len(plan.stages), plan.replicas, _zero(point)])
    return text.getvalue()


def _status(least: Least, tried: Tried) -> str:
    """Say how good the plan is, or why there is none."""
    result = least.result
    less = "fewer devices" if least.quantity == "devices" else "less memory"
    if result.status is Status.OPTIMAL:
        return f"optimal: proven, no {least.plans} with {less} keeps the time, none with as {_much(least)} is faster"
    why = f": {result.reason}" if result.reason else ""
    if least.proven:
        return f"feasible: proven, no {least.plans} with {less} keeps the time; a faster one may exist{why}"
    if result.status is Status.FEASIBLE:
        sizes = "" if least.size_below is None else f", {amount_text(least.quantity, least.size_below)} are too few"
        return f"feasible, not proven the least{sizes}{why}"
    return f"{tried.infeasible if result.status is Status.INFEASIBLE else result.status.value}{why}"


def _much(least: Least) -> str:
    return "many" if least.quantity == "devices" else "much"


def _frontier_status(frontier: Frontier, tried: Tried) -> str:
    """Say whether points are missing, and what is proven of those that are there."""
    points, why = frontier.points, f": {frontier.reason}" if frontier.reason else ""
    if frontier.complete and points:
        proven = f"no {frontier.plans} is faster without more devices, or has fewer without being slower"
        return f"complete: proven, {proven}"
    if frontier.complete:
        return f"{tried.infeasible}{why}"
    if not points:
        return f"unknown, no point found yet{why}"
    rest = "" if points[0].proven else f"; with {points[0].devices} devices, fewer may be as fast"
    return f"from {count(frontier.settled_from)} devices on{rest}{why}"


def _proofs(frontier: Frontier, proofs: Sequence[Proof]) -> Iterator[str]:
    """Yield how many claims the checker confirmed, and those that it could not decide."""
    if proofs:
        confirmed, wall_s = [proof.outcome is Outcome.PROVEN for proof in proofs], sum(proof.wall_s for proof in proofs)
        name = f"{proofs[0].name} {proofs[0].version}"
        yield f"{sum(confirmed)} of {counted(len(proofs), 'claim')} confirmed by {name}, {duration(wall_s)}"
        undecided = zip(frontier.claims(), confirmed, strict=True)
        yield from (f"not decided: {claim.text}" for claim, holds in undecided if not holds)


def _cells(frontier: Frontier, point: Point) -> list[str]:
    seconds, plan = frontier.time.seconds(point.ticks), point.plan
    return [
        count(point.devices),
        duration(seconds, aligned=True),
        _device_time(point.devices * seconds),
        size(point.memory_bytes, aligned=True),
        short_widths(plan.variant),
        count(len(plan.stages)),
        count(plan.replicas),
        _zero(point) or "-",
    ]


def _device_time(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else duration(seconds, aligned=True)


def _zero(point: Point) -> str:
    """Return the ZeRO types that stages take, as in ``1,3``."""
    return ",".join(str(zero) for zero in sorted({stage.sharding.zero for stage in point.plan.stages} - {0}))
