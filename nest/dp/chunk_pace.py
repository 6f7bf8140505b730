"""How long interleaved pipelines take at least, by what each chunk takes: closed formulas that grow with every pass.

Stage ``k`` begins when chunk 0 of the stages before it has passed the first microbatch on, and these still have the
backward pass of its last one to do when it is done. Between, it does all its work, and

- its first gradient is there when the first microbatch has passed all parts forward, and the last chunk of the stages
  behind it backward. Before, it has done the forward passes that the order has before the first backward pass at most;
- its last forward pass is done before the last microbatch passes the last chunk of the stages behind it forward, and
  all parts backward. Behind, it has done the backward passes at most that the order has behind the last forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nest.dp.makespans import Shape, forwards_ahead
from nest.units import Ints


@dataclass(frozen=True, slots=True)
class ChunkPace:
    """Interleaved pipelines of so many stages and chunks.

    Parameters
    ----------
    microbatches
        Of each pipeline, a multiple of the stages: those of all, or of none, are more than the stages.
    """

    stages: int
    chunks: int
    microbatches: Ints

    @property
    def first(self) -> Ints:
        """How many forward passes of each chunk a stage does before its first backward pass: by chunk and stage.

        As many backward passes follow its last forward pass.
        """
        return _first(Shape("interleaved", self.stages, int(self.microbatches.min()), self.chunks))

    def by_load(self, forward: Ints, backward: Ints) -> Ints:
        """Return for each stage when it may be done at the earliest, with what the stages before it have left to do.

        Parameters
        ----------
        forward, backward
            Ticks of the passes, by pipeline, chunk and stage.
        """
        loads = self.microbatches[:, None] * (forward + backward).sum(axis=-2)
        ends: Ints = _before(forward[..., 0, :] + backward[..., 0, :]) + loads
        return ends

    def least(self, forward: Ints, backward: Ints) -> Ints:
        """Return the same by all that is said above."""
        first = self.first
        loads = self.microbatches[:, None] * (forward + backward).sum(axis=-2)
        last = forward[..., -1, :], backward[..., -1, :]
        through = [each.sum(axis=(-2, -1))[..., None] for each in (forward, backward)]
        waits = through[0] + _behind(last[1]) + _before(backward[..., 0, :]) - (first * forward).sum(axis=-2)
        late = through[1] + _behind(last[0]) + _before(forward[..., 0, :])
        late -= (first * backward).sum(axis=-2)
        ends: Ints = np.maximum(self.by_load(forward, backward), loads + np.maximum(waits, late))
        return ends


@lru_cache(maxsize=1024)
def _first(shape: Shape) -> Ints:
    counts = np.zeros((shape.chunks, shape.stages), dtype=np.int64)
    for at in range(shape.stages):
        done = np.arange(min(forwards_ahead(shape, at) + 1, shape.chunks * shape.microbatches))
        counts[:, at] = np.bincount(done // shape.stages % shape.chunks, minlength=shape.chunks)
    return counts


def _before(ticks: Ints) -> Ints:
    """Return the sum of what stages before each take."""
    sums: Ints = np.cumsum(ticks, axis=-1) - ticks
    return sums


def _behind(ticks: Ints) -> Ints:
    """Return the sum of what stages behind each take."""
    sums: Ints = ticks.sum(axis=-1, keepdims=True) - np.cumsum(ticks, axis=-1)
    return sums
