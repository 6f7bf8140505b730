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
