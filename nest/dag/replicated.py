"""The integers of a problem whose stages have replicas and widths: per layer, width and replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.dag.knapsack import Choice
from nest.dag.load import Load
from nest.dag.problem import DagProblem, Option
from nest.dag.units import Unit, units_of
from nest.units import LONGEST, Ints


class Shape(NamedTuple):
    """Width and replicas of a stage."""

    width: int
    replicas: int

    @property
    def devices(self) -> int:
        """How many devices a stage takes."""
        return self.width * self.replicas


@dataclass(frozen=True)
class ReplicatedTables:
    """What stages with replicas cost, layer by layer."""

    load: Load
    units: tuple[Unit, ...]

    @cached_property
    def before(self) -> tuple[int, ...]:
        """For each unit, the units right before it as bits."""
        return tuple(unit.before for unit in self.units)

    @property
    def devices(self) -> int:
        """How many there are."""
        return self.load.problem.classes[0].count

    @cached_property
    def capacity(self) -> int:
        """Quanta of memory of a device, `LONGEST` at most, which is more than all layers take."""
        memory = self.load.problem.classes[0].memory_bytes
        return LONGEST if memory is None else min(self.load.capacity(memory), LONGEST)

    @property
    def most_replicas(self) -> int:
        """Replicas of all stages together, at most."""
        return min(self.devices, self.load.problem.microbatches)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Widths at which some layer runs, that the devices allow."""
        widths = {width for layer in self.load.problem.layers for _, width in layer.options}
        return tuple(sorted(width for width in widths if width <= self.devices))

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Widths and replicas that a stage may have."""
        shapes = [Shape(width, degree) for width in self.widths for degree in self.load.degrees]
        return tuple(shape for shape in shapes if shape.devices <= self.devices)

    @cached_property
    def shape_devices(self) -> Ints:
        """Devices of each shape."""
        return np.array([shape.devices for shape in self.shapes], np.int64)

    @cached_property
    def shape_replicas(self) -> Ints:
        """Replicas of each shape."""
        return np.array([shape.replicas for shape in self.shapes], np.int64)

    @cached_property
    def layer_units(self) -> Ints:
        """The unit of each layer."""
        unit_of = np.zeros(len(self.load.problem.layers), np.int64)
        for at, unit in enumerate(self.units):
            unit_of[list(unit.layers)] = at
        return unit_of

    @cached_property
    def uniform(self) -> bool:
        """Whether the options of a layer exchange the same for each edge, so that a cut costs the same with all."""
        for layer in self.load.problem.layers:
            for options in layer.options.values():
                for ends in ("sync_in", "sync_out"):
                    given: list[dict[object, object]] = [
                        {end: size for end, size in getattr(option, ends).items() if size} for option in options
                    ]
                    if any(one != given[0] for one in given):
                        return False
        return True

    def options(self, layer: int, width: int) -> tuple[Option, ...]:
        """Return the ways to run a layer."""
        problem = self.load.problem
        return problem.layers[layer].options.get((problem.classes[0].name, width), ())

    def runs(self, width: int) -> Ints:
        """Return 0 for each layer that runs at a width, else 1."""
        return np.array([not self.options(layer, width) for layer in range(len(self.load.problem.layers))], np.int64)

    @cached_property
    def figures(self) -> dict[tuple[int, int], tuple[tuple[int, int, int], ...]]:
        """For each layer and width, ticks of each option, and its quanta, fixed and for each microbatch in flight."""
        load = self.load
        return {
            (layer, width): tuple(
                (load.option_ticks(option), load.fixed(option), load.each(option))
                for option in self.options(layer, width)
            )
            for layer in range(len(load.problem.layers))
            for width in self.widths
        }

    def choices(self, layer: int, shape: Shape, in_flight: int) -> list[Choice]:
        """Return time in parts, transfers left out, and memory of each option of a layer."""
        share = self.load.parts // shape.replicas
        given = zip(self.figures[layer, shape.width], self._resyncs[shape][layer], strict=True)
        return [
            (share * ticks + resync, fixed + in_flight * each, at)
            for at, ((ticks, fixed, each), resync) in enumerate(given)
        ]

    @cached_property
    def _resyncs(self) -> dict[Shape, list[list[int]]]:
        """For each shape and layer, parts that each option takes to synchronise its weights."""
        layers = range(len(self.load.problem.layers))
        return {
            shape: [
                [self.load.resync_parts(option, shape.replicas) for option in self.options(layer, shape.width)]
                for layer in layers
            ]
            for shape in self.shapes
        }

    def fastest(self, shape: Shape) -> Ints:
        """Return the least time of each layer in parts; 0 where it does not run."""
        layers = range(len(self.load.problem.layers))
        return np.array([min(self.choices(layer, shape, 1), default=(0,))[0] for layer in layers], np.int64)

    def device_parts(self) -> Ints:
        """Return for each layer the least time of all devices together."""
        load = self.load
        return self._least(lambda option, width: width * load.parts * load.option_ticks(option))

    def replica_parts(self) -> Ints:
        """Return for each layer the least time of all replicas together."""
        return self._least(lambda option, _: self.load.parts * self.load.option_ticks(option))

    def device_memory(self) -> Ints:
        """Return for each layer the least memory on all devices together."""
        return self._least(lambda option, width: width * self.load.memory(option, 1))

    def _least(self, figure: Callable[[Option, int], int]) -> Ints:
        return np.array(
            [
                min(
                    (figure(option, width) for width in self.widths for option in self.options(layer, width)), default=0
                )
                for layer in range(len(self.load.problem.layers))
            ],
            np.int64,
        )

    def edge_ends(self, width: int) -> tuple[Ints, Ints]:
        """Return for each edge what it takes at its target and at its source at least, in ticks."""
        problem, load = self.load.problem, self.load
        into, out = [], []
        for (source, target), edge in zip(problem.ends, problem.edges, strict=True):
            reading = [option.sync_in.get(edge.source, 0) for option in self.options(target, width)]
            giving = [option.sync_out.get(edge.target, 0) for option in self.options(source, width)]
            into.append(load.edge_ticks(edge, min(reading, default=0)))
            out.append(load.edge_ticks(edge, min(giving, default=0)))
        return np.array(into, np.int64), np.array(out, np.int64)


def replicated_tables(problem: DagProblem) -> ReplicatedTables:
    """Return the tables of a problem."""
    return ReplicatedTables(Load(problem), units_of(problem))
