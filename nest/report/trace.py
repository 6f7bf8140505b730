"""A run in the format of traces that Perfetto and Chrome show: JSON, one event a bar."""

from __future__ import annotations

import json
from collections.abc import Iterator

from nest.simulate import Event, Run
from nest.units import TimeScale

_LETTERS = {"forward": "F", "backward": "B", "weight": "W", "recompute": "R"}


def trace_text(run: Run, time: TimeScale) -> str:
    """Return the JSON of a trace, times in microseconds: a thread for each stage, and for what is sent to it.

    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes the format.
    """
    lines = [json.dumps(event) for event in (*_names(run), *_bars(run, time))]
    return '{"displayTimeUnit": "ms", "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"


def _names(run: Run) -> Iterator[dict[str, object]]:
    for at in range(len(run.starts)):
        for thread, name in enumerate((f"stage {at}", f"activations to stage {at}", f"gradients to stage {at}")):
            if thread == 0 or run.transfers:
                yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": 3 * at + thread, "args": {"name": name}}


def _bars(run: Run, time: TimeScale) -> Iterator[dict[str, object]]:
    for event in run.events():
        yield {
            "name": f"{_LETTERS.get(event.kind, event.kind)} {event.microbatch}",
            "cat": event.kind,
            "ph": "X",
            "pid": 0,
            "tid": 3 * event.stage + _thread(event),
            "ts": time.seconds(event.start) * 1e6,
            "dur": time.seconds(event.end - event.start) * 1e6,
            "args": {"stage": event.stage, "microbatch": event.microbatch, "chunk": event.chunk},
        }


def _thread(event: Event) -> int:
    return {"activation": 1, "gradient": 2}.get(event.kind, 0)
