"""A study: every blinding at every point of the sweeps, and the full optimum beside it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nest.ablate.blindings import Blinding, blinding_named
from nest.ablate.journal import Journal
from nest.ablate.rows import FULL, Outcome, Row, Verdict
from nest.ablate.sweeps import Point, Sweeps, apply_point, points_of
from nest.ablate.tasks import Task, perform
from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.problem import Problem

Report: TypeAlias = Callable[[int, int], None]
"""Called with the number of tasks done and of all, before the first and after each."""


def ablate(
    problem: Problem,
    without: Sequence[str] = (),
    sweeps: Sweeps | None = None,
    *,
    time_limit_s: float | None = None,
    jobs: int = 1,
    journal: str | Path | None = None,
    report: Report | None = None,
) -> tuple[Row, ...]:
    """Find out what parts of the optimisation are worth.

    Parameters
    ----------
    problem
        The full problem.
    without
        Names of blindings (`nest.ablate.BLINDINGS`), joined by ``+`` where one row shall have several.
    sweeps
        Values for keys, as in ``{"hbm_gb": [16, 24]}``; every combination is a point with rows of its own.
    time_limit_s
        Of each solve, in seconds.
    jobs
        Solve in so many processes of their own, from 2 on; a script that asks for it needs the usual guard,
        ``if __name__ == "__main__":``.
    journal
        File of finished rows: those that it holds are not computed again, every other one is appended.
    report
        Called with the progress.

    Returns
    -------
    tuple of Row
        For each point, the full problem and then each blinding.

    Raises
    ------
    InvalidProblem
        If a blinding, a sweep or the journal makes no sense, before anything is solved.
    """
    blindings = [blinding_named(name) for name in dict.fromkeys(without)]
    study = [each for point in points_of(sweeps or {}) for each in _entries(problem, point, blindings, time_limit_s)]
    tasks = {entry.key: entry.task for entry in study if entry.task is not None}
    book = None if journal is None else Journal(journal, problem)
    known = {} if book is None else {key: book.outcomes[key] for key in tasks if key in book.outcomes}
    outcomes = dict(known)
    if report is not None:
        report(len(outcomes), len(tasks))
    with closing(_performed({key: task for key, task in tasks.items() if key not in known}, jobs)) as finished:
        for key, outcome in finished:
            outcomes[key] = outcome
            if book is not None:
                book.add(key, outcome)
            if report is not None:
                report(len(outcomes), len(tasks))
    return tuple(_rows(study, outcomes))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A row to be: its task, or why there is none."""

    point: Point
    blinding: str
    task: Task | None
    key: str = ""
    refusal: str = ""

    @classmethod
    def of(cls, point: Point, name: str, task: Task) -> _Entry:
        """Return the entry of a task, under its digest."""
        return cls(point, name, task, task.digest())

    def outcome(self, outcomes: Mapping[str, Outcome]) -> Outcome:
        """Return what came of it: that of its task, or that it was refused."""
        return Outcome(Verdict.REFUSED, reason=self.refusal) if self.task is None else outcomes[self.key]


def _entries(
    problem: Problem, point: Point, blindings: Iterable[Blinding], time_limit_s: float | None
) -> Iterator[_Entry]:
    """Yield the entries of a point, the full problem's first; raises `InvalidProblem` if that is none."""
    if problem.cluster.menus:
        remedy = "give each level the figures of one technology in the place of alternatives"
        raise InvalidProblem("cluster.levels", "a level has a menu, of which no blinding knows", remedy)
    full = apply_point(problem, point)
    try:
        scale_of(full)
    except InvalidProblem as fault:
        swept = " ".join(f"--sweep {key}={value}" for key, value in point)
        raise InvalidProblem(swept or fault.where, fault.problem, fault.remedy) from None
    yield _Entry.of(point, FULL, Task(full, full, time_limit_s))
    for blinding in blindings:
        try:
            task = Task(blinding.believe(full), blinding.judged(full), time_limit_s)
        except InvalidProblem as fault:
            yield _Entry(point, blinding.name, None, refusal=str(fault))
        else:
            yield _Entry.of(point, blinding.name, task)


def _rows(study: Sequence[_Entry], outcomes: Mapping[str, Outcome]) -> Iterator[Row]:
    full = study[0]
    for entry in study:
        full = entry if entry.blinding == FULL else full
        hides = entry.key != full.key
        yield Row(entry.point, entry.blinding, entry.outcome(outcomes), full.outcome(outcomes), hides)


def _performed(tasks: Mapping[str, Task], jobs: int) -> Generator[tuple[str, Outcome], None, None]:
    """Yield each task's key and outcome as it is done; none is left running, whatever ends it."""
    if jobs == 1 or len(tasks) < 2:
        for key, task in tasks.items():
            yield key, perform(task)
        return
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")  # a fork would take locks of other threads along
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=spawn, initializer=_leave_interrupts)
    try:
        pending = {pool.submit(perform, task): key for key, task in tasks.items()}
        for future in as_completed(pending):
            yield pending[future], future.result()
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise


def _leave_interrupts() -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the one that gave the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
