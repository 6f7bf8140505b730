"""What does not come out even in a model: layers over stages, heads over devices, rows of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nest.families.architecture import Architecture, Stack
from nest.families.operators import Matmul, Scores
from nest.families.weights import Split

WIDTHS = (2, 4, 8, 16)
"""Numbers of stages, and of devices of tensor parallel, that people try first."""


def oddities(model: Architecture) -> tuple[str, ...]:
    """Return what these numbers do not divide in the stacks of the published model, one sentence each."""
    return tuple(text for stack in model.stacks for text in _of_stack(stack))


def _of_stack(stack: Stack) -> Iterator[str]:
    stages = _uneven(stack.layers)
    if stack.layers and stages:
        yield f"{stack.name}: {stack.layers} layers do not divide over {stages} stages"
    scores = [operator for block in stack.blocks for operator in block.operators if isinstance(operator, Scores)]
    for heads in sorted({score.heads for score in scores}):
        if widths := _uneven(heads):
            yield f"{stack.name}: {heads} heads do not divide over tensor width {widths}"
    for heads in sorted({score.kv_heads for score in scores if score.kv_heads < score.heads}):
        if widths := _uneven(heads):
            yield f"{stack.name}: {heads} key-value heads do not divide over tensor width {widths} without copies"
    for rows in sorted(_vocabularies(stack)):
        if widths := _uneven(rows):
            yield f"{stack.name}: {rows} rows of the vocabulary do not divide over tensor width {widths} unless padded"


def _vocabularies(stack: Stack) -> Iterable[int]:
    matmuls = (operator for block in stack.blocks for operator in block.operators if isinstance(operator, Matmul))
    return {matmul.outputs for matmul in matmuls if matmul.split is Split.VOCABULARY}


def _uneven(count: int) -> str:
    return ", ".join(str(width) for width in WIDTHS if count % width)
