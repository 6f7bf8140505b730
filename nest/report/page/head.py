"""The head of the page: what it is about, whether it is good, and the few figures that matter most."""

from __future__ import annotations

from collections.abc import Iterator

from nest.certify import Finding
from nest.report.details import line_text
from nest.report.format import count, counted, duration, percent, plan_widths, share, size
from nest.report.page.bars import LOADS, SPENT, inline, meter, spent_rows, stacked
from nest.report.page.facts import Reported
from nest.report.page.html import Child, Html, section, table, tag
from nest.report.stage_table import alike
from nest.report.terminal import terms_text


def masthead(report: Reported) -> Html:
    """Return the title, what the plan is, and its badges."""
    priced, plan = report.priced, report.priced.plan
    stages, replicas = counted(len(plan.stages), "stage"), counted(plan.replicas, "replica")
    what = f"{plan_widths(plan)}; {stages}, {replicas}; {'; '.join(alike(priced).values())}".rstrip("; ")
    devices = counted(priced.problem.cluster.devices, "device")
    cluster = f" ({priced.problem.cluster.name})" if priced.problem.cluster.name else ""
    return tag(
        "div",
        tag("h1", priced.problem.name or "Plan"),
        tag("p", f"Training plan for {devices}{cluster}, preset {priced.problem.preset.name}", class_="about"),
        tag("p", what, class_="about plan"),
        tag("p", *_badges(report), class_="badges"),
        class_="title",
    )


def tiles(report: Reported) -> Html:
    """Return the figures that matter most."""
    made = [
        tag("div", tag("dt", name), tag("dd", tag("strong", value), tag("small", *notes)), class_="tile")
        for name, value, notes in _tiles(report)
    ]
    return tag("dl", *made, class_="tiles")


def spent_section(report: Reported) -> Html:
    """Return where the iteration's time goes, and how far that is from computing alone."""
    priced = report.priced
    parts, whole = priced.spent.as_dict(), priced.objective_ticks
    seconds = {name: priced.seconds(ticks) for name, ticks in parts.items()}
    texts = {name: f"{duration(seconds[name])}, {share(ticks, whole)}" for name, ticks in parts.items()}
    label = "Parts of the iteration: " + ", ".join(
        f"{inline(SPENT[name])} {texts[name]}" for name in parts if parts[name]
    )
    at = priced.slowest[0]
    lead = (
        f"An iteration as stage {at} sees it, the slowest: its work on all microbatches, what it waits for while the "
        f"pipeline fills and drains, and the sync at the end."
    )
    rows = list(spent_rows(parts, whole, seconds))
    rows.append([tag("strong", "Iteration"), tag("strong", duration(priced.iteration_s)), tag("strong", "100 %")])
    bar = tag("div", stacked(parts, whole, SPENT, texts, label=label), _limit(report), class_="track tall")
    figures = table(("Part", "Time", "Share"), rows, caption="Where the iteration's time goes", class_="wide")
    both = tag("div", figures, tag("dl", *_binding(report), class_="binding"), class_="halves")
    return section("time", "Time of an iteration", lead, bar, both)


def _binding(report: Reported) -> Iterator[Html]:
    """Yield what sets the pace, what is left of memory and devices, and how the time comes about."""
    priced = report.priced
    at, *others = priced.slowest
    parts = priced.loads[at].as_dict()
    spent = [f"{inline(LOADS[name])} {duration(priced.seconds(ticks))}" for name, ticks in parts.items() if ticks]
    as_slow = f" and {counted(len(others), 'other')} as slow" if others else ""
    fullest, most = priced.fullest
    capacity = priced.capacity(fullest)
    left = f"{size(capacity - most)} left" if most <= capacity else f"{size(most - capacity)} too much"
    idle = priced.problem.cluster.devices - priced.devices_used
    facts = {
        "Pace": f"Stage {at}{as_slow}: {', '.join(spent) or 'no time at all'}",
        "Objective": terms_text(priced),
        "Memory": f"{left} on stage {fullest}, the fullest",
        "Devices": "all in use" if not idle else f"{counted(idle, 'device')} unused",
        **({"Line": line_text(priced)} if priced.plan.line.shifts else {}),
    }
    for name, text in facts.items():
        yield tag("dt", name)
        yield tag("dd", text)


def _limit(report: Reported) -> Html | None:
    """Return the mark of what computing alone would take."""
    priced = report.priced
    if not priced.limit_s:
        return None
    left = min(100.0, 100 * priced.limit_s / priced.iteration_s)
    devices = count(priced.problem.cluster.devices)
    text = f"compute limit {duration(priced.limit_s)}: all {devices} devices only compute layers"
    side = " left" if left > 50 else ""
    return tag("i", tag("span", text), class_=f"limit named{side}", style=f"left:{left:.2f}%")


def _badges(report: Reported) -> Iterator[Html]:
    evaluation = report.priced.evaluation
    legal = not evaluation.violations
    rules = sorted({each.rule for each in evaluation.violations})
    text = "keeps every rule" if legal else f"breaks {', '.join(rules)}"
    yield tag("span", text, class_=f"badge {'good' if legal else 'bad'}")
    if report.certificate is None:
        yield tag("span", "optimality not checked here", class_="badge plain")
        return
    optimal = f"proven optimal{report.tried.aside}"
    words = {Finding.OPTIMAL: (optimal, "good"), Finding.REFUTED: ("not the best plan", "bad")}
    text, kind = words.get(report.certificate.finding, ("optimality undecided", "plain"))
    yield tag("span", text, class_=f"badge {kind}")


def _tiles(report: Reported) -> Iterator[tuple[str, str, list[Child]]]:
    priced = report.priced
    rate = f"{priced.work.tokens / priced.iteration_s:,.0f} tokens/s" if priced.work else _terms(report)
    yield "Iteration", duration(priced.iteration_s), [rate]
    if priced.mfu is not None and priced.flops_per_device is not None:
        yield (
            "MFU",
            f"{100 * priced.mfu:.1f} %",
            [f"{priced.flops_per_device / 1e12:.0f} TFLOP/s on each device in use"],
        )
    if priced.limit_s:
        yield (
            "Compute limit",
            f"{priced.iteration_s / priced.limit_s:.2f} x",
            [f"the {duration(priced.limit_s)} that layers alone take"],
        )
    at, load = priced.slowest[0], duration(priced.load_s)
    others = f", with {counted(len(priced.slowest) - 1, 'other')}" if len(priced.slowest) > 1 else ""
    yield "Slowest stage", load, [f"stage {at}{others}, each microbatch"]
    fullest, most = priced.fullest
    capacity = priced.capacity(fullest)
    bar = meter(float(most), float(capacity), f"{percent(most, capacity)} of a device's memory")
    yield "Memory", percent(most, capacity), [f"{size(most)} of {size(capacity)}, stage {fullest}", bar]
    used, devices = priced.devices_used, priced.problem.cluster.devices
    yield "Devices", percent(used, devices), [f"{count(used)} of {count(devices)} in use"]


def _terms(report: Reported) -> str:
    microbatches = counted(report.priced.microbatches, "microbatch")
    return f"{microbatches} on each replica"
