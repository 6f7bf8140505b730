"""What commands do before they can answer: read the problem, solve it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.output import is_terminal
from nest.errors import InvalidProblem

if TYPE_CHECKING:
    from nest.families import Description
    from nest.problem import Problem
    from nest.result import Report, Result
    from nest.runs import Posed, Run, SelfContained, Tried
    from nest.solve import Backend, Cuts


def problem_from(path: Path, preset: str | None, settings: Sequence[str]) -> Problem:
    """Read a problem, or the run that poses one, with the preset and the settings that were typed.

    Raises
    ------
    InvalidProblem
        Naming the file; also if its times cannot be counted in ticks.
    """
    return asked_from(path, preset, settings)[0]


def asked_from(
    path: Path, preset: str | None, settings: Sequence[str], pose: Callable[[Run], Posed] | None = None
) -> tuple[Problem, Tried]:
    """Read a problem as `problem_from` does, and return it with how much of the space it has.

    Parameters
    ----------
    pose
        Which variants a run has: the usual ones where this is left out.
    """
    found, tried, _ = found_in(path, preset, settings, pose)
    return found, tried


def found_in(
    path: Path, preset: str | None, settings: Sequence[str], pose: Callable[[Run], Posed] | None = None
) -> tuple[Problem, Tried, Run | None]:
    """Read a problem as `asked_from` does, and return the run that posed it, too, if one did."""
    from nest.runs import problem_of
    from nest.runs.carried import changed, posed_from, read_tried

    posed = posed_from(path, settings, pose or problem_of)
    problem, tried = read_tried(path) if posed is None else (posed.problem, posed.tried)
    return changed(problem, preset, settings, str(path)), tried, None if posed is None else posed.run


def every_variant(run: Run) -> Posed:
    """Return a run with the problem of all its variants."""
    from nest.runs import problem_of

    return problem_of(run, every=True)


def plan_from(
    files: tuple[Path, Path | None],
    problem: Path | None,
    preset: str | None,
    settings: Sequence[str],
    *,
    every: bool | None = False,
) -> tuple[SelfContained, Path]:
    """Read a plan with its problem, and return it with the path of the plan.

    Parameters
    ----------
    files
        As typed: the plan, or the problem and the plan.
    problem
        What ``--problem`` gives in place of what the plan says.
    every
        As of `nest.runs.read_self_contained`.

    Raises
    ------
    click.UsageError
        If a problem is given twice.
    InvalidProblem
        Naming the file.
    """
    from nest.runs import read_self_contained

    first, second = files
    if second is not None and problem is not None:
        raise click.UsageError(f"give the problem once: {first}, or --problem {problem}")
    plan, source = (first, problem) if second is None else (second, first)
    return read_self_contained(plan, problem=source, preset=preset, settings=settings, every=every), plan


@dataclass(frozen=True)
class Race:
    """How the variants of a run are told that could have the fastest plan.

    Parameters
    ----------
    preset, settings
        That were typed.
    time_limit_s
        Of which half may be taken for it.
    cuts
        Where models that branch may be cut.
    margin
        As of `nest.runs.contenders`.
    target
        The framework that has to run the plan, if one does.
    fastest
        Whether the fastest plan is asked for; of others no floor of time says anything.
    """

    preset: str | None
    settings: tuple[str, ...]
    time_limit_s: float | None = None
    cuts: Cuts = "all"
    margin: float = 1.0
    target: str | None = None
    fastest: bool = True

    def pose(self, run: Run) -> Posed:
        """Return the run with the problem that has these variants."""
        from nest.runs import all_if_few, contenders

        if not self.fastest:
            return all_if_few(run, self._change)
        return contenders(run, partial(self._ask, run), self._change, self.margin)

    def _change(self, problem: Problem) -> Problem:
        from nest.runs.carried import altered

        return altered(problem, self.preset, self.settings)

    def _ask(self, run: Run, problem: Problem, within: float) -> Result:
        half = None if self.time_limit_s is None else self.time_limit_s / 2
        if self.target is None:
            from nest.solve import solve

            return solve(problem, time_limit_s=half, cuts=self.cuts, within=within)
        from nest.export import FRAMEWORKS, best_for

        return best_for(problem, run, FRAMEWORKS[self.target], time_limit_s=half, within=within).result


def model_from(path: Path, vocabulary: int | None) -> Description | None:
    """Read a model, or return None if the file is none; whoever reads it next says what is wrong with it.

    A pipe is none, since it can be read only once.

    Raises
    ------
    InvalidProblem
        Naming the file.
    """
    if not path.is_file():
        return None
    from nest.families import describe, is_model
    from nest.files.disk import read_text

    try:
        text = read_text(path, InvalidProblem)
    except InvalidProblem:
        return None
    try:
        return describe(text, vocabulary) if is_model(text) else None
    except InvalidProblem as error:
        raise error.at(str(path)) from None


def solved(
    problem: Problem, time_limit_s: float | None, *, quiet: bool, backend: Backend = "auto", cuts: Cuts = "all"
) -> Result:
    """Solve a problem, with a progress bar where a person looks on and did not ask for quiet."""
    from nest.solve import solve

    with searching(problem, quiet=quiet) as report:
        return solve(problem, backend=backend, time_limit_s=time_limit_s, report=report, cuts=cuts)


def searching(problem: Problem, *, quiet: bool) -> AbstractContextManager[Report | None]:
    """Return a progress bar for searches where a person looks on and did not ask for quiet."""
    if quiet or not is_terminal(sys.stderr):
        return nullcontext()
    from nest.cost.scale import scale_of
    from nest.report.progress import ProgressBar

    return ProgressBar(scale_of(problem).time)
