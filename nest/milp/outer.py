"""Outer choices: what a plan chooses once, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from nest.constraints import Outer
from nest.problem import Problem
from nest.tables import VariantTables


@dataclass(frozen=True, slots=True)
class OuterChoice:
    """A variant (by its place among the allowed ones), stages, replicas and stride, and what follows from them.

    Attributes
    ----------
    stride
        Blocks from the start of one replica to the start of the next: the sum of the degrees of all stages.
    rounds
        How often the largest load counts, D7.
    sync_class
        Place among the pairs of numbers that a synchronisation depends on beside the parameters, D6.
    """

    variant: int
    stages: int
    replicas: int
    stride: int
    rounds: int
    sync_class: int


class SyncClasses:
    """Numbers the pairs ``(floor(log2 d), height)`` on which a synchronisation depends beside the parameters."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], int] = {}

    def of(self, tables: VariantTables, replicas: int, stride: int) -> int:
        """Return the class of so many replicas, ``stride`` blocks apart."""
        key = (replicas.bit_length() - 1, tables.height(replicas, stride * tables.width))
        return self._found.setdefault(key, len(self._found))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs, by class."""
        return list(self._found)


def rounds_of(problem: Problem, stages: int, replicas: int) -> int:
    """Return how often the largest load counts (D7)."""
    return -(-problem.training.microbatches // replicas) + stages - 1


def replicas_by_stages(
    problem: Problem, tables: VariantTables, least_degree: int, *, fewest_only: bool = True
) -> dict[int, list[int]]:
    """Return the numbers of replicas to consider for each number of stages that is allowed (C4, C5, C10, `admits`).

    Of the replicas with equal rounds the fewest are as good as any: for the same stages, and so the same stride, their
    places are among those of the others, no load is larger, and they synchronise in no more steps over no more levels.

    Parameters
    ----------
    least_degree
        Blocks that a stage takes at least.
    fewest_only
        Leave out the replicas that are not the fewest.
    """
    blocks, choices, filters = tables.devices // tables.width, problem.choices, tables.filters
    microbatches, found = problem.training.microbatches, dict[int, list[int]]()
    for stages in range(1, min(tables.layers, blocks // least_degree) + 1):
        if choices.stages is not None and stages not in choices.stages:
            continue
        fewest: dict[int, int] = {}
        for replicas in range(1, min(microbatches, blocks // (stages * least_degree)) + 1):
            key = -(-microbatches // replicas) if fewest_only else replicas
            allowed = choices.replicas is None or replicas in choices.replicas
            if allowed and key not in fewest and filters.outer(Outer(tables.variant, stages, replicas)):
                fewest[key] = replicas
        if fewest:
            found[stages] = list(fewest.values())
    return found
