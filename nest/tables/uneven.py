"""Tables of plans whose stages have tensor widths of their own: those of the variants that a stage may be of.

What a stage takes by itself is in the tables of its variant. Here is what two stages have in common: the transfer
between them, and the line of devices.
"""

from __future__ import annotations

import numpy as np

from nest.tables.grouped import NO_BOUNDARY, GroupedTables
from nest.units import Ints


class UnevenTables:
    """Tables of some variants that differ in tensor width alone.

    Parameters
    ----------
    forms
        Tables of each, by ascending width.

    Attributes
    ----------
    devices, microbatches, layers, problem
        As for each of them.
    """

    def __init__(self, forms: tuple[GroupedTables, ...]) -> None:
        self.forms, first = forms, forms[0]
        self.problem, self.scale, self.layers = first.problem, first.scale, first.layers
        self.devices, self.microbatches = first.devices, first.microbatches
        self.tied = any(form.tied.any() for form in forms)
        self._hops: dict[tuple[int, int, int], Ints] = {}

    @property
    def widths(self) -> tuple[int, ...]:
        """Devices of a stage of each form."""
        return tuple(form.width for form in self.forms)

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
