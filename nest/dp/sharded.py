"""Plans whose stages differ in width because some shard inside the stage: which are worth a search, and their best."""

from __future__ import annotations

from math import ceil

import numpy as np

from nest.dp.layout import Apart, Layout, layouts
from nest.dp.outer import Bounds, OuterChoice, OuterChoices, least_blocks
from nest.dp.placing import Placing
from nest.dp.profile import boundary_levels, replica_offsets, shifted_spans
from nest.dp.relaxed import Relaxation
from nest.dp.sharding import ShardedStages
from nest.dp.watch import Watch
from nest.plan import StageChoice
from nest.tables import VariantTables


class ShardedSearch:
    """Settles outer choices of one variant in which at least one stage shards.

    Parameters
    ----------
    bounds
        Of the variant.
    choices
        Its outer choices; only those that could beat the incumbent are kept, with better bounds.
    watch
        Of the search, with the best plan without sharding.
    """

    def __init__(self, bounds: Bounds, choices: OuterChoices, watch: Watch) -> None:
        self.tables, self.bounds, self.problem = bounds.tables, bounds, bounds.tables.problem
        self.watch, self.incumbent = watch, watch.incumbent
        self._relaxations: dict[int, Relaxation] = {}
        self.choices = self._prepare(choices.below(self.incumbent.objective))

    def _prepare(self, choices: OuterChoices) -> OuterChoices:
        """Sharpen the bounds of outer choices, and keep those that still could be better."""
        if len(choices) == 0:
            return choices
        relaxation = self._relaxation(self.incumbent.load_cap(int(choices.rounds.min())))
        least = least_blocks(self.problem, self.tables.width, choices.stages)
        heights = self.tables.heights(choices.replicas, least * self.tables.width)
        refined, by_interval = relaxation.refine(choices, heights)
        keys = zip(choices.stages.tolist(), choices.replicas.tolist(), strict=True)
        self._by_interval = dict(zip(keys, by_interval.T, strict=True))
        return refined.below(self.incumbent.objective)

    def _relaxation(self, cap: int) -> Relaxation:
        """Return tables at least as deep as the largest stage of at most ``cap`` ticks, shared by similar depths."""
        depth = max(1, self.tables.deepest_within(cap))
        magnitude = (depth - 1).bit_length()
        if magnitude not in self._relaxations:
            band = self.tables.band(max(1, min(1 << magnitude, self.tables.deepest)))
            self._relaxations[magnitude] = Relaxation(ShardedStages(band), self.bounds)
        return self._relaxations[magnitude]

    def settle(self, choice: OuterChoice) -> None:
        """Offer the best plan of an outer choice to the incumbent, if it is better."""
        least = int(least_blocks(self.problem, self.tables.width, np.array([choice.stages]))[0])
        sizes = range(least, self.tables.devices // self.tables.width // choice.replicas + 1)
        filters = self.tables.filters
        apart = Apart(strides=filters.by_replicas, places=filters.by_place)
        for layout in layouts(self.problem, self.tables.width, choice.replicas, sizes, apart):
            self.watch.check()
            relaxation = self._relaxation(self.incumbent.load_cap(choice.rounds))
            share = self._largest_share(relaxation, layout, choice)
            if share is not None:
                placing = Placing(relaxation, layout, choice, self.watch)
                sync_cap = int(self.tables.syncs(np.array([ceil(share)]), choice.replicas, layout.height)[0])
                self._descend(placing, choice, sync_cap)

    def _largest_share(self, relaxation: Relaxation, layout: Layout, choice: OuterChoice) -> float | None:
        """Return the largest share of parameters that a better plan could synchronise, None if there is no better plan.

        Halves the range of intervals: where even the least synchronisation of a range with the largest share of it
        needs too many blocks, none of its intervals has a better plan.
        """
        intervals = relaxation.intervals
        bounds = self._by_interval[choice.stages, choice.replicas]
        candidates = [each for each, bound in zip(intervals, bounds, strict=True) if bound < self.incumbent.objective]
        ranges = [(0, len(candidates))]
        while ranges:
            low, high = ranges.pop()
            if low == high:
                continue
            upper = candidates[high - 1].upper
            cap = self.incumbent.load_cap(choice.rounds, self._least_sync(candidates[low].lower, layout, choice))
            if relaxation.fits(choice.stages, layout.budget, cap, upper):
                if high - low == 1:
                    return upper
                middle = (low + high) // 2
                ranges += [(low, middle), (middle, high)]
        return None

    def _least_sync(self, share: float, layout: Layout, choice: OuterChoice) -> int:
        replicas = np.array([choice.replicas])
        weights = self.bounds.sync_weights(np.array([choice.stages]), replicas, sharded=True)
        return int(self.bounds.sync(np.maximum(weights, share), replicas, np.array([layout.height]))[0])

    def _descend(self, placing: Placing, choice: OuterChoice, sync_cap: int) -> None:
        """Walk the trade-off between load and synchronisation, from the least load on.

        Each step finds the least load under a cap on the synchronisation, then the least synchronisation under that
        load, and goes on below it, until the load alone is no better than the incumbent.
        """
        least_sync = self._least_sync(0, placing.layout, choice)
        floor = int(self.bounds.load[choice.stages])
        while True:
            found = placing.least_load(floor, self.incumbent.load_cap(choice.rounds, least_sync), sync_cap)
            if found is None:
                return
            floor, stages = found
            sync_cap, stages = placing.least_sync(floor, sync_cap, stages)
            self.incumbent.offer(price(self.tables, stages, choice), self.tables, stages, choice.replicas)
            sync_cap -= 1


def price(tables: VariantTables, choices: list[StageChoice], outer: OuterChoice) -> int:
    """Return the objective of a plan, at its true positions."""
    problem, replicas = tables.problem, outer.replicas
    widths = np.array([choice.degree * tables.width for choice in choices], dtype=np.int64)
    starts = np.cumsum(widths[::-1])[::-1] - widths
    stride = int(widths.sum())
    offsets = replica_offsets(problem, replicas, stride)
    block = shifted_spans(problem, offsets, starts, starts + widths - 1).T.tolist()
    inner = boundary_levels(problem, offsets, starts[1:], starts[:-1], widths[:-1])
    edge = np.zeros((len(offsets), 1), dtype=np.int64)
    entry = np.concatenate([edge, inner], axis=1).T.tolist()
    out = np.concatenate([inner, edge], axis=1).T.tolist()
    stages = ShardedStages(tables.band(max(choice.end - choice.first for choice in choices)))
    height = tables.height(replicas, stride)
    load, sync = 0, 0
    for at, choice in enumerate(choices):
        place = choice.first, choice.end - choice.first - 1
        triples = tuple(sorted(set(zip(entry[at], out[at], block[at], strict=True))))
        load = max(load, int(stages.load(choice.degree, choice.zero, triples)[place]))
        if problem.preset.sync_all_stages or at == 0:
            sync = max(sync, int(stages.syncs(choice.degree, choice.zero, replicas, height)[place]))
    return load * outer.rounds + sync
