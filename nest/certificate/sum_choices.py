"""The outer choices of a variant under the objective `sum`, and the arguments that look at no single stage.

With ``W`` the work of all layers, and ``m`` microbatches for each of ``d`` replicas of ``S`` stages, D14 is

    objective = (sum of loads) + (m - 1) * (largest load) + sync,    sum of loads >= W.

So a plan below ``V`` leaves its largest load no more than ``(V - 1 - W - sync) // (m - 1)``: the *cap*. The largest
load is no less than

- the mean, ``W / S``, and where devices are slower, ``W`` over the speed of the fastest ``S`` stages that there may be:
  of ``d * S`` blocks, those of ``d`` do a part of it no faster than the slowest of them; `sum_classes` says more;
- ``ceil(k / S)`` times the work of the ``k``-th heaviest layer, for every ``k``: of the ``k`` heaviest layers one stage
  has that many (pigeonhole).

And whoever holds the copies of a stage's weights adds up their gradients: of ``N`` ranks each sends at least
``(N - 1) / N`` of them, once per iteration or for each microbatch. Computation may hide a part ``h`` of that, but no
more than as much of the stage's backward passes; where these include passes that are repeated, the load has them
besides. Nothing hides the optimizer's step, for ``1 / N`` of the weights or more. A stage ``k`` spends ``A(k)`` or more
on both, in its load and its synchronisation together, and the slowest synchronisation is no less than the mean of all:
sum of loads and sync are together at least ``W + (sum of A(k)) / S``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nest.certificate.choices import allowed
from nest.certificate.sum_classes import ByClass
from nest.certificate.sum_memory import Memory
from nest.certificate.sum_trade import Trade
from nest.constraints import Outer
from nest.cost.overlap import MILLION
from nest.presets import Arrangement, ScheduleName
from nest.problem import Problem, Variant
from nest.tables import GroupedTables, Tables
from nest.tables.speeds import SURE, least_work
from nest.units import LONGEST, Ints

ROUNDS = 3
"""How often memory and cap are made to follow from each other."""

MOST_AT_ONCE = 2**20
"""Layers times outer choices that are looked at together."""


@dataclass(frozen=True, slots=True)
class SumChoice:
    """An outer choice.

    Attributes
    ----------
    schedule
        In which order stages take their passes.
    further
        Microbatches of a replica but one: how often the largest load counts besides.
    least, cap
        Ticks: what the largest load is at least, and at most in a plan below the value.
    """

    variant: Variant
    stages: int
    replicas: int
    arrangement: Arrangement
    schedule: ScheduleName
    further: int
    least: int
    cap: int


def schedule_of(problem: Problem) -> ScheduleName | None:
    """Return under which schedule stages have one part of the model each, None where none is allowed.

    1F1B stands for GPipe, too: by D14 that takes as long, it has no fewer microbatches in flight (C11), and nothing
    else tells them apart.
    """
    allowed = problem.choices.schedules
    return "1f1b" if "1f1b" in allowed else "gpipe" if "gpipe" in allowed else None


class Counts(NamedTuple):
    """Numbers of stages and of replicas that are allowed (C4, C5), and how many blocks there are for both (C10)."""

    stages: Ints
    replicas: Ints
    blocks: int

    @classmethod
    def of(cls, tables: Tables, variant: Variant) -> Counts:
        """Return those of a variant."""
        problem, blocks = tables.problem, tables.blocks(variant)
        stages = allowed(problem.choices.stages, min(blocks, len(problem.graphs[variant])))
        replicas = allowed(problem.choices.replicas, min(blocks, problem.microbatches(variant)))
        return cls(np.array(stages, dtype=np.int64), np.array(replicas, dtype=np.int64), blocks)

    def pairs(self) -> tuple[Ints, Ints]:
        """Return the numbers of stages and replicas that have devices together."""
        stages, replicas = np.nonzero(self.stages[:, None] * self.replicas <= self.blocks)
        return self.stages[stages], self.replicas[replicas]

    def arranged(self, problem: Problem) -> int:
        """Return how many there are in all arrangements."""
        each = np.searchsorted(self.replicas, self.blocks // self.stages, side="right")
        several = each - np.searchsorted(self.replicas, 1, side="right")
        further = (each[self.stages > 1] if name == "stage-major" else several for name in _further(problem))
        return int(each.sum()) + sum(int(found.sum()) for found in further)


def arranged(problem: Problem, stages: Ints, replicas: Ints) -> int:
    """Return how many these are in all arrangements."""
    further = (stages if name == "stage-major" else replicas for name in _further(problem))
    return len(stages) + sum(int((outermost > 1).sum()) for outermost in further)


def _further(problem: Problem) -> tuple[Arrangement, ...]:
    """Return all arrangements but the first, which stands for the others where these have one of what is outermost.

    One of them leaves no gap that the others could have (C9).
    """
    return problem.preset.arrangements[1:]


def too_slow(tables: Tables, variant: Variant, value: int) -> bool:
    """Whether the passes of all layers alone, spread over all devices, take too long; for this no table is built.

    As ``m >= M / d`` and ``d * S`` is at most the number of blocks, ``W + (m - 1) * W / S >= W * M / blocks``. A
    block of slower devices counts in part.
    """
    least = least_work(tables.problem, tables.scale, variant, tables.blocks(variant))
    return least * tables.problem.microbatches(variant) * SURE >= value


class Left(NamedTuple):
    """Outer choices that are left, whatever their arrangement; arrays of equal length, as in `SumChoice`."""

    stages: Ints
    replicas: Ints
    further: Ints
    least: Ints
    cap: Ints

    def only(self, kept: np.ndarray) -> Left:
        """Return some of them."""
        return Left(*(each[kept] for each in self))


def by_mean(tables: GroupedTables, stages: Ints, replicas: Ints, value: int) -> Left:
    """Return what the mean, the heaviest layers and the exchange of gradients leave."""
    further, total = -(-tables.microbatches // replicas) - 1, int(tables.work.sum())
    least = np.maximum(crowded(tables, stages), -(-total // stages))
    speed = tables.speeds.of(stages * replicas) / replicas
    least = np.maximum(least, np.floor(total / speed * SURE).astype(np.int64))
    exchanged = least_exchanged(tables, stages, replicas)
    cap = _cap(value - 1 - total - exchanged, further)
    if tables.problem.cluster.classes:
        by_class = ByClass(tables)
        counts = by_class.stages(stages, replicas)
        least = np.maximum(least, by_class.largest(counts))
        for _ in range(ROUNDS):  # longer passes may hide what is exchanged
            cap = np.minimum(cap, _cap(value - 1 - total - by_class.added(counts, cap), further))
    found = Left(stages, replicas, further, least, cap)
    return found.only(least <= found.cap)


def by_memory(tables: GroupedTables, schedule: ScheduleName, found: Left, value: int) -> Left:
    """Return what the memory of the first stages leaves; the lower the cap, the more they have to hold."""
    memory = Memory(tables, schedule)
    parts = max(1, len(found.stages) * tables.layers // MOST_AT_ONCE)
    pieces = [found.only(rows) for rows in np.array_split(np.arange(len(found.stages)), parts)]
    for _ in range(ROUNDS):
        pieces = [_sparing(memory, piece, value) for piece in pieces]
    return _sparing(Trade(memory), Left(*(np.concatenate(each) for each in zip(*pieces, strict=True))), value)


def _sparing(memory: Memory | Trade, found: Left, value: int) -> Left:
    """Return what is left where stages have to spare memory."""
    spared, total = memory.spared(found.stages, found.replicas, found.cap), int(memory.tables.work.sum())
    ticks = np.minimum(spared.ticks, float(LONGEST)).astype(np.int64)
    cap = np.minimum(found.cap, _cap(value - 1 - total - ticks, found.further))
    least = np.maximum(found.least, np.minimum(spared.largest, float(LONGEST)).astype(np.int64))
    return found._replace(least=least, cap=cap).only(~spared.impossible & (least <= cap))


def _cap(room: Ints, further: Ints) -> Ints:
    """Return the largest load for which there is room besides; -1 where there is none for the rest alone."""
    cap = np.where(further > 0, room // np.maximum(further, 1), LONGEST - 1)
    return np.where(room < 0, -1, np.minimum(cap, LONGEST - 1))


def crowded(tables: GroupedTables, stages: Ints) -> Ints:
    """Return what the stage with the most heavy layers takes at least."""
    heaviest, number = np.sort(tables.work)[::-1], np.arange(1, tables.layers + 1)
    different = np.unique(stages)
    least = (-(-number // different[:, None]) * heaviest).max(axis=1)
    found: Ints = least[np.searchsorted(different, stages)]
    return found


def least_exchanged(tables: GroupedTables, stages: Ints, replicas: Ints) -> Ints:
    """Return what sum of loads and synchronisation hold beyond the work at least: the sums of gradients, and the step.

    Ranks are as near to each other as they may be. Every exchange is rounded by itself: of a layer up to three of each
    of two kinds of weights, of a stage as many.
    """
    variant, sums, steps = tables.variant, np.zeros(len(stages)), np.zeros(len(stages))
    for weights, expert in ((tables.least_dense, False), (tables.expert, True)):
        inside, next_one = tables.problem.copies(variant, expert=expert)
        size, ranks = float(tables.bytes_of(weights.sum())), replicas * inside
        apart = np.full_like(stages, next_one if inside > 1 else variant.width)
        sums += tables.exchanges.least_s("reduce-scatter", ranks, apart, size * tables.times("gradients"))
        steps += size / (ranks if any(tables.problem.choices.zero) else 1)
    per_second = tables.scale.time.ticks_per_s
    sums *= min(tables.problem.preset.sync_factor, 1) * per_second
    hidden = np.minimum(sums, float(tables.backward.sum())) * (tables.hidden / MILLION)
    ticks = (sums - hidden + steps * tables.step_s_per_byte * per_second) / stages * (1 - 1e-12)
    least: Ints = np.clip(np.floor(ticks) - 3 * tables.layers - 8, 0, LONGEST).astype(np.int64)
    return least


def apart(problem: Problem, variant: Variant, schedule: ScheduleName, found: Left) -> list[SumChoice]:
    """Return choices in every arrangement in which they are there."""
    arrangements, choices = problem.preset.arrangements, list[SumChoice]()
    for stages, replicas, *rest in zip(*(each.tolist() for each in found), strict=True):
        further = [each for each in _further(problem) if (stages if each == "stage-major" else replicas) > 1]
        choices += [SumChoice(variant, stages, replicas, each, schedule, *rest) for each in (arrangements[0], *further)]
    return choices


def admitted(tables: GroupedTables, found: Left) -> Left:
    """Return the choices that side constraints admit."""
    pairs = zip(found.stages.tolist(), found.replicas.tolist(), strict=True)
    kept = [tables.filters.outer(Outer(tables.variant, *pair)) for pair in pairs]
    return found.only(np.array(kept, dtype=bool))
