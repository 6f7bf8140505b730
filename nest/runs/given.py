"""A plan that somebody already has, as a problem of its one variant and a plan of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from nest.cluster import Cluster
from nest.costing import Framework, LayerCost, LayerProfile, Layout, Recipe, Setting, layer_costs, split_parts
from nest.errors import InvalidProblem
from nest.families import Architecture
from nest.graph import Again, Layer
from nest.hardware import Device, Hardware
from nest.line import EVERY, Line
from nest.places import lines
from nest.plan import Plan, Stage, over_replicas
from nest.problem import Choices, Problem, Recompute, Variant
from nest.runs.chain import Chain
from nest.runs.graphs import GraphMaker, of_whole_tensors
from nest.runs.pose import preset_of
from nest.runs.training import stepping, training_of


@dataclass(frozen=True)
class Given:
    """A plan, and what it trains.

    Parameters
    ----------
    model, hardware
        What is trained, and on what.
    setting, layout
        Widths inside a stage; replicas, stages, ZeRO type and recomputation.
    recipe
        Bytes of a parameter.
    profile
        Measured times of layers, which override those that are modelled.
    """

    model: Architecture
    hardware: Hardware
    setting: Setting
    layout: Layout
    recipe: Recipe
    profile: LayerProfile | None = None

    @property
    def framework(self) -> Framework:
        """What the software does."""
        return self.setting.framework

    @property
    def global_batch(self) -> int:
        """Sequences of an iteration."""
        return self.layout.global_batch

    @property
    def cut_experts(self) -> bool:
        """Whether tensor parallel cuts routed experts, too."""
        return self.setting.expert_tensor > 1

    @property
    def reserved_bytes(self) -> int:
        """What framework and communication take of every device."""
        return self.layout.reserve

    @property
    def variant(self) -> Variant:
        """Widths and microbatch."""
        each = self.setting
        return Variant(each.tensor, each.expert, each.context, each.sequence_parallel, each.microbatch)

    @property
    def devices(self) -> int:
        """How many work."""
        return self.variant.width * self.layout.stages * self.layout.data

    @cached_property
    def costs(self) -> list[LayerCost]:
        """Costs of the blocks, in order; whole tensors cross boundaries, where the training splits them if it does."""
        if self.profile is not None:
            self.profile.require_used([of_whole_tensors(self.setting)])
        return self._costs_on(self.hardware.device)

    def _costs_on(self, device: Device) -> list[LayerCost]:
        setting = of_whole_tensors(self.setting)
        return self._chain.flattened(layer_costs(self.model, device, setting, self.profile))

    @cached_property
    def _chain(self) -> Chain:
        return Chain.of(self.model, given=True)

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Where the parts of the pipeline begin and end: its stages, or the first chunks of all, then the second."""
        return tuple(pairwise([0, *accumulate(len(blocks) for blocks in split_parts(self.costs, self.layout))]))

    @cached_property
    def problem(self) -> Problem:
        """The problem whose one variant is that of the plan.

        Raises
        ------
        InvalidProblem
            If the plan takes more devices than there are, a profile is of several classes of them, or its setting does
            not fit the model.
        """
        require_devices(self.devices, self.hardware)
        if self.profile is not None:
            self.hardware.require_one_class("a profile")
        kinds: tuple[Again, ...] = () if self.layout.recompute == "none" else (self.layout.recompute,)
        maker = GraphMaker(self, self._chain, kinds)
        others = tuple(
            (each.name, maker.graph(self._costs_on(device)).layers)
            for each, device in zip(self.hardware.cluster.classes, self.hardware.others, strict=True)
        )
        graph = replace(maker.graph(self.costs), others=others)
        name = f"{self.model.name or self.model.family} on {self.hardware.cluster.name}"
        choices = Choices(schedules=frozenset({self.layout.passes}))
        return Problem(name, {self.variant: graph}, stepping(self), training_of(self), choices, preset_of(choices))

    @cached_property
    def plan(self) -> Plan:
        """The plan, its ranks numbered as Megatron-LM does."""
        return laid_out(self.problem, self.variant, self.layout, self.parts)


def laid_out(problem: Problem, variant: Variant, layout: Layout, parts: Sequence[tuple[int, int]]) -> Plan:
    """Return the plan of a layout, its ranks numbered as Megatron-LM does.

    Parameters
    ----------
    problem, variant
        Whose layers it is of.
    layout
        Replicas, stages, ZeRO type and recomputation.
    parts
        Where the parts of the pipeline begin and end: its stages, or the first chunks of all, then the second.

    Raises
    ------
    InvalidProblem
        If more layers of a stage are to be computed again than any has that can.
    """
    layers, line = problem.graphs[variant].layers, _line(problem.cluster, variant.width, layout.first_class)
    ranks = problem.copy_ranks(variant, layout.data // layout.zero_groups)[0]
    sharding = over_replicas(layout.zero if ranks > 1 else 0, ranks)
    held = [
        tuple(layer for first, end in parts[at :: layout.stages] for layer in layers[first:end])
        for at in range(layout.stages)
    ]
    _check_again(layout, held)
    stages = []
    for at, own in enumerate(held):
        kind, count = _again(layout, at, own)
        start = int(line.devices(np.array(at * variant.width * layout.data, dtype=np.int64)))
        ids = tuple(layer.id for layer in own)
        stages.append(Stage(ids, start, variant.width, kind, sharding, recomputed=count))
    chosen = problem.cluster.technologies
    made = Plan(variant, layout.data, variant.width, tuple(stages), "stage-major", technologies=chosen, line=line)
    return replace(made, schedule=layout.passes, chunks=layout.virtual)


def _line(cluster: Cluster, width: int, first: str) -> Line:
    """Return the line of blocks of a width that begins with a class of devices, in the cluster's order if it may."""
    if not first:
        return EVERY
    names = cluster.class_names
    if first not in names:
        remedy = f"name one of {', '.join(names)}" if names else "leave it out: all devices are of one class"
        raise InvalidProblem("first_class", f"{first!r}", remedy)
    for line in lines(cluster, width, ()):
        if names[cluster.kinds[line.devices(np.array([0]))[0]]] == first:
            return line
    raise InvalidProblem("first_class", f"{first!r}", f"it has no block of {width} devices")


def require_devices(devices: int, hardware: Hardware) -> None:
    """Refuse a plan that takes more devices than there are; raises `InvalidProblem`."""
    have = hardware.cluster.devices
    if devices > have:
        what = f"{devices}, and the cluster has {have}"
        raise InvalidProblem("devices", what, "give a larger cluster, or fewer replicas, stages or widths")


def require_batch(layout: Layout, at_once: int) -> None:
    """Refuse replicas of which some have nothing to train; raises `InvalidProblem`.

    Parameters
    ----------
    at_once
        Sequences that a replica takes at a time: microbatch times expert ranks.
    """
    once = layout.data * at_once
    if once > layout.global_batch:
        what = f"{layout.global_batch} sequences, and data x expert x microbatch take {once} at a time"
        fewer = layout.global_batch // at_once
        remedy = f"fewer replicas, as with --data {fewer}" if fewer else "smaller widths"
        raise InvalidProblem("global_batch", what, f"give a larger batch, or {remedy}")


def _check_again(layout: Layout, held: Sequence[tuple[Layer, ...]]) -> None:
    """Refuse to compute more layers of a stage again than any stage has that can."""
    asked, most = max(layout.recomputed, default=0), max(_able(layout, layers) for layers in held)
    if asked > most:
        what = f"{asked} layers of a stage, and no stage has more than {most} that can"
        raise InvalidProblem("recompute_layers", what, f"give at most {most}, or leave it out for all")


def _able(layout: Layout, layers: tuple[Layer, ...]) -> int:
    """Return how many layers can compute again what is asked."""
    return sum(layer.again(layout.recompute) is not None for layer in layers)


def _again(layout: Layout, at: int, layers: tuple[Layer, ...]) -> tuple[Recompute, int | None]:
    """Return what a stage recomputes, and how many layers do; None for all that can."""
    kind, counts = layout.recompute, layout.recomputed
    able = _able(layout, layers)
    count = min(counts[at], able) if counts else able
    return ("none", None) if not count else (kind, None if count == able else count)
