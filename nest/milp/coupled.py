"""What the models of the programme share as `nest.constraints.Programme`: its terms, and sums that stay exact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import Any

from nest.constraints import Outer, Slot
from nest.constraints.programme import ArcTerm, ChoiceTerm, OptionTerm, PlaceTerm, Term, Variable
from nest.errors import OutOfScope
from nest.milp.outer import OuterChoice
from nest.milp.sum_choices import AnyChoice
from nest.milp.sum_formulation import SumFormulation
from nest.problem import Problem, Variant


class Coupled(ABC):
    """Base of the models: the programme to which constraints that tie stages together post themselves."""

    formulation: Any
    use: Any
    arc: Any

    @property
    def problem(self) -> Problem:
        """Whose programme it is."""
        problem: Problem = self.formulation.problem
        return problem

    @property
    def tick(self) -> Fraction:
        """Seconds in a tick."""
        tick: Fraction = self.formulation.tables.scale.time.tick
        return tick

    @property
    @abstractmethod
    def choices(self) -> Sequence[ChoiceTerm]:
        """Outer choices, as in the formulation."""

    @property
    @abstractmethod
    def slots(self) -> Sequence[Slot]:
        """Stages by variant and position."""

    @cached_property
    def _literals(self) -> dict[tuple[int, ...], Variable]:
        return {}

    def literal(self, choices: Iterable[int]) -> Variable:
        """Return the literal that one of some outer choices is taken."""
        key = tuple(choices)
        if key not in self._literals:
            self._literals[key] = self.either([self.use[at] for at in key])
        return self._literals[key]

    def sent_over(self, level: int) -> Sequence[Sequence[Term]]:
        """Return what stages send over a level or one outside it, by position; raises `OverflowError` where unknown."""
        raise OverflowError(f"preset {self.problem.preset.name!r} counts no bytes of all devices over level {level}")

    @abstractmethod
    def either(self, literals: Sequence[Variable]) -> Variable:
        """Return a new literal that one of some literals is 1, of which no more than one is."""

    @abstractmethod
    def flag(self) -> Variable:
        """Return a new literal."""

    @abstractmethod
    def number(self, most: int) -> Variable:
        """Return a new whole number from 0 to ``most``."""

    @abstractmethod
    def largest(self, variable: Variable) -> int:
        """Return the end of the domain of a variable."""

    @abstractmethod
    def limit_objective(self, ticks: int, given: Iterable[Variable] = ()) -> None:
        """Post that an iteration takes so many ticks at most where all literals of ``given`` are 1."""

    @abstractmethod
    def post_sum(self, terms: Sequence[Term], most: int, given: Sequence[Variable], reach: tuple[int, int]) -> None:
        """Post ``sum <= most`` where all of ``given`` are 1; without this the sum reaches from and to ``reach``."""

    def one_of(self, choices: Iterable[int]) -> Variable:
        """Return the literal that one of some outer choices is taken."""
        return self.literal(choices)

    def at_most(self, terms: Iterable[Term], most: int, given: Iterable[Variable] = ()) -> None:
        """Post ``sum of the terms <= most`` where all literals of ``given`` are 1, divided by what divides all terms.

        Raises
        ------
        OverflowError
            If the solver cannot add up such numbers exactly.
        """
        found = [(int(times), variable) for times, variable in terms if times]
        shared, conditions = gcd(*(times for times, _ in found)) or 1, list(given)
        reduced, most = [(times // shared, variable) for times, variable in found], most // shared
        ends = [(times * self.largest(variable)) for times, variable in reduced]
        low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        if low > most:
            self._forbid(conditions)
        elif high > most:
            self.post_sum(reduced, most, conditions, (low, high))

    def _forbid(self, literals: Sequence[Variable]) -> None:
        """Post that not all of some literals are 1; of none that there is no solution."""
        taken = [(1, literal) for literal in literals] or [(1, self.use[at]) for at in range(len(self.choices))]
        self.post_sum(taken, len(literals) - 1 if literals else 0, [], (0, len(taken)))


class LevelledTerms(Coupled):
    """The outer choices and stages of `nest.milp.formulation`."""

    option: Any
    place: Any

    @cached_property
    def choices(self) -> Sequence[ChoiceTerm]:
        """Outer choices, as in the formulation."""
        return [self._choice(at, each) for at, each in enumerate(self.formulation.choices)]

    def _choice(self, at: int, choice: OuterChoice) -> ChoiceTerm:
        tables = self.formulation.tables.variants[choice.variant]
        outer, stride = Outer(tables.variant, choice.stages, choice.replicas), choice.stride * tables.width
        return ChoiceTerm(self.use[at], outer, stride, choice.replicas * stride)

    @cached_property
    def slots(self) -> Sequence[Slot]:
        """Stages by variant and position."""
        return [self._slot(variant, position) for variant, position in self.formulation.by_position]

    def _slot(self, variant: int, position: int) -> Slot:
        made, key = self.formulation, (variant, position)
        tables, arcs, options, places = made.tables.variants[variant], made.arcs, made.options, made.places
        width = tables.width
        return Slot(
            tables.variant,
            position,
            [ArcTerm(self.arc[at], int(arcs.first[at]), int(arcs.end[at])) for at in made.by_position[key]],
            [
                OptionTerm(self.option[at], int(options.zero[at]), int(options.degree[at]))
                for at in made.options_by_position.get(key, ())
            ],
            [
                PlaceTerm(self.place[at], int(places.start[at]) * width, int(places.degree[at]) * width)
                for at in made.places_by_position.get(key, ())
            ],
        )


class SumTerms(Coupled):
    """The outer choices and stages of `nest.milp.sum_formulation`."""

    formulation: SumFormulation

    @cached_property
    def choices(self) -> Sequence[ChoiceTerm]:
        """Outer choices, as in the formulation."""
        return [self._choice(at, each) for at, each in enumerate(self.formulation.choices)]

    def _choice(self, at: int, choice: AnyChoice) -> ChoiceTerm:
        return ChoiceTerm(self.use[at], choice.outer, choice.stride, choice.devices)

    @cached_property
    def slots(self) -> Sequence[Slot]:
        """Stages by variant and position."""
        made, found = self.formulation, dict[tuple[Variant, int], list[int]]()
        for position, arcs in made.by_position.items():
            for arc in arcs:
                found.setdefault((made.choices[made.arcs.choice[arc]].variant, position), []).append(arc)
        return [self._slot(*key, arcs) for key, arcs in found.items()]

    def sent_over(self, level: int) -> Sequence[Sequence[Term]]:
        """Return what stages send over a level or one outside it, by position."""
        made = self.formulation
        levels = [each for each, _ in made.tables.filters.crossed]
        if level not in levels:
            raise OverflowError(f"no constraint says in `most_crossing` how much may go over level {level}")
        sent = made.arcs.sent[:, levels.index(level)].tolist()
        return [[(sent[arc], self.arc[arc]) for arc in arcs] for arcs in made.by_position.values()]

    def _slot(self, variant: Variant, position: int, arcs: list[int]) -> Slot:
        ways = [self.formulation.way(arc) for arc in arcs]
        terms = [ArcTerm(self.arc[arc], *self.formulation.cuts(arc), way) for arc, way in zip(arcs, ways, strict=True)]
        alike: dict[tuple[int, int], list[Variable]] = {}
        for term, way in zip(terms, ways, strict=True):
            alike.setdefault(way.sharding, []).append(term.taken)
        options = [OptionTerm(self.either(taken), *sharding) for sharding, taken in alike.items()]
        return Slot(variant, position, terms, options, [])


def coupling(made: Coupled) -> None:
    """Side constraints that tie stages together, as each of them says.

    Raises
    ------
    OutOfScope
        If one of them takes more numbers, or larger ones, than the solver can keep exactly.
    """
    for constraint in made.formulation.tables.filters.coupling:
        try:
            constraint.post(made)
        except OverflowError as fault:
            where, what = f"constraints ({constraint.kind})", f"too much for this solver: {fault}"
            raise OutOfScope(where, what, "take another backend, or leave it out and have plans judged") from None
