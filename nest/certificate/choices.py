"""The outer choices of a variant, and the arguments that rule most of them out without looking at a single stage."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from nest.certificate.stages import Stages
from nest.constraints import Outer
from nest.problem import Allowed
from nest.tables import Band, VariantTables


class Undecided(Exception):
    """The deadline has passed, or a side constraint that ties stages together breaks all faster plans found."""


class OuterChoices:
    """The outer choices of a variant, and what rules them out for a value."""

    def __init__(self, tables: VariantTables, value: int, deadline: float | None) -> None:
        self.tables, self.value, self.deadline, self.problem = tables, value, deadline, tables.problem
        self.filters = tables.filters
        self.blocks = tables.devices // tables.width
        unsharded = (1,) if 0 in self.problem.choices.zero else ()
        self.degrees = unsharded + self.problem.zero_degrees(tables.width)
        self._stages: dict[int, Stages] = {}

    def watch(self) -> None:
        """Raise `Undecided` after the deadline."""
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            raise Undecided

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Yield numbers of stages (C5) with the numbers of replicas (C4) that are admitted and have devices (C10)."""
        choices, microbatches = self.problem.choices, self.problem.training.microbatches
        for stages in allowed(choices.stages, self.tables.layers if self.degrees else 0):
            replicas = allowed(choices.replicas, min(microbatches, self.blocks // (stages * self.degrees[0])))
            replicas = [each for each in replicas if self.filters.outer(Outer(self.tables.variant, stages, each))]
            if replicas:
                yield stages, replicas

    def rounds(self, stages: int, replicas: int) -> int:
        """How often the largest load counts (D7)."""
        return -(-self.problem.training.microbatches // replicas) + stages - 1

    def fewest_replicas(self, stages: int, replicas: list[int]) -> list[int]:
        """Return the fewest replicas for each number of rounds; the others rule themselves out.

        They use more devices, see more levels, and synchronise over more. A side constraint may prefer their places.
        """
        if self.filters.by_place:
            return replicas
        return list({self.rounds(stages, count): count for count in reversed(replicas)}.values())

    def fast_enough(self, stages: int, replicas: int) -> bool:
        """Whether the mean load, with the least synchronisation, leaves an iteration below the value."""
        load = self._least_load(stages) * self.rounds(stages, replicas)
        if load >= self.value:
            return False
        height = self.tables.height(replicas, stages * self.degrees[0] * self.tables.width)
        return load + self.least_sync(stages, replicas, height) < self.value

    def _least_load(self, stages: int) -> int:
        """Return what the largest load is at least.

        ``S`` stages of load at most ``T`` run every layer; all but the last repeat what recomputation repeats, and
        what the last one spares is at most ``T`` again.
        """
        once, twice = self.tables.forward + self.tables.backward, self.tables.repeated.sum()
        mean, spared = -(-int(once.sum()) // stages), -(-int(once.sum() + twice) // (stages + 1))
        return max(int(once.max()), mean, spared)

    def least_sync(self, stages: int, replicas: int, height: int) -> int:
        """Return the synchronisation (D6) of the least parameters that the stage waited for can hold on a device.

        Where its share is divided, the devices of a replica together hold all parameters.
        """
        parameters, preset = self.tables.parameters, self.problem.preset
        weight = max(int(parameters.max()), -(-int(parameters.sum()) // stages))
        if not preset.sync_all_stages:
            weight = int(parameters[0])
        elif preset.sync_sharded and 3 in self.problem.choices.zero:
            weight = int(parameters.sum()) // (self.blocks // replicas)
            weight = max(weight - 1 - (weight >> 40), 0)  # so much less that no rounding of a quotient matters
        return int(self.tables.syncs(np.array([weight]), replicas, height)[0])

    def stages_within(self, load: int) -> Stages:
        """Return the stages that a load leaves any room for."""
        depth = max(1, self.tables.deepest_within(load))
        if depth not in self._stages:
            self._stages[depth] = Stages(Band(self.tables, depth), self.degrees, self.blocks)
        return self._stages[depth]


def allowed(choice: Allowed, most: int) -> list[int]:
    """Return the allowed numbers from 1 to a limit."""
    values = range(1, most + 1)
    return list(values) if choice is None else [value for value in values if value in choice]
