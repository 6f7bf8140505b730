"""Outer choices (variant, stages, replicas) and lower bounds of what they can reach.

Bounds are admissible: no plan of an outer choice is faster than its bound, so the search takes choices in the order of
their bounds and stops at the first that cannot beat the best plan found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest.constraints import Outer
from nest.problem import Problem
from nest.tables import VariantTables, prefix
from nest.units import NEVER, Floats, Ints, distinct

THRESHOLDS = 8
"""Thresholds above which layers are counted as heavy."""


@dataclass(frozen=True, slots=True)
class OuterChoice:
    """Number of stages and replicas of one variant, and how often the largest load then counts."""

    stages: int
    replicas: int
    rounds: int


@dataclass(frozen=True, slots=True)
class OuterChoices:
    """Outer choices of one variant in arrays of equal length.

    Attributes
    ----------
    stages, replicas
        Their numbers.
    rounds
        How often the largest load counts.
    bounds
        Lower bound of the objective, in ticks.
    """

    stages: Ints
    replicas: Ints
    rounds: Ints
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, row: int) -> OuterChoice:
        return OuterChoice(int(self.stages[row]), int(self.replicas[row]), int(self.rounds[row]))

    @property
    def least(self) -> int:
        """Least of the bounds."""
        return int(self.bounds.min(initial=NEVER))

    def below(self, objective: int) -> OuterChoices:
        """Return the choices that could be better than an objective."""
        kept = self.bounds < objective
        return OuterChoices(self.stages[kept], self.replicas[kept], self.rounds[kept], self.bounds[kept])


class Bounds:
    """Lower bounds of the loads and synchronisations of one variant's plans.

    Parameters
    ----------
    tables
        The variant's tables.
    """

    def __init__(self, tables: VariantTables) -> None:
        self.tables, self.problem = tables, tables.problem

    @cached_property
    def load(self) -> Ints:
        """Least largest load for 1, 2, ... stages (by index; index 0 is unused).

        The largest of: the heaviest layer; the mean over the stages of all work and of the cheapest transfers, where
        the last stage, which repeats no forward pass, counts for as much as its work allows; and the load of a stage
        that must hold many heavy layers.
        """
        tables = self.tables
        once = tables.forward + tables.backward
        count = tables.layers
        stages = np.arange(count + 1)
        work = once + tables.repeated
        most_repeated = float(np.max(tables.repeated / np.maximum(once, 1))) if tables.recompute else 0.0
        inside = self._cheapest_transfer * (1 if tables.recompute else 2)
        total = np.sum(work) + inside * (stages - 1)
        mean = np.ceil(total / np.maximum(stages + most_repeated, 1) * (1 - 1e-12)).astype(np.int64)
        least: Ints = np.maximum(np.maximum(mean, once.max()), self._crowded(once, work))
        return least

    def _crowded(self, once: Ints, work: Ints) -> Ints:
        """Load of the stage that must hold many heavy layers, for 0, 1, ... stages.

        Of ``heavy`` layers whose work is at least some threshold, the last stage holds ``kept``, which repeat nothing,
        and some other stage at least the rounded-up mean of the rest.
        """
        count = self.tables.layers
        others = np.maximum(np.arange(count + 1) - 1, 1)[:, None]
        best = np.zeros(count + 1, dtype=np.int64)
        thresholds = distinct(work)
        for threshold in thresholds[:: max(1, len(thresholds) // THRESHOLDS)].tolist():
            chosen = work >= threshold
            kept = np.arange(int(chosen.sum()) + 1)
            last = kept * int(once[chosen].min())
            rest = -(-kept[::-1] // others) * threshold
            best[2:] = np.maximum(best[2:], np.maximum(last, rest[2:]).min(axis=1))
            best[1] = max(best[1], last[-1])
        return best

    def fewest_stages(self, *, sharded: bool) -> int:
        """Fewest stages whose layers fit the memory; more than there are layers where some layer never fits.

        Fills stages from the end of the pipeline on, each as far as its memory reaches. What a stage stashes when it
        recomputes is left out, so that what fits only shrinks with every layer, and filling up is the best.
        """
        tables = self.tables
        removed = max(self.problem.choices.zero) if sharded else 0
        kept = prefix(tables.parameters * tables.kept_copies(removed))
        activations = prefix(tables.activations)
        first, count = tables.layers, 0
        while first > 0:
            count += 1
            held = kept + activations * (1 if tables.recompute else count)
            reach = int(np.searchsorted(held, held[first] - tables.capacity))
            if reach == first:
                return tables.layers + 1
            first = reach
        return count

    @cached_property
    def _cheapest_transfer(self) -> int:
        links = self.tables.links
        sizes = links.size[links.reach == 1]
        if len(sizes) == 0:
            return 0
        smallest = sizes.min(keepdims=True)
        return min(int(self.tables.transfers(smallest, level)[0]) for level in range(self.problem.levels))

    def sync_weights(self, stages: Ints, replicas: Ints, *, sharded: bool) -> Ints:
        """Least quanta that the stage which counts in the synchronisation has to synchronise.

        Where ZeRO-3 divides them, no plan can do better than all parameters spread over all devices of a replica.
        """
        parameters, preset = self.tables.parameters, self.problem.preset
        if not preset.sync_all_stages:
            return np.full_like(stages, parameters[0])
        if sharded and preset.sync_sharded and 3 in self.problem.choices.zero:
            blocks = self.tables.devices // self.tables.width // replicas
            return np.asarray(int(parameters.sum()) // np.maximum(blocks, 1))
        return np.maximum(int(parameters.max()), -(-int(parameters.sum()) // stages))

    def sync(self, weights: Ints | Floats, replicas: Ints, heights: Ints) -> Ints:
        """Ticks that synchronisation takes at least, from its being linear in the bytes."""
        halvings = np.frexp(replicas)[1].astype(np.int64) - 1
        base = self.problem.levels + 1
        kinds, which = np.unique(halvings * base + heights, return_inverse=True)
        lines = np.array([self._sync_line(1 << code // base, code % base) for code in kinds.tolist()])
        lines = lines.reshape(-1, 2)
        ticks = lines[which, 1] + lines[which, 0] * weights
        least: Ints = np.maximum(np.floor(ticks * (1 - 1e-12)).astype(np.int64) - 1, 0)
        return least

    def _sync_line(self, replicas: int, height: int) -> tuple[float, float]:
        """Slope (ticks per quantum) and start of the synchronisation time over the quanta of parameters."""
        most = int(self.tables.parameters.sum())
        start, end = self.tables.syncs(np.array([0, most], dtype=np.int64), replicas, height).tolist()
        return max(end - start - 1, 0) / max(most, 1), start


def outer_choices(bounds: Bounds, *, sharded: bool) -> OuterChoices:
    """Return the outer choices of a variant, for plans with at least one sharded stage or for plans with none."""
    tables, problem = bounds.tables, bounds.problem
    blocks = tables.devices // tables.width
    stages = _allowed(problem, "stages", min(tables.layers, blocks))
    stages = stages[stages >= bounds.fewest_stages(sharded=sharded)]
    least = least_blocks(problem, tables.width, stages) if sharded else stages
    stages, least = stages[least <= blocks], least[least <= blocks]
    replicas = _candidates(tables, blocks)
    grid_stages, grid_replicas = (axis.ravel() for axis in np.meshgrid(stages, replicas, indexing="ij"))
    grid_least = np.repeat(least, len(replicas))
    kept = grid_least * grid_replicas <= blocks
    if tables.filters.local:
        kept[kept] = _admitted(tables, grid_stages[kept], grid_replicas[kept])
    grid_stages, grid_replicas, grid_least = grid_stages[kept], grid_replicas[kept], grid_least[kept]
    rounds = -(-problem.training.microbatches // grid_replicas) + grid_stages - 1
    heights = tables.heights(grid_replicas, grid_least * tables.width)
    sync = bounds.sync(bounds.sync_weights(grid_stages, grid_replicas, sharded=sharded), grid_replicas, heights)
    return OuterChoices(grid_stages, grid_replicas, rounds, objectives(bounds.load[grid_stages], rounds, sync))


def _candidates(tables: VariantTables, most: int) -> Ints:
    """Return numbers of replicas, of which side constraints, if there are any, still have to admit each."""
    if not tables.filters.local:
        return useful_replicas(tables.problem, most)
    return _allowed(tables.problem, "replicas", min(most, tables.problem.training.microbatches))


def _admitted(tables: VariantTables, stages: Ints, replicas: Ints) -> np.ndarray:
    """Return which outer choices the side constraints admit, and are useful.

    Of the admitted replicas the least number with each number of microbatches is, as in `useful_replicas`; where a
    constraint looks at replicas, all are, since it may prefer those of more replicas.
    """
    filters, microbatches, seen = tables.filters, tables.problem.training.microbatches, set[tuple[int, int]]()
    admitted = np.zeros(len(stages), dtype=bool)
    for at, (count, copies) in enumerate(zip(stages.tolist(), replicas.tolist(), strict=True)):
        key = (count, -(-microbatches // copies))
        if (filters.by_replicas or key not in seen) and filters.outer(Outer(tables.variant, count, copies)):
            seen.add(key)
            admitted[at] = True
    return admitted


def objectives(loads: Ints, rounds: Ints, syncs: Ints) -> Ints:
    """Return ``load * rounds + sync``, or `NEVER` from there on."""
    inside = loads <= (NEVER - 1 - syncs) // rounds
    return np.where(inside, np.where(inside, loads, 0) * rounds + syncs, NEVER)


def least_blocks(problem: Problem, width: int, stages: Ints) -> Ints:
    """Return the fewest blocks of a replica with at least one sharded stage; more than there are where none can."""
    degrees = problem.zero_degrees(width)
    if not degrees:
        return np.full_like(stages, problem.cluster.devices + 1)
    others = 1 if 0 in problem.choices.zero else degrees[0]
    return (stages - 1) * others + degrees[0]


def useful_replicas(problem: Problem, most: int) -> Ints:
    """Return the least allowed number of replicas for each number of microbatches per replica.

    With more replicas and no fewer microbatches on each, no level, no synchronisation and no budget gets better.
    """
    replicas = _allowed(problem, "replicas", min(most, problem.training.microbatches))
    rounds = -(-problem.training.microbatches // np.maximum(replicas, 1))
    first = np.ones(len(replicas), dtype=bool)
    first[1:] = rounds[1:] != rounds[:-1]
    return replicas[first]


def _allowed(problem: Problem, choice: str, most: int) -> Ints:
    allowed = getattr(problem.choices, choice)
    if allowed is None:
        return np.arange(1, most + 1)
    return np.array(sorted(value for value in allowed if value <= most), dtype=np.int64)
