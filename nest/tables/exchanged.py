"""Lower bounds of what the holders of weights exchange, whichever ZeRO types the stages use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import EACH_ITERATION, EACH_MICROBATCH, Exchange
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Holders, Option
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


def exchanged_anywhere(
    tables: GroupedTables, replicas: Ints, stages: Ints, types: tuple[int, ...], *, by_stage: bool
) -> Exchanged:
    """Return bounds for arrays of outer choices from how near to each other holders may be.

    Groups that each share the weights between them take no less than an all-reduce of all, as it is bounded here: what
    they scatter and what they add across are all gradients together. Where gradients are scattered for each microbatch,
    at least two ranks share dense weights, and an expert's may be whole.
    """
    variant, per_second = tables.variant, tables.scale.time.ticks_per_s
    far = np.full_like(stages, variant.width) if by_stage else stages * variant.width
    sync, extra = np.zeros(len(stages)), np.zeros(len(stages))
    inside = variant.context * variant.expert, variant.context
    for own, (weights, ranks) in enumerate(zip((tables.dense, tables.expert), inside, strict=True)):
        apart = np.full_like(far, variant.tensor) if ranks > 1 else far
        size = float(tables.bytes_of(weights.sum()))
        group, pair = replicas * ranks, np.full_like(far, 1 if own and ranks == 1 else 2)
        sync += _fastest_s(tables, EACH_ITERATION, PLAIN, (group, apart), size) * (per_second * tables.sync_left)
        if not any(zero in PLAIN for zero in types):
            extra += _fastest_s(tables, EACH_MICROBATCH, SCATTERING, (pair, apart), size) * per_second
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


def exchanged_at(tables: GroupedTables, holders: Iterable[Holders], options: Iterable[Option]) -> Exchanged:
    """Return bounds for stages with these holders of their weights, which shard in one of some ways.

    Times are concave in bytes, so that a part takes at least its part of the whole. A type that scatters gradients for
    each microbatch stands for type 1 over the same groups, see `SumBounds.objective`.
    """
    known, ways, sync, extra = list(holders), list(options), 0, 0
    plain = {(tables.shares(each, way.together), min(way.zero, 1)) for each in known for way in ways}
    scattering = {(tables.shares(each, way.together), way.zero) for each in known for way in ways if way.zero >= 2}
    for own, weights in enumerate((tables.dense, tables.expert)):
        whole = weights.sum(keepdims=True)
        sync += min(int(tables.sync_of(shares, zero, own, whole)[0]) for shares, zero in plain)
        if scattering and all(way.zero >= 2 for way in ways):
            extra += min(int(tables.extra_of(shares, zero, own).sum()) for shares, zero in scattering)
    return Exchanged(np.array([float(sync)]), np.array([float(extra)]))


def least_exchanged(tables: GroupedTables, option: Option) -> Ints:
    """Return the ticks that each layer exchanges for each microbatch at least, ranks being as near as they may be.

    The bounds are those of sums, in which each of ``N`` ranks sends ``(N - 1) / N`` of the bytes. Up to six times may
    each be rounded down.
    """
    ranks, ticks = tables.ranks(option.together), np.zeros(tables.layers)
    for weights, count, rates in zip((tables.dense, tables.expert), ranks, tables.least_rates, strict=True):
        ticks += weights * (rates[option.zero] * (count - 1) / count)
    least: Ints = np.maximum(np.floor(ticks * (1 - 1e-9)) - 6, 0).astype(np.int64)
    return least
