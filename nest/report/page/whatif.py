"""What would be if: the problem's figures changed, other outer choices, what the search ruled out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nest.alternatives import Changed
from nest.plan import Plan
from nest.report.format import count, duration, short_widths
from nest.report.page.bars import meter
from nest.report.page.facts import Reported
from nest.report.page.html import Child, Html, folded, section, table, tag
from nest.report.runners import lost
from nest.result import Status

_OPEN = "not searched"

_VISIBLE = 0.01
"""Bars that are shorter than this part of the longest one are not drawn."""


def change_section(report: Reported) -> Html | None:
    """Return what other memory, bandwidth and batch would change; None where nobody computed it."""
    if not report.changed:
        return None
    searched = any(each.status is not None for each in report.changed)
    beside = ", and beside it the best plan there, as far as it was searched for" if searched else ""
    lead = (
        f"This plan judged again with one figure of the problem changed{beside}. "
        "Times are for the same number of sequences as now."
    )
    best = ("Best plan there", "This plan loses") if searched else ()
    heads = ("Change", "This plan", "Against now", *best, "Faster | slower")
    rows = [_change_row(report, each, searched=searched) for each in report.changed]
    memory = _memory_binds(report)
    return section(
        "changes",
        "Sensitivity",
        lead,
        tag("p", memory, class_="finding") if memory else None,
        _LEGEND if searched else None,
        table(heads, rows, caption="What changes of the problem are worth", class_="wide"),
        _note(any(each.status is Status.FEASIBLE for each in report.changed)),
    )


def choice_section(report: Reported) -> Html | None:
    """Return the best plans of other outer choices, and what a search did; None where nobody asked for either."""
    if report.runners is None and not report.searched:
        return None
    lead = "Each row is another choice of widths, stages and replicas, with the best plan for it."
    return section("choices", "Other choices", lead, _runners(report), _trace(report))


_LEGEND = tag(
    "ul",
    tag("li", tag("span", class_="swatch c-compute"), "this plan"),
    tag("li", tag("span", class_="swatch c-transfer"), "best plan there"),
    class_="legend",
    aria_hidden="true",
)


def _change_row(report: Reported, each: Changed, *, searched: bool) -> list[Child]:
    now = report.priced.iteration_s
    name = f"{each.change.figure} {each.change.value}".replace("-", "\N{MINUS SIGN}")
    if each.plan_s is None or each.broken:
        worth: list[Child] = [tag("span", f"breaks {', '.join(each.broken)}", class_="over"), "-"]
    else:
        against = each.plan_s / each.work / now - 1
        worth = [duration(each.plan_s / each.work, aligned=True), _signed(against) if against else "unchanged"]
    return [name, *worth, *(_best_there(each) if searched else ()), _diverging(report, each)]


def _signed(part: float) -> str:
    return f"{100 * part:+.2f} %".replace("-", "\N{MINUS SIGN}")


def _best_there(each: Changed) -> Iterator[Child]:
    if each.best_s is None:
        yield {None: _OPEN, Status.INFEASIBLE: "there is none"}.get(each.status, "none found in the time")
        yield "-"
        return
    mark = "" if each.status is Status.OPTIMAL else "°"
    if each.plan_s is None or each.broken:
        yield f"{duration(each.best_s / each.work, aligned=True)}{mark}"
        yield "-"
        return
    loses = each.plan_s / each.best_s - 1
    yield f"{duration(each.best_s / each.work, aligned=True)}{mark}" if loses else f"this one{mark}"
    yield f"{100 * loses:.2f} %" if loses else "nothing"


def _diverging(report: Reported, each: Changed) -> Html:
    """Return a bar of how much slower or faster this plan, or the best one, becomes; to the left is faster."""
    now = report.priced.iteration_s
    known = [time / other.work / now - 1 for other in report.changed for time in (other.plan_s, other.best_s) if time]
    most = max(map(abs, known), default=0.0) or 1.0
    marks = []
    for time, kind in ((None if each.broken else each.plan_s, "plan"), (each.best_s, "best")):
        if time and abs(time / each.work / now - 1) > _VISIBLE * most:
            part = (time / each.work / now - 1) / most / 2
            left, wide = (50 + 100 * min(part, 0.0)), 100 * abs(part)
            marks.append(tag("i", class_=kind, style=f"left:{left:.2f}%;width:{max(wide, 0.6):.2f}%"))
    return tag("span", *marks, class_="diverging", aria_hidden="true")


def _memory_binds(report: Reported) -> str:
    """Say whether more memory would make a faster plan possible."""
    now = report.priced.objective_ticks
    more = [each for each in report.changed if each.change.figure == "device memory" and each.change.value[0] == "+"]
    solved = [each for each in more if each.status is Status.OPTIMAL and each.best_s is not None]
    if not solved:
        return ""
    seconds = report.priced.seconds(now)
    faster = [each for each in solved if each.best_s is not None and each.best_s < seconds]
    if not faster:
        return f"Memory does not bind: with {solved[-1].change.value} of it no {report.tried.plan} is faster."
    first = faster[0]
    gained = 100 * (1 - (first.best_s or 0.0) / seconds)
    return f"Memory binds: with {first.change.value} of it the best plan is {gained:.2g} % faster."


def _runners(report: Reported) -> Html | None:
    if report.runners is None:
        return None
    priced = report.priced
    best = priced.objective_ticks
    worst = max((each.objective_ticks for each in report.runners), default=best)
    rows: list[list[Child]] = [_runner_row("1 (this plan)", priced.plan, (best, best, worst), priced.seconds)]
    for rank, each in enumerate(report.runners, 2):
        name = f"{rank}{'' if each.proven else '°'}"
        rows.append(_runner_row(name, each.plan, (each.objective_ticks, best, worst), priced.seconds))
    heads = ("Rank", "Tensor x expert x context", "Stages", "Replicas", "Iteration", "Loses", "")
    made = table(heads, rows, caption="The best plans of other outer choices", numbers_from=2, class_="wide")
    return tag("div", made, _note(any(not each.proven for each in report.runners)))


def _note(unproven: bool) -> Html | None:
    text = "° as far as found in the time for it; a faster plan may exist."
    return tag("p", text, class_="note") if unproven else None


def _runner_row(name: str, plan: Plan, ticks: tuple[int, int, int], seconds: Callable[[int], float]) -> list[Child]:
    """Return a row of a plan; ``ticks`` are its own, those of the best plan, and those of the slowest shown."""
    own, best, worst = ticks
    loses = lost(best, own) if own != best else "-"
    line = meter(own - best, max(worst - best, 1), f"loses {loses}")
    counts = count(len(plan.stages)), count(plan.replicas)
    return [name, short_widths(plan.variant), *counts, duration(seconds(own), aligned=True), loses, line]


def _trace(report: Reported) -> Html | None:
    searched, looked_at = report.searched, report.looked_at
    if not searched:
        return None
    heads = ("Widths", "Replicas", "Stages", "Bound", "Best plan", "Outcome")
    rows: list[list[Child]] = [
        [
            each.variant,
            count(each.replicas),
            count(each.stages),
            "-" if each.bound_s is None else duration(each.bound_s, aligned=True),
            "-" if each.value_s is None else duration(each.value_s, aligned=True),
            each.status,
        ]
        for each in searched
    ]
    total = max(looked_at, len(searched))
    shown = (
        ""
        if total == len(searched)
        else f"; below are the {count(len(searched))} with the least bounds or plans of their own"
    )
    others = f"all others{report.tried.aside}"
    summary = f"The search: {count(total)} outer choices came up, {others} are slower by their first bounds{shown}"
    return folded(summary, table(heads, rows, caption="What the search did with each outer choice"))
