"""What plans whose stages have widths of their own take at least: consequences of the rules, wherever stages stand.

A stage takes no less than its work, with the transfers that are the fastest over any level and to any form, and is left
out where it fits its memory in no way, wherever it is in the pipeline. Of places nothing is left but how many devices
the stages of a replica have together. So the least sum of loads, and the least largest load, of the stages that hold
the layers before a cut or those from it on follow from fewer layers and devices. Numbers of stages play no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nest.milp.wide_spots import Layout
from nest.tables import GroupedBand, UnevenTables
from nest.units import NEVER, Ints


class Least(NamedTuple):
    """Least values of stages by devices, from 0 on, and cut; `NEVER` where they do not hold the layers.

    Attributes
    ----------
    before, behind
        Of the stages that hold the layers before a cut, and of those that hold the layers from it on.
    """

    before: Ints
    behind: Ints


class Leasts(NamedTuple):
    """The least sums of loads, and the least largest loads."""

    sums: Least
    largest: Least


class WideBounds:
    """Bounds of the plans of some forms.

    Parameters
    ----------
    tables
        Of the forms.
    """

    def __init__(self, tables: UnevenTables) -> None:
        self.tables = tables
        self._bands = [GroupedBand(form, form.layers) for form in tables.forms]
        self._transfers = [self._fastest(form) for form in range(len(tables.forms))]
        self._known: dict[tuple[int, tuple[int, ...]], Leasts] = {}

    def leasts(self, layout: Layout) -> Leasts:
        """Return what stages take at least whose replicas are as many, and of the forms that a layout lets stand."""
        forms = tuple(at for at, width in enumerate(self.tables.widths) if layout.by_stage or layout.apart % width == 0)
        key = layout.replicas, forms
        if key not in self._known:
            loads = [(self.tables.widths[at], self._loads(at, layout.replicas)) for at in forms]
            most = self.tables.devices // layout.replicas
            self._known[key] = Leasts(*(_least(loads, most, join) for join in (np.add, np.maximum)))
        return self._known[key]

    def _loads(self, form: int, replicas: int) -> Ints:
        """Return what stages of a form take at least, by the cuts before and behind; `NEVER` where they do not fit."""
        band, layers = self._bands[form], self.tables.layers
        options = {option for stages in (1, 2) for option in self.tables.options(replicas, stages)[form]}
        passings = {self.tables.passing(replicas, position) for position in (1, layers)}  # what is needed lies between
        fits = [band.least_need(option, passing) for option in options for passing in passings]
        may = np.logical_or.reduce([np.zeros_like(band.valid), *fits])
        entry, out = self._transfers[form]
        found = np.full((layers + 1, layers + 1), NEVER, dtype=np.int64)
        first, end = np.broadcast_arrays(band.first, band.reached)
        found[first[may], end[may]] = (band.work + entry[band.first] + out[band.reached])[may]
        return found

    def _fastest(self, form: int) -> tuple[Ints, Ints]:
        """Return the fastest transfers into stages of a form and out of them, by cut."""
        into = np.minimum.reduce(list(self._hops(form, into=True)))
        return into, np.minimum.reduce(list(self._hops(form, into=False)))

    def _hops(self, form: int, *, into: bool) -> Iterator[Ints]:
        for level in range(len(self.tables.problem.cluster.levels)):
            for other in range(len(self.tables.forms)):
                yield self.tables.hops(*((other, form) if into else (form, other)), level)


def _least(loads: list[tuple[int, Ints]], most: int, join: np.ufunc) -> Least:
    """Return least values of stages, each of a width and with the loads between cuts.

    Parameters
    ----------
    join
        How the values of stages make that of several: their sum, or the largest.
    """
    cuts = len(loads[0][1]) if loads else 1
    before, behind = np.full((2, most + 1, cuts), NEVER, dtype=np.int64)
    before[:, 0], behind[:, -1] = 0, 0
    for cut in range(1, cuts):
        for width, load in loads:
            if width <= most:
                _enter(before[width:, cut], load[:cut, cut], before[: most + 1 - width, :cut], join)
                at = cuts - 1 - cut
                _enter(behind[width:, at], load[at, at + 1 :], behind[: most + 1 - width, at + 1 :], join)
    return Least(before, behind)


def _enter(best: Ints, load: Ints, others: Ints, join: np.ufunc) -> None:
    """Enter what stages of some loads make with others, by devices, where it is less than the best."""
    found = np.where((others < NEVER) & (load < NEVER), join(np.minimum(others, NEVER - 1), load), NEVER)
    np.minimum(best, found.min(axis=1, initial=NEVER), out=best)
