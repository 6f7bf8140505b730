"""The stages of a plan as a table that is read at a glance: a row each, or one for several that are alike."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.table import Table

from nest.plan import Plan, Sharding, Stage
from nest.problem import Problem
from nest.report.figures import PricedPlan
from nest.report.format import bar, duration, layer_range, level_name, number_range, percent, size
from nest.report.layout import Column, ruled_table

SEPARATE_ROWS = 16
"""Up to so many stages each has a row of its own."""

_BAR, _SHORT_BAR = 8, 4
"""Characters of a bar of memory, and where there are all columns."""


def stage_table(priced: PricedPlan) -> Table:
    """Return the table; the slowest stages carry an asterisk. What all stages share is `alike`, and has no column."""
    same = alike(priced)
    columns = [Column("Stage"), Column("Layers", folds=True), Column("Devices", number=True)]
    columns += [Column("Class")] if priced.problem.cluster.classes else []
    columns += [Column("Tensor", number=True)] if priced.plan.uneven else []
    columns += [Column(name) for name in ("Recomp", "ZeRO") if name not in same]
    columns += [
        Column("Load", number=True),
        Column(memory_head(priced.problem), number=True),
        Column("To next"),
    ]
    rows = groups(priced)
    slowest = [at for at, group in enumerate(rows) if group.start in priced.slowest]
    return ruled_table(columns, [tuple(_cells(priced, group, same)) for group in rows], slowest)


def memory_head(problem: Problem) -> str:
    """Return the head of a column of memory: with that of a device where all have as much."""
    sizes = {problem.cluster.hbm_bytes, *(each.hbm_bytes for each in problem.cluster.classes)}
    return f"Memory ({size(problem.cluster.hbm_bytes)})" if len(sizes) == 1 else "Memory"


def alike(priced: PricedPlan) -> dict[str, str]:
    """Return what all stages recompute and shard alike, by the name of the column that this makes needless."""
    found = {}
    kinds = {recompute_text(priced.problem, priced.plan, stage) for stage in priced.plan.stages}
    if len(kinds) == 1:
        kind = kinds.pop()
        found["Recomp"] = "no recomputation" if kind == "none" else f"recompute {kind}"
    shardings = {stage.sharding for stage in priced.plan.stages}
    if len(shardings) == 1:
        found["ZeRO"] = _in_words(shardings.pop(), _holders(priced.problem, priced.plan))
    return found


def groups(priced: PricedPlan) -> list[range]:
    """Return the stages of each row: of many, neighbours share one that differ in place and memory only."""

    def likeness(at: int) -> tuple[object, ...]:
        """Return what is equal for stages that share a row."""
        stage = priced.plan.stages[at]
        shape = len(stage.layers), stage.devices, stage.recompute, stage.recomputed, stage.sharding
        return (*shape, priced.evaluation.stages[at].load, priced.classes_text(at), priced.boundaries[at : at + 1])

    stages = range(len(priced.plan.stages))
    if len(stages) <= SEPARATE_ROWS:
        return [range(at, at + 1) for at in stages]
    runs = [list(run) for _, run in groupby(stages, key=likeness)]
    return [range(run[0], run[-1] + 1) for run in runs]


def stage_name(priced: PricedPlan, group: range) -> str:
    """Return the numbers of some stages, with an asterisk where they are the slowest."""
    return f"{number_range(group.start, group.stop - 1)}{'*' if group.start in priced.slowest else ''}"


def _cells(priced: PricedPlan, group: range, same: dict[str, str]) -> Iterator[str]:
    """Yield the row of some stages that are alike; of their memory, the largest."""
    stages, single = priced.plan.stages[group.start : group.stop], len(group) == 1
    yield stage_name(priced, group)
    names = layer_range([name for stage in stages for name in stage.layers])
    yield f"{names} ({len(stages[0].layers)})" if single else f"{names}, {len(stages[0].layers)} each"
    first_devices = [stage.first_device for stage in stages]
    yield number_range(min(first_devices), max(first_devices) + stages[0].devices - 1)
    if priced.problem.cluster.classes:
        yield priced.classes_text(group.start)
    if priced.plan.uneven:
        yield str(priced.plan.stage_variants[group.start].tensor)
    if "Recomp" not in same:
        yield recompute_text(priced.problem, priced.plan, stages[0])
    if "ZeRO" not in same:
        yield sharding_text(priced.problem, priced.plan, stages[0])
    yield duration(priced.evaluation.loads_s[group.start], aligned=True)
    most, capacity = max(priced.evaluation.memory_bytes[group.start : group.stop]), priced.capacity(group.start)
    full = f"{bar(most, capacity, _BAR if same else _SHORT_BAR)} {percent(most, capacity):>4}"
    yield f"{'' if single else '≤ '}{size(most, aligned=True)} {full}"
    level = priced.boundaries[group.start : group.start + 1]
    yield level_name(priced.problem.cluster, level[0]) if level else "-"


def recompute_text(problem: Problem, plan: Plan, stage: Stage) -> str:
    """Return what a stage recomputes, and of how many layers that can, where not all do, as in ``full 3/5``."""
    graph = problem.graphs.get(stage.variant(plan.variant))
    if stage.recomputed is None or graph is None:
        return stage.recompute
    able = sum(graph.layers[graph.index[name]].again(stage.recompute) is not None for name in stage.layers)
    return stage.recompute if stage.recomputed == able else f"{stage.recompute} {stage.recomputed}/{able}"


def sharding_text(problem: Problem, plan: Plan, stage: Stage) -> str:
    """Return ZeRO type and degree, as in ``1 x28``, ``1 x16/64`` if over some of the ranks with copies, or a dash.

    Where stages may shard either way, ``3 x2 inside`` is over devices of the stage, and ``3 x2 split`` over such that
    share the batch.
    """
    sharding, holders = stage.sharding, _holders(problem, plan)
    if sharding.kind == "none":
        return "-"
    text = f"{sharding.zero} x{sharding.degree}"
    if sharding.kind == "replicas":
        return text if sharding.degree == holders else f"{text}/{holders}"
    if sharding.splits_batch:
        return f"{text} split"
    return f"{text} inside" if problem.preset.sharding == "replicas" else text


def _holders(problem: Problem, plan: Plan) -> int:
    """Return how many ranks hold copies of a dense weight."""
    return problem.copy_ranks(plan.variant, plan.replicas)[0]


def _in_words(sharding: Sharding, holders: int) -> str:
    if sharding.kind == "none":
        return "no ZeRO"
    shared = ", which share the batch" if sharding.splits_batch else ""
    number, where = str(sharding.degree), f"groups of each stage{shared}"
    if sharding.kind == "replicas":
        where = "ranks that hold copies"
        number += f" of {holders}" if sharding.degree != holders else ""
    return f"ZeRO-{sharding.zero} over {number} {where}"
