"""The judge: what a plan costs and which rules it breaks, from the definition.

It never reads the solvers' tables. It walks every stage of every replica at its true position, with the formulas of
`nest.cost`, and names each broken rule as `docs/formulation.md` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nest.cost.collectives import shard_s, sync_height, sync_s, transfer_s
from nest.cost.compute import walk
from nest.cost.memory import needed, resident
from nest.cost.scale import Scale, scale_of
from nest.cost.schedule import iteration
from nest.errors import InvalidPlan
from nest.graph import LayerGraph
from nest.plan import Plan, Stage
from nest.problem import OPTIMIZER_COPIES, Problem, Recompute
from nest.units import HARD_LIMIT, Number, bytes_of, quanta


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of `docs/formulation.md` that the plan breaks, and how."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Judged figures of one stage; times in ticks, for its slowest replica.

    Parameters
    ----------
    load
        Time one microbatch keeps the stage busy: ``forward + backward + sharding``.
    forward, backward
        The two walks, transfers and recomputation included.
    sharding
        Per-microbatch collectives of ZeRO inside the stage.
    sync
        Gradient synchronisation over the replicas, once per iteration.
    memory
        Quanta of bytes on each device.
    """

    load: int
    forward: int
    backward: int
    sharding: int
    sync: int
    memory: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the judge found.

    Parameters
    ----------
    objective_ticks
        None where the plan is so broken that it has no price.
    stages
        Figures from the first stage on; empty where there is no price.
    violations
        Broken rules; the plan is legal if there is none.
    """

    scale: Scale
    objective_ticks: int | None
    stages: tuple[StageFigures, ...]
    violations: tuple[Violation, ...]

    @property
    def legal(self) -> bool:
        """Whether the plan breaks no rule."""
        return not self.violations

    @property
    def loads_s(self) -> list[float]:
        """Load of each stage in seconds."""
        return [self.scale.time.seconds(stage.load) for stage in self.stages]

    @property
    def memory_bytes(self) -> list[Number]:
        """Memory of each stage's devices in bytes."""
        return [bytes_of(stage.memory, self.scale.quanta_per_byte) for stage in self.stages]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Judge a plan.

    Returns
    -------
    Evaluation
        Price, figures by stage, and every violated rule.

    Raises
    ------
    InvalidPlan
        If the plan names a layer or a variant that the problem does not have, or has no stage.
    """
    graph = _graph(problem, plan)
    scale = scale_of(problem)
    violations = [*_choice_violations(problem, plan), *_cover_violations(graph, plan)]
    if any(violation.rule in ("cover", "order") for violation in violations):
        return Evaluation(scale, None, (), tuple(violations))
    placement = list(_placement_violations(problem, plan))
    violations += placement
    if plan.replicas < 1 or any(violation.rule == "devices" for violation in placement):
        return Evaluation(scale, None, (), tuple(violations))
    figures = tuple(_Judge(problem, plan, graph, scale).figures())
    violations += _memory_violations(problem, scale, figures)
    load = max(stage.load for stage in figures)
    counted = figures if problem.preset.sync_all_stages else figures[:1]
    sync = max(stage.sync for stage in counted)
    objective = iteration(load, problem.training.microbatches, plan.replicas, len(figures), sync)
    violations += _range_violations(scale, objective)
    return Evaluation(scale, objective, figures, tuple(violations))


def _graph(problem: Problem, plan: Plan) -> LayerGraph:
    if plan.variant not in problem.graphs:
        raise InvalidPlan("plan", f"the problem has no costs for {plan.variant}", "use a variant of the problem")
    if not plan.stages:
        raise InvalidPlan("stages", "the plan has no stage", "give at least one")
    graph = problem.graphs[plan.variant]
    for at, stage in enumerate(plan.stages):
        for name in stage.layers:
            if name not in graph.index:
                raise InvalidPlan(f"stages[{at}].layers", f"{name!r} is no layer of the problem", "name a layer's id")
    return graph


def _choice_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Rules ``variant``, ``replicas``, ``stages``, ``sharding`` and ``recompute``."""
    choices = problem.choices
    if not choices.admits(plan.variant):
        yield Violation("variant", f"{plan.variant} is not among the allowed widths")
    if not 1 <= plan.replicas <= problem.training.microbatches:
        yield Violation("replicas", f"{plan.replicas} replicas for {problem.training.microbatches} microbatches")
    elif choices.replicas is not None and plan.replicas not in choices.replicas:
        yield Violation("replicas", f"{plan.replicas} replicas, allowed are {sorted(choices.replicas)}")
    if choices.stages is not None and len(plan.stages) not in choices.stages:
        yield Violation("stages", f"{len(plan.stages)} stages, allowed are {sorted(choices.stages)}")
    for at, stage in enumerate(plan.stages):
        sharding = stage.sharding
        if sharding.zero not in choices.zero:
            yield Violation("sharding", f"stage {at} uses ZeRO-{sharding.zero}, allowed are {sorted(choices.zero)}")
        elif sharding.degree > 1 and sharding.degree not in problem.zero_degrees(plan.variant.width):
            yield Violation("sharding", f"stage {at} shards over {sharding.degree}, which is no allowed degree")
        elif sharding.kind == "replicas":
            yield Violation(
                "sharding", f"stage {at} shards over replicas, which {problem.preset.name!r} does not price"
            )
        due = choices.recompute if at + 1 < len(plan.stages) else "none"
        if stage.recompute != due:
            yield Violation("recompute", f"stage {at} recomputes {stage.recompute!r}, the problem says {due!r}")


def _cover_violations(graph: LayerGraph, plan: Plan) -> Iterator[Violation]:
    """Rules ``cover`` and ``order``: every layer once, in stages that are contiguous in the order."""
    placed = [graph.index[name] for stage in plan.stages for name in stage.layers]
    if sorted(placed) != list(range(len(graph))) or not all(stage.layers for stage in plan.stages):
        missing = sorted(set(range(len(graph))) - set(placed))
        what = (
            f"layer {graph.layers[missing[0]].id!r} is in no stage" if missing else "a layer is twice or a stage empty"
        )
        yield Violation("cover", what)
    elif placed != sorted(placed):
        yield Violation("order", "the stages do not follow the order of the layers")


def _placement_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Rules ``block``, ``placement`` and ``devices``."""
    width = plan.variant.width
    for at, stage in enumerate(plan.stages):
        due = width * (stage.sharding.degree if stage.sharding.kind == "stage" else 1)
        if stage.devices != due:
            yield Violation("block", f"stage {at} has {stage.devices} devices, its widths make {due}")
    expected = 0
    for at in reversed(range(len(plan.stages))):
        if plan.stages[at].first_device != expected:
            yield Violation("placement", f"stage {at} starts at {plan.stages[at].first_device}, not at {expected}")
        expected += plan.stages[at].devices
    if plan.arrangement != "replica-major-reversed" or plan.replica_stride != expected:
        yield Violation(
            "placement",
            f"arrangement {plan.arrangement!r} with stride {plan.replica_stride}; preset {problem.preset.name!r} "
            f"places 'replica-major-reversed' with stride {expected}",
        )
    yield from _device_violations(problem, plan)


def _device_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Rule ``devices``: every device of every replica is one of the cluster, and every stage has one."""
    last_replica = max(plan.replicas - 1, 0) * plan.replica_stride
    low = min(stage.first_device for stage in plan.stages) + min(0, last_replica)
    high = max(stage.first_device + stage.devices for stage in plan.stages) + max(0, last_replica) - 1
    if min(stage.devices for stage in plan.stages) < 1:
        yield Violation("devices", "a stage has no device")
    elif low < 0 or high >= problem.cluster.devices:
        yield Violation("devices", f"the plan uses devices {low} to {high} of a cluster of {problem.cluster.devices}")


def _memory_violations(problem: Problem, scale: Scale, figures: tuple[StageFigures, ...]) -> Iterator[Violation]:
    """Rule ``memory``."""
    capacity = quanta(problem.cluster.hbm_bytes, scale.quanta_per_byte)
    for at, stage in enumerate(figures):
        if stage.memory > capacity:
            have, limit = bytes_of(stage.memory, scale.quanta_per_byte), problem.cluster.hbm_bytes
            yield Violation("memory", f"stage {at} needs {have} bytes on each device, a device has {limit}")


def _range_violations(scale: Scale, objective: int) -> Iterator[Violation]:
    """Rule ``range``."""
    if objective >= HARD_LIMIT:
        taken, limit = scale.time.seconds(objective), scale.time.seconds(HARD_LIMIT)
        yield Violation("range", f"an iteration takes {taken:.3g} s, beyond the {limit:.3g} s that ticks can count")


@dataclass(frozen=True)
class _Judge:
    problem: Problem
    plan: Plan
    graph: LayerGraph
    scale: Scale

    def figures(self) -> Iterator[StageFigures]:
        first = 0
        for at, stage in enumerate(self.plan.stages):
            end = first + len(stage.layers)
            yield self._stage(at, stage, first, end)
            first = end

    def _stage(self, at: int, stage: Stage, first: int, end: int) -> StageFigures:
        parameters, activations = self._sizes(first, end)
        zero, degree = (stage.sharding.zero, stage.sharding.degree) if stage.sharding.kind == "stage" else (0, 1)
        levels = self._levels(at)
        forward = {entry: self._forward(first, end, entry) for entry, _, _ in levels}
        backward = {out: self._backward(first, end, out, stage.recompute) for _, out, _ in levels}
        sharding = {block: self._sharding(parameters, zero, degree, block) for _, _, block in levels}
        terms = ((forward[entry], backward[out], sharding[block]) for entry, out, block in levels)
        load, slowest = max((sum(parts), parts) for parts in terms)
        copies = OPTIMIZER_COPIES[self.problem.training.optimizer]
        held = resident(parameters, activations, copies, zero, degree)
        memory = needed(held, self._stash(first, end, activations, stage.recompute), len(self.plan.stages) - at)
        return StageFigures(load, *slowest, sync=self._sync(parameters, zero, degree), memory=memory)

    def _levels(self, at: int) -> set[tuple[int, int, int]]:
        """Levels of entry, exit and block of a stage, for every replica that counts."""
        count = self.plan.replicas if self.problem.preset.all_replicas else 1
        base = np.arange(count, dtype=np.int64) * self.plan.replica_stride
        stage = self.plan.stages[at]
        spans = self.problem.cluster.spans
        block = spans(base + stage.first_device, base + stage.first_device + stage.devices - 1)
        entry = self._boundary(at - 1, base) if at > 0 else np.zeros_like(base)
        out = self._boundary(at, base) if at + 1 < len(self.plan.stages) else np.zeros_like(base)
        return set(zip(entry.tolist(), out.tolist(), block.tolist(), strict=True))

    def _boundary(self, at: int, base: np.ndarray) -> np.ndarray:
        """Level between stage ``at`` and the next, which lies below it on the line of devices."""
        upper, lower = self.plan.stages[at], self.plan.stages[at + 1]
        last = upper.first_device if self.problem.preset.boundary == "first" else upper.first_device + upper.devices - 1
        return self.problem.cluster.spans(base + lower.first_device, base + last)

    def _forward(self, first: int, end: int, entry: int) -> int:
        times = [self.scale.time.ticks(layer.forward_s) for layer in self.graph.layers[first:end]]
        return walk(0, times, self._arrivals(first, end, entry, forward=True))

    def _backward(self, first: int, end: int, out: int, recompute: Recompute) -> int:
        layers, ticks = self.graph.layers[first:end], self.scale.time.ticks
        times = [ticks(layer.backward_s) for layer in layers]
        repeated = 0
        if recompute == "full":
            charged = self.problem.preset.repeated_pass
            repeated = sum(times) if charged == "backward" else sum(ticks(layer.forward_s) for layer in layers)
        return walk(repeated, times[::-1], self._arrivals(first, end, out, forward=False)[::-1])

    def _sharding(self, parameters: int, zero: int, degree: int, block: int) -> int:
        """Reduce-scatter the gradients (types 2 and 3), all-gather the weights (type 3)."""
        if zero < 2:
            return 0
        size = float(bytes_of(parameters, self.scale.quanta_per_byte))
        ring = self.scale.time.ticks(shard_s(self.problem.cluster, self.problem.preset, block, degree, size))
        return ring * (zero - 1)

    def _arrivals(self, first: int, end: int, level: int, *, forward: bool) -> list[int]:
        """Tick at which each layer has what edges bring from outside: activations, or gradients on the way back."""
        links = self.graph.incoming if forward else self.graph.outgoing
        cluster, preset, ticks = self.problem.cluster, self.problem.preset, self.scale.time.ticks
        return [
            max(
                (
                    ticks(transfer_s(cluster, preset, level, float(size)))
                    for other, size in links[place]
                    if not first <= other < end
                ),
                default=0,
            )
            for place in range(first, end)
        ]

    def _sizes(self, first: int, end: int) -> tuple[int, int]:
        layers, scale = self.graph.layers[first:end], self.scale.quanta_per_byte
        return (
            sum(quanta(layer.parameter_bytes, scale) for layer in layers),
            sum(quanta(layer.activation_bytes, scale) for layer in layers),
        )

    def _stash(self, first: int, end: int, activations: int, recompute: Recompute) -> int:
        """Quanta that each further microbatch in flight keeps: the stage's inputs when recomputing, else everything."""
        if recompute == "none":
            return activations
        return sum(
            quanta(size, self.scale.quanta_per_byte)
            for place in range(first, end)
            for source, size in self.graph.incoming[place]
            if source < first
        )

    def _sync(self, parameters: int, zero: int, degree: int) -> int:
        size = float(bytes_of(parameters, self.scale.quanta_per_byte))
        if self.problem.preset.sync_sharded and zero == 3:
            size /= degree
        height = sync_height(self.problem.cluster, self.plan.replicas, self.plan.replica_stride)
        seconds = sync_s(self.problem.cluster, self.problem.preset, self.plan.replicas, height, size)
        return self.scale.time.ticks(seconds)
