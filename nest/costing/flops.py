"""Model FLOPs: the convention by which throughput is published."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from nest.families import Architecture, Matmul, Scores


def model_flops(
    model: Architecture,
    sequences: int,
    sequence: int,
    *,
    lengths: Sequence[tuple[str, int]] = (),
    vocabulary: int = 0,
) -> int:
    """Return the operations of forward and backward pass by Megatron-LM's convention.

    Every matrix product counts, in the backward pass twice; scores count in full although half of them are masked, and
    nothing that is computed again counts. For a GPT it is ``72 B s l h^2 (1 + s / (6 h) + V / (12 l h))`` (arXiv
    2205.05198, section 6.3; 2104.04473 multiplies by 4/3 for what full recomputation repeats).

    Parameters
    ----------
    sequences, sequence
        Sequences of an iteration, and tokens of each.
    lengths
        Tokens of single streams, by name, where they have others.
    vocabulary
        Rows of the logits if padding counts too; 0 for the model's own.
    """
    total = Fraction(0)
    tokens = model.tokens(sequence, lengths)
    for stack in model.stacks:
        own = tokens[stack.stream]
        for block in stack.blocks:
            for operator in block.operators:
                if isinstance(operator, Matmul):
                    outputs = vocabulary if vocabulary and operator.name == "logits" else operator.outputs
                    rows = tokens[operator.stream or stack.stream] * operator.rows
                    total += 2 * rows * operator.inputs * outputs
                elif isinstance(operator, Scores):
                    keys = tokens[operator.keys or stack.stream]
                    width = operator.key_width + operator.value_width
                    total += 2 * operator.heads * width * own * min(operator.span or keys, keys)
    return int(3 * sequences * total)
