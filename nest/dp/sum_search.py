"""The search under the objective `sum`: outer choices in the order of their bounds, each settled exactly.

`sum_caps` says how a choice is settled, given the least sum of loads for caps on the largest load and on the slowest
synchronisation, which `SumRows` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from nest.dp.incumbent import Incumbent
from nest.dp.masks import roles
from nest.dp.sum_caps import Capped
from nest.dp.sum_outer import SumBounds, SumChoice
from nest.dp.sum_rows import Bands, Holding, Path, Step, SumRows, Way
from nest.dp.watch import Watch
from nest.places import Placing
from nest.plan import Plan, Stage, over_replicas
from nest.presets import ScheduleName
from nest.problem import Variant
from nest.tables import GroupedTables, band_of
from nest.tables.grouped import Site
from nest.units import LONGEST, NEVER


class SumSearch:
    """Settles the outer choices of one variant.

    Parameters
    ----------
    tables
        Of the variant.
    watch
        Of the search.
    schedule
        Of its plans.
    bounds
        Of the objective; those of `sum` where none are given.
    """

    def __init__(
        self,
        tables: GroupedTables,
        watch: Watch,
        schedule: ScheduleName = "1f1b",
        bounds: SumBounds | None = None,
    ) -> None:
        self.tables, self.watch, self.schedule = tables, watch, schedule
        self.bounds = bounds or SumBounds(tables)
        self.chunks = 1
        self._bands: dict[int, Bands] = {}

    def named(self, choice: SumChoice) -> tuple[Variant, SumChoice, ScheduleName, int]:
        """Return an outer choice with all that it does not say of itself: variant, schedule and chunks."""
        return self.tables.variant, choice, self.schedule, self.chunks

    def placings(self, choice: SumChoice) -> tuple[Placing, ...]:
        """Return the placings of a choice: none where degrees of sharding leave its stages no way to shard."""
        if not self.tables.options(choice.replicas, choice.stages):
            return ()
        return self.tables.placings(choice.stages, choice.replicas, choice.arrangement)

    def prepare(self, choice: SumChoice) -> Iterator[Prepared]:
        """Yield a choice with each placing of its blocks in which stages see something else.

        Where there are several classes of devices, what they see takes long to say, and some may see the same.
        """
        tables, seen = self.tables, set[object]()
        for placing in self.placings(choice):
            found = Prepared(self, choice, placing, tables.sites(choice.stages, choice.replicas, placing))
            if tables.problem.cluster.classes:
                yield found
            elif found.sights not in seen:
                seen.add(found.sights)
                yield found

    def bands(self, depth: int) -> Bands:
        """Return tables of stages of at least so many layers, as far as there are, and masks over them."""
        rounded = min(self.tables.layers, 1 << max(depth - 1, 0).bit_length())
        if rounded not in self._bands:
            make = partial(band_of, self.tables, rounded, puts_off=self.schedule == "zb-h1")
            self._bands[rounded] = Bands(rounded, make)
        return self._bands[rounded]


@dataclass(frozen=True)
class Prepared(Capped[SumRows, Path]):
    """An outer choice that is ready to be settled."""

    engine: SumSearch
    choice: SumChoice
    placing: Placing
    sites: tuple[Site, ...]

    def least(self, better_than: int) -> int:
        """Return a first bound: by the devices of its stages; it may be less where none is better."""
        return self.engine.bounds.by_classes(self.choice, self.sites, better_than)

    @cached_property
    def bound(self) -> int:
        """The bound by all that its stages see."""
        return self.engine.bounds.refined(self.choice, self.sites, self.incumbent.objective)

    @cached_property
    def sights(self) -> object:
        """All that decides about plans here: of placings with the same sights one stands for the others."""
        tables, choice = self.engine.tables, self.choice
        options = tables.options(choice.replicas, choice.stages)
        return self.placing if tables.filters.by_place else tables.sights(self.sites, options)

    @property
    def incumbent(self) -> Incumbent:
        """The best plan so far."""
        return self.engine.watch.incumbent

    @property
    def further(self) -> int:
        """Microbatches of a replica but one."""
        return self.choice.further

    @property
    def total(self) -> int:
        """What all layers take together."""
        return self.engine.bounds.total

    def settle(self) -> None:
        """Offer the best plan to the incumbent, if it is better."""
        rows = self._rows()
        if rows is not None:
            self.settle_rows(rows)

    def _rows(self) -> SumRows | None:
        """Return the recursion over stages deep enough for every plan that could be better, None if there is no plan.

        Without a plan to beat, the depth follows from a guess of the largest load, which is doubled until one is found.
        """
        tables, guess = self.engine.tables, int(self.engine.bounds.crowded[self.choice.stages])
        while self.incumbent.objective == NEVER:
            guess = min(2 * guess + 1, LONGEST)
            rows = self.at_depth(tables.deepest_within(guess))
            slowest = rows.least_slowest()
            if slowest < NEVER:
                self.evaluate(rows, slowest)
            if rows.depth == tables.layers:
                return rows if slowest < NEVER else None
        rows = self.at_depth(tables.deepest_within(max(self.most(0), 0)))
        rows.lower_load(max(self.most(0), 0))
        return rows

    def at_depth(self, depth: int) -> SumRows:
        """Return the recursion over stages of at least so many layers, as far as there are."""
        tables, choice = self.engine.tables, self.choice
        starts = _starts(self.placing, choice.stages)
        steps = tuple(
            Step(
                self.sites[-position],
                tables.passing(choice.replicas, position, choice.stages, self.engine.schedule),
                role,
                starts[-position] if tables.filters.by_place else 0,
                tables.held_ends(position, choice.stages),
            )
            for position, role in enumerate(roles(tables, choice.stages, choice.replicas), start=1)
        )
        holding = Holding(tables.options(choice.replicas, choice.stages), self.placing)
        return SumRows(self.engine.bands(depth), steps, holding, self.engine.watch)

    def evaluate(self, rows: SumRows, most: int) -> Path:
        """Offer the plan of the least sum of loads under a cap that some plan keeps."""
        path = rows.least_sum(most)
        if path is None:
            raise AssertionError("a plan keeps this cap")
        objective = self.value(path) + path.sync
        self.incumbent.keep(objective, partial(sum_plan, self, path.cuts, path.ways))
        return path


def sum_plan(prepared: Prepared, cuts: Sequence[int], ways: Sequence[Way]) -> Plan:
    """Place the stages of a plan, and name their layers; ``cuts`` are ``[0, cut, ..., layers]``."""
    engine, choice, placing = prepared.engine, prepared.choice, prepared.placing
    tables, stride = engine.tables, placing.stride
    runs = zip(pairwise(cuts), _starts(placing, choice.stages), ways, strict=True)
    stages = tuple(stage_of(tables, run, start, way) for run, start, way in runs)
    plan = Plan(tables.variant, choice.replicas, stride, stages, choice.arrangement, engine.schedule)
    return replace(plan, technologies=tables.problem.cluster.technologies, line=placing.line)


def _starts(placing: Placing, stages: int) -> list[int]:
    """Return the first devices of the stages of replica 0."""
    starts: list[int] = placing.line.devices(np.array(placing.starts(stages), dtype=np.int64)).tolist()
    return starts


def stage_of(tables: GroupedTables, run: tuple[int, int], start: int, way: Way, *, tensor: int | None = None) -> Stage:
    """Return a stage of a plan.

    Parameters
    ----------
    run, start
        Cuts before and behind it, and its first device in replica 0.
    tensor
        Its tensor width; None for that of the plan's variant.
    """
    layers, ids = tables.between(*run), tables.graph.layers
    repeating = tables.repeating[way.kind - 1] if way.kind else None
    able = 0 if repeating is None else int(repeating.able[layers].sum())
    return Stage(
        layers=tuple(ids[layer].id for layer in layers.tolist()),
        first_device=start,
        devices=tables.width,
        recompute="none" if repeating is None else repeating.kind,
        sharding=over_replicas(min(way.option.zero, 3), tables.ranks(way.option.together).dense),
        recomputed=None if way.layers == able else way.layers,
        tensor=tensor,
    )
