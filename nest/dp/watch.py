"""Keeps the time of a search, and what is proven at any moment of it."""

from __future__ import annotations

import time

from nest.dp.incumbent import Incumbent
from nest.dp.trace import Trace
from nest.result import Progress, Report

REPORT_EVERY_S = 0.1


class TimeUp(Exception):
    """The deadline has passed, or the best plan is as good as is asked for."""


class Watch:
    """Time and progress of a search.

    Parameters
    ----------
    deadline
        Reading of `time.perf_counter` after which `check` raises; None for never.
    report
        Called with the progress, at most every `REPORT_EVERY_S`.
    incumbent
        The best plan so far.

    Attributes
    ----------
    bound
        No plan that is not settled yet is faster, in ticks.
    trace
        Is told what becomes of each outer choice; None where nobody wants to know.
    within
        Part of its time by which the best plan so far may be above the bound for the search to end.
    """

    def __init__(
        self,
        deadline: float | None,
        report: Report | None,
        incumbent: Incumbent,
        trace: Trace | None = None,
        within: float = 0.0,
    ) -> None:
        self.deadline, self.report, self.incumbent, self.trace = deadline, report, incumbent, trace
        self.within = within
        self.bound, self.settled, self.total = 0, 0, 0
        self._reported = time.perf_counter()

    def check(self) -> None:
        """Report now and then.

        Raises
        ------
        TimeUp
            After the deadline, or once the best plan is as good as is asked for.
        """
        if self.close:
            raise TimeUp
        if self.deadline is None and self.report is None:
            return
        now = time.perf_counter()
        if self.deadline is not None and now > self.deadline:
            raise TimeUp
        if self.report is not None and now - self._reported > REPORT_EVERY_S:
            self._reported = now
            best = self.incumbent.objective if self.incumbent.found else None
            self.report(Progress(self.settled, self.total, best))

    @property
    def close(self) -> bool:
        """Whether the best plan so far is within the part asked for above what is proven."""
        if not self.within or not self.incumbent.found:
            return False
        return self.bound >= self.incumbent.objective * (1 - self.within)
