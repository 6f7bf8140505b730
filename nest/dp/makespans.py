"""How long schedules take for many pipelines at once: longest paths, one wave of passes of all stages after the other.

`nest.pipeline` plays one pipeline event by event; this shares nothing with it but the order of passes that
`docs/simulator.md` defines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.presets import ScheduleName
from nest.units import Ints

MOST_ENDS = 2**22
"""Ends of passes that are kept at once."""

FORWARD, BACKWARD, WEIGHT = range(3)


class Played(NamedTuple):
    """Ticks for which passes keep their stages busy: a row for each pipeline, a column for each stage.

    Parameters
    ----------
    forward, backward
        Of a microbatch.
    weight
        Part of ``backward`` that takes gradients of weights, which ZB-H1 puts off.
    """

    forward: Ints
    backward: Ints
    weight: Ints


class Passes(NamedTuple):
    """Passes of one kind of different stages, none of which waits for another: the stage and microbatch of each."""

    stage: Ints
    microbatch: Ints


Wave: TypeAlias = tuple[Passes, ...]
"""Passes of each kind that wait for passes of earlier waves alone."""


def makespans(schedule: ScheduleName, played: Played, microbatches: int) -> Ints:
    """Return the ticks that each pipeline takes."""
    pipelines, stages = played.forward.shape
    step = max(1, MOST_ENDS // (stages * microbatches))
    parts = [
        _makespans(schedule, Played(*(each[at : at + step] for each in played)), microbatches)
        for at in range(0, pipelines, step)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _makespans(schedule: ScheduleName, played: Played, microbatches: int) -> Ints:
    """Return the same of pipelines so few that the ends of all passes may be kept."""
    pipelines, stages = played.forward.shape
    takes = [np.ascontiguousarray(each.T) for each in played]
    if schedule == "zb-h1":
        takes[BACKWARD] = takes[BACKWARD] - takes[WEIGHT]
    free = np.zeros((stages, pipelines), dtype=np.int64)
    there = np.zeros((2, stages, microbatches, pipelines), dtype=np.int64)  # when what a pass waits for is there
    for wave in _waves(schedule, stages, microbatches):
        for kind, (stage, microbatch) in enumerate(wave):
            if kind == WEIGHT:
                free[stage] += takes[kind][stage]
            elif len(stage):
                free[stage] = end = np.maximum(free[stage], there[kind, stage, microbatch]) + takes[kind][stage]
                target = stage + (1 if kind == FORWARD else -1)
                sent = (target >= 0) & (target < stages)
                there[kind, target[sent], microbatch[sent]] = end[sent]
    longest: Ints = free.max(axis=0)
    return longest


@lru_cache(maxsize=32)
def _waves(schedule: ScheduleName, stages: int, microbatches: int) -> tuple[Wave, ...]:
    """Return all passes of a pipeline, each in the wave after the last of those that it waits for."""
    orders = [_order(schedule, stages, at, microbatches) for at in range(stages)]
    wave_of: dict[tuple[int, int, int], int] = {}
    found: list[tuple[list[tuple[int, int]], ...]] = []
    done, own = [0] * stages, [-1] * stages
    while any(done[at] < len(orders[at]) for at in range(stages)):
        for at, order in enumerate(orders):
            while done[at] < len(order):
                kind, microbatch = order[done[at]]
                before = _waits_for(kind, at, microbatch, stages)
                if before is not None and before not in wave_of:
                    break
                wave = 1 + max(own[at], -1 if before is None else wave_of[before])
                wave_of[kind, at, microbatch] = own[at] = wave
                found.extend(([], [], []) for _ in range(wave + 1 - len(found)))
                found[wave][kind].append((at, microbatch))
                done[at] += 1
    return tuple(tuple(map(_passes, wave)) for wave in found)


def _order(schedule: ScheduleName, stages: int, at: int, microbatches: int) -> list[tuple[int, int]]:
    """Return the passes of a stage in order: of which kind, and of which microbatch."""
    ahead = microbatches if schedule == "gpipe" else min(stages - at - 1, microbatches)
    late = at if schedule == "zb-h1" else microbatches  # backward passes until gradients of weights follow
    order = [(FORWARD, each) for each in range(ahead)]
    for each in range(microbatches):
        order += [(FORWARD, ahead + each)] * (ahead + each < microbatches)
        order.append((BACKWARD, each))
        order += [(WEIGHT, each - late)] * (each >= late)
    if schedule == "zb-h1":
        order += [(WEIGHT, each) for each in range(max(0, microbatches - late), microbatches)]
    return order


def _waits_for(kind: int, at: int, microbatch: int, stages: int) -> tuple[int, int, int] | None:
    """Return the pass of a neighbour that a pass waits for; its own stage it waits for in any case."""
    neighbour = at - 1 if kind == FORWARD else at + 1
    return (kind, neighbour, microbatch) if kind != WEIGHT and 0 <= neighbour < stages else None


def _passes(found: list[tuple[int, int]]) -> Passes:
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Passes(pairs[:, 0].copy(), pairs[:, 1].copy())
