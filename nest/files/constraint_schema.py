"""The ``[[constraints]]`` of our problem format, declared: one table for each class of `nest.constraints`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from nest.files.allowed import RANGES, RANGES_ADVICE
from nest.files.limits import MOST_LAYERS, Bytes, Count, LayerName, LayerNames, Place, Switch, Table, Text

MOST_AMOUNT = 10**18

Amount: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=MOST_AMOUNT)] | Annotated[float, Meta(ge=0, le=MOST_AMOUNT)],
    Meta(description="a number from 0 to 1e18"),
]
LevelName: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=31)] | Annotated[str, Meta(min_length=1, max_length=10_000)],
    Meta(description="a level of the cluster: its number, from 0 for the innermost, or its name"),
]
Devices: TypeAlias = Annotated[list[Place], Meta(min_length=1, description="a list of device numbers, from 0 on")]
DeviceRange: TypeAlias = Annotated[
    list[Place], Meta(min_length=2, max_length=2, description="the first and the last device, as in [0, 7]")
]
Degrees: TypeAlias = Annotated[
    Count | Annotated[list[Count], Meta(min_length=1)] | Annotated[str, Meta(pattern=f"^{RANGES}$")],
    Meta(description=RANGES_ADVICE),
]
FewerLayers: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_LAYERS, description="a whole number from 0 to 10000")]


class ConstraintTable(Table, tag_field="kind"):
    """A side constraint."""


class AllowedDegreesTable(ConstraintTable, tag="allowed_degrees"):
    """Only some values of a width, of the microbatch, or of the numbers of replicas or stages."""

    axis: Annotated[
        Literal["tensor", "expert", "context", "microbatch", "replicas", "stages"],
        Meta(description='"tensor", "expert", "context", "microbatch", "replicas" or "stages"'),
    ]
    values: Degrees


class DividesTable(ConstraintTable, tag="divides"):
    """Widths that divide what they split."""

    heads: Count | UnsetType = UNSET
    kv_heads: Count | UnsetType = UNSET
    vocabulary: Count | UnsetType = UNSET
    experts: Count | UnsetType = UNSET
    sequence: Count | UnsetType = UNSET
    batch: Switch = False
    replicate_kv: Switch = True


class MaxStagesTable(ConstraintTable, tag="max_stages"):
    """No more than so many stages."""

    stages: Count


class MaxDevicesTable(ConstraintTable, tag="max_devices"):
    """No more than so many devices, all replicas together."""

    devices: Count


class ReservedDevicesTable(ConstraintTable, tag="reserved_devices"):
    """Devices that a plan leaves alone."""

    devices: Devices


class MemoryHeadroomTable(ConstraintTable, tag="memory_headroom"):
    """Memory of each device that no stage takes: a ``fraction`` of it, or ``bytes``."""

    fraction: Annotated[float, Meta(ge=0, lt=1, description="a number from 0 to below 1")] | UnsetType = UNSET
    bytes: Bytes | UnsetType = UNSET


class TogetherTable(ConstraintTable, tag="together"):
    """Layers that share a stage."""

    layers: LayerNames


class ApartTable(ConstraintTable, tag="apart"):
    """Layers of which no two share a stage."""

    layers: LayerNames


class CutsAtTable(ConstraintTable, tag="cuts_at"):
    """Layers with which a stage may begin."""

    layers: LayerNames


class EqualStagesTable(ConstraintTable, tag="equal_stages"):
    """All stages hold equally many layers, but for so many fewer in the first and the last."""

    first_lighter: FewerLayers = 0
    last_lighter: FewerLayers = 0
    counting: LayerNames | UnsetType = UNSET


class WithinLevelTable(ConstraintTable, tag="within_level"):
    """Each group of a kind lies in one group of a network level, in every replica."""

    what: Annotated[
        Literal["tensor", "context", "expert", "stage"],
        Meta(description='"tensor", "context", "expert" or "stage"'),
    ]
    level: LevelName


class PinTable(ConstraintTable, tag="pin"):
    """A stage, that of a ``layer`` or number ``stage``, that stands within some devices in replica 0."""

    devices: DeviceRange
    layer: LayerName | UnsetType = UNSET
    stage: (
        Annotated[
            int, Meta(ge=-MOST_LAYERS, le=MOST_LAYERS, description="the number of a stage, below 0 from the last")
        ]
        | UnsetType
    ) = UNSET


class LevelTrafficTable(ConstraintTable, tag="level_traffic"):
    """A budget of the bytes that cross a network level, or one outside it, in an iteration."""

    level: LevelName
    most_bytes: Amount


class BudgetTable(ConstraintTable, tag="budget"):
    """A budget of what the devices of a plan cost in an iteration."""

    most: Amount
    rate_per_device_s: Amount | UnsetType = UNSET
    price_per_device_hour: Amount | UnsetType = UNSET
    watts_per_device: Amount | UnsetType = UNSET
    unit: Text = ""


class DistinctStagesTable(ConstraintTable, tag="distinct_stages"):
    """No more than so many shapes of stages."""

    most: Count


class SameShardingTable(ConstraintTable, tag="same_sharding"):
    """Layers whose stages shard alike."""

    layers: LayerNames


AnyConstraint: TypeAlias = (
    AllowedDegreesTable
    | DividesTable
    | MaxStagesTable
    | MaxDevicesTable
    | ReservedDevicesTable
    | MemoryHeadroomTable
    | TogetherTable
    | ApartTable
    | CutsAtTable
    | EqualStagesTable
    | WithinLevelTable
    | PinTable
    | LevelTrafficTable
    | BudgetTable
    | DistinctStagesTable
    | SameShardingTable
)
ConstraintTables: TypeAlias = Annotated[list[AnyConstraint], Meta(description="a list of side constraints")]
