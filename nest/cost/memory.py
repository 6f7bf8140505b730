"""Memory of one device of a stage, in quanta of bytes.

Source: the artifact of arXiv 2603.06798: weights and gradients (one byte of gradient per byte of weight), optimizer
state, the activations of the microbatch at work, and a stash for every other microbatch in flight. ZeRO inside the
stage divides optimizer state (type 1), gradients too (2), weights too (3); a device holds whole quanta, so the sharded
part is rounded up, once.
"""

from __future__ import annotations

from typing import TypeVar

from nest.units import Ints

Quanta = TypeVar("Quanta", int, Ints)


def resident(parameters: Quanta, activations: Quanta, optimizer_copies: int, zero: int, degree: int) -> Quanta:
    """Return what a stage holds with one microbatch in flight.

    Parameters
    ----------
    parameters, activations
        Sums over the stage's layers.
    optimizer_copies
        Optimizer bytes per byte of parameters.
    """
    copies = (optimizer_copies, 1, 1)
    sharded = sum(copies[:zero])
    return parameters * (sum(copies) - sharded) - (-(parameters * sharded) // degree) + activations


def needed(resident_bytes: Quanta, stash: Quanta, in_flight: int) -> Quanta:
    """Return the memory of a stage with ``in_flight`` microbatches in flight, each further one stashing ``stash``."""
    return resident_bytes + stash * (in_flight - 1)
