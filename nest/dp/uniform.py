"""Plans whose stages are all equally wide: the recursion over (stage from the end, first layer).

The ``q``-th stage from the end starts at a position that ``q`` alone decides, so its levels and the microbatches it has
in flight depend on ``q`` alone:

    ``best_q[first] = min over end > first of max(load_q(first, end), best_{q-1}[end])``,  ``best_0[layers] = 0``.

A stage that does not fit has load `NEVER` (rule C11, memory); stages are runs of layers (C2, C3) by construction. Rows
are shared by all outer choices whose levels agree from the end of the pipeline on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nest.dp.masks import Role, StageMasks, roles
from nest.dp.outer import Bounds, OuterChoice
from nest.dp.profile import Pairs, Profile, replica_offsets, uniform_profile
from nest.dp.watch import Watch
from nest.plan import StageChoice
from nest.tables import Band
from nest.units import NEVER, Ints

Step: TypeAlias = tuple[Pairs, Role]
"""What one stage sees of the network, and what side constraints may know of it."""

Steps: TypeAlias = tuple[Step, ...]
"""Those of the 1st, 2nd, ... stage from the end."""


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
        self.flights, self.masks = band.most_in_flight(0, 1), StageMasks(band)
        self.usable = band.valid if allowed is None else band.valid & allowed
        self._flights_by_column = self.flights.max(axis=0)
        start = np.full(band.tables.layers + 1 + band.depth, NEVER, dtype=np.int64)
        start[band.tables.layers] = 0
        self.start = start
        self._values: list[Ints] = [start]
        self._next: dict[tuple[int, Step], int] = {}
        self._loads: dict[Pairs, Ints] = {}
        self._last_rows: dict[Steps, Ints] = {}
        self._longest: tuple[Steps, list[int]] = ((), [0])

    def columns(self, position: int) -> int:
        """Return up to which column a stage fits at a position from the end."""
        fitting = np.flatnonzero(self._flights_by_column >= position)
        return int(fitting[-1]) + 1 if len(fitting) else 0

    def load(self, step: Step, position: int) -> Ints:
        """Load of every stage at a position from the end, up to `columns`; `NEVER` where it may not be or not fit."""
        columns, (pairs, role) = self.columns(position), step
        usable, admitted = self.flights[:, :columns] >= position, self.masks.uniform(role)
        if admitted is not None:
            usable &= admitted[:, :columns]
        return np.where(usable, self._load(pairs)[:, :columns], NEVER)

    def _load(self, pairs: Pairs) -> Ints:
        if pairs not in self._loads:
            forward, backward = self.band.forward, self.band.backward
            load = forward(pairs[0][0]) + backward(pairs[0][1])
            for entry, out in pairs[1:]:
                load = np.maximum(load, forward(entry) + backward(out))
            self._loads[pairs] = np.where(self.usable, load, NEVER)
        return self._loads[pairs]

    def last_row(self, steps: Steps) -> Ints:
        """Value of the best plan for each number of layers in its first stage, less one."""
        if steps not in self._last_rows:
            node = self._nodes(steps)[-1]
            first = self.load(steps[-1], len(steps))[0]
            row = np.full(self.band.depth, NEVER, dtype=np.int64)
            np.maximum(first, self._values[node][1 : 1 + len(first)], out=row[: len(first)])
            self._last_rows[steps] = row
        return self._last_rows[steps]

    def _nodes(self, steps: Steps) -> list[int]:
        """Return the rows behind each stage but the first, from the end of the pipeline on."""
        inner = steps[:-1]
        known, nodes = self._longest
        if known[: len(inner)] == inner:
            return nodes[: len(steps)]
        nodes = [0]
        for position, step in enumerate(inner, start=1):
            nodes.append(self._step(nodes[-1], step, position))
        if len(inner) > len(known):
            self._longest = inner, nodes
        return nodes

    def _step(self, node: int, step: Step, position: int) -> int:
        key = (node, step)
        if key not in self._next:
            self.watch.check()
            load = self.load(step, position)
            row = np.full_like(self.start, NEVER)
            if load.shape[1]:
                after = windows(self._values[node], load.shape)
                np.maximum(load, after).min(axis=1, out=row[: self.band.tables.layers])
            self._values.append(row)
            self._next[key] = len(self._values) - 1
        return self._next[key]

    def cuts(self, steps: Steps, first_stage: int) -> list[int]:
        """Trace back the best plan whose first stage has ``first_stage`` layers: ``[0, cut, ..., layers]``."""
        nodes = self._nodes(steps)
        cuts = [0, first_stage]
        for position in range(len(steps) - 1, 0, -1):
            first = cuts[-1]
            load = self.load(steps[position - 1], position)[first]
            after = self._values[nodes[position - 1]][first + 1 : first + 1 + len(load)]
            cuts.append(first + 1 + int(np.argmin(np.maximum(load, after))))
        return cuts

    def least_heaviest(self, steps: Steps, load: int) -> int:
        """Return the least of the most parameters on any stage, over plans of at most ``load`` ticks.

        The same recursion with the roles of load and parameters exchanged.
        """
        best = self.start
        for position, step in enumerate(steps, start=1):
            self.watch.check()
            loads = self.load(step, position)
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


def windows(row: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
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
        self.watch, self.incumbent = watch, watch.incumbent
        self._rows: dict[int, UniformRows] = {}
        self._profiles: dict[tuple[int, bytes], Profile] = {}
        self._possible: PossibleStages | None = None
        self._least: dict[int, int] = {}
        self._seen: set[int] = set()

    def settle(self, choice: OuterChoice) -> None:
        """Offer the best plan of an outer choice to the incumbent, if it is better."""
        if self._possible is not None and choice.stages not in self._possible:
            return
        if self._least.get(choice.stages, 0) > self.incumbent.load_cap(choice.rounds):
            return
        steps = self._steps(choice)
        rows = self._deep_rows(choice, steps)
        self._learn(rows, steps)
        if rows.last_row(steps).min() == NEVER:
            if self.incumbent.objective == NEVER and self._possible is None:
                self._possible = PossibleStages(self._new_rows(self.tables.deepest))
        elif self.problem.preset.sync_all_stages:
            self._with_slowest_sync(rows, steps, choice)
        else:
            self._with_first_sync(rows, steps, choice)

    def _learn(self, rows: UniformRows, steps: Steps) -> None:
        """Keep the least load of a number of stages for all numbers of replicas.

        It is that of the steps themselves where one replica stands for all, else that at the cheapest levels, which are
        the innermost where nothing gets cheaper outwards. Rows are deep enough for every choice they are shared by, so
        that what they do not reach is beyond the cap of each. Where side constraints look at places, one number of
        replicas says nothing about another.
        """
        stages = len(steps)
        if stages in self._least or self.tables.filters.by_replicas:
            return
        if not self.problem.preset.all_replicas:
            self._least[stages] = int(rows.last_row(steps).min())
        elif self.tables.monotone and stages in self._seen and self.incumbent.objective < NEVER:
            cheapest = tuple((((0, 0),), role) for _, role in steps)
            self._least[stages] = int(rows.last_row(cheapest).min())
        self._seen.add(stages)

    def _steps(self, choice: OuterChoice) -> Steps:
        return tuple(zip(self._profile(choice), roles(self.tables, choice.stages, choice.replicas), strict=True))

    def _profile(self, choice: OuterChoice) -> Profile:
        width = self.tables.width
        offsets = replica_offsets(self.problem, choice.replicas, choice.stages * width)
        key = (choice.stages, offsets.tobytes())
        if key not in self._profiles:
            monotone = self.tables.monotone
            self._profiles[key] = uniform_profile(self.problem, width, choice.stages, offsets, monotone=monotone)
        return self._profiles[key]

    def _deep_rows(self, choice: OuterChoice, steps: Steps) -> UniformRows:
        """Return rows deep enough for every plan that could be better.

        Without an incumbent the depth is guessed from a load that is doubled until the best plan stays below it.
        """
        if self.incumbent.objective < NEVER:
            return self._shared_rows(choice)
        guess = 2 * int(self.bounds.load[choice.stages]) + 1
        while True:
            depth = self.tables.deepest_within(guess)
            rows = self._new_rows(depth)
            if depth >= self.tables.deepest or rows.last_row(steps).min() <= guess:
                return rows
            guess *= 2

    def _shared_rows(self, choice: OuterChoice) -> UniformRows:
        """Return rows shared by all numbers of stages of the same magnitude."""
        magnitude = choice.stages.bit_length()
        depth = self.tables.deepest_within(self.incumbent.load_cap(choice.rounds))
        if magnitude not in self._rows or self._rows[magnitude].band.depth < depth:
            fewest = 1 << (magnitude - 1)
            most_replicas = max(1, self.tables.devices // (fewest * self.tables.width))
            least_rounds = -(-self.problem.microbatches(self.tables.variant) // most_replicas) + fewest - 1
            deep = self.tables.deepest_within(self.incumbent.load_cap(min(choice.rounds, least_rounds)))
            self._rows[magnitude] = self._new_rows(max(depth, deep))
        return self._rows[magnitude]

    def _new_rows(self, depth: int) -> UniformRows:
        return UniformRows(self.tables.band(max(depth, 1)), self.watch)

    def _syncs(self, parameters: Ints, choice: OuterChoice) -> Ints:
        height = self.tables.height(choice.replicas, choice.stages * self.tables.width)
        return self.tables.syncs(parameters, choice.replicas, height)

    def _with_first_sync(self, rows: UniformRows, steps: Steps, choice: OuterChoice) -> None:
        """Try each size of the first stage, which alone is waited for."""
        last = rows.last_row(steps)
        fits = np.flatnonzero(last <= self.incumbent.load_cap(choice.rounds))
        if len(fits) == 0:
            return
        values = last[fits] * choice.rounds + self._syncs(rows.band.parameters[0][fits], choice)
        best = int(np.argmin(values))
        if values[best] < self.incumbent.objective:
            cuts = rows.cuts(steps, int(fits[best]) + 1)
            self.incumbent.offer(int(values[best]), self.tables, _choices(cuts), choice.replicas)

    def _with_slowest_sync(self, rows: UniformRows, steps: Steps, choice: OuterChoice) -> None:
        """Walk the trade-off between the largest load and the most parameters, as the slowest stage is waited for.

        From the least load on, each step forbids all stages as heavy as the best plan's heaviest. It ends when the
        load alone, with the least synchronisation possible, is no better than the incumbent.
        """
        weights = self.bounds.sync_weights(np.array([choice.stages]), np.array([choice.replicas]), sharded=False)
        least_sync = int(self._syncs(weights, choice)[0])
        load = int(rows.last_row(steps).min())
        while load < NEVER and load * choice.rounds + least_sync < self.incumbent.objective:
            heaviest = rows.least_heaviest(steps, load)
            objective = load * choice.rounds + int(self._syncs(np.array([heaviest]), choice)[0])
            if objective < self.incumbent.objective:
                light = UniformRows(rows.band, self.watch, rows.band.parameters <= heaviest)
                cuts = light.cuts(steps, int(np.argmin(light.last_row(steps))) + 1)
                self.incumbent.offer(objective, self.tables, _choices(cuts), choice.replicas)
            if load * choice.rounds + least_sync >= self.incumbent.objective:
                return
            rows = UniformRows(rows.band, self.watch, rows.band.parameters < heaviest)
            load = int(rows.last_row(steps).min())


def _choices(cuts: list[int]) -> list[StageChoice]:
    return [StageChoice(first, end) for first, end in pairwise(cuts)]
