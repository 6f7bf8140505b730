"""Answers to problems on graphs with branches, as text for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from nest.dag import DagResult, DagStage, Price
from nest.report.format import count, counted, duration, layer_range, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table
from nest.result import Status

_STYLES = {Status.OPTIMAL: "green", Status.FEASIBLE: "yellow"}


def dag_text(result: DagResult, screen: Screen) -> str:
    """Return the stages as a table with a summary, or why there are none."""
    problem, summary = result.problem, Summary()
    devices = ", ".join(f"{count(kind.count)} of class {kind.name}" for kind in problem.classes if kind.count)
    summary.add("Problem", f"{problem.name}: {counted(len(problem.layers), 'layer')}, devices: {devices}")
    summary.add(
        "Loads", f"as {problem.preset.name} has them ({problem.preset.source}), in the unit of time of the file"
    )
    summary.add("Status", _status(result), _STYLES.get(result.status, "red"))
    if result.value is not None:
        summary.add("Objective", f"{result.value:.10g}, the largest load of a stage")
    if result.bound_value is not None:
        summary.add("Bound", f"{result.bound_value:.10g}, proven: no plan has less")
    families = "all of them" if result.complete else "of a few topological orders"
    summary.add("Downsets", f"{count(result.downsets)}, {families}" if result.downsets else "")
    summary.add("Solver", f"dag, {duration(result.wall_s)}")
    if not result.stages:
        return render(screen, summary.table)
    return render(screen, _table(result), "", summary.table)


def _status(result: DagResult) -> str:
    if result.status is Status.OPTIMAL:
        return "optimal: proven, no way to cut the graph has a smaller largest load"
    name = "feasible, not proven the best" if result.status is Status.FEASIBLE else result.status.value
    return f"{name}: {result.reason}" if result.reason else name


def _table(result: DagResult) -> Table:
    columns = [Column("Stage"), Column("Layers", folds=True), Column("Devices"), Column("Options", folds=True)]
    columns += [Column("Load", number=True), Column("Memory", number=True)]
    pairs = list(zip(result.stages, result.prices, strict=True))
    slowest = [at for at, (_, price) in enumerate(pairs) if price.load == result.objective]
    return ruled_table(columns, [tuple(_cells(result, at, *pair)) for at, pair in enumerate(pairs)], slowest)


def _cells(result: DagResult, at: int, stage: DagStage, price: Price) -> Iterator[str]:
    yield f"{at}{'*' if price.load == result.objective else ''}"
    yield f"{layer_range(stage.layers)} ({len(stage.layers)})"
    shape = f" {stage.width} x {stage.replicas}" if result.problem.preset.replicas else ""
    yield f"{stage.kind}{shape}"
    several = result.problem.preset.replicas
    yield ", ".join(f"{number} {name}" for name, number in Counter(stage.options).items()) if several else "-"
    yield f"{result.load.value(price.load):.6g}"
    yield size(price.memory / result.load.bytes_scale, aligned=True)
