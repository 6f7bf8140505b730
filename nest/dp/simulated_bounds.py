"""Bounds of what the stages of one outer choice have before them and behind them, under the objective `simulated`.

By `nest.dp.schedules` an iteration takes, for each stage, ``before + own + max(0, after - ahead * forward)``. That
grows with all of them but for ``forward``. So for the stages from a cut on the least of its maximum, as if nothing
was before them, follows from the end of the pipeline on, with the least that the others pass on in the place of
``after``; what is before adds to it. Likewise from the first stage on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.dp.schedules import Pace
from nest.dp.simulated_rows import Stages
from nest.units import NEVER, Ints


@dataclass(frozen=True, slots=True)
class Rest:
    """What is the least by cut, each by itself, `NEVER` where there are no such stages.

    Attributes
    ----------
    loads
        Sum of what the stages pass on.
    span
        Of an iteration, but for what is on the other side.
    sync
        Largest synchronisation.
    """

    loads: Ints
    span: Ints
    sync: Ints

    @classmethod
    def of(cls, at: Ints, values: tuple[Ints, Ints, Ints], cuts: int) -> Rest:
        """Return the least of some values at each cut; ``at`` says to which each belongs."""
        found = np.full((3, cuts), NEVER, dtype=np.int64)
        for row, each in zip(found, values, strict=True):
            np.minimum.at(row, at, each)
        return cls(*found)

    @classmethod
    def nothing(cls, cuts: int, at: int) -> Rest:
        """Return that of no stages, which leave the cut at which they end."""
        zero = np.zeros(1, dtype=np.int64)
        return cls.of(np.array([at]), (zero, zero, zero), cuts)


def suffixes(steps: list[Stages], pace: Pace) -> list[Rest]:
    """Return the bounds of no stage, the last one, the last two, ... from each cut on, for their places."""
    cuts = len(steps[0].begins)
    found = [Rest.nothing(cuts, cuts - 1)]
    for from_end, stages in enumerate(steps, start=1):
        after, passing = found[-1], pace.passing(stages)
        later = after.loads[stages.end]
        own = pace.own(stages, from_end) + np.maximum(0, later - pace.ahead(from_end) * stages.forward)
        span = np.maximum(own, passing + after.span[stages.end])
        sync, ok = np.maximum(stages.sync, after.sync[stages.end]), later < NEVER
        found.append(Rest.of(stages.first[ok], ((passing + later)[ok], span[ok], sync[ok]), cuts))
    return found


def prefixes(steps: list[Stages], pace: Pace) -> list[Rest]:
    """Return the bounds of no stage, the first, the first two, ... before each cut; ``steps`` are from the end."""
    cuts = len(steps[0].begins)
    found = [Rest.nothing(cuts, 0)]
    for from_end, stages in reversed(list(enumerate(steps, start=1))):
        before = found[-1]
        sooner = before.loads[stages.first]
        span = np.maximum(before.span[stages.first], sooner + pace.own(stages, from_end))
        sync, ok = np.maximum(stages.sync, before.sync[stages.first]), sooner < NEVER
        found.append(Rest.of(stages.end[ok], ((sooner + pace.passing(stages))[ok], span[ok], sync[ok]), cuts))
    return found
