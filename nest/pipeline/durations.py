"""How long each pass of a stage takes, and what it consists of."""

from __future__ import annotations

from typing import Literal, TypeAlias

from nest.cost.schedules import Schedule
from nest.pipeline.orders import PassKind
from nest.pipeline.times import Pipeline, StageTimes

Beside: TypeAlias = Literal["activation", "gradient"]
"""What is on its way to a stage that works on meanwhile."""

EventKind: TypeAlias = Literal[
    "receive", "forward", "recompute", "backward", "weight", "send", "activation", "gradient"
]
"""``receive`` and ``send`` keep the stage busy; activations and gradients are beside its work."""

Parts: TypeAlias = tuple[tuple[EventKind, int], ...]
"""What a pass consists of, in order, with ticks."""


class Durations:
    """Ticks of the passes of each stage and chunk.

    Where the pipeline says what each of so many chunks takes, they take that. Otherwise chunks share the times of their
    stage as equally as ticks allow, and each receives what its stage receives; the first stage receives from the last,
    and the last gradients from the first, once for every chunk but one. A pipeline of one stage sends nothing then.

    Parameters
    ----------
    pipeline, schedule
        What is played, and how.

    Attributes
    ----------
    parts
        By stage, kind of pass and chunk, what the pass consists of.
    busy
        Likewise, for how long it keeps the stage busy.
    """

    def __init__(self, pipeline: Pipeline, schedule: Schedule) -> None:
        self._overlapped, self._stages, apart = pipeline.overlapped, len(pipeline.stages), schedule.name == "zb-h1"
        known = bool(pipeline.chunks) and len(pipeline.chunks[0]) == schedule.chunks
        self._times = pipeline.chunks if known else divided(pipeline, schedule.chunks)
        self.parts: list[dict[PassKind, list[Parts]]] = [
            {
                "forward": [self._forward(each) for each in stage],
                "backward": [self._backward(each, each.weight if apart else 0) for each in stage],
                "weight": [(("weight", each.weight if apart else 0),) for each in stage],
            }
            for stage in self._times
        ]
        self.busy: list[dict[PassKind, list[int]]] = [
            {kind: [sum(ticks for _, ticks in parts) for parts in by_chunk] for kind, by_chunk in stage.items()}
            for stage in self.parts
        ]

    def beside(self, kind: PassKind, target: int) -> int:
        """Return how long the input of a pass is on its way while the stage that receives it works on.

        Parameters
        ----------
        target
            Place in the chain of chunks that receives it: chunk 0 of all stages, then chunk 1 of all stages, ...
        """
        chunk, at = divmod(target, self._stages)
        times = self._times[at][chunk]
        return (times.receive if kind == "forward" else times.receive_gradient) if self._overlapped else 0

    def _forward(self, times: StageTimes) -> Parts:
        received, sent = (0, 0) if self._overlapped else (times.receive, times.send)
        return ("receive", received), ("forward", times.forward), ("send", sent)

    def _backward(self, times: StageTimes, later: int) -> Parts:
        received, sent = (0, 0) if self._overlapped else (times.receive_gradient, times.send_gradient)
        own = times.backward - later
        return ("receive", received), ("recompute", times.recompute), ("backward", own), ("send", sent)


def divided(pipeline: Pipeline, chunks: int) -> tuple[tuple[StageTimes, ...], ...]:
    """Return what each of so many chunks of each stage takes, as equally as ticks allow."""
    if chunks == 1:
        return tuple((stage,) for stage in pipeline.stages)
    numbers = range(len(pipeline.stages))
    return tuple(tuple(_divided(pipeline, at, chunk, chunks) for chunk in range(chunks)) for at in numbers)


def _divided(pipeline: Pipeline, at: int, chunk: int, chunks: int) -> StageTimes:
    stage, last = pipeline.stages[at], len(pipeline.stages) - 1
    wrap = (pipeline.wrap, pipeline.wrap_send) if last else (0, 0)
    enters = (stage.receive, stage.send_gradient) if at else wrap if chunk else (0, 0)
    leaves = (stage.receive_gradient, stage.send) if at < last else wrap if chunk + 1 < chunks else (0, 0)
    return StageTimes(
        forward=shared(stage.forward, chunk, chunks),
        backward=shared(stage.backward, chunk, chunks),
        recompute=shared(stage.recompute, chunk, chunks),
        receive=enters[0],
        receive_gradient=leaves[0],
        send=leaves[1],
        send_gradient=enters[1],
    )


def shared(ticks: int, chunk: int, chunks: int) -> int:
    """Return the part of a chunk in ticks that chunks share as equally as they can."""
    return ticks * (chunk + 1) // chunks - ticks * chunk // chunks
