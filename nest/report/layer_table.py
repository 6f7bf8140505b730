"""Tables of layers as text for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from nest.layer_tables import LayerFigures, LayerTable, Point, TableRow
from nest.report.format import counted, duration, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

SCHEMA = "nest.layer-table/1"

_COLUMNS = (
    Column("Layer", folds=True, least=12),
    Column("Kind", folds=True, least=8),
    Column("Times", number=True),
    Column("Forward", number=True),
    Column("Backward", number=True),
    Column("Weights", number=True),
    Column("Kept", number=True),
    Column("Sent", number=True),
)


def table_text(table: LayerTable, screen: Screen) -> str:
    """Return the layers at the first point, the sums at each, and what is missing and looks wrong."""
    first = table.complete[0] if table.complete else table.points[0]
    summary = Summary()
    summary.add("Table", f"{table.name}, {counted(_count(table), 'layer')}; above those at {first}")
    summary.extend("Sums", (f"{point}: {_sums(table, point)}" for point in table.complete))
    summary.extend("Not tried", (f"{point}: {why}" for point, why in table.missing.items()))
    summary.extend("Lacks", table.lacking)
    summary.extend("Noted", table.notes)
    summary.extend("Warning", table.warnings)
    return render(screen, ruled_table(_COLUMNS, [_cells(row) for row in table.at(first)]), summary.table)


def table_facts(table: LayerTable) -> dict[str, object]:
    """Return what the text says, and every row, ready for JSON; null for what nobody measured."""
    return {
        "schema": SCHEMA,
        "name": table.name,
        "layers": _count(table),
        "points": [
            {**point._asdict(), "complete": point in table.complete, **_totals(table, point)} for point in table.points
        ],
        "rows": [
            {"layer": row.name, "kind": row.kind, "count": row.count, **row.point._asdict(), **asdict(row.figures)}
            for point in table.points
            for row in table.at(point)
        ],
        "edges": None if table.edges is None else [list(edge) for edge in table.edges],
        "missing": [{**point._asdict(), "why": why} for point, why in table.missing.items()],
        "lacking": list(table.lacking),
        "notes": list(table.notes),
        "warnings": list(table.warnings),
    }


def _count(table: LayerTable) -> int:
    return sum(row.count for row in table.layers)


def _totals(table: LayerTable, point: Point) -> dict[str, float | None]:
    """Return sums over all layers, null where one of them has none."""
    found: dict[str, float | None] = {}
    for name in ("forward_s", "backward_s", "together_s", "parameters", "weight_bytes", "kept_bytes", "memory_bytes"):
        values = [(row.count, getattr(row.figures, name)) for row in table.at(point)]
        found[name] = None if any(each is None for _, each in values) else sum(count * each for count, each in values)
    return found


def _sums(table: LayerTable, point: Point) -> str:
    return ", ".join(_words(_totals(table, point))) or "nothing of all layers"


def _words(totals: dict[str, float | None]) -> Iterator[str]:
    for name, value in totals.items():
        what = name.removesuffix("_s").removesuffix("_bytes").replace("weight", "weights")
        if value is not None and name.endswith("_s"):
            yield f"{what} {duration(value)}"
        elif value is not None:
            yield f"{what} {value:,}" if name == "parameters" else f"{what} {int(value):,} bytes"


def _cells(row: TableRow) -> tuple[str, ...]:
    figures = row.figures
    return (
        row.name,
        row.kind,
        str(row.count),
        *_times(figures),
        _weights(figures),
        _size(figures.kept_bytes) or (f"in {size(figures.memory_bytes)}" if figures.memory_bytes is not None else ""),
        _size(figures.output_bytes),
    )


def _times(figures: LayerFigures) -> tuple[str, str]:
    if figures.together_s is not None:
        return "", f"both {duration(figures.together_s)}"
    times = (figures.forward_s, figures.backward_s)
    forward, backward = ("" if each is None else duration(each) for each in times)
    return forward, backward


def _weights(figures: LayerFigures) -> str:
    if figures.parameters is not None:
        return f"{figures.parameters:,} parameters"
    return _size(figures.weight_bytes)


def _size(count: int | None) -> str:
    return "" if count is None else size(count)
