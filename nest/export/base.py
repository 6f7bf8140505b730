"""What an export is: a plan in the words of a framework, and what the framework cannot say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import ClassVar

import numpy as np

from nest.constraints import Outer
from nest.errors import InvalidPlan
from nest.export.numbers import ModelNumbers, numbers_of
from nest.plan import Plan
from nest.presets import SCHEDULES, ScheduleName
from nest.problem import Problem, Recompute
from nest.runs import Run
from nest.units import Ints


class Inexpressible(InvalidPlan):
    """A plan that a framework cannot run as it is: names the stage or width, its value, and what to do."""


def _numbered(name: str, numbers: list[int]) -> str:
    """Return a name with ascending numbers, as in ``nodes 0, 2 to 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    shown = ", ".join(" to ".join(map(str, run)) for run in runs)
    return f"{name}{'' if len(numbers) == 1 else 's'} {shown}"


APPROXIMATE = "give --approximate for the nearest plan that it runs"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a framework cannot run something: where, and what."""

    where: str
    what: str


@dataclass(frozen=True)
class Export:
    """A plan in the words of a framework.

    Parameters
    ----------
    text
        Of the file.
    launch
        How to start it, one line.
    notes
        What the file does not say, or what the plan was priced with that the framework does otherwise.
    """

    text: str
    launch: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assignment:
    """A plan of a run, in the terms that frameworks share.

    Parameters
    ----------
    run, problem, plan
        What is trained, the problem that it poses, and a plan of it.
    iteration_s
        Judged seconds of an iteration.
    """

    run: Run
    problem: Problem
    plan: Plan
    iteration_s: float

    @cached_property
    def model(self) -> ModelNumbers:
        """The model's numbers; raises `InvalidProblem` where frameworks have none."""
        return numbers_of(self.run.model)

    @property
    def outer(self) -> Outer:
        """The outer choice."""
        return Outer(self.plan.variant, len(self.plan.stages), self.plan.replicas)

    @property
    def data(self) -> int:
        """Ranks that take sequences of their own: replicas, and expert ranks in each."""
        return self.plan.replicas * self.plan.variant.expert

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.plan.replicas * sum(stage.devices for stage in self.plan.stages)

    @property
    def node(self) -> int:
        """Devices of a node: the innermost groups of the network, where the job takes more than one."""
        return min(self.run.hardware.cluster.group_sizes[0], self.world)

    @property
    def nodes(self) -> int:
        """Nodes of the job, the last of which may be used in part."""
        return -(-self.world // self.node)

    @cached_property
    def places(self) -> Ints:
        """Devices of the ranks, as they follow each other on the line of the plan."""
        plan = self.plan
        blocks = [plan.starts(at)[:, None] + np.arange(stage.devices) for at, stage in enumerate(plan.stages)]
        return plan.line.devices(np.sort(plan.line.positions(np.concatenate([each.ravel() for each in blocks]))))

    @property
    def standing(self) -> Iterator[str]:
        """Yield where to start the ranks, where this is not on the first nodes of the cluster, and all of each."""
        size = self.run.hardware.cluster.group_sizes[0]
        nodes = dict.fromkeys((self.places // size).tolist())
        if list(nodes) != list(range(len(nodes))):
            yield f"start it on {_numbered('node', list(nodes))}, in this order, counted from 0"
        inside = (self.places % size).tolist()
        if len(nodes) == 1 and inside != list(range(len(inside))):
            yield f"start it with CUDA_VISIBLE_DEVICES={','.join(map(str, inside))}"

    @property
    def microbatches(self) -> int:
        """Microbatches of a replica."""
        return -(-self.problem.microbatches(self.plan.variant) // self.plan.replicas)

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """First block and end of each part of the pipeline: of each stage, or of all first chunks, all second ones."""
        graph, plan, ends = self.problem.graphs[self.plan.variant], self.plan, [0]
        parts = [plan.parts(graph, at) for at in range(len(plan.stages))]
        for chunk, each in product(range(plan.chunks), parts):
            ends.append(ends[-1] + len(each[chunk]))
        return tuple(pairwise(ends))

    @cached_property
    def layers(self) -> tuple[range, ...]:
        """Layers of each part, counted from 0 without the embedding before them."""
        last = self.model.layers
        return tuple(range(max(first - 1, 0), min(end - 1, last)) for first, end in self.runs)


class Framework(ABC):
    """A training framework as a target of exports.

    Attributes
    ----------
    name, title
        On the command line, and for people.
    versions
        Whose rules are checked.
    zeros, zeros_in_pipeline
        ZeRO types that it has, and those that it has beside a pipeline.
    recomputes, parts
        What it may compute again, and what of that in some layers of each stage only, the first so many.
    hybrid
        Whether it spreads ZeRO over groups of replicas, too.
    schedules
        In which orders it takes the passes of a pipeline.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    versions: ClassVar[str]
    zeros: ClassVar[frozenset[int]]
    zeros_in_pipeline: ClassVar[frozenset[int]]
    recomputes: ClassVar[frozenset[Recompute]] = frozenset({"none", "full"})
    parts: ClassVar[frozenset[Recompute]] = frozenset()
    hybrid: ClassVar[bool] = True
    schedules: ClassVar[frozenset[ScheduleName]] = frozenset({"1f1b"})

    @abstractmethod
    def faults(self, run: Run, model: ModelNumbers, outer: Outer) -> list[Fault]:
        """Return why no plan with an outer choice runs there; nothing where some may."""

    @abstractmethod
    def write(self, given: Assignment) -> Export:
        """Return the export of a plan that the framework can run.

        Raises
        ------
        Inexpressible
            If stages differ in what the framework has one setting for.
        """

    @abstractmethod
    def broken(self, text: str, world: int) -> list[str]:
        """Return the rules of the framework that a file breaks, read again, on so many devices."""

    def zero_faults(self, zero: int, outer: Outer) -> list[Fault]:
        """Return why an outer choice does not go with a ZeRO type of all stages."""
        known = self.zeros if outer.stages == 1 else self.zeros_in_pipeline
        if zero in known:
            return []
        beside = "" if outer.stages == 1 else f" beside {outer.stages} stages"
        types = ", ".join(map(str, sorted(known))) or "none"
        return [Fault("sharding", f"ZeRO type {zero}{beside}: {self.title} is written with types {types} there")]

    def degree_faults(self, degree: int, outer: Outer) -> list[Fault]:
        """Return why an outer choice does not go with ZeRO over so many of the ranks that hold copies; 1 for none."""
        ranks = outer.replicas * outer.variant.expert * outer.variant.context
        if self.hybrid or degree in (1, ranks):
            return []
        return [Fault("stage 0", f"ZeRO over {degree} of {ranks} ranks: {self.title} shards over all of them")]

    def recompute_faults(self, kind: Recompute, layers: int | None = None, chunks: int = 1) -> list[Fault]:
        """Return why the framework cannot compute so much again, in so many layers of each stage (None for all).

        Megatron-Core counts ``recompute_num_layers`` in each chunk, which is a block of its own
        (`transformer_block.py`, 0.13 to 0.16); a plan counts in the stage, whose first layers are in its first chunks.
        """
        if kind not in self.recomputes:
            return [Fault("recompute", f"{kind!r}: {self.title} computes whole layers again, or nothing")]
        if layers is not None and kind not in self.parts:
            what = f"{kind!r} in {layers} layers of a stage: {self.title} computes all of them again, or none"
            return [Fault("recompute", what)]
        if layers is not None and chunks > 1:
            what = f"{kind!r} in {layers} layers of a stage of {chunks} chunks: {self.title} counts in each chunk"
            return [Fault("recompute", what)]
        return []

    def schedule_faults(self, name: ScheduleName) -> list[Fault]:
        """Return why the framework cannot take the passes of a pipeline in an order."""
        if name in self.schedules:
            return []
        known = ", ".join(each for each in SCHEDULES if each in self.schedules)
        return [Fault("schedule", f"{name!r}: {self.title} is written with {known}")]

    def turn_faults(self, stages: int, microbatches: int) -> list[Fault]:  # noqa: ARG002 - a hook
        """Return why the framework cannot interleave so many microbatches of a replica in the order that is priced."""
        return []

    def require(self, given: Assignment) -> None:
        """Raise `Inexpressible`, naming the first stage or width, where the framework cannot run the plan."""
        for fault in self.schedule_faults(given.plan.schedule):
            raise Inexpressible(fault.where, fault.what, APPROXIMATE)
        require_order(given.plan, self.title)
        require_whole_nodes(given, self.title)
        faults = self.faults(given.run, given.model, given.outer)
        zero, degree = same_sharding(given.plan, self.title)
        faults += self.zero_faults(zero, given.outer)
        faults += self.degree_faults(degree, given.outer)
        kind, count = same_recompute(given.problem, given.plan, self.title)
        faults += self.recompute_faults(kind, count, given.plan.chunks)
        if given.plan.chunks > 1:
            faults += self.turn_faults(len(given.plan.stages), given.microbatches)
        for fault in faults:
            raise Inexpressible(fault.where, fault.what, APPROXIMATE)


def require_order(plan: Plan, title: str) -> None:
    """Refuse plans whose devices are not in the order of ranks that frameworks have: pipeline outermost, without gaps.

    Ranks count up in tensor, context, expert and data parallel, then from stage to stage. Devices that a plan leaves
    out around reserved ones have no rank.
    """
    width, replicas, line = plan.variant.width, plan.replicas, plan.line
    if plan.uneven:
        widths = ", ".join(str(variant.tensor) for variant in plan.stage_variants)
        raise Inexpressible("tensor", f"stages have tensor widths {widths}, in {title} all have one", APPROXIMATE)
    for at, stage in enumerate(plan.stages):
        where = f"stage {at}"
        if stage.devices != width:
            what = f"{stage.devices} devices in a replica, where the widths make {width}: sharded inside the stage"
            raise Inexpressible(where, what, APPROXIMATE)
        if line.position(stage.first_device) != at * width * replicas:
            due = int(line.devices(np.array(at * width * replicas)))
            what = f"begins at device {stage.first_device} ({plan.arrangement}), in {title} at {due}"
            raise Inexpressible(where, what, APPROXIMATE)
    if replicas > 1 and plan.replica_stride != width:
        what = f"{plan.replica_stride} devices from one replica to the next, in {title} {width}"
        raise Inexpressible("replica_stride", what, APPROXIMATE)


def require_whole_nodes(given: Assignment, title: str) -> None:
    """Refuse plans that leave out some devices of a node, and use several nodes: launchers start as many on each."""
    size = given.run.hardware.cluster.group_sizes[0]
    counts = Counter((given.places // size).tolist())
    part = next((node for node, count in counts.items() if count < size), None)
    if given.plan.line.shifts and len(counts) > 1 and part is not None:
        what = f"{counts[part]} of the {size} devices of node {part}: {title} is started on whole nodes"
        first, last = part * size, (part + 1) * size - 1
        remedy = f"leave the whole node out (--set down={first}..{last}), or {APPROXIMATE}"
        raise Inexpressible("devices", what, remedy)


def same_sharding(plan: Plan, title: str) -> tuple[int, int]:
    """Return ZeRO type and degree of all stages; raises `Inexpressible`, naming the first that has others."""
    first = plan.stages[0].sharding
    for at, stage in enumerate(plan.stages):
        own = stage.sharding
        if own != first:
            what = (
                f"ZeRO type {own.zero} over {own.degree} ranks, stage 0 has type {first.zero} over {first.degree}: "
                f"{title} has one setting for all stages"
            )
            raise Inexpressible(f"stage {at}", what, APPROXIMATE)
    return first.zero, first.degree


def able_layers(problem: Problem, plan: Plan, kind: Recompute) -> tuple[int, ...]:
    """Return how many layers of each stage can recompute in a way."""
    graph = problem.graphs[plan.variant]
    return tuple(
        sum(graph.layers[graph.index[name]].again(kind) is not None for name in stage.layers) for stage in plan.stages
    )


def same_kind(problem: Problem, plan: Plan, title: str) -> Recompute:
    """Return what all stages compute again that can; raises `Inexpressible`, naming the first that does otherwise."""
    kinds: list[Recompute] = [stage.recompute for stage in plan.stages]
    wanted: Recompute = next((kind for kind in kinds if kind != "none"), "none")
    counted = [at for at, able in enumerate(able_layers(problem, plan, wanted)) if able or kinds[at] != "none"]
    for at in counted:
        if kinds[at] != (first := kinds[counted[0]]):
            what = f"recomputes {kinds[at]!r}, stage {counted[0]} {first!r}: {title} has one setting for all stages"
            raise Inexpressible(f"stage {at}", what, APPROXIMATE)
    return wanted


def same_recompute(problem: Problem, plan: Plan, title: str) -> tuple[Recompute, int | None]:
    """Return what all stages compute again, and in how many layers of each, in all that can where these are fewer.

    The number is None where every stage recomputes in all of its layers that can.

    Raises
    ------
    Inexpressible
        Naming the first stage that does otherwise.
    """
    kind = same_kind(problem, plan, title)
    able = able_layers(problem, plan, kind)
    counts = [
        most if stage.recomputed is None else stage.recomputed for stage, most in zip(plan.stages, able, strict=True)
    ]
    if kind == "none" or tuple(counts) == able:
        return kind, None
    number = max(counts)
    if problem.training.recomputes_last:
        what = f"recomputes {kind!r} in the last of its layers: {title} takes the first"
        raise Inexpressible("stage 0", what, APPROXIMATE)
    for at, (count, most) in enumerate(zip(counts, able, strict=True)):
        if count != min(number, most):
            other = f"stage {counts.index(number)} in {number}"
            what = f"recomputes {kind!r} in {count} layers, {other}: {title} has one number for all stages"
            raise Inexpressible(f"stage {at}", what, APPROXIMATE)
    return kind, number


def common_faults(run: Run, outer: Outer) -> Iterator[Fault]:
    """Yield what no launcher does: replicas that get unequally many microbatches, nodes that are used in part."""
    once = outer.variant.microbatch * outer.variant.expert * outer.replicas
    if run.global_batch % once:
        what = f"{once} sequences at a time, microbatch x data parallel, do not divide {run.global_batch}"
        yield Fault("replicas", what)
    world, node = outer.variant.width * outer.stages * outer.replicas, run.hardware.cluster.group_sizes[0]
    if world > node and world % node:
        yield Fault("devices", f"{world}: the last node of {node} is used in part")


def plain_groups(context: int, title: str) -> Fault:
    """Return why ZeRO may not be over the context ranks of each replica: a mesh has an axis of shards besides."""
    return Fault("stage 0", f"ZeRO over the {context} context ranks of each replica: {title} shards over replicas, too")


def width_faults(outer: Outer, title: str, **most: int) -> list[Fault]:
    """Return widths above what a framework's file sets: ``stages=1`` for one that sets no pipeline."""
    values = {"stages": outer.stages} | {name: getattr(outer.variant, name) for name in ("tensor", "context", "expert")}
    return [
        Fault(name, f"{values[name]}: {title}'s settings make at most {limit}")
        for name, limit in most.items()
        if values[name] > limit
    ]


def header(given: Assignment, framework: Framework) -> list[str]:
    """Return the first lines of a file: what it is, and for which versions."""
    plan = given.plan
    chunks = f" of {plan.chunks} chunks" if plan.chunks > 1 else ""
    shape = f"{plan.variant}, {len(plan.stages)} stages{chunks}, {plan.replicas} replicas"
    return [
        f"# {given.problem.name}: {given.iteration_s:.6g} s an iteration",
        f"# {shape}",
        f"# Written by nest for {framework.title} {framework.versions}",
    ]
