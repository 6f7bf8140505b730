"""What tables of all kinds share."""

from __future__ import annotations

import numpy as np

from nest.units import Ints

UNLIMITED = 2**40
"""Number of microbatches in flight that no schedule reaches."""


def prefix(values: Ints) -> Ints:
    """Return the sums of the first 0, 1, ... values."""
    sums = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def prefixes(rows: Ints) -> Ints:
    """Return the same of each row."""
    sums = np.zeros((len(rows), rows.shape[1] + 1), dtype=np.int64)
    np.cumsum(rows, axis=1, out=sums[:, 1:])
    return sums
