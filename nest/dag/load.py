"""Elementary times and sizes as integers: every formula of the load models, once.

A stage's load is counted in *parts*, of which a tick has as many as make the time of every number of replicas whole:

    load = parts / replicas * (times + transfers) + synchronisation

Times, transfers and synchronisation are rounded here, each by itself; sums are exact from there on.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, lcm

from nest.dag.problem import DagEdge, DagProblem, Option
from nest.errors import InvalidProblem
from nest.units import EXACT_LIMIT, HARD_LIMIT, Number, TimeScale, finest_exponent

COARSEST = 1e-9
"""No elementary rounding is a larger part of the sum of all times."""


MOST_QUANTA = 10**6
"""Quanta in a byte, at most."""


@dataclass(frozen=True)
class Load:
    """The integers that a problem's figures become; ticks and quanta as in `nest.units`.

    Raises
    ------
    InvalidProblem
        If times and replicas cannot be counted finely enough.
    """

    problem: DagProblem

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """How many replicas a stage may have."""
        problem = self.problem
        if not problem.preset.replicas:
            return (1,)
        most = min(problem.classes[0].count, problem.microbatches)
        return tuple(degree for degree in range(1, most + 1) if problem.microbatches % degree == 0)

    @cached_property
    def parts(self) -> int:
        """Parts of a tick: divisible by every number of replicas."""
        return lcm(*self.degrees)

    @cached_property
    def time(self) -> TimeScale:
        """The tick: ticks of all loads together are exact in floats, and parts on all devices of a stage in int64."""
        most = self._most
        ticks = finest_exponent(most * 4, EXACT_LIMIT)
        exponent = min(ticks, finest_exponent(most * 4 * self._widest, HARD_LIMIT // self.parts))
        scale = TimeScale(exponent)
        if most > 0 and scale.tick_s > COARSEST * most:
            what = f"{self.parts} parts of a tick are needed"
            raise InvalidProblem("microbatches", what, "give fewer devices, or microbatches with smaller divisors")
        return scale

    @cached_property
    def _options(self) -> list[Option]:
        return [option for layer in self.problem.layers for kind in layer.options.values() for option in kind]

    @cached_property
    def _most(self) -> float:
        """Upper bound of the sum of all loads, each option taken at once."""
        problem, model = self.problem, self.problem.preset
        options = self._options
        times = sum(option.time for option in options)
        sent = sum(edge.cost for edge in problem.edges) * 2 * model.passes
        sent += sum(model.passes * (sum(option.sync_in.values()) + sum(option.sync_out.values())) for option in options)
        sent += sum(model.resync_factor * option.parameter_bytes for option in options)
        return float(times + sent / problem.bandwidth)

    @property
    def most_parts(self) -> int:
        """A load that no stage exceeds."""
        roundings = len(self._options) * 2 + len(self.problem.edges) * 2
        return (self.time.ticks(self._most) + roundings + 1) * self.parts

    @property
    def _widest(self) -> int:
        return max((width for layer in self.problem.layers for _, width in layer.options), default=1)

    @cached_property
    def bytes_scale(self) -> int:
        """Quanta in a byte: a power of ten that makes sizes whole, or the largest with which all of them can be added.

        Files hold sizes such as 1156055.0399999998, the sum of two measurements; what a quantum cannot tell apart is
        then less than what the arithmetic that wrote them lost.
        """
        in_flight = self.problem.classes[0].count if self.problem.preset.replicas else 1
        sizes = [size for option in self._options for size in (option.fixed_bytes, option.in_flight_bytes)]
        most = sum(in_flight * size for size in sizes)
        scale = 1
        while scale < MOST_QUANTA and most * scale * 10 <= EXACT_LIMIT and any(size * scale % 1 for size in sizes):
            scale *= 10
        return scale

    def option_ticks(self, option: Option) -> int:
        """Return the time of a layer on one replica."""
        return self.time.ticks(option.time)

    def edge_ticks(self, edge: DagEdge, sync_bytes: Number = 0) -> int:
        """Return the time that an edge takes at one of its ends, with what the devices there exchange for it."""
        return self.time.ticks(self.problem.preset.passes * (edge.cost + sync_bytes) / self.problem.bandwidth)

    def resync_parts(self, option: Option, replicas: int) -> int:
        """Return a sample's share of synchronising a layer's weights over the replicas of its stage."""
        problem = self.problem
        sent = problem.preset.resync_factor * (replicas - 1) * option.parameter_bytes
        return round(sent / (replicas * problem.microbatches * problem.bandwidth) * self.time.ticks_per_s * self.parts)

    def memory(self, option: Option, in_flight: int) -> int:
        """Return the quanta of a layer with so many microbatches in flight."""
        return self.fixed(option) + in_flight * self.each(option)

    def fixed(self, option: Option) -> int:
        """Return the quanta of a layer that do not depend on microbatches in flight."""
        return self._quanta(option.fixed_bytes)

    def each(self, option: Option) -> int:
        """Return the quanta of a layer for one microbatch in flight."""
        return self._quanta(option.in_flight_bytes)

    def capacity(self, memory_bytes: Number) -> int:
        """Return the quanta that fit into a device's memory."""
        return floor(Fraction(memory_bytes) * self.bytes_scale)

    def _quanta(self, size: Number) -> int:
        return round(Fraction(size) * self.bytes_scale)

    def value(self, parts: int) -> float:
        """Return a load in the problem's own unit of time."""
        return float(parts * self.time.tick / Fraction(self.parts))
