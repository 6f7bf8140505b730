"""Closed formulas of pipeline schedules: bubble, microbatches in flight, lower and upper bounds; times in ticks.

``S`` stages, ``m`` microbatches of a replica, ``v`` chunks. Sources: GPipe, Huang et al. 2018 (arXiv 1811.06965); 1F1B
and interleaved 1F1B, Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; ZB-H1, Qi et al. 2023 (arXiv 2401.10241),
section 2.1. `nest.simulate` plays the same schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from nest.errors import InvalidProblem
from nest.presets import SCHEDULES, ScheduleName


@dataclass(frozen=True, slots=True)
class Schedule:
    """In which order the stages of a pipeline take their passes.

    Parameters
    ----------
    name
        ``gpipe``: all forward passes, then all backward ones. ``1f1b``: as few forward passes ahead as keep the next
        stages busy, then one backward pass after each forward one. ``interleaved``: the same, each stage having
        ``chunks`` parts of the model. ``zb-h1``: 1F1B in which gradients of weights wait until nobody waits for them.
    chunks
        Parts of the model on each stage, 1 unless interleaved.

    Raises
    ------
    InvalidProblem
        If name and chunks do not go together.
    """

    name: ScheduleName
    chunks: int = 1

    def __post_init__(self) -> None:
        if self.chunks < 1 or (self.chunks > 1) != (self.name == "interleaved"):
            raise InvalidProblem(
                "chunks", f"{self.chunks} with {self.name}", "2 or more with interleaved, 1 with every other schedule"
            )


def schedule_named(name: str, chunks: int = 1) -> Schedule:
    """Return a schedule by its name.

    Raises
    ------
    InvalidProblem
        If there is none of that name, or it has other chunks.
    """
    for known in SCHEDULES:
        if name == known:
            return Schedule(known, chunks)
    raise InvalidProblem("schedule", f"{name!r} is no schedule", f"choose one of {', '.join(SCHEDULES)}")


def wave_size(microbatches: int, stages: int) -> int:
    """Return how many microbatches go through a chunk before the next chunk has its turn (interleaved 1F1B).

    ``S`` where ``m`` is a multiple of ``S``, as in Narayanan et al. Otherwise the least size from ``S`` on that leaves
    none, or ``S`` at least, for the last wave: in one of fewer than ``S`` stages would wait for each other in a circle.
    So does Megatron-Core (``--microbatch-group-size-per-virtual-pipeline-stage``). Fewer microbatches than stages are
    one wave.
    """
    if microbatches < stages:
        return microbatches
    return next(size for size in range(stages, microbatches + 1) if not 0 < microbatches % size < stages)


def waves(microbatches: int, stages: int) -> tuple[int, ...]:
    """Return the sizes of all waves: `wave_size`, and what is left for the last."""
    size = wave_size(microbatches, stages)
    last = microbatches % size
    return (size,) * (microbatches // size) + ((last,) if last else ())


def bubble(schedule: Schedule, stages: int, microbatches: int, *, forward: int, backward: int, weight: int = 0) -> int:
    """Return how long each stage idles in an iteration if all stages take the same and transfers take no time.

    ``(S - 1) * (forward + backward)`` for GPipe and 1F1B, a ``v``-th of it for interleaved 1F1B with ``m >= S``; with
    fewer microbatches each chunk waits for all stages: ``S * load + (m - 1) * load / v - m * load``. ZB-H1, with ``B``
    for gradients of inputs and ``W`` for those of weights: ``(S - 1) * (F + B) - (min(m, S) - 1) * min(F, B, W)``,
    which for ``m >= S`` and ``W <= F, B`` is the published ``(S - 1) * (F + B - W)``.

    Parameters
    ----------
    forward, backward
        Of one microbatch on a stage; multiples of the chunks.
    weight
        Part of ``backward`` that takes gradients of weights.
    """
    load = forward + backward
    if schedule.name == "zb-h1":
        inputs = backward - weight
        return (stages - 1) * (forward + inputs) - (min(microbatches, stages) - 1) * min(forward, inputs, weight)
    if schedule.name == "interleaved" and microbatches < stages:
        return (stages - microbatches) * load + (microbatches - 1) * load // schedule.chunks
    return (stages - 1) * load // schedule.chunks


def in_flight(schedule: Schedule, stages: int, at: int, microbatches: int) -> int:
    """Return the most microbatches of which a stage keeps something, or of which its chunks do, added up.

    ``m`` for GPipe and ``min(m, S - at)`` for 1F1B. ZB-H1 counts until the gradients of weights: ``min(m, S)`` on every
    stage, as many as the first has under 1F1B. Interleaved: ``2 * (S - at - 1) + (v - 1) * w + 1`` of ``m * v``, where
    ``w`` is the size of the `waves`; with ``w = S`` the first stage keeps ``1 + (S - 1) / (S * v)`` times as much as
    under 1F1B (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2).
    """
    if schedule.name == "gpipe":
        return microbatches
    if schedule.name == "1f1b":
        return min(microbatches, stages - at)
    if schedule.name == "zb-h1":
        return min(microbatches, stages)
    ahead = 2 * (stages - at - 1) + (schedule.chunks - 1) * wave_size(microbatches, stages)
    return min(microbatches * schedule.chunks, ahead + 1)


def least_by_load(loads: Sequence[int], microbatches: int) -> int:
    """Return a lower bound on 1F1B: ``max over i of (sum of loads before i + m * load of i)``.

    The stages before ``i`` take their forward passes of the first microbatch before it starts, and their backward
    passes of the last one after it has ended.
    """
    before = accumulate(loads, initial=0)
    return max(sooner + microbatches * load for sooner, load in zip(before, loads, strict=False))


def least_by_wait(forwards: Sequence[int], loads: Sequence[int], microbatches: int) -> int:
    """Return a tighter lower bound on 1F1B, which counts the wait of a stage for its first gradient.

    Until the first microbatch has been through all later stages and back, stage ``i`` has ``min(m, S - i) - 1`` forward
    passes to do, and no more.
    """
    before, total, stages, best = 0, sum(loads), len(loads), 0
    for at, (forward, load) in enumerate(zip(forwards, loads, strict=True)):
        wait = total - before - load - (min(microbatches, stages - at) - 1) * forward
        best = max(best, before + microbatches * load + max(0, wait))
        before += load
    return best
