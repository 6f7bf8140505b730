"""The order in which a stage takes its passes, by schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from nest.cost.schedules import Schedule, waves
from nest.presets import ScheduleName

PassKind: TypeAlias = Literal["forward", "backward", "weight"]


class Pass(NamedTuple):
    """What a stage does without a break: a pass of one of its chunks over one microbatch."""

    kind: PassKind
    chunk: int
    microbatch: int


def passes(schedule: Schedule, stages: int, at: int, microbatches: int) -> list[Pass]:
    """Return the passes of a stage in the order in which it takes them, whenever it can."""
    if schedule.name == "interleaved":
        return in_waves(schedule.chunks, stages, at, waves(microbatches, stages))
    forward = [Pass("forward", 0, each) for each in range(microbatches)]
    backward = [Pass("backward", 0, each) for each in range(microbatches)]
    if schedule.name == "gpipe":
        return forward + backward
    ahead = min(microbatches, stages - at - 1)
    return _alternating(forward, backward, ahead, delay=at if schedule.name == "zb-h1" else None)


def passes_of(name: ScheduleName, chunks: int, stages: int, microbatches: int) -> list[list[Pass]]:
    """Return the passes of all stages of a schedule that is given by its name, each in the order of `passes`."""
    return [passes(Schedule(name, chunks), stages, at, microbatches) for at in range(stages)]


def _alternating(forward: list[Pass], backward: list[Pass], ahead: int, delay: int | None = None) -> list[Pass]:
    """Return ``ahead`` forward passes, then backward and forward ones in turn.

    With a ``delay`` weight gradients are apart, and follow the backward pass that is so many microbatches further.
    ZB-H1 delays by the stages before this one, so that all stages keep as many microbatches as the first.
    """
    order = forward[:ahead]
    for place, each in enumerate(backward):
        order += forward[ahead + place : ahead + place + 1]
        order.append(each)
        if delay is not None and place >= delay:
            order.append(Pass("weight", 0, place - delay))
    if delay is not None:
        order += [Pass("weight", 0, late) for late in range(max(0, len(backward) - delay), len(backward))]
    return order


def in_waves(chunks: int, stages: int, at: int, sizes: Sequence[int]) -> list[Pass]:
    """Return the order of Megatron-LM: each wave passes through a chunk of all stages, then through the next chunk.

    Parameters
    ----------
    sizes
        How many microbatches each wave has.
    """
    forward: list[Pass] = []
    backward: list[Pass] = []
    first = 0
    for size in sizes:
        wave = range(first, first + size)
        forward += [Pass("forward", chunk, each) for chunk in range(chunks) for each in wave]
        backward += [Pass("backward", chunk, each) for chunk in reversed(range(chunks)) for each in wave]
        first += size
    ahead = 2 * (stages - at - 1) + (chunks - 1) * sizes[0]
    return _alternating(forward, backward, min(ahead, len(forward)))
