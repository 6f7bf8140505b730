"""How long 1F1B takes for many pipelines at once: longest paths, one wave of passes of all stages after the other.

`nest.pipeline` plays one pipeline event by event; this shares nothing with it but the order of passes that
`docs/simulator.md` defines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.units import Ints

MOST_ENDS = 2**22
"""Ends of passes that are kept at once."""


class Passes(NamedTuple):
    """Passes of one kind of different stages, none of which waits for another: the stage and microbatch of each."""

    stage: Ints
    microbatch: Ints


Wave: TypeAlias = tuple[Passes, Passes]
"""Forward and backward passes that wait for passes of earlier waves alone."""


def makespans(forward: Ints, backward: Ints, microbatches: int) -> Ints:
    """Return the ticks that each pipeline takes.

    Parameters
    ----------
    forward, backward
        Ticks for which a pass keeps its stage busy: a row for each pipeline, a column for each stage.
    """
    pipelines, stages = forward.shape
    step = max(1, MOST_ENDS // (stages * microbatches))
    parts = [
        _makespans(forward[at : at + step], backward[at : at + step], microbatches) for at in range(0, pipelines, step)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _makespans(forward: Ints, backward: Ints, microbatches: int) -> Ints:
    """Return the same of pipelines so few that the ends of all passes may be kept."""
    pipelines, stages = forward.shape
    ahead, back = np.ascontiguousarray(forward.T), np.ascontiguousarray(backward.T)
    free = np.zeros((stages, pipelines), dtype=np.int64)
    activation = np.zeros((stages, microbatches, pipelines), dtype=np.int64)  # when it is there, by stage
    gradient = np.zeros((stages, microbatches, pipelines), dtype=np.int64)
    for first, second in _waves(stages, microbatches):
        for (stage, microbatch), there, takes, there_next, step in (
            (first, activation, ahead, activation, 1),
            (second, gradient, back, gradient, -1),
        ):
            if len(stage):
                end = np.maximum(free[stage], there[stage, microbatch]) + takes[stage]
                free[stage] = end
                sent = (stage + step >= 0) & (stage + step < stages)
                there_next[stage[sent] + step, microbatch[sent]] = end[sent]
    return free[0]


@lru_cache(maxsize=32)
def _waves(stages: int, microbatches: int) -> tuple[Wave, ...]:
    """Return all passes of a pipeline, each in the wave after the last of those that it waits for."""
    orders = [_order(stages - at - 1, microbatches) for at in range(stages)]
    wave_of: dict[tuple[bool, int, int], int] = {}
    found: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]] = []
    done, own = [0] * stages, [-1] * stages
    while any(done[at] < 2 * microbatches for at in range(stages)):
        for at, order in enumerate(orders):
            while done[at] < len(order):
                back, microbatch = order[done[at]]
                before = _waits_for(back, at, microbatch, stages)
                if before is not None and before not in wave_of:
                    break
                wave = 1 + max(own[at], -1 if before is None else wave_of[before])
                wave_of[back, at, microbatch] = own[at] = wave
                found.extend(([], []) for _ in range(wave + 1 - len(found)))
                found[wave][back].append((at, microbatch))
                done[at] += 1
    return tuple((_passes(first), _passes(second)) for first, second in found)


def _order(later: int, microbatches: int) -> list[tuple[bool, int]]:
    """Return the passes of a stage before so many others, in order: whether it is backward, and of which microbatch."""
    ahead = min(later, microbatches)
    order = [(False, each) for each in range(ahead)]
    for each in range(microbatches):
        order += [(False, ahead + each)] * (ahead + each < microbatches) + [(True, each)]
    return order


def _waits_for(back: bool, at: int, microbatch: int, stages: int) -> tuple[bool, int, int] | None:
    """Return the pass of a neighbour that a pass waits for; its own stage it waits for in any case."""
    neighbour = at + 1 if back else at - 1
    return (back, neighbour, microbatch) if 0 <= neighbour < stages else None


def _passes(found: list[tuple[int, int]]) -> Passes:
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Passes(pairs[:, 0].copy(), pairs[:, 1].copy())
