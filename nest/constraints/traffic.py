"""The budget of what crosses a network level: counted on whole plans, and posted in the mathematical programme."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import floor, gcd, lcm
from typing import ClassVar

import numpy as np

from nest.constraints.base import CouplingConstraint, Whole
from nest.constraints.checks import as_level, as_number, exact, level_at, written
from nest.constraints.programme import ChoiceTerm, Programme, Slot, Term, Variable
from nest.graph import LayerGraph
from nest.problem import Problem, Variant
from nest.units import Number

MOST_ROWS = 200_000
"""More conditions than this are not posted for one constraint."""


@dataclass(frozen=True)
class LevelTraffic(CouplingConstraint):
    """A budget of the bytes that cross a network level, or a level outside it, in an iteration.

    Under presets `artifact` and `paper` they are counted as the model gives them, for one device of each stage; see
    `bytes_of`. Under `default` they are all that all devices send (D16).

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
    looks_at_replicas: ClassVar[bool] = False
    looks_at_types: ClassVar[bool] = False
    looks_at_sharding: ClassVar[bool] = False
    looks_at_recompute: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", as_level(f"{self.kind}.level", self.level))
        object.__setattr__(self, "most_bytes", as_number(f"{self.kind}.most_bytes", self.most_bytes))

    @property
    def looks_at_layers(self) -> bool:
        """It does not: whichever layers a stage has, what they send counts."""
        return False

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {written(self.most_bytes)} bytes of an iteration cross level {self.level!r}"

    def check(self, problem: Problem) -> None:
        """Refuse a level that the cluster does not have."""
        level_at(f"{self.kind}.level", problem, self.level)

    def most_crossing(self, problem: Problem) -> tuple[int, int] | None:
        """Return the level and the budget where places of all members say what is sent."""
        if problem.preset.collectives != "groups":
            return None
        return self._level(problem), floor(exact(self.most_bytes))

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return how much crosses the level where that is too much."""
        grouped = problem.preset.collectives == "groups"
        crossing: Fraction | int = whole.crossing[self._level(problem)] if grouped else self.bytes_of(problem, whole)
        return f"{float(crossing):.15g} bytes cross it" if crossing > exact(self.most_bytes) else None

    def bytes_of(self, problem: Problem, whole: Whole) -> Fraction:
        """Return the bytes that cross the level in an iteration.

        Activations and gradients go over each boundary once for each microbatch, with every edge that enters the stage
        after it (forward) or leaves the stage before it (backward), as in D1 to D3 of ``docs/formulation.md``. The
        synchronisation sends and receives the gradients of every stage once in each replica (D6).
        """
        microbatches, apart = _microbatches(problem, whole.outer.replicas), self._apart(problem)
        boundaries = zip(_exchanged(problem, whole), _crossings(problem, whole, apart), strict=True)
        transfers = sum((size * replicas for size, replicas in boundaries), Fraction(0))
        return transfers * microbatches + _synchronised(problem, whole, apart)

    def _apart(self, problem: Problem) -> int:
        """Return how many devices a group has within which nothing crosses the level."""
        level = self._level(problem)
        return 1 if level == 0 else problem.cluster.group_sizes[level - 1]

    def _level(self, problem: Problem) -> int:
        return level_at(f"{self.kind}.level", problem, self.level)

    def post(self, programme: Programme) -> None:
        """Post, under each outer choice, the sum of what is sent at the boundaries and to synchronise.

        The stages on either side decide what is sent at a boundary, so that it is one number for each. In how many
        replicas it crosses the level follows from the outer choice and, where stages may shard, places and degrees.
        Under `default` it is a sum over stages, each of which stands where its outer choice has it.
        """
        if programme.problem.preset.collectives == "groups":
            self._post_sum(programme)
            return
        for variant in dict.fromkeys(slot.variant for slot in programme.slots):
            _Traffic(programme, variant, self._apart(programme.problem), exact(self.most_bytes)).post()

    def _post_sum(self, programme: Programme) -> None:
        """Post the sum of what the stages send."""
        most = floor(exact(self.most_bytes))
        terms = [term for each in programme.sent_over(self._level(programme.problem)) for term in each]
        programme.at_most(terms, most)


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
    for at in range(1, whole.outer.stages):
        upper, lower = whole.starts[at - 1], whole.starts[at]
        far = upper if problem.preset.boundary == "first" else upper + whole.devices[at - 1] - 1
        if whole.line.shifts:
            reach = far - upper
            yield int((whole.blocks(at) // apart != (whole.blocks(at - 1) + reach) // apart).sum())
        else:
            yield _replicas_across(lower, far, whole.outer.replicas, whole.stride, apart)


def _replicas_across(low: int, high: int, replicas: int, stride: int, apart: int) -> int:
    """Return in how many replicas two devices, given in replica 0, are in different groups of ``apart`` devices."""
    if apart == 1:
        return replicas
    period = apart // gcd(stride, apart)
    base = np.arange(min(replicas, period), dtype=np.int64)
    alike = (replicas - 1 - base) // period + 1
    base = base * stride % apart
    return int(alike[(base + low) // apart != (base + high) // apart].sum())


def _microbatches(problem: Problem, replicas: int) -> int:
    return -(-problem.training.microbatches // replicas)


def _synchronises(replicas: int, stride: int, apart: int) -> bool:
    """Whether replicas are in different groups of ``apart`` devices."""
    return replicas > 1 and (replicas - 1) * stride >= apart


def _synchronised(problem: Problem, whole: Whole, apart: int) -> Fraction:
    """Return the bytes of gradients that all replicas send and receive, where they are in different groups."""
    replicas = whole.outer.replicas
    groups = whole.blocks(0) // apart if whole.line.shifts else None
    apart_in_groups = _synchronises(replicas, whole.stride, apart) if groups is None else (groups != groups[0]).any()
    if not apart_in_groups:
        return Fraction(0)
    layers = problem.graphs[whole.outer.variant].layers
    total = Fraction(0)
    for (first, end), (zero, degree) in zip(whole.runs, whole.shardings, strict=True):
        weights = sum((exact(layer.parameter_bytes) for layer in layers[first:end]), Fraction(0))
        total += weights / degree if zero == 3 and problem.preset.sync_sharded else weights
    return 2 * replicas * total


class _Sizes:
    """What the layers of a variant send, in whole numbers of a unit.

    Parameters
    ----------
    degrees
        By which what is synchronised may be divided.
    """

    def __init__(self, graph: LayerGraph, degrees: Sequence[int]) -> None:
        edges = [exact(edge.bytes) for edge in graph.edges]
        weights = [exact(layer.parameter_bytes) for layer in graph.layers]
        self.shared = lcm(*degrees)
        self.per_byte = lcm(*(size.denominator for size in (*edges, *weights))) * self.shared
        self.weights = [int(size * self.per_byte) for size in weights]
        self.into, self.out = (np.zeros((len(weights), len(weights) + 1), dtype=object) for _ in range(2))
        for (source, target), size in zip(graph.places, edges, strict=True):
            self.into[source + 1 : target + 1, target + 1 :] += int(size * self.per_byte)
            self.out[: source + 1, source + 1 : target + 1] += int(size * self.per_byte)

    def held(self, first: int, end: int) -> int:
        """Return the parameters of some layers, where they can be divided."""
        return sum(self.weights[first:end]) // self.shared


class _Traffic:
    """Posts what crosses a level under one variant."""

    def __init__(self, programme: Programme, variant: Variant, apart: int, most_bytes: Fraction) -> None:
        self.programme, self.problem, self.apart = programme, programme.problem, apart
        self.slots = sorted((s for s in programme.slots if s.variant == variant), key=lambda slot: slot.position)
        self.choices = [(at, each) for at, each in enumerate(programme.choices) if each.outer.variant == variant]
        self.sizes = _Sizes(self.problem.graphs[variant], self._dividing())
        self.most, self.width = int(most_bytes * self.sizes.per_byte), variant.width
        self.whole = sum(self.sizes.weights)
        self._known: dict[tuple[int, int, int], dict[int, list[int]]] = {}
        self._times_of: dict[tuple[int, int, int, int], int] = {}
        self._rows = 0

    def _dividing(self) -> list[int]:
        """Return the degrees that divide what is synchronised: those of type 3, where the preset says so."""
        if not self.problem.preset.sync_sharded:
            return []
        return sorted({option.degree for slot in self.slots for option in slot.options if option.zero == 3})

    def post(self) -> None:
        """Post the budget under each outer choice."""
        boundaries = list(pairwise(self.slots))
        exchanged = [self._exchanged(lower, upper) for lower, upper in boundaries]
        sharded = any(slot.options for slot in self.slots)
        if sharded:
            exchanged = [self._across(*pair, *sent) for pair, sent in zip(boundaries, exchanged, strict=True)]
        for _, choice in self.choices:
            replicas, stages = choice.outer.replicas, choice.outer.stages
            times = [1 if sharded else self._times(choice, lower) for lower, _ in boundaries[: stages - 1]]
            microbatches = _microbatches(self.problem, replicas)
            terms = [(microbatches * each, sent) for each, (sent, _) in zip(times, exchanged, strict=False) if each]
            most = self.most
            if _synchronises(replicas, choice.stride, self.apart):
                if self.sizes.shared > 1:
                    terms += [(2 * replicas, weight) for weight in self._synchronised[:stages]]
                else:
                    most -= 2 * replicas * self.whole
            self.programme.at_most(terms, most, [choice.taken])

    def _exchanged(self, lower: Slot, upper: Slot) -> tuple[Variable, int]:
        """Return what a microbatch sends over a boundary, both ways, and the most of it."""
        into = [(self.sizes.into[arc.first, arc.end], arc.taken) for arc in lower.arcs]
        out = [(self.sizes.out[arc.first, arc.end], arc.taken) for arc in upper.arcs]
        most = sum(max((size for size, _ in each), default=0) for each in (into, out))
        return self._at_least([*into, *out], most), most

    def _at_least(self, terms: Sequence[Term], most: int) -> Variable:
        """Return a number that is no less than a sum, which is never more than ``most``."""
        number = self.programme.number(most)
        self.programme.at_most([*terms, (-1, number)], 0)
        return number

    def _times(self, choice: ChoiceTerm, lower: Slot) -> int:
        """Return in how many replicas the boundary above a stage crosses the level, where no stage shards."""
        start = (lower.position - 1) * self.width
        high = start + self._reach(self.width, self.width)
        return _replicas_across(start, high, choice.outer.replicas, choice.stride, self.apart)

    def _reach(self, lower: int, upper: int) -> int:
        """Return how far apart the ends of a boundary are between stages of so many devices."""
        return lower if self.problem.preset.boundary == "first" else lower + upper - 1

    def _across(self, lower: Slot, upper: Slot, sent: Variable, most: int) -> tuple[Variable, int]:
        """Return what crosses the level at a boundary in all replicas, and the most of it.

        It is at least ``times * sent`` if the boundary crosses the level so many times: with the stage below it in one
        of some places, the one above it as wide as it is, and one of some outer choices.
        """
        flags, conditions = dict[int, Variable](), self._conditions(lower, upper)
        largest = max((times for times, *_ in conditions), default=0)
        across = self.programme.number(min(largest * most, self.most))
        for times, *kinds in conditions:
            if times not in flags:
                flags[times] = self.programme.flag()
                self.programme.at_most([(times, sent), (-1, across)], 0, [flags[times]])
            terms = [(1, taken) for kind in kinds for taken in kind]
            self.programme.at_most([*terms, (-1, flags[times])], sum(bool(kind) for kind in kinds) - 1)
        return across, min(largest * most, self.most)

    def _conditions(self, lower: Slot, upper: Slot) -> list[tuple[int, list[Variable], list[Variable], list[Variable]]]:
        """Return how often a boundary crosses, with the places, degrees above and outer choices that make it so."""
        degrees: dict[int, list[Variable]] = {}
        for option in upper.options:
            degrees.setdefault(option.degree, []).append(option.taken)
        found: dict[tuple[int, int, tuple[int, ...]], list[Variable]] = {}
        first = self.problem.preset.boundary == "first"
        for place in lower.places:
            for degree in (0,) if first else degrees:
                reach = self._reach(place.devices, degree * self.width)
                for times, among in self._counts(lower.position, place.start, reach).items():
                    found.setdefault((times, degree, tuple(among)), []).append(place.taken)
        self._rows += len(found)
        if self._rows > MOST_ROWS:
            raise OverflowError("there are too many places and widths to tell apart")
        return [
            (times, places, degrees.get(degree, []), [self.programme.one_of(among)] if among else [])
            for (times, degree, among), places in found.items()
            if times
        ]

    def _counts(self, position: int, start: int, reach: int) -> dict[int, list[int]]:
        """Return how often a boundary crosses the level, and under which outer choices; none stand for all."""
        key = (position, start % self.apart, reach)
        if key not in self._known:
            found: dict[int, list[int]] = {}
            for at, choice in self.choices:
                if choice.outer.stages > position:
                    found.setdefault(self._across_in(choice, key[1], reach), []).append(at)
            self._known[key] = found if len(found) > 1 else {times: [] for times in found}
        return self._known[key]

    def _across_in(self, choice: ChoiceTerm, start: int, reach: int) -> int:
        """Return in how many replicas a boundary crosses the level under an outer choice."""
        key = (start, reach, choice.outer.replicas, choice.stride % self.apart)
        if key not in self._times_of:
            times = _replicas_across(start, start + reach, choice.outer.replicas, choice.stride, self.apart)
            self._times_of[key] = times
        return self._times_of[key]

    @cached_property
    def _synchronised(self) -> list[Variable]:
        """What each stage synchronises, from the last of the pipeline on: its parameters, divided under type 3."""
        return [self._weight(slot) for slot in self.slots]

    def _weight(self, slot: Slot) -> Variable:
        held = [(self.sizes.held(arc.first, arc.end), arc.taken) for arc in slot.arcs]
        most = max(size for size, _ in held)
        parameters, weight = self._at_least(held, most), self.programme.number(most * self.sizes.shared)
        for option in slot.options:
            parts = self.sizes.shared // (option.degree if option.zero == 3 else 1)
            self.programme.at_most([(parts, parameters), (-1, weight)], 0, [option.taken])
        return weight
