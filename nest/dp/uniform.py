"""Plans whose stages are all equally wide: the recursion over (stage from the end, first layer).

The ``q``-th stage from the end starts at a position that ``q`` alone decides, so its levels and the microbatches it has
in flight depend on ``q`` alone:

    ``best_q[first] = min over end > first of max(load_q(first, end), best_{q-1}[end])``,  ``best_0[layers] = 0``.

A stage that does not fit has load `NEVER` (rule C11, memory); stages are runs of layers (C2, C3) by construction. Rows
are shared by all outer choices whose levels agree from the end of the pipeline on.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nest.dp.outer import Bounds
from nest.dp.profile import Pairs, replica_offsets, uniform_profile
from nest.dp.traceback import Incumbent
from nest.dp.watch import Watch
from nest.plan import StageChoice
from nest.tables import Band
from nest.units import NEVER, Ints

_Node = tuple[int, int]


class UniformRows:
    """Rows of the recursion for one band of stages, kept for reuse.

    Parameters
    ----------
    band
        Tables of the stages that may be used.
    flights
        Most microbatches in flight with which each stage fits.
    allowed
        Mask of stages that may be used at all; None for all.
    """

    def __init__(self, band: Band, flights: Ints, allowed: np.ndarray | None = None) -> None:
        self.band, self.flights = band, flights
        self.usable = band.valid if allowed is None else band.valid & allowed
        start = np.full(band.tables.layers + 1 + band.depth, NEVER, dtype=np.int64)
        start[band.tables.layers] = 0
        self._rows: dict[_Node, Ints] = {}
        self._start = start
        self._next: dict[tuple[int, Pairs], int] = {}
        self._values: list[Ints] = [start]
        self._loads: dict[Pairs, Ints] = {}

    def load(self, pairs: Pairs, position: int) -> Ints:
        """Load of every stage at a position from the end, `NEVER` where it does not fit."""
        return np.where(self.flights >= position, self._load(pairs), NEVER)

    def _load(self, pairs: Pairs) -> Ints:
        if pairs not in self._loads:
            forward, backward = self.band.forward, self.band.backward
            load = forward(pairs[0][0]) + backward(pairs[0][1])
            for entry, out in pairs[1:]:
                load = np.maximum(load, forward(entry) + backward(out))
            self._loads[pairs] = np.where(self.usable, load, NEVER)
        return self._loads[pairs]

    def last_row(self, profile: list[Pairs]) -> Ints:
        """Value of the best plan for each number of layers in its first stage, less one."""
        node = 0
        for position, pairs in enumerate(profile[:-1], start=1):
            node = self._step(node, pairs, position)
        first = self.load(profile[-1], len(profile))[0]
        return np.maximum(first, self._values[node][1 : 1 + self.band.depth])

    def _step(self, node: int, pairs: Pairs, position: int) -> int:
        key = (node, pairs)
        if key not in self._next:
            after = _windows(self._values[node], self.band.depth)
            row = np.full_like(self._start, NEVER)
            np.maximum(self.load(pairs, position), after).min(axis=1, out=row[: self.band.tables.layers])
            self._values.append(row)
            self._next[key] = len(self._values) - 1
        return self._next[key]

    def cuts(self, profile: list[Pairs], first_stage: int) -> list[int]:
        """Trace back the best plan whose first stage has ``first_stage`` layers: ``[0, cut, ..., layers]``."""
        nodes = [0]
        for position, pairs in enumerate(profile[:-1], start=1):
            nodes.append(self._step(nodes[-1], pairs, position))
        cuts = [0, first_stage]
        for position in range(len(profile) - 1, 0, -1):
            first = cuts[-1]
            after = self._values[nodes[position - 1]][first + 1 : first + 1 + self.band.depth]
            column = int(np.argmin(np.maximum(self.load(profile[position - 1], position)[first], after)))
            cuts.append(first + 1 + column)
        return cuts


def _windows(row: Ints, depth: int) -> Ints:
    """View the values behind each place: entry ``[first, column]`` is ``row[first + 1 + column]``."""
    stride = row.strides[0]
    return as_strided(row[1:], shape=(len(row) - 1 - depth, depth), strides=(stride, stride))


def least_heaviest(rows: UniformRows, profile: list[Pairs], load: int) -> int:
    """Return the least of the most parameters on any stage, over plans of at most ``load`` ticks.

    The same recursion with the roles of load and parameters exchanged.
    """
    band = rows.band
    best = rows._start
    for position, pairs in enumerate(profile, start=1):
        weight = np.where(rows.load(pairs, position) <= load, band.parameters, NEVER)
        row = np.full_like(best, NEVER)
        np.maximum(weight, _windows(best, band.depth)).min(axis=1, out=row[: band.tables.layers])
        best = row
    return int(best[0])


class UniformSearch:
    """Settles outer choices of one variant without sharding.

    Parameters
    ----------
    bounds
        Of the variant.
    watch
        Of the search.
    """

    def __init__(self, bounds: Bounds, watch: Watch) -> None:
        self.tables, self.bounds, self.problem = bounds.tables, bounds, bounds.tables.problem
        self.watch = watch
        self._rows: dict[int, UniformRows] = {}
        self._profiles: dict[tuple[int, bytes], list[Pairs]] = {}

    def settle(self, stages: int, replicas: int, rounds: int, incumbent: Incumbent) -> None:
        """Offer the best plan of an outer choice to the incumbent, if it is better."""
        profile = self._profile(stages, replicas)
        rows, last = self._best_rows(stages, rounds, profile, incumbent)
        height = self.tables.height(replicas, stages * self.tables.width)
        if self.problem.preset.sync_all_stages:
            self._with_slowest_sync(rows, profile, replicas, rounds, height, incumbent)
        else:
            self._with_first_sync(rows, profile, last, replicas, rounds, height, incumbent)

    def _profile(self, stages: int, replicas: int) -> list[Pairs]:
        width = self.tables.width
        offsets = replica_offsets(self.problem, replicas, stages * width)
        key = (stages, offsets.tobytes())
        if key not in self._profiles:
            monotone = self.tables.monotone
            self._profiles[key] = uniform_profile(self.problem, width, stages, offsets, monotone=monotone)
        return self._profiles[key]

    def _best_rows(
        self, stages: int, rounds: int, profile: list[Pairs], incumbent: Incumbent
    ) -> tuple[UniformRows, Ints]:
        """Return rows deep enough for every plan that could be better, and their last row.

        Without an incumbent the depth is guessed from a load that is doubled until the best plan stays below it.
        """
        if incumbent.objective < NEVER:
            rows = self._shared_rows(stages, rounds, incumbent)
            return rows, rows.last_row(profile)
        guess = 2 * int(self.bounds.load[stages]) + 1
        while True:
            depth = self.tables.deepest_within(guess)
            rows = self._new_rows(depth)
            last = rows.last_row(profile)
            if depth >= self.tables.deepest or last.min() <= guess:
                return rows, last
            guess *= 2

    def _shared_rows(self, stages: int, rounds: int, incumbent: Incumbent) -> UniformRows:
        """Rows shared by all numbers of stages of the same magnitude."""
        magnitude = stages.bit_length()
        depth = self.tables.deepest_within(incumbent.load_cap(rounds))
        if magnitude not in self._rows or self._rows[magnitude].band.depth < depth:
            fewest = 1 << (magnitude - 1)
            most_replicas = max(1, self.problem.cluster.devices // (fewest * self.tables.width))
            least_rounds = -(-self.problem.training.microbatches // most_replicas) + fewest - 1
            deep = self.tables.deepest_within(incumbent.load_cap(min(rounds, least_rounds)))
            self._rows[magnitude] = self._new_rows(max(depth, deep))
        return self._rows[magnitude]

    def _new_rows(self, depth: int) -> UniformRows:
        band = self.tables.band(max(depth, 1))
        return UniformRows(band, band.most_in_flight(0, 1))

    def _with_first_sync(
        self,
        rows: UniformRows,
        profile: list[Pairs],
        last: Ints,
        replicas: int,
        rounds: int,
        height: int,
        incumbent: Incumbent,
    ) -> None:
        """The first stage alone is waited for: try each of its sizes."""
        fits = np.flatnonzero(last < NEVER)
        if len(fits) == 0:
            return
        sync = self.tables.syncs(rows.band.parameters[0][fits], replicas, height)
        values = last[fits] * rounds + sync
        best = int(np.argmin(values))
        if values[best] < incumbent.objective:
            cuts = rows.cuts(profile, int(fits[best]) + 1)
            incumbent.offer(int(values[best]), self.tables, _choices(cuts), replicas)

    def _with_slowest_sync(
        self, rows: UniformRows, profile: list[Pairs], replicas: int, rounds: int, height: int, incumbent: Incumbent
    ) -> None:
        """The slowest stage is waited for: walk the trade-off between the largest load and the most parameters.

        From the least load on, each step forbids all stages as heavy as the best plan's heaviest. It ends when the
        load alone, with the least synchronisation possible, is no better than the incumbent.
        """
        weights = self.bounds.sync_weights(np.array([len(profile)]), np.array([replicas]), sharded=False)
        least_sync = int(self.tables.syncs(weights, replicas, height)[0])
        load = int(rows.last_row(profile).min())
        while load < NEVER and load * rounds + least_sync < incumbent.objective:
            heaviest = least_heaviest(rows, profile, load)
            sync = int(self.tables.syncs(np.array([heaviest]), replicas, height)[0])
            if load * rounds + sync < incumbent.objective:
                cuts = self._cuts_within(rows, profile, heaviest)
                incumbent.offer(load * rounds + sync, self.tables, _choices(cuts), replicas)
            if load * rounds + least_sync >= incumbent.objective:
                return
            rows = UniformRows(rows.band, rows.flights, rows.band.parameters < heaviest)
            load = int(rows.last_row(profile).min())

    def _cuts_within(self, rows: UniformRows, profile: list[Pairs], heaviest: int) -> list[int]:
        rows = UniformRows(rows.band, rows.flights, rows.band.parameters <= heaviest)
        return rows.cuts(profile, int(np.argmin(rows.last_row(profile))) + 1)


def _choices(cuts: list[int]) -> list[StageChoice]:
    return [StageChoice(first, end) for first, end in pairwise(cuts)]
