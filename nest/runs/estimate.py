"""Time and memory of an iteration of a plan that is given: the judge's, by component."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from nest.breakdown import LoadParts, MemoryParts, kept_quanta, load_parts, memory_parts
from nest.costing import model_flops
from nest.evaluate import Evaluation, evaluate
from nest.runs.chunks import (
    boundary_bytes,
    chunked_memory,
    chunked_pipeline_s,
    chunked_times,
    chunks_in_flight,
    fetched_s,
    offloaded_memory,
)
from nest.runs.figures import Estimate, StageMemory, StageTime
from nest.runs.given import Given
from nest.simulate import Pipeline, pipeline_of


def estimate(given: Given) -> Estimate:
    """Return time and memory of an iteration.

    Raises
    ------
    InvalidProblem
        If setting and layout do not fit the model, the plan takes more devices than there are, or a profile has nothing
        for it.
    """
    return _Estimated(given).estimate()


class _Estimated:
    def __init__(self, given: Given) -> None:
        self.given, self.layout = given, given.layout
        self.evaluation: Evaluation = evaluate(given.problem, given.plan)
        self.pipeline: Pipeline = pipeline_of(given.problem, given.plan, self.evaluation)

    def estimate(self) -> Estimate:
        given, layout, seconds = self.given, self.layout, self.evaluation.scale.time.seconds
        memory, times = self._memory(), self._times()
        shares = layout.offloaded or (0.0,) * layout.stages
        fetched = [fetched_s(each, share, given.hardware.device) for each, share in zip(memory, shares, strict=True)]
        once = [seconds(stage.sync) + more for stage, more in zip(self.evaluation.stages, fetched, strict=True)]
        slowest = once.index(max(once))
        step = seconds(self.evaluation.stages[slowest].step) + fetched[slowest]
        pipeline = chunked_pipeline_s(times, self.pipeline.microbatches, layout.virtual)
        return Estimate(
            pipeline + once[slowest],
            pipeline,
            once[slowest] - step,
            step,
            tuple(times),
            tuple(offloaded_memory(each, share) for each, share in zip(memory, shares, strict=True)),
            model_flops(given.model, layout.global_batch, given.setting.sequence),
            given.devices,
        )

    def _times(self) -> list[StageTime]:
        parts = load_parts(self.given.problem, self.given.plan, self.evaluation)
        times = [self._time(at, each) for at, each in enumerate(parts)]
        if self.layout.virtual == 1:
            return times
        wrap = self.evaluation.scale.time.seconds(self.pipeline.wrap + self.pipeline.wrap_send)
        return chunked_times(times, wrap, self.layout.virtual)

    def _time(self, at: int, parts: LoadParts) -> StageTime:
        seconds, stage = self.evaluation.scale.time.seconds, self.pipeline.stages[at]
        return StageTime(
            forward=seconds(stage.forward),
            backward=seconds(stage.backward),
            repeated=seconds(stage.recompute),
            transfer=seconds(stage.transfers),
            exposed=seconds(parts.tensor + parts.context + parts.expert + parts.sharding),
        )

    def _memory(self) -> list[StageMemory]:
        given = self.given
        parts = memory_parts(given.problem, given.plan, self.evaluation)
        held = [self._bytes(each) for each in parts]
        if self.layout.virtual > 1:
            held = [self._chunked(at, each) for at, each in enumerate(held)]
            if given.framework.buffers_boundaries:
                held = [replace(each, working=each.working + self._buffers(at)) for at, each in enumerate(held)]
        return held

    def _buffers(self, at: int) -> int:
        ends = self.given.ends
        enters, behind = ends[at] or ends[1], ends[at + 1]  # chunks of the first stage receive as much as it sends
        before, behind = (self.given.costs[end - 1].output_bytes for end in (enters, behind))
        return boundary_bytes(self.layout, at, self.pipeline.microbatches, before, behind)

    def _bytes(self, parts: MemoryParts) -> StageMemory:
        per_byte = self.evaluation.scale.quanta_per_byte
        names = ("weights", "gradients", "optimizer", "activations", "working", "stepping", "overhead")
        return StageMemory(*(ceil(getattr(parts, name) / per_byte) for name in names))

    def _chunked(self, at: int, memory: StageMemory) -> StageMemory:
        given, last = self.given, at + 1 == self.layout.stages
        kept = sum(kept_quanta(given.problem, given.plan, self.evaluation, at))
        behind = max((place for place, cost in enumerate(given.costs) if cost.repeats), default=-1)
        ending = sum(cost.kept.none for cost in given.costs[behind + 1 :]) if last else 0
        flying = chunks_in_flight(self.layout, at, self.pipeline.microbatches)
        return chunked_memory(memory, ceil(kept / self.evaluation.scale.quanta_per_byte), ending, flying)
