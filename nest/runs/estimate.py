"""Time and memory of an iteration of a plan that is given: the judge's, by component."""

from __future__ import annotations

from collections.abc import Collection
from math import ceil
from typing import Protocol

import numpy as np

from nest.breakdown import LoadParts, MemoryParts, load_parts, memory_parts
from nest.cost.schedules import Schedule
from nest.costing import Layout, model_flops
from nest.evaluate import Evaluation, evaluate
from nest.hardware import Hardware
from nest.pipeline import StageTimes
from nest.plan import Plan
from nest.problem import Problem
from nest.runs.besides import fetched_s, offloaded_memory
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
    layout, setting = given.layout, given.setting
    return priced(given, model_flops(given.model, layout.global_batch, setting.sequence, lengths=setting.lengths))


class Laid(Protocol):
    """A plan that somebody already has, of a model or of a table of layers."""

    @property
    def hardware(self) -> Hardware:
        """On what."""

    @property
    def layout(self) -> Layout:
        """Replicas, stages, and what is spread over them."""

    @property
    def problem(self) -> Problem:
        """The problem whose one variant is that of the plan."""

    @property
    def plan(self) -> Plan:
        """The plan."""


def priced(given: Laid, flops: int) -> Estimate:
    """Return time and memory of an iteration; ``flops`` are those of the model, 0 where only times are known.

    Raises
    ------
    InvalidProblem
        If the plan takes more devices than there are.
    """
    return _Estimated(given, flops).estimate()


class _Estimated:
    def __init__(self, given: Laid, flops: int) -> None:
        self.given, self.layout, self.flops = given, given.layout, flops
        self.evaluation: Evaluation = evaluate(given.problem, given.plan)
        self.pipeline: Pipeline = pipeline_of(given.problem, given.plan, self.evaluation)
        self.schedule = Schedule(given.plan.schedule, given.plan.chunks)

    def estimate(self) -> Estimate:
        """Return what the layout takes, in seconds and bytes."""
        given, layout, seconds = self.given, self.layout, self.evaluation.scale.time.seconds
        cluster, plan = given.problem.cluster, given.plan
        memory, stages = self._memory(), self.evaluation.stages
        shares = layout.offloaded or (0.0,) * layout.stages
        fetched = [fetched_s(each, share, given.hardware.device) for each, share in zip(memory, shares, strict=True)]
        once = [seconds(stage.sync) + more for stage, more in zip(stages, fetched, strict=True)]
        slowest = once.index(max(once))
        step = seconds(stages[slowest].step) + fetched[slowest]
        pipeline = seconds(self._objective - max(stage.sync for stage in stages))
        return Estimate(
            pipeline + once[slowest],
            pipeline,
            once[slowest] - step,
            step,
            tuple(self._times()),
            tuple(offloaded_memory(each, share) for each, share in zip(memory, shares, strict=True)),
            self.flops,
            cluster.counts_of(plan.line.devices(np.arange(plan.used_devices))),
            tuple(cluster.hbm_bytes_of(stage.classes) for stage in stages),
            tuple(each.message for each in self.evaluation.violations if each.rule == "chunks"),
            tuple(self._classes(stage.classes) for stage in stages) if cluster.classes else (),
        )

    def _classes(self, on: Collection[str]) -> str:
        return ", ".join(name for name in self.given.problem.cluster.class_names if name in on)

    @property
    def _objective(self) -> int:
        ticks = self.evaluation.objective_ticks
        assert ticks is not None, "else there is no pipeline"
        return ticks

    def _times(self) -> list[StageTime]:
        parts = load_parts(self.given.problem, self.given.plan, self.evaluation)
        return [self._time(at, each) for at, each in enumerate(parts)]

    def _time(self, at: int, parts: LoadParts) -> StageTime:
        seconds, stage = self.evaluation.scale.time.seconds, self.pipeline.stages[at]
        chunks = self.evaluation.stages[at].chunks  # whose transfers are in the passes of the stage
        there, back = sum(each.receive + each.send for each in chunks), sum(map(_gradients, chunks))
        return StageTime(
            forward=seconds(stage.forward - there),
            backward=seconds(stage.backward - back),
            repeated=seconds(stage.recompute),
            transfer=seconds(parts.transfer),
            exposed=seconds(parts.tensor + parts.context + parts.expert + parts.sharding),
        )

    def _memory(self) -> list[StageMemory]:
        given = self.given
        parts = memory_parts(given.problem, given.plan, self.evaluation)
        return [self._bytes(each) for each in parts]

    def _bytes(self, parts: MemoryParts) -> StageMemory:
        per_byte = self.evaluation.scale.quanta_per_byte
        names = ("weights", "gradients", "optimizer", "activations", "working", "stepping", "overhead")
        return StageMemory(*(ceil(getattr(parts, name) / per_byte) for name in names))


def _gradients(chunk: StageTimes) -> int:
    """Return for how long gradients of activations keep a chunk busy that come and go."""
    return chunk.receive_gradient + chunk.send_gradient
