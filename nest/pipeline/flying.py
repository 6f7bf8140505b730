"""Of which microbatches the chunks of a stage keep something while a backward pass runs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from nest.cost.schedules import Schedule, in_flight
from nest.pipeline.orders import passes


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


@lru_cache(maxsize=4096)
def flights(schedule: Schedule, stages: int, at: int, microbatches: int) -> tuple[Flight, ...]:
    """Return the moments at which a stage keeps the most, whatever its chunks keep of a microbatch.

    Under interleaved 1F1B the passes of ``S`` microbatches through all chunks repeat: those of four times as many show
    all that occurs.
    """
    if schedule.chunks == 1:
        return (Flight(0, (in_flight(schedule, stages, at, microbatches),)),)
    shown = microbatches if microbatches % stages else min(microbatches, 4 * stages)
    found, kept = dict[Flight, None](), [0] * schedule.chunks
    for kind, chunk, _ in passes(schedule, stages, at, shown):
        if kind == "forward":
            kept[chunk] += 1
        else:
            found[Flight(chunk, tuple(kept))] = None
            kept[chunk] -= 1
    return tuple(each for each in found if not any(_exceeds(other, each) for other in found))


def _exceeds(other: Flight, each: Flight) -> bool:
    """Whether something else is kept at another moment, and all of this as well."""
    more = all(one >= two for one, two in zip(other.kept, each.kept, strict=True))
    return other.chunk == each.chunk and other != each and more
