"""The time that a search takes, and what is left of the time that it may take."""

from __future__ import annotations

import time


class Stopwatch:
    """Runs from when it is built.

    Parameters
    ----------
    limit_s
        Seconds that a search may take; without a limit None.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._begin, self._limit_s = time.perf_counter(), limit_s

    @property
    def used_s(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self._begin

    @property
    def left_s(self) -> float | None:
        """Seconds that are left, no less than 0; without a limit None."""
        return None if self._limit_s is None else max(self._limit_s - self.used_s, 0.0)
