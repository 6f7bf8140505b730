"""What the index sets of a programme are taken from, and consequences of the rules that make them smaller."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest.constraints import Filters, Run
from nest.errors import OutOfScope
from nest.milp.fits import Bools, Fits
from nest.milp.nearest import Nearest, Room
from nest.milp.outer import replicas_by_stages, rounds_of
from nest.milp.scope import REMEDY, levelled
from nest.problem import Problem
from nest.tables import Tables, VariantTables
from nest.units import HARD_LIMIT


@dataclass(frozen=True, slots=True)
class Spared:
    """What is left out because another plan of no higher price makes it superfluous.

    Attributes
    ----------
    replicas
        More replicas than the fewest with equal rounds.
    types
        Slower ZeRO types of equal degree.
    """

    replicas: bool
    types: bool

    @classmethod
    def under(cls, filters: Filters, *, every: bool) -> Spared:
        """Return what may be left out: nothing that a side constraint could prefer."""
        replicas = filters.by_place or any(each.looks_at_replicas for each in filters.coupling)
        types = any(each.looks_at_types for each in filters.coupling)
        return cls(not (every or replicas), not (every or types))


class Space:
    """The variants of a problem, with what their stages and outer choices may be.

    Parameters
    ----------
    tables
        Of the problem.
    every
        Leave out only what a rule or a side constraint forbids. Otherwise what another plan of no higher price makes
        superfluous is left out too, see `Spared`, and what `nest.milp.nearest` finds no room for.
    dominated
        Leave out only the latter.

    Attributes
    ----------
    sharded
        Whether any stage may shard; if not, nothing is left out but replicas.

    Raises
    ------
    OutOfScope
        If the preset of the problem prices other plans than `artifact` and `paper` do.
    """

    def __init__(self, tables: Tables, *, every: bool = False, dominated: bool = False) -> None:
        self.tables, self.every = tables, every
        if not levelled(tables.problem.preset):
            what = f"this programme does not price as preset {tables.problem.preset.name!r} does"
            raise OutOfScope("preset", what, REMEDY)
        spared = Spared.under(tables.filters, every=every or dominated)
        self.variants = [VariantSpace(variant, spared, every=every) for variant in tables.variants]
        self.sharded = any(variant.fits.shardings not in ([], [(0, 1)]) for variant in self.variants)

    @classmethod
    def of(cls, problem: Problem, *, every: bool = False) -> Space:
        """Return the space of a problem."""
        return cls(Tables.of(problem), every=every)

    @property
    def least_objective(self) -> int:
        """Ticks that every plan takes at least; the end of the range where there is none."""
        return min((variant.least_objective for variant in self.variants), default=HARD_LIMIT)


class VariantSpace:
    """One variant of a space.

    Attributes
    ----------
    fits
        Ways to shard its stages.
    counts
        Numbers of replicas by number of stages.
    """

    def __init__(self, tables: VariantTables, spared: Spared, *, every: bool) -> None:
        self.tables, self.every, self.problem = tables, every, tables.problem
        self.band, self.filters = tables.band(max(tables.deepest, 1)), tables.filters
        self.fits = Fits(self.band, self._admitted, fastest_only=spared.types)
        least = min((degree for _, degree in self.fits.shardings), default=None)
        fewest = spared.replicas
        self.counts = {} if least is None else replicas_by_stages(self.problem, tables, least, fewest_only=fewest)

    @cached_property
    def _run(self) -> Run:
        return Run(np.arange(self.tables.layers)[:, None], np.minimum(self.band.end, self.tables.layers))

    @cached_property
    def _by_run(self) -> Bools | None:
        return self.filters.run(self.tables.variant, self._run)

    def _admitted(self, position: int) -> Bools | None:
        """Return which stages side constraints admit at a position, in a pipeline of some number of stages."""
        if not self.filters.by_stage:
            return self._by_run
        found: Bools = np.zeros(self.band.valid.shape, dtype=bool)
        for stages in (count for count in self.counts if count >= position):
            admitted = self.filters.stage(self.tables.variant, stages, position, self._run)
            found |= True if admitted is None else admitted
        return found if self._by_run is None else found & self._by_run

    @cached_property
    def nearest(self) -> Nearest:
        """What the nearest levels leave room for."""
        return Nearest(self.fits, self.counts)

    def room(self, below: int | None) -> Room:
        """Return what plans with a smaller objective may consist of; for None, plans with any."""
        return self.nearest.everything() if self.every else self.nearest.room(HARD_LIMIT if below is None else below)

    def least_load(self, stages: int, replicas: int) -> int:
        """Return what the largest load of a plan is at least.

        The mean: ``S`` stages of load at most ``load`` run every layer, and all but the last repeat what recomputation
        repeats; what the last one spares is at most ``load`` again. Where stages may shard and nothing is left in for
        its own sake, also what the nearest levels say.
        """
        once, repeated = self.tables.forward + self.tables.backward, self.tables.repeated
        work = int((once + repeated).sum())
        mean = max(int(once.max()), -(-int(once.sum()) // stages), -(-work // (stages + 1)))
        sharded = len(self.fits.shardings) > 1 and not self.every
        return max(mean, self.nearest.least_load(stages, replicas)) if sharded else mean

    @cached_property
    def least_objective(self) -> int:
        """Ticks that every plan of the variant takes at least; the end of the range where there is none."""
        least = (
            self.least_load(stages, replicas) * rounds_of(self.problem, stages, replicas)
            + self.nearest.least_sync(stages, replicas)
            for stages, found in self.counts.items()
            for replicas in found
        )
        return min((each for each in least if each < HARD_LIMIT), default=HARD_LIMIT)
