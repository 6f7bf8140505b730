"""The stages of a plan as a table that is read at a glance: a row each, or one for several that are alike."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.table import Table

from nest.plan import Sharding, Stage
from nest.report.figures import PricedPlan
from nest.report.format import duration, layer_range, level_name, number_range, percent, size
from nest.report.layout import Column, ruled_table

SEPARATE_ROWS = 16
"""Up to so many stages each has a row of its own."""


def stage_table(priced: PricedPlan) -> Table:
    """Return the table; the slowest stages carry an asterisk."""
    columns = (
        Column("Stage"),
        Column("Layers", folds=True),
        Column("Devices", number=True),
        Column("Recomp"),
        Column("ZeRO"),
        Column("Load", number=True),
        Column(f"Memory ({size(priced.problem.cluster.hbm_bytes)})", number=True),
        Column("To next"),
    )
    rows = groups(priced)
    slowest = [at for at, group in enumerate(rows) if group.start in priced.slowest]
    return ruled_table(columns, [tuple(_cells(priced, group)) for group in rows], slowest)


def groups(priced: PricedPlan) -> list[range]:
    """Return the stages of each row: of many, neighbours share one that differ in place and memory only."""

    def likeness(at: int) -> tuple[object, ...]:
        stage = priced.plan.stages[at]
        shape = len(stage.layers), stage.devices, stage.recompute, stage.recomputed, stage.sharding
        return (*shape, priced.evaluation.stages[at].load, priced.boundaries[at : at + 1])

    stages = range(len(priced.plan.stages))
    if len(stages) <= SEPARATE_ROWS:
        return [range(at, at + 1) for at in stages]
    runs = [list(run) for _, run in groupby(stages, key=likeness)]
    return [range(run[0], run[-1] + 1) for run in runs]


def _cells(priced: PricedPlan, group: range) -> Iterator[str]:
    """Yield the row of some stages that are alike; of their memory, the largest."""
    stages, single = priced.plan.stages[group.start : group.stop], len(group) == 1
    mark = "*" if group.start in priced.slowest else ""
    yield f"{number_range(group.start, group.stop - 1)}{mark}"
    names = layer_range([name for stage in stages for name in stage.layers])
    yield f"{names} ({len(stages[0].layers)})" if single else f"{names}, {len(stages[0].layers)} each"
    first_devices = [stage.first_device for stage in stages]
    yield number_range(min(first_devices), max(first_devices) + stages[0].devices - 1)
    yield _recomputed(priced, stages[0])
    yield _sharding(stages[0].sharding)
    yield duration(priced.evaluation.loads_s[group.start], aligned=True)
    most, capacity = max(priced.evaluation.memory_bytes[group.start : group.stop]), priced.problem.cluster.hbm_bytes
    yield f"{'' if single else '≤ '}{size(most, aligned=True)} {percent(most, capacity):>4}"
    level = priced.boundaries[group.start : group.start + 1]
    yield level_name(priced.problem.cluster, level[0]) if level else "-"


def _recomputed(priced: PricedPlan, stage: Stage) -> str:
    """Return what a stage recomputes, and of how many layers that can, where not all of them do."""
    if stage.recomputed is None:
        return stage.recompute
    graph = priced.problem.graphs[priced.plan.variant]
    able = sum(graph.layers[graph.index[name]].again(stage.recompute) is not None for name in stage.layers)
    return f"{stage.recompute} {stage.recomputed}/{able}"


def _sharding(sharding: Sharding) -> str:
    if sharding.kind == "none":
        return "-"
    return f"{sharding.zero} x{sharding.degree}{' replicas' if sharding.kind == 'replicas' else ''}"
