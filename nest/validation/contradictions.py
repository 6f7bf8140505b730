"""Rows that other rows of their table contradict, with the proof in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nest.validation.compare import Comparison
from nest.validation.memory_bounds import MemoryBound, contradicted_memory
from nest.validation.twins import Twins, contradicted_times

GB = 10**9


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A row that others contradict.

    Parameters
    ----------
    place
        Of the row in its table.
    quantity
        What of it: its time, its memory, or whether it fits.
    reason
        The proof in words.
    """

    place: int
    quantity: Literal["time", "memory", "fits"]
    reason: str


def contradictions(comparisons: Sequence[Comparison]) -> list[Contradiction]:
    """Return the rows that others contradict.

    These rows stay in every average. What is said of them is that no predictor of the kind in `nest.validation.twins`
    and `nest.validation.memory_bounds` meets them and the others.
    """
    found = [
        Contradiction(place, "time", _time(comparisons, place, why))
        for place, why in contradicted_times(comparisons).items()
    ]
    for place, why in contradicted_memory(comparisons).items():
        quantity: Literal["memory", "fits"] = "fits" if comparisons[place].case.fits is False else "memory"
        found.append(Contradiction(place, quantity, _memory(comparisons, why)))
    return found


def _time(comparisons: Sequence[Comparison], place: int, twins: Twins) -> str:
    own = twins.one if place in (twins.one.few, twins.one.many) else twins.other
    other = twins.other if own is twins.one else twins.one
    partner = own.few if place == own.many else own.many
    names = [comparisons[at].case.name for at in (partner, other.few, other.many)]
    return (
        f"a layer of it takes {1e3 * own.more_s:.1f} ms for the attention that it has other than {names[0]}; the "
        f"same kernels take {1e3 * other.more_s:.1f} ms between {names[1]} and {names[2]}: whoever gives them equal "
        f"times is off by {100 * twins.least_error:.1f} % in one of the four"
    )


def _memory(comparisons: Sequence[Comparison], why: MemoryBound) -> str:
    names = " and ".join(comparisons[at].case.name for at, _ in why.witnesses)
    return (
        f"it would have to take {float(why.needed) / GB:.1f} GB; where {names} fits, which ran, no factors of the "
        f"parts of memory and no reserve make it more than {float(why.most) / GB:.1f} GB"
    )
