"""Lower bounds of what the holders of weights exchange, whichever ZeRO types the stages use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import EACH_ITERATION, EACH_MICROBATCH, Exchange
from nest.tables.grouped import GroupedTables, Holders
from nest.units import Floats, Ints

PLAIN, SCATTERING = (0, 1), (2, 3)
"""ZeRO types that exchange gradients once per iteration, and for each microbatch."""


class Exchanged(NamedTuple):
    """What holders exchange at least, in ticks, over all layers together.

    Parameters
    ----------
    sync
        Once per iteration, if a single stage held all layers and did not scatter gradients between. Of stages that hold
        parts of them each takes its part at least.
    extra
        For each microbatch, if all stages scatter gradients.
    """

    sync: Floats
    extra: Floats


def exchanged_anywhere(tables: GroupedTables, replicas: Ints, stages: Ints, *, by_stage: bool) -> Exchanged:
    """Return bounds for arrays of outer choices from how near to each other holders may be."""
    variant, per_second = tables.variant, tables.scale.time.ticks_per_s
    far = np.full_like(stages, variant.width) if by_stage else stages * variant.width
    sync, extra = np.zeros(len(stages)), np.zeros(len(stages))
    inside = variant.context * variant.expert, variant.context
    for weights, ranks in zip((tables.dense, tables.expert), inside, strict=True):
        group = replicas * ranks, np.full_like(far, variant.tensor) if ranks > 1 else far
        size = float(tables.bytes_of(weights.sum()))
        sync += _fastest_s(tables, EACH_ITERATION, PLAIN, group, size) * (per_second * tables.sync_left)
        extra += _fastest_s(tables, EACH_MICROBATCH, SCATTERING, group, size) * per_second
    return Exchanged(sync, extra)


def _fastest_s(
    tables: GroupedTables,
    by_type: Mapping[int, tuple[Exchange, ...]],
    zeros: tuple[int, ...],
    group: tuple[Ints, Ints],
    size: float,
) -> Floats:
    """Return the least time that some weights take under the fastest of some ZeRO types.

    Parameters
    ----------
    group
        How many hold copies, and how far apart at least.
    """
    ways = [
        [tables.exchanges.least_s(kind, *group, size * tables.times(part)) for kind, part in by_type[zero]]
        for zero in zeros
    ]
    fastest: Floats = np.min([np.sum(way, axis=0) for way in ways], axis=0)
    return fastest


def exchanged_at(tables: GroupedTables, holders: Iterable[Holders]) -> Exchanged:
    """Return bounds for stages with these holders of their weights.

    Times are concave in bytes, so that a part takes at least its part of the whole.
    """
    known, sync, extra = list(holders), 0, 0
    for own in (0, 1):
        whole = [np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)]
        whole[own] = (tables.dense, tables.expert)[own].sum(keepdims=True)
        sync += min(int(tables.sync(each, zero, whole[0], whole[1])[0]) for each in known for zero in PLAIN)
        extra += min(int(tables.extra_of(each, zero, own).sum()) for each in known for zero in SCATTERING)
    return Exchanged(np.array([float(sync)]), np.array([float(extra)]))
