"""One published figure beside what we say, whatever it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nest.validation.figures import read_figures

Quantity: TypeAlias = Literal["time", "rate", "memory", "fits", "none"]
"""Time in seconds, a rate, memory in bytes, whether something fits; ``none`` where nothing can be compared."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A published figure, or an answer, and ours.

    Parameters
    ----------
    name, section
        For people to read.
    quantity, unit
        What it is; the unit in which it is printed (``s``, ``B``, ``B/s``, ``FLOP/s``, ``1``).
    published, predicted
        The figures; yes and no as 1 and 0; None where there is none.
    fitted
        Whether a constant was fitted on it.
    note
        What was assumed, or why nothing can be compared.
    """

    name: str
    section: str
    quantity: Quantity
    unit: str = "1"
    published: float | None = None
    predicted: float | None = None
    fitted: bool = False
    note: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over published, less 1; None where either is missing, or there is yes and no only."""
        if self.quantity in ("fits", "none") or self.published is None or self.predicted is None:
            return None
        return self.predicted / self.published - 1 if self.published else float(self.predicted != 0)

    @property
    def wrong(self) -> bool:
        """Whether it fits for us and did not for others, or the other way round."""
        return self.quantity == "fits" and self.predicted is not None and self.predicted != self.published


@dataclass(frozen=True, slots=True)
class FactTable:
    """A table of published figures that are no measured iterations.

    Parameters
    ----------
    name
        As given by users, and of the file with its source.
    facts
        Makes its rows.
    """

    name: str
    facts: Callable[[], tuple[Fact, ...]]

    @property
    def source(self) -> str:
        """Where the figures are from."""
        return read_figures(self.name)[0]


def left_out(name: str, why: str, published: float | None = None, unit: str = "1") -> Fact:
    """Return a row of which nothing can be compared, with what is published and why."""
    return Fact(name, "", "none", unit, published, note=why)
