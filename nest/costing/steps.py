"""Element-wise work as the kernels that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nest.families import Elementwise

COMPOSED = {"norm": (5, 5.0), "rotary": (3, 4.0), "activation": (2, 1.5), "gate": (2, 1.5)}
"""Kernels of an operator that is written step by step, and by how many times the bytes grow.

A norm converts to fp32, squares, sums, scales, converts back and scales again; a rotation converts, multiplies complex
numbers, converts back.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One element-wise operator as it runs.

    Parameters
    ----------
    operator
        What it computes.
    forward_elements, backward_elements
        Elements per row that it reads and writes; what it kept is read besides.
    kernels, factor
        In how many kernels, and how many times the bytes.
    """

    operator: Elementwise
    forward_elements: int
    backward_elements: int
    kernels: int = 1
    factor: float = 1.0


def elementwise_steps(group: list[Elementwise], *, together: bool) -> Iterator[Step]:
    """Yield neighbouring operators as they run.

    Parameters
    ----------
    together
        Whether a chain is one kernel: what one operator writes and the next reads then never leaves the processor.
    """
    for at, operator in enumerate(group):
        moved = operator.reads + operator.writes
        if together:
            before = min(group[at - 1].writes, operator.reads) if at else 0
            behind = min(operator.writes, group[at + 1].reads) if at + 1 < len(group) else 0
            yield Step(operator, moved - before - behind, moved - before - behind, 0 if at else 1)
        else:
            kernels, factor = COMPOSED.get(operator.kind, (1, 1.0))
            yield Step(operator, moved, moved, kernels, factor)
