"""The simulator: works off the passes of all stages, each as soon as its stage is free and its input is there."""

from __future__ import annotations

from collections import deque

from nest.cost.schedules import Schedule
from nest.pipeline.durations import Beside, Durations
from nest.pipeline.orders import Pass, PassKind, passes
from nest.pipeline.run import Event, Run
from nest.pipeline.times import Pipeline

Arrivals = list[list[int | None]]
"""By place in the chain of chunks and by microbatch: the tick at which the input of a pass is there."""

_BESIDE: dict[PassKind, Beside] = {"forward": "activation", "backward": "gradient"}


def simulate(pipeline: Pipeline, schedule: Schedule) -> Run:
    """Play one iteration.

    The schedule fixes the order of passes of each stage, and each starts as early as it can. So times are longest paths
    in a graph that does not depend on times, and no pass that gets shorter makes the iteration longer.

    Returns
    -------
    Run
        When each pass starts and ends.

    Raises
    ------
    InvalidProblem
        If times or microbatches make no pipeline.
    """
    return _Player(pipeline, schedule).play()


class _Player:
    """The state of the simulation: how far each stage is, and what has arrived."""

    def __init__(self, pipeline: Pipeline, schedule: Schedule) -> None:
        self.pipeline, self.schedule, self.stages = pipeline, schedule, len(pipeline.stages)
        count = pipeline.microbatches
        self.orders = [passes(schedule, self.stages, at, count) for at in range(self.stages)]
        self.durations = Durations(pipeline, schedule)
        self.places = self.stages * schedule.chunks
        empty: list[int | None] = [None] * count
        self.arrived: dict[PassKind, Arrivals] = {
            kind: [list(empty) for _ in range(self.places)] for kind in ("forward", "backward")
        }
        self.arrived["forward"][0] = [0] * count
        self.starts: list[list[int]] = [[] for _ in range(self.stages)]
        self.free = [0] * self.stages
        self.connections: dict[tuple[PassKind, int], int] = {}
        self.transfers: list[Event] = []

    def play(self) -> Run:
        """Let each stage go on until it has to wait, and again when something has arrived."""
        ready = deque(range(self.stages))
        waiting: set[int] = set()
        while ready:
            at = ready.popleft()
            waiting.discard(at)
            for woken in self._go_on(at):
                if woken not in waiting:
                    waiting.add(woken)
                    ready.append(woken)
        return Run(self.pipeline, self.schedule, self.orders, self.starts, self.durations, self.transfers)

    def _go_on(self, at: int) -> set[int]:
        """Take the passes of a stage up to the one that has to wait; return the stages to which something was sent."""
        order, starts, now = self.orders[at], self.starts[at], self.free[at]
        busy = self.durations.busy[at]
        woken: set[int] = set()
        for position in range(len(starts), len(order)):
            each = kind, chunk, microbatch = order[position]
            if kind != "weight":
                there = self.arrived[kind][chunk * self.stages + at][microbatch]
                if there is None:
                    break
                now = max(now, there)
            starts.append(now)
            now += busy[kind][chunk]
            if kind != "weight":
                woken |= self._send(at, each, now)
        self.free[at] = now
        return woken - {at}

    def _send(self, at: int, done: Pass, now: int) -> set[int]:
        """Pass on what a pass has made; return the stage that gets it."""
        kind, chunk, microbatch = done
        place = chunk * self.stages + at
        if kind == "forward" and place + 1 == self.places:
            self.arrived["backward"][place][microbatch] = now
            return set()
        target = place + 1 if kind == "forward" else place - 1
        if target < 0:
            return set()
        receiver = target % self.stages
        takes = self.durations.beside(kind, target)
        if takes:
            start = max(now, self.connections.get((kind, receiver), 0))
            self.connections[kind, receiver] = now = start + takes
            self.transfers.append(Event(start, now, receiver, microbatch, target // self.stages, _BESIDE[kind]))
        self.arrived[kind][target][microbatch] = now
        return {receiver}
