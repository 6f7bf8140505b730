"""Plays the first stages of many pipelines at once, pass by pass, as if those behind them took no more than a delay.

The order of passes is that of `nest.pipeline`, by which the judge plays a plan. An iteration takes as long as the
longest path through its passes. If the stages behind the first ``k`` only hold each microbatch up for as long as it
needs to pass them and to come back, whatever others they have, no path gets longer: what is played then is a bound of
all pipelines that begin so, and with ``k = S`` what the pipeline takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from nest.cost.schedules import Schedule
from nest.pipeline.orders import passes
from nest.units import Ints

Kind: TypeAlias = Literal["forward", "backward", "weight"]


class Shape(NamedTuple):
    """What pipelines that are played together have in common."""

    schedule: Schedule
    stages: int
    microbatches: int


class Passes(NamedTuple):
    """Ticks of the passes: a row for each part, chunk 0 of all stages first, and a column for each pipeline.

    ``weight`` is what is put off of the backward pass, and no part of ``backward``.
    """

    forward: Ints
    backward: Ints
    weight: Ints


def taken(shape: Shape, ticks: Passes, delay: Ints | None = None) -> Ints:
    """Return when the last pass of each pipeline ends.

    Parameters
    ----------
    ticks
        Of all parts, or of those of the first stages, where stages have one part each.
    delay
        For each pipeline, how long the stages behind these hold a microbatch up at least.
    """
    parts, last = len(ticks.forward), len(ticks.forward) - 1
    free = [np.zeros(ticks.forward.shape[1], dtype=np.int64) for _ in range(shape.stages)]
    sent: dict[tuple[Kind, int, int], Ints] = {}
    for at, kind, part, microbatch in _order(shape, parts):
        start = free[at]
        if kind == "forward" and part:
            start = np.maximum(start, sent.pop(("forward", part, microbatch)))
        elif kind == "backward" and (part < last or delay is not None):
            start = np.maximum(start, sent.pop(("backward", part, microbatch)))
        free[at] = end = start + getattr(ticks, kind)[part]
        if kind == "forward" and part < last:
            sent["forward", part + 1, microbatch] = end
        elif kind == "forward" and delay is not None:
            sent["backward", part, microbatch] = end + delay
        elif kind == "backward" and part:
            sent["backward", part - 1, microbatch] = end
    ends: Ints = np.maximum.reduce(free)
    return ends


Turn: TypeAlias = tuple[int, Kind, int, int]
"""A stage, and a pass that it takes: its kind, part and microbatch."""


@lru_cache(maxsize=64)
def _order(shape: Shape, parts: int) -> tuple[Turn, ...]:
    """Return the passes of the first parts, each behind all that it waits for."""
    return tuple(_turns(shape, parts))


def _turns(shape: Shape, parts: int) -> Iterator[Turn]:
    stages = min(shape.stages, parts)
    orders = [passes(shape.schedule, shape.stages, at, shape.microbatches) for at in range(stages)]
    done, there = [0] * stages, set[tuple[Kind, int, int]]()
    while any(done[at] < len(orders[at]) for at in range(stages)):
        for at in range(stages):
            while done[at] < len(orders[at]):
                kind, chunk, microbatch = orders[at][done[at]]
                part = chunk * shape.stages + at
                neighbour = part - 1 if kind == "forward" else part + 1
                if kind != "weight" and 0 <= neighbour < parts and (kind, neighbour, microbatch) not in there:
                    break
                there.add((kind, part, microbatch))
                done[at] += 1
                yield at, kind, part, microbatch
