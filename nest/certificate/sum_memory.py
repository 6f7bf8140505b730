"""What the memory of a pipeline's first stages says about an outer choice under the objective `sum`.

If no load is above a cap ``T``, the last ``j`` stages do no more than ``j T`` of the work. So a layer with more than
that in it and behind it, in all layers that wait for it,

- is in one of the first ``S - j`` stages, as what waits for it is in none before: those together hold at least the
  layers of which this is so. With the layers ordered by what is behind them, most first, they are the first ``u``: of a
  chain, in its own order;
- has ``min(m, j + 1)`` microbatches in flight or more (C11), with the largest ``j`` of which it is so; under GPipe it
  has ``m``.

What these layers ask for when a backward pass begins, before anything is freed, beyond the memory of ``S - j`` devices,
the *excess*, has to be spared, and that takes time:

- Recomputation spares what a layer keeps of a microbatch, as often as it is in flight, ``min(m, S)`` times at
  most, ``m`` under GPipe, and takes the ticks of the layer.
- ZeRO of types 2 and 3 spares parts of gradients and weights. Of ``n`` ranks each spares ``(n - 1) / n`` of them, and
  such a part of what is sent for them has to come over its links for every microbatch, no faster than over the fastest.
  Where computation hides that, it still loses the tax. Types 0 and 1 take no time in loads, nor does type 3 of a
  pipeline that holds what it gathers; type 1 over all ranks asks for the least of them, but for weights that are held
  with fewer bytes than they have.

So the loads of the first ``S - j`` stages add up to the work of these ``u`` and to the excess at the cheapest of these
rates, and the largest is no less than their mean. Nor is the excess more than all that can be spared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nest.cost.overlap import MILLION
from nest.presets import ScheduleName
from nest.tables import GroupedTables
from nest.tables.shares import Option
from nest.units import LONGEST, Floats, Ints

SCATTERING = (2, 3)
"""Types of ZeRO that exchange for every microbatch."""

SURE = 1 - 1e-9
"""What sums are multiplied with that floating-point numbers may have made too large."""


MANY = 2.0**60
"""Bytes beside whose time that to launch is nothing."""

ROUNDED = 3
"""Ticks by which up to six exchanges of a layer, each rounded by itself, are shorter at most."""


class Spared(NamedTuple):
    """What memory costs at least.

    Attributes
    ----------
    ticks
        In the loads of all stages together beyond the work.
    largest
        Ticks of the largest load.
    impossible
        Where the layers do not fit.
    """

    ticks: Floats
    largest: Floats
    impossible: np.ndarray


class Memory:
    """The memory of a variant's layers.

    Parameters
    ----------
    tables
        Of the variant.
    schedule
        Which says how many microbatches are in flight.
    """

    def __init__(self, tables: GroupedTables, schedule: ScheduleName = "1f1b") -> None:
        self.tables, self.schedule, self.types = tables, schedule, tables.problem.choices.zero
        behind = _behind(tables)
        self.order = np.argsort(-behind, kind="stable")
        self.before = np.cumsum(tables.work[self.order]).astype(np.float64)
        self.behind = behind[self.order].astype(np.float64)
        plain, again = "none" in tables.kinds, tables.repeating
        self.kept = tables.activations if plain else tables.least_kept
        self.room = tables.capacity - int(np.minimum.reduce([tables.working, *(each.working for each in again)]).min())
        freed = [(each, np.maximum(tables.activations - each.kept, 0)) for each in again if plain]
        rates = [(each.ticks[spared > 0] / spared[spared > 0]).min(initial=np.inf) for each, spared in freed]
        self.recompute = float(min(rates, default=np.inf))
        self.sharding = min((_ticks_per_spared(tables, zero) for zero in self.types), default=np.inf)

    def spared(self, stages: Ints, replicas: Ints, cap: Ints) -> Spared:
        """Return the bounds of outer choices, whose loads are at most a cap."""
        tables, each = self.tables, -(-self.tables.microbatches // replicas)
        later = self._later(cap)
        flying, first = self.pipeline(stages, replicas, cap)
        room = first * self.room
        most, least = (
            np.cumsum(held[:, self.order] + flying * kept[self.order], axis=1) * SURE
            for held, kept in ((self._held(replicas), self.kept), (tables.least_held(replicas), tables.least_kept))
        )
        in_flight = each if self.schedule == "gpipe" else np.minimum(each, stages)
        rate = np.minimum(self.recompute / in_flight, self.sharding)
        excess = np.maximum(most - room, 0)
        ticks = np.zeros_like(excess)
        np.multiply(excess, rate[:, None] * SURE, out=ticks, where=excess > 0)
        ticks = np.maximum(ticks - ROUNDED * tables.layers, 0)
        largest = ((self.before + ticks) / first * SURE).max(axis=1)
        impossible = np.logical_or.reduce((least > room) | (later >= stages[:, None]), axis=1)
        return Spared(ticks.max(axis=1), largest, impossible)

    def pipeline(self, stages: Ints, replicas: Ints, cap: Ints) -> tuple[Floats, Floats]:
        """Return how many microbatches of each layer are in flight at least, and how many stages it is among."""
        each, later = -(-self.tables.microbatches // replicas), self._later(cap)
        flying = np.minimum(each[:, None], np.inf if self.schedule == "gpipe" else later + 1)
        return flying, np.maximum(stages[:, None] - later, 1)

    def _later(self, cap: Ints) -> Floats:
        """Return how many stages are behind each layer at least."""
        found: Floats = np.maximum(np.ceil(self.behind / np.maximum(cap, 1)[:, None] * SURE) - 1, 0.0)
        return found

    def _held(self, replicas: Ints) -> Floats:
        """Return the quanta of weights, gradients and optimizer that take no time in loads: a row for each number."""
        copies, parts = self.tables.copies, (self.tables.least_dense, self.tables.expert)
        gathered = 3 in self.types and self.tables.problem.training.holds_gathered
        whole = copies.gradients + (min(1, copies.gathered) if gathered else 1)
        held = np.zeros((len(replicas), self.tables.layers))
        for weights, inside in zip(parts, self.tables.problem.copy_ranks(self.tables.variant, 1), strict=True):
            ranks = replicas[:, None] * inside if self.types & {1, 2, 3} else np.ones_like(replicas)[:, None]
            held += weights * whole + weights * copies.optimizer / ranks
        return held


def _behind(tables: GroupedTables) -> Ints:
    """Return the work of each layer, together with that of all layers that wait for it."""
    graph, after = tables.graph, np.eye(tables.layers, dtype=bool)
    if graph.unordered_pair is None:
        return np.cumsum(tables.work[::-1])[::-1]
    for source, target in sorted(graph.places, reverse=True):
        after[source] |= after[target]
    waiting: Ints = after.astype(np.int64) @ tables.work
    return waiting


def least_extra(tables: GroupedTables, option: Option) -> Ints:
    """Return ticks that an option adds to each layer at least, whatever its place: as if ranks were at their nearest.

    The part that a rank does not keep is sent.
    """
    sent = sum(
        weights * ((ranks - 1) / ranks)
        for weights, ranks in zip((tables.dense, tables.expert), tables.ranks(option.together), strict=True)
    )
    ticks = np.floor(sent * (_ticks_per_quantum(tables, option.zero) * SURE)) - ROUNDED
    least: Ints = np.clip(ticks, 0, float(LONGEST)).astype(np.int64)
    return least


def _ticks_per_spared(tables: GroupedTables, zero: int) -> float:
    """Return the least ticks in loads for a quantum that a ZeRO type spares, infinite where it spares none so."""
    spared = {2: tables.copies.gradients, 3: tables.copies.gradients + 1}.get(zero, 0)
    return _ticks_per_quantum(tables, zero) / spared if spared else np.inf


def _ticks_per_quantum(tables: GroupedTables, zero: int) -> float:
    """Return the least ticks that a quantum of weights takes which a rank does not keep, for each microbatch.

    Type 2 sends its gradient, type 3 also itself, twice, over a link between ranks that hold copies. The time to launch
    does not grow with the bytes.
    """
    variant, pair = tables.variant, np.array([2])
    copies = [tables.problem.copies(variant, expert=expert) for expert in (False, True)]
    apart = np.array([min((next_one for ranks, next_one in copies if ranks > 1), default=variant.width)])
    once, twice = (float(tables.exchanges.least_s("all-reduce", pair, apart, size)[0]) for size in (MANY, 2 * MANY))
    sent = float(tables.bytes_of(np.ones(1, dtype=np.int64))[0]) / MANY
    times = tables.times("gradients") + (2 * tables.times("weights") if zero == 3 else 0)
    return (twice - once) * tables.scale.time.ticks_per_s * sent * times * (1 - tables.hidden / MILLION)
