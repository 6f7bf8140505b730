"""What local side constraints leave of the stages of a band: the one place where the recursions filter."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.constraints import Mask, Outer, Run, Site
from nest.line import EVERY, Line
from nest.tables import Band, GroupedBand, GroupedTables, VariantTables
from nest.units import Ints

MOST_KEPT = 2**27
"""Entries of masks that are kept for reuse."""


class Role(NamedTuple):
    """What side constraints may know of a stage beyond its layers; 0 for what none of them looks at.

    Parameters
    ----------
    stages, position
        Of how many stages it is the how-manieth from the end of the pipeline.
    replicas
        Of the plan.
    """

    stages: int = 0
    position: int = 0
    replicas: int = 0


class StageMasks:
    """Masks over the stages ``[first, first + 1 + column)`` of a band; None where nothing is left out.

    Parameters
    ----------
    band
        Tables of the stages.
    """

    def __init__(self, band: Band | GroupedBand) -> None:
        self.tables, self.filters = band.tables, band.tables.filters
        self.variant, self.width = self.tables.variant, self.tables.width
        self._run = Run(band.first, np.minimum(band.end, self.tables.layers))
        self._inner: dict[tuple[int, int], Mask | None] = {}

    @cached_property
    def _by_layers(self) -> Mask | None:
        return self.filters.run(self.variant, self._run)

    def inner(self, role: Role) -> Mask | None:
        """Return the stages that may have a role, wherever they stand."""
        if not self.filters.by_stage:
            return self._by_layers
        key = role.stages, role.position
        if key not in self._inner:
            if len(self._inner) * self._run.end.size > MOST_KEPT:
                self._inner.clear()
            found = self.filters.stage(self.variant, role.stages, role.position, self._run)
            self._inner[key] = _both([self._by_layers, found])
        return self._inner[key]

    def uniform(self, role: Role) -> Mask | None:
        """Return the stages that may have a role in a pipeline whose stages are all as wide as the variant."""
        return self.at(role, (role.position - 1) * self.width, role.stages * self.width)

    def at(self, role: Role, start: int, stride: int, line: Line = EVERY) -> Mask | None:
        """Return the stages, as wide as the variant, that may have a role where replicas are a stride apart."""
        if not self.filters.by_place:
            return self.inner(role)
        outer = Outer(self.variant, role.stages, role.replicas)
        site = Site(role.position, np.full((1, 1), start), self.width, stride, line)
        return _both([self.inner(role), self.filters.place(outer, self._run, site)])

    def placed(self, role: Role, places: Ints, degree: int, stride: int) -> Mask | None:
        """Return which stages (first layer, column) of ``degree`` blocks may stand where: ``places`` are in blocks."""
        if not self.filters.by_place:
            return None
        run = Run(self._run.first[:, :, None], self._run.end[:, :, None])
        outer = Outer(self.variant, role.stages, role.replicas)
        site = Site(role.position, places * self.width, degree * self.width, stride * self.width)
        mask = self.filters.place(outer, run, site)
        return mask if mask is None else np.broadcast_to(mask, (*self._run.end.shape, len(places)))


def roles(tables: VariantTables | GroupedTables, stages: int, replicas: int) -> list[Role]:
    """Return what side constraints may know of the 1st, 2nd, ... stage from the end, wherever one looks."""
    filters = tables.filters
    if not (filters.by_stage or filters.by_place):
        return [Role()] * stages
    known = replicas if filters.by_replicas else 0
    return [Role(stages, position, known) for position in range(1, stages + 1)]


def _both(masks: list[Mask | None]) -> Mask | None:
    found = [mask for mask in masks if mask is not None]
    return np.logical_and.reduce(found) if found else None
