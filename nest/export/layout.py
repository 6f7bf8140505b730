"""Megatron-LM's layouts of a pipeline: which layers each stage has, in a line such as ``Et*3|(tt|)*29,m|L``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from nest.export.base import Assignment


def layout_of(given: Assignment) -> str:
    """Return the layout of a plan: ``E`` embedding, ``t`` layer, ``L`` head and loss."""
    last = given.model.layers + 2
    stages = []
    for (first, end), layers in zip(given.runs, given.layers, strict=True):
        stages.append("E" * (first == 0) + _times("t", len(layers)) + "L" * (end == last))
    return joined(stages)


def joined(stages: Sequence[str]) -> str:
    """Return stages in one line, equal neighbours before the last as a group with their number."""
    *before, last = stages
    found = [f"({stage}|)*{count}," if count > 1 else f"{stage}|" for stage, count in _runs(before)]
    return f"{''.join(found)}{last}"


def is_even(given: Assignment) -> bool:
    """Whether stages hold equally many layers, the first also the embedding and the last the head."""
    ends = given.runs[0][1] > 1 and given.runs[-1][0] <= given.model.layers
    return ends and len({len(layers) for layers in given.layers}) == 1


def _times(letter: str, count: int) -> str:
    return letter * count if count < 3 else f"{letter}*{count}"


def _runs(stages: Sequence[str]) -> list[tuple[str, int]]:
    return [(stage, len(list(same))) for stage, same in groupby(stages)]
