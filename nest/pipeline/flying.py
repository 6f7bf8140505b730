"""Of which microbatches the chunks of a stage keep something while a backward pass runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nest.cost.schedules import Schedule, in_flight, wave_size
from nest.pipeline.orders import in_waves


class Flight(NamedTuple):
    """A moment at which a backward pass begins.

    Parameters
    ----------
    chunk
        Of which it is.
    kept
        By chunk: of how many microbatches it keeps something, that of this pass among them.
    """

    chunk: int
    kept: tuple[int, ...]


def shown_waves(stages: int, microbatches: int) -> tuple[int, ...]:
    """Return the sizes of waves of interleaved 1F1B that show all that occurs.

    No stage is more than two waves ahead with forward passes. So what happens in the third of equal waves repeats until
    the last ones: four, and a last one of another size, show it.
    """
    size = wave_size(microbatches, stages)
    last = microbatches % size
    return (size,) * min(microbatches // size, 4) + ((last,) if last else ())


@lru_cache(maxsize=4096)
def flights(schedule: Schedule, stages: int, at: int, microbatches: int, *, every: bool = False) -> tuple[Flight, ...]:
    """Return the moments at which a stage keeps the most, whatever its chunks keep of a microbatch, or every moment.

    Every moment counts where buffers hold what the stage keeps nothing of, which may be more.
    """
    if schedule.chunks == 1:
        return (Flight(0, (in_flight(schedule, stages, at, microbatches),)),)
    found, kept = dict[Flight, None](), [0] * schedule.chunks
    for kind, chunk, _ in in_waves(schedule.chunks, stages, at, shown_waves(stages, microbatches)):
        if kind == "forward":
            kept[chunk] += 1
        else:
            found[Flight(chunk, tuple(kept))] = None
            kept[chunk] -= 1
    if every:
        return tuple(found)
    return tuple(
        each for chunk in range(schedule.chunks) for each in _most([one for one in found if one.chunk == chunk])
    )


def _most(moments: list[Flight]) -> Iterator[Flight]:
    """Yield the moments of one chunk at which something else is kept, or less of all, at every other moment."""
    kept = np.array([each.kept for each in moments])
    for each, own in zip(moments, kept, strict=True):
        if ((kept >= own).all(axis=1)).sum() == 1:  # itself
            yield each
