"""Whether a plan of one outer choice takes less than a value under the objective `simulated`: branch and bound, played.

Stages are chosen from the first of the pipeline on. With what `played_rest` says of those that are left, the ones
chosen have a bound; where it is below the value, they are played as if the others held each microbatch up for the
least time that they may (`played_passes`), which is a bound as well, and of a complete pipeline what it takes. Nothing
is left out whose bound is below the value: so either a plan is found, or there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nest.certificate.played_passes import Passes, Shape, taken
from nest.certificate.played_rest import Rest, Stages, behind, left
from nest.certificate.played_stages import PlayedStages
from nest.cost.schedules import Schedule
from nest.plan import Plan
from nest.units import NEVER, Ints

TOGETHER = 128
"""Pipelines that are played together."""

MOST_CHILDREN = 2**18
"""Pipelines that may come of some at once, unless they come of a single one."""


class Begun(NamedTuple):
    """Pipelines of which the first stages are chosen, a row for each.

    Attributes
    ----------
    end
        Cut with which the next stage begins.
    passing, own, wait, second, sync
        As in `Rest`, of the stages so far.
    chosen
        A column for each stage: which of those in its place.
    """

    end: Ints
    passing: Ints
    own: Ints
    wait: Ints
    second: Ints
    sync: Ints
    chosen: Ints

    @classmethod
    def nothing(cls) -> Begun:
        """Return the one pipeline of which nothing is chosen."""
        zero = np.zeros(1, dtype=np.int64)
        return cls(zero, zero, zero, zero, zero, zero, np.zeros((1, 0), dtype=np.int64))

    def pick(self, rows: np.ndarray | slice) -> Begun:
        """Return those that indices, a mask or a slice pick."""
        return Begun(*(each[rows] for each in self))


class PlayedPlans:
    """The plans of an outer choice where it stands.

    Parameters
    ----------
    stages
        Its stages.
    value
        Ticks that plans are compared with.
    watch
        Called now and then; raises where there is no more time.
    """

    def __init__(self, stages: PlayedStages, value: int, watch: Callable[[], None]) -> None:
        self.stages, self.value, self.watch, self.choice = stages, value, watch, stages.choice
        self.shape = Shape(Schedule(self.choice.schedule), self.choice.stages, self.choice.further + 1)
        self.cuts = stages.tables.cuts
        self.places = self._places()
        self.behind = behind(self.places, self.cuts) if self.places else []
        self.begins = [np.searchsorted(each.ways.first, np.arange(self.cuts + 1)) for each in self.places]

    def _places(self) -> list[Stages]:
        """Return the stages in each place that may be part of a plan below the value, sorted by their first cuts."""
        stages, number = self.stages, range(self.choice.stages)
        plain = [stages.plain(at) for at in number]
        found = [Stages(each, stages.reach(at, each)) for at, each in enumerate(plain)]
        found = left(found, self.cuts, self.value, self.watch)
        if not found:
            return []
        ways = []
        for at, each in enumerate(found):
            self.watch()
            ways.append(stages.ways(at, each.ways, self.value))
        places = [Stages(each, stages.reach(at, each)) for at, each in enumerate(ways)]
        places = left(places, self.cuts, self.value, self.watch)
        return [each.pick(np.argsort(each.ways.first, kind="stable")) for each in places]

    def better(self) -> Plan | None:
        """Return a plan below the value, None if there is none."""
        todo = [Begun.nothing()] if self.places else []
        while todo:
            self.watch()
            begun = todo.pop()
            if begun.chosen.shape[1] == self.choice.stages:
                return self._plan(begun.chosen[0].tolist())
            count = self._together(begun)
            if count < len(begun.end):
                todo.append(begun.pick(slice(count, None)))
            further = self._further(begun.pick(slice(count)))
            todo += [further.pick(slice(at, at + TOGETHER)) for at in reversed(range(0, len(further.end), TOGETHER))]
        return None

    def _together(self, begun: Begun) -> int:
        """Return how many of some pipelines go on at once."""
        begins = self.begins[begun.chosen.shape[1]]
        children = np.cumsum(begins[begun.end + 1] - begins[begun.end])
        return max(1, int(np.searchsorted(children, MOST_CHILDREN, side="right")))

    def _further(self, begun: Begun) -> Begun:
        """Return all that come of some pipelines by choosing the next stage and may take less, best first."""
        at = begun.chosen.shape[1]
        first = self.begins[at][begun.end]
        counts = self.begins[at][begun.end + 1] - first
        parent = np.repeat(np.arange(len(counts)), counts)
        chosen = np.arange(len(parent)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        possible = self.behind[at + 1].passing[self.places[at].ways.end[chosen]] < NEVER
        parent, chosen = parent[possible], chosen[possible]
        found, least = self._with(begun.pick(parent), at, chosen)
        kept = np.flatnonzero(least < self.value)
        found = found.pick(kept[np.argsort(least[kept], kind="stable")])
        return self._played(found)

    def _with(self, begun: Begun, at: int, chosen: Ints) -> tuple[Begun, Ints]:
        """Return pipelines with one stage more, and their bounds."""
        (ways, reach), later = self.places[at].pick(chosen), self.behind[at + 1]
        rest = later.pick(ways.end)
        wait, second = np.maximum(begun.wait, reach.wait), np.maximum(begun.second, reach.second)
        own, sync = np.maximum(begun.own, begun.passing + reach.own), np.maximum(begun.sync, ways.sync)
        passing = begun.passing + reach.passing
        waits = np.maximum(wait, rest.wait) + np.maximum(second, rest.second)
        ends = np.maximum.reduce([passing + rest.passing + waits, own, passing + rest.own])
        path = np.concatenate([begun.chosen, chosen[:, None]], axis=1)
        return Begun(ways.end, passing, own, wait, second, sync, path), ends + np.maximum(sync, rest.sync)

    def _played(self, begun: Begun) -> Begun:
        """Return those of some pipelines that may take less, as they are played."""
        rest = self.behind[begun.chosen.shape[1]].pick(begun.end)
        kept = np.zeros(len(begun.end), dtype=bool)
        for at in range(0, len(kept), TOGETHER):
            self.watch()
            some = slice(at, at + TOGETHER)
            ends = self._ends(begun.pick(some), Rest(*(each[some] for each in rest)))
            kept[some] = ends + np.maximum(begun.sync[some], rest.sync[some]) < self.value
        return begun.pick(kept)

    def _ends(self, begun: Begun, rest: Rest) -> Ints:
        count = begun.chosen.shape[1]
        ways = [self.places[at].ways for at in range(count)]
        ticks = Passes(
            *(
                np.stack([getattr(each, name)[begun.chosen[:, at]] for at, each in enumerate(ways)])
                for name in Passes._fields
            )
        )
        return taken(self.shape, ticks, rest.passing if count < self.choice.stages else None)

    def _plan(self, chosen: list[int]) -> Plan:
        picked = [(each.ways, at) for each, at in zip(self.places, chosen, strict=True)]
        entries, options = [int(ways.entry[at]) for ways, at in picked], [int(ways.option[at]) for ways, at in picked]
        return self.stages.plan(entries, options)
