"""Our problem format, declared: what a file may hold, from which the readers check and the JSON Schema is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from nest.cluster import MOST_CLASSES, PLAIN_LIBRARY, PLAIN_LINK
from nest.files.allowed import (
    ADVICE,
    GRAMMAR,
    RECOMPUTE_ADVICE,
    SCHEDULE_ADVICE,
    WIDTHS_ADVICE,
    WIDTHS_GRAMMAR,
    ZERO_ADVICE,
)
from nest.files.constraint_schema import ConstraintTables
from nest.files.left_out import LeftOutTable
from nest.files.limits import (
    MOST_LAYERS,
    Bandwidth,
    Bytes,
    Capacity,
    Count,
    Ends,
    LayerName,
    LayerNames,
    Price,
    Seconds,
    Switch,
    Table,
    Text,
    WholeId,
)
from nest.presets import ScheduleName
from nest.training import MOST_COPIES, PARTS

SCHEMA = "nest.problem/1"

AllowedValues: TypeAlias = Annotated[
    Count | Annotated[list[Count], Meta(min_length=1)] | Annotated[str, Meta(pattern=GRAMMAR)],
    Meta(description=ADVICE),
]
Widths: TypeAlias = Annotated[
    Count | Annotated[list[Count], Meta(min_length=1)] | Annotated[str, Meta(pattern=WIDTHS_GRAMMAR)],
    Meta(description=WIDTHS_ADVICE),
]
ZeroType: TypeAlias = Annotated[int, Meta(ge=0, le=3)]
ZeroTypes: TypeAlias = Annotated[
    ZeroType | Annotated[list[ZeroType], Meta(min_length=1)] | Literal["none", "any"], Meta(description=ZERO_ADVICE)
]
RecomputeKind: TypeAlias = Annotated[
    Literal["none", "selective", "full"], Meta(description='"none", "selective" or "full"')
]
RecomputeKinds: TypeAlias = Annotated[
    Literal["any", "none", "selective", "full"]
    | Annotated[list[Literal["none", "selective", "full"]], Meta(min_length=1)],
    Meta(description=RECOMPUTE_ADVICE),
]
ScheduleNames: TypeAlias = Annotated[
    ScheduleName | Annotated[list[ScheduleName], Meta(min_length=1)], Meta(description=SCHEDULE_ADVICE)
]
PriceLimit: TypeAlias = Annotated[
    Annotated[float, Meta(ge=0, le=1e15)] | Literal["any"], Meta(description='a price from 0, or "any"')
]
CopyCount: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_COPIES, description=f"a whole number from 0 to {MOST_COPIES}")]
CopyShare: TypeAlias = Annotated[
    float, Meta(ge=0, le=MOST_COPIES, description=f"a multiple of 1/{PARTS} from 0 to {MOST_COPIES}")
]
Part: TypeAlias = Annotated[float, Meta(ge=0, le=1, description="a part, a number from 0 to 1")]
RunLength: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_LAYERS, description=f"a whole number from 1 to {MOST_LAYERS}")]


class LinksTable(Table, kw_only=True):
    """What links are.

    ``link``, ``pair_bytes_per_s`` and ``in_network_reduction`` are read by preset "default".
    """

    link: Text = PLAIN_LINK
    pair_bytes_per_s: Bandwidth | UnsetType = UNSET
    in_network_reduction: Switch = False


class TechnologyTable(LinksTable, kw_only=True):
    """What the links of a level may be: one entry of its menu. Prices are in any unit that all menus share."""

    name: Annotated[str, Meta(min_length=1, max_length=1000, description="a name")]
    bandwidth_bytes_per_s: Bandwidth
    latency_s: Seconds
    price_per_device: Price = 0


class LevelTable(LinksTable, kw_only=True):
    """One level of the network: how many groups of the level below it joins, and what a path across it gives.

    Where ``alternatives`` are given, what a path gives is to be chosen, and stands there only.
    """

    fanout: Count
    bandwidth_bytes_per_s: Bandwidth | UnsetType = UNSET
    latency_s: Seconds | UnsetType = UNSET
    name: Text = ""
    alternatives: Annotated[list[TechnologyTable], Meta(max_length=64, description="a list of technologies")] = field(
        default_factory=list
    )


class ClassTable(Table, kw_only=True):
    """Devices of another class than the cluster's own: which, their memory, and the optimizer's step on them."""

    name: Annotated[str, Meta(min_length=1, max_length=1000, description="a name")]
    devices: Annotated[list[Ends], Meta(min_length=1, description="a list of ranges of devices")]
    hbm_bytes: Capacity
    step_s_per_byte: Seconds | UnsetType = UNSET


class ClusterTable(Table):
    """The cluster: devices on a line under a tree of network levels, innermost first.

    The fan-outs multiply to the number of devices, or, where the cluster is ``partial`` (the last groups may be
    incomplete), to that at least. ``library`` and ``classes`` are read by preset "default"; ``class`` is the name of
    the devices that ``classes`` do not have. ``technologies`` settle the menus.
    """

    devices: Count
    hbm_bytes: Capacity
    levels: Annotated[
        list[LevelTable], Meta(min_length=1, max_length=32, description="a list of 1 to 32 levels, innermost first")
    ]
    name: Text = ""
    partial: Switch = False
    library: Text = PLAIN_LIBRARY
    technologies: Annotated[list[Text], Meta(description="a list of names, one for each level with a menu")] = field(
        default_factory=list
    )
    own_class: Text = field(default="", name="class")
    classes: Annotated[list[ClassTable], Meta(max_length=MOST_CLASSES - 1, description="a list of classes")] = field(
        default_factory=list
    )


class CopiesTable(Table):
    """What a device holds of each weight besides it, and what is sent of it: bytes for each byte of it."""

    optimizer: CopyCount
    gradients: CopyCount = 1
    gathered: CopyShare = 1.0
    reduced: CopyShare | UnsetType = UNSET
    stepped: CopyCount = 0


class TrainingTable(Table):
    """One iteration: how many microbatches, or sequences, and the optimizer that follows.

    ``copies``, overlap, step and overhead are read by preset "default".
    """

    optimizer: Annotated[Literal["sgd", "adam"], Meta(description='"sgd" or "adam"')]
    microbatches: Count | UnsetType = UNSET
    global_batch: Count | UnsetType = UNSET
    copies: Annotated[CopiesTable, Meta(description="a table with optimizer and gradients")] | UnsetType = UNSET
    hides_gradients: Switch = False
    holds_gathered: Switch = False
    sums_whole: Switch = False
    splits_transfers: Switch = False
    blocking_sends: Switch = False
    recomputes_last: Switch = False
    buffers_boundaries: Switch = False
    whole_experts: Switch = False
    overlap_tax: Part = 0.0
    step_s_per_byte: Seconds = 0.0
    overhead_bytes: Bytes = 0


class ChoicesTable(Table):
    """What the solver may choose; everything that is not named is free, recomputation is off.

    ``variant_recompute`` is how ``stage_recompute`` was called before stages chose for themselves.
    """

    tensor: AllowedValues = "any"
    expert: AllowedValues = "any"
    context: AllowedValues = "any"
    microbatch: AllowedValues = "any"
    sequence: Annotated[bool | Literal["any"], Meta(description='true, false or "any"')] = "any"
    replicas: AllowedValues = "any"
    stages: AllowedValues = "any"
    zero: ZeroTypes = "any"
    zero_degree: AllowedValues = "any"
    recompute: Annotated[Literal["none", "full"], Meta(description='"none" or "full"')] = "none"
    stage_recompute: RecomputeKinds = "any"
    recomputed: AllowedValues = "any"
    hybrid: Switch = True
    stage_tensor: Widths = "none"
    shard_inside: Widths = "none"
    splits_batch: Annotated[bool | Literal["any"], Meta(description='true, false or "any"')] = False
    price_at_most: PriceLimit = "any"
    variant_recompute: RecomputeKinds | UnsetType = UNSET
    schedules: ScheduleNames = "1f1b"
    chunks: AllowedValues = "any"


class LayerRun(Table):
    """Layers of one kind in a row: one with its ``id``, several with ``ids``, or ``count`` from ``first_id`` on.

    Without any of the three the ids are the places of the layers, counted from 0.
    """

    kind: Text = ""
    id: LayerName | UnsetType = UNSET
    ids: LayerNames | UnsetType = UNSET
    first_id: WholeId | UnsetType = UNSET
    count: RunLength | UnsetType = UNSET


class VariantKeys(Table):
    """Widths and microbatch for which a figure holds.

    ``recompute`` is how the figures of ``recomputed`` were given before stages chose for themselves: in rows apart.
    """

    tensor: Count = 1
    expert: Count = 1
    context: Count = 1
    sequence: Switch = False
    microbatch: Count = 1
    recompute: RecomputeKind = "none"


class CollectiveTable(Table):
    """What the devices that share something of a layer exchange, for one microbatch."""

    kind: Annotated[
        Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring"],
        Meta(description='"all-reduce", "all-gather", "reduce-scatter", "all-to-all" or "ring"'),
    ]
    bytes: Bytes
    axis: Annotated[Literal["tensor", "context", "expert"], Meta(description='"tensor", "context" or "expert"')]
    when: Annotated[
        Literal["forward", "backward", "recompute"], Meta(description='"forward", "backward" or "recompute"')
    ]
    hidden_s: Seconds = 0.0


class RecomputedTable(Table):
    """What differs in a layer that computes something again; ``collectives`` are those that it repeats."""

    kind: Annotated[Literal["selective", "full"], Meta(description='"selective" or "full"')]
    repeated_s: Seconds
    activation_bytes: Bytes
    working_bytes: Bytes = 0
    collectives: Annotated[list[CollectiveTable], Meta(description="a list of collectives")] = field(
        default_factory=list
    )


class CostRow(VariantKeys, kw_only=True):
    """Costs, under one variant, of the layers of a ``kind`` or (these come first) of the layers with these ``ids``.

    ``output_bytes`` is what an edge carries that leaves such a layer and does not say otherwise, ``tied_bytes`` what of
    its weights is a copy of those of the model's ``table``, ``weight_share`` the part of ``backward_s`` that takes
    gradients of weights, ``result_bytes`` what leaves the model behind the layer. A row with a ``class`` has the times
    on devices of that class, and the bytes of the row without.
    """

    forward_s: Seconds
    backward_s: Seconds
    parameter_bytes: Bytes
    activation_bytes: Bytes
    output_bytes: Bytes | UnsetType = UNSET
    expert_parameter_bytes: Bytes = 0
    working_bytes: Bytes = 0
    tied_bytes: Bytes = 0
    result_bytes: Bytes = 0
    recompute_s: Seconds = 0.0
    weight_share: Part | UnsetType = UNSET
    collectives: Annotated[list[CollectiveTable], Meta(description="a list of collectives")] = field(
        default_factory=list
    )
    recomputed: Annotated[list[RecomputedTable], Meta(description="a list of tables, one for each kind")] = field(
        default_factory=list
    )
    kind: Text | UnsetType = UNSET
    ids: LayerNames | UnsetType = UNSET
    of_class: Text = field(default="", name="class")


class BytesRow(VariantKeys, kw_only=True):
    """Bytes that an edge carries under one variant."""

    bytes: Bytes


EdgeBytes: TypeAlias = Annotated[
    Bytes | Annotated[list[BytesRow], Meta(min_length=1)],
    Meta(description="bytes, or a list of tables with the bytes of every variant"),
]


class EdgeTable(Table):
    """Tensors from one layer to another, or to several; they carry the source's ``output_bytes`` if not given."""

    source: LayerName
    target: Annotated[LayerName | LayerNames, Meta(description="the id of a layer, or a list of ids")]
    bytes: EdgeBytes | UnsetType = UNSET


class ModelTable(Table):
    """The model: its layers, the costs of each kind under each variant, and the tensors between layers.

    Each layer feeds the next one. ``skips`` are edges in addition to that, ``edges`` are instead of it. Layers may
    use the weights of one again, the ``table``.
    """

    layers: Annotated[list[LayerRun], Meta(min_length=1, description="a list of layers, at least one")]
    costs: Annotated[list[CostRow], Meta(min_length=1, description="a list of cost rows, at least one")]
    skips: Annotated[list[EdgeTable], Meta(description="a list of edges")] = field(default_factory=list)
    edges: Annotated[list[EdgeTable], Meta(description="a list of edges")] | UnsetType = UNSET
    table: LayerName | UnsetType = UNSET


class ProblemFile(Table):
    """A problem for `nest`: model, cluster, training, choices. Times are seconds, sizes bytes."""

    schema: Annotated[Literal["nest.problem/1"], Meta(description='"nest.problem/1", the version read here')]
    preset: Annotated[str, Meta(description='a preset, "default", "paper" or "artifact"')]
    cluster: Annotated[ClusterTable, Meta(description="a table of the cluster")]
    training: Annotated[TrainingTable, Meta(description="a table of the training")]
    model: Annotated[ModelTable, Meta(description="a table of the model")]
    choices: ChoicesTable = field(default_factory=ChoicesTable)
    constraints: ConstraintTables = field(default_factory=list)
    left_out: Annotated[list[LeftOutTable], Meta(description="a list of what a run left out")] = field(
        default_factory=list
    )
    name: Text | UnsetType = UNSET
    source: Text = ""
    time_unit_s: Annotated[
        float, Meta(ge=1e-12, le=1e9, description="the unit of the objective in seconds, from 1e-12 to 1e9")
    ] = 1.0


def problem_schema() -> dict[str, Any]:
    """Return the JSON Schema of our problem format, as published in ``docs/problem.schema.json``."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Problem file of nest, {SCHEMA}"}
    return head | msgspec.json.schema(ProblemFile)
