"""The pipeline over time: what the page's script draws, and the same as figures by stage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

from nest.report.format import counted, duration, percent
from nest.report.page.facts import Reported
from nest.report.page.html import Child, Html, folded, section, table, tag
from nest.simulate import Run

MOST_PASSES = 40_000
"""Of so many passes the page holds each; of more the first and the last, and the stretch between as a whole."""

_RESOLUTION = 4_000_000
"""Parts of the iteration in which times are written."""

_KINDS = ("receive", "forward", "recompute", "backward", "send", "weight")


def pipeline_section(report: Reported) -> Html:
    """Return the canvas on which the script draws, its buttons, and a table of what each stage does how long."""
    priced, run = report.priced, report.run
    makespan, sync = priced.seconds(run.makespan), priced.sync_s
    idle = percent(sum(run.idle), len(run.idle) * max(run.makespan, 1))
    count = run.schedule.chunks
    chunks = f", {counted(count, 'chunk')} a stage; after the point, the chunk" if count > 1 else ""
    after = f", {duration(sync)} for the sync after it" if sync else ""
    lead = (
        f"One replica played pass by pass ({run.schedule.name}, "
        f"{counted(run.pipeline.microbatches, 'microbatch')}{chunks}): "
        f"{duration(makespan)} for the pipeline{after}; "
        f"stages are idle for {idle} of the pipeline's time."
    )
    canvases = tag(
        "div",
        tag("canvas", class_="overview", height="40", aria_hidden="true"),
        tag(
            "canvas",
            "A chart of passes by stage over time; the table below has its figures.",
            class_="lanes",
            tabindex="0",
            role="img",
            aria_label="Pipeline over time. Arrow keys move, plus and minus zoom, 0 shows all, Home and End the ends.",
        ),
        tag("p", class_="readout", aria_live="polite"),
        class_="timeline",
    )
    return section("pipeline", "Pipeline", lead, _controls(run), canvases, _note(run), _table(report))


def timeline(run: Run) -> dict[str, Any]:
    """Return a run for the script: passes by stage, and their starts as differences.

    The ``types`` of a stage are its passes of one microbatch: kind, chunk, and what they consist of. A pass is its
    microbatch times the number of types, and the place of its type. Times count parts of the iteration; ``unit`` is
    their length in ticks. Where there are more than `MOST_PASSES`, each stage has a ``gap``: its place in the passes,
    its end, how many passes it stands for, and for how long they work.
    """
    unit = max(1, -(-run.makespan // _RESOLUTION))
    passes = sum(map(len, run.orders))
    kept = None if passes <= MOST_PASSES else MOST_PASSES // (2 * len(run.orders))
    lanes = [_lane(run, at, unit, kept) for at in range(len(run.orders))]
    return {"unit": unit, "makespan": run.makespan // unit, "chunks": run.schedule.chunks, "lanes": lanes}


def _lane(run: Run, at: int, unit: int, kept: int | None) -> dict[str, Any]:
    order, starts, parts = run.orders[at], run.starts[at], run.durations.parts[at]
    types = list(dict.fromkeys((each.kind, each.chunk) for each in order))
    lane: dict[str, Any] = {
        "types": [
            [kind, chunk, [[_KINDS.index(what), ticks / unit] for what, ticks in parts[kind][chunk] if ticks]]
            for kind, chunk in types
        ]
    }
    shown = list(range(len(order)))
    if kept is not None and 2 * kept < len(order):
        hidden = shown[kept:-kept]
        shown = shown[:kept] + shown[-kept:]
        busy = sum(run.durations.busy[at][order[each].kind][order[each].chunk] for each in hidden)
        lane["gap"] = [kept, starts[hidden[-1] + 1] // unit, len(hidden), busy // unit]
    place = {each: number for number, each in enumerate(types)}
    passes = (order[each] for each in shown)
    lane["passes"] = [each.microbatch * len(types) + place[each.kind, each.chunk] for each in passes]
    begin = [starts[each] // unit for each in shown]
    lane["starts"] = begin[:1] + [after - before for before, after in pairwise(begin)]
    return lane


def _controls(run: Run) -> Html:
    buttons = [
        tag("button", text, type="button", data_zoom=what, aria_label=label, title=label)
        for what, text, label in (
            ("in", "+", "Zoom in"),
            ("out", "\N{MINUS SIGN}", "Zoom out"),
            ("all", "All", "Show the whole iteration"),
            ("start", "Start", "Show the start"),
            ("end", "End", "Show the end"),
        )
    ]
    kinds = [kind for kind in _KINDS if kind not in ("send", "weight") or kind in _taking_time(run)]
    legend = [tag("li", tag("span", class_=f"swatch p-{kind}"), kind) for kind in (*kinds, "idle")]
    return tag("div", tag("div", *buttons, class_="buttons"), tag("ul", *legend, class_="legend"), class_="controls")


def _taking_time(run: Run) -> set[str]:
    """Return what passes consist of that takes any time."""
    by_kind = chain.from_iterable(stage.values() for stage in run.durations.parts)
    return {name for parts in chain.from_iterable(by_kind) for name, ticks in parts if ticks}


def _note(run: Run) -> Html | None:
    if sum(map(len, run.orders)) <= MOST_PASSES:
        return None
    text = "Of this many passes, the first and the last of each stage are drawn; hatched is the steady state between."
    return tag("p", text, class_="note")


def _table(report: Reported) -> Html:
    heads = ("Stage", "Works", "Waits", "Waits, share", "Microbatches held")
    return folded("As a table", table(heads, list(_rows(report)), caption="What each stage does, in one iteration"))


def _rows(report: Reported) -> Iterator[list[Child]]:
    run, seconds = report.run, report.priced.seconds
    for at, (busy, idle, held) in enumerate(zip(run.busy, run.idle, run.in_flight, strict=True)):
        waits = f"{100 * idle / max(run.makespan, 1):.1f} %"
        yield [str(at), duration(seconds(busy), aligned=True), duration(seconds(idle), aligned=True), waits, str(held)]
