"""What the judge finds: figures by stage, and violated rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nest.cost.scale import Scale
from nest.pipeline import StageTimes
from nest.units import Number, bytes_of


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of `docs/formulation.md` that the plan breaks, and how."""

    rule: str
    message: str


class Levels(NamedTuple):
    """Network levels that a stage of one replica pays, 0 where there is no boundary.

    Parameters
    ----------
    entry, exit
        Of the boundaries before and after the stage.
    block
        Of its own devices.
    """

    entry: int
    exit: int
    block: int


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Judged figures of one stage; times in ticks, for its slowest replica.

    Parameters
    ----------
    load
        Time one microbatch keeps the stage busy: ``forward + backward + sharding``.
    forward, backward
        The two passes: transfers, recomputation and collectives of the layers included.
    sharding
        Per-microbatch collectives of ZeRO.
    sync
        What the stage does once per iteration: gradient synchronisation over the replicas, and the optimizer's step.
    memory
        Quanta of bytes on each device.
    levels
        What the transfers and collectives of the slowest replica cross.
    step
        Of ``sync``, the optimizer's step.
    stepping
        Of ``memory``, what the step takes more than the microbatches in flight.
    gathered, scattered
        Of ``sharding``, what goes with the forward pass, and what with gradients of weights that the schedule puts off.
    classes
        Of the devices that it stands on, in whichever replica; none where the cluster has one class.
    transfer
        Of ``forward`` and ``backward``, what the chunks of an interleaved stage receive and send.
    chunks
        Of an interleaved stage, what each of its chunks takes: together its load.
    """

    load: int
    forward: int
    backward: int
    sharding: int
    sync: int
    memory: int
    levels: Levels
    step: int = 0
    stepping: int = 0
    gathered: int = 0
    scattered: int = 0
    classes: frozenset[str] = frozenset()
    transfer: int = 0
    chunks: tuple[StageTimes, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the judge found.

    Parameters
    ----------
    objective_ticks
        None where the plan is so broken that it has no price.
    stages
        Figures from the first stage on; empty where there is no price.
    violations
        Broken rules; the plan is legal if there is none.
    """

    scale: Scale
    objective_ticks: int | None
    stages: tuple[StageFigures, ...]
    violations: tuple[Violation, ...]

    @property
    def legal(self) -> bool:
        """Whether the plan breaks no rule."""
        return not self.violations

    @property
    def loads_s(self) -> list[float]:
        """Load of each stage in seconds."""
        return [self.scale.time.seconds(stage.load) for stage in self.stages]

    @property
    def memory_bytes(self) -> list[Number]:
        """Memory of each stage's devices in bytes."""
        return [bytes_of(stage.memory, self.scale.quanta_per_byte) for stage in self.stages]
