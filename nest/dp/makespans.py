"""How long schedules take for many pipelines at once: longest paths, one wave of passes of all stages after the other.

`nest.pipeline` plays one pipeline event by event; this shares nothing with it but the order of passes that
`docs/simulator.md` defines.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.presets import ScheduleName
from nest.units import Ints

MOST_ENDS = 2**22
"""Ends of passes that are kept at once."""

FORWARD, BACKWARD, WEIGHT = range(3)


class Shape(NamedTuple):
    """What pipelines that are played together have in common."""

    schedule: ScheduleName
    stages: int
    microbatches: int
    chunks: int = 1

    @property
    def parts(self) -> int:
        """Parts of the model: chunk ``j`` of stage ``k`` is part ``j * S + k``."""
        return self.chunks * self.stages


class Played(NamedTuple):
    """Ticks for which passes keep their stages busy: a row for each pipeline, a column for each part of the model.

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
    """Passes of one kind of different stages, none of which waits for another: the part and microbatch of each."""

    part: Ints
    microbatch: Ints


Wave: TypeAlias = tuple[Passes, ...]
"""Passes of each kind that wait for passes of earlier waves alone."""


def makespans(shape: Shape, played: Played) -> Ints:
    """Return the ticks that each pipeline takes."""
    pipelines = len(played.forward)
    step = max(1, MOST_ENDS // (shape.parts * shape.microbatches))
    found = [_makespans(shape, Played(*(each[at : at + step] for each in played))) for at in range(0, pipelines, step)]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _makespans(shape: Shape, played: Played) -> Ints:
    """Return the same of pipelines so few that the ends of all passes may be kept."""
    pipelines, (_, stages, microbatches, _), parts = len(played.forward), shape, shape.parts
    takes = [np.ascontiguousarray(each.T) for each in played]
    if shape.schedule == "zb-h1":
        takes[BACKWARD] = takes[BACKWARD] - takes[WEIGHT]
    free = np.zeros((stages, pipelines), dtype=np.int64)
    there = np.zeros((2, parts, microbatches, pipelines), dtype=np.int64)  # when what a pass waits for is there
    for wave in _waves(shape):
        for kind, (part, microbatch) in enumerate(wave):
            stage = part % stages
            if kind == WEIGHT:
                free[stage] += takes[kind][part]
            elif len(stage):
                free[stage] = end = np.maximum(free[stage], there[kind, part, microbatch]) + takes[kind][part]
                target = part + (1 if kind == FORWARD else -1)
                sent = (target >= 0) & (target < parts)
                there[kind, target[sent], microbatch[sent]] = end[sent]
    longest: Ints = free.max(axis=0)
    return longest


@lru_cache(maxsize=32)
def _waves(shape: Shape) -> tuple[Wave, ...]:
    """Return all passes of a pipeline, each in the wave after the last of those that it waits for."""
    orders = [_order(shape, at) for at in range(shape.stages)]
    wave_of: dict[tuple[int, int, int], int] = {}
    found: list[tuple[list[tuple[int, int]], ...]] = []
    done, own = [0] * shape.stages, [-1] * shape.stages
    while any(done[at] < len(orders[at]) for at in range(shape.stages)):
        for at, order in enumerate(orders):
            while done[at] < len(order):
                kind, part, microbatch = each = order[done[at]]
                before = _waits_for(each, shape.parts)
                if before is not None and before not in wave_of:
                    break
                wave = 1 + max(own[at], -1 if before is None else wave_of[before])
                wave_of[each] = own[at] = wave
                found.extend(([], [], []) for _ in range(wave + 1 - len(found)))
                found[wave][kind].append((part, microbatch))
                done[at] += 1
    return tuple(tuple(map(_passes, wave)) for wave in found)


def _order(shape: Shape, at: int) -> list[tuple[int, int, int]]:
    """Return the passes of a stage in order: of which kind, part and microbatch."""
    if shape.chunks > 1:
        return _interleaved(shape, at)
    schedule, stages, microbatches, _ = shape
    ahead = microbatches if schedule == "gpipe" else min(stages - at - 1, microbatches)
    late = at if schedule == "zb-h1" else microbatches  # backward passes until gradients of weights follow
    order = [(FORWARD, at, each) for each in range(ahead)]
    for each in range(microbatches):
        order += [(FORWARD, at, ahead + each)] * (ahead + each < microbatches)
        order.append((BACKWARD, at, each))
        order += [(WEIGHT, at, each - late)] * (each >= late)
    if schedule == "zb-h1":
        order += [(WEIGHT, at, each) for each in range(max(0, microbatches - late), microbatches)]
    return order


def _interleaved(shape: Shape, at: int) -> list[tuple[int, int, int]]:
    """Return the order of a stage with chunks: some microbatches pass a chunk before the next has its turn."""
    _, stages, microbatches, chunks = shape
    size, ahead = turn_of(stages, microbatches), forwards_ahead(shape, at)
    turns = (range(first, min(first + size, microbatches)) for first in range(0, microbatches, size))
    steps = [(chunk, each) for turn in turns for chunk in range(chunks) for each in turn]
    forward = [(FORWARD, chunk * stages + at, microbatch) for chunk, microbatch in steps]
    backward = [(BACKWARD, (chunks - 1 - chunk) * stages + at, microbatch) for chunk, microbatch in steps]
    order = forward[:ahead]
    for each in range(len(steps)):
        order += forward[ahead + each : ahead + each + 1]
        order.append(backward[each])
    return order


def turn_of(stages: int, microbatches: int) -> int:
    """Return how many microbatches pass a chunk in a turn.

    The fewest, from as many as there are stages on, that leave none or as many as stages for the last turn.
    """
    size = min(stages, microbatches)
    while 0 < microbatches % size < stages:
        size += 1
    return size


def forwards_ahead(shape: Shape, at: int) -> int:
    """Return how many forward passes a stage with chunks takes before forward and backward ones take turns."""
    before_last = (shape.chunks - 1) * turn_of(shape.stages, shape.microbatches)
    return min(2 * (shape.stages - at - 1) + before_last, shape.chunks * shape.microbatches)


def _waits_for(each: tuple[int, int, int], parts: int) -> tuple[int, int, int] | None:
    """Return the pass of a neighbour that a pass waits for; its own stage it waits for in any case."""
    kind, part, microbatch = each
    neighbour = part - 1 if kind == FORWARD else part + 1
    return (kind, neighbour, microbatch) if kind != WEIGHT and 0 <= neighbour < parts else None


def _passes(found: Iterable[tuple[int, int]]) -> Passes:
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Passes(pairs[:, 0].copy(), pairs[:, 1].copy())
