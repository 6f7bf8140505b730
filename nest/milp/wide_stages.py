"""What the stages of an outer choice may be where they have widths of their own under the objective `sum`.

A stage leads from one state to the next, so that a path through states is a plan (`nest.milp.wide_states`). What it
takes by itself is in the tables of its form, `nest.tables`, and is found as that of stages of one width,
`nest.milp.sum_stages`; what its transfers take besides follows from its spot and the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nest.milp.sum_stages import StageWays
from nest.milp.sum_ways import Kept, Ways
from nest.milp.wide_choices import WideChoice, least_work
from nest.milp.wide_spots import Layout, Step
from nest.milp.wide_states import States
from nest.tables import UnevenTables
from nest.tables.grouped import NO_BOUNDARY, Site
from nest.tables.shares import Option
from nest.units import LONGEST

MOST_KEPT = 256
"""Sets of stages of one form in one place that are kept for reuse."""

MOST_LAYOUTS = 8
"""Layouts of which the spots are kept for reuse."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of an outer choice: stages of a load of at most ``most``, each form with its ways to shard."""

    choice: WideChoice
    states: States
    options: tuple[tuple[Option, ...], ...]
    most: int

    def between(self, own: Ways, where: tuple[int, int], step: Step | None, *, opens: bool) -> Ways:
        """Return stages at a spot in a frame with both their transfers, between states; None behind the last.

        Parameters
        ----------
        own
            Transfers apart, between layers.
        opens
            Whether they are the first of the pipeline.
        """
        states, (frame, spot) = self.states, where
        pairs = states.spots.closing[spot] if step is None else step.pairs
        load = own.load + states.spots.transfers.ticks(pairs, own.first, own.end)
        first = np.zeros_like(own.first) if opens else states.number(frame, spot, own.first)
        last = np.full_like(own.end, states.count - 1)
        end = last if step is None else states.number(frame, step.to, own.end)
        return own._replace(first=first, end=end, load=load).pick(load <= self.most)


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
        self.tables, self.work = tables, least_work(tables)
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
        options = self.tables.options(choice.replicas, choice.stages)
        asked, found = _Asked(choice, self.states_of(choice), options, most), list[Ways]()
        for position in range(1, choice.stages + 1):
            found.append(Ways.together(list(self._at(asked, position))))
            if not len(found[-1].first):
                return [found[-1]] * choice.stages
        return found

    def _at(self, asked: _Asked, position: int) -> Iterator[Ways]:
        """Yield the stages at a position: those of each spot, before each of those that may follow."""
        spots, opens = asked.states.spots, position == asked.choice.stages
        for number, frame in enumerate(spots.frames):
            among = frame.firsts if opens else [at for at, spot in enumerate(spots.spots) if spot.start]
            for at in among:
                own = self._alone(asked, (at, position), frame.levels)
                if position == 1 and at in frame.lasts and asked.choice.devices in (0, spots.used(at)):
                    yield asked.between(own, (number, at), None, opens=opens)
                for step in spots.steps[at] if position > 1 else ():
                    yield asked.between(own, (number, at), step, opens=opens)

    def _alone(self, asked: _Asked, where: tuple[int, int], joined: tuple[int, ...]) -> Ways:
        """Return the stages at a spot and a position by themselves, transfers apart, between layers."""
        (at, position), choice = where, asked.choice
        holders, number = asked.states.spots.holders(at), asked.states.spots.spots[at].form
        form, options = self.tables.forms[number], asked.options[number]
        passing = self.tables.passing(choice.replicas, position)
        shares = tuple(form.shares(holders, option.together) for option in options)
        ends = position == choice.stages, position == 1
        key = number, shares, passing, ends, joined, asked.most
        if key not in self._own:
            if len(self._own) >= MOST_KEPT:
                self._own.clear()
            site = Site(((NO_BOUNDARY, NO_BOUNDARY),), holders, joined)
            self._own[key] = self._forms[number].alone(site, passing, options, ends, asked.most)
        before = sum(len(each) for each in asked.options[:number])
        return self._own[key]._replace(option=self._own[key].option + before)
