"""The mathematical programme as side constraints see it that tie stages together: its variables, and how to add to it.

No solver is named here. A constraint posts itself once, and every model of the programme implements `Programme`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

from nest.constraints.base import Outer
from nest.problem import Problem, Variant

Variable: TypeAlias = Any
"""The solver's own: a number from 0 on, or a literal, which is 0 or 1."""

Term: TypeAlias = tuple[int, Variable]
"""A variable, and how often it counts."""


@dataclass(frozen=True, slots=True)
class ChoiceTerm:
    """An outer choice: its literal, devices from one replica to the next, and all that it takes.

    Exactly one of all is taken.
    """

    taken: Variable
    outer: Outer
    stride: int
    devices: int


@dataclass(frozen=True, slots=True)
class StageWay:
    """How a stage shards and recomputes, where each stage chooses: as `nest.constraints.Whole` has it.

    Attributes
    ----------
    sharding
        ZeRO type and degree, 0 and 1 for none.
    recompute
        What is computed again, and in how many layers.
    """

    sharding: tuple[int, int]
    recompute: tuple[str, int]


@dataclass(frozen=True, slots=True)
class ArcTerm:
    """Layers ``[first, end)`` of a stage, by their places in the order, and the literal that it holds these.

    Under preset `default` it says, too, how the stage shards and recomputes; the same layers are in several arcs then.
    """

    taken: Variable
    first: int
    end: int
    way: StageWay | None = None


@dataclass(frozen=True, slots=True)
class OptionTerm:
    """ZeRO type and degree of a stage, 0 and 1 for none, and the literal that it shards so."""

    taken: Variable
    zero: int
    degree: int


@dataclass(frozen=True, slots=True)
class PlaceTerm:
    """Devices of a stage in replica 0, the first and how many, and the literal that it stands there."""

    taken: Variable
    start: int
    devices: int


@dataclass(frozen=True, slots=True)
class Slot:
    """What the ``position``-th stage from the end may be under one variant.

    At most one arc of all slots at a position is taken, one in each slot of the variant up to the number of stages; the
    same holds for options and places. Where no stage may shard both are empty: the stage starts at device ``(position -
    1) * variant.width``. Under preset `default` places are empty, as they follow from the outer choice.
    """

    variant: Variant
    position: int
    arcs: Sequence[ArcTerm]
    options: Sequence[OptionTerm]
    places: Sequence[PlaceTerm]


class Programme(Protocol):
    """What a constraint that ties stages together reads of the programme, and adds to it.

    What is posted must leave just the plans that keep the constraint. Numbers are whole.
    """

    @property
    def problem(self) -> Problem:
        """Whose programme it is."""

    @property
    def tick(self) -> Fraction:
        """Seconds in a tick."""

    @property
    def choices(self) -> Sequence[ChoiceTerm]:
        """Outer choices."""

    @property
    def slots(self) -> Sequence[Slot]:
        """Stages by variant and position."""

    def flag(self) -> Variable:
        """Return a new literal."""

    def number(self, most: int) -> Variable:
        """Return a new whole number from 0 to ``most``."""

    def one_of(self, choices: Iterable[int]) -> Variable:
        """Return the literal that one of some outer choices, by their place among `choices`, is taken."""

    def at_most(self, terms: Iterable[Term], most: int, given: Iterable[Variable] = ()) -> None:
        """Post ``sum of the terms <= most`` where all literals of ``given`` are 1.

        Raises
        ------
        OverflowError
            If the solver cannot add up such numbers exactly.
        """

    def sent_over(self, level: int) -> Sequence[Sequence[Term]]:
        """Return the bytes that stages send over a level or one outside it, by position: at most one of each is taken.

        Under preset `default`, of levels that `CouplingConstraint.most_crossing` of some constraint names.
        """

    def limit_objective(self, ticks: int, given: Iterable[Variable] = ()) -> None:
        """Post that an iteration takes so many ticks at most; given and errors as in `at_most`."""
