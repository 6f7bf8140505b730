"""Side constraints that tie stages together: what a whole plan costs, and stages that are to be alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import ClassVar, NamedTuple

from nest.constraints.base import CouplingConstraint, Whole
from nest.constraints.checks import (
    as_layers,
    as_number,
    as_whole,
    counted,
    exact,
    listed,
    places_of,
    require_layers,
    written,
)
from nest.constraints.programme import Programme, StageWay, Variable
from nest.errors import InvalidProblem
from nest.graph import Layer, LayerId
from nest.problem import Problem, Variant
from nest.units import Number


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
    looks_at_replicas: ClassVar[bool] = False
    looks_at_types: ClassVar[bool] = False
    looks_at_sharding: ClassVar[bool] = False
    looks_at_recompute: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", as_number(f"{self.kind}.most", self.most))
        rates = {name: getattr(self, name) for name in _RATES}
        given = [name for name, rate in rates.items() if rate is not None]
        if len(given) != 1:
            what = "no rate is given" if not given else f"{' and '.join(given)} are given"
            raise InvalidProblem(self.kind, what, f"give one of {', '.join(rates)}")
        object.__setattr__(self, given[0], as_number(f"{self.kind}.{given[0]}", rates[given[0]]))
        if not isinstance(self.unit, str):
            raise InvalidProblem(f"{self.kind}.unit", f"{self.unit!r}", "give a string, as in 'USD'")

    @property
    def looks_at_layers(self) -> bool:
        """It does not: whichever layers a stage has, what they take counts."""
        return False

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
        return " ".join(part for part in (written(amount), unit, per) if part)

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return what an iteration costs where that is too much."""
        devices = whole.used_devices
        cost = devices * whole.iteration * self.rate
        return f"it costs {self._spelt(float(cost))} on {devices} devices" if cost > exact(self.most) else None

    def most_ticks(self, devices: int, tick: Fraction) -> int | None:
        """Return how many ticks an iteration may take on so many devices; None where they cost nothing."""
        cost = devices * self.rate * tick
        return floor(exact(self.most) / cost) if cost > 0 else None

    def post(self, programme: Programme) -> None:
        """Post how long an iteration may take on the devices of each outer choice."""
        for choice in programme.choices:
            most = self.most_ticks(choice.devices, programme.tick)
            if most is not None:
                programme.limit_objective(most, [choice.taken])


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

    Two stages have the same shape if their layers cost the same, one after the other, on each class of devices, and if
    they shard and recompute alike.
    """

    most: int

    kind: ClassVar[str] = "distinct_stages"
    looks_at_replicas: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", as_whole(f"{self.kind}.most", self.most, 1))

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {counted(self.most, 'different stage')}"

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return how many shapes there are where that is too many."""
        costs = _costs(problem, whole.outer.variant)
        stages = zip(whole.runs, whole.shardings, whole.recomputes, strict=True)
        shapes = {(tuple(costs[first:end]), sharding, again) for (first, end), sharding, again in stages}
        return f"its stages are of {len(shapes)} shapes" if len(shapes) > self.most else None

    def post(self, programme: Programme) -> None:
        """Post that a stage of some layers which shards in some way takes one of the shapes, of which there are few."""
        shapes, flags = _Shapes(programme.problem), _Flags(programme)
        for slot in programme.slots:
            alike: dict[tuple[object, StageWay | None], list[Variable]] = {}
            for arc in slot.arcs:
                alike.setdefault((shapes.of(slot.variant, arc.first, arc.end), arc.way), []).append(arc.taken)
            options = [((option.zero, option.degree), [option.taken]) for option in slot.options] or [((0, 1), [])]
            for (shape, way), arcs in alike.items():
                for sharding, option in options if way is None else [(way.sharding, [])]:
                    flag = flags[shape, sharding, way and way.recompute]
                    taken = [(1, each) for each in (*arcs, *option)]
                    programme.at_most([*taken, (-1, flag)], len(option))
        programme.at_most([(1, flag) for flag in flags.values()], self.most)


class _Flags(dict[object, Variable]):
    """Literals of a programme by what they stand for, made when they are asked for."""

    def __init__(self, programme: Programme) -> None:
        super().__init__()
        self.programme = programme

    def __missing__(self, key: object) -> Variable:
        self[key] = flag = self.programme.flag()
        return flag


def _costs(problem: Problem, variant: Variant) -> list[tuple[Number, ...]]:
    """Return what tells layers apart: their times on each class of devices, and their bytes."""
    graph = problem.graphs[variant]
    ways = zip(graph.layers, *(layers for _, layers in graph.others), strict=True)
    return [_cost(each) for each in ways]


def _cost(ways: Sequence[Layer]) -> tuple[Number, ...]:
    """Return the times of a layer on each class of devices, and its bytes."""
    times = [seconds for layer in ways for seconds in (layer.forward_s, layer.backward_s)]
    return (*times, ways[0].parameter_bytes, ways[0].activation_bytes)


class _Shapes:
    """Numbers the shapes of runs of layers: their costs, one after the other, and whether they recompute."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._kinds = {variant: self._numbered(variant) for variant in problem.variants}

    def _numbered(self, variant: Variant) -> list[int]:
        costs = _costs(self.problem, variant)
        numbers = {each: at for at, each in enumerate(dict.fromkeys(costs))}
        return [numbers[each] for each in costs]

    def of(self, variant: Variant, first: int, end: int) -> object:
        """Return what two stages of a variant have in common if and only if they are alike but for sharding."""
        kinds = self._kinds[variant]
        again = self.problem.choices.recompute == "full" and end < len(kinds)
        return variant, tuple(kinds[first:end]), again


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
    looks_at_recompute: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_layers(f"{self.kind}.layers", self.layers))

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

    def post(self, programme: Programme) -> None:
        """Post that of all ways to shard only one is for stages that hold any of the layers."""
        flags = _Flags(programme)
        for slot in programme.slots:
            places = places_of(programme.problem, slot.variant, self.layers).tolist()
            holding = [arc for arc in slot.arcs if any(arc.first <= place < arc.end for place in places)]
            chosen: dict[tuple[int, int], list[Variable]] = {}
            for arc in holding:
                if arc.way is not None:
                    chosen.setdefault(arc.way.sharding, []).append(arc.taken)
            for sharding, taken in chosen.items():
                programme.at_most([*((1, each) for each in taken), (-1, flags[sharding])], 0)
            for option in slot.options if holding and not chosen else ():
                taken = [*(arc.taken for arc in holding), option.taken]
                programme.at_most([*((1, each) for each in taken), (-1, flags[option.zero, option.degree])], 1)
        programme.at_most([(1, flag) for flag in flags.values()], 1)
