"""Measurements as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from nest.costing import Measurement

COLUMNS = (
    *("kind", "microbatch", "tensor", "context", "sequence", "dtype", "forward_ms", "backward_ms", "kept_bytes"),
    "source",
)


def profile_csv(rows: Sequence[Measurement]) -> str:
    """Return measurements as a table; what a measurement does not say is an empty cell."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        times = (f"{1e3 * seconds:.6g}" for seconds in (row.forward_s, row.backward_s))
        settled = (row.kind, row.microbatch, row.tensor, row.context)
        writer.writerow((*settled, row.sequence or "", row.dtype or "", *times, _text(row.kept_bytes), row.source))
    return out.getvalue()


def _text(value: int | None) -> str:
    return "" if value is None else str(value)
