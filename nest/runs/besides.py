"""What software does that the space of preset `default` does not have, on top of what the judge says.

State on the host, buffers of everything that crosses boundaries, and recomputation of the last layers of a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from operator import mul

from nest.cost.schedules import Schedule, in_flight
from nest.graph import Layer, Recomputed
from nest.hardware import Device
from nest.pipeline import Flight
from nest.runs.figures import StageMemory
from nest.units import Number


def boundary_bytes(schedule: Schedule, stages: int, at: int, microbatches: int, ends: tuple[int, int]) -> int:
    """Return what buffers of a stage hold of every microbatch and chunk until the iteration ends.

    These are what it has sent, the gradients of that which it receives, and the activations that it receives, but for
    those in flight, which count among what layers keep. The last stage holds what its last layer makes, too.

    Parameters
    ----------
    stages, at
        Of the pipeline, and which of them.
    ends
        Bytes of one microbatch that enter the stage, and that its last layer makes.
    """
    chunks, (before, behind) = schedule.chunks, ends
    flying = in_flight(schedule, stages, at, microbatches)
    received = max(microbatches * (chunks if at else chunks - 1) - flying, 0) * before
    if at + 1 == stages:
        return received + microbatches * (2 * (chunks - 1) * before + behind)
    return received + 2 * microbatches * chunks * behind


def offloaded_memory(memory: StageMemory, share: float) -> StageMemory:
    """Return the memory of a stage with a share of its optimizer state in the memory of the host."""
    return replace(memory, optimizer=ceil(memory.optimizer * (1 - share)))


@dataclass(frozen=True)
class Passing:
    """Layers of a stage, and what is kept of them while their backward passes go on.

    Parameters
    ----------
    layers
        Of all chunks, one after the other.
    parts
        How many layers each chunk has.
    flights
        The moments at which the most is kept.
    """

    layers: Sequence[Layer]
    parts: Sequence[int]
    flights: Sequence[Flight]

    def most(self, again: Sequence[Recomputed | None]) -> Number:
        """Return the bytes at the worst moment of a backward pass, where layers compute this again."""
        held, ends = [each or layer for layer, each in zip(self.layers, again, strict=True)], accumulate(self.parts)
        chunks = [held[end - count : end] for end, count in zip(ends, self.parts, strict=True)]
        whole = [sum(each.activation_bytes for each in chunk) for chunk in chunks]
        peaks = [_peak(chunk) for chunk in chunks]
        most: Number = max(sum(map(mul, at.kept, whole)) - whole[at.chunk] + peaks[at.chunk] for at in self.flights)
        return most


def last_again(memory: StageMemory, passing: Passing, again: Sequence[Recomputed | None]) -> StageMemory:
    """Return the memory of a stage whose last layers are computed again, and not its first, which are as many.

    Parameters
    ----------
    again
        What the judge takes each layer to recompute; all that can are alike.
    """
    layers = passing.layers
    kinds = [each.kind for each in again if each]
    able = [at for at, layer in enumerate(layers) if kinds and layer.again(kinds[0])]
    last = set(able[len(able) - len(kinds) :])
    turned = [layer.again(kinds[0]) if at in last else None for at, layer in enumerate(layers)]
    more = passing.most(turned) - passing.most(again)
    return replace(memory, working=memory.working + ceil(more))


def _peak(held: Sequence[Layer | Recomputed]) -> Number:
    """Return the bytes at the worst moment of the backward pass of a chunk, of the microbatch at work alone."""
    kept = accumulate(each.activation_bytes for each in held)
    return max(sum(both) for both in zip(kept, (each.working_bytes for each in held), strict=True))


def fetched_s(memory: StageMemory, share: float, device: Device) -> float:
    """Return the time to fetch that share for the optimizer's step, and to write it back."""
    return 2 * share * memory.optimizer / device.pcie_bytes_per_s if share and device.pcie_bytes_per_s else 0.0
