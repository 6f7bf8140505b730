"""A run as a picture in characters: a row for each stage, time from left to right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from nest.report.format import duration
from nest.simulate import Event, Run
from nest.units import TimeScale

CHUNKS = "passes of all chunks of a microbatch look alike"

LEGEND = """Digits: forward, letters: backward, of microbatches that end in 0 (a) to 9 (j);
-: receives or sends, r: recomputes, +: gradients of weights, .: idle"""

_MARKS = {"receive": "-", "send": "-", "recompute": "r", "weight": "+"}

_COLUMNS_PER_LOAD = 6
"""Where a microbatch would get fewer columns on the slowest stage, only the two ends of the run are drawn."""


def timeline(run: Run, time: TimeScale, columns: int) -> Iterator[str]:
    """Yield the lines of the picture.

    Parameters
    ----------
    columns
        Of the screen; at least so many as the numbers of stages and a few more are taken.
    """
    label = len(str(len(run.starts) - 1)) + 2
    width = max(columns - label, 10)
    most = max(1, width * max(run.pipeline.loads) // _COLUMNS_PER_LOAD)
    rows = [list(events) for _, events in groupby(_on_stages(run), key=lambda event: event.stage)]
    if run.makespan <= most:
        yield from _window(rows, (0, run.makespan), width, label)
        return
    yield f"The first {duration(time.seconds(most))}:"
    yield from _window(rows, (0, most), width, label)
    yield f"The last {duration(time.seconds(most))}:"
    yield from _window(rows, (run.makespan - most, run.makespan), width, label)


def _on_stages(run: Run) -> Iterator[Event]:
    return (event for event in run.events() if event.kind not in ("activation", "gradient"))


def _window(rows: Sequence[Sequence[Event]], window: tuple[int, int], width: int, label: int) -> Iterator[str]:
    for events in rows:
        yield f"{events[0].stage:<{label}}" + _row(events, window, width)


def _row(events: Sequence[Event], window: tuple[int, int], width: int) -> str:
    """Return a character for the middle of each column."""
    first, last = window
    characters, at = [], 0
    for column in range(width):
        moment = first + (2 * column + 1) * (last - first) // (2 * width)
        while at < len(events) and events[at].end <= moment:
            at += 1
        working = at < len(events) and events[at].start <= moment
        characters.append(_mark(events[at]) if working else ".")
    return "".join(characters)


def _mark(event: Event) -> str:
    digit = event.microbatch % 10
    if event.kind == "forward":
        return str(digit)
    return _MARKS.get(event.kind, "abcdefghij"[digit])
