"""A plan's shape as it ran: losses and weights beside those of one process, kept bytes beside what was predicted."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import monotonic

from nest.errors import SolverUnavailable
from nest.execute.job import ENTRY, Job, RankReport, Single, read_report, read_single, write_job
from nest.execute.launch import run_ranks
from nest.execute.predict import kept_bytes, state_bytes

TOLERANCE = 1e-5
"""By how much a loss and a weight may differ: sums of fp32 in another order."""


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """What a stage kept, in bytes on the rank that kept most.

    Parameters
    ----------
    layers
        How many.
    in_flight, in_flight_formula
        Microbatches of which something was kept at once, and as many as the schedule says.
    costing_bytes, runtime_bytes
        What a microbatch keeps: predicted by `nest.costing`, and by the software on top of that.
    single_bytes
        The same as measured in a single process; None where ranks hold parts of layers.
    peak_bytes
        Measured, of all microbatches in flight.
    weight_bytes, weight_predicted
        Of the weights behind a forward pass, measured and by `nest.costing`.
    optimizer_bytes, optimizer_predicted
        Of Adam's moments, likewise.
    """

    layers: int
    in_flight: int
    in_flight_formula: int
    costing_bytes: int
    runtime_bytes: int
    single_bytes: int | None
    peak_bytes: int
    weight_bytes: int
    weight_predicted: int
    optimizer_bytes: int
    optimizer_predicted: int

    @property
    def predicted_bytes(self) -> int:
        """The peak that formula and prediction give."""
        return self.in_flight_formula * (self.costing_bytes + self.runtime_bytes)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Parameters
    ----------
    job
        What was executed.
    losses, single_losses
        Of each step, of all processes together and of the single process.
    weights, difference
        Weights that were compared, those of every rank, and by how much one differs at most after the last step.
    stages
        What each stage kept.
    wall_s
        Seconds that it took, loading included.
    """

    job: Job
    losses: tuple[float, ...]
    single_losses: tuple[float, ...]
    weights: int
    difference: float
    stages: tuple[StageOutcome, ...]
    wall_s: float

    @property
    def loss_difference(self) -> float:
        """The largest difference of a loss."""
        return max(abs(one - other) for one, other in zip(self.losses, self.single_losses, strict=True))

    @property
    def equal(self) -> bool:
        """Whether losses and weights are those of the single process."""
        return max(self.loss_difference, self.difference) <= TOLERANCE


def execute(job: Job, timeout_s: float) -> Outcome:
    """Execute a job on processes of this machine.

    Raises
    ------
    RankFailed
        If a process ends early.
    LimitReached
        If it takes longer.
    SolverUnavailable
        If PyTorch is not installed.
    """
    _require_torch()
    started = monotonic()
    with TemporaryDirectory(prefix="nest-run-") as name:
        directory = Path(name)
        write_job(job, directory)
        run_ranks(ENTRY, job.shape.processes, directory, timeout_s)
        reports = [read_report(rank, directory) for rank in range(job.shape.processes)]
        return _outcome(job, read_single(directory), reports, monotonic() - started)


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise SolverUnavailable("torch is not installed; pip install torch")


def _outcome(job: Job, single: Single, reports: list[RankReport], wall_s: float) -> Outcome:
    last = [report.losses for report in reports if report.losses]
    each = job.shape.processes // len(job.shape.stages)
    parts = [reports[at : at + each] for at in range(0, len(reports), each)]
    stages = (_stage(job, at, single, ranks) for at, ranks in enumerate(parts))
    return Outcome(
        job,
        tuple(fmean(losses) for losses in zip(*last, strict=True)),
        single.losses,
        sum(report.weights for report in reports),
        max(report.difference for report in reports),
        tuple(stages),
        wall_s,
    )


def _stage(job: Job, at: int, single: Single, ranks: list[RankReport]) -> StageOutcome:
    shape = job.shape.stages[at]
    predicted = kept_bytes(job)[shape.first : shape.end]
    weights, moments = state_bytes(job, at)
    return StageOutcome(
        shape.end - shape.first,
        max(rank.in_flight for rank in ranks),
        job.in_flight(at),
        sum(costing for costing, _ in predicted),
        sum(besides for _, besides in predicted),
        sum(single.kept[shape.first : shape.end]) if single.kept else None,
        max(rank.peak_bytes for rank in ranks),
        max(rank.weight_bytes for rank in ranks),
        weights,
        max(rank.optimizer_bytes for rank in ranks),
        moments,
    )
