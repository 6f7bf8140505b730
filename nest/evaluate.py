"""The judge: what a plan costs and which rules it breaks, from the definition.

It never reads the solvers' tables. It walks every stage of every replica at its true position, with the formulas of
`nest.cost`, and names each broken rule as `docs/formulation.md` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np

from nest.constraints import Outer, Whole
from nest.constraints.judge import broken
from nest.cost.collectives import shard_s, sync_height, sync_s, transfer_s
from nest.cost.compute import walk
from nest.cost.memory import needed, resident
from nest.cost.scale import Scale, scale_of
from nest.cost.schedule import iteration
from nest.errors import InvalidPlan
from nest.graph import LayerGraph
from nest.plan import Plan, Stage
from nest.problem import OPTIMIZER_COPIES, Problem
from nest.units import HARD_LIMIT, LONGEST, Number, bytes_of, quanta

Crossing: TypeAlias = list[tuple[int, Number]]
"""Edges across a boundary of a stage: place of the layer inside it, in the order in which it runs, and bytes."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of `docs/formulation.md` that the plan breaks, and how."""

    rule: str
    message: str


class Levels(NamedTuple):
    """Network levels that a stage of one replica pays, 0 where there is no boundary.

    Parameters
    ----------
    entry, exit
        Of the boundaries before and after the stage.
    block
        Of its own devices.
    """

    entry: int
    exit: int
    block: int


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
    levels
        What the transfers and collectives of the slowest replica cross.
    """

    load: int
    forward: int
    backward: int
    sharding: int
    sync: int
    memory: int
    levels: Levels


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
    violations += _range_violations(scale, load, objective)
    if problem.constraints:
        whole = _whole(plan, scale, figures, sync, objective)
        memory = [bytes_of(stage.memory, scale.quanta_per_byte) for stage in figures]
        violations += [Violation(kind, how) for kind, how in broken(problem, whole, memory)]
    return Evaluation(scale, objective, figures, tuple(violations))


def _graph(problem: Problem, plan: Plan) -> LayerGraph:
    if plan.variant not in problem.graphs:
        raise InvalidPlan("plan", f"the problem has no costs for {plan.variant}", "use a variant of the problem")
    if not plan.stages:
        raise InvalidPlan("stages", "the plan has no stage", "give at least one")
    graph = problem.graphs[plan.variant]
    index = graph.index
    for at, stage in enumerate(plan.stages):
        for name in stage.layers:
            if name not in index:
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
    index = graph.index
    placed = [index[name] for stage in plan.stages for name in stage.layers]
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


def _range_violations(scale: Scale, load: int, objective: int) -> Iterator[Violation]:
    """Rule ``range``."""
    if load >= LONGEST or objective >= HARD_LIMIT:
        taken, limit = scale.time.seconds(objective), scale.time.seconds(HARD_LIMIT)
        yield Violation("range", f"an iteration takes {taken:.3g} s or more, beyond the {limit:.3g} s that ticks count")


def _whole(plan: Plan, scale: Scale, figures: tuple[StageFigures, ...], sync: int, objective: int) -> Whole:
    """Return a plan as side constraints see it."""
    ends = list(accumulate(len(stage.layers) for stage in plan.stages))
    return Whole(
        Outer(plan.variant, len(plan.stages), plan.replicas),
        tuple(zip([0, *ends], ends, strict=False)),
        tuple(stage.first_device for stage in plan.stages),
        tuple(stage.devices for stage in plan.stages),
        tuple(_inside(stage) for stage in plan.stages),
        plan.replica_stride,
        tuple(scale.time.seconds(stage.load) for stage in figures),
        scale.time.seconds(sync),
        scale.time.seconds(objective),
        tuple(stage.recompute == "full" for stage in plan.stages),
        objective * scale.time.tick,
    )


class _Judge:
    """Prices each stage of a plan whose stages follow the order of the layers, where the plan places it."""

    def __init__(self, problem: Problem, plan: Plan, graph: LayerGraph, scale: Scale) -> None:
        self.problem, self.plan, self.scale = problem, plan, scale
        layers, ticks, per_byte = graph.layers, scale.time.ticks_array, scale.quanta_per_byte
        self.forward: list[int] = ticks(np.array([layer.forward_s for layer in layers])).tolist()
        self.backward: list[int] = ticks(np.array([layer.backward_s for layer in layers])).tolist()
        self.parameters = [quanta(layer.parameter_bytes, per_byte) for layer in layers]
        self.activations = [quanta(layer.activation_bytes, per_byte) for layer in layers]
        self.entering, self.leaving = _crossing(graph, plan)
        self.shardings = [_inside(stage) for stage in plan.stages]
        self.transfers: dict[tuple[Number, int], int] = {}

    def figures(self) -> Iterator[StageFigures]:
        """Yield the figures of each stage."""
        ends = list(accumulate(len(stage.layers) for stage in self.plan.stages))
        runs = list(map(slice, [0, *ends], ends))
        parameters = [sum(self.parameters[run]) for run in runs]
        columns = zip(runs, parameters, self._levels(), self._syncs(parameters), strict=True)
        for at, (run, weights, replicas, sync) in enumerate(columns):
            load, forward, backward, sharding, levels = max([self._times(at, run, weights, each) for each in replicas])
            memory = self._memory(at, run, weights)
            yield StageFigures(load, forward, backward, sharding, sync, memory, Levels(*levels))

    def _levels(self) -> Iterator[set[tuple[int, int, int]]]:
        """Yield the levels of entry, exit and block of each stage, in every replica that counts."""
        stages, preset, spans = self.plan.stages, self.problem.preset, self.problem.cluster.spans
        count = self.plan.replicas if preset.all_replicas else 1
        base = self.problem.cluster.starts(count, self.plan.replica_stride)
        first = base + np.array([stage.first_device for stage in stages])[:, None]
        last = first + np.array([stage.devices - 1 for stage in stages])[:, None]
        upper = first if preset.boundary == "first" else last
        none = [0] * len(base)
        between = spans(first[1:], upper[:-1]).tolist()  # the next stage lies below on the line
        for columns in zip([none, *between], [*between, none], spans(first, last).tolist(), strict=True):
            yield set(zip(*columns, strict=True))

    def _times(
        self, at: int, run: slice, parameters: int, levels: tuple[int, int, int]
    ) -> tuple[int, int, int, int, tuple[int, int, int]]:
        """Return the load of a stage in a replica, its three terms, and the levels of entry, exit and block again."""
        entry, out, block = levels
        there, back = self.forward[run], self.backward[run]
        repeated = 0
        if self.plan.stages[at].recompute == "full":
            repeated = sum(there if self.problem.preset.repeated_pass == "forward" else back)
        forward = walk(0, there, self._arrivals(self.entering[at], len(there), entry))
        backward = walk(repeated, reversed(back), self._arrivals(self.leaving[at], len(back), out))
        sharding = self._sharding(at, parameters, block)
        return forward + backward + sharding, forward, backward, sharding, levels

    def _arrivals(self, crossing: Crossing, layers: int, level: int) -> list[int]:
        """Tick at which each layer has what edges bring from outside: activations, or gradients on the way back."""
        arrivals = [0] * layers
        for place, size in crossing:
            ticks = self.transfers.get((size, level))
            if ticks is None:
                ticks = self._transfer(size, level)
            arrivals[place] = max(arrivals[place], ticks)
        return arrivals

    def _transfer(self, size: Number, level: int) -> int:
        seconds = transfer_s(self.problem.cluster, self.problem.preset, level, float(size))
        ticks = self.transfers[size, level] = self.scale.time.ticks(seconds)
        return ticks

    def _sharding(self, at: int, parameters: int, block: int) -> int:
        """Reduce-scatter the gradients (types 2 and 3), all-gather the weights (type 3)."""
        zero, degree = self.shardings[at]
        if zero < 2:
            return 0
        size = float(bytes_of(parameters, self.scale.quanta_per_byte))
        ring = self.scale.time.ticks(shard_s(self.problem.cluster, self.problem.preset, block, degree, size))
        return ring * (zero - 1)

    def _memory(self, at: int, run: slice, parameters: int) -> int:
        stages, activations = self.plan.stages, sum(self.activations[run])
        stash = activations  # of each further microbatch in flight
        if stages[at].recompute == "full":
            stash = sum([quanta(size, self.scale.quanta_per_byte) for _, size in self.entering[at]])
        copies = OPTIMIZER_COPIES[self.problem.training.optimizer]
        return needed(resident(parameters, activations, copies, *self.shardings[at]), stash, len(stages) - at)

    def _syncs(self, parameters: list[int]) -> list[int]:
        """Return the synchronisation of each stage."""
        cluster, preset, plan = self.problem.cluster, self.problem.preset, self.plan
        sizes = np.array([float(bytes_of(count, self.scale.quanta_per_byte)) for count in parameters])
        if preset.sync_sharded:
            sizes /= [degree if zero == 3 else 1 for zero, degree in self.shardings]
        height = sync_height(cluster, plan.replicas, plan.replica_stride)
        return [self.scale.time.ticks(each) for each in sync_s(cluster, preset, plan.replicas, height, sizes).tolist()]


def _crossing(graph: LayerGraph, plan: Plan) -> tuple[list[Crossing], list[Crossing]]:
    """Return the edges that enter each stage from another, and those that leave it, by the order in which it runs."""
    entering: list[Crossing] = [[] for _ in plan.stages]
    leaving: list[Crossing] = [[] for _ in plan.stages]
    homes = [
        (at, place, len(stage.layers) - 1 - place)
        for at, stage in enumerate(plan.stages)
        for place in range(len(stage.layers))
    ]
    for (source, target), edge in zip(graph.places, graph.edges, strict=True):
        before, _, place_backward = homes[source]
        after, place_forward, _ = homes[target]
        if before != after:
            entering[after].append((place_forward, edge.bytes))
            leaving[before].append((place_backward, edge.bytes))
    return entering, leaving


def _inside(stage: Stage) -> tuple[int, int]:
    """Return ZeRO type and degree of the sharding inside a stage."""
    return (stage.sharding.zero, stage.sharding.degree) if stage.sharding.kind == "stage" else (0, 1)
