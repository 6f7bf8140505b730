"""What is said of a plan that is given: seconds and bytes, by component."""

from __future__ import annotations

from dataclasses import dataclass

from nest.units import Number


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds for which one microbatch keeps a stage busy.

    Parameters
    ----------
    forward, backward
        Computation, collectives, and what is left of exchanges between the holders of weights.
    repeated
        What is computed again.
    transfer
        From its neighbours.
    exposed
        Of these, collectives and exchanges that nothing hides.
    """

    forward: float
    backward: float
    repeated: float
    transfer: float
    exposed: float

    @property
    def load(self) -> float:
        """All of it."""
        return self.forward + self.backward + self.repeated + self.transfer


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes on each device of a stage.

    Parameters
    ----------
    weights, gradients, optimizer
        By the recipe, as sharded; what the stage gathers and holds for the iteration, too.
    activations
        Kept by the microbatches in flight.
    working
        In use for a moment at the peak of a backward pass: gradients of activations, what is computed again, gathered
        weights; less what of the activations is free by then.
    stepping
        What the optimizer's step takes more than the two, which are gone by then.
    reserve
        Of the framework and of communication.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    stepping: int = 0
    reserve: int = 0

    @property
    def state(self) -> int:
        """Weights, gradients and optimizer state."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """The peak, reserve included."""
        return self.state + self.activations + self.working + self.stepping + self.reserve


@dataclass(frozen=True, slots=True)
class Estimate:
    """An iteration.

    Parameters
    ----------
    iteration_s
        Its time.
    pipeline_s, sync_s, step_s
        Passes of all microbatches; what is left of exchanging gradients and weights, and the optimizer's step, of the
        stage where both take the longest.
    stages
        Times by stage.
    memory
        Memory by stage.
    model_flops
        Of the iteration, by the convention of `nest.costing.flops`; 0 where only the times of layers are known.
    counts
        How many devices work; of several classes how many of each, the cluster's own first.
    capacities
        Memory of the devices on which each stage stands.
    notes
        What its schedule asks for that the plan does not keep; the price is that of the plan as it is.
    classes
        Of the devices on which each stage stands; empty where all are of one class.
    """

    iteration_s: float
    pipeline_s: float
    sync_s: float
    step_s: float
    stages: tuple[StageTime, ...]
    memory: tuple[StageMemory, ...]
    model_flops: int
    counts: tuple[int, ...]
    capacities: tuple[Number, ...]
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """How many work."""
        return sum(self.counts)

    @property
    def flops_per_device(self) -> float:
        """Model FLOP/s of each device."""
        return self.model_flops / self.iteration_s / self.devices

    @property
    def room_bytes(self) -> int:
        """Bytes that the fullest device has left: up to so much more reserve the plan fits."""
        return min(int(held) - each.total for held, each in zip(self.capacities, self.memory, strict=True))

    @property
    def peak_bytes(self) -> int:
        """Memory of the fullest device."""
        return max(memory.total for memory in self.memory)
