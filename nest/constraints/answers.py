"""What the hooks of side constraints answer, checked: a class of one's own may answer something that means nothing."""

from __future__ import annotations

from math import isnan

import numpy as np

from nest.constraints.base import LocalConstraint, Mask, Outer, Run, Site
from nest.errors import InvalidProblem
from nest.problem import Problem, Variant
from nest.units import Number

HOOKS = ("admits", "admits_run", "admits_stage", "admits_place", "device_limit", "memory_limit", "reserves")
"""Where a local constraint leaves plans out."""


def devices_of(constraint: LocalConstraint, problem: Problem) -> int:
    """Return how many devices a constraint leaves; raises `InvalidProblem` unless that is a whole number from 0."""
    answer = constraint.device_limit(problem)
    if isinstance(answer, bool) or not isinstance(answer, int | np.integer) or answer < 0:
        raise _wrong(constraint, "device_limit", f"{answer!r}", "return a whole number from 0")
    return int(answer)


def memory_of(constraint: LocalConstraint, problem: Problem) -> Number:
    """Return how many bytes a constraint leaves on a device; raises `InvalidProblem` unless that is a number from 0."""
    answer = constraint.memory_limit(problem)
    if isinstance(answer, bool) or not isinstance(answer, int | float | np.number) or isnan(answer) or answer < 0:
        raise _wrong(constraint, "memory_limit", f"{answer!r}", "return a number of bytes from 0")
    return answer.item() if isinstance(answer, np.number) else answer


def outer_of(constraint: LocalConstraint, problem: Problem, outer: Outer) -> bool:
    """Return whether a constraint allows an outer choice; raises `InvalidProblem` unless that is true or false."""
    answer = constraint.admits(problem, outer)
    if not isinstance(answer, bool | np.bool_):
        raise _wrong(constraint, "admits", f"{answer!r}", "return True or False")
    return bool(answer)


def run_of(constraint: LocalConstraint, problem: Problem, variant: Variant, run: Run) -> Mask:
    """Return which runs of layers a constraint allows; raises `InvalidProblem` as `_mask` does."""
    answer = constraint.admits_run(problem, variant, run)
    return _mask(constraint, "admits_run", answer, np.broadcast(run.first, run.end).shape)


def stage_of(
    constraint: LocalConstraint, problem: Problem, variant: Variant, run: Run, *, stages: int, position: int
) -> Mask:
    """Return which runs of layers a constraint allows at a position; raises `InvalidProblem` as `_mask` does."""
    answer = constraint.admits_stage(problem, variant, stages, position, run)
    return _mask(constraint, "admits_stage", answer, np.broadcast(run.first, run.end).shape)


def place_of(constraint: LocalConstraint, problem: Problem, outer: Outer, run: Run, site: Site) -> Mask:
    """Return which runs of layers a constraint allows where; raises `InvalidProblem` as `_mask` does."""
    answer = constraint.admits_place(problem, outer, run, site)
    return _mask(constraint, "admits_place", answer, np.broadcast(run.first, run.end, site.start).shape)


def _mask(constraint: LocalConstraint, hook: str, answer: object, shape: tuple[int, ...]) -> Mask:
    """Return an answer for each of many stages, whether it was given for each of them or for all at once.

    Raises
    ------
    InvalidProblem
        Unless it holds truth values, as many as there are stages.
    """
    mask = np.asarray(answer)
    remedy = "return an array of truth values, one for each run of layers in question, or one for all"
    if mask.dtype != np.bool_:
        shown = f"{answer!r}" if mask.ndim == 0 else f"an array of {mask.dtype}"
        raise _wrong(constraint, hook, shown, remedy)
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        what = f"an array of shape {mask.shape} where the runs have {shape}"
        raise _wrong(constraint, hook, what, remedy) from None


def _wrong(constraint: LocalConstraint, hook: str, answer: str, remedy: str) -> InvalidProblem:
    return InvalidProblem("constraints", f"{type(constraint).__name__}.{hook} returned {answer}", remedy)
