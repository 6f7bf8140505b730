"""What the space of preset `default` does not have, on top of what the judge says.

Chunks, with what they buffer, and state on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from nest.costing import Layout
from nest.hardware import Device
from nest.runs.figures import StageMemory, StageTime


def chunks_in_flight(layout: Layout, stage: int, microbatches: int) -> Fraction:
    """Return of how many microbatches an interleaved stage keeps activations at its peak, in units of all its layers.

    ``2 (S - i - 1) + (v - 1) S + 1`` passes of one chunk each come before the first backward pass is done: at the first
    stage ``S (1 + (S - 1) / (S v))`` (arXiv 2205.05198, section 5).
    """
    chunks = 2 * (layout.stages - stage - 1) + (layout.virtual - 1) * layout.stages + 1
    return Fraction(min(chunks, microbatches * layout.virtual), layout.virtual)


def chunked_memory(memory: StageMemory, kept: int, ending: int, flying: Fraction) -> StageMemory:
    """Return the memory of a stage that works in chunks.

    Parameters
    ----------
    kept, ending
        Bytes that a microbatch keeps in the stage, and those of them that follow the last layer: only the one at work
        keeps these.
    flying
        Of `chunks_in_flight`.
    """
    return replace(memory, activations=ceil((kept - ending) * flying) + ending)


def chunked_times(times: Sequence[StageTime], wrap_s: float, chunks: int) -> list[StageTime]:
    """Return the times of stages that send and receive with every chunk; the ends of the pipeline to each other.

    Parameters
    ----------
    wrap_s
        A transfer from the last stage to the first.
    """
    ends = {0, len(times) - 1}
    further = [(chunks - 1) * wrap_s if at in ends else 0.0 for at in range(len(times))]
    return [replace(time, transfer=chunks * time.transfer + more) for time, more in zip(times, further, strict=True)]


def chunked_pipeline_s(times: Sequence[StageTime], rounds: int, chunks: int) -> float:
    """Return ``sum of the other loads / v + m * largest load``: a stage fills with one chunk.

    For equal stages it is exact: ``(m + (S - 1) / v) * load`` (arXiv 2104.04473, section 2.2).
    """
    loads = [time.load for time in times]
    return (sum(loads) - max(loads)) / chunks + rounds * max(loads)


def boundary_bytes(layout: Layout, stage: int, microbatches: int, before: int, behind: int) -> int:
    """Return what buffers of a stage hold of every microbatch and chunk until the iteration ends.

    These are what it has sent, the gradients of that which it receives, and the activations that it receives, but for
    those in flight, which count among what layers keep. The last stage holds what its last layer makes, too.

    Parameters
    ----------
    before, behind
        Bytes of one microbatch that enter the stage, and that its last layer makes.
    """
    chunks, last = layout.virtual, stage + 1 == layout.stages
    flying = min(microbatches, layout.stages - stage)
    if chunks > 1:
        flying = int(chunks_in_flight(layout, stage, microbatches) * chunks)
    received = max(microbatches * (chunks if stage else chunks - 1) - flying, 0) * before
    if last:
        return received + microbatches * (2 * (chunks - 1) * before + behind)
    return received + 2 * microbatches * chunks * behind


def offloaded_memory(memory: StageMemory, share: float) -> StageMemory:
    """Return the memory of a stage with a share of its optimizer state in the memory of the host."""
    return replace(memory, optimizer=ceil(memory.optimizer * (1 - share)))


def fetched_s(memory: StageMemory, share: float, device: Device) -> float:
    """Return the time to fetch that share for the optimizer's step, and to write it back."""
    return 2 * share * memory.optimizer / device.pcie_bytes_per_s if share and device.pcie_bytes_per_s else 0.0
