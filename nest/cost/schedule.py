"""Time of one iteration under the pipeline schedule."""

from __future__ import annotations


def rounds(microbatches: int, replicas: int, stages: int) -> int:
    """Return how many times the slowest stage's load counts under 1F1B: ``ceil(M / d) + S - 1``."""
    return -(-microbatches // replicas) + stages - 1


def iteration(load: int, microbatches: int, replicas: int, stages: int, sync: int) -> int:
    """Return the objective ``bottleneck``: ``load * (ceil(M / d) + S - 1) + sync`` (arXiv 2603.06798), in ticks."""
    return load * rounds(microbatches, replicas, stages) + sync
