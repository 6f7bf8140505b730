"""The bytes that an iteration of a plan sends over each level, from D16 of `docs/formulation.md`, device by device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import oracle_default as oracle
import oracle_plans
import oracle_uneven
from oracle_groups import decimal
from oracle_places import spot_of

from nest.graph import Axis, Layer
from nest.plan import Plan
from nest.problem import Problem, Variant

Rank = tuple[int, int, int, int]
"""Place among the tensor, context and expert ranks of a stage, and among the parts that are sharded inside it."""


class Crossing:
    """What the stages of a plan send over one level, or one outside it.

    Attributes
    ----------
    doubtful
        Of how many messages floating point may have more or fewer bytes.
    """

    def __init__(self, problem: Problem, plan: Plan, level: int) -> None:
        self.plan, self.level, self.doubtful, self.training = plan, level, 0, problem.training
        shape, own = oracle_uneven.shape_of(plan), any(stage.tensor or stage.inside > 1 for stage in plan.stages)
        if not own:
            shape = replace(shape, blocks=spot_of(plan, problem.cluster.devices).blocks)
        self.shape, rounding = shape, oracle.Rounding(6)
        known = {piece: oracle_uneven.StageCosts(problem, shape, piece, rounding) for piece in set(shape.pieces)}
        self.costs = [known[piece] for piece in shape.pieces]

    def total(self) -> int:
        """Return the bytes of an iteration."""
        each, once, count = 0, 0, len(self.plan.stages)
        for part, cut in enumerate(self._cuts()[1:-1]):
            each += self._boundary((part % count, (part + 1) % count), cut)
        for at, places in enumerate(self._places()):
            inner = oracle_uneven.inner_of(self.plan, at, self.shape.pieces[at])
            layers = [self.costs[at].layers[place] for place in places]
            each += self._inside(at, layers, inner)
            each += sum(self._for_each(at, layer, inner) for layer in layers)
            once += self._once(at, layers, inner) + self._ends(at, places)
        return self.costs[0].m * each + once

    def _places(self) -> list[list[int]]:
        """Return the layers of each stage."""
        place = {layer.id: at for at, layer in enumerate(self.costs[0].layers)}
        return [[place[name] for name in stage.layers] for stage in self.plan.stages]

    def _cuts(self) -> list[int]:
        """Return where the parts of the pipeline begin and end: each stage has as many layers in each of its chunks."""
        stage_of = {place: at for at, places in enumerate(self._places()) for place in places}
        inner = [place for place in range(1, len(stage_of)) if stage_of[place] != stage_of[place - 1]]
        return [0, *inner, len(stage_of)]

    def _send(self, members: Sequence[int], kind: str, size: Fraction) -> int:
        sent, doubtful = self.costs[0].group(tuple(sorted(members))).sent_over(self.level, kind, size)
        self.doubtful += doubtful
        return sent

    def _variant(self, at: int) -> Variant:
        return self.shape.pieces[at].variant

    def _device(self, at: int, replica: int, rank: Rank) -> int:
        variant = self._variant(at)
        t, c, e = variant.tensor, variant.context, variant.expert
        return self.shape.blocks[at][replica] + rank[0] + t * (rank[1] + c * (rank[2] + e * rank[3]))

    def _ranks(self, at: int) -> list[Rank]:
        variant, parts = self._variant(at), self.shape.pieces[at].inside
        return list(product(range(variant.tensor), range(variant.context), range(variant.expert), range(parts)))

    def _computing(self, at: int) -> list[Rank]:
        """Return the ranks that compute: those of all parts where these split the microbatch, else of the first."""
        return [rank for rank in self._ranks(at) if self.shape.pieces[at].split or rank[3] == 0]

    def _axis(self, at: int, replica: int, axis: Axis) -> list[list[int]]:
        """Return the devices of each group of an axis inside a block."""
        along = ("tensor", "context", "expert").index(axis)
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank in self._computing(at):
            others = tuple(number for at_axis, number in enumerate(rank) if at_axis != along)
            groups.setdefault(others, []).append(self._device(at, replica, rank))
        return list(groups.values())

    def _boundary(self, ends: tuple[int, int], cut: int) -> int:
        """Return what crosses the boundary between two stages for a microbatch: there, back, and to gather parts."""
        total, replicas = 0, range(self.plan.replicas)
        alive = {end: self._alive(end, cut) for end in ends}
        sequences = any(self._variant(end).sequence for end in ends)
        part = Fraction(0)
        for end, other in (ends, ends[::-1]):
            t, there = self._variant(end).tensor, self._variant(other).tensor
            if self.training.splits_transfers or sequences:
                part = max(part, alive[end] / t if self._splits(end) else alive[end])
            else:
                part = max(part, alive[end] * max(1, -(-there // t)))
        sides = [sorted(self._computing(end), key=lambda rank: rank[::-1]) for end in ends]
        for replica, pair in product(replicas, zip(*sides, strict=False)):
            devices = [self._device(end, replica, rank) for end, rank in zip(ends, pair, strict=True)]
            total += 2 * round(part) if self.costs[0].group(tuple(devices)).used[-1] >= self.level else 0
            self.doubtful += part.denominator > 1
        for replica, end in product(replicas, filter(self._splits, ends)):
            groups = self._axis(end, replica, "tensor")
            total += sum(self._send(members, "all-gather", alive[end]) for members in groups)
        return total

    def _splits(self, at: int) -> bool:
        variant = self._variant(at)
        return self.training.splits_transfers and variant.tensor > 1 and not variant.sequence

    def _alive(self, at: int, cut: int) -> Fraction:
        alive = Fraction(0)
        for one in range(cut):
            sizes = [decimal(size) for source, target, size in self.costs[at].edges if source == one and target >= cut]
            alive += max(sizes, default=Fraction(0))
        return alive

    def _inside(self, at: int, layers: Sequence[Layer], inner: oracle_plans.Inner) -> int:
        collectives = [each for layer in layers for each in layer.collectives]
        for layer, repeats in zip(
            layers, oracle_plans.repeating(self.costs[at].problem, tuple(layers), inner), strict=True
        ):
            collectives += [
                each for again in layer.recomputed if repeats and again.kind == inner.kind for each in again.collectives
            ]
        return sum(
            self._send(members, each.kind, decimal(each.bytes))
            for each in collectives
            for replica in range(self.plan.replicas)
            for members in self._axis(at, replica, each.axis)
        )

    def _zero(self, inner: oracle_plans.Inner) -> int:
        held = inner.zero == 3 and len(self.plan.stages) > 1 and self.training.holds_gathered
        return 1 if held else inner.zero

    def _for_each(self, at: int, layer: Layer, inner: oracle_plans.Inner) -> int:
        """Return what the holders of a layer's weights exchange for a microbatch."""
        costs = self.costs[at]
        gather, scatter = ("all-gather", costs.gathered), ("reduce-scatter", costs.summed)
        kinds = {2: [scatter], 3: [gather, gather, scatter]}.get(self._zero(inner), [])
        return sum(self._share(at, inner, [layer], what) for what in kinds)

    def _once(self, at: int, layers: Sequence[Layer], inner: oracle_plans.Inner) -> int:
        costs, zero, total = self.costs[at], self._zero(inner), 0
        if zero < 2:
            whole = zero == 0 or (inner.zero == 1 and self.training.sums_whole)
            total += self._share(at, inner, layers, ("all-reduce" if whole else "reduce-scatter", costs.summed))
        if zero and inner.group < self.plan.replicas:
            total += self._across(at, inner, layers)
        if zero in (1, 2):
            total += self._share(at, inner, layers, ("all-gather", costs.gathered))
        return total

    def _holders(self, at: int, replicas: Sequence[int], *, expert: bool) -> Iterator[list[int]]:
        """Yield the devices, of some replicas, that hold copies of each part of the dense weights or of experts'."""
        everywhere, groups = expert and self.costs[at]._whole_experts(), dict[tuple[int, ...], list[int]]()
        for replica, rank in product(replicas, self._ranks(at)):
            key = (rank[2],) if everywhere else (rank[0], rank[2]) if expert else (rank[0],)
            groups.setdefault(key, []).append(self._device(at, replica, rank))
        yield from groups.values()

    def _share(
        self, at: int, inner: oracle_plans.Inner, layers: Sequence[Layer], what: tuple[str, Fraction | int]
    ) -> int:
        total = 0
        for weights, expert in zip(self.costs[at]._weights(list(layers)), (False, True), strict=True):
            for one in range(0, self.plan.replicas, inner.group):
                for members in self._holders(at, range(one, one + inner.group), expert=expert):
                    total += self._send(members, what[0], weights * what[1])
        return total

    def _across(self, at: int, inner: oracle_plans.Inner, layers: Sequence[Layer]) -> int:
        total, costs = 0, self.costs[at]
        for weights, among in zip(costs._weights(list(layers)), costs._over(inner.group), strict=True):
            for rank, one in product(self._ranks(at), range(inner.group)):
                members = [self._device(at, r, rank) for r in range(one, self.plan.replicas, inner.group)]
                total += self._send(members, "all-reduce", weights * costs.summed / among)
        return total

    def _ends(self, at: int, places: list[int]) -> int:
        """Return what each device and its counterpart at the other end of the pipeline send for copies of a table."""
        costs, total, last = self.costs[at], 0, len(self.plan.stages) - 1
        tied = sum((decimal(layer.tied_bytes) for layer in (costs.layers[place] for place in places)), Fraction(0))
        if not tied or costs._table() in places:
            return 0
        for replica, _ in product(range(self.plan.replicas), self._ranks(at)):  # all pairs are at one level
            pair = [self.shape.blocks[one][replica] for one in (0, last)]
            total += self._send(pair, "all-reduce", tied * costs.summed)
        return total


def crossing(problem: Problem, plan: Plan) -> tuple[tuple[int, ...], int]:
    """Return the bytes over each level, and of how many messages they are in doubt."""
    levels = [Crossing(problem, plan, level) for level in range(len(problem.cluster.levels))]
    return tuple(each.total() for each in levels), sum(each.doubtful for each in levels)
