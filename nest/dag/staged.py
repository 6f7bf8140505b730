"""The best chain of stages with replicas: reachability under a cap, and the cap found by bisection.

The state is a downset, whose layers are still to be placed, and the devices that the stages behind it take; its label
is the least number of replicas that these stages have together, since fewer of them mean fewer microbatches in flight,
and nothing else depends on it. A cap is reached if the empty downset is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest.dag.knapsack import Choice, Taken, least_time
from nest.dag.replicated import ReplicatedTables, Shape
from nest.dag.settings import Settings
from nest.downsets import Bools, Downsets, Words
from nest.units import NEVER, Floats, Ints

NONE = 2**30
"""Replicas of a state that is not reached."""

MOST_KEPT = 2**23
"""Figures of pairs of downsets that are kept from one pass to the next."""

CLOSE = 0.05
"""Gap, as part of the load, below which the search asks whether the plan that it has is the best."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A stage: its layers, its shape, and the number of the option of each layer."""

    layers: tuple[int, ...]
    shape: Shape
    options: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A chain of stages with the largest load, in parts of a tick."""

    value: int
    stages: tuple[Placed, ...]


@dataclass
class StagedSearch:
    """Searches a family of downsets.

    Parameters
    ----------
    tables
        The problem's integers.
    downsets
        The family.
    check
        Called now and then; raises `LimitReached` to stop the search.
    lower, found
        How far the search came: a load that no chain is below, and the best chain.
    """

    tables: ReplicatedTables
    downsets: Downsets
    check: Callable[[], None]
    lower: int = 0
    found: Line | None = None

    def __post_init__(self) -> None:
        self._cuts: dict[tuple[int, int], Ints] = {}
        self._exact: dict[tuple[int, int, Shape, int], tuple[int, Taken | None]] = {}

    def best(self, lower: int, upper: int) -> Line | None:
        """Return the best chain whose largest load is at most ``upper``, given that none is below ``lower``.

        Raises
        ------
        LimitReached
            As `check`; then `lower` and `found` say how far it came.
        """
        self.lower, step = lower, max(1, lower // 8)
        while self.found is None:
            cap = min(self.lower + step, upper)
            self.found = self.reached(cap)
            if self.found is None:
                self.lower, step = cap + 1, step * 3
                if cap == upper:
                    return None
        proving = False
        while self.lower < self.found.value:
            value = self.found.value
            proving = not proving and value - self.lower < CLOSE * value  # or else halve once more
            cap = value - 1 if proving else (self.lower + value) // 2
            better = self.reached(cap)
            if better is None:
                self.lower = cap + 1
            else:
                self.found = better
        return self.found

    def reached(self, cap: int) -> Line | None:
        """Return a chain whose largest load is at most ``cap``, or None if there is none."""
        return _Reach(self, cap).line()

    @cached_property
    def held(self) -> Bools:
        """Whether a downset holds a layer."""
        held: Bools = self.downsets.members[:, self.tables.layer_units]
        return held

    @cached_property
    def transfers(self) -> dict[int, tuple[Floats, Floats]]:
        """For each width, figures of a smaller and of a larger downset, whose products add up to what is cut."""
        ends = np.array(self.tables.load.problem.ends, np.int64).reshape(-1, 2)
        source, target = self.held[:, ends[:, 0]].astype(float), self.held[:, ends[:, 1]].astype(float)
        figures = {}
        for width in self.tables.widths:
            into, out = self.tables.edge_ends(width)
            # The target is in the stage, its source in the smaller downset or in none; then the other way round.
            smaller = [
                (1 - target) * source * into,
                (1 - target) * into,
                (1 - source) * target * out,
                (1 - source) * out,
            ]
            larger = [target, target * (1 - source), source, source * (1 - target)]
            before, after = np.hstack(smaller), np.hstack(larger)
            matter = before.any(axis=0) & after.any(axis=0)
            figures[width] = before[:, matter], after[:, matter]
        return figures

    def cut(self, width: int, smaller: int) -> Ints:
        """Return what is cut, in ticks, between a downset and each that holds it."""
        if (width, smaller) not in self._cuts:
            before, after = self.transfers[width]
            if len(self._cuts) * len(after) > MOST_KEPT:
                self._cuts.clear()
            self._cuts[width, smaller] = (after @ before[smaller]).astype(np.int64)
        return self._cuts[width, smaller]

    @cached_property
    def fastest(self) -> Ints:
        """The least time of each downset's layers in parts, transfers left out: a row for each shape."""
        return np.stack([self.held @ self.tables.fastest(shape) for shape in self.tables.shapes])

    @cached_property
    def missing(self) -> dict[int, Ints]:
        """For each width, how many layers of each downset do not run at it."""
        return {width: self.held @ self.tables.runs(width) for width in self.tables.widths}

    @cached_property
    def needs(self) -> tuple[Ints, Ints, Ints]:
        """What each downset takes at least: time of devices, time of replicas, memory of devices."""
        tables = self.tables
        figures = (tables.device_parts(), tables.replica_parts(), tables.device_memory())
        devices, replicas, memory = (self.held @ figure for figure in figures)
        return devices, replicas, memory

    @cached_property
    def settings(self) -> Settings:
        """What the choice of options depends on."""
        return Settings(self.tables)

    def exactly(self, smaller: int, larger: int, shape: Shape, in_flight: int, cap: int) -> Taken | None:
        """Return the fastest choice of options of a stage, transfers included, or None if none keeps the cap."""
        key = (smaller, larger, shape, in_flight)
        known = self._exact.get(key)
        if known is None or (known[1] is None and known[0] < cap):
            layers = np.flatnonzero(self.held[larger] & ~self.held[smaller]).tolist()
            taken = least_time(self._choices(layers, shape, in_flight), self.tables.capacity, cap)
            known = self._exact[key] = cap, taken
        taken = known[1]
        return taken if taken is not None and taken.time <= cap else None

    def _choices(self, layers: Sequence[int], shape: Shape, in_flight: int) -> list[list[Choice]]:
        """Return the choices of each layer of a stage, each with what crosses the border at this layer."""
        load, inside = self.tables.load, set(layers)
        problem, share = load.problem, load.parts // shape.replicas
        extra = {layer: [0] * len(self.tables.options(layer, shape.width)) for layer in layers}
        for (source, target), edge in zip(problem.ends, problem.edges, strict=True):
            if (source in inside) == (target in inside):
                continue
            layer = target if target in inside else source
            for at, option in enumerate(self.tables.options(layer, shape.width)):
                sync = option.sync_in.get(edge.source, 0) if layer == target else option.sync_out.get(edge.target, 0)
                extra[layer][at] += share * load.edge_ticks(edge, sync)
        return [
            [(time + extra[layer][at], memory, at) for time, memory, at in self.tables.choices(layer, shape, in_flight)]
            for layer in layers
        ]


class _Reach:
    """One decision: which states are reached by stages that keep a cap."""

    def __init__(self, search: StagedSearch, cap: int) -> None:
        self.search, self.tables, self.cap = search, search.tables, cap
        self.states = _States(search.downsets.words)
        self.states.add(len(search.downsets.sets) - 1, 0, 0, -1, -1)
        devices, replicas, memory = search.needs
        by_memory = -(-memory // max(1, self.tables.capacity))
        self.most_devices = self.tables.devices - np.maximum(-(-devices // max(1, cap)), by_memory)
        self.most_replicas = self.tables.most_replicas - -(-replicas // max(1, cap))

    def line(self) -> Line | None:
        """Return the chain that was found."""
        for smaller in range(len(self.search.downsets.sets) - 2, -1, -1):
            self.search.check()
            self._reach(smaller)
        found = self.states.of(0)
        return self._traced(found[0]) if found else None

    def _reach(self, smaller: int) -> None:
        """Find out with how few replicas the layers outside a downset are placed, for each number of devices."""
        states, tables = self.states, self.tables
        sources = states.holding(self.search.downsets.words[smaller])
        loads = self._loads(smaller, states.downset[sources])
        devices = states.devices[sources] + tables.shape_devices[:, None]
        replicas = states.replicas[sources] + tables.shape_replicas[:, None]
        fine = (devices <= self.most_devices[smaller]) & (replicas <= self.most_replicas[smaller]) & (loads <= self.cap)
        shape, at = np.nonzero(fine)
        stages = _Stages(smaller, sources[at], shape, devices[shape, at], replicas[shape, at], loads[shape, at])
        fewest = NONE
        for number in np.flatnonzero(np.bincount(stages.devices)).tolist():
            chosen = np.flatnonzero((stages.devices == number) & (stages.replicas < fewest))
            if len(chosen) and len(chosen := chosen[self._fit(stages, chosen)]):
                best = chosen[np.lexsort((stages.loads[chosen], stages.replicas[chosen]))[0]]
                fewest = int(stages.replicas[best])
                states.add(smaller, number, fewest, int(stages.sources[best]), int(stages.shapes[best]))

    def _loads(self, smaller: int, larger: Ints) -> Ints:
        """Return the least load of each stage, a row for each shape; `NEVER` where it does not run."""
        search = self.search
        loads = search.fastest[:, larger] - search.fastest[:, smaller, None]
        for width in self.tables.widths:
            cut = search.cut(width, smaller)[larger]
            runs = search.missing[width][larger] == search.missing[width][smaller]
            for row, shape in enumerate(self.tables.shapes):
                if shape.width == width:
                    loads[row] = np.where(runs, loads[row] + self.tables.load.parts // shape.replicas * cut, NEVER)
        return loads

    def _fit(self, stages: _Stages, chosen: Ints) -> Bools:
        """Return which stages have a choice of options that fits into memory and keeps the cap."""
        shapes, larger = stages.shapes[chosen], self.states.downset[stages.sources[chosen]]
        in_flight = -(-stages.replicas[chosen] // self.tables.shape_replicas[shapes])
        settings = self.search.settings
        rows = settings.rows(shapes, in_flight)
        held = self.search.held[larger] & ~self.search.held[stages.smaller]
        needs = (held * settings.fast[rows]).sum(axis=1) - self.tables.capacity
        within = (held * settings.least[rows]).sum(axis=1) <= self.tables.capacity
        fits: Bools = within & (needs <= 0) & self.tables.uniform
        tight = np.flatnonzero(within & ~fits)
        if len(tight):
            least, most = settings.delays(rows[tight], held[tight], needs[tight])
            loads = stages.loads[chosen[tight]]
            fits[tight] = (loads + most <= self.cap) & self.tables.uniform
            for at in tight[(loads + least <= self.cap) & ~fits[tight]].tolist():
                shape = self.tables.shapes[shapes[at]]
                taken = self.search.exactly(stages.smaller, int(larger[at]), shape, int(in_flight[at]), self.cap)
                fits[at] = taken is not None
        return fits

    def _traced(self, state: int) -> Line:
        """Return the chain that leads to a state, with its fastest options."""
        states, value = self.states, 0
        stages = []
        while (origin := int(states.origin[state])) >= 0:
            shape = self.tables.shapes[states.shape[state]]
            smaller, larger = int(states.downset[state]), int(states.downset[origin])
            in_flight = -(-int(states.replicas[state]) // shape.replicas)
            taken = self.search.exactly(smaller, larger, shape, in_flight, self.cap)
            assert taken is not None, "a stage that was found to fit does not"
            layers = np.flatnonzero(self.search.held[larger] & ~self.search.held[smaller])
            stages.append(Placed(tuple(layers.tolist()), shape, taken.options))
            value, state = max(value, taken.time), origin
        return Line(value, tuple(stages))


@dataclass(frozen=True, slots=True)
class _Stages:
    """Stages right behind a downset: the state they lead to is ``smaller`` with ``devices`` and ``replicas``."""

    smaller: int
    sources: Ints
    shapes: Ints
    devices: Ints
    replicas: Ints
    loads: Ints


class _States:
    """States that are reached: downset, devices and replicas behind it, and the state and shape that led there."""

    def __init__(self, words: Words) -> None:
        self._words, self._rows = words, np.zeros((64, 5), np.int64)
        self._held = np.zeros((64, words.shape[1]), np.uint64)
        self._count = 0

    def add(self, downset: int, devices: int, replicas: int, origin: int, shape: int) -> None:
        """Add a state."""
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._held = np.concatenate([self._held, np.zeros_like(self._held)])
        self._rows[self._count] = downset, devices, replicas, origin, shape
        self._held[self._count] = self._words[downset]
        self._count += 1

    def holding(self, words: Words) -> Ints:
        """Return the states whose downset holds another one."""
        return np.flatnonzero(~(words & ~self._held[: self._count]).any(axis=1))

    def of(self, downset: int) -> list[int]:
        """Return the states of a downset, with the fewest devices first."""
        found: list[int] = np.flatnonzero(self.downset == downset).tolist()
        return found

    @property
    def downset(self) -> Ints:
        """Number of each state's downset."""
        return self._rows[: self._count, 0]

    @property
    def devices(self) -> Ints:
        """Devices behind it."""
        return self._rows[: self._count, 1]

    @property
    def replicas(self) -> Ints:
        """Replicas of the stages behind it."""
        return self._rows[: self._count, 2]

    @property
    def origin(self) -> Ints:
        """The state before, -1 for the first."""
        return self._rows[: self._count, 3]

    @property
    def shape(self) -> Ints:
        """Number of the shape of the stage between."""
        return self._rows[: self._count, 4]


def misfit(tables: ReplicatedTables) -> str:
    """Return why there is certainly no plan, or nothing."""
    problem, load = tables.load.problem, tables.load
    for layer, given in enumerate(problem.layers):
        sizes = [load.memory(option, 1) for width in tables.widths for option in tables.options(layer, width)]
        if not sizes:
            return f"layer {given.id!r} has no options at a width of at most {tables.devices} devices"
        if min(sizes) > tables.capacity:
            most = problem.classes[0].memory_bytes
            return f"layer {given.id!r} takes {min(sizes) / load.bytes_scale:.0f} bytes at least, a device has {most}"
    return ""


def lower_bound(tables: ReplicatedTables) -> int:
    """Return a load that no plan is below, in parts, where every layer runs at some width.

    It is the heaviest layer's, or that of all devices if nothing but time mattered.
    """
    single = np.full(len(tables.load.problem.layers), NEVER)
    for shape in tables.shapes:
        runs = tables.runs(shape.width) == 0
        single[runs] = np.minimum(single[runs], tables.fastest(shape)[runs])
    return max(int(single.max()), -(-int(tables.device_parts().sum()) // tables.devices))
