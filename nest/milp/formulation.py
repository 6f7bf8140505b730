"""The mathematical programme without a solver: index sets, coefficients, and how a solution becomes a plan.

A plan without sharding is a *path*. The ``q``-th stage from the end of the pipeline takes the layers ``[first, end)``:
an *arc* from the state ``(q - 1, end)`` to the state ``(q, first)``, of one variant. Paths start at ``(0, layers)`` and
end at ``(S, 0)``. Beside the path a plan has one *outer choice*, ``(variant, S, d)``. Whatever a rule forbids for an
arc or an outer choice by itself is left out of the index sets; `docs/milp.md` says which rule is kept where.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np

from nest.errors import OutOfScope
from nest.milp.levels import LoadsAt, loads_by_position
from nest.milp.paths import Arcs, arcs_of, reachable, replicas_by_stages
from nest.plan import Plan, Stage
from nest.problem import Problem
from nest.tables import Tables, VariantTables
from nest.units import HARD_LIMIT, Ints

Key = TypeVar("Key", bound=Hashable)

Indices: TypeAlias = list[int]

BY_INDEX_SETS: Mapping[str, str] = {
    "replicas": "the outer choices",
    "recompute": "the loads and the memory of the arcs; `plan_of`",
    "sharding": "`require_scope`: there are arcs without sharding only",
    "block": "`plan_of`",
    "placement": "the levels behind the loads, `nest.milp.levels`; `plan_of`",
    "devices": "the outer choices",
    "memory": "the arcs",
    "range": "the domain of the objective",
}
"""Rules for which there is nothing to post, and what keeps them."""


@dataclass(frozen=True, slots=True)
class OuterChoice:
    """A variant (by its place among the allowed ones), how many stages and replicas, and what follows from them.

    Attributes
    ----------
    rounds
        How often the largest load counts, D7.
    sync_class
        Place among the pairs of numbers that a synchronisation depends on beside the parameters, D6.
    """

    variant: int
    stages: int
    replicas: int
    rounds: int
    sync_class: int


@dataclass(frozen=True, slots=True)
class LoadBound:
    """A lower bound of the largest load: the load of the arc taken at one position.

    Attributes
    ----------
    arcs, loads, least
        Those at the position, their ticks, and the ticks that they take under all outer choices.
    choices
        Outer choices under which the loads are these; None for all.
    """

    arcs: Indices
    loads: Indices
    least: Indices
    choices: tuple[int, ...] | None


class Formulation:
    """Index sets and coefficients of a problem's programme.

    Parameters
    ----------
    tables
        Of the problem.

    Attributes
    ----------
    choices
        Outer choices (C1, C4, C5, C10), of those with equal rounds the one with the fewest replicas.
    arcs
        Stages that fit their memory (C11) and lie on some path.

    Raises
    ------
    OutOfScope
        If a stage may shard.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables, self.problem = tables, tables.problem
        require_scope(self.problem)
        self._classes: dict[tuple[int, int], int] = {}
        self._bands = [variant.band(max(variant.deepest, 1)) for variant in tables.variants]
        self.choices: list[OuterChoice] = []
        parts = [self._variant(at) for at in range(len(self._bands))]
        self.arcs = Arcs(*(np.concatenate([part[name] for part in parts]) for name in range(5)))

    def _variant(self, at: int) -> list[Ints]:
        """Add the outer choices of a variant, and return its arcs."""
        tables = self.tables.variants[at]
        counts = replicas_by_stages(self.problem, tables)
        masks = reachable(self._bands[at], sorted(counts))
        ends = {position for position, mask in enumerate(masks, start=1) if mask[0].any()}
        for stages in sorted(ends):
            self.choices += [self._choice(at, stages, replicas) for replicas in counts[stages]]
        return arcs_of(self._bands[at], at, masks)

    def _choice(self, variant: int, stages: int, replicas: int) -> OuterChoice:
        tables = self.tables.variants[variant]
        key = (replicas.bit_length(), tables.height(replicas, stages * tables.width))
        rounds = -(-self.problem.training.microbatches // replicas) + stages - 1
        return OuterChoice(variant, stages, replicas, rounds, self._classes.setdefault(key, len(self._classes)))

    @property
    def feasible(self) -> bool:
        """Whether there is any path at all."""
        return bool(self.choices)

    @cached_property
    def by_rounds(self) -> dict[int, Indices]:
        """Outer choices by their rounds."""
        return _grouped([choice.rounds for choice in self.choices])

    @cached_property
    def by_class(self) -> dict[int, Indices]:
        """Outer choices by their class of synchronisation."""
        return _grouped([choice.sync_class for choice in self.choices])

    @cached_property
    def by_variant(self) -> dict[int, Indices]:
        """Outer choices by their variant."""
        return _grouped([choice.variant for choice in self.choices])

    @cached_property
    def by_stages(self) -> dict[tuple[int, int], Indices]:
        """Outer choices by their variant and number of stages."""
        return _grouped([(choice.variant, choice.stages) for choice in self.choices])

    @cached_property
    def by_position(self) -> dict[tuple[int, int], Indices]:
        """Arcs by their variant and position."""
        return _grouped(list(zip(self.arcs.variant.tolist(), self.arcs.position.tolist(), strict=True)))

    @cached_property
    def last(self) -> dict[int, Indices]:
        """Arcs of the last stage of the pipeline, by variant: those that leave the start of all paths."""
        return {variant: arcs for (variant, position), arcs in self.by_position.items() if position == 1}

    @cached_property
    def states(self) -> dict[tuple[int, int, int], tuple[Indices, Indices]]:
        """Arcs that enter and that leave each state ``(variant, position, first)`` within the paths."""
        found: dict[tuple[int, int, int], tuple[Indices, Indices]] = {}
        arcs = self.arcs
        keys = zip(arcs.variant.tolist(), arcs.position.tolist(), arcs.first.tolist(), arcs.end.tolist(), strict=True)
        for arc, (variant, position, first, end) in enumerate(keys):
            if first > 0:
                found.setdefault((variant, position, first), ([], []))[0].append(arc)
            if position > 1:
                found.setdefault((variant, position - 1, end), ([], []))[1].append(arc)
        return found

    @cached_property
    def closing(self) -> dict[tuple[int, int], Indices]:
        """Arcs of the first stage of the pipeline by variant and number of stages: those that end a path."""
        ends = np.flatnonzero(self.arcs.first == 0)
        keys = zip(self.arcs.variant[ends].tolist(), self.arcs.position[ends].tolist(), strict=True)
        return {key: [int(ends[at]) for at in group] for key, group in _grouped(list(keys)).items()}

    @cached_property
    def waited(self) -> list[tuple[Indices, Indices]]:
        """Sets of arcs, one of each of which is waited for (D6), with the rank of their parameters.

        Under ``sync_all_stages`` the arcs of each position, over all variants; else those of the first stage.
        """
        if not self.problem.preset.sync_all_stages:
            groups = [np.flatnonzero(self.arcs.first == 0)]
        else:
            groups = [np.flatnonzero(self.arcs.position == at) for at in np.unique(self.arcs.position).tolist()]
        ranks = np.searchsorted(self.weights, self.arcs.parameters)
        return [(group.tolist(), ranks[group].tolist()) for group in groups]

    @cached_property
    def weights(self) -> Ints:
        """Parameters, in quanta, that the stage which is waited for can have, ascending; a place is a *rank*."""
        counting = slice(None) if self.problem.preset.sync_all_stages else self.arcs.first == 0
        return np.unique(self.arcs.parameters[counting])

    @cached_property
    def syncs(self) -> list[Indices]:
        """Ticks of synchronisation (D6) by class and rank."""
        tables = self.tables.variants[0]
        classes = sorted(self._classes, key=self._classes.__getitem__)
        return [tables.syncs(self.weights, 1 << bits - 1, height).tolist() for bits, height in classes]

    @cached_property
    def loads(self) -> list[LoadBound]:
        """Bounds of the largest load (D5) at every position, those without a condition first."""
        least = np.zeros(len(self.arcs), dtype=np.int64)
        conditional: list[LoadBound] = []
        for variant, band in enumerate(self._bands):
            chosen = {at: self.choices[at] for at in self.by_variant.get(variant, [])}
            keyed = {at: (choice.stages, choice.replicas) for at, choice in chosen.items()}
            for found in loads_by_position(band, self.problem, keyed):
                conditional += self._conditional(variant, found, least)
        free = [
            LoadBound(arcs.tolist(), least[arcs].tolist(), least[arcs].tolist(), None)
            for arcs in (np.flatnonzero(self.arcs.position == at) for at in np.unique(self.arcs.position).tolist())
        ]
        return free + conditional

    def _conditional(self, variant: int, found: LoadsAt, least: Ints) -> list[LoadBound]:
        """Write what an arc takes at least into ``least``, and return the bounds under which it takes more."""
        arcs = np.array(self.by_position.get((variant, found.position), []), dtype=np.int64)
        arcs = arcs[(self.arcs.first[arcs] == 0) == found.closing]
        if len(arcs) == 0:
            return []
        first, column = self.arcs.first[arcs], self.arcs.end[arcs] - self.arcs.first[arcs] - 1
        loads = [table[first, column] for table in found.tables]
        least[arcs] = np.minimum.reduce(loads)
        bounds: dict[bytes, tuple[Ints, list[int]]] = {}
        for load, choices in zip(loads, found.choices, strict=True):
            bounds.setdefault(load.tobytes(), (load, []))[1].extend(choices)
        return [
            LoadBound(arcs.tolist(), load.tolist(), least[arcs].tolist(), tuple(sorted(choices)))
            for load, choices in bounds.values()
            if np.any(load != least[arcs])
        ]

    @cached_property
    def largest_load(self) -> int:
        """Largest load of any arc."""
        return max((max(bound.loads) for bound in self.loads), default=0)

    @cached_property
    def largest_objective(self) -> int:
        """Largest objective of any solution, cut off at the end of the range (C12)."""
        rounds = max((choice.rounds for choice in self.choices), default=0)
        return min(rounds * self.largest_load + self.largest_sync, HARD_LIMIT - 1)

    @cached_property
    def largest_sync(self) -> int:
        """Longest synchronisation in any class."""
        return max((max(ticks) for ticks in self.syncs), default=0)

    @cached_property
    def common_tick(self) -> int:
        """Largest number of ticks of which all loads and synchronisations are multiples."""
        loads = (math.gcd(*bound.loads) for bound in self.loads)
        return math.gcd(*loads, *(math.gcd(*ticks) for ticks in self.syncs)) or 1

    @cached_property
    def least_objectives(self) -> Indices:
        """Ticks that each outer choice takes at least, by the mean of the loads of its stages.

        A consequence of the rules, which makes them known at once to a solver that has them one by one: ``S`` stages
        of load at most ``load`` run every layer, and all but the last repeat what recomputation repeats; what the last
        one spares is at most ``load`` again.
        """
        return [self._least_objective(choice) for choice in self.choices]

    def _least_objective(self, choice: OuterChoice) -> int:
        tables = self.tables.variants[choice.variant]
        once, repeated = tables.forward + tables.backward, tables.repeated
        work = int((once + repeated).sum())
        load = max(int(once.max()), -(-int(once.sum()) // choice.stages), -(-work // (choice.stages + 1)))
        return choice.rounds * load + self.syncs[choice.sync_class][0]

    def decode(self, choice: int, arcs: Sequence[int]) -> Plan:
        """Return the plan of a solution (C6, C8 and C9 hold by how it is built)."""
        chosen = self.choices[choice]
        order = sorted(arcs, key=lambda arc: int(self.arcs.first[arc]))
        cuts = [(int(self.arcs.first[arc]), int(self.arcs.end[arc])) for arc in order]
        return plan_of(self.tables.variants[chosen.variant], cuts, chosen.replicas)

    def encode(self, plan: Plan) -> tuple[int, Indices] | None:
        """Return the outer choice and the arcs of a plan; None where the index sets or `decode` rule it out."""
        choice = self._choice_of(plan)
        arcs = None if choice is None else self._arcs_of(plan, self.choices[choice].variant)
        if choice is None or arcs is None:
            return None
        bare = replace(plan, stages=tuple(replace(stage, load_s=None, memory_bytes=None) for stage in plan.stages))
        return (choice, arcs) if self.decode(choice, arcs) == bare else None

    def _choice_of(self, plan: Plan) -> int | None:
        """Return the outer choice of a plan."""
        for at, choice in enumerate(self.choices):
            variant = self.tables.variants[choice.variant].variant
            if (variant, choice.stages, choice.replicas) == (plan.variant, len(plan.stages), plan.replicas):
                return at
        return None

    def _arcs_of(self, plan: Plan, variant: int) -> Indices | None:
        """Return the arcs of a plan's stages, None where one is missing."""
        index = self.tables.variants[variant].graph.index
        arcs = []
        for position, stage in enumerate(reversed(plan.stages), start=1):
            if not stage.layers:
                return None
            first, end = index[stage.layers[0]], index[stage.layers[-1]] + 1
            arcs += [
                arc
                for arc in self.by_position.get((variant, position), [])
                if (self.arcs.first[arc], self.arcs.end[arc]) == (first, end)
            ]
        return arcs if len(arcs) == len(plan.stages) else None


def require_scope(problem: Problem) -> None:
    """Raise `OutOfScope` where a stage may shard."""
    if problem.choices.zero != {0}:
        raise OutOfScope(
            "choices.zero",
            f"the mathematical programme has no stages that shard, types {sorted(problem.choices.zero)} are allowed",
            "allow type 0 alone, or use the dynamic program",
        )


def plan_of(tables: VariantTables, cuts: Sequence[tuple[int, int]], replicas: int) -> Plan:
    """Return the plan with stages ``[first, end)``, from the first of the pipeline on."""
    layers, width, count = tables.graph.layers, tables.width, len(cuts)
    stages = tuple(
        Stage(
            layers=tuple(layer.id for layer in layers[first:end]),
            first_device=(count - 1 - at) * width,
            devices=width,
            recompute="full" if tables.recompute and at + 1 < count else "none",
        )
        for at, (first, end) in enumerate(cuts)
    )
    return Plan(tables.variant, replicas, count * width, stages)


def _grouped(keys: Sequence[Key]) -> dict[Key, Indices]:
    """Return the places at which each key stands."""
    groups: dict[Key, Indices] = {}
    for at, key in enumerate(keys):
        groups.setdefault(key, []).append(at)
    return groups
