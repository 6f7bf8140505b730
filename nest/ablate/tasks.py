"""The work behind a row: solve one problem, judge the plan in another."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from nest import __version__
from nest.ablate.rows import Outcome, Overflow, Verdict
from nest.errors import InvalidProblem
from nest.evaluate import Evaluation, evaluate
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import solve
from nest.units import quanta


@dataclass(frozen=True, slots=True)
class Task:
    """Solve ``believed`` within ``time_limit_s`` seconds, and judge the plan in ``judged``."""

    believed: Problem
    judged: Problem
    time_limit_s: float | None = None

    def digest(self) -> str:
        """Return what tells this task from every other: problems, limit and version of the program."""
        return digest([self.believed, self.judged, self.time_limit_s, __version__])


def digest(value: object) -> str:
    """Return the SHA-256 of a value made of data classes, containers, numbers and texts, in hexadecimal digits.

    Raises
    ------
    InvalidProblem
        If something else is in it, as may be in a side constraint of one's own: it could not be told from others.
    """
    return hashlib.sha256(json.dumps(_plain(value)).encode()).hexdigest()


def _plain(value: object) -> Any:
    """Return a value as JSON takes it, equal values alike: with the names of classes, and what has no order sorted."""
    if is_dataclass(value):
        return [*_class(type(value)), *(_plain(getattr(value, field.name)) for field in fields(value))]
    if isinstance(value, Mapping):
        return sorted(([_plain(key), _plain(entry)] for key, entry in value.items()), key=json.dumps)
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value), key=json.dumps)
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    what = f"{value!r} cannot be told from others of its kind"
    raise InvalidProblem("constraints", what, "make it a frozen data class of numbers, texts, lists and such classes")


def _class(kind: type) -> list[str]:
    """Return what tells a class from others: its name, and how one that is not ours is written, where that is known."""
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return [kind.__qualname__]
    try:
        return [kind.__qualname__, inspect.getsource(kind)]
    except (OSError, TypeError):  # typed at a prompt
        return [kind.__qualname__]


def perform(task: Task) -> Outcome:
    """Do the work; what the solver believes in and cannot be solved is a refusal."""
    try:
        result = solve(task.believed, time_limit_s=task.time_limit_s)
    except InvalidProblem as fault:
        return Outcome(Verdict.REFUSED, reason=str(fault))
    plan = result.plan
    if plan is None:
        verdict = Verdict.INFEASIBLE if result.status is Status.INFEASIBLE else Verdict.UNKNOWN
        proven = verdict is Verdict.INFEASIBLE
        return Outcome(verdict, proven=proven, reason=result.reason, wall_s=result.wall_s)
    evaluation = evaluate(task.judged, plan)
    return _judged(task.judged, result, evaluation)


def _judged(problem: Problem, result: Result, evaluation: Evaluation) -> Outcome:
    """Return what a plan is worth; one that breaks a rule has no price, as it cannot run."""
    plan = result.plan
    if plan is not None and evaluation.stages:
        plan = plan.with_figures(evaluation.loads_s, evaluation.memory_bytes)
    return Outcome(
        Verdict.LEGAL if evaluation.legal else Verdict.BROKEN,
        proven=result.status is Status.OPTIMAL,
        believed_s=result.objective_s,
        objective_ticks=evaluation.objective_ticks if evaluation.legal else None,
        time=evaluation.scale.time if evaluation.legal else None,
        plan=plan,
        violations=evaluation.violations,
        overflows=tuple(_overflows(problem, evaluation)),
        wall_s=result.wall_s,
    )


def _overflows(problem: Problem, evaluation: Evaluation) -> list[Overflow]:
    rooms = [problem.cluster.hbm_bytes_of(stage.classes) for stage in evaluation.stages]
    needs = zip(evaluation.stages, evaluation.memory_bytes, rooms, strict=True)
    per_byte = evaluation.scale.quanta_per_byte
    found = enumerate(needs)
    return [Overflow(at, need, room) for at, (stage, need, room) in found if stage.memory > quanta(room, per_byte)]
