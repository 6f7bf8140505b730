"""Units of bandwidth and latency, by the names of the keys that carry them; converted here and nowhere else."""

from __future__ import annotations

from fractions import Fraction

BANDWIDTHS = {
    "bandwidth_bytes_per_s": Fraction(1),
    "bandwidth_gb_per_s": Fraction(10**9),
    "bandwidth_gib_per_s": Fraction(2**30),
    "bandwidth_gbit_per_s": Fraction(10**9, 8),
}
"""Bytes per second in one of each."""

LATENCIES = {
    "latency_s": Fraction(1),
    "latency_ms": Fraction(1, 10**3),
    "latency_us": Fraction(1, 10**6),
    "latency_ns": Fraction(1, 10**9),
    "round_trip_s": Fraction(1, 2),
    "round_trip_ms": Fraction(1, 2 * 10**3),
    "round_trip_us": Fraction(1, 2 * 10**6),
}
"""Seconds one way in one of each; a round trip goes there and back."""


def converted(value: float, unit: Fraction) -> float:
    """Return so many units as a number of the base unit, correctly rounded: 3.4 us is 3.4e-6 s to the last digit."""
    return float(Fraction(repr(float(value))) * unit)
