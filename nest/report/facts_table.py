"""Tables of published figures that are no measured iterations, as rows of `nest validate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from nest.report.format import bandwidth, duration, size
from nest.report.layout import Column
from nest.report.scores import Scores, shown_share
from nest.validation import Fact, summarise

FACT_COLUMNS = (
    Column("Case (* fitted)", folds=True, least=24),
    Column("Published", number=True),
    Column("Predicted", number=True),
    Column("Error", number=True),
    Column("Note", folds=True, least=24),
)


def fact_scores(facts: Sequence[Fact]) -> Scores:
    """Return the errors of a table; rates count as times do."""
    labels = [fact for fact in facts if fact.quantity == "fits"]
    return Scores(
        len(facts),
        sum(fact.fitted for fact in facts),
        summarise(fact.error for fact in facts if fact.quantity in ("time", "rate") and fact.error is not None),
        summarise(fact.error for fact in facts if fact.quantity == "memory" and fact.error is not None),
        sum(fact.wrong for fact in labels) if labels else None,
    )


def fact_row(fact: Fact) -> tuple[str, ...]:
    """Return the cells of a figure."""
    name = f"{fact.section}: {fact.name}" if fact.section and fact.quantity not in ("fits", "none") else fact.name
    error = "wrong" if fact.wrong else "-" if fact.error is None else shown_share(fact.error)
    return (
        f"{name}{' *' if fact.fitted else ''}",
        _figure(fact, fact.published),
        _figure(fact, fact.predicted),
        error,
        fact.note,
    )


def fact_document(fact: Fact) -> dict[str, object]:
    """Return everything that is known of a figure, ready for JSON."""
    return {"case": fact.name, **asdict(fact), "error": fact.error, "wrong": fact.wrong}


def _figure(fact: Fact, value: float | None) -> str:
    if value is None:
        return "-"
    if fact.quantity == "fits":
        return "fits" if value else "does not"
    if fact.unit == "FLOP/s":
        return f"{value / 1e12:.1f} TFLOP/s"
    written = {"s": lambda: duration(value, aligned=True), "B": lambda: size(value), "B/s": lambda: bandwidth(value)}
    return written[fact.unit]() if fact.unit in written else f"{value:.4g}"
