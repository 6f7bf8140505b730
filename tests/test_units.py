"""Ticks, byte quanta, and the rounding between them and what people write."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InvalidProblem
from nest.units import EXACT_LIMIT, FINEST_EXPONENT, TimeScale, byte_scale, bytes_of, distinct, finest_exponent, quanta


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [(2.4, 2), (2.5, 2), (2.6, 3), (3.5, 4), (0.5, 0), (0.0, 0)],
)
def test_rounding_takes_halves_to_even(seconds: float, ticks: int) -> None:
    """The one rounding rule, for a number and for an array."""
    scale = TimeScale(0)
    assert scale.ticks(seconds) == ticks
    assert scale.ticks_array(np.array([seconds])).tolist() == [ticks]


@given(
    exponent=st.integers(-3, FINEST_EXPONENT),
    parts=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_arrays_round_as_numbers_do(exponent: int, parts: list[float]) -> None:
    """A table and the judge get the same ticks for every time that a problem may have."""
    scale = TimeScale(exponent)
    seconds = [part * EXACT_LIMIT / scale.ticks_per_s for part in parts]
    assert scale.ticks_array(np.array(seconds)).tolist() == [scale.ticks(value) for value in seconds]


@pytest.mark.parametrize(
    ("exponent", "ticks", "seconds"),
    [(3, 1500, 1.5), (0, 7, 7.0), (-2, 7, 700.0), (18, 1, 1e-18), (15, 2**53, 9.007199254740992)],
)
def test_seconds_of_ticks(exponent: int, ticks: int, seconds: float) -> None:
    """Ticks come back as the nearest float."""
    assert TimeScale(exponent).seconds(ticks) == seconds


@given(seconds=st.floats(1e-30, 1e30))
def test_finest_exponent_is_the_finest(seconds: float) -> None:
    """The largest that keeps within the limit: one more would not."""
    exponent = finest_exponent(seconds, EXACT_LIMIT)
    assert Fraction(seconds) * Fraction(10) ** exponent <= EXACT_LIMIT
    finer = Fraction(seconds) * Fraction(10) ** (exponent + 1)
    assert exponent == FINEST_EXPONENT or finer > EXACT_LIMIT


def test_finest_exponent_worked() -> None:
    """2^53 is 9.007e15."""
    assert finest_exponent(1.0, EXACT_LIMIT) == 15
    assert finest_exponent(9.0, EXACT_LIMIT) == 15
    assert finest_exponent(9.1, EXACT_LIMIT) == 14
    assert finest_exponent(1e20, EXACT_LIMIT) == -5
    assert finest_exponent(0.0, EXACT_LIMIT) == FINEST_EXPONENT


@pytest.mark.parametrize(
    ("values", "scale"),
    [([], 1), ([1, 2.0, 10**20], 1), ([0.1], 10), ([0.5, 3], 10), ([0.125, 0.1], 1000), ([1e-12], 10**12)],
)
def test_byte_scale(values: list[float], scale: int) -> None:
    """The smallest power of ten that makes every count whole."""
    assert byte_scale(values) == scale


def test_byte_scale_of_endless_decimals() -> None:
    """More than twelve decimal places are no byte count."""
    with pytest.raises(InvalidProblem, match="too many decimal places"):
        byte_scale([1 / 3])


@pytest.mark.parametrize(
    ("value", "scale", "count"),
    [
        (0.1, 10, 1),
        (3, 10, 30),
        (2.675, 1000, 2675),  # 2.675 * 1000 is 2674.9999999999995 in floating point
        (10**20 + 1, 1, 10**20 + 1),
        (25.57, 10, 255),  # a capacity: what fits is the whole number below
        (25.5, 1, 25),
    ],
)
def test_quanta(value: float, scale: int, count: int) -> None:
    """Decimal places are those that people wrote."""
    assert quanta(value, scale) == count


@pytest.mark.parametrize(("count", "scale", "value"), [(5, 10, 0.5), (20, 10, 2), (7, 1, 7)])
def test_bytes_of_quanta(count: int, scale: int, value: float) -> None:
    """Whole bytes come back as whole numbers."""
    got = bytes_of(count, scale)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("values", [[], [3], [2, 2], [5, -1, 5, 0, -1]])
def test_distinct(values: list[int]) -> None:
    """Distinct values come once each, in ascending order."""
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))
