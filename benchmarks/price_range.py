"""Between which prices a plan lies of which only its shape is known, and what another evaluation says that it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nest.cost.schedule import iteration
from nest.problem import Problem, Variant
from nest.tables import Band, Tables
from nest.units import NEVER, Ints

Mask: TypeAlias = npt.NDArray[np.bool_]

SAME = 1e-9
"""Relative difference between values in floating point and in ticks."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a plan: its variant, stages and replicas."""

    variant: Variant
    stages: int
    replicas: int

    def only(self, problem: Problem) -> Problem:
        """Return the problem whose plans all have this shape."""
        return problem.with_choices(
            tensor=frozenset({self.variant.tensor}),
            stages=frozenset({self.stages}),
            replicas=frozenset({self.replicas}),
        )

    def __str__(self) -> str:
        return f"{self.variant.tensor}, {self.stages}, {self.replicas}"


class StagePrices:
    """What every stage of the plans of a shape costs, in ticks of a problem.

    Attributes
    ----------
    loads
        By first layer and layers less one, at the 1st, 2nd, ... place from the end; `NEVER` where memory does not fit.
    syncs, ends
        Synchronisation, and where a stage ends, by first layer and layers less one.
    """

    def __init__(self, problem: Problem, shape: Shape) -> None:
        tables = Tables.of(shape.only(problem)).variants[0]
        band = tables.band(tables.deepest)
        self.rounds = iteration(1, problem.training.microbatches, shape.replicas, shape.stages, 0)
        self.loads = [
            np.where(band.most_in_flight(0, 1) >= place, slowest(band, pairs), NEVER)
            for place, pairs in enumerate(levels(problem, shape), start=1)
        ]
        height = tables.height(shape.replicas, shape.stages * shape.variant.width)
        self.syncs = tables.syncs(band.parameters.ravel(), shape.replicas, height).reshape(band.parameters.shape)
        self.ends = np.minimum(band.end, tables.layers)


def slowest(band: Band, pairs: Iterable[tuple[int, int]]) -> Ints:
    """Return the load of every stage in the slowest of the replicas that see these levels of entry and exit."""
    load: Ints = np.maximum.reduce([band.forward(entry) + band.backward(out) for entry, out in pairs])
    return load


def levels(problem: Problem, shape: Shape) -> list[set[tuple[int, int]]]:
    """Return the levels of entry and exit that replicas see at the 1st, 2nd, ... place from the end (C9, D1)."""
    width, stages, preset = shape.variant.width, shape.stages, problem.preset
    starts = problem.cluster.starts(shape.replicas if preset.all_replicas else 1, stages * width)
    lower = starts + width * np.arange(stages - 1)[:, None]
    upper = lower + (width if preset.boundary == "first" else 2 * width - 1)
    between, none = problem.cluster.spans(lower, upper).tolist(), [0] * len(starts)
    pairs = zip([*between, none], [none, *between], strict=True)
    return [set(zip(entry, out, strict=True)) for entry, out in pairs]


def price_range(shape: Shape, own: Problem, true: Problem, value_s: float) -> tuple[int, int] | None:
    """Return bounds on the true price of every plan of a shape that costs ``value_s`` under the artifact's evaluation.

    No stage of such a plan has a larger load than is left beside the synchronisation of the first stage, and one has
    just that load. The upper bound adds the largest true load and the largest true synchronisation of all stages that
    such a plan can have, the lower one the least largest true load and the synchronisation of the first stage.

    Returns
    -------
    tuple of int, or None
        Ticks of ``true``; None where no plan costs so much.
    """
    believed, real = StagePrices(own, shape), StagePrices(true, shape)
    value, bounds = value_s / Tables.of(own).scale.time.seconds(1), []
    for column in range(len(believed.syncs[0])):
        used = stages_within(believed, column, value)
        if used:
            sync = max(int(real.syncs[use].max()) for use in used)
            most = max(int(load[use].max()) for load, use in zip(real.loads, used, strict=True))
            least = least_load(real, used)
            bounds.append((real.rounds * least + int(real.syncs[0, column]), real.rounds * most + sync))
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None


def stages_within(prices: StagePrices, column: int, value: float) -> list[Mask]:
    """Return masks of the stages, at each place from the end, of plans that cost ``value``; none if there is no plan.

    Parameters
    ----------
    column
        That of the first stage of the pipeline, its layers less one.
    """
    low, high = ((value * (1 + sign * SAME) - int(prices.syncs[0, column])) / prices.rounds for sign in (-1, 1))
    used = on_a_way([load <= high for load in prices.loads], prices.ends, column)
    costs = any((load[use] >= low).any() for load, use in zip(prices.loads, used, strict=True))
    return used if costs else []


def on_a_way(allowed: Sequence[Mask], ends: Ints, column: int) -> list[Mask]:
    """Return which of the allowed stages are on a way from the end of the model to its start."""
    layers = len(ends)
    closing = np.zeros_like(allowed[-1])
    closing[0, column] = allowed[-1][0, column]
    behind, reached = np.arange(layers + 1) == layers, []
    for place in [*allowed[:-1], closing]:
        reached.append(place & behind[ends])
        behind = np.append(reached[-1].any(axis=1), False)
    before, used = np.arange(layers + 1) == 0, []
    for place in reversed(reached):
        used.append(place & before[:-1, None])
        before = np.isin(np.arange(layers + 1), ends[used[-1]])
    return used[::-1]


def least_load(prices: StagePrices, used: Sequence[Mask]) -> int:
    """Return the least largest load of the plans whose stages are among some."""
    layers = len(prices.ends)
    best = np.where(np.arange(layers + 1) == layers, 0, NEVER)
    for load, use in zip(prices.loads, used, strict=True):
        best = np.append(np.where(use, np.maximum(load, best[prices.ends]), NEVER).min(axis=1), NEVER)
    return int(best[0])
