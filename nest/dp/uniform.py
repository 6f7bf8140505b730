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
from nest.dp.profile import Pairs, Profile, replica_offsets, uniform_profile
from nest.dp.traceback import Incumbent
from nest.dp.watch import Watch
from nest.plan import StageChoice
from nest.tables import Band
from nest.units import NEVER, Ints

class UniformRows:
    """Rows of the recursion for one band of stages, kept for reuse.

    Parameters
    ----------
    band
        Tables of the stages that may be used.
    watch
        Of the search.
    allowed
        Mask of stages that may be used at all; None for all.
    """

    def __init__(self, band: Band, watch: Watch, allowed: np.ndarray | None = None) -> None:
        self.band, self.watch = band, watch
        self.flights = band.most_in_flight(0, 1)
        self.usable = band.valid if allowed is None else band.valid & allowed
        self._flights_by_column = self.flights.max(axis=0)
        start = np.full(band.tables.layers + 1 + band.depth, NEVER, dtype=np.int64)
        start[band.tables.layers] = 0
        self.start = start
        self._values: list[Ints] = [start]
        self._next: dict[tuple[int, Pairs], int] = {}
        self._loads: dict[Pairs, Ints] = {}
        self._last_rows: dict[tuple[Pairs, ...], Ints] = {}

    def columns(self, position: int) -> int:
        """Number of columns with a stage that fits at a position from the end."""
        fitting = np.flatnonzero(self._flights_by_column >= position)
        return int(fitting[-1]) + 1 if len(fitting) else 0

    def load(self, pairs: Pairs, position: int) -> Ints:
        """Load of every stage at a position from the end, `NEVER` where it does not fit; only the columns that count."""
        columns = self.columns(position)
        return np.where(self.flights[:, :columns] >= position, self._load(pairs)[:, :columns], NEVER)

    def _load(self, pairs: Pairs) -> Ints:
        if pairs not in self._loads:
            forward, backward = self.band.forward, self.band.backward
            load = forward(pairs[0][0]) + backward(pairs[0][1])
            for entry, out in pairs[1:]:
                load = np.maximum(load, forward(entry) + backward(out))
            self._loads[pairs] = np.where(self.usable, load, NEVER)
        return self._loads[pairs]

    def last_row(self, profile: Profile) -> Ints:
        """Value of the best plan for each number of layers in its first stage, less one."""
        if profile not in self._last_rows:
            node = self._nodes(profile)[-1]
            first = self.load(profile[-1], len(profile))[0]
            row = np.full(self.band.depth, NEVER, dtype=np.int64)
            np.maximum(first, self._values[node][1 : 1 + len(first)], out=row[: len(first)])
            self._last_rows[profile] = row
        return self._last_rows[profile]

    def _nodes(self, profile: Profile) -> list[int]:
        """Rows behind each stage but the first, from the end of the pipeline on."""
        nodes = [0]
        for position, pairs in enumerate(profile[:-1], start=1):
            nodes.append(self._step(nodes[-1], pairs, position))
        return nodes

    def _step(self, node: int, pairs: Pairs, position: int) -> int:
        key = (node, pairs)
        if key not in self._next:
            self.watch.check()
            load = self.load(pairs, position)
            row = np.full_like(self.start, NEVER)
            if load.shape[1]:
                after = windows(self._values[node], load.shape)
                np.maximum(load, after).min(axis=1, out=row[: self.band.tables.layers])
            self._values.append(row)
            self._next[key] = len(self._values) - 1
        return self._next[key]

    def cuts(self, profile: Profile, first_stage: int) -> list[int]:
        """Trace back the best plan whose first stage has ``first_stage`` layers: ``[0, cut, ..., layers]``."""
        nodes = self._nodes(profile)
        cuts = [0, first_stage]
        for position in range(len(profile) - 1, 0, -1):
            first = cuts[-1]
            load = self.load(profile[position - 1], position)[first]
            after = self._values[nodes[position - 1]][first + 1 : first + 1 + len(load)]
            cuts.append(first + 1 + int(np.argmin(np.maximum(load, after))))
        return cuts

    def least_heaviest(self, profile: Profile, load: int) -> int:
        """Return the least of the most parameters on any stage, over plans of at most ``load`` ticks.

        The same recursion with the roles of load and parameters exchanged.
        """
        best = self.start
        for position, pairs in enumerate(profile, start=1):
            self.watch.check()
            loads = self.load(pairs, position)
            weight = np.where(loads <= load, self.band.parameters[:, : loads.shape[1]], NEVER)
            row = np.full_like(best, NEVER)
            np.maximum(weight, windows(best, loads.shape)).min(axis=1, out=row[: self.band.tables.layers])
            best = row
        return int(best[0])


class PossibleStages:
    """Numbers of stages into which the layers can be cut so that every stage fits its memory, found one by one.

    Parameters
    ----------
    rows
        Rows over all stages that fit at all.
    """

    def __init__(self, rows: UniformRows) -> None:
        self._rows = rows
        self._reached = rows.start < NEVER
        self._possible = [False]

    def __contains__(self, stages: int) -> bool:
        layers = self._rows.band.tables.layers
        while len(self._possible) <= stages:
            self._rows.watch.check()
            position = len(self._possible)
            fits = self._rows.flights[:, : self._rows.columns(position)] >= position
            after = windows(self._reached, fits.shape)
            self._reached = np.zeros_like(self._reached)
            np.any(fits & after, axis=1, out=self._reached[:layers])
            self._possible.append(bool(self._reached[0]))
        return self._possible[stages]


def windows(row: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """View the values behind each place: entry ``[first, column]`` is ``row[first + 1 + column]``."""
    stride = row.strides[0]
    return as_strided(row[1:], shape=shape, strides=(stride, stride), writeable=False)


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
        self._profiles: dict[tuple[int, bytes], Profile] = {}
        self._possible: PossibleStages | None = None

    def settle(self, stages: int, replicas: int, rounds: int, incumbent: Incumbent) -> None:
        """Offer the best plan of an outer choice to the incumbent, if it is better."""
        if self._possible is not None and stages not in self._possible:
            return
        profile = self._profile(stages, replicas)
        rows, last = self._best_rows(stages, rounds, profile, incumbent)
        if last.min() == NEVER:
            if incumbent.objective == NEVER and self._possible is None:
                self._possible = PossibleStages(self._new_rows(self.tables.deepest))
            return
        height = self.tables.height(replicas, stages * self.tables.width)
        if self.problem.preset.sync_all_stages:
            self._with_slowest_sync(rows, profile, replicas, rounds, height, incumbent)
        else:
            self._with_first_sync(rows, profile, last, replicas, rounds, height, incumbent)

    def _profile(self, stages: int, replicas: int) -> Profile:
        width = self.tables.width
        offsets = replica_offsets(self.problem, replicas, stages * width)
        key = (stages, offsets.tobytes())
        if key not in self._profiles:
            monotone = self.tables.monotone
            self._profiles[key] = uniform_profile(self.problem, width, stages, offsets, monotone=monotone)
        return self._profiles[key]

    def _best_rows(
        self, stages: int, rounds: int, profile: Profile, incumbent: Incumbent
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
        return UniformRows(self.tables.band(max(depth, 1)), self.watch)

    def _with_first_sync(
        self,
        rows: UniformRows,
        profile: Profile,
        last: Ints,
        replicas: int,
        rounds: int,
        height: int,
        incumbent: Incumbent,
    ) -> None:
        """The first stage alone is waited for: try each of its sizes."""
        fits = np.flatnonzero(last <= incumbent.load_cap(rounds))
        if len(fits) == 0:
            return
        sync = self.tables.syncs(rows.band.parameters[0][fits], replicas, height)
        values = last[fits] * rounds + sync
        best = int(np.argmin(values))
        if values[best] < incumbent.objective:
            cuts = rows.cuts(profile, int(fits[best]) + 1)
            incumbent.offer(int(values[best]), self.tables, _choices(cuts), replicas)

    def _with_slowest_sync(
        self, rows: UniformRows, profile: Profile, replicas: int, rounds: int, height: int, incumbent: Incumbent
    ) -> None:
        """The slowest stage is waited for: walk the trade-off between the largest load and the most parameters.

        From the least load on, each step forbids all stages as heavy as the best plan's heaviest. It ends when the
        load alone, with the least synchronisation possible, is no better than the incumbent.
        """
        weights = self.bounds.sync_weights(np.array([len(profile)]), np.array([replicas]), sharded=False)
        least_sync = int(self.tables.syncs(weights, replicas, height)[0])
        load = int(rows.last_row(profile).min())
        while load < NEVER and load * rounds + least_sync < incumbent.objective:
            heaviest = rows.least_heaviest(profile, load)
            sync = int(self.tables.syncs(np.array([heaviest]), replicas, height)[0])
            if load * rounds + sync < incumbent.objective:
                cuts = self._cuts_within(rows, profile, heaviest)
                incumbent.offer(load * rounds + sync, self.tables, _choices(cuts), replicas)
            if load * rounds + least_sync >= incumbent.objective:
                return
            rows = UniformRows(rows.band, self.watch, rows.band.parameters < heaviest)
            load = int(rows.last_row(profile).min())

    def _cuts_within(self, rows: UniformRows, profile: Profile, heaviest: int) -> list[int]:
        rows = UniformRows(rows.band, self.watch, rows.band.parameters <= heaviest)
        return rows.cuts(profile, int(np.argmin(rows.last_row(profile))) + 1)


def _choices(cuts: list[int]) -> list[StageChoice]:
    return [StageChoice(first, end) for first, end in pairwise(cuts)]
