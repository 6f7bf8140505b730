"""The bytes that an iteration of a plan sends over each level, from D16 of `docs/formulation.md`, device by device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import oracle_default as oracle
from oracle_groups import decimal
from oracle_places import spot_of

from nest.graph import Axis, Layer
from nest.plan import Plan
from nest.problem import Problem


class Crossing:
    """What the stages of a plan send over one level, or one outside it.

    Attributes
    ----------
    doubtful
        Of how many messages floating point may have more or fewer bytes.
    """

    def __init__(self, problem: Problem, plan: Plan, level: int) -> None:
        spot = spot_of(plan, problem.cluster.devices)
        outer = oracle.Outer(plan.variant, len(plan.stages), plan.replicas, plan.arrangement, spot)
        self.costs, self.plan, self.level, self.doubtful = (
            oracle.Costs(problem, outer, oracle.Rounding(6)),
            plan,
            level,
            0,
        )
        self.variant, self.outer, self.training = plan.variant, outer, problem.training

    def total(self) -> int:
        """Return the bytes of an iteration."""
        each = once = first = 0
        for at, stage in enumerate(self.plan.stages):
            end, inner = first + len(stage.layers), oracle.inner_of(self.plan, stage)
            layers = self.costs.layers[first:end]
            each += self._boundary(at, first) if at else 0
            each += self._inside(at, layers, inner)
            each += sum(self._for_each(at, layer, inner) for layer in layers)
            once += self._once(at, layers, inner) + self._ends(first, end)
            first = end
        return self.costs.m * each + once

    def _send(self, members: Sequence[int], kind: str, size: Fraction) -> int:
        sent, doubtful = self.costs.group(tuple(sorted(members))).sent_over(self.level, kind, size)
        self.doubtful += doubtful
        return sent

    def _device(self, at: int, replica: int, rank: tuple[int, int, int]) -> int:
        t, c = self.variant.tensor, self.variant.context
        return self.outer.block(at, replica) + rank[0] + t * rank[1] + t * c * rank[2]

    def _ranks(self) -> list[tuple[int, int, int]]:
        variant = self.variant
        return list(product(range(variant.tensor), range(variant.context), range(variant.expert)))

    def _axis(self, at: int, replica: int, axis: Axis) -> list[list[int]]:
        """Return the devices of each group of an axis inside a block."""
        along = ("tensor", "context", "expert").index(axis)
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank in self._ranks():
            others = tuple(number for at_axis, number in enumerate(rank) if at_axis != along)
            groups.setdefault(others, []).append(self._device(at, replica, rank))
        return list(groups.values())

    def _boundary(self, at: int, cut: int) -> int:
        """Return what crosses the boundary before a stage for a microbatch: there, back, and to gather parts."""
        alive, total = Fraction(0), 0
        for one in range(cut):
            sizes = [decimal(size) for source, target, size in self.costs.edges if source == one and target >= cut]
            alive += max(sizes, default=Fraction(0))
        t = self.variant.tensor
        splits = self.training.splits_transfers and t > 1 and not self.variant.sequence
        part = alive / t if splits else alive
        for replica, rank in product(range(self.outer.replicas), self._ranks()):
            pair = [self._device(at - 1, replica, rank), self._device(at, replica, rank)]
            group = self.costs.group(tuple(pair))
            total += 2 * round(part) if group.used[-1] >= self.level else 0
            self.doubtful += part.denominator > 1
        for replica, end in product(range(self.outer.replicas), (at - 1, at) if splits else ()):
            total += sum(self._send(members, "all-gather", alive) for members in self._axis(end, replica, "tensor"))
        return total

    def _inside(self, at: int, layers: Sequence[Layer], inner: oracle.Inner) -> int:
        collectives = [each for layer in layers for each in layer.collectives]
        for layer, repeats in zip(layers, oracle.repeating(self.costs.problem, tuple(layers), inner), strict=True):
            collectives += [
                each for again in layer.recomputed if repeats and again.kind == inner.kind for each in again.collectives
            ]
        return sum(
            self._send(members, each.kind, decimal(each.bytes))
            for each in collectives
            for replica in range(self.outer.replicas)
            for members in self._axis(at, replica, each.axis)
        )

    def _zero(self, inner: oracle.Inner) -> int:
        held = inner.zero == 3 and self.outer.stages > 1 and self.training.holds_gathered
        return 1 if held else inner.zero

    def _for_each(self, at: int, layer: Layer, inner: oracle.Inner) -> int:
        """Return what the holders of a layer's weights exchange for a microbatch."""
        costs = self.costs
        gather, scatter = ("all-gather", costs.gathered), ("reduce-scatter", costs.summed)
        kinds = {2: [scatter], 3: [gather, gather, scatter]}.get(self._zero(inner), [])
        return sum(self._share(at, inner, [layer], what) for what in kinds)

    def _once(self, at: int, layers: Sequence[Layer], inner: oracle.Inner) -> int:
        costs, zero, total = self.costs, self._zero(inner), 0
        if zero < 2:
            whole = zero == 0 or (inner.zero == 1 and self.training.sums_whole)
            total += self._share(at, inner, layers, ("all-reduce" if whole else "reduce-scatter", costs.summed))
        if zero and inner.group < self.outer.replicas:
            total += self._across(at, inner, layers)
        if zero in (1, 2):
            total += self._share(at, inner, layers, ("all-gather", costs.gathered))
        return total

    def _holders(self, at: int, replicas: Sequence[int], *, expert: bool) -> Iterator[list[int]]:
        """Yield the devices, of some replicas, that hold copies of each part of the dense weights or of experts'."""
        t, c, e = self.variant.tensor, self.variant.context, self.variant.expert
        everywhere = expert and self.costs._whole_experts()
        for x, own in product([None] if everywhere else range(t), range(e) if expert else [None]):
            among, columns = range(e) if own is None else [own], range(t) if x is None else [x]
            yield [self._device(at, r, (a, y, z)) for r in replicas for z in among for y in range(c) for a in columns]

    def _share(self, at: int, inner: oracle.Inner, layers: Sequence[Layer], what: tuple[str, Fraction | int]) -> int:
        total = 0
        for weights, expert in zip(self.costs._weights(list(layers)), (False, True), strict=True):
            for one in range(0, self.outer.replicas, inner.group):
                for members in self._holders(at, range(one, one + inner.group), expert=expert):
                    total += self._send(members, what[0], weights * what[1])
        return total

    def _across(self, at: int, inner: oracle.Inner, layers: Sequence[Layer]) -> int:
        total = 0
        for weights, among in zip(self.costs._weights(list(layers)), self.costs._over(inner.group), strict=True):
            for rank, one in product(self._ranks(), range(inner.group)):
                members = [self._device(at, r, rank) for r in range(one, self.outer.replicas, inner.group)]
                total += self._send(members, "all-reduce", weights * self.costs.summed / among)
        return total

    def _ends(self, first: int, end: int) -> int:
        """Return what each device and its counterpart at the other end of the pipeline send for copies of a table."""
        tied = sum((decimal(layer.tied_bytes) for layer in self.costs.layers[first:end]), Fraction(0))
        if not tied or first <= self.costs._table() < end:
            return 0
        total, last = 0, self.outer.stages - 1
        for replica, rank in product(range(self.outer.replicas), self._ranks()):
            pair = [self._device(0, replica, rank), self._device(last, replica, rank)]
            total += self._send(pair, "all-reduce", tied * self.costs.summed)
        return total


def crossing(problem: Problem, plan: Plan) -> tuple[tuple[int, ...], int]:
    """Return the bytes over each level, and of how many messages they are in doubt."""
    levels = [Crossing(problem, plan, level) for level in range(len(problem.cluster.levels))]
    return tuple(each.total() for each in levels), sum(each.doubtful for each in levels)
