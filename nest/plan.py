"""The plan: pure data, no figures that it did not choose or that a judge did not put in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Literal, TypeAlias

import numpy as np

from nest.errors import InvalidPlan
from nest.forms import Form, Variant
from nest.graph import Layer, LayerGraph, LayerId, Recomputed
from nest.line import EVERY, Line
from nest.presets import Arrangement, ScheduleName
from nest.problem import Recompute
from nest.units import Ints, Number

ShardingKind: TypeAlias = Literal["none", "replicas", "stage"]


@dataclass(frozen=True, slots=True)
class Sharding:
    """What a stage shards: ZeRO type 0 to 3 over ``degree`` ranks, over its replicas or inside the stage.

    Parameters
    ----------
    kind, zero, degree
        Inside the stage the degree says how many times as many devices it takes.
    splits_batch
        Whether these devices share the sequences of a microbatch, too, and do not only hold shards.
    """

    kind: ShardingKind = "none"
    zero: int = 0
    degree: int = 1
    splits_batch: bool = False

    def __post_init__(self) -> None:
        idle = (self.kind == "none", self.zero == 0, self.degree == 1)
        if any(idle) and not all(idle):
            raise InvalidPlan(
                "sharding",
                f"kind {self.kind!r}, zero {self.zero}, degree {self.degree} do not go together",
                "kind 'none' goes with zero 0 and degree 1, any other kind with zero 1 to 3 and a degree above 1",
            )
        if not 0 <= self.zero <= 3 or self.degree < 1:
            raise InvalidPlan("sharding", f"zero {self.zero}, degree {self.degree}", "zero is 0 to 3, degree from 1")
        if self.splits_batch and self.kind != "stage":
            what = f"kind {self.kind!r} splits the batch"
            raise InvalidPlan("sharding", what, "only devices added to a stage do: kind 'stage'")


UNSHARDED = Sharding()


def over_replicas(zero: int, degree: int) -> Sharding:
    """Return sharding of type ``zero`` over ``degree`` of the ranks that hold copies of a weight."""
    return Sharding("replicas", zero, degree) if zero > 0 else UNSHARDED


def inside_stage(zero: int, degree: int, *, splits_batch: bool = False) -> Sharding:
    """Return sharding of type ``zero`` inside the stage, over ``degree`` groups of its base width."""
    return Sharding("stage", zero, degree, splits_batch) if degree > 1 else UNSHARDED


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage.

    Parameters
    ----------
    layers
        Ids, in topological order.
    first_device, devices
        Block of devices in replica 0.
    recompute, sharding
        Inner choices.
    load_s, memory_bytes
        The judge's figures for this stage (seconds per microbatch, bytes per device); None until judged.
    recomputed
        How many layers recompute, the first of those that can, or the last where the training says so; None for all.
    tensor
        Tensor width of the stage; None for that of the plan's variant.

    Raises
    ------
    InvalidPlan
        If layers recompute nothing, or no layer recomputes something.
    """

    layers: tuple[LayerId, ...]
    first_device: int
    devices: int
    recompute: Recompute = "none"
    sharding: Sharding = UNSHARDED
    load_s: float | None = None
    memory_bytes: Number | None = None
    recomputed: int | None = None
    tensor: int | None = None

    def __post_init__(self) -> None:
        if self.recomputed is not None and (self.recompute == "none" or self.recomputed < 1):
            what = f"{self.recomputed} layers recompute {self.recompute!r}"
            raise InvalidPlan("recomputed", what, "give a number from 1 of layers that recompute, or leave it out")

    @property
    def inside(self) -> int:
        """How many times as many devices the stage takes as its widths make: 1 where it is not sharded inside."""
        return self.sharding.degree if self.sharding.kind == "stage" else 1

    def variant(self, variant: Variant) -> Variant:
        """Return of which variant its figures are in a plan of a variant; a rest of sequences is left out."""
        own = variant if self.tensor is None else variant.with_tensor(self.tensor)
        if not self.sharding.splits_batch:
            return own
        return replace(own, microbatch=own.microbatch // self.sharding.degree)

    def form(self, variant: Variant) -> Form:
        """Return what the stage is of in a plan of a variant."""
        return Form(self.variant(variant), self.inside, self.sharding.splits_batch)

    def repeats(self, layers: Sequence[Layer], *, last: bool) -> tuple[Recomputed | None, ...]:
        """Return for each of the stage's layers what it recomputes, None for those that keep all.

        Parameters
        ----------
        last
            Whether it is the last of those that can, and not the first (`Training.recomputes_last`).
        """
        left, found = inf if self.recomputed is None else self.recomputed, []
        for layer in reversed(layers) if last else layers:
            again = layer.again(self.recompute) if left > 0 else None
            left -= again is not None
            found.append(again)
        return tuple(reversed(found) if last else found)


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete plan; stages from the first of the pipeline on.

    Parameters
    ----------
    replica_stride
        Positions on the line from one replica to the next.
    technologies
        Names of what the links are, one for each level of the cluster that has a menu.
    line
        The devices that the plan may be on.
    chunks
        Parts of the model on each stage, 1 unless the schedule is interleaved: layers in a row, with those of all other
        stages between.
    """

    variant: Variant
    replicas: int
    replica_stride: int
    stages: tuple[Stage, ...]
    arrangement: Arrangement = "replica-major-reversed"
    schedule: ScheduleName = "1f1b"
    technologies: tuple[str, ...] = ()
    line: Line = EVERY
    chunks: int = 1

    @property
    def used_devices(self) -> int:
        """Devices of the line up to the last that the plan takes, in all replicas."""
        firsts = (self.line.position(stage.first_device) for stage in self.stages)
        lasts = (first + self.stride(at) * (self.replicas - 1) for at, first in enumerate(firsts))
        return max(last + stage.devices for last, stage in zip(lasts, self.stages, strict=True))

    def stages_of(self, graph: LayerGraph) -> tuple[int, ...]:
        """Return for each layer of a graph, by its place, the number of its stage; each has to be in one."""
        found = {name: at for at, stage in enumerate(self.stages) for name in stage.layers}
        return tuple([found[layer.id] for layer in graph.layers])

    def parts(self, graph: LayerGraph, at: int) -> tuple[tuple[int, ...], ...]:
        """Return the places of a stage's layers, each part that is in a row in the model by itself."""
        places = [graph.index[name] for name in self.stages[at].layers]
        if self.chunks == 1:
            return (tuple(places),)
        breaks = [0, *(at for at in range(1, len(places)) if places[at] != places[at - 1] + 1), len(places)]
        return tuple(tuple(places[first:end]) for first, end in pairwise(breaks))

    @property
    def stage_variants(self) -> tuple[Variant, ...]:
        """What each stage is of."""
        return tuple(stage.variant(self.variant) for stage in self.stages)

    @property
    def stage_forms(self) -> tuple[Form, ...]:
        """What each stage is of, and how far it is sharded inside."""
        return tuple(stage.form(self.variant) for stage in self.stages)

    @property
    def uneven(self) -> bool:
        """Whether tensor widths differ between stages."""
        return len({variant.tensor for variant in self.stage_variants}) > 1

    @property
    def sharded_inside(self) -> bool:
        """Whether some stage takes more devices than its widths make."""
        return any(stage.inside > 1 for stage in self.stages)

    def stride(self, at: int) -> int:
        """Return how far apart the replicas of a stage are: side by side where it has a width of its own in that."""
        stage = self.stages[at]
        beside = self.arrangement == "stage-major" and (stage.tensor is not None or stage.inside > 1)
        return stage.devices if beside else self.replica_stride

    def starts(self, at: int) -> Ints:
        """Return the first device of a stage in every replica."""
        apart = self.stride(at) * np.arange(self.replicas, dtype=np.int64)
        return self.line.devices(self.line.position(self.stages[at].first_device) + apart)

    def with_figures(self, loads_s: list[float], memory: list[Number]) -> Plan:
        """Return the plan with the judge's load and memory written on each stage."""
        stages = (
            replace(stage, load_s=load, memory_bytes=size)
            for stage, load, size in zip(self.stages, loads_s, memory, strict=True)
        )
        return replace(self, stages=tuple(stages))


@dataclass(frozen=True, slots=True)
class StageChoice:
    """What a solver decides about a stage: layers ``[first, end)`` by place in the order, and its sharding."""

    first: int
    end: int
    zero: int = 0
    degree: int = 1
