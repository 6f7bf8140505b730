"""Side constraints: what a user asks for beyond the space."""

from __future__ import annotations

from collections.abc import Mapping

from nest.constraints.base import (
    Constraint,
    CouplingConstraint,
    LocalConstraint,
    Mask,
    Outer,
    Run,
    Site,
    Whole,
    none_keeps,
)
from nest.constraints.budgets import Budget, DistinctStages, SameSharding
from nest.constraints.devices import MaxDevices, MemoryHeadroom, ReservedDevices
from nest.constraints.filters import Filters
from nest.constraints.layers import Apart, CutsAt, Together
from nest.constraints.pipeline import EqualStages, MaxStages
from nest.constraints.placement import Pin, WithinLevel
from nest.constraints.programme import Programme, Slot
from nest.constraints.traffic import LevelTraffic
from nest.constraints.widths import AllowedDegrees, Divides

KINDS: Mapping[str, type[Constraint]] = {
    each.kind: each
    for each in (
        *(AllowedDegrees, Divides, MaxStages, MaxDevices, ReservedDevices, MemoryHeadroom),
        *(Together, Apart, CutsAt, EqualStages, WithinLevel, Pin),
        *(LevelTraffic, Budget, DistinctStages, SameSharding),
    )
}
"""The side constraints that files know, by kind: local ones first, those that tie stages together last."""

__all__ = [
    "KINDS",
    "AllowedDegrees",
    "Apart",
    "Budget",
    "Constraint",
    "CouplingConstraint",
    "CutsAt",
    "DistinctStages",
    "Divides",
    "EqualStages",
    "Filters",
    "LevelTraffic",
    "LocalConstraint",
    "Mask",
    "MaxDevices",
    "MaxStages",
    "MemoryHeadroom",
    "Outer",
    "Pin",
    "Programme",
    "ReservedDevices",
    "Run",
    "SameSharding",
    "Site",
    "Slot",
    "Together",
    "Whole",
    "WithinLevel",
    "none_keeps",
]
