"""Side constraints that tie stages together: budgets of a whole plan, and stages that are to be alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd
from typing import ClassVar, NamedTuple

import numpy as np

from nest.constraints.base import CouplingConstraint, Whole
from nest.constraints.checks import (
    exact,
    level_at,
    listed,
    places_of,
    require_layers,
    require_number,
    require_some,
    require_whole,
)
from nest.errors import InvalidProblem
from nest.graph import LayerId
from nest.problem import Problem
from nest.units import Number


@dataclass(frozen=True)
class LevelTraffic(CouplingConstraint):
    """A budget of the bytes that cross a network level, or a level outside it, in an iteration.

    They are counted as the model gives them, for one device of each stage; see `bytes_of`.

    Parameters
    ----------
    level
        Number of the level, from 0 for the innermost, or its name.
    most_bytes
        What may cross it.
    """

    level: int | str
    most_bytes: Number

    kind: ClassVar[str] = "level_traffic"

    def __post_init__(self) -> None:
        require_number(f"{self.kind}.most_bytes", self.most_bytes)

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {self.most_bytes} bytes of an iteration cross level {self.level!r}"

    def check(self, problem: Problem) -> None:
        """Refuse a level that the cluster does not have."""
        level_at(f"{self.kind}.level", problem, self.level)

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return how much crosses the level where that is too much."""
        crossing = self.bytes_of(problem, whole)
        return f"{float(crossing):.15g} bytes cross it" if crossing > exact(self.most_bytes) else None

    def bytes_of(self, problem: Problem, whole: Whole) -> Fraction:
        """Return the bytes that cross the level in an iteration.

        Activations and gradients go over each boundary once for each microbatch, with every edge that enters the stage
        after it (forward) or leaves the stage before it (backward), as in D1 to D3 of ``docs/formulation.md``. The
        synchronisation sends and receives the gradients of every stage once in each replica (D6).
        """
        level = level_at(f"{self.kind}.level", problem, self.level)
        microbatches = -(-problem.training.microbatches // whole.outer.replicas)
        apart = 1 if level == 0 else problem.cluster.group_sizes[level - 1]
        boundaries = zip(_exchanged(problem, whole), _crossings(problem, whole, apart), strict=True)
        transfers = sum((size * replicas for size, replicas in boundaries), Fraction(0))
        return transfers * microbatches + _synchronised(problem, whole, apart)


@dataclass(frozen=True)
class Budget(CouplingConstraint):
    """A budget of what the devices of a plan cost in an iteration: money, energy, or anything else that time costs.

    All devices that the plan takes count, for the whole iteration.

    Parameters
    ----------
    most
        What an iteration may cost.
    rate_per_device_s
        What a device costs in a second.
    price_per_device_hour
        Or what it costs in an hour.
    watts_per_device
        Or the power that it draws; ``most`` is in joules then.
    unit
        Of ``most``, for people to read.
    """

    most: Number
    rate_per_device_s: Number | None = None
    price_per_device_hour: Number | None = None
    watts_per_device: Number | None = None
    unit: str = ""

    kind: ClassVar[str] = "budget"

    def __post_init__(self) -> None:
        require_number(f"{self.kind}.most", self.most)
        rates = {name: getattr(self, name) for name in _RATES}
        given = [name for name, rate in rates.items() if rate is not None]
        if len(given) != 1:
            what = "no rate is given" if not given else f"{' and '.join(given)} are given"
            raise InvalidProblem(self.kind, what, f"give one of {', '.join(rates)}")
        require_number(f"{self.kind}.{given[0]}", rates[given[0]])

    @property
    def text(self) -> str:
        """What it asks for."""
        name, rate = self._given
        return f"an iteration costs at most {self._spelt(self.most)}, a device {self._spelt(rate, _RATES[name].per)}"

    @property
    def rate(self) -> Fraction:
        """What a device costs in a second, exactly."""
        name, rate = self._given
        return exact(rate) / _RATES[name].seconds

    @property
    def _given(self) -> tuple[str, Number]:
        return next((name, getattr(self, name)) for name in _RATES if getattr(self, name) is not None)

    def _spelt(self, amount: Number, per: str = "") -> str:
        unit = self.unit or ("J" if self.watts_per_device is not None else "")
        return " ".join(part for part in (str(amount), unit, per) if part)

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return what an iteration costs where that is too much."""
        devices = whole.outer.replicas * whole.stride
        cost = devices * whole.iteration * self.rate
        return f"it costs {self._spelt(float(cost))} on {devices} devices" if cost > exact(self.most) else None


class _Rate(NamedTuple):
    """A way to give a rate: the seconds that it is for, in numbers and in words."""

    seconds: int
    per: str


_RATES = {
    "rate_per_device_s": _Rate(1, "per second"),
    "price_per_device_hour": _Rate(3600, "per hour"),
    "watts_per_device": _Rate(1, "per second"),
}


@dataclass(frozen=True)
class DistinctStages(CouplingConstraint):
    """No more than ``most`` shapes of stages.

    Two stages have the same shape if their layers cost the same, one after the other, and if they shard and recompute
    alike.
    """

    most: int

    kind: ClassVar[str] = "distinct_stages"

    def __post_init__(self) -> None:
        require_whole(f"{self.kind}.most", self.most, 1)

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {self.most} different stages"

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return how many shapes there are where that is too many."""
        layers = problem.graphs[whole.outer.variant].layers
        costs = [(each.forward_s, each.backward_s, each.parameter_bytes, each.activation_bytes) for each in layers]
        stages = zip(whole.runs, whole.shardings, whole.recomputes, strict=True)
        shapes = {(tuple(costs[first:end]), sharding, again) for (first, end), sharding, again in stages}
        return f"its stages are of {len(shapes)} shapes" if len(shapes) > self.most else None


@dataclass(frozen=True)
class SameSharding(CouplingConstraint):
    """Layers whose stages shard alike, as layers do that are tied to each other.

    Parameters
    ----------
    layers
        Their ids.
    """

    layers: Sequence[LayerId]

    kind: ClassVar[str] = "same_sharding"

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        require_some(f"{self.kind}.layers", self.layers)

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"the stages of layers {listed(self.layers)} shard alike"

    def check(self, problem: Problem) -> None:
        """Refuse layers that the problem does not have."""
        require_layers(f"{self.kind}.layers", problem, self.layers)

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return how the stages differ, where they do."""
        places = places_of(problem, whole.outer.variant, self.layers).tolist()
        stages = zip(whole.runs, whole.shardings, strict=True)
        found = {sharding for (first, end), sharding in stages if any(first <= place < end for place in places)}
        kinds = [f"ZeRO-{zero} of degree {degree}" if zero else "no ZeRO" for zero, degree in sorted(found)]
        return f"they use {' and '.join(kinds)}" if len(found) > 1 else None


def _exchanged(problem: Problem, whole: Whole) -> Iterator[Fraction]:
    """Yield the bytes that a microbatch sends over the boundary after each stage but the last, both ways."""
    graph = problem.graphs[whole.outer.variant]
    sizes = [exact(edge.bytes) for edge in graph.edges]
    for (first, cut), (_, end) in pairwise(whole.runs):
        entering = [source < cut <= target < end for source, target in graph.places]
        leaving = [first <= source < cut <= target for source, target in graph.places]
        columns = zip(sizes, entering, leaving, strict=True)
        yield sum((size * (enters + leaves) for size, enters, leaves in columns), Fraction(0))


def _crossings(problem: Problem, whole: Whole, apart: int) -> Iterator[int]:
    """Yield in how many replicas each boundary has ends in different groups of ``apart`` devices.

    What the ends of a boundary are is the preset's choice. With ``apart`` 1 every boundary counts.
    """
    replicas, period = whole.outer.replicas, apart // gcd(whole.stride, apart)
    base = np.arange(min(replicas, period), dtype=np.int64)
    alike = (replicas - 1 - base) // period + 1
    base = base * whole.stride % apart
    for at in range(1, whole.outer.stages):
        upper, lower = whole.starts[at - 1], whole.starts[at]
        far = upper if problem.preset.boundary == "first" else upper + whole.devices[at - 1] - 1
        crossed = (base + lower) // apart != (base + far) // apart
        yield int(alike[crossed].sum()) if apart > 1 else replicas


def _synchronised(problem: Problem, whole: Whole, apart: int) -> Fraction:
    """Return the bytes of gradients that all replicas send and receive, where they are in different groups."""
    replicas = whole.outer.replicas
    if replicas == 1 or (replicas - 1) * whole.stride < apart:
        return Fraction(0)
    layers = problem.graphs[whole.outer.variant].layers
    total = Fraction(0)
    for (first, end), (zero, degree) in zip(whole.runs, whole.shardings, strict=True):
        weights = sum((exact(layer.parameter_bytes) for layer in layers[first:end]), Fraction(0))
        total += weights / degree if zero == 3 and problem.preset.sync_sharded else weights
    return 2 * replicas * total
