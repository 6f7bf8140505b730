"""The search over plans whose stages have widths of their own, under the objective `sum`.

Outer choices come in the order of their bounds, and each is settled exactly, until no bound can win. Plans whose stages
are all of one variant were searched before, and their best is what these have to beat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from nest.dp.incumbent import Incumbent
from nest.dp.sum_caps import Capped
from nest.dp.sum_rows import Bands, Holding, SumRows
from nest.dp.sum_search import stage_of
from nest.dp.uneven_lattice import Lattice
from nest.dp.uneven_outer import UnevenBounds, UnevenChoice, uneven_choices
from nest.dp.uneven_rows import Asked, Placed, UnevenPath, UnevenRows
from nest.dp.watch import Watch
from nest.forms import Variant
from nest.places import Placing
from nest.plan import Plan, Stage, inside_stage
from nest.tables import GroupedBand, InsideTables, Tables, UnevenTables
from nest.tables.alone import unfit
from nest.tables.repeated import Passing
from nest.tables.shares import Option
from nest.units import NEVER


def least_uneven(tables: Tables) -> int:
    """Return a bound of all plans whose stages have widths of their own; `NEVER` where there are none."""
    return min((bound for bound, _, _ in _agenda(tables)), default=NEVER)


def settle_uneven(tables: Tables, watch: Watch) -> None:
    """Leave the best plan with the incumbent of a search; raises `TimeUp` after its deadline."""
    agenda = sorted(_agenda(tables), key=lambda each: each[0])
    engines = {id(engine): engine for _, engine, _ in agenda}
    watch.total += len(agenda)
    for bound, engine, choice in agenda:
        if bound >= watch.incumbent.objective:
            return
        watch.settled, watch.bound = watch.settled + 1, bound
        watch.check()
        engines[id(engine)].settle(choice, watch)


def _agenda(tables: Tables) -> list[tuple[int, UnevenSearch, UnevenChoice]]:
    """Return the outer choices, each with its bound and who settles it; none where a layer fits no device."""
    engines = [UnevenSearch(each) for each in tables.uneven if not _nowhere(each).any()]
    return [
        (engine.bounds.objective(choice), engine, choice)
        for engine in engines
        for choice in uneven_choices(engine.tables)
    ]


def _nowhere(tables: UnevenTables) -> np.ndarray:
    """Return which layers fit no device, in a stage of any form, with as many replicas as there may be."""
    most = min(tables.microbatches, tables.devices // min(tables.widths))
    found: np.ndarray = np.logical_and.reduce(
        [unfit(form, 1 if isinstance(form, InsideTables) else most) for form in tables.forms]
    )
    return found


class UnevenSearch:
    """Settles outer choices of some forms.

    Parameters
    ----------
    tables
        Of the forms.
    """

    def __init__(self, tables: UnevenTables) -> None:
        self.tables, self.bounds = tables, UnevenBounds(tables)
        self._bands: dict[tuple[int, int], Bands] = {}

    def settle(self, choice: UnevenChoice, watch: Watch) -> None:
        """Offer the best plan of a choice to the incumbent, if it is better."""
        layers, room = self.tables.layers, self.bounds.room(choice)
        allowed = self.tables.problem.choices.stages
        most = min(layers, room // min(self.tables.widths))
        counts = [count for count in range(1, most + 1) if allowed is None or count in allowed]
        alike: dict[tuple[tuple[Option, ...], ...], list[int]] = {}
        for count in counts:  # a stage that is the only one may exchange otherwise
            alike.setdefault(self.tables.options(choice.replicas, count), []).append(count)
        for options, some in alike.items():
            lattice, capped = (
                Lattice(self.tables, choice.replicas, choice.layout, max(some)),
                _Settling(self, choice, watch),
            )
            if lattice.spots and capped.most(0) >= 0:  # else no load is small enough to be better than what was found
                capped.settle_rows(self._rows(capped, lattice, options, tuple(some)))

    def _rows(
        self, capped: _Settling, lattice: Lattice, options: tuple[tuple[Option, ...], ...], counts: tuple[int, ...]
    ) -> UnevenRows:
        choice, watch = capped.choice, capped.watch
        numbers = range(1, max(counts) + 1)
        passing = (Passing(0), *(self.tables.passing(choice.replicas, number) for number in numbers))
        most = capped.most(0)
        engines = tuple(
            SumRows(self._of_form(at, most), (), Holding(each, Placing(0, 0)), watch) for at, each in enumerate(options)
        )
        asked = Asked(passing, counts, most, partial(self._windows, choice, lattice))
        return UnevenRows(lattice, engines, asked, watch)

    def _windows(self, choice: UnevenChoice, lattice: Lattice, load: int) -> list[tuple[int, int]]:
        """Return with which cuts the stage at each spot may begin, if no stage is slower than a load.

        What is before it has the devices before it, and it and what is behind have the others.
        """
        before, behind = self.bounds.needed(choice, load)
        each = choice.replicas if choice.layout.by_stage else 1
        starts = np.array([spot.start for spot in lattice.spots], dtype=np.int64)
        firsts = np.searchsorted(-behind, -((choice.layout.room - starts) // each), side="left")
        ends = np.searchsorted(before, starts // each, side="right")
        return list(zip(firsts.tolist(), np.minimum(ends, self.tables.layers).tolist(), strict=True))

    def _of_form(self, at: int, most: int) -> Bands:
        """Return the stages of a form that may take so many ticks at most."""
        form = self.tables.forms[at]
        depth = max(1, form.deepest_within(max(most, 0)))
        rounded = min(form.layers, 1 << (depth - 1).bit_length())
        if (at, rounded) not in self._bands:
            self._bands[at, rounded] = Bands(rounded, partial(GroupedBand, form, rounded))
        return self._bands[at, rounded]


@dataclass(frozen=True)
class _Settling(Capped[UnevenRows, UnevenPath]):
    """An outer choice that is settled."""

    engine: UnevenSearch
    choice: UnevenChoice
    watch: Watch

    @property
    def incumbent(self) -> Incumbent:
        """The best plan so far."""
        return self.watch.incumbent

    @property
    def further(self) -> int:
        """Microbatches of a replica but one."""
        return self.choice.further

    @property
    def total(self) -> int:
        """What all layers take together at least."""
        return self.engine.bounds.total

    def evaluate(self, rows: UnevenRows, most: int) -> UnevenPath:
        """Offer the plan of the least sum of loads under a cap that some plan keeps."""
        path = rows.least_sum(most)
        if path is None:
            raise AssertionError("a plan keeps this cap")
        self.incumbent.keep(self.value(path) + path.sync, partial(uneven_plan, self.engine.tables, self.choice, path))
        return path


def uneven_plan(tables: UnevenTables, choice: UnevenChoice, path: UnevenPath) -> Plan:
    """Return the plan of a path: of the variant of its stages with the most tensor ranks."""
    layout = choice.layout
    wholes = (tables.shapes[each.spot.form].whole for each in path.stages)
    variant = max(wholes, key=lambda whole: whole.tensor)
    stages = tuple(_stage(tables, each, variant) for each in path.stages)
    stride = variant.width if layout.by_stage else layout.apart
    technologies = tables.problem.cluster.technologies
    return Plan(variant, choice.replicas, stride, stages, layout.arrangement, technologies=technologies)


def _stage(tables: UnevenTables, placed: Placed, variant: Variant) -> Stage:
    shape, form = tables.shapes[placed.spot.form], tables.forms[placed.spot.form]
    own = None if shape.variant.tensor == variant.tensor else shape.variant.tensor
    stage = stage_of(form, (placed.first, placed.end), placed.spot.start, placed.way, tensor=own)
    if shape.inside == 1:
        return stage
    zero = min(placed.way.option.zero, 3)
    return replace(stage, sharding=inside_stage(zero, shape.inside, splits_batch=shape.splits))
