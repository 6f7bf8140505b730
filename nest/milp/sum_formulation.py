"""The mathematical programme under the objective `sum`, without a solver: index sets and coefficients.

A plan is an *outer choice* ``(variant, S, d, placing, schedule, v)``, or ``(forms, S, d, layout)`` where stages have
widths of their own, and a path. The ``q``-th stage from the end is an
*arc*: of an outer choice, with the layers between two cuts, in one way to shard and to recompute. It leads from the
state ``(q - 1, end)`` to the state ``(q, first)`` of the choice; the path starts behind all layers at ``q = 0`` and
ends before them at ``q = S``. A cut is a number of layers, or a downset where layers branch; of an interleaved choice
with ``v`` chunks, whose parts are settled, the number of stages before it; of stages with widths of their own a number
of layers at a spot, `nest.milp.wide_states`. What a rule forbids for one of these by
itself is left out of the index sets; `docs/milp.md` says which rule is kept where.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest.constraints.programme import StageWay
from nest.milp.sum_choices import Agenda, AnyChoice, SumChoice
from nest.milp.sum_chunks import layers_of
from nest.milp.sum_kinds import Stages
from nest.milp.sum_room import Room
from nest.milp.wide_choices import WideChoice
from nest.milp.wide_states import States, options_of
from nest.problem import Problem
from nest.tables import GroupedTables, Tables
from nest.units import HARD_LIMIT, LONGEST, Ints, distinct

SUM_BY_INDEX_SETS: Mapping[str, str] = {
    "replicas": "the outer choices",
    "recompute": "the ways of the arcs",
    "sharding": "the ways of the arcs",
    "block": "`sum_plans.decode`",
    "placement": "what the arcs of an outer choice see; `sum_plans.decode`",
    "devices": "the outer choices",
    "memory": "the ways of the arcs",
    "range": "the domains of loads and objective",
    "nesting": "`nest.tables.Tables.fitting`",
    "technology": "`nest.technologies`: a programme is of a cluster whose technologies are chosen",
    "schedule": "the outer choices",
    "chunks": "the outer choices",
}
"""Rules for which there is nothing to post under `sum`, and what keeps them."""

SUM_SIDE_BY_INDEX_SETS: Mapping[str, str] = {
    "admits": "the outer choices",
    "admits_run": "the arcs",
    "admits_stage": "the arcs",
    "admits_place": "the arcs",
    "device_limit": "the outer choices",
    "memory_limit": "the ways of the arcs",
    "reserves": "the outer choices",
}
"""The same for what local side constraints say, by their hooks: an arc is in its pipeline and in its place."""


@dataclass(frozen=True)
class SumArcs:
    """Stages: columns of equal length.

    Attributes
    ----------
    choice
        Place of the outer choice.
    position
        From the end of the pipeline, from 1.
    first, end
        Cuts before and behind.
    load, sync
        Ticks.
    form
        Number of its form in the tables of the outer choice; 0 where all stages are alike.
    zero, together
        ZeRO type by what is exchanged, and replicas of a group that shares weights: `nest.tables.shares.Option`.
    kind, layers
        What is recomputed, as a place in `GroupedTables.repeating` from 1, or 0; and in how many layers.
    sent
        Bytes of an iteration, a column for each of `nest.constraints.Filters.crossed`.
    """

    choice: Ints
    position: Ints
    first: Ints
    end: Ints
    load: Ints
    sync: Ints
    form: Ints
    zero: Ints
    together: Ints
    kind: Ints
    layers: Ints
    sent: Ints

    def __len__(self) -> int:
        return len(self.choice)

    def pick(self, chosen: np.ndarray) -> SumArcs:
        """Return those that a mask picks."""
        return SumArcs(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


class SumFormulation:
    """Index sets and coefficients of the programme of some outer choices.

    Parameters
    ----------
    tables
        Of the problem.
    rooms
        The outer choices, with their stages.
    limit
        Only plans of fewer ticks are wanted.

    Attributes
    ----------
    choices, arcs
        The index sets.
    """

    def __init__(self, tables: Tables, rooms: Sequence[Room], limit: int = HARD_LIMIT) -> None:
        self.tables, self.problem, self.limit = tables, tables.problem, limit
        self.choices: list[AnyChoice] = [room.choice for room in rooms]
        self.least_objectives = [room.least for room in rooms]
        self._states: dict[WideChoice, States] = {}
        self.arcs = self._arcs(rooms)

    @classmethod
    def whole(cls, problem: Problem) -> SumFormulation:
        """Return the programme of the rules alone: all outer choices, and all ways of all stages."""
        tables = Tables.of(problem)
        agenda, rooms, stages = Agenda(tables, every=True), list[Room](), Stages(tables, "every")
        while (taken := agenda.take(HARD_LIMIT)) is not None:
            choice = taken[1]
            rooms.append(Room(choice, stages.of(choice).positions(choice), 0))
        return cls(tables, rooms)

    def _arcs(self, rooms: Sequence[Room]) -> SumArcs:
        none = np.zeros((0, len(self.tables.filters.crossed)), dtype=np.int64)
        parts = [[*[none[:, :0].ravel()] * (len(SumArcs.__dataclass_fields__) - 1), none]]
        for at, room in enumerate(rooms):
            labels = np.array(self._options(room.choice), dtype=np.int64).reshape(-1, 3).T
            for position, ways in enumerate(room.ways, start=1):
                columns = (np.full_like(ways.first, each) for each in (at, position))
                sharding = labels[:, ways.option]
                parts.append([*columns, *ways[:4], *sharding, ways.kind, ways.layers, ways.sent])
        return SumArcs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _options(self, choice: AnyChoice) -> list[tuple[int, ...]]:
        """Return what `Ways.option` counts: form, ZeRO type and replicas of a group."""
        if isinstance(choice, WideChoice):
            return [(form, *option) for form, option in options_of(choice)]
        options = self.tables.of_variant(choice.variant).options(choice.replicas, choice.stages)
        return [(0, *option) for option in options]

    def of(self, choice: AnyChoice, form: int = 0) -> GroupedTables:
        """Return the tables of the stages of an outer choice, of one form where these differ."""
        return choice.tables.forms[form] if isinstance(choice, WideChoice) else self.tables.of_variant(choice.variant)

    def of_arc(self, arc: int) -> GroupedTables:
        """Return the tables of the stage of an arc."""
        return self.of(self.choices[self.arcs.choice[arc]], int(self.arcs.form[arc]))

    def states_of(self, choice: WideChoice) -> States:
        """Return what the cuts of an outer choice are whose stages have widths of their own."""
        if choice not in self._states:
            self._states[choice] = States.of(choice)
        return self._states[choice]

    def cuts(self, arc: int) -> tuple[int, int]:
        """Return the cuts before and behind the stage of an arc."""
        choice, ends = self.choices[self.arcs.choice[arc]], (int(self.arcs.first[arc]), int(self.arcs.end[arc]))
        return self.states_of(choice).cuts(*ends) if isinstance(choice, WideChoice) else ends

    def only(self, kept: np.ndarray) -> SumFormulation:
        """Return the programme with some of its arcs, as a mask has them."""
        found = SumFormulation(self.tables, [], self.limit)
        found.choices, found.least_objectives, found.arcs = self.choices, self.least_objectives, self.arcs.pick(kept)
        return found

    def price(self, arcs: Sequence[int], choice: int) -> int:
        """Return the ticks of an iteration (D14) of the plan with some arcs."""
        taken = np.array(arcs, dtype=np.int64)
        load, sync = self.arcs.load[taken], self.arcs.sync[taken]
        return self.choices[choice].takes(int(load.sum()), int(load.max()), int(sync.max()))

    def layers(self, arc: int) -> Ints:
        """Return the places of the layers of the stage of an arc."""
        choice, (first, end) = self.choices[self.arcs.choice[arc]], self.cuts(arc)
        if isinstance(choice, SumChoice) and choice.chunks > 1:
            return layers_of(self.of(choice), choice, first)
        return self.of_arc(arc).between(first, end)

    def way(self, arc: int) -> StageWay:
        """Return how the stage of an arc shards and recomputes."""
        arcs, tables = self.arcs, self.of_arc(arc)
        zero, kind = min(int(arcs.zero[arc]), 3), int(arcs.kind[arc])
        degree = tables.ranks(int(arcs.together[arc])).dense if zero else 1
        return StageWay((zero, degree), (tables.repeating[kind - 1].kind if kind else "none", int(arcs.layers[arc])))

    @cached_property
    def by_choice(self) -> list[Ints]:
        """Arcs of each outer choice."""
        return [np.flatnonzero(self.arcs.choice == at) for at in range(len(self.choices))]

    @cached_property
    def last(self) -> list[list[int]]:
        """Arcs of the last stage of the pipeline, by outer choice: those that leave the start of its path."""
        return [own[self.arcs.position[own] == 1].tolist() for own in self.by_choice]

    @cached_property
    def closing(self) -> list[list[int]]:
        """Arcs of the first stage of the pipeline, by outer choice: those that end its path."""
        pairs = zip(self.choices, self.by_choice, strict=True)
        return [own[self.arcs.position[own] == choice.stages].tolist() for choice, own in pairs]

    @cached_property
    def states(self) -> list[tuple[list[int], list[int]]]:
        """Arcs that enter and that leave each state within a path."""
        found: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
        arcs = self.arcs
        keys = zip(arcs.choice.tolist(), arcs.position.tolist(), arcs.first.tolist(), arcs.end.tolist(), strict=True)
        for arc, (choice, position, first, end) in enumerate(keys):
            if position < self.choices[choice].stages:
                found.setdefault((choice, position, first), ([], []))[0].append(arc)
            if position > 1:
                found.setdefault((choice, position - 1, end), ([], []))[1].append(arc)
        return list(found.values())

    @cached_property
    def by_position(self) -> dict[int, list[int]]:
        """Arcs by position, of all outer choices: at most one of them is taken."""
        position = self.arcs.position
        return {at: np.flatnonzero(position == at).tolist() for at in distinct(position).tolist()}

    @cached_property
    def by_pace(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Outer choices by how often the largest load counts besides, and by their chunks."""
        found: dict[tuple[int, int], list[int]] = {}
        for at, choice in enumerate(self.choices):
            found.setdefault(choice.pace, []).append(at)
        return {pace: tuple(choices) for pace, choices in found.items()}

    @cached_property
    def short_paces(self) -> frozenset[tuple[int, int]]:
        """Of the keys of `by_pace` those with chunks of which some choice has more stages than microbatches."""
        return frozenset(each.pace for each in self.choices if each.chunks > 1 and each.stages > each.further + 1)

    @cached_property
    def chunks(self) -> Ints:
        """Chunks of the stage of each arc."""
        return np.array([choice.chunks for choice in self.choices], dtype=np.int64)[self.arcs.choice]

    @cached_property
    def largest_load(self) -> int:
        """Largest load of any arc, below the end of the range (C12)."""
        return min(int(self.arcs.load.max(initial=0)), LONGEST - 1)

    @cached_property
    def largest_sync(self) -> int:
        """Longest synchronisation of any arc."""
        return int(self.arcs.sync.max(initial=0))

    @cached_property
    def largest_loads(self) -> int:
        """Largest sum of loads of any solution, or more."""
        return sum(int(self.arcs.load[among].max()) for among in self.by_position.values())

    @cached_property
    def largest_objective(self) -> int:
        """Largest objective of any solution below the limit, or more."""
        further = max((choice.further for choice in self.choices), default=0)
        return min(self.largest_loads + further * self.largest_load + self.largest_sync, self.limit - 1)

    @cached_property
    def common_tick(self) -> int:
        """Largest number of ticks of which all loads and synchronisations are multiples, and so all objectives.

        Where loads are divided by chunks and rounded up, it is divided by them as well.
        """
        common = math.gcd(*distinct(self.arcs.load).tolist(), *distinct(self.arcs.sync).tolist()) or 1
        parts = (common // chunks if common % chunks == 0 else 1 for _, chunks in self.by_pace)
        return math.gcd(common, *parts)
