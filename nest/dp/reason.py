"""Why no plan exists: the reason that rules out the most, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nest.dp.relaxed import FULL
from nest.dp.sharding import ShardedStages, most
from nest.dp.sharding import least as fewest
from nest.dp.sum_reason import why_no_sum
from nest.dp.uniform import windows
from nest.problem import Problem
from nest.tables import Tables, VariantTables
from nest.units import Ints, bytes_of

GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one variant has no plan.

    Attributes
    ----------
    text
        A sentence without its end.
    excess
        How far from feasible: needed over available; the variant with the least excess is the one to report.
    """

    text: str
    excess: float


def why_infeasible(tables: Tables) -> str | None:
    """Return why no plan exists, or None where memory, devices and choices alone do not rule one out."""
    if tables.grouped_prices:
        return why_no_sum(tables)
    reasons = []
    for variant in tables.variants:
        reason = _why(variant)
        if reason is None:
            return None
        reasons.append((reason, variant))
    reason, variant = min(reasons, key=lambda pair: pair[0].excess)
    where = f"tensor width {variant.variant.tensor}: " if len(reasons) > 1 else ""
    others = " (no other variant is closer to fitting)" if len(reasons) > 1 else ""
    return f"{where}{reason.text}{others}"


def _why(tables: VariantTables) -> Reason | None:
    blocks = tables.devices // tables.width
    if blocks == 0:
        return Reason(
            f"a stage takes {tables.width} devices, {_devices(tables)}",
            tables.width / max(tables.devices, 1),
        )
    stages = ShardedStages(tables.band(1))
    if not stages.degrees:
        return Reason("every stage has to shard, and no sharding degree fits the devices", float("inf"))
    return _choices_reason(tables, blocks) or _layer_reason(tables, stages) or _pipeline_reason(tables, blocks)


def _choices_reason(tables: VariantTables, blocks: int) -> Reason | None:
    """Name the stages or replicas that the choices ask for and nothing can deliver."""
    choices, microbatches = tables.problem.choices, tables.problem.training.microbatches
    if choices.stages is not None and min(choices.stages) > tables.layers:
        return Reason(f"{min(choices.stages)} stages are asked for, the model has {tables.layers} layers", float("inf"))
    if choices.replicas is not None and min(choices.replicas) > min(microbatches, blocks):
        asked = min(choices.replicas)
        return Reason(
            f"{asked} replicas are asked for, there are {microbatches} microbatches and room for {blocks} replicas",
            asked / min(microbatches, blocks),
        )
    return None


def _layer_reason(tables: VariantTables, stages: ShardedStages) -> Reason | None:
    """Name the layer that does not fit a device even alone, in the last stage and under every sharding allowed."""
    least = fewest([stages.band.resident(zero, degree)[:, 0] for degree, zero in stages.shardings])
    worst = int(np.argmax(least))
    if least[worst] <= tables.capacity:
        return None
    needed = _bytes(tables, int(least[worst]))
    have = _bytes(tables, tables.capacity)
    return Reason(
        f"the stage that holds layer {tables.graph.layers[worst].id!r} needs at least {needed} on each device"
        f"{_sharding(tables.problem)}, a device has {have}",
        int(least[worst]) / max(tables.capacity, 1),
    )


def _pipeline_reason(tables: VariantTables, blocks: int) -> Reason | None:
    """Say that no microbatches in flight fit, or how many devices the stages need."""
    problem, choices = tables.problem, tables.problem.choices
    least = _least_blocks(tables)
    allowed = range(1, tables.layers + 1) if choices.stages is None else sorted(choices.stages)
    sizes = [int(least[count]) for count in allowed if count < len(least)]
    replicas = min(choices.replicas or {1})
    fewest = min(sizes, default=FULL)
    if fewest * replicas <= blocks:
        return None
    asked = "" if choices.stages is None else f" into {' or '.join(map(str, sorted(choices.stages)))} stages"
    if fewest >= FULL:
        have = _bytes(tables, tables.capacity)
        return Reason(
            f"no cut of the layers{asked} fits the memory{_sharding(problem)}: each layer fits a device of "
            f"{have} alone, but not with the microbatches in flight",
            float("inf"),
        )
    needed = fewest * replicas * tables.width
    return Reason(
        f"the smallest pipelines{asked} whose stages fit the memory{_sharding(problem)} take {needed} devices"
        f"{f' for {replicas} replicas' if replicas > 1 else ''}, {_devices(tables)}",
        needed / max(tables.devices, 1),
    )


def _least_blocks(tables: VariantTables) -> Ints:
    """Fewest blocks of a pipeline of 0, 1, ... stages whose stages fit the memory."""
    stages = ShardedStages(tables.band(max(1, tables.deepest)))
    layers = tables.layers
    limits = [
        (degree, most([stages.band.most_in_flight(zero, degree) for zero in stages.types(degree)]))
        for degree in reversed(stages.degrees)
    ]
    row = np.full(layers + 1 + stages.band.depth, FULL, dtype=np.int64)
    row[layers] = 0
    least = [FULL]
    for position in range(1, layers + 1):
        need = np.full(stages.band.valid.shape, FULL, dtype=np.int64)
        for degree, limit in limits:
            need[limit >= position] = degree
        total = need + windows(row, need.shape)
        row = np.full_like(row, FULL)
        np.minimum(total.min(axis=1), FULL, out=row[:layers])
        least.append(int(row[0]))
        if row.min() >= FULL:
            break
    return np.array(least, dtype=np.int64)


def why_constrained(tables: Tables) -> str | None:
    """Return that side constraints rule every plan out, where there are any: what is left when nothing else does."""
    texts = [constraint.text for constraint in tables.filters.local]
    if not texts:
        return None
    return f"no plan that fits keeps the side constraints: {'; '.join(texts)}"


def _devices(tables: VariantTables) -> str:
    devices = tables.problem.cluster.devices
    return f"the cluster has {devices}" if tables.devices == devices else f"{tables.devices} may be used"


def _sharding(problem: Problem) -> str:
    return " without ZeRO (zero = none)" if problem.choices.zero == {0} else ""


def _bytes(tables: VariantTables, quanta: int) -> str:
    size = bytes_of(quanta, tables.scale.quanta_per_byte)
    return f"{size:,} bytes ({size / GIBIBYTE:.1f} GiB)" if size >= GIBIBYTE else f"{size:,} bytes"
