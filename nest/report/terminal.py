"""Text for a terminal: a plan as a table with its summary below.

Every function returns the text; printing is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType

from nest.certificate import Outcome
from nest.certify import Certificate, Finding, Proof
from nest.evaluate import Evaluation, Violation
from nest.explain import Explanation
from nest.plan import Plan
from nest.problem import Problem
from nest.report.details import SPENT_NAMES, crossing_table, line_text, load_table, memory_table, spent_text
from nest.report.figures import PricedPlan
from nest.report.format import (
    count,
    counted,
    duration,
    percent,
    plan_widths,
    size,
    technologies_text,
)
from nest.report.layout import Screen, Summary, render
from nest.report.runners import UNPROVEN, runners_table
from nest.report.shown import NOTHING_ELSE, Shown
from nest.report.stage_table import alike, stage_table
from nest.report.verdict import Difference, differences
from nest.result import Result, Status
from nest.runs import EVERY_PLAN, Tried
from nest.units import Number

_UNSETTLED = "in the time for this, less than the conflict may be one, and smaller or other changes may help"

_SHOWN_LINES = 4
"""Of many findings of one kind so many are listed, the rest is counted."""

_FINDINGS = {
    Finding.UNDECIDED: "undecided: neither proven nor refuted",
    Finding.ILLEGAL: "illegal: the plan breaks a rule",
}

_FINDING_STYLES = {Finding.OPTIMAL: "green", Finding.UNDECIDED: "yellow"}

_STYLES = {Status.OPTIMAL: "green", Status.FEASIBLE: "yellow"}


def solution_text(
    problem: Problem,
    result: Result,
    screen: Screen,
    certificate: Certificate | None = None,
    explanation: Explanation | None = None,
    *,
    shown: Shown = NOTHING_ELSE,
    tried: Tried = EVERY_PLAN,
) -> str:
    """Return what a solver answered: the plan, how good it is and which provers say so, or why there is none.

    Parameters
    ----------
    tried
        How much of the space the answer is about.
    """
    summary = Summary()
    summary.add("Problem", title(problem))
    summary.add("Status", _status(result, tried), _STYLES.get(result.status, "red"))
    parts = plan_parts(PricedPlan.judged(problem, result.plan, shown.work), summary, shown)
    summary.add("Bound", _bound(result, tried))
    explain_into(summary, explanation)
    summary.add("Solver", f"{result.backend}, {duration(result.wall_s)}{_chosen(result)}")
    if certificate is not None:
        summary.extend("Proof", map(proof_text, certificate.proofs))
    return render(screen, *parts, summary.table)


def certificate_text(problem: Problem, certificate: Certificate, screen: Screen, tried: Tried = EVERY_PLAN) -> str:
    """Return what the provers found about a plan, and the plan: the better one where there is one.

    Parameters
    ----------
    tried
        As of `solution_text`.
    """
    plan = certificate.better or certificate.plan
    priced = PricedPlan.judged(problem, plan)
    summary = Summary()
    summary.add("Problem", title(problem))
    summary.add("Verdict", _finding(certificate, tried), _FINDING_STYLES.get(certificate.finding, "red"))
    parts = plan_parts(priced, summary)
    summary.extend("Broken", _broken(certificate.violations), "red")
    summary.extend("Proof", map(proof_text, certificate.proofs))
    summary.extend("Detail", (f"{proof.name}: {proof.detail}" for proof in certificate.proofs))
    return render(screen, *parts, summary.table)


def verdict_text(
    problem: Problem,
    plan: Plan,
    evaluation: Evaluation,
    screen: Screen,
    objective: Number | None = None,
    *,
    shown: Shown = NOTHING_ELSE,
) -> str:
    """Return what the judge found: the plan's figures, the rules it breaks, and the claims that do not hold.

    Parameters
    ----------
    objective
        Claimed objective in the problem's unit of time, where the file holds one.
    """
    priced = PricedPlan.of(problem, plan, evaluation, shown.work)
    summary = Summary()
    summary.add("Problem", title(problem))
    summary.add("Verdict", _verdict(evaluation), "green" if evaluation.legal else "red")
    parts = plan_parts(priced, summary, shown)
    summary.extend("Broken", _broken(evaluation.violations), "red")
    claims = [_differing(claim) for claim in differences(priced, objective)]
    summary.extend("Differs", _shortened(claims), "yellow")
    return render(screen, *parts, summary.table)


def explain_into(summary: Summary, explanation: Explanation | None) -> None:
    """Add to a summary why there is no plan, and what helps, where there is none."""
    if explanation is not None:
        summary.add("Conflict", ", ".join(explanation.conflict))
        summary.extend("Helps", (relaxation.text for relaxation in explanation.relaxations))
        summary.add("Unsettled", "" if explanation.complete else _UNSETTLED, "yellow")


def title(problem: Problem) -> str:
    """Return what a summary says of the problem: its name, devices and preset."""
    return f"{problem.name} on {counted(problem.cluster.devices, 'device')}, preset {problem.preset.name}"


def _optimal(tried: Tried) -> str:
    """Say that a plan is the best one."""
    return f"optimal: proven, no plan {tried.among} is faster"


def _status(result: Result, tried: Tried) -> str:
    why = f": {result.reason}" if result.reason else ""
    if result.status is Status.OPTIMAL:
        return _optimal(tried)
    if result.status is Status.FEASIBLE:
        return f"feasible, not proven optimal{why}"
    if result.status is Status.INFEASIBLE:
        return f"{tried.infeasible}{why}"
    if result.status is Status.NONE_BETTER:
        return f"none better{why}"
    return f"unknown, no plan found yet{why}"


def _bound(result: Result, tried: Tried) -> str:
    """Say what is proven about every plan of the space."""
    if result.bound_ticks is None:
        return ""
    text = f"{duration(result.time.seconds(result.bound_ticks))}, proven: no {tried.plan} takes less"
    if result.objective_ticks is None or result.bound_ticks <= 0:
        return text
    gap = (result.objective_ticks - result.bound_ticks) / result.bound_ticks
    return f"{text} (gap {100 * gap:.2g} %)"


def _chosen(result: Result) -> str:
    """Say why it was this solver."""
    return f": {result.choice}" if result.choice else ""


def _finding(certificate: Certificate, tried: Tried) -> str:
    """Say what a certificate says, and by how much a better plan is better."""
    old, new = certificate.objective_ticks, certificate.better_ticks
    if certificate.finding is Finding.OPTIMAL:
        return _optimal(tried)
    if certificate.finding is Finding.INFEASIBLE:
        return f"infeasible: proven, no plan {tried.among} is legal"
    if certificate.finding is not Finding.REFUTED or new is None:
        return _FINDINGS[certificate.finding]
    if old is None:
        return "refuted: the problem has the plan above"
    if new >= old:
        return "refuted: the plan above does with less"
    gained = certificate.time.seconds(old - new)
    return f"refuted: the plan above is {duration(gained)} ({100 * (old - new) / old:.3g} %) faster"


def proof_text(proof: Proof) -> str:
    """Say what one prover found, and in how much time."""
    words = {
        Outcome.PROVEN: "confirmed by",
        Outcome.REFUTED: "refuted by",
        Outcome.UNDECIDED: "not decided by",
    }
    return f"{words[proof.outcome]} {proof.name} {proof.version}, {duration(proof.wall_s)}"


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.legal:
        return "legal: the plan keeps every rule"
    rules = dict.fromkeys(violation.rule for violation in evaluation.violations)
    return f"breaks the rule{'s' if len(rules) > 1 else ''} {', '.join(rules)}"


def _broken(violations: Iterable[Violation]) -> Iterator[str]:
    """Yield a line for each broken rule, or few lines where it is broken often."""
    for _, group in groupby(sorted(violations, key=lambda each: each.rule), key=lambda each: each.rule):
        yield from _shortened([f"{violation.rule}: {violation.message}" for violation in group])


def _differing(claim: Difference) -> str:
    return f"{claim.where}: claimed {claim.claimed:.10g}, judged {claim.judged:.10g}"


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_SHOWN_LINES]
    if len(lines) > _SHOWN_LINES:
        yield f"and {len(lines) - _SHOWN_LINES} more"


def plan_parts(priced: PricedPlan | None, summary: Summary, shown: Shown = NOTHING_ELSE) -> list[RenderableType]:
    """Return the tables of a plan, and add its figures to the summary; nothing of either where there is no plan."""
    if priced is None:
        return []
    plan, problem = priced.plan, priced.problem
    summary.add("Iteration", f"{duration(priced.iteration_s)}{_own_unit(priced)}")
    summary.add("Iteration", f"= {terms_text(priced)}")
    summary.add("Spent", spent_text(priced))
    summary.add("Limit", _limit(priced))
    summary.add("MFU", _throughput(priced))
    stages, replicas = counted(len(plan.stages), "stage"), counted(plan.replicas, "replica")
    summary.add("Plan", f"{plan_widths(plan)}, {stages}{_chunks(plan)}, {replicas}")
    summary.add("Plan", "; ".join(alike(priced).values()))
    summary.add("Devices", _devices(priced))
    summary.add("Devices", line_text(priced))
    summary.add("Network", technologies_text(problem.cluster, plan))
    at, most = priced.fullest
    capacity = priced.capacity(at)
    summary.add("Memory", f"at most {size(most)} of {size(capacity)} ({percent(most, capacity)}), on stage {at}")
    summary.add("Binds", _binding(priced))
    return [*_tables(priced, shown), ""]


def _chunks(plan: Plan) -> str:
    """Say what chunks stages have, or by which schedule other than 1F1B they work."""
    if plan.chunks > 1:
        return f" of {counted(plan.chunks, 'chunk')}"
    return "" if plan.schedule == "1f1b" else f" under {plan.schedule}"


def _tables(priced: PricedPlan, shown: Shown) -> Iterator[RenderableType]:
    yield stage_table(priced)
    if shown.details:
        yield from ("", "What one microbatch keeps each stage busy with:", load_table(priced))
        yield from ("", "What each device holds:", memory_table(priced))
        if priced.crossing:
            yield from ("", "What an iteration sends over each level, or one outside it:", crossing_table(priced))
    if shown.runners is not None:
        yield from ("", "The best plans of other widths, numbers of stages and replicas:")
        yield runners_table(priced, shown.runners)
        if not all(each.proven for each in shown.runners):
            yield UNPROVEN


def _devices(priced: PricedPlan) -> str:
    """Say how many devices are in use, and how replicas stand on them."""
    plan, used, devices = priced.plan, priced.devices_used, priced.problem.cluster.devices
    idle = f", {count(priced.devices_idle)} of these idle" if priced.devices_idle else ""
    apart = f", replicas {count(plan.replica_stride)} apart" if plan.replicas > 1 else ""
    return f"{count(used)} of {count(devices)} ({percent(used, devices)}){idle}{apart}"


def _limit(priced: PricedPlan) -> str:
    """Say how far the iteration is from what the devices would take if nothing but layers took time."""
    if not priced.limit_s:
        return ""
    devices = counted(priced.problem.cluster.devices, "device")
    times = priced.iteration_s / priced.limit_s
    return f"{duration(priced.limit_s)} if {devices} only computed layers: the iteration takes {times:.3g} times that"


def _throughput(priced: PricedPlan) -> str:
    """Say what the devices that the plan uses compute, and their share of the peak."""
    if priced.work is None or priced.mfu is None or priced.flops_per_device is None:
        return ""
    rate = f"{100 * priced.mfu:.1f} %: {priced.flops_per_device / 1e12:.1f} TFLOP/s on each device in use"
    return f"{rate}; {priced.work.tokens / priced.iteration_s:,.0f} tokens/s"


def _own_unit(priced: PricedPlan) -> str:
    unit = priced.problem.time_unit_s
    return "" if unit == 1 else f" ({priced.objective:.10g} in the input's unit of {duration(unit)})"


def terms_text(priced: PricedPlan) -> str:
    """Return the sum that makes the iteration, in words."""
    sync = f" + {duration(priced.sync_s)} sync" if priced.sync_s else ""
    if priced.problem.preset.objective == "sum":
        if priced.plan.chunks > 1:
            filling, each = priced.once_s - priced.load_s, counted(priced.microbatches, "microbatch")
            return f"{duration(priced.load_s)} x {each} + {duration(filling)} of filling{sync}"
        further = counted(priced.rounds, "further microbatch")
        return f"{duration(priced.once_s)} for the first microbatch + {duration(priced.load_s)} x {further}{sync}"
    microbatches, fill = counted(priced.microbatches, "microbatch"), len(priced.plan.stages) - 1
    if priced.problem.preset.objective == "simulated":
        return f"{duration(priced.load_s)} x {microbatches} + {duration(priced.once_s)} of waiting{sync}"
    return f"{duration(priced.load_s)} x ({microbatches} + {fill} to fill){sync}"


def _binding(priced: PricedPlan) -> str:
    """Name the slowest stage and what its time goes to."""
    at, *others = priced.slowest
    parts = priced.loads[at].as_dict()
    spent = [f"{SPENT_NAMES[name]} {duration(priced.seconds(ticks))}" for name, ticks in parts.items() if ticks]
    as_slow = f" (* with {counted(len(others), 'other')})" if others else " (*)"
    return f"stage {at}{as_slow}: {', '.join(spent) or 'no time at all'}"
