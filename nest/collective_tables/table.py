"""Measured collectives: what a table of another planner says, in bytes, seconds and bytes per second."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias

from nest.errors import InvalidProblem

Kind: TypeAlias = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "p2p"]


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """A collective of one size; None where the table says nothing.

    Parameters
    ----------
    kind
        What it is.
    ranks
        How many take part.
    bytes
        Of the whole tensor, as nccl-tests count it: what an all-gather ends with, and an all-to-all sends.
    seconds
        How long it took.
    bus_bytes_per_s
        Bus bandwidth that the table gives instead of a time.
    group
        Which ranks take part.

    Raises
    ------
    InvalidProblem
        If a figure is not above 0.
    """

    kind: Kind
    ranks: int | None = None
    bytes: float | None = None
    seconds: float | None = None
    bus_bytes_per_s: float | None = None
    group: str = ""

    def __post_init__(self) -> None:
        for name in ("ranks", "bytes", "seconds", "bus_bytes_per_s"):
            value: float | None = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0):
                raise InvalidProblem(f"{self.kind}.{name}", f"{value}", "give a finite number above 0")

    @property
    def bus(self) -> float | None:
        """Bus bandwidth, by the factors of nccl-tests; None where ranks, size or time are not known."""
        if self.bus_bytes_per_s is not None:
            return self.bus_bytes_per_s
        if self.bytes is None or self.seconds is None:
            return None
        if self.kind == "p2p":
            return self.bytes / self.seconds
        if self.ranks is None:
            return None
        part = (self.ranks - 1) / self.ranks * (2 if self.kind == "all-reduce" else 1)
        return part * self.bytes / self.seconds


@dataclass(frozen=True, slots=True)
class CollectiveTable:
    """Collectives that were measured together.

    Parameters
    ----------
    form
        Format of the file.
    units
        What the numbers of the file are, since hardly any file says so itself.
    rows
        By kind, group and size.
    warnings
        What a user has to know before he trusts the numbers.
    """

    form: str
    units: str
    rows: tuple[CollectiveRow, ...]
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidProblem("", f"a table ({self.form}) without rows", "give the whole file")
