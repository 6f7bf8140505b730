"""Which side constraints a whole plan breaks, one after the other and stage by stage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import inf

import numpy as np

from nest.constraints.answers import devices_of, memory_of, outer_of, place_of, run_of, stage_of
from nest.constraints.base import LocalConstraint, Run, Site, Whole, overrides
from nest.constraints.checks import counted, written
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
    outer, used = whole.outer, whole.used_devices
    if overrides(constraint, "device_limit") and used > (most := devices_of(constraint, problem)):
        yield f"the plan uses {counted(used, 'device')}, {most} may be used"
    taken = (_taken(whole, at, constraint.reserves(problem)) for at in range(outer.stages))
    if (first := next((device for device in taken if device is not None), None)) is not None:
        yield f"the plan takes device {first}"
    if not outer_of(constraint, problem, outer):
        numbers = f"{counted(outer.stages, 'stage')} and {counted(outer.replicas, 'replica')}"
        yield f"{outer.variant} with {numbers} is not allowed"
    for at, have in enumerate(memory_bytes):
        if have > (room := _room(problem, constraint, whole, at)):
            yield f"stage {at} needs {written(have)} bytes on each device, {written(room)} may be taken"
        else:
            yield from _refusals(problem, constraint, whole, at)


def _room(problem: Problem, constraint: LocalConstraint, whole: Whole, at: int) -> Number:
    """Return how many bytes a local constraint leaves to a stage on each device."""
    if not overrides(constraint, "memory_limit"):
        return inf
    classes = problem.cluster.classes_in(whole.blocks(at), whole.devices[at])
    return memory_of(constraint, problem.with_memory_of(classes))


def _taken(whole: Whole, at: int, reserved: Collection[int]) -> int | None:
    """Return a reserved device that a stage takes in some replica."""
    if not reserved:
        return None
    devices = whole.blocks(at)[:, None] + np.arange(whole.devices[at])
    found = devices[np.isin(devices, list(reserved))]
    return int(found[0]) if found.size else None


def _refusals(problem: Problem, constraint: LocalConstraint, whole: Whole, at: int) -> Iterator[str]:
    """Yield what about a stage a local constraint does not allow: the first thing that alone suffices."""
    outer, (first, end) = whole.outer, whole.runs[at]
    ids = [layer.id for layer in problem.graphs[outer.variant].layers[first:end]]
    layers = f"layer {ids[0]!r}" if len(ids) == 1 else f"layers {ids[0]!r} to {ids[-1]!r}"
    run = Run(np.array([first], dtype=np.int64), np.array([end], dtype=np.int64))
    position, start, width = len(whole.runs) - at, whole.starts[at], whole.devices[at]
    site = Site(position, np.array([start], dtype=np.int64), width, whole.stride, whole.line)
    if not run_of(constraint, problem, outer.variant, run).all():
        yield f"stage {at} may not hold {layers}"
    elif not stage_of(constraint, problem, outer.variant, run, stages=outer.stages, position=position).all():
        yield f"stage {at}, of {outer.stages}, may not hold {layers}"
    elif not place_of(constraint, problem, outer, run, site).all():
        devices = f"device {start}" if width == 1 else f"devices {start} to {start + width - 1}"
        apart = f", with {outer.replicas} replicas {whole.stride} apart" if outer.replicas > 1 else ""
        yield f"stage {at} may not stand on {devices}{apart}"
