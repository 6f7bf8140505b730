"""Predicted against published as `nest validate` prints it: text for a terminal, and JSON of ``nest.validation/1``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from nest.report.facts_table import FACT_COLUMNS, fact_document, fact_row, fact_scores
from nest.report.format import duration, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table
from nest.report.scores import Scores, shown_share
from nest.validation import (
    GOOD,
    Comparison,
    Contradiction,
    Fact,
    FactTable,
    Ranking,
    Table,
    contradictions,
    ranking,
    summarise,
)

SCHEMA = "nest.validation/1"

MARK = "!"
"""Stands behind rows that others contradict."""


@dataclass(frozen=True)
class Found:
    """A table with what was computed for its rows.

    Parameters
    ----------
    table
        The table.
    comparisons, facts
        Its measured iterations, or its other figures.
    """

    table: Table | FactTable
    comparisons: Sequence[Comparison] = ()
    facts: Sequence[Fact] = ()

    @property
    def scores(self) -> Scores:
        """Its errors, summed up."""
        return fact_scores(self.facts) if self.facts else _scores(self.comparisons)

    @cached_property
    def contradicted(self) -> Sequence[Contradiction]:
        """The rows that others contradict."""
        return contradictions(self.comparisons)

    @cached_property
    def ranking(self) -> Ranking:
        """The order of the rows in every section."""
        times = {each.place for each in self.contradicted if each.quantity == "time"}
        return ranking(self.comparisons, times)


def validation_document(found: Sequence[Found]) -> dict[str, object]:
    """Return all rows and averages, ready for JSON; errors are shares, predicted over measured less 1."""
    return {"schema": SCHEMA, "tables": [_table_document(each) for each in found]}


def validation_text(found: Sequence[Found], screen: Screen, *, rows: bool) -> str:
    """Return the averages of each table, with all of its rows if asked for."""
    parts = [render(screen, ruled_table(_SUMMARY_COLUMNS, [_summary_row(each) for each in found]))]
    for each in found if rows else ():
        notes = Summary()
        notes.add("Table", each.table.name)
        notes.add("Source", each.table.source)
        if each.comparisons:
            notes.extend("Order", _orders(each.ranking))
            notes.extend(f"Contradicted ({MARK})", _contradicted(each))
        table = (
            ruled_table(FACT_COLUMNS, [fact_row(fact) for fact in each.facts])
            if each.facts
            else ruled_table(_ROW_COLUMNS, list(_rows(each)))
        )
        parts.append(render(screen, table, notes.table))
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
    Column(f"Case (* fitted, {MARK} contradicted)", folds=True, least=24),
    Column("Measured", number=True),
    Column("Predicted", number=True),
    Column("Error", number=True),
    Column("Memory", number=True),
    Column("Predicted", number=True),
    Column("Error", number=True),
    Column("Fits", folds=True, least=4),
)


def _scores(comparisons: Sequence[Comparison]) -> Scores:
    known = [each for each in comparisons if each.case.fits is not None]
    return Scores(
        len(comparisons),
        sum(each.case.fitted for each in comparisons),
        summarise(each.time_error for each in comparisons if each.time_error is not None),
        summarise(error for each in comparisons for error in each.memory_errors),
        sum(each.fits != each.case.fits for each in known) if known else None,
    )


def _summary_row(found: Found) -> tuple[str, ...]:
    scores = found.scores
    time, memory = scores.time, scores.memory
    taken = (shown_share(time.mean, signed=False), shown_share(time.worst)) if time else ("-",) * 2
    held = (
        (shown_share(memory.mean, signed=False), shown_share(memory.worst), shown_share(memory.lowest))
        if memory
        else ("-",) * 3
    )
    wrong = "-" if scores.wrong is None else str(scores.wrong)
    return (found.table.name, str(scores.rows), str(scores.fitted), *taken, *held, wrong)


def _orders(ranking: Ranking) -> Iterator[str]:
    """Yield how well each section is ordered, beside how far its times are apart, and what others could reach."""
    if len(ranking.orders) < 2:
        return
    noise = f"{100 * ranking.scatter:.1f} %"
    yield f"rows of equal layers differ by up to {noise} in measured over predicted time; apart means by more"
    for name, order in ranking.orders.items():
        pairs = f"{order.right} of {order.apart} pairs apart in order" if order.apart else "no pair apart"
        rows = f"{order.rows} rows within {100 * order.spread:.0f} %"
        yield f"{name}: rank correlation {order.correlation:.2f}, {rows}, {pairs}"
        exact = f"{order.expected:.2f} on average, {GOOD} or more in {100 * order.chance:.0f} % of draws"
        limits = f"at most {order.limit:.2f}, {order.limit_rising:.2f} if more heads never are faster"
        free = order.uncontradicted
        without = "" if free == order.correlation else f"; {free:.2f} without contradicted rows"
        yield f"{name}: exact predictions {exact}; any predictor {limits}{without}"
    good = sum(order.correlation >= GOOD for order in ranking.orders.values())
    few, chance = f"{ranking.expected_good:.1f} on average", f"all in {100 * ranking.chance_all:.0f} % of draws"
    yield f"{good} of {len(ranking.orders)} sections at {GOOD} or more; exact predictions: {few}, {chance}"


def _contradicted(found: Found) -> Iterator[str]:
    for each in found.contradicted:
        yield f"{found.comparisons[each.place].case.name} ({each.quantity}): {each.reason}"


def _rows(found: Found) -> Iterator[tuple[str, ...]]:
    contradicted = {each.place for each in found.contradicted}
    for place, each in enumerate(found.comparisons):
        case, error = each.case, each.time_error
        measured = "-" if case.seconds is None else duration(case.seconds, aligned=True)
        predicted = duration(each.estimate.iteration_s, aligned=True)
        time = (measured, predicted, "-" if error is None else shown_share(error))
        worst = max(range(len(case.memory_bytes)), key=lambda at: abs(each.memory_errors[at]), default=None)
        held: tuple[str, ...] = ("-", size(each.estimate.peak_bytes), "-")
        if worst is not None:
            sizes = (size(case.memory_bytes[worst]), size(each.memory_bytes[worst]))
            held = (*sizes, shown_share(each.memory_errors[worst]))
        marks = f"{' *' if case.fitted else ''}{f' {MARK}' if place in contradicted else ''}"
        yield (f"{case.name}{marks}", *time, *held, _fits(each))


def _fits(each: Comparison) -> str:
    if each.case.fits is None:
        return "-"
    said = "yes" if each.case.fits else "no"
    return said if each.fits == each.case.fits else f"{said}, predicted {'yes' if each.fits else 'no'}"


def _table_document(found: Found) -> dict[str, object]:
    scores = found.scores
    time, memory = scores.time, scores.memory
    ordered = found.ranking
    return {
        "name": found.table.name,
        "source": found.table.source,
        "time": None if time is None else {"mean": time.mean, "worst": time.worst},
        "memory": None if memory is None else {"mean": memory.mean, "worst": memory.worst, "lowest": memory.lowest},
        "fits_wrong": scores.wrong,
        "scatter": ordered.scatter if ordered.orders else None,
        "rank_correlations": {name: order.correlation for name, order in ordered.orders.items()},
        "orders": {name: asdict(order) for name, order in ordered.orders.items()},
        "exact_sections_good": ordered.expected_good if ordered.orders else None,
        "exact_all_good": ordered.chance_all if ordered.orders else None,
        "rows": [fact_document(fact) for fact in found.facts] or list(_row_documents(found)),
    }


def _row_documents(found: Found) -> Iterator[dict[str, object]]:
    for place, each in enumerate(found.comparisons):
        reasons = {why.quantity: why.reason for why in found.contradicted if why.place == place}
        yield _row_document(each) | {"contradicted": reasons}


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
