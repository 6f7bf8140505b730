"""Predicted against published as `nest validate` prints it: text for a terminal, and JSON of ``nest.validation/1``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nest.report.format import duration, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table
from nest.validation import Comparison, Table, summarise
from nest.validation import Summary as Errors
from nest.validation.compare import rank_correlations

SCHEMA = "nest.validation/1"

Found = Sequence[tuple[Table, Sequence[Comparison]]]


def validation_document(found: Found) -> dict[str, object]:
    """Return all rows and averages, ready for JSON; errors are shares, predicted over measured less 1."""
    return {"schema": SCHEMA, "tables": [_table_document(table, rows) for table, rows in found]}


def validation_text(found: Found, screen: Screen, *, rows: bool) -> str:
    """Return the averages of each table, with all of its rows if asked for."""
    parts = [render(screen, ruled_table(_SUMMARY_COLUMNS, [_summary_row(*each) for each in found]))]
    for table, comparisons in found if rows else ():
        notes = Summary()
        notes.add("Table", table.name)
        notes.add("Source", table.source)
        ranks = rank_correlations(comparisons)
        if len(ranks) > 1:
            notes.extend("Order", (f"{name}: rank correlation {rank:.2f}" for name, rank in ranks.items()))
        parts.append(render(screen, ruled_table(_ROW_COLUMNS, list(_rows(comparisons))), notes.table))
    return "\n\n".join(parts)


_SUMMARY_COLUMNS = (
    Column("Table"),
    Column("Rows", number=True),
    Column("Fitted", number=True),
    Column("Time: mean", number=True),
    Column("worst", number=True),
    Column("Memory: mean", number=True),
    Column("worst", number=True),
    Column("lowest", number=True),
    Column("Fits wrong", number=True),
)

_ROW_COLUMNS = (
    Column("Case (* fitted)", folds=True, least=24),
    Column("Measured", number=True),
    Column("Predicted", number=True),
    Column("Error", number=True),
    Column("Memory", number=True),
    Column("Predicted", number=True),
    Column("Error", number=True),
)


def _errors(comparisons: Sequence[Comparison]) -> tuple[Errors | None, Errors | None]:
    times = summarise(each.time_error for each in comparisons if each.time_error is not None)
    return times, summarise(error for each in comparisons for error in each.memory_errors)


def _summary_row(table: Table, comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    times, memory = _errors(comparisons)
    fitted = sum(each.case.fitted for each in comparisons)
    wrong = sum(each.case.fits is not None and each.fits != each.case.fits for each in comparisons)
    known = any(each.case.fits is not None for each in comparisons)
    held = (_share(memory.mean, signed=False), _share(memory.worst), _share(memory.lowest)) if memory else ("-",) * 3
    taken = (_share(times.mean, signed=False), _share(times.worst)) if times else ("-",) * 2
    return (table.name, str(len(comparisons)), str(fitted), *taken, *held, str(wrong) if known else "-")


def _rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    for each in comparisons:
        case, error = each.case, each.time_error
        measured = "-" if case.seconds is None else duration(case.seconds, aligned=True)
        time = (measured, duration(each.estimate.iteration_s, aligned=True), "-" if error is None else _share(error))
        worst = max(range(len(case.memory_bytes)), key=lambda at: abs(each.memory_errors[at]), default=None)
        held: tuple[str, ...] = ("-", size(each.estimate.peak_bytes), "-")
        if worst is not None:
            sizes = (size(case.memory_bytes[worst]), size(each.memory_bytes[worst]))
            held = (*sizes, _share(each.memory_errors[worst]))
        yield (f"{case.name}{' *' if case.fitted else ''}", *time, *held)


def _share(value: float, *, signed: bool = True) -> str:
    return f"{100 * value:{'+' if signed else ''}.1f} %"


def _table_document(table: Table, comparisons: Sequence[Comparison]) -> dict[str, object]:
    times, memory = _errors(comparisons)
    return {
        "name": table.name,
        "source": table.source,
        "time": None if times is None else {"mean": times.mean, "worst": times.worst},
        "memory": None if memory is None else {"mean": memory.mean, "worst": memory.worst, "lowest": memory.lowest},
        "rank_correlations": rank_correlations(comparisons),
        "rows": [_row_document(each) for each in comparisons],
    }


def _row_document(each: Comparison) -> dict[str, object]:
    return {
        "case": each.case.name,
        "section": each.case.section,
        "fitted": each.case.fitted,
        "measured_s": each.case.seconds,
        "predicted_s": each.estimate.iteration_s,
        "time_error": each.time_error,
        "measured_bytes": list(each.case.memory_bytes),
        "predicted_bytes": list(each.memory_bytes),
        "memory_errors": list(each.memory_errors),
        "ran": each.case.fits,
        "predicted_fits": each.fits,
    }
