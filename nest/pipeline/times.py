"""What is played: how long each stage takes over its part of one microbatch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import chain

from nest.errors import InvalidProblem


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Ticks that one microbatch takes on a stage; what is rounded was rounded before.

    Parameters
    ----------
    forward, backward
        The two passes, transfers and recomputation apart.
    weight
        Part of ``backward`` that takes gradients of weights, for which no other stage waits.
    recompute
        Before the backward pass.
    receive, receive_gradient
        Transfers from the stage before and from the stage after; none for the first and the last stage.
    send, send_gradient
        Transfers to the stage after and to the stage before, where they keep the stage busy as well.
    """

    forward: int
    backward: int
    weight: int = 0
    recompute: int = 0
    receive: int = 0
    receive_gradient: int = 0
    send: int = 0
    send_gradient: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise InvalidProblem(field.name, f"{getattr(self, field.name)} ticks", "no time is below 0")
        if self.weight > self.backward:
            raise InvalidProblem("weight", f"{self.weight} of {self.backward} ticks backward", "give a part of them")

    @property
    def forward_pass(self) -> int:
        """Ticks that the forward pass keeps the stage busy, with what it receives and sends."""
        return self.receive + self.forward + self.send

    @property
    def backward_pass(self) -> int:
        """Ticks that the backward pass keeps the stage busy, with what it receives and sends."""
        return self.receive_gradient + self.recompute + self.backward + self.send_gradient

    @property
    def transfers(self) -> int:
        """Ticks that the stage is busy with what it receives and sends."""
        return self.receive + self.receive_gradient + self.send + self.send_gradient

    @property
    def load(self) -> int:
        """Ticks that one microbatch keeps the stage busy."""
        return self.forward_pass + self.backward_pass


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages and the microbatches that go through them.

    Parameters
    ----------
    stages
        From the first of the pipeline on.
    microbatches
        Of one replica.
    wrap
        Ticks of a transfer between the last stage and the first, which only chunks need.
    overlapped
        Whether a transfer leaves both ends free for other work. Then one transfer at a time passes over each connection
        and direction; otherwise a stage is busy while it receives, and while it sends if that takes it any time.
    wrap_send
        For how long the transfer that only chunks need keeps the stage busy that sends it.
    chunks
        Of a plan whose stages have chunks, what each chunk of each stage takes: together what the stage takes. What is
        sent is between these, and part of the two passes of the stages.
    """

    stages: tuple[StageTimes, ...]
    microbatches: int
    wrap: int = 0
    overlapped: bool = False
    wrap_send: int = 0
    chunks: tuple[tuple[StageTimes, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.stages:
            raise InvalidProblem("stages", "there is none", "give at least one")
        if self.microbatches < 1:
            raise InvalidProblem("microbatches", f"{self.microbatches}", "give at least one")
        if self.wrap < 0 or self.wrap_send < 0:
            raise InvalidProblem("wrap", f"{min(self.wrap, self.wrap_send)} ticks", "no time is below 0")
        if self.stages[0].receive or self.stages[-1].receive_gradient:
            raise InvalidProblem("receive", "the ends of the pipeline receive", "only what lies between stages is sent")
        if self.stages[-1].send or self.stages[0].send_gradient:
            raise InvalidProblem("send", "the ends of the pipeline send", "only what lies between stages is sent")
        if self.chunks:
            self._check_chunks()

    def _check_chunks(self) -> None:
        both = [(stage.forward_pass, stage.backward_pass) for stage in self.stages]
        sums = [(sum(one.forward_pass for one in each), sum(one.backward_pass for one in each)) for each in self.chunks]
        if (
            sums != both
            or len({len(each) for each in self.chunks}) > 1
            or any(one.weight for one in chain(*self.chunks))
        ):
            what = "chunks do not take what their stages take"
            raise InvalidProblem("chunks", what, "give equally many of each stage, no gradients of weights apart")

    @property
    def loads(self) -> tuple[int, ...]:
        """Load of each stage."""
        return tuple(stage.load for stage in self.stages)
