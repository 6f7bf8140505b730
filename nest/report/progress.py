"""Progress bars for what takes long enough to make a person wonder."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from nest.report.format import duration
from nest.result import Progress
from nest.units import TimeScale


class ProgressBar:
    """Shows the state of a search while its ``with`` block runs, and leaves nothing behind.

    Parameters
    ----------
    time_scale
        Tick of the problem.
    console
        Where to draw; standard error by default, which keeps standard output for the answer.
    patience_s
        Nothing is drawn before so many seconds.
    """

    def __init__(self, time_scale: TimeScale, console: Console | None = None, patience_s: float = 1.0) -> None:
        self._time_scale = time_scale
        self._bar = _bar("searching", console)
        self._task = self._bar.add_task("")  # its clock runs from here, drawn or not
        self._draw_from = time.perf_counter() + patience_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Take note of the state of the search."""
        if time.perf_counter() < self._draw_from:
            return
        best = progress.best_ticks
        self._bar.update(
            self._task,
            completed=progress.settled,
            total=progress.total,
            description="" if best is None else f"best {duration(self._time_scale.seconds(best))}",
        )
        self._bar.start()


class RowsBar:
    """Shows how many rows of a study are done while its ``with`` block runs, and leaves nothing behind.

    Parameters
    ----------
    console
        As of `ProgressBar`.
    what
        What is counted.
    """

    def __init__(self, console: Console | None = None, what: str = "rows") -> None:
        self._bar = _bar(what, console)
        self._task = self._bar.add_task("")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Take note of the rows that are done."""
        self._bar.update(self._task, completed=done, total=total)


def _bar(what: str, console: Console | None) -> Bar:
    return Bar(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console or Console(stderr=True),
        transient=True,
    )
