"""Where the members of every group of a plan sit, and what that makes of sizes: what stages are priced from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nest.cost.exchanges import (
    Exchanges,
    axis_group,
    axis_starts,
    copies_of,
)
from nest.cost.groups import Spread
from nest.cost.overlap import hidden_millionths
from nest.cost.scale import Scale
from nest.forms import Form, Variant
from nest.graph import Axis, Collective, LayerGraph
from nest.plan import Plan
from nest.problem import Problem
from nest.units import Ints, Number, bytes_of, quanta


def part_numbers(plan: Plan, graph: LayerGraph) -> tuple[int, ...]:
    """Return for each layer, by its place, the number of its part: of stage ``k`` chunk ``j`` is ``j * S + k``."""
    count = len(plan.stages)
    found = {
        place: chunk * count + at
        for at in range(count)
        for chunk, part in enumerate(plan.parts(graph, at))
        for place in part
    }
    return tuple(found[place] for place in range(len(graph)))


class Groups(NamedTuple):
    """How the ranks that hold copies of a weight are spread.

    Parameters
    ----------
    within
        Those that share it between them: all, or those of some neighbouring replicas.
    across
        Those that have the same share of it; none where all share it between them.
    """

    within: frozenset[Spread]
    across: frozenset[Spread]


class Walk:
    """Walks the stages of a plan, and remembers what groups in the same place take.

    Parameters
    ----------
    problem, plan, graph, scale
        What is priced, the layers of the plan's variant, and the ticks and quanta that are counted.
    """

    def __init__(self, problem: Problem, plan: Plan, graph: LayerGraph, scale: Scale) -> None:
        self.problem, self.plan, self.scale = problem, plan, scale
        self.exchanges, self.copies = Exchanges(problem), problem.training.held
        self.hidden, self.parts = hidden_millionths(problem.training), plan.chunks * len(plan.stages)
        self._part_of, self.forms = part_numbers(plan, graph), plan.stage_forms
        self.variants = tuple(form.variant for form in self.forms)
        self._groups: dict[tuple[Variant, Axis, int], Spread] = {}
        self._holders: dict[tuple[Form, tuple[int, ...]], Spread] = {}
        self._inside: dict[tuple[Form, Collective, int], int] = {}

    def quanta(self, size: Number) -> int:
        """Return a number of bytes in quanta."""
        return quanta(size, self.scale.quanta_per_byte)

    def bytes(self, count: int) -> float:
        """Return a number of quanta in bytes."""
        return float(bytes_of(count, self.scale.quanta_per_byte))

    def ticks(self, seconds: Iterable[float]) -> int:
        """Round each of some times by itself and add them up."""
        return sum(map(self.scale.time.ticks, seconds))

    def blocks(self, at: int) -> Ints:
        """Return the first device of a stage in every replica."""
        return self.plan.starts(at)

    def places(self, blocks: Ints, width: int) -> Ints:
        """Return where blocks are in the smallest groups that hold them whole: all inside depends on no more."""
        cluster = self.problem.cluster
        levels = cluster.spans(blocks, blocks + width - 1)
        places: Ints = blocks % np.array(cluster.group_sizes, dtype=np.int64)[levels]
        return places

    def graph_of(self, at: int) -> LayerGraph:
        """Return the layers as a stage has them: those of its own variant."""
        return self.problem.graphs[self.variants[at]]

    def ends(self, boundary: int) -> tuple[int, int]:
        """Return the stages of the parts before and behind a boundary."""
        count = len(self.plan.stages)
        return boundary % count, (boundary + 1) % count

    def levels(self, boundary: int) -> Ints:
        """Return the levels between a part and the next: a row for each replica, a column for each computing device."""
        at, to = self.ends(boundary)
        ranks = np.arange(min(self.forms[at].computing, self.forms[to].computing), dtype=np.int64)
        return self.problem.cluster.spans(self.blocks(at)[:, None] + ranks, self.blocks(to)[:, None] + ranks)

    def alive(self, boundary: int, at: int) -> float:
        """Return the bytes alive behind a part, as `alive_quanta` has them."""
        return self.bytes(self.alive_quanta(boundary, at))

    def alive_quanta(self, boundary: int, at: int) -> int:
        """Return the quanta alive behind a part: of each layer up to it the most that it sends beyond, once.

        Parameters
        ----------
        at
            Stage on whose devices they are counted, by its variant.
        """
        largest, graph = dict[int, int](), self.graph_of(at)
        for (source, target), edge in zip(graph.places, graph.edges, strict=True):
            if self._part_of[source] <= boundary < self._part_of[target]:
                largest[source] = max(largest.get(source, 0), self.quanta(edge.bytes))
        return sum(largest.values())

    def inside(self, collective: Collective, form: Form, block: int) -> int:
        """Return what a collective of a layer takes in a block, in the slowest of its groups."""
        variant, place = form.variant, int(self.places(np.array(block), form.width))
        key = form, collective, place
        if key not in self._inside:
            starts = place + axis_starts(form, collective.axis)
            groups = {self.group(variant, collective.axis, int(start)) for start in starts}
            slowest = max(self.exchanges.exposed_s(collective, group) for group in groups)
            self._inside[key] = self.scale.time.ticks(slowest)
        return self._inside[key]

    def group(self, variant: Variant, axis: Axis, start: int) -> Spread:
        """Return how the group of an axis inside a block is spread whose first device is given."""
        key = variant, axis, start % self.problem.cluster.period
        if key not in self._groups:
            step, count = axis_group(variant, axis)
            self._groups[key] = self.exchanges.spread(start + step * np.arange(count, dtype=np.int64))
        return self._groups[key]

    def groups(self, at: int, together: int, *, expert: bool) -> Groups:
        """Return how the ranks that hold copies are spread, for each device of a stage's block.

        Parameters
        ----------
        together
            Neighbouring replicas that share the weights between them.
        """
        return Groups(*map(frozenset, self.all_groups(at, together, expert=expert)))

    def all_groups(self, at: int, together: int, *, expert: bool) -> tuple[list[Spread], list[Spread]]:
        """Return it for each group: those that share a weight between them, and those that have the same share."""
        form, variant = self.forms[at], self.variants[at]
        through = variant.tensor * variant.context
        own, apart = variant.expert if expert else 1, self.problem.copies(variant, expert=expert)[1]
        offsets = [tensor + through * rank for rank in range(own) for tensor in range(apart)]
        blocks = self.blocks(at).reshape(-1, together)
        within = [self._holder(form, expert, row + offset) for row in blocks for offset in offsets]
        apart_from = blocks.T if len(blocks) > 1 else ()
        across = [self._alone(form, column + device) for column in apart_from for device in range(form.width)]
        return within, across

    def _holder(self, form: Form, expert: bool, blocks: Ints) -> Spread:
        key = form, (int(expert), *self._within_period(blocks))
        if key not in self._holders:
            copies = self.problem.copies(form.variant, expert=expert)
            self._holders[key] = self.exchanges.spread(copies_of(copies, form, blocks))
        return self._holders[key]

    def _within_period(self, devices: Ints) -> tuple[int, ...]:
        """Return where devices are from the period on in which the first is: those alike are spread alike."""
        period = self.problem.cluster.period
        return tuple((devices - devices[0] // period * period).tolist())

    def _alone(self, form: Form, devices: Ints) -> Spread:
        key = form, (-1, *self._within_period(devices))
        if key not in self._holders:
            self._holders[key] = self.exchanges.spread(devices)
        return self._holders[key]
