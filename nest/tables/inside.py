"""Tables of stages that are sharded inside: between so many times as many devices as their widths make."""

from __future__ import annotations

from nest.cost.scale import Scale
from nest.forms import Form
from nest.problem import Problem
from nest.tables.grouped import GroupedTables
from nest.tables.shares import Holders, Option, Ranks, Shares, Sharing


class InsideTables(GroupedTables):
    """Tables of one form.

    Parameters
    ----------
    problem, scale, sharing
        As for `GroupedTables`.
    form
        Its variant is that of the figures; microbatches in flight are those of a plan, with all their sequences.
    """

    def __init__(self, problem: Problem, scale: Scale, form: Form, sharing: Sharing) -> None:
        super().__init__(problem, scale, form.variant, sharing)
        self.form, self.width = form, form.width
        self.microbatches = problem.microbatches(form.whole)

    def ranks(self, together: int) -> Ranks:
        """Return how many ranks hold copies in so many replicas."""
        return Ranks(*(self.form.inside * each for each in super().ranks(together)))

    def options(self, replicas: int, stages: int) -> tuple[Option, ...]:
        """Return how each of so many stages may shard: between the devices of one replica."""
        return tuple(option for option in self.options_of(replicas, stages, (1,)) if option.zero)

    def shares(self, holders: Holders, together: int) -> Shares:
        """Return how those are spread that hold copies of a stage's weights, in groups of so many replicas."""
        return self.sharing.shares(self.variant, holders, together, self.form.inside)
