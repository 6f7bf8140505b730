"""Outer choices of plans whose stages have tensor widths of their own, and lower bounds of what they can reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import lcm

import numpy as np

from nest.dp.uneven_lattice import Layout
from nest.tables import UnevenTables, prefix
from nest.uneven import groups_to_begin_with
from nest.units import LONGEST, NEVER, Ints

PRECISE = 256
"""Bounds of the slowest load are as near to each other as this part of them."""


@dataclass(frozen=True, slots=True)
class UnevenChoice:
    """An outer choice of some forms, for all numbers of stages.

    Attributes
    ----------
    further
        Microbatches of a replica but one: how often the largest load counts besides.
    """

    replicas: int
    layout: Layout
    further: int


class UnevenBounds:
    """Lower bounds for some forms.

    Parameters
    ----------
    tables
        Of the forms.
    """

    def __init__(self, tables: UnevenTables) -> None:
        self.tables = tables
        self.work = [prefix(form.work) for form in tables.forms]
        least: Ints = np.minimum.reduce([form.work for form in tables.forms])
        self.total, self.heaviest = int(least.sum()), int(least.max())
        self._slowest: dict[tuple[int, tuple[int, ...]], int] = {}

    @cached_property
    def shared(self) -> int:
        """Device-ticks of all layers at least: each by the form in which its work, times the devices, is the least."""
        each = np.minimum.reduce([form.work * form.width for form in self.tables.forms])
        return int(each.sum())

    def objective(self, choice: UnevenChoice) -> int:
        """Return a bound of the objective of all plans of a choice."""
        slowest = self.slowest(choice)
        return NEVER if slowest >= LONGEST else min(self.total + choice.further * slowest, NEVER)

    def slowest(self, choice: UnevenChoice) -> int:
        """Return a load that some stage reaches: with less, stages that hold all layers take too many devices."""
        room, forms = self.room(choice), self._forms(choice)
        key = room, forms
        if key not in self._slowest:
            low, high = max(self.heaviest, -(-self.shared // max(room, 1))) - 1, LONGEST
            if self._behind(high - 1, forms)[0] > room:
                low = LONGEST - 1
            while low + 1 < LONGEST and high - low > max(low // PRECISE, 1):
                middle = (low + high) // 2 if high < 4 * low else min(2 * max(low, 0) + 1, high - 1)
                low, high = (low, middle) if self._behind(middle, forms)[0] <= room else (middle, high)
            self._slowest[key] = low + 1
        return self._slowest[key]

    def room(self, choice: UnevenChoice) -> int:
        """Return how many devices the stages of a replica may have together."""
        return choice.layout.room // choice.replicas if choice.layout.by_stage else choice.layout.room

    def needed(self, choice: UnevenChoice, load: int) -> tuple[Ints, Ints]:
        """Return the fewest devices of a replica for the layers before each cut, and for those from it on.

        Parameters
        ----------
        load
            No stage is slower.
        """
        forms = self._forms(choice)
        return np.array(self._before(load, forms)), np.array(self._behind(load, forms))

    def _forms(self, choice: UnevenChoice) -> tuple[int, ...]:
        apart = 0 if choice.layout.by_stage else choice.layout.apart
        return tuple(at for at, width in enumerate(self.tables.widths) if apart % width == 0)

    def _behind(self, load: int, forms: tuple[int, ...]) -> list[int]:
        """Return the fewest devices for the layers from each cut on: the farther a stage reaches, the fewer follow."""
        reach = [np.searchsorted(self.work[at], self.work[at][:-1] + load, side="right") - 1 for at in forms]
        fewest = [NEVER] * self.tables.layers + [0]
        for first in range(self.tables.layers - 1, -1, -1):
            fewest[first] = self._fewest(forms, first, [int(each[first]) for each in reach], fewest)
        return fewest

    def _before(self, load: int, forms: tuple[int, ...]) -> list[int]:
        """Return the fewest devices for the layers before each cut."""
        reach = [np.searchsorted(self.work[at], self.work[at][1:] - load, side="left") for at in forms]
        fewest = [0] + [NEVER] * self.tables.layers
        for end in range(1, self.tables.layers + 1):
            fewest[end] = self._fewest(forms, end, [int(each[end - 1]) for each in reach], fewest)
        return fewest

    def _fewest(self, forms: tuple[int, ...], cut: int, others: list[int], fewest: list[int]) -> int:
        """Return the fewest devices at a cut, given up to which other cut a stage of each form reaches."""
        widths = self.tables.widths
        found = (widths[form] + fewest[other] for form, other in zip(forms, others, strict=True) if other != cut)
        return min(min(found, default=NEVER), NEVER)


def uneven_choices(tables: UnevenTables) -> Iterator[UnevenChoice]:
    """Yield the outer choices that devices and choices leave.

    With one replica, stages whose replicas are neighbours stand for both arrangements.
    """
    problem, devices, least = tables.problem, tables.devices, min(tables.widths)
    allowed, sizes = problem.choices.replicas, problem.cluster.group_sizes
    for replicas in range(1, min(tables.microbatches, devices // least) + 1):
        if allowed is not None and replicas not in allowed:
            continue
        further = -(-tables.microbatches // replicas) - 1
        for group in groups_to_begin_with(sizes, problem.cluster.devices):
            if group == 1 or any(width * replicas % group for width in tables.widths):
                yield UnevenChoice(replicas, Layout("stage-major", group, devices), further)
        for apart in _strides(tables, replicas):
            room = min(apart, devices - (replicas - 1) * apart)
            yield UnevenChoice(replicas, Layout("replica-major", apart, room), further)


def _strides(tables: UnevenTables, replicas: int) -> list[int]:
    """Return how far apart replicas may be that are not neighbours, or whose stages may differ in width."""
    if replicas == 1:
        return []
    most = (tables.devices - min(tables.widths)) // (replicas - 1)
    units = {lcm(width, other) for width in tables.widths for other in tables.widths}
    return [apart for apart in range(1, most + 1) if any(apart % unit == 0 for unit in units)]
