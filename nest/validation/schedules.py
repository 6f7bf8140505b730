"""Published bubbles and memory of pipeline schedules, beside those of `nest.cost`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nest.cost.schedules import Schedule, bubble, in_flight, schedule_named
from nest.validation.fact import Fact, left_out
from nest.validation.figures import read_figures

PIPELINES = ((4, 16), (8, 32), (8, 64))
"""Stages and microbatches for which shares are compared."""

PASS = 3
"""Ticks of a pass: any number that rounding leaves alone."""


def schedules() -> tuple[Fact, ...]:
    """Return idle shares and activations of the schedules that we have, and a line for each of the others."""
    return tuple(fact for row in read_figures("schedules")[1] for fact in _facts(row))


def _facts(row: Mapping[str, str]) -> Iterator[Fact]:
    if not row["ours"]:
        why = "not in our space: no plan splits a layer's backward pass so"
        yield left_out(f"bubble over that of 1F1B: {row['schedule']}", why, float(row["bubble"]))
        yield left_out(f"activations over those of 1F1B: {row['schedule']}", why, float(row["memory"]))
        return
    schedule = schedule_named(row["ours"])
    for stages, microbatches in PIPELINES:
        name = f"{row['schedule']}, {stages} stages, {microbatches} microbatches"
        published = float(row["bubble"]) * (stages - 1) / (microbatches + stages - 1)
        yield Fact(name, "bubble", "time", "1", published, _idle(schedule, stages, microbatches))
        kept = in_flight(schedule, stages, 0, microbatches) / in_flight(Schedule("1f1b"), stages, 0, microbatches)
        yield Fact(name, "activations of the first stage", "memory", "1", float(row["memory"]), kept)


def _idle(schedule: Schedule, stages: int, microbatches: int) -> float:
    """Return the idle time of a stage over the time of an iteration of 1F1B."""
    weight = PASS if schedule.name == "zb-h1" else 0
    idle = bubble(schedule, stages, microbatches, forward=PASS, backward=2 * PASS, weight=weight)
    return idle / ((microbatches + stages - 1) * 3 * PASS)
