"""Tables of plans whose stages have widths of their own: those of the forms that a stage may be of.

What a stage takes by itself is in the tables of its form. Here is what two stages have in common: the transfer
between them, and the line of devices.
"""

from __future__ import annotations

import numpy as np

from nest.cost.schedules import Schedule, in_flight
from nest.forms import Form
from nest.tables.grouped import NO_BOUNDARY, GroupedTables
from nest.tables.repeated import Passing
from nest.tables.shares import Option
from nest.units import Ints


class UnevenTables:
    """Tables of some forms that differ in tensor width, and in how far they are sharded inside, alone.

    Parameters
    ----------
    shapes, forms
        What stages may be of, and the tables of each.

    Attributes
    ----------
    devices, layers, problem
        As for each of them.
    microbatches
        Of an iteration.
    """

    def __init__(self, shapes: tuple[Form, ...], forms: tuple[GroupedTables, ...]) -> None:
        self.shapes, self.forms, first = shapes, forms, forms[0]
        self.problem, self.scale, self.layers = first.problem, first.scale, first.layers
        self.devices, self.microbatches = first.devices, self.problem.microbatches(shapes[0].whole)
        self.tied = any(form.tied.any() for form in forms)
        self._hops: dict[tuple[int, int, int], Ints] = {}

    @property
    def widths(self) -> tuple[int, ...]:
        """Devices of a stage of each form."""
        return tuple(shape.width for shape in self.shapes)

    def flying(self, replicas: int, from_end: int) -> int:
        """Return how many microbatches the ``from_end``-th stage from the end has in flight."""
        return in_flight(Schedule("1f1b"), from_end, 0, -(-self.microbatches // replicas))

    def passing(self, replicas: int, from_end: int) -> Passing:
        """Return the microbatches of the ``from_end``-th stage from the end."""
        buffers = self.problem.training.buffers_boundaries
        return Passing(self.flying(replicas, from_end), -(-self.microbatches // replicas) if buffers else 0)

    def options(self, replicas: int, stages: int) -> tuple[tuple[Option, ...], ...]:
        """Return how each of so many stages may shard, for each form."""
        return tuple(form.options(replicas, stages) for form in self.forms)

    def hops(self, before: int, after: int, level: int) -> Ints:
        """Ticks of the transfer at each cut between stages of two forms across a boundary of a level.

        Nothing where there is no boundary, nor before the first layer and after the last.
        """
        key = before, after, level
        if key not in self._hops:
            ticks = np.zeros(self.layers + 1, dtype=np.int64)
            if level != NO_BOUNDARY:
                ends = self.forms[before], self.forms[after]
                sizes = tuple(end.bytes_of(end.alive) for end in ends)
                variants = ends[0].variant, ends[1].variant
                times = ends[0].exchanges.resharding_s(variants, level, (sizes[0], sizes[1]))
                ticks[1:-1] = sum(self.scale.time.ticks_array(seconds)[1:-1] for seconds in times)
            self._hops[key] = ticks
        return self._hops[key]
