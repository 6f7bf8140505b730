"""Bounds of what the stages of one outer choice have before them and behind them, under the objective `simulated`.

By `nest.cost.schedules.least_by_wait` 1F1B takes, for each stage that has ``c`` forward passes to do until its first
gradient,

    ``before + m * load + max(0, after - c * forward)``,

``before`` and ``after`` being the loads of the other stages. It grows with all of them but for ``forward``. So for the
stages from a layer on the least of its maximum, as if nothing was before them, follows from the end of the pipeline
on, with the least sum of loads in the place of ``after``; what is before adds to it. Likewise from the first stage on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.dp.simulated_rows import Stages
from nest.units import NEVER, Ints


@dataclass(frozen=True, slots=True)
class Rest:
    """What is the least by layer, each by itself, `NEVER` where there are no such stages.

    Attributes
    ----------
    loads
        Sum of the loads.
    span
        Of 1F1B, but for what is on the other side.
    sync
        Largest synchronisation.
    """

    loads: Ints
    span: Ints
    sync: Ints

    @classmethod
    def of(cls, at: Ints, values: tuple[Ints, Ints, Ints], layers: int) -> Rest:
        """Return the least of some values at each layer; ``at`` says to which each belongs."""
        found = np.full((3, layers + 1), NEVER, dtype=np.int64)
        for row, each in zip(found, values, strict=True):
            np.minimum.at(row, at, each)
        return cls(*found)

    @classmethod
    def nothing(cls, layers: int, at: int) -> Rest:
        """Return that of no stages, which leave the layer at which they end."""
        zero = np.zeros(1, dtype=np.int64)
        return cls.of(np.array([at]), (zero, zero, zero), layers)


def waits(forward: Ints, load: Ints, microbatches: int, from_end: int) -> Ints:
    """Return what the bound by wait has besides the sum of all loads: ``(m - 1) * load - c * forward``."""
    return (microbatches - 1) * load - (min(microbatches, from_end) - 1) * forward


def suffixes(steps: list[Stages], microbatches: int) -> list[Rest]:
    """Return the bounds of no stage, the last one, the last two, ... from each layer on, for their places."""
    layers = len(steps[0].begins) - 1
    found = [Rest.nothing(layers, layers)]
    for from_end, stages in enumerate(steps, start=1):
        after, load = found[-1], stages.load
        later = after.loads[stages.end]
        own = load * microbatches + np.maximum(0, later - (min(microbatches, from_end) - 1) * stages.forward)
        span = np.maximum(own, load + after.span[stages.end])
        sync, ok = np.maximum(stages.sync, after.sync[stages.end]), later < NEVER
        found.append(Rest.of(stages.first[ok], ((load + later)[ok], span[ok], sync[ok]), layers))
    return found


def prefixes(steps: list[Stages], microbatches: int) -> list[Rest]:
    """Return the bounds of no stage, the first, the first two, ... before each layer; ``steps`` are from the end."""
    layers = len(steps[0].begins) - 1
    found = [Rest.nothing(layers, 0)]
    for stages in reversed(steps):
        before, load = found[-1], stages.load
        sooner = before.loads[stages.first]
        span = np.maximum(before.span[stages.first], sooner + microbatches * load)
        sync, ok = np.maximum(stages.sync, before.sync[stages.first]), sooner < NEVER
        found.append(Rest.of(stages.end[ok], ((sooner + load)[ok], span[ok], sync[ok]), layers))
    return found
