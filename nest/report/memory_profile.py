"""Memory profiles of other planners as text for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from nest.layer_profiles import MemoryProfile, RankMemory
from nest.layer_profiles.galvatron_memory import UNITS
from nest.report.format import counted, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

FORM = "Galvatron memory JSON"

_NAMES = ("Pipeline", "Tensor", "Data", "Layers", "Batch", "Rank", "States", "Kept", "Peak")
_COLUMNS = (*(Column(name, number=True) for name in _NAMES), Column("With", folds=True, least=8))


def memory_text(profile: MemoryProfile, screen: Screen) -> str:
    """Return what each rank held, by widths, and what the file derives."""
    summary = Summary()
    summary.add("Format", FORM)
    summary.add("Units", f"{UNITS}; shown in binary units")
    summary.add("Rows", counted(len(profile.rows), "rank"))
    summary.extend("Derived", (f"{name}: {size(held)}" for name, held in profile.derived))
    summary.extend("Warning", profile.warnings)
    return render(screen, ruled_table(_COLUMNS, [_cells(row) for row in profile.rows]), summary.table)


def memory_facts(profile: MemoryProfile) -> dict[str, object]:
    """Return what the text says, ready for JSON; null where the file says nothing."""
    return {
        "schema": "nest.memory-profile/1",
        "format": FORM,
        "units": UNITS,
        "rows": [asdict(row) for row in profile.rows],
        "derived": dict(profile.derived),
        "warnings": list(profile.warnings),
    }


def _cells(row: RankMemory) -> tuple[str, ...]:
    held = (row.states_bytes, row.activation_bytes, row.peak_bytes)
    return (
        *map(str, (row.pipeline, row.tensor, row.data, row.layers, row.batch, row.rank)),
        *("" if each is None else size(each) for each in held),
        row.options,
    )
