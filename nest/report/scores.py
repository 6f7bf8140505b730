"""The errors of a table of published figures, summed up."""

from __future__ import annotations

from dataclasses import dataclass

from nest.validation import Summary


@dataclass(frozen=True, slots=True)
class Scores:
    """What `nest validate` says of a table in one line.

    Parameters
    ----------
    rows, fitted
        All rows, and those on which constants were fitted.
    time, memory
        Errors; None where nothing of the kind was measured.
    wrong
        Labels of what fits that are predicted otherwise; None where there is no label.
    """

    rows: int
    fitted: int
    time: Summary | None
    memory: Summary | None
    wrong: int | None


def shown_share(value: float, *, signed: bool = True) -> str:
    """Return a share in per cent, with one decimal."""
    return f"{100 * value:{'+' if signed else ''}.1f} %"
