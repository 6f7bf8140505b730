"""The reachable states of one outer choice, closed: no plan within the caps exists where layer 0 is not among them."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np

from nest.certificate.choices import OuterChoices
from nest.evaluate import evaluate
from nest.plan import Plan, Stage, inside_stage
from nest.problem import Recompute
from nest.units import Ints, distinct

Triple: TypeAlias = tuple[int, int, int]
"""Levels of a stage's entry boundary, exit boundary and block, in one replica."""


class Question:
    """The question whether a plan with so many stages and replicas takes less than the value."""

    def __init__(self, choices: OuterChoices, stages: int, replicas: int, load: int, fewest: int) -> None:
        self.choices, self.stages, self.replicas, self.fewest = choices, stages, replicas, fewest
        self.problem, self.tables, self.value = choices.problem, choices.tables, choices.value
        self.rounds, self.band = choices.rounds(stages, replicas), choices.band(load)
        self.blocks = choices.blocks // replicas
        least = choices.degrees[0]
        self.degrees = [degree for degree in choices.degrees if degree + (stages - 1) * least <= self.blocks]

    def answer(self) -> Plan | None:
        """Return a faster plan, or None where there is none."""
        for strides in self._alike():
            closure = _Closure(self, strides)
            better = self._faster(closure, closure.syncs())
            if better is not None:
                return better
        return None

    def _alike(self) -> list[list[int]]:
        """Group strides (in blocks) after which replicas start alike and synchronise alike."""
        groups: dict[tuple[bytes, int], list[int]] = {}
        for stride in range(self.fewest, min(self.blocks, self.stages * self.degrees[-1]) + 1):
            key = (self.offsets(stride).tobytes(), self.height(stride))
            groups.setdefault(key, []).append(stride)
        return list(groups.values())

    def offsets(self, stride: int) -> Ints:
        """Return where the replicas that count start, within the largest group below the top, C9."""
        sizes = self.problem.cluster.group_sizes
        counting = self.replicas if self.problem.preset.all_replicas else 1
        starts = np.arange(counting, dtype=np.int64) * (stride * self.tables.width)
        return distinct(starts % (sizes[-2] if len(sizes) > 1 else 1))

    def height(self, stride: int) -> int:
        """Return how many levels the starts of the replicas need to share a group, D6."""
        return self.tables.height(self.replicas, stride * self.tables.width)

    def _faster(self, closure: _Closure, syncs: Ints) -> Plan | None:
        """Return a faster plan whose synchronisation is one of ``syncs`` (ascending).

        Loads may be as large as the least of them allows, synchronisations as large as the largest: if that reaches
        nothing, no single one does. Otherwise halve the list, until the plan found is faster or one value is left.
        """
        if len(syncs) == 0 or int(syncs[0]) >= self.value:
            return None
        plan = closure.reach((self.value - 1 - int(syncs[0])) // self.rounds, int(syncs[-1]))
        if plan is None:
            return None
        judged = evaluate(self.problem, plan)
        if judged.legal and judged.objective_ticks is not None and judged.objective_ticks < self.value:
            return plan
        if len(syncs) == 1:
            raise AssertionError("a plan within the caps is faster")
        half = len(syncs) // 2
        return self._faster(closure, syncs[:half]) or self._faster(closure, syncs[half:])


class _Closure:
    """Closes the set of reachable states, for strides after which replicas start alike.

    A state is what the rest of a pipeline can see of the stages placed so far. The states after ``q`` stages are an
    array of booleans by first layer (from the start of `window` on), degree of the stage placed last, degree of the
    next, and blocks used beyond the fewest, ``q`` times the least degree. The last index of a degree stands for no
    stage.
    """

    def __init__(self, question: Question, strides: list[int]) -> None:
        self.question, self.strides = question, strides
        self.tables, self.band, self.degrees = question.tables, question.band, question.degrees
        self.offsets, self.height = question.offsets(strides[0]), question.height(strides[0])
        self.stages, self.least = question.stages, self.degrees[0]
        self.spare = strides[-1] - self.stages * self.least

    def types(self, own: int) -> tuple[int, ...]:
        """ZeRO types that go with a degree, by its index."""
        return self.question.choices.types(self.degrees[own])

    def syncs(self) -> Ints:
        """Return the synchronisation times (D6) that a stage may have, ascending."""
        shardings = [(zero, degree) for own, degree in enumerate(self.degrees) for zero in self.types(own)]
        return distinct(np.concatenate([self.sync(*sharding)[self.band.valid] for sharding in shardings]))

    def sync(self, zero: int, degree: int) -> Ints:
        """Ticks of the synchronisation (D6) of every stage."""
        divided = degree if zero == 3 and self.question.problem.preset.sync_sharded else 1
        return self.tables.syncs(self.band.parameters, self.question.replicas, self.height, divided)

    def window(self, placed: int) -> range:
        """Return the first layers that so many stages can hold from, and from which the other stages reach layer 0."""
        others, depth, layers = self.stages - placed, self.band.depth, self.tables.layers
        return range(max(others, layers - placed * depth), min(layers - placed, others * depth) + 1)

    def reach(self, load_cap: int, sync_cap: int) -> Plan | None:
        """Return a plan whose loads and synchronisation stay within the caps, None where none is reachable."""
        count = len(self.degrees)
        limits = _Limits(self, load_cap, sync_cap)
        rows = [np.zeros((1, count + 1, count + 1, self.spare + 1), dtype=bool)]
        rows[0][0, count, :count, 0] = True
        for position in range(1, self.stages + 1):
            self.question.choices.watch()
            rows.append(self._place(rows[-1], position, limits))
            if not rows[-1].any():
                return None
        for degree in range(count):
            for stride in self.strides:
                spare = stride - self.stages * self.least
                if rows[-1][0, degree, count, spare]:
                    return self._walk_back(rows, degree, spare, limits)
        return None

    def _place(self, row: np.ndarray, position: int, limits: _Limits) -> np.ndarray:
        """Place the ``position``-th stage from the end behind every state of a row (C2, C3)."""
        window, ends, count = self.window(position), self.window(position - 1), len(self.degrees)
        reached = np.zeros((len(window), *row.shape[1:]), dtype=bool)
        above = slice(count, count + 1) if position == self.stages else slice(0, count)
        for own, degree in enumerate(self.degrees):
            more = degree - self.least
            behind = row[:, :, own, None, :]
            if more > self.spare or not behind.any():
                continue
            usable = limits.most(own, position) >= position
            seen = self.seen(own, position)[:, above]
            for column in range(self.band.depth):
                start = max(window.start, ends.start - column - 1)
                stop = min(window.stop, ends.stop - column - 1)
                if start >= stop or not usable[start:stop, column].any():
                    continue
                legal = usable[start:stop, column].take(seen, axis=1)
                after = behind[start + column + 1 - ends.start : stop + column + 1 - ends.start]
                found = (legal & after).any(axis=1)[:, :, : self.spare + 1 - more]
                reached[start - window.start : stop - window.start, own, above, more:] |= found
        return reached

    def seen(self, own: int, position: int) -> Ints:
        """Return which of the levels a stage sees, by degree below, degree above and spare blocks below it."""
        start = (position - 1) * self.least
        return self.levels[own][1][:, :, start : start + self.spare + 1]

    @cached_property
    def levels(self) -> list[tuple[list[tuple[Triple, ...]], Ints]]:
        """What a stage of each degree may see (C9), and which of it by degree below, degree above and place.

        Levels of entry, exit and block in all replicas, each distinct set once; and indices into that list.
        """
        return [self._levels(degree) for degree in self.degrees]

    def _levels(self, degree: int) -> tuple[list[tuple[Triple, ...]], Ints]:
        width, shift, problem = self.tables.width, self.offsets[:, None, None], self.question.problem
        span, base, first = problem.cluster.spans, problem.levels, problem.preset.boundary == "first"
        place = np.arange((self.stages - 1) * self.least + self.spare + 1)
        beside = np.array([*self.degrees, 0])[:, None]
        low, high = shift + place * width, shift + (place + degree) * width
        out = span(low - beside * width, low if first else high - 1)
        entry = span(low, high + (0 * beside if first else beside * width - 1))
        below = np.where(beside > 0, beside <= place, place == 0)
        last = np.isin(place + degree, self.strides)
        above = np.where(beside > 0, place + degree + beside <= self.strides[-1], last)
        out, entry = np.where(beside > 0, out, 0), np.where(beside > 0, entry, 0)
        codes = (entry[:, None, :, :] * base + out[:, :, None, :]) * base + span(low, high - 1)[:, None]
        codes = np.where(below[:, None] & above, codes, 0).reshape(len(codes), -1)
        flat, which = np.unique(np.sort(codes, axis=0), axis=1, return_inverse=True)
        rows = [{(code // base**2, code // base % base, code % base) for code in row} for row in flat.T.tolist()]
        return [tuple(sorted(row)) for row in rows], which.reshape(len(beside), len(beside), -1)

    def _walk_back(self, rows: list[np.ndarray], own: int, spare: int, limits: _Limits) -> Plan:
        """Return the plan of a path from the start to the first layer."""
        first, above, stages = 0, len(self.degrees), []
        for position in range(self.stages, 0, -1):
            spare -= self.degrees[own] - self.least
            kinds, window = self.seen(own, position)[:, above, spare], self.window(position - 1)
            usable = limits.most(own, position)[first] >= position
            column, below = next(
                (end - first - 1, int(below))
                for end in window
                if 0 <= end - first - 1 < self.band.depth
                for below in np.flatnonzero(rows[position - 1][end - window.start, :, own, spare])
                if usable[end - first - 1, kinds[below]]
            )
            zero = limits.type_of(own, position, (first, column, int(kinds[below])))
            start = ((position - 1) * self.least + spare) * self.tables.width
            stages.append(self._stage(slice(first, first + 1 + column), start, zero, self.degrees[own]))
            first, above, own = first + 1 + column, own, below
        stride = stages[0].first_device + stages[0].devices
        return Plan(self.tables.variant, self.question.replicas, stride, tuple(stages))

    def _stage(self, run: slice, start: int, zero: int, degree: int) -> Stage:
        layers = tuple(layer.id for layer in self.tables.graph.layers[run])
        recompute: Recompute = "full" if self.tables.recompute and run.stop < self.tables.layers else "none"
        return Stage(layers, start, degree * self.tables.width, recompute, inside_stage(zero, degree))


class _Limits:
    """Which stages may be used within caps on load and synchronisation, and with how many microbatches in flight."""

    def __init__(self, closure: _Closure, load_cap: int, sync_cap: int) -> None:
        self.closure, self.load_cap, self.sync_cap = closure, load_cap, sync_cap
        self._most: dict[tuple[int, bool], Ints] = {}
        self._light: dict[tuple[int, int, Triple], np.ndarray] = {}

    def most(self, own: int, position: int) -> Ints:
        """Most microbatches in flight with which a stage (first layer, column) fits, by what it sees; 0 for none."""
        waited_for = self.closure.question.problem.preset.sync_all_stages or position == self.closure.stages
        key = (own, waited_for)
        if key not in self._most:
            types = self.closure.types(own)
            self._most[key] = np.maximum.reduce([self._limit(zero, own, waited_for) for zero in types])
        return self._most[key]

    def type_of(self, own: int, position: int, stage: tuple[int, int, int]) -> int:
        """Return a ZeRO type with which a stage (first layer, column, what it sees) may be used."""
        waited_for = self.closure.question.problem.preset.sync_all_stages or position == self.closure.stages
        types = self.closure.types(own)
        return next(zero for zero in types if self._limit(zero, own, waited_for)[stage] >= position)

    def _limit(self, zero: int, own: int, waited_for: bool) -> Ints:
        """Return `most` of a ZeRO type: what memory (C11) allows, 0 where a stage breaks a cap."""
        limit = self.closure.band.most_in_flight(zero, self.closure.degrees[own])
        if waited_for:
            limit = np.where(self.closure.sync(zero, self.closure.degrees[own]) <= self.sync_cap, limit, 0)
        kinds = self.closure.levels[own][0]
        light = [np.logical_and.reduce([self._within(zero, own, triple) for triple in kind]) for kind in kinds]
        limits: Ints = limit[:, :, None] * np.stack(light, axis=-1)
        return limits

    def _within(self, zero: int, own: int, triple: Triple) -> np.ndarray:
        """Whether a stage keeps to the cap on loads (D5)."""
        key, band, (entry, out, block) = (zero, own, triple), self.closure.band, triple
        if key not in self._light:
            load = band.forward(entry) + band.backward(out)
            if zero >= 2:
                load = load + (zero - 1) * band.shard_ring(block, self.closure.degrees[own])
            self._light[key] = load <= self.load_cap
        return self._light[key]
