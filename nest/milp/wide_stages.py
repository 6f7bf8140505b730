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
from nest.milp.wide_bounds import Leasts, WideBounds
from nest.milp.wide_choices import WideChoice, least_work
from nest.milp.wide_spots import Layout, Step
from nest.milp.wide_states import States
from nest.tables import UnevenTables
from nest.tables.grouped import NO_BOUNDARY, Site
from nest.tables.shares import Option
from nest.units import HARD_LIMIT, LONGEST

MOST_KEPT = 256
"""Sets of stages of one form in one place that are kept for reuse."""

MOST_LAYOUTS = 8
"""Layouts of which the spots are kept for reuse."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of an outer choice.

    Attributes
    ----------
    options
        Ways to shard, by form.
    most
        Largest load of a stage.
    limit, leasts
        Stages are of plans of fewer ticks, by what others take at least; of any without the latter.
    """

    choice: WideChoice
    states: States
    options: tuple[tuple[Option, ...], ...]
    most: int
    limit: int = HARD_LIMIT
    leasts: Leasts | None = None

    def within(self, own: Ways, at: int) -> Ways:
        """Return the stages at a spot that leave the others room for a plan below the limit."""
        if self.leasts is None:
            return own
        layout, spot = self.choice.layout, self.states.spots.spots[at]
        before, behind = layout.around(spot.start, self.choice.tables.widths[spot.form])
        sums, largest = self.leasts
        slowest = np.maximum(largest.before[before][own.first], largest.behind[behind][own.end])
        slowest = np.maximum(slowest, own.load)
        begun = np.minimum(sums.before[before][own.first], self.limit) + own.load
        total = np.minimum(begun, self.limit) + sums.behind[behind][own.end]
        fits = (slowest <= self.most) & (total < self.limit)
        return own.pick(fits & (self.choice.takes(total, np.where(fits, slowest, 0), own.sync) < self.limit))

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
        kept = own._replace(load=load).pick(load <= self.most)
        first = np.zeros_like(kept.first) if opens else states.number(frame, spot, kept.first)
        last = np.full_like(kept.end, states.count - 1)
        return kept._replace(first=first, end=last if step is None else states.number(frame, step.to, kept.end))


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
        self._bounds = WideBounds(tables)
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

    def below(self, choice: WideChoice, limit: int) -> list[Ways]:
        """Return the stages of plans of a choice below a limit, by position from the end; some has none if none is."""
        leasts = self._bounds.leasts(choice.layout)
        each = choice.layout.each
        total, largest = int(leasts.sums.behind[each, 0]), int(leasts.largest.behind[each, 0])
        most = choice.most_load(total, limit)
        if max(largest, -(-total // choice.stages)) > most:
            return [Ways.together([])]
        options = self.tables.options(choice.replicas, choice.stages)
        return self._positions(_Asked(choice, self.states_of(choice), options, most, limit, leasts))

    def positions(self, choice: WideChoice) -> list[Ways]:
        """Return the stages of a choice, by position from the end."""
        options = self.tables.options(choice.replicas, choice.stages)
        return self._positions(_Asked(choice, self.states_of(choice), options, LONGEST - 1))

    def _positions(self, asked: _Asked) -> list[Ways]:
        found, choice = list[Ways](), asked.choice
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
                own = asked.within(self._alone(asked, (at, position), frame.levels), at)
                if not len(own.first):
                    continue
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
