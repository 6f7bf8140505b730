"""Which numbers of stages and replicas an outer choice may have under the objective `sum`."""

from __future__ import annotations

import numpy as np

from nest.problem import Allowed
from nest.tables import GroupedTables
from nest.units import Ints


class Numbers:
    """Numbers of stages and replicas of one variant that devices and choices leave.

    Attributes
    ----------
    blocks
        Devices over the width of the variant.
    stages, replicas
        Ascending.
    first, last
        Places in ``replicas`` of each run of numbers that leave a replica equally many microbatches.
    """

    def __init__(self, tables: GroupedTables) -> None:
        self.blocks, choices = tables.devices // tables.width, tables.problem.choices
        self.stages = _allowed(choices.stages, min(tables.layers, self.blocks))
        self.replicas = _allowed(choices.replicas, min(tables.microbatches, self.blocks))
        each = -(-tables.microbatches // self.replicas)
        ends = np.flatnonzero(np.diff(each, append=0))
        self.first, self.last = np.concatenate([[0], ends[:-1] + 1])[: len(ends)].astype(np.int64), ends


def _allowed(choice: Allowed, most: int) -> Ints:
    counts: Ints = np.arange(1, most + 1, dtype=np.int64)
    return counts if choice is None else counts[np.isin(counts, list(choice))]
