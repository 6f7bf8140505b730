"""Which side constraints a whole plan breaks, one after the other and stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nest.constraints.base import LocalConstraint, Run, Site, Whole
from nest.constraints.filters import Filters
from nest.problem import Problem
from nest.units import Number


def broken(problem: Problem, whole: Whole, memory_bytes: Sequence[Number]) -> Iterator[tuple[str, str]]:
    """Yield the kind of each side constraint that a plan breaks, and how.

    Parameters
    ----------
    memory_bytes
        What each stage takes on a device.
    """
    filters = Filters(problem)
    for constraint in filters.local:
        for how in _ways(problem, constraint, whole, memory_bytes):
            yield constraint.kind, f"{how}; asked for: {constraint.text}"
    for coupling in filters.coupling:
        how_as_whole = coupling.broken_by(problem, whole)
        if how_as_whole is not None:
            yield coupling.kind, f"{how_as_whole}; asked for: {coupling.text}"


def _ways(problem: Problem, constraint: LocalConstraint, whole: Whole, memory_bytes: Sequence[Number]) -> Iterator[str]:
    """Yield each way in which a plan breaks a local constraint."""
    used, devices = whole.outer.replicas * whole.stride, constraint.device_limit(problem)
    if used > devices:
        yield f"the plan uses {used} devices, {devices} may be used"
    if not constraint.admits(problem, whole.outer):
        outer = whole.outer
        yield f"{outer.variant} with {outer.stages} stages and {outer.replicas} replicas is not allowed"
    limits_memory = type(constraint).memory_limit is not LocalConstraint.memory_limit
    room = constraint.memory_limit(problem)
    for at, have in enumerate(memory_bytes):
        if limits_memory and have > room:
            yield f"stage {at} needs {have} bytes on each device, {room} may be taken"
        elif not _admits_stage(problem, constraint, whole, at):
            yield f"stage {at} is not allowed"


def _admits_stage(problem: Problem, constraint: LocalConstraint, whole: Whole, at: int) -> bool:
    first, end = whole.runs[at]
    run = Run(np.array([first], dtype=np.int64), np.array([end], dtype=np.int64))
    position = len(whole.runs) - at
    start = np.array([whole.starts[at]], dtype=np.int64)
    site = Site(position, start, whole.devices[at], whole.stride)
    masks = (
        constraint.admits_run(problem, whole.outer.variant, run),
        constraint.admits_stage(problem, whole.outer.variant, whole.outer.stages, position, run),
        constraint.admits_place(problem, whole.outer, run, site),
    )
    return all(bool(mask.all()) for mask in masks)
