"""Plans whose stages differ in width because some shard inside the stage.

Widths make the position a part of the state. For a cap on the load and one on the synchronisation, the recursion

    ``least_q[first, z, z', place] = min over end, z'' of least_{q-1}[end, z'', z, place - z] + z``

gives the least blocks with which the last ``q`` stages cover the layers from ``first`` on, the ``q``-th being ``z``
blocks wide and the next one to be placed ``z'``, over the stages whose load at their place stays below the cap (which
holds the rules C11 memory and C12 range). "Is there a plan better than this?" is then whether the least number of blocks fits
the devices of a replica (C10); the best plan follows by bisection over the loads that occur.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.dp.layout import Layout, LevelClasses, layouts
from nest.dp.outer import Bounds, OuterChoices, least_blocks
from nest.dp.profile import boundary_levels, replica_offsets, shifted_spans
from nest.dp.relaxed import FULL, Relaxation
from nest.dp.sharding import ShardedStages
from nest.dp.traceback import Incumbent
from nest.dp.watch import Watch
from nest.plan import StageChoice
from nest.tables import VariantTables
from nest.units import NEVER, Ints


class ShardedSearch:
    """Settles outer choices of one variant in which at least one stage may shard.

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
        self.watch = watch
        self.choices = self._prepare(choices.below(watch.incumbent.objective), watch.incumbent)

    def _prepare(self, choices: OuterChoices, incumbent: Incumbent) -> OuterChoices:
        """Build the tables that the choices left need, and sharpen their bounds."""
        if len(choices.stages) == 0:
            return choices
        cap = incumbent.load_cap(int(choices.rounds.min()))
        self.stages = ShardedStages(self.tables.band(max(1, self.tables.deepest_within(cap))))
        self.relaxation = Relaxation(self.stages, self.bounds)
        least = least_blocks(self.problem, self.tables.width, choices.stages)
        heights = self.tables.heights(choices.replicas, least * self.tables.width)
        refined, by_interval = self.relaxation.refine(choices, heights)
        keys = zip(choices.stages.tolist(), choices.replicas.tolist(), strict=True)
        self._by_interval = dict(zip(keys, by_interval.T, strict=True))
        return refined.below(incumbent.objective)

    def settle(self, stages: int, replicas: int, rounds: int, incumbent: Incumbent) -> None:
        """Offer the best plan of an outer choice to the incumbent, if it is better."""
        least = int(least_blocks(self.problem, self.tables.width, np.array([stages]))[0])
        for layout in layouts(self.problem, self.tables.width, replicas, least):
            share = self._largest_share(layout, stages, replicas, rounds, incumbent)
            if share is not None:
                search = _LayoutSearch(self.relaxation, layout, stages, replicas, self.watch)
                self._descend(search, rounds, self._sync_of(share, layout, replicas), incumbent)

    def _sync_of(self, share: float, layout: Layout, replicas: int) -> int:
        return int(self.tables.syncs(np.array([int(share)]), replicas, layout.height)[0])

    def _largest_share(
        self, layout: Layout, stages: int, replicas: int, rounds: int, incumbent: Incumbent
    ) -> float | None:
        """Largest share of parameters that a better plan could synchronise, None where no better plan exists.

        Halves the range of intervals: where even the least synchronisation of a range with the largest share of it
        needs too many blocks, none of its intervals has a better plan.
        """
        intervals = self.relaxation.intervals
        open_now = np.flatnonzero(self._by_interval[stages, replicas] < incumbent.objective)
        ranges = [(0, len(open_now))]
        while ranges:
            low, high = ranges.pop()
            if low == high:
                continue
            lower, upper = intervals[open_now[low]].lower, intervals[open_now[high - 1]].upper
            least = self._least_sync(lower, stages, replicas, layout.height)
            cap = incumbent.load_cap(rounds, least)
            if self.relaxation.fits(stages, layout.budget, cap, upper):
                if high - low == 1:
                    return upper
                middle = (low + high) // 2
                ranges += [(low, middle), (middle, high)]
        return None

    def _least_sync(self, share: float, stages: int, replicas: int, height: int) -> int:
        weights = self.bounds.sync_weights(np.array([stages]), np.array([replicas]), sharded=True)
        return int(self.bounds.sync(np.maximum(weights, share), np.array([replicas]), np.array([height]))[0])

    def _descend(self, search: _LayoutSearch, rounds: int, sync_cap: int, incumbent: Incumbent) -> None:
        """Walk the trade-off between load and synchronisation, from the least load on.

        Each step finds the least load under a cap on the synchronisation, then the least synchronisation under that
        load, and goes on below it, until the load alone is no better than the incumbent.
        """
        least_sync = self._least_sync(0, search.count, search.replicas, search.layout.height)
        floor = int(self.bounds.load[search.count])
        while True:
            cap = incumbent.load_cap(rounds, least_sync)
            found = search.least_load(floor, cap, sync_cap)
            if found is None:
                return
            floor, choices = found
            sync_cap, choices = search.least_sync(floor, sync_cap, choices)
            objective = price(self.tables, choices, search.replicas, rounds)
            incumbent.offer(objective, self.tables, choices, search.replicas)
            sync_cap -= 1


class _LayoutSearch:
    """The recursion for one layout, number of stages and number of replicas."""

    def __init__(self, relaxation: Relaxation, layout: Layout, count: int, replicas: int, watch: Watch) -> None:
        self.relaxation, self.watch = relaxation, watch
        self.stages, self.band, self.tables = relaxation.stages, relaxation.band, relaxation.tables
        stages = self.stages
        self.layout, self.count, self.replicas = layout, count, replicas
        room = layout.budget - (count - 1) * stages.degrees[0]
        self.degrees = tuple(degree for degree in stages.degrees if degree <= room)
        self._classes: dict[int, LevelClasses] = {}
        self._syncs: dict[tuple[int, int], Ints] = {}

    def least_load(self, floor: int, cap: int, sync_cap: int) -> tuple[int, list[StageChoice]] | None:
        """Return the least load of ``floor`` to ``cap`` with which a plan exists, and such a plan."""
        choices = self.decide(cap, sync_cap)
        if choices is None:
            return None
        loads = self._loads_between(floor, cap)
        low, high = 0, len(loads) - 1
        while low < high:
            middle = (low + high) // 2
            better = self.decide(int(loads[middle]), sync_cap)
            if better is None:
                low = middle + 1
            else:
                high, choices = middle, better
        return int(loads[high]), choices

    def _loads_between(self, floor: int, cap: int) -> Ints:
        found = [np.zeros(0, dtype=np.int64)]
        for degree in self.degrees:
            for triples in self.classes(degree).triples:
                for zero in self.stages.types(degree):
                    load = self.stages.load(degree, zero, triples)
                    found.append(load[self.band.valid & (load >= floor) & (load <= cap)])
        return np.unique(np.concatenate(found))

    def least_sync(self, load: int, sync_cap: int, choices: list[StageChoice]) -> tuple[int, list[StageChoice]]:
        """Return the least synchronisation below ``sync_cap`` for plans of at most ``load``, and such a plan."""
        shares = [self.sync(degree, zero)[self.band.valid] for degree, zero in self._shardings()]
        syncs = np.unique(np.concatenate(shares))
        syncs = syncs[syncs <= sync_cap]
        low, high = 0, len(syncs) - 1
        while low < high:
            middle = (low + high) // 2
            better = self.decide(load, int(syncs[middle]))
            if better is None:
                low = middle + 1
            else:
                high, choices = middle, better
        return int(syncs[high]), choices

    def _shardings(self) -> list[tuple[int, int]]:
        return [sharding for sharding in self.stages.shardings if sharding[0] in self.degrees]

    def sync(self, degree: int, zero: int) -> Ints:
        """Ticks of the gradient synchronisation of every stage."""
        if (degree, zero) not in self._syncs:
            self._syncs[degree, zero] = self.stages.syncs(degree, zero, self.replicas, self.layout.height)
        return self._syncs[degree, zero]

    def classes(self, degree: int) -> LevelClasses:
        """Levels that a stage of ``degree`` blocks may see."""
        if degree not in self._classes:
            self._classes[degree] = self.layout.classes(degree, self.degrees)
        return self._classes[degree]

    def decide(self, cap: int, sync_cap: int) -> list[StageChoice] | None:
        """Return a plan whose loads and synchronisation stay within the caps, or None if there is none."""
        first_only = not self.stages.problem.preset.sync_all_stages
        limits = _Limits(self, cap, NEVER if first_only else sync_cap)
        first_limits = _Limits(self, cap, sync_cap) if first_only else limits
        completions = self.relaxation.completions(self.count, cap, float(self.tables.parameters.sum()))
        room = [np.minimum(self.layout.budget - least, self.layout.budget) for least in completions]
        if room[0][self.tables.layers] < 0:
            return None
        rows = [self._start()]
        for position in range(1, self.count):
            rows.append(self._step(rows[-1], position, limits, room[position]))
            if rows[-1].least >= FULL:
                return None
        return _Traceback(self, rows, limits, first_limits).choices()

    def _start(self) -> _Row:
        count = len(self.degrees)
        values = np.full((1, count + 1, count, self.layout.cycle), FULL, dtype=np.int64)
        values[0, count, :, 0] = 0
        return _Row(self.tables.layers, values)

    def _step(self, row: _Row, position: int, limits: _Limits, room: Ints) -> _Row:
        """Place the ``position``-th stage from the end, before another one."""
        self.watch.check()
        count, depth = len(self.degrees), self.band.depth
        low = max(0, row.low - depth)
        open_now = np.flatnonzero(room[low : row.high - 1] >= 0) + low
        if len(open_now) == 0:
            return _Row(0, np.full((1, count + 1, count, self.layout.cycle), FULL, dtype=np.int64))
        low, high = int(open_now[0]), int(open_now[-1]) + 1
        before = row.between(low + 1, high + depth)
        result = np.full((high - low, count + 1, count, self.layout.cycle), FULL, dtype=np.int64)
        for own, degree in enumerate(self.degrees):
            reached = self._reach(before[:, :, own, :], own, limits, position, low, high)
            moved = np.roll(reached, degree % self.layout.cycle, axis=2) + degree
            moved[moved > room[low:high, None, None]] = FULL
            result[:, own, :, :] = moved
        return _Row(low, result).trimmed()

    def _reach(self, before: Ints, own: int, limits: _Limits, position: int, low: int, high: int) -> Ints:
        """Least blocks below a stage of the ``own``-th degree, by first layer, entry neighbour and place."""
        count = len(self.degrees)
        reached = np.full((high - low, count, self.layout.cycle), FULL, dtype=np.int64)
        which = self.classes(self.degrees[own]).which[:, :count, :]
        usable = limits.of(own)[low:high] >= position
        for column in np.flatnonzero(usable.any(axis=(0, 2))).tolist():
            legal = usable[:, column].take(which, axis=1)
            after = np.where(legal, before[column : column + high - low, :, None, :], FULL).min(axis=1)
            np.minimum(reached, after, out=reached)
        return reached


@dataclass(frozen=True)
class _Row:
    """Least blocks by first layer from ``low`` on; indices as in the recursion of this module."""

    low: int
    values: Ints

    @property
    def high(self) -> int:
        """One beyond the last first layer."""
        return self.low + len(self.values)

    @property
    def least(self) -> int:
        """Least value of the row."""
        return int(self.values.min())

    def between(self, low: int, high: int) -> Ints:
        """Values of the first layers ``[low, high)``, `FULL` where the row has none."""
        values = np.full((high - low, *self.values.shape[1:]), FULL, dtype=np.int64)
        start, end = max(low, self.low), min(high, self.high)
        if start < end:
            values[start - low : end - low] = self.values[start - self.low : end - self.low]
        return values

    def trimmed(self) -> _Row:
        """Return the row without the first layers at its ends that nothing reaches."""
        active = np.flatnonzero((self.values < FULL).any(axis=(1, 2, 3)))
        if len(active) == 0:
            return _Row(self.low, self.values[:1])
        return _Row(self.low + int(active[0]), self.values[active[0] : active[-1] + 1])


class _Limits:
    """For each degree and class of levels, the most microbatches in flight with which a stage keeps the caps."""

    def __init__(self, search: _LayoutSearch, cap: int, sync_cap: int) -> None:
        self.search, self.cap, self.sync_cap = search, cap, sync_cap
        self._found: dict[int, Ints] = {}

    def of(self, own: int) -> Ints:
        """Return the limit of every stage (first layer, column) with the ``own``-th degree, by class of levels."""
        if own not in self._found:
            degree = self.search.degrees[own]
            types, kinds = self.search.stages.types(degree), range(len(self.search.classes(degree).triples))
            limits = [np.maximum.reduce([self.with_type(zero, own, kind) for zero in types]) for kind in kinds]
            self._found[own] = np.stack(limits, axis=-1)
        return self._found[own]

    def with_type(self, zero: int, own: int, kind: int) -> Ints:
        """Return the limit of every stage for one ZeRO type and class of levels."""
        degree = self.search.degrees[own]
        load = self.search.stages.load(degree, zero, self.search.classes(degree).triples[kind])
        fast = load <= self.cap
        if self.sync_cap < NEVER:
            fast &= self.search.sync(degree, zero) <= self.sync_cap
        return np.where(fast, self.search.band.most_in_flight(zero, degree), 0)


@dataclass(frozen=True)
class _Traceback:
    """Places the first stage on finished rows, and walks back to the last."""

    search: _LayoutSearch
    rows: list[_Row]
    limits: _Limits
    first_limits: _Limits

    def choices(self) -> list[StageChoice] | None:
        """Return the stages from the first on, or None where the first cannot be placed."""
        search = self.search
        none = len(search.degrees)
        for own, degree in enumerate(search.degrees):
            for end in search.layout.ends:
                place = (end - degree) % search.layout.cycle
                found = self._before(0, own, none, place, search.count, self.first_limits)
                if found is not None and found[0] + degree <= search.layout.budget:
                    return self._walk(own, place, found)
        return None

    def _walk(self, own: int, place: int, found: tuple[int, int, int, int]) -> list[StageChoice]:
        search, first, choices = self.search, 0, []
        above, limits = len(search.degrees), self.first_limits
        for position in range(search.count, 0, -1):
            _, column, below, kind = found
            degree, end = search.degrees[own], first + 1 + column
            choices.append(StageChoice(first, end, self._type(own, kind, position, first, column, limits), degree))
            if position == 1:
                break
            limits = self.limits
            first, above, own = end, own, below
            place = (place - search.degrees[own]) % search.layout.cycle
            step = self._before(first, own, above, place, position - 1, limits)
            if step is None:
                raise AssertionError("every finished row was reached from the one before")
            found = step
        return choices

    def _before(
        self, first: int, own: int, above: int, place: int, position: int, limits: _Limits
    ) -> tuple[int, int, int, int] | None:
        """Return the least blocks below a stage, with its column, its neighbour below and its class of levels."""
        search = self.search
        classes = search.classes(search.degrees[own])
        best = None
        for below in range(len(search.degrees) + 1):
            kind = int(classes.which[below, above, place])
            usable = limits.of(own)[first, :, kind] >= position
            row = self.rows[position - 1].between(first + 1, first + 1 + search.band.depth)
            least = np.where(usable, row[:, below, own, place], FULL)
            column = int(least.argmin())
            if least[column] < FULL and (best is None or least[column] < best[0]):
                best = (int(least[column]), column, below, kind)
        return best

    def _type(self, own: int, kind: int, position: int, first: int, column: int, limits: _Limits) -> int:
        degree = self.search.degrees[own]
        for zero in self.search.stages.types(degree):
            if limits.with_type(zero, own, kind)[first, column] >= position:
                return zero
        raise AssertionError("a usable stage has a usable type")


def price(tables: VariantTables, choices: list[StageChoice], replicas: int, rounds: int) -> int:
    """Return the objective of a plan, at its true positions."""
    problem, width = tables.problem, tables.width
    widths = np.array([choice.degree * width for choice in choices], dtype=np.int64)
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
    return load * rounds + sync
