"""The optimality checker: is there a plan faster than a claimed value? Written to be read in one sitting.

It shares no code with the solvers. For a variant, a number of stages ``S`` and of replicas ``d``, a plan is faster
than ``value`` if its largest load ``T`` and its synchronisation ``sync`` (D6) have ``R * T + sync < value``, where
``R = ceil(M / d) + S - 1``. Whether one exists is a question of reachability: start with no stage, place one stage
after the other from the end of the pipeline on, using only stages within the load that ``value`` leaves, and see
whether the first layer is ever reached. Nothing is minimised; the states that can be reached are closed, and that is
the proof.

A state is what the rest of a pipeline can see of the stages placed so far: the first layer that they hold, the widths
of the last one placed and of the next, and the number of devices used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from nest.cost.scale import scale_of
from nest.evaluate import evaluate
from nest.plan import Plan, Stage, inside_stage
from nest.problem import Problem, Recompute
from nest.tables import Band, Tables, VariantTables
from nest.units import Ints, distinct

Triple: TypeAlias = tuple[int, int, int]
"""Levels of a stage's entry boundary, exit boundary and block, in one replica."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found about the claim that no plan takes less than ``value`` ticks.

    Attributes
    ----------
    holds
        Whether the claim is proven.
    better
        A legal plan that takes less, where it is refuted.
    outer_choices
        How many combinations of variant, stages and replicas needed a closure; the others are ruled out by the work
        that the average stage has to do.
    """

    value: int
    holds: bool
    better: Plan | None
    outer_choices: int


def check(problem: Problem, value: int) -> Verdict:
    """Check the claim that no plan of a problem takes less than ``value`` ticks.

    Returns
    -------
    Verdict
        A proof, or a better plan as the judge prices it.
    """
    closures = 0
    for tables in Tables(problem, scale_of(problem)).variants:
        for stages, replicas in _outer_choices(tables, value):
            closures += 1
            better = _Question(tables, stages, replicas, value).answer()
            if better is not None:
                return Verdict(value, holds=False, better=better, outer_choices=closures)
    return Verdict(value, holds=True, better=None, outer_choices=closures)


def _outer_choices(tables: VariantTables, value: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of stages and replicas (C4, C5, C10) that the mean load alone does not rule out.

    ``S`` stages of load at most ``T`` run every layer; all but the last repeat what recomputation repeats, and what
    the last one spares is at most ``T`` again. Of replicas with the same number of rounds the fewest suffice: the
    others use more devices, see more levels, and synchronise over more.
    """
    problem, choices = tables.problem, tables.problem.choices
    once, repeated = tables.forward + tables.backward, tables.repeated
    blocks = problem.cluster.devices // tables.width
    for stages in range(1, min(tables.layers, blocks) + 1):
        least = max(int(once.max()), -(-int(once.sum()) // stages), -(-int((once + repeated).sum()) // (stages + 1)))
        if choices.stages is not None and stages not in choices.stages:
            continue
        seen = set()
        for replicas in range(1, min(problem.training.microbatches, blocks // stages) + 1):
            rounds = -(-problem.training.microbatches // replicas) + stages - 1
            allowed = choices.replicas is None or replicas in choices.replicas
            if not allowed or rounds in seen or least * rounds >= value:
                continue
            seen.add(rounds)
            if least * rounds + _least_sync(tables, stages, replicas) < value:
                yield stages, replicas


def _least_sync(tables: VariantTables, stages: int, replicas: int) -> int:
    """Return the synchronisation (D6) of the least parameters that the stage waited for can hold on a device."""
    problem, parameters = tables.problem, tables.parameters
    if not problem.preset.sync_all_stages:
        weight = int(parameters[0])
    elif problem.preset.sync_sharded and 3 in problem.choices.zero:
        weight = int(parameters.sum()) // (problem.cluster.devices // tables.width // replicas)
    else:
        weight = max(int(parameters.max()), int(parameters.sum()) // stages)
    height = tables.height(replicas, stages * tables.width)
    return int(tables.syncs(np.array([weight]), replicas, height)[0])


@dataclass(frozen=True)
class _Question:
    """The question whether a plan with so many stages and replicas takes less than ``value``."""

    tables: VariantTables
    stages: int
    replicas: int
    value: int

    @property
    def problem(self) -> Problem:
        return self.tables.problem

    @cached_property
    def rounds(self) -> int:
        return -(-self.problem.training.microbatches // self.replicas) + self.stages - 1

    @cached_property
    def band(self) -> Band:
        """Tables of the stages that the value leaves any room for."""
        return self.tables.band(max(1, self.tables.deepest_within((self.value - 1) // self.rounds)))

    @cached_property
    def blocks(self) -> int:
        """Most blocks (of the variant's width) that one replica may take, C10."""
        return self.problem.cluster.devices // self.tables.width // self.replicas

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """Blocks that a stage may take, C7 and C8, as far as they leave one for every other stage."""
        unsharded = (1,) if 0 in self.problem.choices.zero else ()
        degrees = unsharded + self.problem.zero_degrees(self.tables.width)
        return tuple(degree for degree in degrees if degree + (self.stages - 1) * degrees[0] <= self.blocks)

    def types(self, degree: int) -> tuple[int, ...]:
        """ZeRO types that go with a degree, C7."""
        return (0,) if degree == 1 else tuple(sorted(self.problem.choices.zero - {0}))

    def answer(self) -> Plan | None:
        """Return a faster plan, or None where there is none."""
        if not self.degrees:
            return None
        for strides in self._alike():
            closure = _Closure(self, strides)
            better = self._faster(closure, closure.syncs())
            if better is not None:
                return better
        return None

    def _alike(self) -> list[list[int]]:
        """Group strides (in blocks) after which replicas start alike and synchronise alike."""
        groups: dict[tuple[bytes, int], list[int]] = {}
        for stride in range(self.stages * self.degrees[0], self.blocks + 1):
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

    The states after ``q`` stages are an array of booleans by first layer, degree of the stage placed last, degree of
    the next, and blocks used beyond the fewest, ``q`` times the least degree. The last index of a degree stands for
    no stage.
    """

    def __init__(self, question: _Question, strides: list[int]) -> None:
        self.question, self.strides = question, strides
        self.tables, self.band, self.degrees = question.tables, question.band, question.degrees
        self.offsets, self.height = question.offsets(strides[0]), question.height(strides[0])
        least = self.degrees[0]
        spread = question.stages * (self.degrees[-1] - least)
        self._levels: dict[tuple[int, int], tuple[list[tuple[Triple, ...]], Ints]] = {}
        self.spare = min(spread, strides[-1] - question.stages * least)

    def syncs(self) -> Ints:
        """Return the synchronisation times (D6) that a stage may have, ascending."""
        shardings = [(zero, degree) for degree in self.degrees for zero in self.question.types(degree)]
        return distinct(np.concatenate([self.sync(*sharding)[self.band.valid] for sharding in shardings]))

    def sync(self, zero: int, degree: int) -> Ints:
        """Ticks of the synchronisation (D6) of every stage."""
        divided = degree if zero == 3 and self.question.problem.preset.sync_sharded else 1
        return self.tables.syncs(self.band.parameters, self.question.replicas, self.height, divided)

    def reach(self, load_cap: int, sync_cap: int) -> Plan | None:
        """Return a plan whose loads and synchronisation stay within the caps, None where none is reachable."""
        count, stages = len(self.degrees), self.question.stages
        limits = _Limits(self, load_cap, sync_cap)
        rows = [np.zeros((self.tables.layers + 1, count + 1, count + 1, self.spare + 1), dtype=bool)]
        rows[0][self.tables.layers, count, :count, 0] = True
        for position in range(1, stages + 1):
            rows.append(self._place(rows[-1], position, limits))
            if not rows[-1].any():
                return None
        for degree in range(count):
            for stride in self.strides:
                spare = stride - stages * self.degrees[0]
                if spare <= self.spare and rows[-1][0, degree, count, spare]:
                    return self._walk_back(rows, degree, spare, limits)
        return None

    def _place(self, row: np.ndarray, position: int, limits: _Limits) -> np.ndarray:
        """Place the ``position``-th stage from the end behind every state of a row (C2, C3)."""
        layers, depth, count = self.tables.layers, self.band.depth, len(self.degrees)
        reached = np.zeros_like(row)
        behind = np.concatenate([row, np.zeros((depth, *row.shape[1:]), dtype=bool)])
        above = slice(count, count + 1) if position == self.question.stages else slice(0, count)
        for own, degree in enumerate(self.degrees):
            more = degree - self.degrees[0]
            if more > self.spare:
                continue
            usable = limits.usable(own, position)
            seen = self.levels(own, position)[1][:, above]
            for column in np.flatnonzero(usable.any(axis=(0, 2))).tolist():
                legal = usable[:, column].take(seen, axis=1)
                after = behind[column + 1 : column + 1 + layers, :, own, None, :]
                found = (legal & after).any(axis=1)[:, :, : self.spare + 1 - more]
                reached[:layers, own, above, more:] |= found
        return reached

    def levels(self, own: int, position: int) -> tuple[list[tuple[Triple, ...]], Ints]:
        """Return what a stage may see (C9), and which of it by degree below, degree above and spare blocks.

        Returns
        -------
        list, array
            Levels of entry, exit and block in all replicas, each distinct set once; and indices into that list.
        """
        if (own, position) not in self._levels:
            self._levels[own, position] = self._levels_at(own, position)
        return self._levels[own, position]

    def _levels_at(self, own: int, position: int) -> tuple[list[tuple[Triple, ...]], Ints]:
        width, shift = self.tables.width, self.offsets[:, None, None, None]
        low = ((position - 1) * self.degrees[0] + np.arange(self.spare + 1)) * width
        high = low + self.degrees[own] * width
        beside = np.array([*self.degrees, 0])[:, None] * width
        own_end = low if self.question.problem.preset.boundary == "first" else high - 1
        above_end = high + 0 * beside if self.question.problem.preset.boundary == "first" else high + beside - 1
        span = self.question.problem.cluster.spans
        out = np.where(beside > 0, span(shift + low - beside, shift + own_end)[:, 0], 0)
        entry = np.where(beside > 0, span(shift + low, shift + above_end)[:, 0], 0)
        block = span(shift + low, shift + high - 1)
        base = self.question.problem.levels
        codes = (entry[:, None, :, :] * base + out[:, :, None, :]) * base + block
        flat, which = np.unique(np.sort(codes.reshape(len(codes), -1), axis=0), axis=1, return_inverse=True)
        sets = [
            tuple(sorted({(c // base // base, c // base % base, c % base) for c in row})) for row in flat.T.tolist()
        ]
        return sets, which.reshape(codes.shape[1:])

    def _walk_back(self, rows: list[np.ndarray], own: int, spare: int, limits: _Limits) -> Plan:
        """Return the plan of a path from the start to the first layer."""
        first, above, stages = 0, len(self.degrees), []
        for position in range(self.question.stages, 0, -1):
            degree = self.degrees[own]
            spare -= degree - self.degrees[0]
            seen = self.levels(own, position)[1][:, above, spare]
            usable = limits.usable(own, position)[first].take(seen, axis=1)
            behind = rows[position - 1][first + 1 : first + 1 + self.band.depth, :, own, spare]
            column, below = (int(index) for index in np.argwhere(usable[: len(behind)] & behind)[0])
            zero = limits.type_of(own, position, first, column, int(seen[below]))
            start = ((position - 1) * self.degrees[0] + spare) * self.tables.width
            stages.append(self._stage(slice(first, first + 1 + column), start, zero, degree))
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
        self._found: dict[tuple[int, int, tuple[Triple, ...], bool], Ints] = {}

    def usable(self, own: int, position: int) -> np.ndarray:
        """Return which stages (first layer, column) may use a degree at a position from the end, by what they see."""
        types = self.closure.question.types(self.closure.degrees[own])
        kinds = [
            np.maximum.reduce([self._limit(zero, own, triples, position) for zero in types]) >= position
            for triples in self.closure.levels(own, position)[0]
        ]
        return np.stack(kinds, axis=-1)

    def type_of(self, own: int, position: int, first: int, column: int, kind: int) -> int:
        """Return a ZeRO type with which a stage may be used."""
        triples = self.closure.levels(own, position)[0][kind]
        types = self.closure.question.types(self.closure.degrees[own])
        return next(zero for zero in types if self._limit(zero, own, triples, position)[first, column] >= position)

    def _limit(self, zero: int, own: int, triples: tuple[Triple, ...], position: int) -> Ints:
        """Most microbatches in flight with which a stage fits its memory (C11), 0 where it breaks a cap."""
        closure, question = self.closure, self.closure.question
        waited_for = question.problem.preset.sync_all_stages or position == question.stages
        key = (zero, own, triples, waited_for)
        if key not in self._found:
            degree, band = closure.degrees[own], closure.band
            within = band.valid.copy()
            for entry, out, block in triples:
                load = band.forward(entry) + band.backward(out)
                if zero >= 2:
                    load = load + (zero - 1) * band.shard_ring(block, degree)
                within &= load <= self.load_cap
            if waited_for:
                within &= closure.sync(zero, degree) <= self.sync_cap
            self._found[key] = np.where(within, band.most_in_flight(zero, degree), 0)
        return self._found[key]
