"""Tables of measured collectives as text for a terminal and as JSON."""

from __future__ import annotations

from nest.collective_tables import CollectiveRow, CollectiveTable
from nest.report.format import bandwidth, counted, duration, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

_COLUMNS = (
    Column("Collective"),
    Column("Group", folds=True, least=8),
    Column("Ranks", number=True),
    Column("Size", number=True),
    Column("Time", number=True),
    Column("Bus bandwidth", number=True),
)


def collectives_text(table: CollectiveTable, screen: Screen) -> str:
    """Return size, time and bus bandwidth of each collective, and what to be warned of."""
    summary = Summary()
    summary.add("Format", table.form)
    summary.add("Units", f"{table.units}; shown in bytes and seconds, bandwidths in decimal units")
    summary.add("Rows", counted(len(table.rows), "row"))
    summary.extend("Warning", table.warnings)
    return render(screen, ruled_table(_COLUMNS, [_cells(row) for row in table.rows]), summary.table)


def collectives_facts(table: CollectiveTable) -> dict[str, object]:
    """Return what the text says, ready for JSON; null where the table says nothing."""
    return {
        "schema": "nest.collectives/1",
        "format": table.form,
        "units": table.units,
        "rows": [
            {
                "collective": row.kind,
                "group": row.group,
                "ranks": row.ranks,
                "bytes": row.bytes,
                "seconds": row.seconds,
                "bus_bytes_per_s": row.bus,
            }
            for row in table.rows
        ],
        "warnings": list(table.warnings),
    }


def _cells(row: CollectiveRow) -> tuple[str, ...]:
    return (
        row.kind,
        row.group,
        "" if row.ranks is None else str(row.ranks),
        "" if row.bytes is None else size(row.bytes),
        "" if row.seconds is None else duration(row.seconds),
        "" if row.bus is None else bandwidth(row.bus),
    )
