"""Lower bounds of outer choices under the objective `simulated`: of what 1F1B takes, whatever the cuts."""

from __future__ import annotations

import numpy as np

from nest.dp.sum_outer import SumBounds, SumChoice
from nest.tables.exchanged import PLAIN, Exchanged
from nest.tables.grouped import Site
from nest.units import LONGEST, NEVER, Ints


class SimulatedBounds(SumBounds):
    """Lower bounds for one variant.

    Notes
    -----
    The first microbatch passes all stages twice, so that an iteration takes the sum of the loads at least. By
    `nest.cost.schedules.least_by_load` it takes ``before + m * load`` for each stage, with the loads of those before it.
    If none of these exceeds ``V``, each stage takes an ``m``-th of what the stages before it leave of ``V`` at most: so
    ``S`` stages take ``V * (1 - (1 - 1 / m) ** S)`` at most. Nothing here is about a plan: the bounds hold for all.
    """

    def objective(
        self, stages: Ints, further: Ints, hops: tuple[Ints, Ints], exchanged: Exchanged, types: tuple[int, ...]
    ) -> Ints:
        """Return bounds of the objective; see `SumBounds.objective`.

        A tick more of any load makes the iteration longer by a tick at least, so that what is said there of loads and
        synchronisation together holds here as well; but not of the heaviest stage alone.
        """
        loads, sync = self.total + hops[0].astype(np.float64), exchanged.sync / stages
        if not any(zero in PLAIN for zero in types):
            loads, sync = loads + exchanged.extra, np.zeros(len(stages))
        count = 1.0 + further
        heaviest = self.crowded[stages] + np.where(stages > 1, hops[1], 0).astype(np.float64)
        spread = loads / -np.expm1(stages * np.log1p(-1 / np.maximum(count, 1 + 1e-9)))
        bound = np.maximum(np.where(count > 1, spread, loads) + sync, count * heaviest)
        rounded = count * (3 * self.tables.layers + 8)  # what parts are rounded down by, at most
        least: Ints = np.clip(np.floor(bound * (1 - 1e-9) - rounded), 0, float(NEVER)).astype(np.int64)
        return least

    def filled(self, choice: SumChoice, better_than: int) -> int:
        """Return the bound of one choice by what its stages hold; it may be less where none is better."""
        if self.total >= better_than:
            return better_than
        most = min((better_than - 1) // (choice.further + 1), LONGEST)
        key = choice.stages, choice.replicas
        if self._slowest.get(key, 0) <= most:
            self._slowest[key] = self.slowest(choice, most)
        slowest = self._slowest[key]
        return NEVER if slowest > LONGEST else max(self.total, (choice.further + 1) * slowest)

    def refined(self, choice: SumChoice, sites: tuple[Site, ...]) -> int:
        """Return the bound of one choice, from the places of its stages."""
        hops, exchanged, types = self.at_sites(choice, sites)
        counts = np.array([choice.stages]), np.array([choice.further])
        slowest = self._slowest.get((choice.stages, choice.replicas), 0)
        return max(int(self.objective(*counts, hops, exchanged, types)[0]), (choice.further + 1) * slowest)
