"""The tables of all variants of a problem."""

from __future__ import annotations

from functools import cached_property

from nest.classes import fastest
from nest.constraints import Filters
from nest.cost.exchanges import Exchanges
from nest.cost.scale import Scale, scale_of
from nest.errors import OutOfScope
from nest.forms import Form
from nest.problem import Problem, Variant
from nest.tables.banded import GroupedBand
from nest.tables.branched import BranchedBand, BranchedTables
from nest.tables.family import Family
from nest.tables.grouped import ANY, Ends, GroupedTables, lines_of
from nest.tables.inside import InsideTables
from nest.tables.levelled import VariantTables
from nest.tables.passes import Passes
from nest.tables.shares import Sharing
from nest.tables.speeds import shared_work
from nest.tables.uneven import UnevenTables


class Tables:
    """Tables of every allowed variant of a problem, built when asked for."""

    def __init__(self, problem: Problem, scale: Scale) -> None:
        if problem.cluster.undecided:
            what = "it is to be chosen what the links of a level are, and tables are of one choice"
            raise OutOfScope("cluster", what, "ask for the tables of Problem.built")
        self.problem = problem
        self.scale = scale
        self.filters = Filters(problem)
        self._made: dict[Variant, GroupedTables] = {}
        self._inside: dict[Form, InsideTables] = {}
        self._families: dict[tuple[int, ...], Family] = {}

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
        return tuple(variant for variant in nested if self.blocks(variant))

    def blocks(self, variant: Variant) -> int:
        """Return how many blocks of a variant a plan has at most: those of the longest line."""
        longest = lines_of(self.filters, variant)[0].length(self.problem.cluster.devices)
        return min(self.filters.devices, longest) // variant.width

    def least_busy(self, variant: Variant) -> tuple[int, float]:
        """Return what all layers of a `fitting` variant take for a microbatch, and on all blocks at once, in ticks.

        With the collectives of their passes; of several classes the fastest devices take the former, and slower ones
        count in part in the latter. No tables are built for it.
        """
        passes = Passes(self.scale, variant, self._sharing)
        graph = self.problem.graphs[variant]
        once = int(passes.both(fastest(graph)).sum())
        return once, shared_work(self.problem.cluster, graph, variant.width, self.blocks(variant), passes.both)

    @cached_property
    def uneven(self) -> tuple[UnevenTables, ...]:
        """Tables of the forms that stages with widths of their own may be of, where the choices give any.

        Raises
        ------
        OutOfScope
            If a side constraint looks at more than devices and memory.
        """
        for name in self.problem.choices.uneven:
            self.filters.require_limits(f"choices.{name}")
        found = dict.fromkeys(self._nested(family) for family in self.problem.families)
        most = [each for each in found if each and not any(set(each) < set(other) for other in found)]
        return tuple(UnevenTables(each, tuple(map(self._of_form, each))) for each in most)

    def _of_form(self, form: Form) -> GroupedTables:
        """Return the tables of stages of a form."""
        if form.inside == 1:
            return self.of_variant(form.variant)
        if form not in self._inside:
            self._inside[form] = InsideTables(self.problem, self.scale, form, self._sharing)
        return self._inside[form]

    def _nested(self, family: tuple[Form, ...]) -> tuple[Form, ...]:
        """Return the forms that nest with the network and fit on the devices."""
        fitting = (each for each in family if each.width <= self.filters.devices)
        return tuple(each for each in fitting if self.problem.unnested(each) is None)

    def of_variant(self, variant: Variant) -> GroupedTables:
        """Return the tables of one of the `fitting` variants.

        Raises
        ------
        TooManyStages
            If its layers branch so much that their stages are too many.
        """
        if variant not in self._made:
            self._made[variant] = self._grouped(variant)
        return self._made[variant]

    def uncut(self, variant: Variant) -> GroupedTables:
        """Return tables of one of the `fitting` variants in which layers that branch count in the order given.

        What they say of cuts does not hold for all plans, what they say of layers does.
        """
        return GroupedTables(self.problem, self.scale, variant, self._sharing)

    def _grouped(self, variant: Variant) -> GroupedTables:
        graph = self.problem.graphs[variant]
        if graph.unordered_pair is None:
            return self.uncut(variant)
        if graph.before not in self._families:
            self._families[graph.before] = Family.of(graph.before)
        return BranchedTables(self.problem, self.scale, variant, self._sharing, self._families[graph.before])

    @cached_property
    def _sharing(self) -> Sharing:
        return Sharing(Exchanges(self.problem))


def band_of(tables: GroupedTables, depth: int, ends: Ends = ANY, *, puts_off: bool = False) -> GroupedBand:
    """Return tables of the stages of at most so many layers; see `GroupedBand`. Layers that branch have all ends."""
    if isinstance(tables, BranchedTables):
        return BranchedBand(tables, depth, puts_off=puts_off)
    return GroupedBand(tables, depth, ends, puts_off=puts_off)
