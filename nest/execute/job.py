"""What processes are told, and what they tell: plain data in JSON files of one directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from nest.cost.schedules import in_flight, schedule_named
from nest.errors import InvalidProblem
from nest.execute.shape import Shape
from nest.execute.tiny import Tiny

ENTRY = "nest.execute.rank:main"
"""What each process runs, as ``module:function``."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is executed.

    Parameters
    ----------
    shape, model
        How, and what.
    microbatches
        Of each replica in a step.
    steps
        Of the optimizer.
    seed
        Of weights and tokens.

    Raises
    ------
    InvalidProblem
        If a width does not divide what it cuts, or microbatches are too few for the schedule.
    """

    shape: Shape
    model: Tiny
    microbatches: int
    steps: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        shape, model = self.shape, self.model
        if model.heads % shape.tensor:
            what = f"width {shape.tensor}, and the tiny model has {model.heads} heads"
            raise InvalidProblem("tensor", what, "give a plan whose tensor width divides them")
        if shape.expert > 1 and model.experts % shape.expert:
            what = f"width {shape.expert}, and the tiny model has {model.experts} experts"
            raise InvalidProblem("expert", what, "give a model whose experts the width divides")
        cut = shape.context * (shape.tensor if shape.sequence else 1)
        if model.sequence % cut:
            what = f"width {cut}, and the tiny model has sequences of {model.sequence} tokens"
            raise InvalidProblem("context", what, "give a plan whose width divides them")
        if shape.schedule == "1f1b" and self.microbatches < len(shape.stages):
            what = f"{self.microbatches} for {len(shape.stages)} stages"
            raise InvalidProblem("microbatches", what, "1F1B in PyTorch takes at least one for each stage")

    @property
    def sequences(self) -> int:
        """Sequences of a step: each replica, and in it each expert rank, brings its own."""
        return self.shape.replicas * self.shape.expert * self.microbatches * self.shape.microbatch

    def in_flight(self, stage: int) -> int:
        """Return of how many microbatches a stage keeps activations at its peak, by the formula of the schedule."""
        shape = self.shape
        return in_flight(schedule_named(shape.schedule), len(shape.stages), stage, self.microbatches)


@dataclass(frozen=True, slots=True)
class Single:
    """What the single process found.

    Parameters
    ----------
    losses
        Of each step, before it.
    kept
        Bytes that one microbatch keeps in each layer; empty where processes hold parts of layers.
    """

    losses: tuple[float, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a process found.

    Parameters
    ----------
    losses
        Of each step, the mean over its own microbatches and tokens; empty but on the last stage.
    weights, difference
        Numbers compared with those of the single process at the end, and the largest difference.
    weight_bytes, optimizer_bytes
        Of the weights that it holds behind a forward pass, and of the optimizer's moments.
    peak_bytes, in_flight
        Most bytes that saved tensors held between forward and backward passes, and of how many microbatches.
    """

    losses: tuple[float, ...]
    weights: int
    difference: float
    weight_bytes: int
    optimizer_bytes: int
    peak_bytes: int
    in_flight: int


def write_job(job: Job, directory: Path) -> None:
    """Write what processes are told."""
    (directory / "job.json").write_bytes(msgspec.json.encode(job))


def read_job(directory: Path) -> Job:
    """Read what processes are told."""
    return msgspec.json.decode((directory / "job.json").read_bytes(), type=Job)


def write_single(single: Single, directory: Path) -> None:
    """Write what the single process found."""
    (directory / "single.json").write_bytes(msgspec.json.encode(single))


def read_single(directory: Path) -> Single:
    """Read what the single process found."""
    return msgspec.json.decode((directory / "single.json").read_bytes(), type=Single)


def write_report(report: RankReport, rank: int, directory: Path) -> None:
    """Write what a process found."""
    (directory / f"{rank}.json").write_bytes(msgspec.json.encode(report))


def read_report(rank: int, directory: Path) -> RankReport:
    """Read what a process found."""
    return msgspec.json.decode((directory / f"{rank}.json").read_bytes(), type=RankReport)
