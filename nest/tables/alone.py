"""What a layer takes as a stage of its own, the least that a stage takes that holds it."""

from __future__ import annotations

import numpy as np

from nest.cost.memory import state
from nest.problem import exchanging_type
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Option
from nest.units import NEVER, Ints


def alone(tables: GroupedTables, option: Option) -> Ints:
    """Return the quanta of each layer as a stage with one microbatch in flight, whatever of it recomputes.

    No stage that holds it takes less. One that holds the table of which the layer has a copy has the table's weights in
    the place of the copy; and where every stage has to recompute, others may do so for a layer that would keep more.
    """
    ranks, copies = tables.ranks(option.together), tables.copies
    table = tables.dense[tables.table] if tables.tied.any() else 0
    dense = np.where(tables.tied > 0, np.minimum(tables.dense, tables.least_dense + table), tables.dense)
    parts = zip((dense, tables.expert), ranks, strict=True)
    held = sum(state(weights, copies, option.zero, degree) for weights, degree in parts)
    ways = [tables.activations + tables.working, *(each.kept + each.working for each in tables.repeating)]
    least: Ints = np.minimum.reduce(ways)
    peak = tables.whole(ranks, option.zero) + least
    stepping = copies.stepped * tables.stepped_on(ranks, option.zero, dense, tables.expert)
    need: Ints = held + np.maximum(peak, stepping)
    return need


def unfit(tables: GroupedTables, sharing: int) -> np.ndarray:
    """Return which layers fit no device, where so many replicas may share their weights at most: 0 for no sharding.

    Of each type of ZeRO the largest groups leave the most, or one replica, in which weights may be whole anyway.
    """
    training, most = tables.problem.training, np.full(tables.layers, True)
    types = {exchanging_type(zero, count, training) for zero in tables.problem.choices.zero for count in (1, 2)}
    for zero in types:
        for together in {min(sharing, 1), sharing} if zero else {1}:
            if not zero or tables.ranks(together).dense > 1:
                most &= alone(tables, Option(zero, together)) > tables.capacity
    return most


def least_sharing(tables: GroupedTables) -> int:
    """Return how many replicas have to share their weights so that each layer fits a device, `NEVER` if none do.

    More than two fit no less than two do.
    """
    low, high = 1, min(tables.microbatches, tables.devices // tables.width)
    if not unfit(tables, 0).any():
        return 0
    if not unfit(tables, 1).any():
        return 1
    if unfit(tables, high).any():
        return NEVER
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if unfit(tables, middle).any() else (low, middle)
    return high
