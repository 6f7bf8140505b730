"""What software does that the space of preset `default` does not have: state on the host."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from nest.hardware import Device
from nest.runs.figures import StageMemory


def offloaded_memory(memory: StageMemory, share: float) -> StageMemory:
    """Return the memory of a stage with a share of its optimizer state in the memory of the host."""
    return replace(memory, optimizer=ceil(memory.optimizer * (1 - share)))


def fetched_s(memory: StageMemory, share: float, device: Device) -> float:
    """Return the time to fetch that share for the optimizer's step, and to write it back."""
    return 2 * share * memory.optimizer / device.pcie_bytes_per_s if share and device.pcie_bytes_per_s else 0.0
