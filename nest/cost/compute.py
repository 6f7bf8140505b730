"""Time that a stage computes, with the transfers that its layers wait for.

Source: the forward and backward walks of the artifact of arXiv 2603.06798 (``nest/Solver``); on a chain they are
``x(in) + sum of forward`` and ``max(R, x(out)) + sum of backward``, section 3 of the space's definition.
"""

from __future__ import annotations

from collections.abc import Iterable


def walk(start: int, times: Iterable[int], arrivals: Iterable[int]) -> int:
    """Return when a chain of layers is done.

    Parameters
    ----------
    start
        Tick at which the first layer may begin.
    times
        Ticks that each layer computes, in the order in which they run.
    arrivals
        Tick at which the last tensor from outside reaches each layer (0 where there is none).

    Notes
    -----
    Each layer starts at the later of its predecessor's finish and its own arrival.
    """
    finish = start
    for time, arrival in zip(times, arrivals, strict=True):
        finish = (arrival if arrival > finish else finish) + time
    return finish
