"""Memory of one device of a stage, in quanta of bytes.

Source: the artifact of arXiv 2603.06798: weights and gradients (one byte of gradient per byte of weight), optimizer
state, the activations of the microbatch at work, and a stash for every other microbatch in flight. ZeRO inside the
stage divides optimizer state (type 1), gradients too (2), weights too (3); a device holds whole quanta, so the sharded
part is rounded up, once.
"""

from __future__ import annotations

from typing import TypeVar

from nest.problem import HELD, Copies
from nest.units import Ints

Quanta = TypeVar("Quanta", int, Ints)


def state(weights: Quanta, copies: Copies, zero: int, degree: int) -> Quanta:
    """Return what weights, their gradients and the optimizer take, sharded over ``degree`` ranks under a ZeRO type.

    Type 1 divides the optimizer, 2 also the gradients, 3 also the weights (arXiv 1910.02054, section 5). `HELD` has
    whole gradients and gathered weights besides.
    """
    parts = (copies.optimizer, copies.gradients, 1)
    sharded = sum(parts[:zero])
    held = weights * (sum(parts) - sharded) - (-(weights * sharded) // degree)
    return held + _whole(weights, copies) if zero == HELD and degree > 1 else held


def stepped_on(weights: Quanta, zero: int, degree: int) -> Quanta:
    """Return of which weights a device holds the optimizer's state, and makes its step."""
    return weights if zero == 0 else -(-weights // degree)


def whole_for_a_moment(weights: Quanta, copies: Copies, zero: int) -> Quanta:
    """Return what a layer's weights take besides while it runs: what is sharded is whole then.

    Gradients are, before they are scattered (types 2 and 3), and gathered weights (type 3).
    """
    if zero == 3:
        return _whole(weights, copies)
    return weights * (copies.gradients if zero == 2 else 0)


def _whole(weights: Quanta, copies: Copies) -> Quanta:
    """Return what gradients and gathered weights take, the latter rounded up."""
    times, parts = copies.gathered.as_integer_ratio()
    return weights * copies.gradients - (-(weights * times) // parts)


def resident(parameters: Quanta, activations: Quanta, optimizer_copies: int, zero: int, degree: int) -> Quanta:
    """Return what a stage holds with one microbatch in flight.

    Parameters
    ----------
    parameters, activations
        Sums over the stage's layers.
    optimizer_copies
        Optimizer bytes per byte of parameters.
    """
    return state(parameters, Copies(optimizer_copies), zero, degree) + activations


def needed(resident_bytes: Quanta, stash: Quanta, in_flight: int) -> Quanta:
    """Return the memory of a stage with ``in_flight`` microbatches in flight, each further one stashing ``stash``."""
    return resident_bytes + stash * (in_flight - 1)
