"""What one device can do: peak rates by data type, memory, and the links that leave it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf

from nest.errors import InvalidProblem
from nest.units import Number


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak rates of dense matrix products, without sparsity, in FLOP/s; None where the device has no such unit.

    Parameters
    ----------
    fp32
        Ordinary single precision (no TF32).
    tf32, bf16, fp16, fp8
        Of the matrix units, accumulating in single precision.
    """

    fp32: float | None = None
    tf32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None


DTYPES = tuple(field.name for field in fields(Peaks))
"""Names of the data types that have a peak rate."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator.

    Parameters
    ----------
    name
        As the catalogue and files have it.
    peaks
        FLOP/s by data type.
    hbm_bytes
        Memory that a process sees in total: what the driver reports, a little less than what is built in.
    hbm_bytes_per_s
        Peak bandwidth of that memory.
    source
        Where the figures are from.
    nominal_bytes
        Memory as the vendor means it; 0 if not stated.
    link_bytes_per_s
        Bandwidth of one link to another device (NVLink, xGMI, ICI) in one direction; 0 without such links.
    links
        How many such links it has.
    pcie_bytes_per_s
        Bandwidth to the host in one direction; 0 if not stated.

    Raises
    ------
    InvalidProblem
        If a figure is out of range, or there is no peak rate at all.
    """

    name: str
    peaks: Peaks
    hbm_bytes: Number
    hbm_bytes_per_s: float
    source: str = ""
    nominal_bytes: Number = 0
    link_bytes_per_s: float = 0.0
    links: int = 0
    pcie_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        rates = [rate for dtype in DTYPES if (rate := getattr(self.peaks, dtype)) is not None]
        if not rates:
            raise InvalidProblem(
                "device", f"{self.name!r} has no peak rate", f"give FLOP/s of one of {', '.join(DTYPES)}"
            )
        for what, value in (("hbm_bytes", self.hbm_bytes), ("hbm_bytes_per_s", self.hbm_bytes_per_s)):
            _check(f"device.{what}", value, least_exclusive=True)
        for rate in rates:
            _check("device.peaks", rate, least_exclusive=True)
        for name in ("nominal_bytes", "link_bytes_per_s", "links", "pcie_bytes_per_s"):
            _check(f"device.{name}", getattr(self, name), least_exclusive=False)

    def peak(self, dtype: str) -> float:
        """Return the peak rate for a data type in FLOP/s.

        Raises
        ------
        InvalidProblem
            If there is no such data type, or the device does not compute with it.
        """
        rate = getattr(self.peaks, dtype) if dtype in DTYPES else None
        if rate is None:
            known = ", ".join(name for name in DTYPES if getattr(self.peaks, name) is not None)
            raise InvalidProblem("dtype", f"{self.name} has no rate for {dtype!r}", f"choose one of {known}")
        return float(rate)

    @property
    def links_bytes_per_s(self) -> float:
        """Bandwidth of all links together, in one direction."""
        return self.links * self.link_bytes_per_s


def _check(where: str, value: Number, *, least_exclusive: bool) -> None:
    if not (0 < value < inf or (value == 0 and not least_exclusive)):
        raise InvalidProblem(where, f"{value!r}", f"give a finite number {'above' if least_exclusive else 'from'} 0")
