"""Which stages may be part of a plan below a value under the objective `simulated`: bounds from both ends.

By `played_paths` an iteration takes for each of its stages ``before + own``, ``before`` being what those before it pass
on, and the sum of all with the largest ``wait`` and the largest ``second``; and the synchronisation besides. What the
stages between a cut and either end of the pipeline have of each of these at least follows from cut to cut. A stage is
left out if with the least of all that is before and behind it there is no plan below the value. That may raise what is
the least, so that it is asked again as long as anything is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nest.certificate.played_paths import Reach
from nest.certificate.played_stages import Ways
from nest.units import NEVER, Ints

AGAIN = 0.99
"""As long as fewer than that part of all stages are left, it is asked again."""


class Rest(NamedTuple):
    """What the stages between each cut and an end of the pipeline have at least, each by itself; `NEVER` for no stages.

    Attributes
    ----------
    passing
        Sum of what they pass on.
    own
        Largest of what is before a stage, counted from the cut, and its own.
    wait, second, sync
        The largest of each.
    """

    passing: Ints
    own: Ints
    wait: Ints
    second: Ints
    sync: Ints

    @classmethod
    def at(cls, cut: int, cuts: int) -> Rest:
        """Return that of no stages, which leave one cut."""
        found = [np.full(cuts, NEVER, dtype=np.int64) for _ in cls._fields]
        for each in found:
            each[cut] = 0
        return cls(*found)

    @classmethod
    def of(cls, cuts: int, at: Ints, values: tuple[Ints, ...]) -> Rest:
        """Return the least of the values of stages by cut."""
        found = [np.full(cuts, NEVER, dtype=np.int64) for _ in cls._fields]
        for each, some in zip(found, values, strict=True):
            np.minimum.at(each, at, some)
        return cls(*found)

    def pick(self, cut: Ints) -> Rest:
        """Return those of some cuts."""
        return Rest(*(each[cut] for each in self))


class Stages(NamedTuple):
    """The stages in one place, and what paths through them take."""

    ways: Ways
    reach: Reach

    def pick(self, rows: np.ndarray) -> Stages:
        """Return those that indices or a mask pick."""
        return Stages(self.ways.pick(rows), Reach(*(each[rows] for each in self.reach)))


def _joined(stages: Stages, rest: Rest) -> tuple[Ints, Ints, Ints]:
    """Return the largest waits, and synchronisation, of stages and what is beyond them."""
    ways, reach = stages
    return np.maximum(reach.wait, rest.wait), np.maximum(reach.second, rest.second), np.maximum(ways.sync, rest.sync)


def behind(places: list[Stages], cuts: int) -> list[Rest]:
    """Return what is behind each cut where the stages begin that are in the first place, the second, ... and none."""
    found = [Rest.at(cuts - 1, cuts)]
    for stages in reversed(places):
        each = stages.pick(found[-1].passing[stages.ways.end] < NEVER)
        rest = found[-1].pick(each.ways.end)
        own = np.maximum(each.reach.own, each.reach.passing + rest.own)
        values = each.reach.passing + rest.passing, own, *_joined(each, rest)
        found.append(Rest.of(cuts, each.ways.first, values))
    return found[::-1]


def before(places: list[Stages], cuts: int) -> list[Rest]:
    """Return what is before each cut where the stages begin that are in the first place, the second, ... and none."""
    found = [Rest.at(0, cuts)]
    for stages in places:
        each = stages.pick(found[-1].passing[stages.ways.first] < NEVER)
        rest = found[-1].pick(each.ways.first)
        own = np.maximum(rest.own, rest.passing + each.reach.own)
        values = rest.passing + each.reach.passing, own, *_joined(each, rest)
        found.append(Rest.of(cuts, each.ways.end, values))
    return found


def through(stages: Stages, sooner: Rest, later: Rest) -> Ints:
    """Return a bound of the plans that have a stage, `NEVER` where there are none.

    Parameters
    ----------
    sooner, later
        What is before each stage, and behind it.
    """
    reach, there = stages.reach, (sooner.passing < NEVER) & (later.passing < NEVER)
    sooner, later = (Rest(*(np.where(there, each, 0) for each in rest)) for rest in (sooner, later))
    total = sooner.passing + reach.passing + later.passing
    waits = np.maximum.reduce([sooner.wait, reach.wait, later.wait])
    waits = waits + np.maximum.reduce([sooner.second, reach.second, later.second])
    own = sooner.passing + np.maximum(reach.own, reach.passing + later.own)
    ends = np.maximum.reduce([total + waits, own, sooner.own, reach.alone])
    sync = np.maximum.reduce([sooner.sync, stages.ways.sync, later.sync])
    return np.where(there, ends + sync, NEVER)


def left(places: list[Stages], cuts: int, value: int, watch: Callable[[], None]) -> list[Stages]:
    """Return the stages in each place that may be part of a plan below a value; nothing where there is no such plan."""
    while True:
        watch()
        count, ahead, found = sum(len(each.ways) for each in places), before(places, cuts), list[Stages]()
        for each, sooner, later in zip(places, ahead[:-1], behind(places, cuts)[1:], strict=True):
            least = through(each, sooner.pick(each.ways.first), later.pick(each.ways.end))
            found.append(each.pick(least < value))
            if not len(found[-1].ways):
                return []
        if sum(len(each.ways) for each in found) >= AGAIN * count:
            return found
        places = found
