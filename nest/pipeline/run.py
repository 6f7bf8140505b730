"""What was played: when each stage did what, how long it idled, how many microbatches it held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from nest.cost.schedules import Schedule
from nest.pipeline.durations import Durations, EventKind
from nest.pipeline.orders import Pass
from nest.pipeline.times import Pipeline


class Event(NamedTuple):
    """What a stage did, in ticks from the start of the iteration."""

    start: int
    end: int
    stage: int
    microbatch: int
    chunk: int
    kind: EventKind


@dataclass(frozen=True)
class Run:
    """One iteration as it was played, gradient synchronisation apart.

    Parameters
    ----------
    orders
        Passes of each stage, in order.
    starts
        Tick at which each of them starts.
    transfers
        Those that ran beside the work of stages.
    """

    pipeline: Pipeline
    schedule: Schedule
    orders: Sequence[Sequence[Pass]]
    starts: Sequence[Sequence[int]]
    durations: Durations
    transfers: Sequence[Event]

    @cached_property
    def makespan(self) -> int:
        """Ticks from the first start to the last end."""
        return max(self.ends)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Tick at which each stage has done all."""
        return tuple(
            starts[-1] + self.durations.busy[at][order[-1].kind][order[-1].chunk]
            for at, (order, starts) in enumerate(zip(self.orders, self.starts, strict=True))
        )

    @cached_property
    def busy(self) -> tuple[int, ...]:
        """Ticks for which each stage works, or receives without working on."""
        once = (sum(map(sum, by_kind.values())) for by_kind in self.durations.busy)
        return tuple(self.pipeline.microbatches * ticks for ticks in once)

    @cached_property
    def idle(self) -> tuple[int, ...]:
        """The bubble of each stage: ticks of the iteration for which it waits."""
        return tuple(self.makespan - busy for busy in self.busy)

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """The most microbatches of which a stage keeps something, until its last gradients; chunks are added up."""
        last = "weight" if self.schedule.name == "zb-h1" else "backward"
        change = {"forward": 1, last: -1}
        return tuple(max(accumulate(change.get(each.kind, 0) for each in order)) for order in self.orders)

    def events(self) -> Iterator[Event]:
        """Yield what each stage did, stage by stage and in order, then transfers beside; nothing that takes no time."""
        for at, (order, starts) in enumerate(zip(self.orders, self.starts, strict=True)):
            parts = self.durations.parts[at]
            for each, start in zip(order, starts, strict=True):
                now = start
                for kind, ticks in parts[each.kind][each.chunk]:
                    if ticks:
                        yield Event(now, now + ticks, at, each.microbatch, each.chunk, kind)
                    now += ticks
        yield from self.transfers
