"""Integer ticks and bytes, the one rounding rule, and the guards on their size.

Solvers compare integers only. A *tick* is a power of ten of a second; every elementary time (one layer's forward
pass, one transfer, one collective) is rounded to ticks once, here, and everything after that is exact integer
arithmetic, so the order of additions cannot matter. Bytes are whole numbers in practice; inputs with fractional
bytes are scaled by the power of ten that makes them whole (*quanta*), which loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nest.errors import InvalidProblem

Number: TypeAlias = int | float
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

EXACT_LIMIT = 2**53
"""Largest sum of costs a problem may reach in the common case: floats below it are exact integers."""

HARD_LIMIT = 2**62
"""No objective reaches this many ticks (rule C12): int64 arithmetic below it cannot overflow."""

LONGEST = 2**60
"""Elementary times stop counting here, and no load reaches it (rule C12): sums of a few of them fit int64."""

NEVER = 2**62
"""Load of a stage that must not be used."""

RELATIVE_ERROR = 1e-9
"""Rounding to ticks may not move an objective by more than this part of itself."""

FINEST_EXPONENT = 18


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The tick of a problem, ``10 ** -exponent`` seconds."""

    exponent: int

    @property
    def tick(self) -> Fraction:
        """Length of a tick in seconds, exactly."""
        return Fraction(10) ** -self.exponent

    @property
    def tick_s(self) -> float:
        """Length of a tick in seconds."""
        return float(self.tick)

    @property
    def ticks_per_s(self) -> float:
        """Ticks in one second, the factor used in rounding."""
        return 10.0**self.exponent

    def ticks(self, seconds: float) -> int:
        """Round seconds to ticks, halves to even, `LONGEST` at most."""
        return min(round(seconds * self.ticks_per_s), LONGEST)

    def ticks_array(self, seconds: Floats) -> Ints:
        """Round an array of seconds exactly as `ticks` rounds each of them."""
        return np.minimum(np.rint(seconds * self.ticks_per_s), LONGEST).astype(np.int64)

    def seconds(self, ticks: int) -> float:
        """Length of ``ticks`` in seconds, correctly rounded."""
        return float(ticks * self.tick)

    def seconds_at_least(self, ticks: int) -> float:
        """Length of ``ticks`` in seconds, rounded up, in the digits in which it is written."""
        found = self.seconds(ticks)
        return found if Fraction(repr(found)) >= ticks * self.tick else nextafter(found, inf)


def finest_exponent(seconds: float, limit: int) -> int:
    """Return the largest ``k`` with ``seconds * 10**k <= limit``, at most `FINEST_EXPONENT`."""
    if seconds <= 0:
        return FINEST_EXPONENT
    numerator, denominator = seconds.as_integer_ratio()
    room = limit * denominator // numerator
    if room > 0:
        return min(len(str(room)) - 1, FINEST_EXPONENT)
    excess = (numerator - 1) // (limit * denominator)
    return -len(str(excess))


def byte_scale(values: Iterable[Number]) -> int:
    """Return the smallest power of ten that makes every byte count whole.

    Raises
    ------
    InvalidProblem
        If more than twelve decimal places would be needed.
    """
    fractional = [value for value in values if value % 1]
    scale = 1
    for value in fractional:
        exact = Fraction(repr(value))
        while (exact * scale).denominator != 1:
            scale *= 10
            if scale > 10**12:
                raise InvalidProblem("bytes", f"{value!r} has too many decimal places", "give whole bytes")
    return scale


def quanta(value: Number, scale: int) -> int:
    """Return a byte count in quanta of ``1 / scale`` bytes."""
    if scale == 1:
        return int(value)
    exact = Fraction(repr(value)) * scale
    if exact.denominator != 1:
        return int(exact)  # only a capacity may fall between two quanta: what fits is the whole number below it
    return exact.numerator


def distinct(values: Ints) -> Ints:
    """Return the distinct values, ascending.

    `numpy.unique` without further results first imports `numpy.ma`, which takes longer than most solves.
    """
    values = np.sort(values, axis=None)
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]


def bytes_of(count: int, scale: int) -> Number:
    """Return a count of quanta in bytes, whole where it is whole."""
    whole, rest = divmod(count, scale)
    return whole if rest == 0 else count / scale
