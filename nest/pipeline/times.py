"""What is played: how long each stage takes over its part of one microbatch."""

from __future__ import annotations

from dataclasses import dataclass, fields

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
    """

    forward: int
    backward: int
    weight: int = 0
    recompute: int = 0
    receive: int = 0
    receive_gradient: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise InvalidProblem(field.name, f"{getattr(self, field.name)} ticks", "no time is below 0")
        if self.weight > self.backward:
            raise InvalidProblem("weight", f"{self.weight} of {self.backward} ticks backward", "give a part of them")

    @property
    def forward_pass(self) -> int:
        """Ticks that the forward pass keeps the stage busy while it receives, too."""
        return self.receive + self.forward

    @property
    def backward_pass(self) -> int:
        """Ticks that the backward pass keeps the stage busy while it receives, too."""
        return self.receive_gradient + self.recompute + self.backward

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
        Whether a transfer leaves the stage that receives free for other work. Then one transfer at a time passes over
        each connection and direction; otherwise the stage is busy while it receives.
    """

    stages: tuple[StageTimes, ...]
    microbatches: int
    wrap: int = 0
    overlapped: bool = False

    def __post_init__(self) -> None:
        if not self.stages:
            raise InvalidProblem("stages", "there is none", "give at least one")
        if self.microbatches < 1:
            raise InvalidProblem("microbatches", f"{self.microbatches}", "give at least one")
        if self.wrap < 0:
            raise InvalidProblem("wrap", f"{self.wrap} ticks", "no time is below 0")
        if self.stages[0].receive or self.stages[-1].receive_gradient:
            raise InvalidProblem("receive", "the ends of the pipeline receive", "only what lies between stages is sent")

    @property
    def loads(self) -> tuple[int, ...]:
        """Load of each stage."""
        return tuple(stage.load for stage in self.stages)
