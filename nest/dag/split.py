"""The best chain of stages of one device each, by dynamic programming over downsets.

The state is how many devices of each class are taken, and the downset that they hold; its value is the least largest
load. A cap, the load that a plan has to stay below, rules out most states and pairs: what is left must fit on the
devices that are left. The cap starts near the lower bound and rises until a plan is found, which then is the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from nest.dag.cuts import Cuts, cuts_of
from nest.dag.tables import SplitTables
from nest.downsets import Bools, Downsets
from nest.units import NEVER, Ints

BLOCK = 2**19
"""Pairs of downsets looked at together."""

SLACK = 1 + 1e-9
"""Bounds that are computed in floats are loosened by this factor."""

SHARES = (1 / 64, 1 / 16, 1 / 4, 1.0)
"""Caps that are tried, as parts of the way from the lower to the upper bound."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of stages.

    Parameters
    ----------
    value
        The largest load in ticks.
    stages
        For each stage, its class of devices by number, and its units.
    """

    value: int
    stages: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass
class SplitSearch:
    """Searches a family of downsets.

    Parameters
    ----------
    tables
        The problem's integers.
    downsets
        The family.
    check
        Called now and then; raises `LimitReached` to stop the search.
    lower
        How far the search came: a load that no chain is below.
    """

    tables: SplitTables
    downsets: Downsets
    check: Callable[[], None]
    lower: int = 0
    _members: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._members = self.downsets.members.astype(np.int64)

    @cached_property
    def cuts(self) -> Cuts:
        """What crosses the border of a stage."""
        return cuts_of(self.downsets, self.tables.tensors)

    @cached_property
    def work(self) -> Ints:
        """Ticks of each downset on each class of devices: a row for each class."""
        work: Ints = self.tables.ticks @ self._members.T
        return work

    @cached_property
    def memory(self) -> Ints:
        """Quanta of each downset."""
        memory: Ints = self._members @ self.tables.memory
        return memory

    @cached_property
    def misfits(self) -> Ints:
        """How many units of each downset do not run on each class: a row for each class."""
        misfits: Ints = (~self.tables.runs).astype(np.int64) @ self._members.T
        return misfits

    def best(self, lower: int, upper: int) -> Chain | None:
        """Return the best chain whose largest load is below ``upper``, given that none is below ``lower``.

        Raises
        ------
        LimitReached
            As `check`; then `lower` says how far it came.
        """
        self.lower = lower
        for share in SHARES:
            cap = upper if share == 1 else min(upper, lower + 1 + int((upper - lower) * share))
            found = _Pass(self, cap).chain()
            if found is not None or cap == upper:
                return found
            self.lower = cap
        return None


def misfit(tables: SplitTables) -> str:
    """Return why there is certainly no plan, or nothing."""
    problem = tables.load.problem
    for at, unit in enumerate(tables.units):
        if not _fits(tables)[:, at].any():
            names = ", ".join(repr(problem.layers[layer].id) for layer in unit.layers[:8])
            return f"no device can hold the layers that must share one: {names}, {_bytes(tables, at)} bytes in all"
    room = [size for size, count in zip(tables.capacities, tables.counts, strict=True) if count]
    return shortage(tables) if None not in room and int(tables.memory.sum()) > _room(tables) else ""


def shortage(tables: SplitTables) -> str:
    """Return how memory and devices compare, for problems without a plan."""
    kinds = ", ".join(f"{kind.count} of class {kind.name}" for kind in tables.load.problem.classes if kind.count)
    most = int(tables.memory.sum()) / tables.load.bytes_scale
    return f"no way to cut the graph into stages fits: its layers take {most:.0f} bytes, and there are {kinds}"


def _room(tables: SplitTables) -> int:
    """Return the quanta of all devices whose memory is limited."""
    return sum((size or 0) * count for size, count in zip(tables.capacities, tables.counts, strict=True))


def _bytes(tables: SplitTables, unit: int) -> str:
    return f"{int(tables.memory[unit]) / tables.load.bytes_scale:.0f}"


def _fits(tables: SplitTables) -> Bools:
    """Return for each class and unit whether a device can hold the unit alone."""
    rows = []
    for runs, capacity, count in zip(tables.runs, tables.capacities, tables.counts, strict=True):
        rows.append(runs & (count > 0) & (capacity is None or tables.memory <= capacity))
    return np.array(rows)


def lower_bound(tables: SplitTables) -> int:
    """Return a load that no plan is below, where every unit fits somewhere."""
    alone = np.where(_fits(tables), tables.ticks, NEVER).min(axis=0)
    return max(int(alone.max()), _shared(tables))


def _shared(tables: SplitTables) -> int:
    """Return the load at which all devices together can do the work of every class."""
    rates, counts = exchange_rates(tables), np.array(tables.counts)
    bound = 0
    for row, total in enumerate(tables.ticks.sum(axis=1)):
        power = sum(count * rate for count, rate in zip(counts, rates[row], strict=True) if count)
        bound = max(bound, int(total / power / SLACK) if power else 0)
    return bound


def exchange_rates(tables: SplitTables) -> list[list[float]]:
    """Return, for two classes, how much work of the first a device of the second saves in a tick, at most."""
    rates = []
    for row in tables.ticks:
        rates.append([1.0 if row is other else _rate(row, other) for other in tables.ticks])
    return rates


def _rate(saved: Ints, spent: Ints) -> float:
    if (saved[spent == 0] > 0).any():
        return float("inf")
    busy = spent > 0
    return float((saved[busy] / spent[busy]).max(initial=0.0))


@dataclass(frozen=True, slots=True)
class _Layer:
    """What so many devices of each class reach: for each downset the value, and from where, and with which class."""

    values: Ints
    origin: Ints
    kinds: Ints


class _Pass:
    """One pass of the dynamic program: the best chain below a cap."""

    def __init__(self, search: SplitSearch, cap: int) -> None:
        self.search, self.tables, self.cap = search, search.tables, cap
        self.rates = exchange_rates(self.tables)
        self.layers: dict[tuple[int, ...], _Layer] = {}

    def chain(self) -> Chain | None:
        """Return the best chain whose largest load is below the cap."""
        count = len(self.search.downsets.sets)
        for used in product(*(range(most + 1) for most in self.tables.counts)):
            layer = _Layer(*(np.full(count, start, np.int64) for start in (self.cap, -1, -1)))
            if not any(used):
                layer.values[0] = -1
            for kind, taken in enumerate(used):
                if taken:
                    self._extend(self.layers[_less(used, kind)].values, layer, used, kind)
            self.layers[used] = layer
        best = min(self.layers, key=lambda used: int(self.layers[used].values[-1]))
        return self._traced(best) if self.layers[best].values[-1] < self.cap else None

    def _extend(self, before: Ints, layer: _Layer, used: tuple[int, ...], kind: int) -> None:
        """Let one more device of a class hold a stage."""
        sources, targets = np.flatnonzero(before < self.cap), np.flatnonzero(self._promising(used))
        for rows, columns in self._blocks(sources, targets, kind):
            self.search.check()
            loads = self._loads(rows, columns, kind)
            np.maximum(loads, before[rows][:, None], out=loads)
            best = loads.argmin(axis=0)
            found = loads[best, np.arange(len(columns))]
            better = found < layer.values[columns]
            chosen = columns[better]
            layer.values[chosen], layer.origin[chosen] = found[better], rows[best[better]]
            layer.kinds[chosen] = kind

    def _promising(self, used: tuple[int, ...]) -> Bools:
        """Return which downsets leave no more than the devices left can take."""
        search, tables = self.search, self.tables
        left = [most - taken for most, taken in zip(tables.counts, used, strict=True)]
        rest = search.work[:, -1:] - search.work
        fine = np.ones(rest.shape[1], bool)
        for row, rates in zip(rest, self.rates, strict=True):
            power = sum(count * rate for count, rate in zip(left, rates, strict=True) if count)
            fine &= row <= power * self.cap * SLACK
        sizes = [size for size, count in zip(tables.capacities, left, strict=True) if count]
        if None not in sizes:
            room = sum(size * count for size, count in zip(tables.capacities, left, strict=True) if size and count)
            fine &= search.memory[-1] - search.memory <= room
        return fine

    def _blocks(self, sources: Ints, targets: Ints, kind: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield blocks of pairs that hold every pair with work below the cap."""
        work = self.search.work[kind]
        sources, targets = (each[np.argsort(work[each], kind="stable")] for each in (sources, targets))
        ends = np.searchsorted(work[targets], work[sources] + self.cap)
        starts = np.searchsorted(work[targets], work[sources])
        at = 0
        while at < len(sources):
            last = at + 1
            while last < len(sources) and (last + 1 - at) * (ends[last] - starts[at]) <= BLOCK:
                last += 1
            columns = targets[starts[at] : ends[last - 1]]
            if len(columns):
                yield sources[at:last], columns
            at = last

    def _loads(self, rows: Ints, columns: Ints, kind: int) -> Ints:
        """Return the loads of all pairs; the cap for those that are no stage or not below it."""
        search, tables = self.search, self.tables
        work = search.work[kind]
        loads = work[columns][None, :] - work[rows][:, None]
        fine = loads < self.cap
        words = search.downsets.words
        for word in range(words.shape[1]):
            fine &= (words[rows, word][:, None] & ~words[columns, word][None, :]) == 0
        fine &= rows[:, None] != columns[None, :]
        if search.misfits[kind, -1]:
            fine &= search.misfits[kind][columns][None, :] == search.misfits[kind][rows][:, None]
        capacity = tables.capacities[kind]
        if capacity is not None and search.memory[-1] > capacity:
            fine &= search.memory[columns][None, :] - search.memory[rows][:, None] <= capacity
        if tables.pays[kind]:
            loads = self._with_cuts(rows, columns, loads, fine)
        loads[~fine] = self.cap
        priced: Ints = loads
        return priced

    def _with_cuts(self, rows: Ints, columns: Ints, loads: Ints, fine: Bools) -> Ints:
        """Add what crosses borders, where a pair may still be below the cap."""
        cuts = self.search.cuts
        loads += cuts.certain(rows, columns).astype(np.int64)
        if cuts.held.shape[1]:
            row, column = np.nonzero(fine & (loads < self.cap))
            loads[row, column] += cuts.rest(rows[row], columns[column])
        fine &= loads < self.cap
        return loads

    def _traced(self, used: tuple[int, ...]) -> Chain:
        """Return the chain that leads to the whole with so many devices of each class."""
        members, value = self.search.downsets.members, int(self.layers[used].values[-1])
        at, stages = len(members) - 1, []
        while at:
            origin, kind = int(self.layers[used].origin[at]), int(self.layers[used].kinds[at])
            stages.append((kind, tuple(np.flatnonzero(members[at] & ~members[origin]).tolist())))
            used, at = _less(used, kind), origin
        return Chain(value, tuple(reversed(stages)))


def _less(used: tuple[int, ...], kind: int) -> tuple[int, ...]:
    """Return how many devices of each class are taken without one of a class."""
    return tuple(number - (at == kind) for at, number in enumerate(used))
