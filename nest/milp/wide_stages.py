"""What the stages of an outer choice may be where they have widths of their own under the objective `sum`.

A stage leads from one state to the next, so that a path through states is a plan (`nest.milp.wide_states`). What it
takes by itself is in the tables of its form, `nest.tables`, and is found as that of stages of one width,
`nest.milp.sum_stages`; what its transfers take besides follows from its spot and the next one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nest.milp.sum_stages import StageWays
from nest.milp.sum_ways import Kept, Ways, undominated
from nest.milp.wide_choices import WideChoice, least_work
from nest.milp.wide_spots import Frame, Layout, Spots
from nest.milp.wide_states import States
from nest.tables import UnevenTables
from nest.tables.grouped import NO_BOUNDARY, Site
from nest.units import LONGEST

MOST_KEPT = 256
"""Sets of stages of one form in one place that are kept for reuse."""

MOST_LAYOUTS = 8
"""Layouts of which the spots are kept for reuse."""


class WideWays:
    """The ways of the stages of some forms.

    Parameters
    ----------
    tables
        Of the forms.
    kept
        As for `nest.milp.sum_stages.StageWays`.

    Attributes
    ----------
    work
        Ticks that the loads of all stages of a plan add up to at least.
    most_sent
        Limits on bytes: there are none beside such stages.
    """

    def __init__(self, tables: UnevenTables, kept: Kept) -> None:
        self.tables, self.kept, self.work = tables, kept, least_work(tables)
        self.most_sent: tuple[int, ...] = ()
        self._forms = [StageWays(form, kept) for form in tables.forms]
        self._states: dict[Layout, States] = {}
        self._own: dict[tuple[object, ...], Ways] = {}

    def states_of(self, choice: WideChoice) -> States:
        """Return the states of an outer choice."""
        if choice.layout not in self._states:
            if len(self._states) >= MOST_LAYOUTS:
                self._states.clear()
            self._states[choice.layout] = States.of(choice)
        return self._states[choice.layout]

    def cuts_of(self, choice: WideChoice) -> int:
        """Return how many states the paths of an outer choice have."""
        return self.states_of(choice).count

    def positions(self, choice: WideChoice, most: int = LONGEST - 1) -> list[Ways]:
        """Return the stages of a choice of a load of at most ``most``, by position from the end."""
        states, found = self.states_of(choice), list[Ways]()
        for position in range(1, choice.stages + 1):
            parts = list(self._at(choice, states, position, most))
            ways = Ways.together(parts)
            found.append(undominated(ways, states.count) if self.kept == "fastest" else ways)
            if not len(ways.first):
                return [ways] * choice.stages
        return found

    def _at(self, choice: WideChoice, states: States, position: int, most: int) -> Iterator[Ways]:
        """Yield the stages at a position: those of each spot, before each of those that may follow."""
        spots, opens = states.spots, position == choice.stages
        for number, frame in enumerate(spots.frames):
            among = frame.firsts if opens else [at for at, spot in enumerate(spots.spots) if spot.start]
            for at in among:
                own = self._alone(choice, spots, frame, at, position, most)
                if position == 1 and at in frame.lasts and choice.devices in (0, spots.used(at)):
                    yield self._between(own, states, most, (number, at, None, spots.closing[at]), opens)
                for step in spots.steps[at] if position > 1 else ():
                    yield self._between(own, states, most, (number, at, step.to, step.pairs), opens)

    def _between(
        self, own: Ways, states: States, most: int, where: tuple[int, int, int | None, int], opens: bool
    ) -> Ways:
        """Return stages with both their transfers, from their states to the next ones."""
        frame, spot, to, pairs = where
        load = own.load + states.spots.transfers.ticks(pairs, own.first, own.end)
        first = np.zeros_like(own.first) if opens else states.number(frame, spot, own.first)
        end = np.full_like(own.end, states.count - 1) if to is None else states.number(frame, to, own.end)
        return own._replace(first=first, end=end, load=load).pick(load <= most)

    def _alone(self, choice: WideChoice, spots: Spots, frame: Frame, at: int, position: int, most: int) -> Ways:
        """Return the stages at a spot by themselves, transfers apart, between layers."""
        spot, options = spots.spots[at], self.tables.options(choice.replicas, choice.stages)
        form, holders = self.tables.forms[spot.form], spots.holders(at)
        passing = self.tables.passing(choice.replicas, position)
        shares = tuple(form.shares(holders, option.together) for option in options[spot.form])
        ends = position == choice.stages, position == 1
        key = spot.form, shares, passing, ends, frame.levels, most
        if key not in self._own:
            if len(self._own) >= MOST_KEPT:
                self._own.clear()
            site = Site(((NO_BOUNDARY, NO_BOUNDARY),), holders, frame.levels)
            ways = self._forms[spot.form].alone(site, passing, options[spot.form], ends, most)
            before = sum(len(each) for each in options[: spot.form])
            self._own[key] = ways._replace(option=ways.option + before)
        return self._own[key]

