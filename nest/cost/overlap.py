"""What is left of exchanges between the holders of weights where computation goes on beside them, in whole ticks.

Source: FSDP, FSDP2 and Megatron-Core exchange the weights and gradients of one layer while they compute another. What
runs at the same time takes longer: kernels of the network library occupy multiprocessors (`nest.costing.efficiency`).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from nest.problem import Training
from nest.units import Ints

Ticks = TypeVar("Ticks", int, Ints)

MILLION = 10**6


def hidden_millionths(training: Training) -> int:
    """Return how many millionths are gained of an exchange beside which computation goes on: 0 where none does."""
    return MILLION - round(training.overlap_tax * MILLION) if training.hides_gradients else 0


def left(ticks: Ticks, beside: Ticks, millionths: int) -> Ticks:
    """Return what is left of exchanges.

    Parameters
    ----------
    ticks, beside
        What they take, and the computation beside them.
    millionths
        Of what both take, how much is gained; the gain is rounded down.
    """
    whole, rest = np.divmod(np.minimum(ticks, beside), MILLION)
    return ticks - (whole * millionths + rest * millionths // MILLION)  # type: ignore[no-any-return]


def hideable(summed: Ticks, layers: Ticks) -> Ticks:
    """Return how much of the sums of a stage's gradients may run beside its last backward pass, rounded down.

    The gradients of the layer that comes last have nothing to run beside. A stage of one layer is cut in two: what
    frameworks wait for are buckets of tensors, and not layers.
    """
    return summed + -summed // np.maximum(layers, 2)  # type: ignore[no-any-return]
