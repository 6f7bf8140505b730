"""Models: from a file or a few numbers to layers, their weights and their operators; no framework, no device."""

from nest.families.architecture import Architecture, Block, Component, Extra, Link, Stack, Stream
from nest.families.description import Description
from nest.families.hyperparameters import Hyperparameters, from_hyperparameters
from nest.families.operators import Elementwise, Exchange, Matmul, Operator, Scores, Tensor
from nest.families.reading import describe, is_model
from nest.families.weights import Split, Weight

__all__ = [
    "Architecture",
    "Block",
    "Component",
    "Description",
    "Elementwise",
    "Exchange",
    "Extra",
    "Hyperparameters",
    "Link",
    "Matmul",
    "Operator",
    "Scores",
    "Split",
    "Stack",
    "Stream",
    "Tensor",
    "Weight",
    "describe",
    "from_hyperparameters",
    "is_model",
]
