"""What the objective `sum` makes of the stages of an outer choice, whichever kind of plan it is of."""

from __future__ import annotations

from typing import TypeVar

from nest.units import LONGEST, Ints

_Ticks = TypeVar("_Ticks", int, Ints)


class Paced:
    """Base of outer choices.

    Attributes
    ----------
    further
        Microbatches of a replica but one: how often the largest load counts besides.
    chunks
        Of each stage.
    """

    further: int
    chunks: int

    @property
    def pace(self) -> tuple[int, int]:
        """How often the largest load counts besides, and the chunks: what the objective (D14) depends on."""
        return self.further, self.chunks

    def takes(self, loads: _Ticks, slowest: _Ticks, sync: _Ticks) -> _Ticks:
        """Return the objective (D14) of plans from the sum of their loads, the largest one, and the synchronisation."""
        works: _Ticks = (self.further + 1) * slowest - (slowest - loads) // self.chunks
        waits: _Ticks = loads + -(-self.further * slowest // self.chunks)
        longer: _Ticks = (waits - works) * (waits > works)
        return works + longer + sync

    def most_load(self, work: int, limit: int) -> int:
        """Return the largest load (D14) of plans below a limit whose loads add up to some work or more.

        Negative where there is no such plan.
        """
        left, times = self.chunks * (limit - 1) - work, (self.further + 1) * self.chunks - 1
        waits = self.chunks * (limit - 1 - work)
        if min(left, waits) < 0:
            return min(left, waits)
        most = left // times if times else LONGEST - 1
        return min(most, waits // self.further if self.further else LONGEST - 1, LONGEST - 1)
