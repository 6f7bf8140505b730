"""Which amounts of memory stages can take: where a search for the least amount does well to ask."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nest.problem import Problem
from nest.tables import Band, Tables, VariantTables
from nest.units import Ints, distinct

MOST_STAGES = 2**20
"""Runs of layers of which sizes are listed; with more, halving is as good."""

MOST_SIZES = 2**20
"""Sizes that are listed for one kind of sharding; with more, halving is as good."""


def sizes_between(problem: Problem, below: int, used: int, value: int) -> Ints | None:
    """Return the sizes strictly between two amounts that some stage can take, ascending, in quanta.

    Parameters
    ----------
    problem
        Whose side constraints allow no more than ``used``.
    value
        Plans of so many ticks or more are of no interest.

    Returns
    -------
    array or None
        None where there are too many to list, as there are where what the backward pass needs at its peak, and how many
        layers recompute, make the sizes.
    """
    found = [np.zeros(0, dtype=np.int64)]
    problem = problem.built(next(problem.cluster.combinations()))  # what links are decides on no size
    every = Tables.of(problem)
    if every.grouped_prices:
        return None
    for tables in every.variants:
        depth = max(1, tables.deepest_within(_longest(tables, value)))
        if tables.layers * depth > MOST_STAGES:
            return None
        for resident, stash in _kinds(tables.band(depth)):
            sizes = _sizes(resident, stash, tables.layers, below, used)
            if sizes is None:
                return None
            found.append(sizes)
    return distinct(np.concatenate(found))


def _longest(tables: VariantTables, value: int) -> int:
    """Return a load that no stage exceeds in a plan that takes less than a value: most replicas, least rounds (D7)."""
    microbatches = tables.problem.training.microbatches
    replicas = max(1, min(microbatches, tables.devices // tables.width))
    return (value - 1) // -(-microbatches // replicas)


def _kinds(band: Band) -> Iterator[tuple[Ints, Ints]]:
    """Yield what runs of layers hold at rest, and for each further microbatch in flight, under each sharding (C7)."""
    problem, zero = band.tables.problem, band.tables.problem.choices.zero
    ways = [(0, 1)] if 0 in zero else []
    ways += [(each, degree) for degree in problem.zero_degrees(band.tables.width) for each in sorted(zero - {0})]
    stash = band.stash[band.valid]
    for each, degree in ways:
        yield band.resident(each, degree)[band.valid], stash


def _sizes(resident: Ints, stash: Ints, most: int, below: int, used: int) -> Ints | None:
    """Return ``resident + further * stash`` for all ``further < most`` with which it lies between, None if too many."""
    step = np.maximum(stash, 1)
    first = np.maximum(-(-(below + 1 - resident) // step), 0)
    last = np.minimum((used - 1 - resident) // step, np.where(stash > 0, most - 1, 0))
    count = np.maximum(last - first + 1, 0)
    if count.sum() > MOST_SIZES:
        return None
    begin = np.repeat(np.cumsum(count) - count, count)
    further = np.arange(len(begin)) - begin + np.repeat(first, count)
    return distinct(np.repeat(resident, count) + further * np.repeat(stash, count))
