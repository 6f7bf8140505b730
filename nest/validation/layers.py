"""What of a case decides which kernels its layers run."""

from __future__ import annotations

from nest.families.architecture import Block
from nest.families.operators import Scores
from nest.validation.case import Case


def layer_of(case: Case) -> Block:
    """Return the first layer of the model."""
    return next(block for stack in case.model.stacks for block in stack.blocks if block.layer)


def heads_of(case: Case) -> tuple[int, int]:
    """Return how many heads its layers have, and the width of each."""
    scores = next(each for each in layer_of(case).operators if isinstance(each, Scores))
    return scores.heads, scores.key_width


def layer_passes(case: Case) -> int:
    """Return how often an iteration waits for a layer: in every stage while the pipeline fills, then in the fullest."""
    layout = case.layout
    layers = sum(block.layer for stack in case.model.stacks for block in stack.blocks)
    split = layout.layers or (-(-layers // layout.stages),) * layout.stages
    microbatches = -(-layout.global_batch // (layout.data * case.setting.microbatch))
    return sum(split) + (microbatches - 1) * max(split)
