"""From the finished rows of the recursion over places back to the stages of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nest.dp.relaxed import FULL
from nest.plan import StageChoice

if TYPE_CHECKING:
    from nest.dp.placing import Limits, Placing, Row


@dataclass(frozen=True, slots=True)
class _Spot:
    """A stage about to be cut: its position from the end, first layer, degree, the degree above it, and its place."""

    position: int
    first: int
    own: int
    above: int
    place: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """The best way to cut the stage of a spot: blocks below it, layers less one, degree below, class of levels."""

    blocks: int
    column: int
    below: int
    kind: int


def stages_of(placing: Placing, rows: list[Row], limits: Limits, first_limits: Limits) -> list[StageChoice] | None:
    """Place the first stage on finished rows, and walk back to the last.

    Parameters
    ----------
    rows
        Rows under the 1st, 2nd, ... stage from the end, up to the first of the pipeline.
    limits, first_limits
        What stages must keep to, and what the first must.

    Returns
    -------
    list of StageChoice or None
        From the first stage on; None where the first cannot be placed within the budget.
    """
    none, layout = len(placing.degrees), placing.layout
    for own, degree in enumerate(placing.degrees):
        for end in layout.ends:
            spot = _Spot(placing.count, 0, own, none, (end - degree) % layout.cycle)
            cut = _cut(placing, rows, spot, first_limits)
            if cut is not None and cut.blocks + degree <= layout.budget:
                return _walk(placing, rows, spot, cut, (limits, first_limits))
    return None


def _walk(
    placing: Placing, rows: list[Row], spot: _Spot, cut: _Cut | None, both: tuple[Limits, Limits]
) -> list[StageChoice]:
    limits, keep = both
    choices = []
    while cut is not None:
        end = spot.first + 1 + cut.column
        choices.append(StageChoice(spot.first, end, _type(spot, cut, keep), placing.degrees[spot.own]))
        if spot.position == 1:
            return choices
        place = (spot.place - placing.degrees[cut.below]) % placing.layout.cycle
        spot = _Spot(spot.position - 1, end, cut.below, spot.own, place)
        keep = limits
        cut = _cut(placing, rows, spot, keep)
    raise AssertionError("every finished row was reached from the one before")


def _cut(placing: Placing, rows: list[Row], spot: _Spot, limits: Limits) -> _Cut | None:
    """Return the cut with the least blocks below, None where there is none."""
    which = placing.classes(placing.degrees[spot.own]).which[:, spot.above, spot.place]
    row = rows[spot.position - 1].between(spot.first + 1, spot.first + 1 + placing.band.depth)
    usable = limits.of(spot.own)[spot.first].take(which, axis=1) >= spot.position
    admitted = placing.masks.inner(placing.role(spot.position))
    if admitted is not None:
        usable &= admitted[spot.first, :, None]
    placed = placing.placed(spot.position, spot.own)
    if placed is not None:
        usable &= placed[spot.first, :, spot.place, None]
    blocks = np.where(usable, row[:, :, spot.own, spot.place], FULL)
    column, below = divmod(int(blocks.argmin()), blocks.shape[1])
    if blocks[column, below] >= FULL:
        return None
    return _Cut(int(blocks[column, below]), column, below, int(which[below]))


def _type(spot: _Spot, cut: _Cut, limits: Limits) -> int:
    """Return the fastest ZeRO type with which the stage keeps its limits."""
    degree = limits.placing.degrees[spot.own]
    for zero in limits.placing.stages.types(degree):
        if limits.with_type(zero, spot.own, cut.kind)[spot.first, cut.column] >= spot.position:
            return zero
    raise AssertionError("a usable stage has a usable type")
