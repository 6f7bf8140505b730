"""How long something takes, measured so that a slow or busy machine fails no test."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable

ATTEMPTS = 3


def is_within(limit_s: float, action: Callable[[], object], clock: Callable[[], float] = time.process_time) -> bool:
    """Whether one of three attempts takes less than a limit, which is to be ten times what an idle core takes.

    Parameters
    ----------
    limit_s
        In seconds of the clock.
    action
        What an attempt does once, with the garbage collector off; there is no further one once one was in time.
    clock
        Seconds of the processor that this process took, unless another one is given.
    """
    return any(_taken_s(action, clock) < limit_s for _ in range(ATTEMPTS))


def children_s() -> float:
    """Return the seconds of the processor that the ended processes took that this one had started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class SteppedClock:
    """A clock that every reading puts forward, so that a time limit ends the same work on every machine.

    Parameters
    ----------
    step_s
        By how many seconds.
    """

    def __init__(self, step_s: float) -> None:
        self.now_s, self._step_s = 0.0, step_s

    def __call__(self) -> float:
        """Read the clock."""
        self.now_s += self._step_s
        return self.now_s


def _taken_s(action: Callable[[], object], clock: Callable[[], float]) -> float:
    collects = gc.isenabled()
    gc.disable()
    try:
        begin = clock()
        action()
        return clock() - begin
    finally:
        if collects:
            gc.enable()
