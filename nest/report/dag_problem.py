"""Graphs with branches as they were read, as text for a person and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from nest.dag import DagProblem
from nest.report.format import count, counted, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

SCHEMA = "nest.dag/1"

_COLUMNS = (
    Column("Class"),
    Column("Width", number=True),
    Column("Layers", number=True),
    Column("Options", number=True),
    Column("Time", number=True),
    Column("Fixed", number=True),
    Column("In flight", number=True),
    Column("Weights", number=True),
)


def dag_problem_text(problem: DagProblem, screen: Screen) -> str:
    """Return layers, edges and devices, and sums over the layers by class of devices and width."""
    summary, facts = Summary(), dag_problem_facts(problem)
    devices = ", ".join(f"{count(kind.count)} of class {kind.name}" for kind in problem.classes)
    memory = {kind.name: kind.memory_bytes for kind in problem.classes if kind.memory_bytes is not None}
    backward = sum(layer.backward for layer in problem.layers)
    summary.add("Problem", problem.name)
    summary.add("Loads", f"as {problem.preset.name} has them ({problem.preset.source}), in the file's unit of time")
    summary.add("Graph", f"{counted(len(problem.layers), 'layer')}, {counted(len(problem.edges), 'edge')}")
    summary.add("", f"{backward:,} of the layers are backward" if backward else "")
    summary.add("", f"{facts['colours']:,} colours, each in one stage" if facts["colours"] else "")
    summary.add("Devices", devices)
    summary.add("Memory", ", ".join(f"{size(held)} for class {name}" for name, held in memory.items()))
    if problem.preset.replicas:
        summary.add(
            "Batch", f"{counted(problem.microbatches, 'microbatch')}, {problem.bandwidth:g} bytes a unit of time"
        )
    summary.add("Sums", "of the first option of each layer; nest solve picks among all")
    return render(screen, ruled_table(_COLUMNS, _rows(problem)), summary.table)


def dag_problem_facts(problem: DagProblem) -> dict[str, object]:
    """Return what the text says, ready for JSON; times in the unit of the file."""
    return {
        "schema": SCHEMA,
        "name": problem.name,
        "preset": problem.preset.name,
        "nodes": len(problem.layers),
        "edges": len(problem.edges),
        "backward_nodes": sum(layer.backward for layer in problem.layers),
        "colours": len({layer.colour for layer in problem.layers} - {None}),
        "bandwidth": problem.bandwidth,
        "microbatches": problem.microbatches,
        "classes": [
            {"name": kind.name, "count": kind.count, "memory_bytes": kind.memory_bytes} for kind in problem.classes
        ],
        "widths": sorted({width for layer in problem.layers for _, width in layer.options}),
        "totals": [dict(zip(_KEYS, row, strict=True)) for row in _totals(problem)],
    }


_KEYS = ("class", "width", "layers", "options", "time", "fixed_bytes", "in_flight_bytes", "parameter_bytes")


_Totals: TypeAlias = tuple[str, int, int, int, float, float, float, float]


def _totals(problem: DagProblem) -> list[_Totals]:
    """Return sums over the first options of layers, for each class of devices and width."""
    layers, options = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    sums: dict[tuple[str, int], tuple[float, float, float, float]] = {}
    for layer in problem.layers:
        for key, ways in layer.options.items():
            layers[key] += 1
            options[key] += len(ways)
            first = ways[0]
            time, fixed, flying, weights = sums.get(key, (0.0, 0.0, 0.0, 0.0))
            sums[key] = (
                time + first.time,
                fixed + first.fixed_bytes,
                flying + first.in_flight_bytes,
                weights + first.parameter_bytes,
            )
    return [(*key, layers[key], options[key], *sums[key]) for key in sorted(sums)]


def _rows(problem: DagProblem) -> list[tuple[str, ...]]:
    return [
        (kind, str(width), str(layers), str(options), f"{time:.6g}", size(fixed), size(flying), size(weights))
        for kind, width, layers, options, time, fixed, flying, weights in _totals(problem)
    ]
