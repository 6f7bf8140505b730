"""Lower bounds of what the holders of weights exchange, whichever ZeRO types the stages use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import BACKWARD, EACH_MICROBATCH, FORWARD, ZeroExchanges, each_iteration
from nest.cost.overlap import MILLION, left
from nest.problem import HELD
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Holders, Option
from nest.units import Floats, Ints

PLAIN, SCATTERING = (0, 1, HELD), (2, 3)
"""Types that exchange gradients once per iteration, and for each microbatch."""


class Exchanged(NamedTuple):
    """What holders exchange at least, in ticks, over all layers together.

    Parameters
    ----------
    sync
        Once per iteration, if a single stage held all layers and did not scatter gradients between. Of stages that hold
        parts of them each takes its part at least.
    extra
        For each microbatch, if all stages scatter gradients.
    step
        The optimizer's step, likewise.
    """

    sync: Floats
    extra: Floats
    step: Floats


def exchanged_anywhere(
    tables: GroupedTables, replicas: tuple[Ints, Ints], stages: Ints, types: tuple[int, ...], *, by_stage: bool
) -> Exchanged:
    """Return bounds for arrays of ranges of outer choices, from the fewest replicas to the most.

    They come from how near to each other holders may be, and the fewest exchange the least.

    Groups that each share the weights between them take no less than an all-reduce of all, as it is bounded here: what
    they scatter and what they add across are all gradients together. Where gradients are scattered for each microbatch,
    at least two ranks share dense weights, and an expert's may be whole.
    """
    variant, per_second = tables.variant, tables.scale.time.ticks_per_s
    far = np.full_like(stages, variant.width) if by_stage else stages * variant.width
    sync, extra, step = (np.zeros(len(stages)) for _ in range(3))
    for own, weights in enumerate((tables.least_dense, tables.expert)):
        copies = tables.problem.copies(variant, expert=own == 1)
        ranks = copies[0]
        apart = np.full_like(far, copies[1]) if ranks > 1 else far
        size = float(tables.bytes_of(weights.sum()))
        group, pair = replicas[0] * ranks, np.full_like(far, 1 if own and ranks == 1 else 2)
        nearest = _fastest_s(tables, each_iteration(tables.problem.training), PLAIN, (group, apart), size)
        sync += np.maximum(nearest, _across_s(tables, (group, replicas[1] * ranks), copies, far, size))
        step += size * tables.step_s_per_byte / (replicas[1] * ranks if any(types) else 1)
        if not any(zero in PLAIN for zero in types):
            extra += _fastest_s(tables, EACH_MICROBATCH, SCATTERING, (pair, apart), size)
    sync *= tables.problem.preset.sync_factor
    return Exchanged(_left(tables, sync * per_second), _left(tables, extra * per_second), step * per_second)


def _left(tables: GroupedTables, ticks: Floats) -> Floats:
    """Return what is left of exchanges at least, of all stages together.

    A stage hides no more than a part of its exchanges, and than of its passes, and neither do all: what a stage hides
    behind passes that it repeats, these take themselves.
    """
    gained = tables.hidden / MILLION
    least: Floats = np.maximum(ticks * (1 - gained), ticks - gained * float(tables.work.sum()))
    return least


def _fastest_s(
    tables: GroupedTables,
    by_type: ZeroExchanges,
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


def _across_s(
    tables: GroupedTables, count: tuple[Ints, Ints], copies: tuple[int, int], stride: Ints, size: float
) -> Floats:
    """Return times below which the holders of weights do not get, by what the levels carry that they must use.

    Parameters
    ----------
    count
        Fewest and most holders.
    copies, stride
        Holders in a block and how far each is from the next, and devices from block to block at least.

    Notes
    -----
    Where a group of some size has no room for all ``N`` holders, one that has the fewest has ``h``: as many as it has
    room for, and half of them, at most. What leaves it takes levels beyond it. A reduce-scatter or all-gather of ``b``
    bytes takes ``b (1 / h - 1 / N)`` of the fastest of these levels at least, whatever the algorithm, and an all-reduce
    ``b / h``. Where groups of holders share the weights between them, this holds for all that they exchange: if each
    rank has copies of its share within and beyond, sums across carry ``b / z`` of a ``z``-th part of the holders; else
    groups reach beyond themselves, and what they scatter, gather and sum across is no less.
    """
    gradients, weights = size * tables.times("gradients"), size * tables.times("weights")
    found = np.zeros(len(stride))
    for speed, room in _outward(tables, stride, copies):
        fewest = np.clip(2 * room, *count)  # the number of holders for which the second takes the least
        scattered = 1 / np.minimum(room, fewest / 2) - 1 / fewest
        summed = 1 / np.minimum(room, count[1] / 2)
        taken = np.minimum(gradients * summed, (gradients + weights) * scattered) / speed
        found = np.where(room < count[0], np.maximum(found, taken), found)
    return found


def _outward(tables: GroupedTables, stride: Ints, copies: tuple[int, int]) -> Iterator[tuple[float, Ints]]:
    """Yield the best speed from each level on outwards, and for how many holders one of the groups inside has room.

    Parameters
    ----------
    stride, copies
        Devices from block to block at least; holders in each, and how far each is from the next.
    """
    ranks, apart = copies
    room, speeds = np.ones_like(stride), tables.exchanges.best_speeds
    outwards = np.maximum.accumulate(speeds[::-1])[::-1].tolist()
    for group, speed in zip(tables.problem.cluster.group_sizes, outwards, strict=True):
        yield speed, room
        within = ranks if group >= tables.width else min(ranks, -(-group // apart))
        room = -(-group // stride) * within


def exchanged_at(tables: GroupedTables, holders: Iterable[Holders], options: Iterable[Option]) -> Exchanged:
    """Return bounds for stages with these holders of their weights, which shard in one of some ways.

    Times are concave in bytes, so that a part takes at least its part of the whole. A type that scatters gradients for
    each microbatch is taken to scatter them once per iteration over the same groups, see `SumBounds.objective`.
    """
    known, ways, sync, extra, step = list(holders), list(options), 0, 0, 0.0
    plain = {(tables.shares(each, way.together), way.zero if way.zero < 2 else HELD) for each in known for way in ways}
    scattering = {
        (tables.shares(each, way.together), way.zero) for each in known for way in ways if way.zero in SCATTERING
    }
    for own, weights in enumerate((tables.least_dense, tables.expert)):
        whole = weights.sum(keepdims=True)
        sync += min(int(tables.sync_of(shares, zero, own, whole)[0]) for shares, zero in plain)
        if scattering and all(way.zero in SCATTERING for way in ways):
            extra += min(int(tables.extra_of(shares, zero, own).sum()) for shares, zero in scattering)
        ranks = max(tables.ranks(way.together)[own] if way.zero else 1 for way in ways)
        step += float(tables.bytes_of(whole)[0]) / ranks * tables.step_s_per_byte
    step *= tables.scale.time.ticks_per_s
    once, each = (_left(tables, np.array([float(ticks)])) for ticks in (sync, extra))
    return Exchanged(once, each, np.array([step]))


def least_exchanged(tables: GroupedTables, options: Sequence[Option]) -> tuple[Ints, Ints]:
    """Return the ticks that each layer exchanges for each microbatch at least, twice: a row for each way to shard.

    At first only what computation loses to exchanges is left where it hides them; then each layer hides what its own
    passes hide, nothing of it being computed again. Of type 2, which scatters the gradients of all layers of a stage
    behind one backward pass, the latter may be less than nothing; those of a stage are not.
    """
    gained, sent = tables.hidden / MILLION, _sent(tables, options)
    always, beside = np.maximum(_surely((sent[0] + sent[1]) * (1 - gained)), 0), np.zeros_like(sent[0])
    for ticks, own in zip(sent, (tables.forward, tables.backward), strict=True):
        beside += ticks - gained * np.minimum(ticks, own)
    scattering = np.array([option.zero == 2 for option in options])[:, None]
    beside = np.where(scattering, sent[1] - gained * tables.backward, np.maximum(beside, 0))
    return always, _surely(beside)


def uncovered(tables: GroupedTables, again: Ints) -> Ints:
    """Return what ticks of computation add to a stage at least if all of them run beside its exchanges."""
    return left(again, again, tables.hidden)


def _surely(ticks: Floats) -> Ints:
    """Return ticks rounded down, less the six times that may each be rounded."""
    least: Ints = np.floor(ticks - np.abs(ticks) * 1e-9).astype(np.int64) - 6
    return least


def _sent(tables: GroupedTables, options: Sequence[Option]) -> tuple[Floats, Floats]:
    """Return the ticks in which each layer's exchanges of both passes are sent at least, hidden or not.

    The bounds are those of sums, in which each of ``N`` ranks sends ``(N - 1) / N`` of the bytes; where a group has no
    room for all ranks, what `_across_s` says leaves it. The time to launch is left out: all bytes of a layer share it.
    """
    once = np.zeros((len(options), tables.layers))
    ranks = np.array([tables.ranks(option.together) for option in options], dtype=np.int64).reshape(-1, 2)
    for own, (weights, counts) in enumerate(zip((tables.dense, tables.expert), ranks.T, strict=True)):
        apart = tables.problem.copies(tables.variant, expert=own == 1)[1]
        once += weights * _s_per_byte(tables, counts, (tables.ranks(1)[own], apart))[:, None]
    once *= tables.scale.time.ticks_per_s / tables.scale.quanta_per_byte
    forward, backward = (
        np.array([float(sum(tables.times(part) for _, part in by_type[option.zero])) for option in options])[:, None]
        for by_type in (FORWARD, BACKWARD)
    )
    return once * forward, once * backward


def _s_per_byte(tables: GroupedTables, counts: Ints, copies: tuple[int, int]) -> Floats:
    """Return the seconds for each byte that so many ranks gather or scatter at least, some of them in a block."""
    found = np.zeros(len(counts))
    for speed, room in _outward(tables, np.array([tables.width]), copies):
        taken = (1 / np.minimum(room, counts / 2) - 1 / counts) / speed
        found = np.where(room < counts, np.maximum(found, taken), found)
    return found
