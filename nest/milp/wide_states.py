"""States between which stages with widths of their own lead: what the stages behind see of those before.

State 0 is before all layers, wherever the first stage stands, and the last state is behind all of them. In between a
state is a spot in a frame, and the layer with which the stage there begins.
"""

from __future__ import annotations

from typing import NamedTuple

from nest.milp.wide_choices import WideChoice, most_stages
from nest.milp.wide_spots import Spots
from nest.tables.shares import Option
from nest.units import Ints


class Place(NamedTuple):
    """What a state in between is: frame and spot by their numbers, and the place of the first layer."""

    frame: int
    spot: int
    first: int


class States:
    """Numbers of the states of an outer choice.

    Parameters
    ----------
    spots
        Of its layout.
    layers
        Of the model.

    Attributes
    ----------
    count
        How many there are.
    """

    def __init__(self, spots: Spots, layers: int) -> None:
        self.spots, self.layers = spots, layers
        self.count = 2 + len(spots.frames) * len(spots.spots) * (layers - 1)

    @classmethod
    def of(cls, choice: WideChoice) -> States:
        """Return the states of an outer choice; those of one layout have the same, whichever numbers of stages."""
        tables, allowed = choice.tables, choice.tables.problem.choices.stages
        most = most_stages(tables, choice.layout)
        deepest = most if allowed is None else max(count for count in allowed if count <= most)
        return cls(Spots(tables, choice.layout, deepest), tables.layers)

    def number(self, frame: int, spot: int, firsts: Ints) -> Ints:
        """Return the states at a spot in a frame before some layers, from the second on."""
        return (frame * len(self.spots.spots) + spot) * (self.layers - 1) + firsts

    def place(self, state: int) -> Place | None:
        """Return what a state is; None before all layers and behind them."""
        if state in (0, self.count - 1):
            return None
        at, inside = divmod(state - 1, self.layers - 1)
        return Place(*divmod(at, len(self.spots.spots)), inside + 1)

    def cuts(self, first: int, end: int) -> tuple[int, int]:
        """Return the layers of a stage between two states, as places of the first and of the one behind."""
        begins, behind = self.place(first), self.place(end)
        return 0 if begins is None else begins.first, self.layers if behind is None else behind.first

    def start(self, first: int) -> int:
        """Return where a stage stands that begins in a state: its first device in replica 0."""
        place = self.place(first)
        return 0 if place is None else self.spots.spots[place.spot].start


def options_of(choice: WideChoice) -> tuple[tuple[int, Option], ...]:
    """Return the forms of a stage by their numbers, each with all ways to shard it."""
    each = choice.tables.options(choice.replicas, choice.stages)
    return tuple((form, option) for form, options in enumerate(each) for option in options)
