"""Time of one iteration under the pipeline schedule."""

from __future__ import annotations


def rounds(microbatches: int, replicas: int, stages: int) -> int:
    """Return how many times the slowest stage's load counts under 1F1B: ``ceil(M / d) + S - 1``."""
    return -(-microbatches // replicas) + stages - 1


def iteration(load: int, microbatches: int, replicas: int, stages: int, sync: int) -> int:
    """Return the objective ``bottleneck``: ``load * (ceil(M / d) + S - 1) + sync`` (arXiv 2603.06798), in ticks."""
    return load * rounds(microbatches, replicas, stages) + sync


def summed(loads: int, slowest: int, microbatches: int, sync: int, chunks: int = 1) -> int:
    """Return the objective ``sum`` in ticks, rounded up: ``long + (short - slowest) / v + sync``.

    ``long`` is the larger of ``m * slowest`` and the sum of all loads, ``short`` the smaller. With one chunk that is
    their sum but for one ``slowest``: every stage fills once, and the slowest works on every further microbatch of its
    replica, the makespan of 1F1B for equal stages (arXiv 2104.04473, section 2.1). With ``v`` chunks each of them
    waits until the slowest stage has done all microbatches, or until the first one has passed all stages, whichever
    takes longer; what takes less counts for one chunk (section 2.2, where ``m >= S``). For unequal stages it is close
    and no bound: longer where loads differ, and possibly shorter where the backward pass takes a different share of
    the load from stage to stage.

    Parameters
    ----------
    microbatches
        Of one replica.
    chunks
        ``v`` of each stage.
    """
    short, long = sorted((microbatches * slowest, loads))
    return long - (slowest - short) // chunks + sync
