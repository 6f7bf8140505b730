"""How long interleaved pipelines take at least, by what each chunk takes: closed formulas that grow with every pass.

Stage ``k`` begins when chunk 0 of the stages before it has passed the first microbatch on, and these still have the
backward pass of its last one to do when it is done. Between, it does all its work, and

- its first gradient is there when the first microbatch has passed all parts forward, and the last chunk of the stages
  behind it backward. Before, it has done the forward passes that the order has before the first backward pass at most;
- its last forward pass is done before the last microbatch passes the last chunk of the stages behind it forward, and
  all parts backward. Behind, it has done the backward passes at most that the order has behind the last forward pass.

With fewer microbatches than stages another says more: the first one passes all parts forward up to the last of them,
which takes all microbatches in turn, and the last one passes all others backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nest.dp.makespans import Shape, forwards_ahead, turn_of
from nest.units import Ints


@dataclass(frozen=True, slots=True)
class ChunkPace:
    """Interleaved pipelines of so many stages and chunks.

    Parameters
    ----------
    microbatches
        Of each pipeline.
    """

    stages: int
    chunks: int
    microbatches: Ints

    @property
    def apart(self) -> Ints:
        """How many forward passes of each chunk a stage does before its first backward pass.

        And how many backward passes behind its last forward pass, both by pipeline, chunk and stage.
        """
        numbers, at = np.unique(self.microbatches, return_inverse=True)
        shapes = (Shape("interleaved", self.stages, each, self.chunks) for each in numbers.tolist())
        found: Ints = np.stack([_apart(each) for each in shapes], axis=1)[:, at.ravel()]
        return found

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
        first, final = self.apart
        loads = self.microbatches[:, None] * (forward + backward).sum(axis=-2)
        last = forward[..., -1, :], backward[..., -1, :]
        through = [each.sum(axis=(-2, -1))[..., None] for each in (forward, backward)]
        in_turn = sum(through) + (self.microbatches[:, None] - 1) * (last[0] + last[1])[..., -1:]
        waits = through[0] + _behind(last[1]) + _before(backward[..., 0, :]) - (first * forward).sum(axis=-2)
        late = through[1] + _behind(last[0]) + _before(forward[..., 0, :])
        late -= (final * backward).sum(axis=-2)
        apart = np.maximum(self.by_load(forward, backward), loads + np.maximum(waits, late))
        ends: Ints = np.maximum(apart, in_turn)
        return ends


@lru_cache(maxsize=4096)
def _apart(shape: Shape) -> Ints:
    """Two turns at either end have as many passes as are asked for, or all there are."""
    size, counts = turn_of(shape.stages, shape.microbatches), np.zeros((2, shape.chunks, shape.stages), dtype=np.int64)
    others = [shape.microbatches - size] if shape.microbatches > size else []
    begin = [size, *(min(size, each) for each in others)]
    end = [shape.microbatches % size or size, *(size for _ in others)]
    for passes, turns in enumerate((begin, end)):
        chunk = np.concatenate([np.repeat(np.arange(shape.chunks), each) for each in turns])
        for at in range(shape.stages):
            counts[passes, :, at] = np.bincount(chunk[: forwards_ahead(shape, at) + 1], minlength=shape.chunks)
    return counts


def _before(ticks: Ints) -> Ints:
    """Return the sum of what stages before each take."""
    sums: Ints = np.cumsum(ticks, axis=-1) - ticks
    return sums


def _behind(ticks: Ints) -> Ints:
    """Return the sum of what stages behind each take."""
    sums: Ints = ticks.sum(axis=-1, keepdims=True) - np.cumsum(ticks, axis=-1)
    return sums
