"""Plans that carry their problem: what `nest solve` writes into a plan file, and how it is read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias

from nest.cost.scale import scale_of
from nest.errors import InvalidPlan, InvalidProblem
from nest.files import apply_settings, problem_text, read_claimed_plan, read_reduced_problem
from nest.files.document import Document
from nest.files.left_out import left_out_of
from nest.files.origin import Origin, digest
from nest.files.problem_read import problem_of as problem_of_file
from nest.files.settings import with_own
from nest.plan import Plan
from nest.presets import preset_named
from nest.problem import Problem
from nest.provenance import versions
from nest.runs.pose import Posed, problem_of
from nest.runs.run import Run
from nest.runs.run_document import run_file_document
from nest.runs.run_file import is_run, read_run, run_of
from nest.runs.tried import EVERY_PLAN, TRIED, USUAL, Tried

OVERRIDE = "give --problem FILE"


@dataclass(frozen=True)
class SelfContained:
    """A plan with its problem.

    Parameters
    ----------
    problem, plan
        A problem, with all that was typed to change it, and a plan of it, not judged yet.
    run
        What the problem was posed from; None where it comes from a problem file.
    objective
        What the file claims, in the problem's own unit of time; None where it gives none.
    provenance
        Versions of what computed the plan, by name, and when; empty where the file does not say.
    origin
        The same problem as another plan file may carry it; None where it was read from a pipe.
    tried
        How much of the space the problem has.
    """

    problem: Problem
    plan: Plan
    run: Run | None
    objective: float | None
    provenance: Mapping[str, str]
    origin: Origin | None
    tried: Tried = EVERY_PLAN


def read_self_contained(
    path: str | Path,
    *,
    problem: Path | None = None,
    preset: str | None = None,
    settings: Sequence[str] = (),
    every: bool | None = False,
) -> SelfContained:
    """Read a plan with its problem.

    Parameters
    ----------
    path
        Of a plan, or of a whole result.
    problem
        A problem file or run file in place of what the plan says. Where it is the file that the plan was made for,
        lying somewhere else, what was typed to change it still counts.
    preset, settings
        Changes on top of those that the plan carries, as the command line's ``--preset`` and ``--set`` take them.
    every
        Whether a run has all its variants, not the usual ones and the plan's alone; None: unless the plan was found
        among the usual ones, as its provenance says.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy; `InvalidPlan` where the plan does not say its problem, or the problem's file
        is gone or has other content.
    """
    claimed, plan = read_claimed_plan(path), Path(path)
    origin = _with_folder(claimed.origin, plan)
    if every is None:
        every = claimed.provenance.get(TRIED) != USUAL
    pose = partial(problem_of, every=every, also=claimed.plan.variant)
    if problem is not None:
        found, run, tried = _problem_of(problem, settings, pose)
        origin = _replaced(origin, problem, found.name)
    elif origin is not None:
        found, run, tried = _carried(origin, plan, settings, pose)
    else:
        raise InvalidPlan("problem", "the plan does not say which problem it is a plan of", OVERRIDE, str(path))
    if origin is not None:
        found = changed(found, origin.preset, origin.settings, str(path))
        origin = replace(origin, preset=preset or origin.preset, settings=(*origin.settings, *settings))
    found = changed(found, preset, settings, str(problem or path))
    return SelfContained(found, claimed.plan, run, claimed.objective, claimed.provenance, origin, tried)


def origin_of_file(problem: Path, name: str, preset: str | None = None, settings: Sequence[str] = ()) -> Origin | None:
    """Return where a problem of this name comes from, read from a file and changed so; None if that was a pipe.

    Raises
    ------
    InvalidProblem
        Naming the file.
    """
    if not problem.is_file():
        return None
    if is_run(problem):
        return Origin(run_file_document(problem), preset=preset, settings=tuple(settings))
    file = str(problem.resolve())
    return Origin(file=file, name=name, sha256=digest(problem), preset=preset, settings=tuple(settings))


def origin_of(problem: Problem, tried: Tried) -> Origin | None:
    """Return a problem as a plan file carries it whole; None if our format does not say all of it."""
    try:
        return Origin(text=problem_text(problem, tried.left_out))
    except InvalidProblem:
        return None


def computed_now() -> dict[str, str]:
    """Return the provenance of what is computed now: versions, and the time in UTC."""
    return {**versions(), "written": datetime.now(UTC).isoformat(timespec="seconds")}


def changed(problem: Problem, preset: str | None, settings: Sequence[str], source: str) -> Problem:
    """Return a problem with the preset and the settings that were typed.

    Raises
    ------
    InvalidProblem
        Naming the source; also if its times cannot be counted in ticks.
    """
    problem = altered(problem, preset, settings)
    try:
        scale_of(problem)
    except InvalidProblem as error:
        raise error.at(source) from None
    return problem


def altered(problem: Problem, preset: str | None, settings: Sequence[str]) -> Problem:
    """Return a problem with the preset and the settings that were typed, whether or not its times can be counted."""
    if preset is not None:
        problem = problem.with_preset(preset_named(preset))
    return apply_settings(problem, settings)


Pose: TypeAlias = Callable[[Run], Posed]
"""Which variants of a run a problem has: the usual ones, as `problem_of`, or others."""


def posed_from(path: Path, settings: Sequence[str] = (), pose: Pose = problem_of) -> Posed | None:
    """Pose the problem of a run file, or return None if the file is none; raises `InvalidProblem`, naming the file.

    Where settings name widths or let each stage have figures of its own, the problem has them; nothing else is applied.
    """
    return _posed(read_run(path), settings, str(path), pose) if is_run(path) else None


def _posed(run: Run, settings: Sequence[str], source: str, pose: Pose) -> Posed:
    run = replace(run, choices=with_own(run.choices, settings))
    try:
        return pose(run)
    except InvalidProblem as error:
        raise error.at(source) from None


def read_tried(path: Path) -> tuple[Problem, Tried]:
    """Read a problem file, and how much of the space it has; raises `InvalidProblem`, naming the file."""
    problem, left_out = read_reduced_problem(path)
    return problem, Tried(left_out)


def _problem_of(path: Path, settings: Sequence[str], pose: Pose) -> tuple[Problem, Run | None, Tried]:
    posed = posed_from(path, settings, pose)
    if posed is not None:
        return posed.problem, posed.run, posed.tried
    problem, tried = read_tried(path)
    return problem, None, tried


def _with_folder(origin: Origin | None, plan: Path) -> Origin | None:
    """Return what a plan says about its problem, with the whole path of the file."""
    if origin is None or not origin.file:
        return origin
    return replace(origin, file=str(plan.resolve().parent / origin.file))


def _replaced(origin: Origin | None, problem: Path, name: str) -> Origin | None:
    """Return where a problem given besides comes from: with what the plan says, if it was made for this very file."""
    here = origin_of_file(problem, name)
    if origin is None or here is None or not here.file or here.sha256 != origin.sha256:
        return here
    return replace(origin, file=here.file)


def _carried(origin: Origin, plan: Path, settings: Sequence[str], pose: Pose) -> tuple[Problem, Run | None, Tried]:
    if origin.text:
        document = Document(str(plan), origin.text, InvalidPlan)
        return problem_of_file(document), None, Tried(left_out_of(document))
    if origin.run is None:
        problem, tried = read_tried(_found(origin, plan))
        return problem, None, tried
    run = run_of(Document(str(plan), "", InvalidPlan), origin.run, "problem.run", plan)
    posed = _posed(run, (*origin.settings, *settings), str(plan), pose)
    return posed.problem, run, posed.tried


def _found(origin: Origin, plan: Path) -> Path:
    """Return the path of the problem file, once it is sure that it is the one that the plan was made for."""
    file = Path(origin.file)
    try:
        same = digest(file) == origin.sha256
    except OSError as fault:
        raise InvalidPlan("problem.file", f"{origin.file}: {fault.strerror or fault}", OVERRIDE, str(plan)) from None
    if not same:
        what = f"{origin.file} is not what the plan was made for: its SHA-256 differs"
        raise InvalidPlan("problem.file", what, f"restore it, or {OVERRIDE}", str(plan))
    return file
