"""Lower bounds of outer choices under the objective `simulated`, whatever the cuts."""

from __future__ import annotations

from functools import cached_property
from itertools import product

import numpy as np

from nest.dp.sum_outer import SumBounds, SumChoice, SumRange, least_bound
from nest.presets import ScheduleName
from nest.tables import GroupedTables, Tables
from nest.tables.exchanged import PLAIN, Exchanged
from nest.tables.grouped import Site
from nest.units import LONGEST, NEVER, Floats, Ints

QUANTILES = (0.25, 0.5, 0.75, 0.9, 1.0)
"""Which of the layers' parts of forward passes are tried as the part of all."""


class SimulatedBounds(SumBounds):
    """Lower bounds for one variant.

    Parameters
    ----------
    tables
        The variant's tables.
    schedule
        Of the plans.

    Notes
    -----
    GPipe takes no less than `sum` says, and ZB-H1 no less than the work of any stage. Of 1F1B more can be said. The
    first microbatch passes all stages twice, so that an iteration takes the sum of the loads at least. By
    `nest.cost.schedules.least_by_load` it takes ``before + m * load`` for each stage, with the loads of those before.
    If none of these exceeds ``V``, each stage takes an ``m``-th of what the stages before it leave of ``V`` at most: so
    ``S`` stages take ``V * (1 - (1 - 1 / m) ** S)`` at most.

    By `nest.cost.schedules.least_by_wait` it takes ``T + (m - 1) * load - c * forward`` for each stage, too, ``T``
    being the sum of the loads and ``c = min(m, S - i) - 1``. Of a layer's work the forward pass is a part ``r``, and
    ``excess`` ticks more in all layers together; besides, a stage receives an activation in ``hop`` ticks at most, and
    where sends block sends one. With
    ``a = m - 1 - c * r`` each load is at most ``(V - T + c * (excess of its layers + hop * (1 - r))) / a``, also
    without what sharding exchanges, as ``c <= m - 1``. Added up, these loads are at most ``(V - T) * Q`` and
    ``hop * (1 - r) * R + excess * max c / a``, ``Q`` being the sum of ``1 / a``, ``R`` that of ``c / a``.
    """

    def __init__(self, tables: GroupedTables, schedule: ScheduleName = "1f1b") -> None:
        super().__init__(tables)
        self.schedule = schedule

    @cached_property
    def parts(self) -> list[tuple[float, float]]:
        """Parts of the work that forward passes may be, and the ticks by which they are more in all layers."""
        forward, work = self.tables.forward.astype(np.float64), self.tables.work.astype(np.float64)
        some = work > 0
        ratios = np.sort(forward[some] / work[some])
        if not some.any():
            return []
        tried = {float(ratios[int(at * (len(ratios) - 1))]) for at in QUANTILES}
        return [(part, float(np.maximum(forward - part * work, 0).sum())) for part in sorted(tried)]

    @cached_property
    def longest_hop(self) -> tuple[int, int]:
        """Most ticks to receive an activation, and to send one."""
        crossings = [(self.tables.hops(level), self.tables.sends(level)) for level in range(self.problem.levels)]
        return max(int((hop - sent).max()) for hop, sent in crossings), max(int(sent.max()) for _, sent in crossings)

    def waiting(self, stages: Ints, microbatches: Floats, loads: Floats, work: Floats) -> Floats:
        """Return the bounds by wait for so much time that all stages together are busy with a microbatch.

        Parameters
        ----------
        loads, work
            With what sharding exchanges and without.
        """
        from_end = np.arange(1, int(stages.max(initial=1)) + 1)
        there = from_end <= stages[:, None]
        ahead = np.minimum(from_end, microbatches[:, None]) - 1
        best, (received, sent) = loads, self.longest_hop
        for part, excess in self.parts:
            rest = microbatches[:, None] - 1 - ahead * part
            usable = ((rest > 0) | ~there).all(axis=1)
            each = np.where(there & (rest > 0), 1 / np.where(rest > 0, rest, 1), 0.0)
            entered = ((ahead * each)[:, :-1] * there[:, 1:]).sum(axis=1)  # all but the first stage receive
            transfers = received * entered + sent * (ahead * each).sum(axis=1)
            late = (1 - part) * transfers + excess * (ahead * each).max(axis=1)
            total = each.sum(axis=1)
            found = loads + np.maximum(work - late, 0) / np.where(usable & (total > 0), total, np.inf)
            best = np.maximum(best, found)
        return best

    def putting_off(self, stages: Ints, microbatches: Floats, work: Floats) -> Floats:
        """Return the same of ZB-H1, for the work of all stages without what sharding exchanges.

        What stage ``i`` passes on is its work less its gradients of weights, of which it has done ``m - 1 - i`` of
        ``m`` when it has passed on all (`nest.dp.schedules`). With the sum ``T`` of what all pass on that makes
        ``T + (m - 1) * work - i * weight - c * forward``. What is exchanged besides adds nothing that a stage could
        save, as long as ``S <= m``.
        """
        weight, layers = self.tables.weight.astype(np.float64), self.tables.work.astype(np.float64)
        passed: Floats = work - weight.sum()
        place = np.arange(int(stages.max(initial=1)))
        there = place < stages[:, None]
        ahead = np.where(there, np.minimum(stages[:, None] - place, microbatches[:, None]) - 1, 0)
        later, some = np.where(there, place, 0), layers > 0
        best: Floats = passed
        received, sent = self.longest_hop
        for part, excess in self.parts:
            late_part = float(np.quantile(weight[some] / layers[some], 0.75))
            late_excess = float(np.maximum(weight - late_part * layers, 0).sum())
            rest = microbatches[:, None] - 1 - later * late_part - ahead * part
            usable = ((rest > 0) | ~there).all(axis=1) & (stages <= microbatches)
            each = np.where(there & (rest > 0), 1 / np.where(rest > 0, rest, 1), 0.0)
            transfers = received * (ahead * each)[:, 1:].sum(axis=1) + sent * (ahead * each).sum(axis=1)
            late = (1 - part) * transfers
            late += excess * (ahead * each).max(axis=1) + late_excess * (later * each).max(axis=1)
            total = each.sum(axis=1)
            found = passed + np.maximum(work - late, 0) / np.where(usable & (total > 0), total, np.inf)
            best = np.maximum(best, found)
        return best

    def objective(
        self, stages: Ints, further: Ints, hops: tuple[Ints, Ints], exchanged: Exchanged, types: tuple[int, ...]
    ) -> Ints:
        """Return bounds of the objective; see `SumBounds.objective`.

        A tick more of any load makes the iteration longer by a tick at least, so that what is said there of loads and
        synchronisation together holds here as well; but not of the heaviest stage alone.
        """
        if self.schedule == "gpipe":
            return super().objective(stages, further, hops, exchanged, types)
        work: Floats = self.total + hops[0].astype(np.float64)
        loads = work
        sync = exchanged.sync / stages
        if not any(zero in PLAIN for zero in types):
            loads, sync = loads + exchanged.extra, np.zeros(len(stages))
        sync = sync + exchanged.step / stages
        count: Floats = 1.0 + further.astype(np.float64)
        heaviest = self.crowded[stages] + np.where(stages > 1, hops[1], 0).astype(np.float64)
        spread = loads / -np.expm1(stages * np.log1p(-1 / np.maximum(count, 1 + 1e-9)))
        if self.schedule == "zb-h1":
            most, sync = count * loads / stages, np.where(count >= stages, sync, 0.0)
        else:
            most = np.maximum(np.where(count > 1, spread, loads), self.waiting(stages, count, loads, work))
        bound = np.maximum(most + sync, count * heaviest)
        if self.schedule == "zb-h1":
            bound = np.maximum(bound, self.putting_off(stages, count, work))
        rounded = count * (3 * self.tables.layers + 8)  # what parts are rounded down by, at most
        least: Ints = np.clip(np.floor(bound * (1 - 1e-9) - rounded), 0, float(NEVER)).astype(np.int64)
        return least

    def filled(self, chosen: SumRange, better_than: int) -> int:
        """Return the bound of some choices by what their stages hold; it may be less where none is better."""
        if self.schedule == "gpipe":
            return super().filled(chosen, better_than)
        total = 0 if self.schedule == "zb-h1" else self.total
        if total >= better_than:
            return better_than
        most = min((better_than - 1) // (chosen.further + 1), LONGEST)
        key = chosen.stages, chosen.fewest, chosen.most
        if self._slowest.get(key, 0) <= most:
            self._slowest[key] = self.slowest(chosen, most)
        slowest = self._slowest[key]
        return NEVER if slowest > LONGEST else max(total, (chosen.further + 1) * slowest)

    def refined(self, choice: SumChoice, sites: tuple[Site, ...], better_than: int) -> int:
        """Return the bound of one choice, from the places of its stages; it may be less where none is better."""
        if self.schedule == "gpipe":
            return super().refined(choice, sites, better_than)
        hops, exchanged, types = self.at_sites(choice, sites)
        counts = np.array([choice.stages]), np.array([choice.further])
        slowest = self._slowest.get((choice.stages, choice.replicas, choice.replicas), 0)
        return max(int(self.objective(*counts, hops, exchanged, types)[0]), (choice.further + 1) * slowest)


class _Uncut(SimulatedBounds):
    """Lower bounds for one variant that hold wherever it is cut: transfers are free."""

    @cached_property
    def hop(self) -> Ints:
        """No ticks, at each level."""
        return np.zeros(self.problem.levels, dtype=np.int64)

    @cached_property
    def parts(self) -> list[tuple[float, float]]:
        """Nothing: how long stages wait for a transfer at most depends on the cuts."""
        return []


def least_played_of_any_cut(tables: Tables) -> int:
    """Return a bound of all plans, however their layers branch and are cut; `NEVER` where there is no outer choice."""
    least = NEVER
    for variant, name in product(tables.fitting, sorted(tables.problem.choices.schedules)):
        least = least_bound(_Uncut(tables.uncut(variant), name), least)
    return least
