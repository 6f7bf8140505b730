"""How long a pipeline takes at least, by single stages: paths through its passes, under the objective `simulated`.

``F``, ``B``, ``W`` are the passes of stage ``i`` for one microbatch, ``W`` what ZB-H1 puts off of the backward pass (0
under other schedules), ``P = F + B``, ``n = min(m, S - i)`` the microbatches that 1F1B and ZB-H1 begin before the first
backward pass. A path goes along stages with one microbatch, and through the passes of one stage in their order:

- stage ``i`` gets the first microbatch from those before it, does all its passes up to the last backward one, and
  those before it take the last microbatch back: ``(sum of P before i) + m P``, and under ZB-H1 the gradients of weights
  that come before, ``max(0, m - 1 - i) W``;
- the first microbatch goes to the last stage and comes back to ``i``, which then has all backward passes to do and the
  forward passes behind its first backward one: ``(sum of all P) + (m - 1) B + (m - n) F``, and ``max(0, m - 1 - i) W``;
- stage ``i`` does all forward passes and the backward ones before its last forward one, and the last microbatch goes on
  to the last stage and comes back: ``(sum of all P) + (m - 1) F + (m - n) B``, and ``max(0, m - n - i) W``;
- GPipe does all forward passes first, so that a path goes through those of one stage and the backward passes of
  another: ``(sum of all P) + (m - 1) (F of any stage + B of any other)``;
- every stage does all its passes, ``m (P + W)``.

So a bound is the sum of all ``P`` with the largest ``wait`` of any stage, and with the largest ``second`` of any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from nest.presets import ScheduleName
from nest.units import Floats, Ints

Ticks = TypeVar("Ticks", Ints, Floats)


class Reach(NamedTuple):
    """What paths through one stage take.

    Attributes
    ----------
    passing
        What it adds to the way of a microbatch.
    own
        From its first pass to the last backward one.
    wait, second
        Besides the sum of all that is passed on.
    alone
        All its passes.
    """

    passing: Ints
    own: Ints
    wait: Ints
    second: Ints
    alone: Ints


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths through pipelines of a schedule, of so many stages and microbatches of a replica."""

    schedule: ScheduleName
    stages: int
    microbatches: int

    def of(self, at: int, forward: Ints, backward: Ints, weight: Ints) -> Reach:
        """Return what paths through stages take that are in one place, from the first on.

        Parameters
        ----------
        forward, backward, weight
            Ticks of their passes; what is put off is no part of the backward pass.
        """
        first, last = self.counts(at)
        waits = [
            each[0] * forward + each[1] * backward + each[2] * weight
            for each in (first, last if self.schedule != "gpipe" else first)
        ]
        passing, count = forward + backward, self.microbatches
        second = (count - 1) * backward if self.schedule == "gpipe" else np.zeros_like(backward)
        own = count * passing + self._late(at) * weight
        return Reach(passing, own, np.maximum(*waits), second, count * (passing + weight))

    def counts(self, at: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return how often passes of a stage count besides the way of one microbatch, forward, backward and put off.

        By the way back of the first microbatch, and by the way of the last; under GPipe of the part that is ``wait``.
        """
        count = self.microbatches
        if self.schedule == "gpipe":
            return (count - 1, 0, 0), (0, count - 1, 0)
        begun = min(count, self.stages - at)
        late = max(0, count - begun - at) if self.schedule == "zb-h1" else 0
        return (count - begun, count - 1, self._late(at)), (count - 1, count - begun, late)

    def _late(self, at: int) -> int:
        """Return how many gradients of weights a stage takes before its last backward pass."""
        return max(0, self.microbatches - 1 - at) if self.schedule == "zb-h1" else 0

    def whatever_cut(self, forward: Floats, backward: Floats, weight: Floats) -> float:
        """Return a bound of all pipelines whose stages have these layers, however they share them.

        As each stage takes no more than the largest, the mean of all with any weights is a bound, too: and a layer
        adds to it no less than in the stage where it adds the least. The weights are such as make stages equal.
        """
        through = forward + backward
        total = float(through.sum())
        sums = np.array([forward.sum(), backward.sum(), weight.sum()])
        found = total
        for kind in (0, 1):
            times = np.array([self._whole(at)[kind] for at in range(self.stages)], dtype=np.float64)
            each = times @ sums
            if (each > 0).all():
                parts = (times / each[:, None]) / (1 / each).sum()
                layers = parts[:, :1] * forward + parts[:, 1:2] * backward + parts[:, 2:] * weight
                found = max(found, total + float(layers.min(axis=0).sum()))
        return found

    def _whole(self, at: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return `counts`, under GPipe of both parts together: no stage takes more than the largest of either."""
        first, last = self.counts(at)
        if self.schedule == "gpipe":
            both = first[0] + last[0], first[1] + last[1], 0
            return both, both
        return first, last
