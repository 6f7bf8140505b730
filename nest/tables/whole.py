"""The tables of all variants of a problem."""

from __future__ import annotations

from functools import cached_property

from nest.constraints import Filters
from nest.cost.exchanges import Exchanges
from nest.cost.scale import Scale, scale_of
from nest.errors import OutOfScope
from nest.problem import Problem, Variant
from nest.tables.grouped import GroupedTables, lines_of
from nest.tables.levelled import VariantTables
from nest.tables.shares import Sharing


class Tables:
    """Tables of every allowed variant of a problem, built when asked for."""

    def __init__(self, problem: Problem, scale: Scale) -> None:
        self.problem = problem
        self.scale = scale
        self.filters = Filters(problem)
        self._made: dict[Variant, GroupedTables] = {}

    @classmethod
    def of(cls, problem: Problem) -> Tables:
        """Return the tables of a problem at its own scale."""
        return cls(problem, scale_of(problem))

    @property
    def grouped_prices(self) -> bool:
        """Whether network times follow from the places of members, so that `grouped` are the tables to read."""
        return self.problem.preset.collectives == "groups"

    @cached_property
    def variants(self) -> list[VariantTables]:
        """Tables of the variants, where network times follow from levels.

        Raises
        ------
        OutOfScope
            Under any other preset: whoever asks covers these only.
        """
        if self.grouped_prices:
            name = self.problem.preset.name
            raise OutOfScope("preset", f"{name!r} is not covered here", "only the dynamic program covers it")
        self.problem.preset.require_prices()
        return [VariantTables(self.problem, self.scale, variant) for variant in self.problem.variants]

    @cached_property
    def grouped(self) -> list[GroupedTables]:
        """Tables of the variants that nest with the network and fit on the devices."""
        return [self.of_variant(variant) for variant in self.fitting]

    @cached_property
    def fitting(self) -> tuple[Variant, ...]:
        """Variants that nest with the network and fit on the devices."""
        self.problem.preset.require_prices()
        nested = (each for each in self.problem.variants if self.problem.unnested(each) is None)
        devices = self.problem.cluster.devices
        rooms = ((each, lines_of(self.filters, each)[0].length(devices)) for each in nested)
        return tuple(variant for variant, room in rooms if variant.width <= min(self.filters.devices, room))

    def of_variant(self, variant: Variant) -> GroupedTables:
        """Return the tables of one of the `fitting` variants."""
        if variant not in self._made:
            self._made[variant] = GroupedTables(self.problem, self.scale, variant, self._sharing)
        return self._made[variant]

    @cached_property
    def _sharing(self) -> Sharing:
        return Sharing(Exchanges(self.problem))
