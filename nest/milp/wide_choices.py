"""Outer choices of plans whose stages have widths of their own under the objective `sum`, the best bound first.

Each layer takes no less than its least work in any form, and holds no fewer device-ticks than the least of that work
times the width of the form. So of ``S`` stages with so many devices for a replica the largest load is no less than the
heaviest layer, the mean of the work, and that of the device-ticks, and an outer choice has a bound before anything is
known of its stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from nest.constraints import Outer
from nest.forms import Variant
from nest.milp.paced import Paced
from nest.milp.wide_spots import Layout, Spots
from nest.tables import UnevenTables
from nest.uneven import groups_to_begin_with
from nest.units import HARD_LIMIT


@dataclass(frozen=True, slots=True)
class WideChoice(Paced):
    """An outer choice.

    Attributes
    ----------
    tables
        Of the forms that its stages may be of.
    layout
        Replicas, and where they are.
    further
        Microbatches of a replica but one: how often the largest load counts besides.
    devices
        That its plans take; 0 where nothing asks, so that plans with any number are in one choice.
    chunks
        Of each stage: 1, as its schedule is 1F1B.
    """

    tables: UnevenTables
    stages: int
    layout: Layout
    further: int
    devices: int = 0
    chunks: int = field(default=1, init=False)

    @property
    def replicas(self) -> int:
        """How many there are."""
        return self.layout.replicas

    @property
    def stride(self) -> int:
        """Devices from one replica to the next, of stages of the variant where their replicas are neighbours."""
        return self.layout.stride(self.variant.width)

    @property
    def variant(self) -> Variant:
        """The variant of the form with the most tensor ranks."""
        return max((shape.whole for shape in self.tables.shapes), key=lambda whole: whole.tensor)

    @property
    def outer(self) -> Outer:
        """What side constraints see of it."""
        return Outer(self.variant, self.stages, self.replicas)


def least_work(tables: UnevenTables) -> int:
    """Return what the loads of all stages add up to at least."""
    return int(np.minimum.reduce([form.work for form in tables.forms]).sum())


def least_of_forms(tables: UnevenTables) -> int:
    """Return a bound of all plans of some forms: that of all layouts is no less."""
    return min(least_work(tables), HARD_LIMIT - 1)


def most_stages(tables: UnevenTables, layout: Layout) -> int:
    """Return how many stages a layout has room for."""
    return min(tables.layers, layout.each // min(tables.widths))


def wide_choices(
    tables: UnevenTables, *, every: bool = False, by_devices: bool = False
) -> Iterator[tuple[int, WideChoice]]:
    """Yield the outer choices that are allowed (C4, C5, C9, C10), by ascending bounds.

    Parameters
    ----------
    every
        Yield also layouts in which all stages stand as in another.
    by_devices
        Tell plans apart that take different numbers of devices.
    """
    found = [
        (bound, at, count, each)
        for at, each in enumerate(layouts(tables, every=every))
        for count, bound in _bounds(tables, each)
    ]
    for bound, _, count, each in sorted(found, key=lambda one: one[:3]):
        further = _further(tables, each)
        if not by_devices:
            yield bound, WideChoice(tables, count, each, further)
            continue
        spots = Spots(tables, each, count)
        for devices in sorted({spots.used(at) for at in spots.reached(count)}):
            yield bound, WideChoice(tables, count, each, further, devices)


def layouts(tables: UnevenTables, *, every: bool) -> Iterator[Layout]:
    """Yield the layouts; with one replica, stages whose replicas are neighbours stand for both arrangements."""
    problem, devices, least = tables.problem, tables.devices, min(tables.widths)
    allowed = problem.choices.replicas
    for replicas in range(1, min(tables.microbatches, devices // least) + 1):
        if allowed is not None and replicas not in allowed:
            continue
        for group in groups_to_begin_with(problem.cluster.group_sizes, problem.cluster.devices):
            if every or group == 1 or any(width * replicas % group for width in tables.widths):
                yield Layout(replicas, "stage-major", group, devices)
        for apart in range(least, devices // (replicas - 1) + 1) if replicas > 1 else ():
            room = min(apart, devices - (replicas - 1) * apart)
            if room >= least and any(apart % width == 0 for width in tables.widths):
                yield Layout(replicas, "replica-major", apart, room)


def _bounds(tables: UnevenTables, layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield the numbers of stages of a layout, each with what its plans take at least."""
    allowed, total = tables.problem.choices.stages, least_work(tables)
    heaviest = max(int(np.minimum.reduce([form.work for form in tables.forms]).max()), _mean_of_devices(tables, layout))
    for count in range(1, most_stages(tables, layout) + 1):
        if allowed is None or count in allowed:
            largest = max(heaviest, -(-total // count))
            yield count, min(total + _further(tables, layout) * largest, HARD_LIMIT // 2)


def _mean_of_devices(tables: UnevenTables, layout: Layout) -> int:
    spread = sum(np.minimum.reduce([form.work * form.width for form in tables.forms]).tolist())
    return int(-(-spread // max(layout.each, 1)))


def _further(tables: UnevenTables, layout: Layout) -> int:
    return -(-tables.microbatches // layout.replicas) - 1
