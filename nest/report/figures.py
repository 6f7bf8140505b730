"""What is worth knowing about a priced plan, for people and programs alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest.breakdown import (
    IterationParts,
    LoadParts,
    MemoryParts,
    compute_limit,
    iteration_parts,
    load_parts,
    memory_parts,
)
from nest.cost.schedule import rounds, summed
from nest.evaluate import Evaluation, crossing, evaluate, sync_of
from nest.plan import Plan
from nest.problem import Problem
from nest.report.throughput import Workload
from nest.units import Number, bytes_of


@dataclass(frozen=True)
class PricedPlan:
    """A plan that the judge could price, and the figures that follow; times in seconds.

    `iteration_s` is ``once_s + load_s * rounds + sync_s``.

    Parameters
    ----------
    work
        What an iteration computes, where that is known.
    """

    problem: Problem
    plan: Plan
    evaluation: Evaluation
    objective_ticks: int
    work: Workload | None = None

    @classmethod
    def of(
        cls, problem: Problem, plan: Plan, evaluation: Evaluation, work: Workload | None = None
    ) -> PricedPlan | None:
        """Return the plan with its price, or None if it has none; the problem is that with the plan's technologies."""
        ticks = evaluation.objective_ticks
        if ticks is None:
            return None
        built = problem.built(problem.cluster.named(plan.technologies) or ())
        return cls(built, plan, evaluation, ticks, work)

    @classmethod
    def judged(cls, problem: Problem, plan: Plan | None, work: Workload | None = None) -> PricedPlan | None:
        """Return the plan with its price as the judge has it, or None if there is none of either."""
        return None if plan is None else cls.of(problem, plan, evaluate(problem, plan), work)

    def seconds(self, ticks: int) -> float:
        """Return ticks in seconds."""
        return self.evaluation.scale.time.seconds(ticks)

    @property
    def iteration_s(self) -> float:
        """The objective."""
        return self.seconds(self.objective_ticks)

    @property
    def objective(self) -> float:
        """The objective in the problem's own unit of time."""
        return self.iteration_s / self.problem.time_unit_s

    @property
    def load_s(self) -> float:
        """Load of the slowest stage."""
        return self.seconds(self._load)

    @property
    def rounds(self) -> int:
        """How many times the slowest stage's load counts, apart from `once_s`."""
        if self.problem.preset.objective != "bottleneck":
            return self.microbatches - (self.problem.preset.objective == "sum")
        return rounds(self.problem.microbatches(self.plan.variant), self.plan.replicas, len(self.plan.stages))

    @property
    def once_s(self) -> float:
        """What an iteration takes but for `rounds` and the synchronisation: all loads, for the first microbatch.

        Interleaved, the largest and of the others one chunk; with fewer microbatches than stages more, as chunks wait.
        Where the schedule is played, what the slowest stage waits.
        """
        return self.seconds(self._once)

    @property
    def sync_s(self) -> float:
        """Gradient synchronisation that the iteration waits for."""
        return self.seconds(self.objective_ticks - self._once - self._load * self.rounds)

    @cached_property
    def loads(self) -> tuple[LoadParts, ...]:
        """What each stage's load consists of, in ticks."""
        return load_parts(self.problem, self.plan, self.evaluation)

    @cached_property
    def memory(self) -> tuple[MemoryParts, ...]:
        """What each stage's memory consists of, in quanta."""
        return memory_parts(self.problem, self.plan, self.evaluation)

    @cached_property
    def spent(self) -> IterationParts:
        """Where the iteration's time goes, in ticks."""
        return iteration_parts(self.problem, self.plan, self.evaluation, self.loads)

    @cached_property
    def crossing(self) -> tuple[int, ...]:
        """Bytes that an iteration sends over each level or one outside it; none where the preset counts none (D16)."""
        return crossing(self.problem, self.plan, self.evaluation.scale)

    @cached_property
    def limit_s(self) -> float:
        """Below which no plan gets: all devices of the cluster do nothing but compute layers."""
        return self.seconds(compute_limit(self.problem)[0])

    @property
    def flops_per_device(self) -> float | None:
        """Model FLOP/s of each device that the plan uses; None where its work is not known."""
        return None if self.work is None else self.work.flops_per_device(self.iteration_s, self.devices_used)

    @property
    def mfu(self) -> float | None:
        """These over a device's peak; None where its work is not known."""
        return None if self.work is None else self.work.utilisation(self.iteration_s, self._used_of_each_class)

    @property
    def _used_of_each_class(self) -> tuple[int, ...]:
        """Devices in use, by class."""
        return self.problem.cluster.counts_of(self.plan.line.devices(np.arange(self.plan.used_devices)))

    def bytes(self, quanta: int) -> Number:
        """Return quanta in bytes."""
        return bytes_of(quanta, self.evaluation.scale.quanta_per_byte)

    @property
    def slowest(self) -> tuple[int, ...]:
        """Stages with the largest load, ascending."""
        return tuple(at for at, stage in enumerate(self.evaluation.stages) if stage.load == self._load)

    @property
    def fullest(self) -> tuple[int, Number]:
        """The first stage that needs the most of its devices' memory, and how many bytes."""
        shares = [each / self.capacity(at) for at, each in enumerate(self.evaluation.memory_bytes)]
        fullest = shares.index(max(shares))
        return fullest, self.evaluation.memory_bytes[fullest]

    def capacity(self, at: int) -> Number:
        """Return the memory of the devices of a stage, of several classes the least."""
        return self.problem.cluster.hbm_bytes_of(self.evaluation.stages[at].classes)

    def classes_text(self, at: int) -> str:
        """Return the classes of devices on which a stage stands."""
        on = self.evaluation.stages[at].classes
        return ", ".join(name for name in self.problem.cluster.class_names if name in on)

    @property
    def devices_idle(self) -> int:
        """Devices in use that do nothing, so that stages or replicas behind them begin with a group of the network."""
        return self.devices_used - self.plan.replicas * sum(stage.devices for stage in self.plan.stages)

    @property
    def devices_used(self) -> int:
        """Devices from the first of the cluster to the last that the plan occupies."""
        return self.plan.used_devices

    @property
    def microbatches(self) -> int:
        """Microbatches of one replica."""
        return -(-self.problem.microbatches(self.plan.variant) // self.plan.replicas)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Network level between each stage and the next, where the stage's replica is the slowest."""
        return tuple(stage.levels.exit for stage in self.evaluation.stages[:-1])

    @property
    def _once(self) -> int:
        if self.problem.preset.objective == "simulated":
            return self.objective_ticks - sync_of(self.problem, self.evaluation) - self._load * self.rounds
        if self.problem.preset.objective != "sum":
            return 0
        loads = sum(stage.load for stage in self.evaluation.stages)
        return summed(loads, self._load, self.microbatches, 0, self.plan.chunks) - self._load * self.rounds

    @property
    def _load(self) -> int:
        return max(stage.load for stage in self.evaluation.stages)
