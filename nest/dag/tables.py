"""The integers of a problem whose stages are one device each: per unit and class of devices, and per tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from nest.dag.load import Load
from nest.dag.problem import DagProblem
from nest.dag.units import Unit, units_of
from nest.downsets import Bools, members_of
from nest.units import Ints


@dataclass(frozen=True)
class SplitTables:
    """What stages of one device cost, unit by unit.

    Parameters
    ----------
    load
        The problem's integers.
    units
        In topological order.
    ticks, runs
        Time of each unit, 0 where it does not run, and whether it runs: a row for each class of devices.
    memory
        Quanta of each unit.
    tensors
        What a stage pays for, in ticks, where it holds some but not all of the units of a bit set.
    counts, capacities
        Of each class: devices, and quanta of memory; None where it never runs out.
    pays
        Of each class: whether it pays for transfers.
    """

    load: Load
    units: tuple[Unit, ...]
    ticks: Ints
    runs: Bools
    memory: Ints
    tensors: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]
    capacities: tuple[int | None, ...]
    pays: tuple[bool, ...]

    @property
    def before(self) -> tuple[int, ...]:
        """For each unit, the units right before it as bits."""
        return tuple(unit.before for unit in self.units)

    @property
    def memory_binds(self) -> bool:
        """Whether memory can rule out anything."""
        total = int(self.memory.sum())
        return any(capacity is not None and capacity < total for capacity in self.capacities)


def split_tables(problem: DagProblem) -> SplitTables:
    """Return the tables of a problem.

    Raises
    ------
    InvalidProblem
        If a layer runs nowhere, or times cannot be counted in ticks.
    """
    load, units = Load(problem), units_of(problem)
    shape = (len(problem.classes), len(units))
    ticks, runs, memory = np.zeros(shape, np.int64), np.ones(shape, bool), np.zeros(len(units), np.int64)
    unit_of = {layer: at for at, unit in enumerate(units) for layer in unit.layers}
    for layer, at in unit_of.items():
        options = problem.layers[layer].options
        for row, kind in enumerate(problem.classes):
            option = options.get((kind.name, 1), (None,))[0]
            runs[row, at] &= option is not None
            ticks[row, at] += 0 if option is None else load.option_ticks(option)
        memory[at] += next((load.fixed(option) for kind in options.values() for option in kind), 0)
    ticks[~runs] = 0
    kinds = problem.classes
    capacities = tuple(None if kind.memory_bytes is None else load.capacity(kind.memory_bytes) for kind in kinds)
    tensors = _tensors(load, unit_of)
    counts, pays = tuple(kind.count for kind in kinds), tuple(kind.pays_transfers for kind in kinds)
    return SplitTables(load, units, ticks, runs, memory, tensors, counts, capacities, pays)


def _tensors(load: Load, unit_of: dict[int, int]) -> tuple[tuple[int, int], ...]:
    """Return tensors with the units that make or read them; those of the same units are one."""
    problem = load.problem
    reached: dict[int, int] = defaultdict(int)
    ticks: dict[int, int] = {}
    for (source, target), edge in zip(problem.ends, problem.edges, strict=True):
        reached[source] |= 1 << unit_of[source] | 1 << unit_of[target]
        ticks.setdefault(source, load.edge_ticks(edge))
    return summed((units, ticks[source]) for source, units in reached.items())


def summed(tensors: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return tensors, those of the same units as one, and without those that no stage ever pays for."""
    merged: dict[int, int] = defaultdict(int)
    for units, ticks in tensors:
        if units.bit_count() > 1 and ticks:
            merged[units] += ticks
    return tuple(merged.items())


@dataclass(frozen=True, slots=True)
class Folded:
    """Tables in which leaves that take no time are part of their only neighbour.

    Parameters
    ----------
    kept
        With the memory of the leaves: each of its plans is one of the problem, but some are missing.
    relaxed
        Without it: no plan of the problem is better than its best.
    exact
        Whether the two are the same.
    """

    kept: SplitTables
    relaxed: SplitTables
    exact: bool


def folded(tables: SplitTables, most_memory: int | None = None) -> Folded:
    """Move leaves into their only neighbour, which never makes a plan slower, but may take memory that is not there.

    Parameters
    ----------
    most_memory
        Leaves with more stay; None to fold all.
    """
    near = _neighbours(tables)
    home = list(range(len(tables.units)))
    light: Bools = (tables.ticks.max(axis=0) == 0) & tables.runs.all(axis=0)
    if most_memory is not None:
        light &= tables.memory <= most_memory
    queue = [unit for unit in range(len(home)) if light[unit] and near[unit].bit_count() == 1]
    while queue:
        leaf = queue.pop()
        if near[leaf].bit_count() != 1:  # two leaves that only have each other: one of them went
            continue
        host = near[leaf].bit_length() - 1
        home[leaf], near[leaf] = host, 0
        near[host] &= ~(1 << leaf)
        if light[host] and near[host].bit_count() == 1:
            queue.append(host)
    return _merged(tables, home)


def _neighbours(tables: SplitTables) -> list[int]:
    """Return the units that share an edge with each; units that only an order ties count, too."""
    near = [0] * len(tables.units)
    unit_of = {layer: at for at, unit in enumerate(tables.units) for layer in unit.layers}
    problem = tables.load.problem
    for source, target in (*problem.ends, *problem.arcs):
        one, other = unit_of[source], unit_of[target]
        if one != other:
            near[one] |= 1 << other
            near[other] |= 1 << one
    return near


def _merged(tables: SplitTables, home: list[int]) -> Folded:
    """Return the tables with each unit in the one that its ``home`` leads to."""
    for unit in range(len(home)):
        while home[home[unit]] != home[unit]:
            home[unit] = home[home[unit]]
    stay = sorted(set(home))
    place = {unit: at for at, unit in enumerate(stay)}
    new = [place[unit] for unit in home]
    memory = np.bincount(new, tables.memory, len(stay)).astype(np.int64)
    kept = replace(
        tables,
        units=_joined(tables.units, new, len(stay)),
        ticks=tables.ticks[:, stay],
        runs=tables.runs[:, stay],
        memory=memory,
        tensors=summed((_moved(reached, new), ticks) for reached, ticks in tables.tensors),
    )
    alone: Ints = tables.memory[stay]
    if not tables.memory_binds or np.array_equal(memory, alone):
        return Folded(kept, kept, exact=True)
    return Folded(kept, replace(kept, memory=alone), exact=False)


def _joined(units: tuple[Unit, ...], new: list[int], count: int) -> tuple[Unit, ...]:
    layers: list[list[int]] = [[] for _ in range(count)]
    before = [0] * count
    for unit, at in zip(units, new, strict=True):
        layers[at].extend(unit.layers)
        before[at] |= _moved(unit.before, new) & ~(1 << at)
    return tuple(Unit(tuple(sorted(held)), needs) for held, needs in zip(layers, before, strict=True))


def _moved(units: int, new: list[int]) -> int:
    moved = 0
    for unit in members_of(units):
        moved |= 1 << new[unit]
    return moved
