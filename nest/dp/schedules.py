"""What bounds know of a schedule: how long a stage is busy at least, and how it keeps others waiting.

For each stage, ``before`` and ``after`` being sums of what stages before and behind it pass on, an iteration takes

    ``before + own + max(0, after - ahead * forward)``.

1F1B passes on loads, ``own`` is ``m * load`` and ``ahead`` is ``min(m, S - i) - 1`` (see `least_by_wait`, `nest.cost`).
GPipe takes ``sum of loads + (m - 1) * (largest forward + largest backward pass)``, so that ``ahead`` is 0. ZB-H1
passes on forward passes and gradients of inputs. Before the last of the latter stage ``i`` has done all forward passes
and ``max(0, m - 1 - i)`` gradients of weights, and none of these before its first gradient is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from nest.dp.simulated_rows import Stages
from nest.presets import ScheduleName
from nest.units import Ints


@dataclass(frozen=True, slots=True)
class Pace:
    """A schedule of so many stages and microbatches."""

    schedule: ScheduleName
    stages: int
    microbatches: int

    def passing(self, stages: Stages) -> Ints:
        """Return what stages add to the time until others are done."""
        return stages.load - stages.weight if self.schedule == "zb-h1" else stages.load

    def own(self, stages: Stages, from_end: int) -> Ints:
        """Return for how long stages are busy until what they pass on has passed."""
        if self.schedule != "zb-h1":
            return self.microbatches * stages.load
        done = max(0, self.microbatches - 1 - (self.stages - from_end))
        return self.microbatches * (stages.load - stages.weight) + done * stages.weight

    def ahead(self, from_end: int) -> int:
        """Return how many forward passes a stage has to do while it waits for its first gradient."""
        return 0 if self.schedule == "gpipe" else min(self.microbatches, from_end) - 1

    def waits(self, stages: Stages, from_end: int) -> Ints:
        """Return what the bound of stages has besides the sum of all that is passed on."""
        return self.own(stages, from_end) - self.passing(stages) - self.ahead(from_end) * stages.forward
