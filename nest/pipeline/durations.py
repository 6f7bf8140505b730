"""How long each pass of a stage takes, and what it consists of."""

from __future__ import annotations

from typing import Literal, TypeAlias

from nest.cost.schedules import Schedule
from nest.pipeline.orders import PassKind
from nest.pipeline.times import Pipeline

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

    Chunks share the times of their stage as equally as ticks allow. Each receives what its stage receives; the first
    stage receives from the last, and the last gradients from the first, once for every chunk but one. A pipeline of one
    stage sends nothing.

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
        self.pipeline, self.stages, self.chunks = pipeline, len(pipeline.stages), schedule.chunks
        self._apart = schedule.name == "zb-h1"
        chunks, stages = range(self.chunks), range(self.stages)
        self.parts: list[dict[PassKind, list[Parts]]] = [
            {
                "forward": [self._forward(at, chunk) for chunk in chunks],
                "backward": [self._backward(at, chunk) for chunk in chunks],
                "weight": [self._weight(at, chunk) for chunk in chunks],
            }
            for at in stages
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
        return self._transfer(kind, target) if self.pipeline.overlapped else 0

    def _forward(self, at: int, chunk: int) -> Parts:
        forward = self._share(self.pipeline.stages[at].forward, chunk)
        return (
            ("receive", self._receive("forward", at, chunk)),
            ("forward", forward),
            ("send", self._send("forward", at, chunk)),
        )

    def _backward(self, at: int, chunk: int) -> Parts:
        stage = self.pipeline.stages[at]
        own = stage.backward - stage.weight if self._apart else stage.backward
        return (
            ("receive", self._receive("backward", at, chunk)),
            ("recompute", self._share(stage.recompute, chunk)),
            ("backward", self._share(own, chunk)),
            ("send", self._send("backward", at, chunk)),
        )

    def _weight(self, at: int, chunk: int) -> Parts:
        weight = self.pipeline.stages[at].weight if self._apart else 0
        return (("weight", self._share(weight, chunk)),)

    def _share(self, ticks: int, chunk: int) -> int:
        return ticks * (chunk + 1) // self.chunks - ticks * chunk // self.chunks

    def _receive(self, kind: PassKind, at: int, chunk: int) -> int:
        return 0 if self.pipeline.overlapped else self._transfer(kind, chunk * self.stages + at)

    def _send(self, kind: PassKind, at: int, chunk: int) -> int:
        """Return for how long a stage is busy with sending what a pass has made."""
        stage, last = self.pipeline.stages[at], self.chunks * self.stages - 1
        place = chunk * self.stages + at
        if self.pipeline.overlapped or self.stages == 1 or place == (last if kind == "forward" else 0):
            return 0
        if kind == "forward":
            return stage.send if at + 1 < self.stages else self.pipeline.wrap_send
        return stage.send_gradient if at > 0 else self.pipeline.wrap_send

    def _transfer(self, kind: PassKind, target: int) -> int:
        chunk, at = divmod(target, self.stages)
        stage = self.pipeline.stages[at]
        if kind == "forward":
            neighbour, outermost, own = at > 0, chunk == 0, stage.receive
        else:
            neighbour, outermost, own = at + 1 < self.stages, chunk + 1 == self.chunks, stage.receive_gradient
        if neighbour:
            return own
        return 0 if outermost or self.stages == 1 else self.pipeline.wrap
