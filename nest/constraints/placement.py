"""Side constraints on where stages stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from nest.constraints.base import LocalConstraint, Mask, Outer, Run, Site
from nest.constraints.checks import (
    as_layer,
    as_level,
    as_whole,
    group_size,
    level_at,
    places_of,
    require_device,
    require_layers,
)
from nest.constraints.layers import held
from nest.errors import InvalidProblem
from nest.graph import LayerId
from nest.problem import Problem, Variant
from nest.units import Ints

Grouping: TypeAlias = Literal["tensor", "context", "expert", "stage"]
"""Which devices belong together: those that share a layer's matrices, its sequence, its experts, or a stage."""


@dataclass(frozen=True)
class WithinLevel(LocalConstraint):
    """Each group of a kind lies in one group of a network level, in every replica.

    Parameters
    ----------
    what
        ``"tensor"``, ``"context"``, ``"expert"``, or ``"stage"``: the whole block of a stage, sharding included.
    level
        Number of the level, from 0 for the innermost, or its name.

    Notes
    -----
    Inside a block the ranks count up first in tensor, then in context, expert and ZeRO. The groups of a context width
    ``c >= 2`` interleave within ``t c`` neighbouring devices, and all lie within groups of a level if and only if these
    do; likewise those of the expert width within ``t c e``. A width of 1 makes groups of one device.
    """

    what: Grouping
    level: int | str

    kind: ClassVar[str] = "within_level"
    places_layers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.what not in get_args(Grouping):
            raise InvalidProblem(f"{self.kind}.what", f"{self.what!r}", f"give one of {', '.join(get_args(Grouping))}")
        object.__setattr__(self, "level", as_level(f"{self.kind}.level", self.level))

    @property
    def text(self) -> str:
        """What it asks for."""
        what = "stage" if self.what == "stage" else f"{self.what} group"
        return f"each {what} lies in one group of level {self.level!r}"

    def check(self, problem: Problem) -> None:
        """Refuse a level that the cluster does not have."""
        level_at(f"{self.kind}.level", problem, self.level)

    def looks_at_place(self, problem: Problem) -> bool:
        """Whether some plan keeps it in one place and breaks it in another."""
        size = self._room(problem)
        if size >= problem.cluster.devices:
            return False
        if self.what == "stage" and problem.choices.zero != {0} and problem.preset.sharding == "stage":
            return True
        units = (self._unit(variant) for variant in problem.variants)
        return any(unit <= size and size % unit > 0 for unit in units)

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether a group is small enough; all blocks start at multiples of their width, so that then it may fit."""
        return self._unit(outer.variant) <= self._room(problem)

    def admits_place(self, problem: Problem, outer: Outer, run: Run, site: Site) -> Mask:
        """Return which stages have all their groups, in all replicas, within a group of the level."""
        size, unit = self._room(problem), self._unit(outer.variant)
        if self.what == "stage":
            unit = site.devices
        groups = _residues(-(-site.devices // unit), unit, size)
        apart = outer.replicas if site.line.shifts else min(outer.replicas, size // gcd(site.stride, size))
        starts = site.blocks(apart)[..., None] + groups
        inside = (starts % size) + unit <= size
        return _like(np.all(inside, axis=(-2, -1)), run, site)

    def _room(self, problem: Problem) -> int:
        return group_size(f"{self.kind}.level", problem, self.level)

    def _unit(self, variant: Variant) -> int:
        """Return how many neighbouring devices are to lie together; of a stage the least, that without sharding."""
        widths = {"tensor": variant.tensor, "context": variant.context, "expert": variant.expert}
        if widths.get(self.what) == 1:
            return 1
        through = {"tensor": variant.tensor, "context": variant.tensor * variant.context}
        return through.get(self.what, variant.width)


@dataclass(frozen=True)
class Pin(LocalConstraint):
    """A stage that stands, in replica 0, within some devices.

    Parameters
    ----------
    devices
        The first and the last of them.
    layer
        The stage is the one that holds this layer.
    stage
        Or the one of this number, from 0 for the first of the pipeline, or from -1, counting down, for the last. A
        plan without such a stage is not allowed.
    """

    devices: Sequence[int]
    layer: LayerId | None = None
    stage: int | None = None

    kind: ClassVar[str] = "pin"
    looks_at_replicas: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if (self.layer is None) == (self.stage is None):
            what = "neither layer nor stage is" if self.layer is None else "layer and stage are both"
            raise InvalidProblem(self.kind, f"{what} given", "give one of them")
        if self.layer is not None:
            object.__setattr__(self, "layer", as_layer(f"{self.kind}.layer", self.layer))
        if self.stage is not None:
            object.__setattr__(self, "stage", as_whole(f"{self.kind}.stage", self.stage))
        object.__setattr__(self, "devices", self._ends())

    def _ends(self) -> tuple[int, ...]:
        """Return the first and the last device; they may be one and the same."""
        where, ends = f"{self.kind}.devices", self.devices
        found = tuple(ends) if isinstance(ends, Iterable) and not isinstance(ends, str) else ()
        devices = tuple(as_whole(where, device, 0) for device in found)
        if len(devices) != 2 or devices[0] > devices[1]:
            shown = list(devices) if devices else ends
            raise InvalidProblem(where, f"{shown!r}", "give the first and the last device, as in [0, 7]")
        return devices

    @property
    def text(self) -> str:
        """What it asks for."""
        stage = f"the stage of layer {self.layer!r}" if self.stage is None else f"stage {self.stage}"
        return f"{stage} of replica 0 stands within devices {self.devices[0]} to {self.devices[1]}"

    def check(self, problem: Problem) -> None:
        """Refuse a layer or devices that the problem does not have."""
        require_device(f"{self.kind}.devices", problem, self.devices[1])
        if self.layer is not None:
            require_layers(f"{self.kind}.layer", problem, [self.layer])

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether there is such a stage."""
        return self.stage is None or 1 <= self._position(outer.stages) <= outer.stages

    def admits_place(self, problem: Problem, outer: Outer, run: Run, site: Site) -> Mask:
        """Return which stages are within the devices, or are not the stage in question."""
        low, high = self.devices
        within = (site.start >= low) & (site.start + site.devices - 1 <= high)
        if self.layer is not None:
            own = held(places_of(problem, outer.variant, [self.layer]), run) > 0
        else:
            own = np.asarray(site.position == self._position(outer.stages))
        return _like(within | ~own, run, site)

    def _position(self, stages: int) -> int:
        """Return where the stage in question is, counted from the end, from 1 on."""
        stage = self.stage or 0
        return -stage if stage < 0 else stages - stage


def _residues(count: int, step: int, size: int) -> Ints:
    """Return where things that are ``step`` devices apart lie within groups of a size, each place once."""
    return np.arange(min(count, size // gcd(step, size)), dtype=np.int64) * step % size


def _like(mask: Mask | np.bool_, run: Run, site: Site) -> Mask:
    """Return a mask in the shape of the stages in question."""
    return np.broadcast_to(mask, np.broadcast(run.first, run.end, site.start).shape)
