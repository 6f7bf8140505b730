"""What a search does with the outer choices that it looks at, for people to read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from nest.dp.sum_outer import SumChoice
from nest.presets import ScheduleName
from nest.problem import Variant

Fate: TypeAlias = Literal["no room", "too slow where it stands", "nothing better", "best so far"]
"""Ruled out by what fits the memory, or by a bound from its places; or settled, without a better plan or with one."""


@dataclass(frozen=True, slots=True)
class Looked:
    """An outer choice that came up in a search.

    Attributes
    ----------
    schedule, chunks
        Of its pipelines.
    bound_ticks
        Below which none of its plans is, as it was known when it came up.
    value_ticks
        Its best plan, if that was the best so far; else None.
    """

    variant: Variant
    choice: SumChoice
    schedule: ScheduleName
    chunks: int
    bound_ticks: int
    value_ticks: int | None
    fate: Fate


class Trace:
    """Outer choices in the order in which they came up, each once."""

    def __init__(self) -> None:
        self._looked: dict[tuple[Variant, SumChoice, ScheduleName, int], Looked] = {}

    @property
    def looked(self) -> tuple[Looked, ...]:
        """All that came up, those with the least bounds first."""
        return tuple(sorted(self._looked.values(), key=lambda each: each.bound_ticks))

    def came_up(self, what: tuple[Variant, SumChoice, ScheduleName, int], bound: int, *, fits: bool) -> None:
        """Note a choice with its bound, and whether there is room for plans that could be better."""
        self._looked[what] = Looked(*what, bound, None, "too slow where it stands" if fits else "no room")

    def settled(self, what: tuple[Variant, SumChoice, ScheduleName, int], value: int | None) -> None:
        """Note that a choice is settled in some place, and the ticks of a plan that is better than all before."""
        known = self._looked[what]
        if value is not None:
            self._looked[what] = replace(known, value_ticks=value, fate="best so far")
        elif known.value_ticks is None:
            self._looked[what] = replace(known, fate="nothing better")
