"""Bytes that a parameter takes while it is trained, by the data types of weights, gradients and optimizer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf

from nest.costing.efficiency import efficiency_of
from nest.errors import InvalidProblem
from nest.hardware import Device


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter.

    Parameters
    ----------
    name
        As given by users.
    weights, gradients
        Of what the passes read and write.
    master
        Of a second copy of the weights in fp32; 0 without.
    moments
        Of the optimizer's averages, both together.
    gathered
        Of weights that are sharded and gathered for use: on the wire, and while they are in use.
    reduced
        Of gradients on the wire.
    stepped
        Of what the optimizer's step takes besides, for each parameter whose state a device holds.
    touched
        Bytes that the step reads and writes for each such parameter.

    Raises
    ------
    InvalidProblem
        If a figure is negative.
    """

    name: str
    weights: float
    gradients: float
    master: float
    moments: float
    gathered: float = 2.0
    reduced: float = 4.0
    stepped: float = 0.0
    touched: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "name" and not 0 <= value < inf:
                raise InvalidProblem(f"recipe.{field.name}", f"{value!r}", "give bytes per parameter from 0")

    @property
    def optimizer(self) -> float:
        """Bytes of optimizer state."""
        return self.master + self.moments

    @property
    def total(self) -> float:
        """Bytes per parameter without sharding."""
        return self.weights + self.gradients + self.optimizer


# What a step moves: gradients are read for their norm (and for overflow), scaled in place, and read by Adam, which
# reads and writes master and moments; the weights are written anew, and the gradients set to zero. With 4-byte
# gradients: 4 + 8 + 4 + 24 + 4 + 2 + 4 = 50 bytes.
RECIPES = (
    Recipe("mixed", 2, 4, 4, 8, reduced=4, touched=50),  # Megatron-LM with fp32 gradients: arXiv 2205.05198's 18 bytes
    Recipe("mixed-half", 2, 2, 4, 8, reduced=2, stepped=4, touched=54),  # gradients in 16 bits, copied to fp32 to step
    Recipe("bf16", 2, 2, 0, 4, reduced=2, touched=22),
    Recipe("fp32", 4, 4, 0, 8, gathered=4, reduced=4, touched=44),
    Recipe("amp", 4, 4, 0, 8, gathered=2, reduced=4, touched=44),  # FSDP: fp32 shards, computed with in 16 bits
    Recipe("amp-half", 4, 4, 0, 8, gathered=2, reduced=2, touched=44),
    Recipe("adam-8bit", 2, 4, 4, 2, reduced=4, touched=38),  # block-wise quantised moments: arXiv 2110.02861
    Recipe("adam-bf16", 2, 4, 4, 4, reduced=4, touched=42),  # both moments in bf16: arXiv 2412.19437, section 3.3.2
    # weights are stored in fp8, once as they are and once transposed, and gathered as they are (Transformer Engine's
    # primary weights in fp8, Megatron-Core's fp8 parameter gather)
    Recipe("mixed-fp8", 2, 4, 4, 8, gathered=1, reduced=4, touched=50),
)
"""The recipes that have a name."""


def step_s(recipe: Recipe, device: Device) -> float:
    """Return the time of the optimizer's step for each parameter whose state a device holds: memory limits it."""
    return recipe.touched / (device.hbm_bytes_per_s * efficiency_of(device).memory)


def recipe_named(name: str) -> Recipe:
    """Return a recipe by its name.

    Raises
    ------
    InvalidProblem
        If there is none.
    """
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    raise InvalidProblem("recipe", f"{name!r} is none", f"one of {', '.join(recipe.name for recipe in RECIPES)}")
