"""The slow plain reference for plans whose stages have tensor widths of their own: every one of a small problem.

It prices stages by `oracle_default`, each of its own variant, and writes out again what `docs/formulation.md` says of
such plans: which there are, where they stand, and what crosses a boundary between two widths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import lcm

import oracle_default as oracle
from oracle_groups import decimal
from oracle_places import Spot

from nest.plan import Plan
from nest.presets import Arrangement
from nest.problem import Problem, Variant

Blocks = tuple[tuple[int, ...], ...]
"""First device of each stage (rows) in each replica (columns)."""


@dataclass(frozen=True)
class Shape:
    """A plan but for its layers: the variant of each stage, the replicas, and where they stand."""

    variants: tuple[Variant, ...]
    replicas: int
    arrangement: Arrangement
    blocks: Blocks
    stride: int


class StageCosts(oracle.Costs):
    """Prices of stages of one variant in a plan whose other stages may be of others."""

    def __init__(self, problem: Problem, shape: Shape, variant: Variant, rounding: oracle.Rounding) -> None:
        super().__init__(problem, _outer(shape, variant), rounding)
        self.shape = shape

    def _load(self, at: int, first: int, end: int, inner: oracle.Inner, replica: int) -> int:
        again = oracle.repeating(self.problem, self.layers[first:end], inner)
        kinds = [inner.kind if repeats else "none" for repeats in again]
        block = self.outer.block(at, replica)
        total = sum(self.layer(place, kind, block) for place, kind in zip(range(first, end), kinds, strict=True))
        total += self._relaid(at - 1, first, replica) if at else 0
        return total + (self._relaid(at, end, replica) if at + 1 < len(self.shape.variants) else 0)

    def _relaid(self, at: int, cut: int, replica: int) -> int:
        """Return the transfer from a stage to the next."""
        narrow, wide = sorted(self.shape.variants[at : at + 2], key=lambda variant: variant.tensor)
        splits = self.training.splits_transfers
        sent, gathered = Fraction(0), 0
        for variant in (narrow, wide):
            alive = self._alive(variant, cut)
            shares = splits and variant.tensor > 1 and not variant.sequence
            sent = max(sent, alive / variant.tensor if shares else alive)
            if shares:
                gather = self.group(tuple(range(variant.tensor))).seconds("all-gather", alive)
                gathered = max(gathered, self.round(gather))
        if not splits and not wide.sequence:
            sent *= -(-wide.tensor // narrow.tensor)
        here, there = self.outer.block(at, replica), self.outer.block(at + 1, replica)
        widths = [each.width for each in self.shape.variants[at : at + 2]]
        pairs = [self.group(pair) for pair in product(range(here, here + widths[0]), range(there, there + widths[1]))]
        ways = 2 if self.training.blocking_sends else 1
        return gathered + ways * max(self.round(pair.hop(sent) if sent else Fraction(0)) for pair in pairs)

    def _alive(self, variant: Variant, cut: int) -> Fraction:
        graph = self.problem.graphs[variant]
        place = {layer.id: at for at, layer in enumerate(graph.layers)}
        largest: dict[int, Fraction] = {}
        for edge in graph.edges:
            if place[edge.source] < cut <= place[edge.target]:
                source = place[edge.source]
                largest[source] = max(largest.get(source, Fraction(0)), decimal(edge.bytes))
        return sum(largest.values(), Fraction(0))


class Costs:
    """Prices of one shape."""

    def __init__(self, problem: Problem, shape: Shape, rounding: oracle.Rounding) -> None:
        self.shape = shape
        self.by_variant = {each: StageCosts(problem, shape, each, rounding) for each in set(shape.variants)}

    def stage(self, at: int, first: int, end: int, inner: oracle.Inner) -> oracle.Figures:
        """Return the figures of a stage."""
        return self.by_variant[self.shape.variants[at]].stage(at, first, end, inner)

    def objective(self, figures: list[oracle.Figures]) -> int:
        """Return the time of an iteration."""
        return self.by_variant[self.shape.variants[0]].objective(figures)


def families(problem: Problem) -> Iterator[tuple[Variant, ...]]:
    """Yield which variants stages of a plan may be of, widest last."""
    choices, seen = problem.choices, set[tuple[Variant, ...]]()
    for base in problem.graphs:
        pairs = [
            (choices.stage_tensor, base.tensor),
            (choices.expert, base.expert),
            (choices.context, base.context),
            (choices.microbatch, base.microbatch),
            (None if choices.sequence is None else {choices.sequence}, base.sequence),
        ]
        if any(ok is not None and value not in ok for ok, value in pairs):
            continue
        alike = [replace(base, tensor=each, sequence=base.sequence and each > 1) for each in choices.stage_tensor or ()]
        known = (each for each in alike if each in problem.graphs and oracle.nests(problem.cluster, each))
        family = tuple(sorted(known, key=lambda variant: variant.tensor))
        if family and family not in seen:
            seen.add(family)
            yield family


def shapes(problem: Problem) -> Iterator[Shape]:
    """Yield every plan but for its layers."""
    choices, layers = problem.choices, len(next(iter(problem.graphs.values())))
    for family in families(problem):
        most = oracle.microbatches(problem, family[0])
        for count in range(1, layers + 1):
            if choices.stages is not None and count not in choices.stages:
                continue
            for variants in product(family, repeat=count):
                for replicas in range(1, most + 1):
                    if choices.replicas is None or replicas in choices.replicas:
                        yield from placed(problem, variants, replicas)


def placed(problem: Problem, variants: tuple[Variant, ...], replicas: int) -> Iterator[Shape]:
    """Yield where stages of these variants may stand."""
    widths, devices = [each.width for each in variants], problem.cluster.devices
    group, sizes = 1, [1]
    for level in problem.cluster.levels:
        group *= level.fanout
        sizes.append(group)
    found = set[Blocks]()
    for size in sizes:
        blocks, end = list[tuple[int, ...]](), 0
        for width in widths:
            first = next(at for at in range(end, end + width * size + 1) if at % width == 0 and at % size == 0)
            blocks.append(tuple(first + width * replica for replica in range(replicas)))
            end = first + replicas * width
        if end <= devices and tuple(blocks) not in found:
            found.add(tuple(blocks))
            yield Shape(variants, replicas, "stage-major", tuple(blocks), max(widths))
    starts, end = list[int](), 0
    for width in widths:
        starts.append(next(at for at in range(end, end + width) if at % width == 0))
        end = starts[-1] + width
    for stride in range(end, devices + 1):
        if stride % lcm(*widths) == 0 and (replicas - 1) * stride + end <= devices:
            rows = tuple(tuple(start + stride * replica for replica in range(replicas)) for start in starts)
            yield Shape(variants, replicas, "replica-major", rows, stride)


def best(problem: Problem, rounding: oracle.Rounding) -> oracle.Best:
    """Try every plan; of the ways of a stage only those count of which no other is as fast and synchronises as fast."""
    found = oracle.Best(None, None)
    for shape in shapes(problem):
        costs, count = Costs(problem, shape, rounding), len(shape.variants)
        layers = len(problem.graphs[shape.variants[0]])
        for inner in combinations(range(1, layers), count - 1):
            cuts = list(pairwise([0, *inner, layers]))
            options = [_undominated(problem, costs, at, run) for at, run in enumerate(cuts)]
            for picked in product(*options):
                objective = costs.objective([figures for figures, _ in picked])
                if found.objective is None or objective < found.objective:
                    found = oracle.Best(objective, plan_of(problem, shape, cuts, [each for _, each in picked]))
    return found


def _undominated(
    problem: Problem, costs: Costs, at: int, run: tuple[int, int]
) -> list[tuple[oracle.Figures, oracle.Inner]]:
    outer, kept = _outer(costs.shape, costs.shape.variants[at]), list[tuple[oracle.Figures, oracle.Inner]]()
    for inner in oracle.inners(problem, outer, run):
        figures = costs.stage(at, *run, inner)
        fits = figures.memory <= decimal(problem.cluster.hbm_bytes)
        if fits and not any(each.load <= figures.load and each.sync <= figures.sync for each, _ in kept):
            kept.append((figures, inner))
    return kept


def _outer(shape: Shape, variant: Variant) -> oracle.Outer:
    """Return what plans of one variant have one of, of stages that stand like these."""
    spot = Spot(shape.arrangement, shape.blocks, shape.stride)
    return oracle.Outer(variant, len(shape.variants), shape.replicas, shape.arrangement, spot)


def plan_of(problem: Problem, shape: Shape, cuts: list[tuple[int, int]], inner: list[oracle.Inner]) -> Plan:
    """Return the plan with these choices."""
    widest = max(shape.variants, key=lambda variant: variant.tensor)
    ids = [layer.id for layer in problem.graphs[widest].layers]
    stages = []
    for at, (run, each) in enumerate(zip(cuts, inner, strict=True)):
        variant = shape.variants[at]
        alone = oracle.plan_of(problem, _outer(shape, variant), [run], [each]).stages[0]
        own = None if variant == widest else variant.tensor
        first, layers = shape.blocks[at][0], tuple(ids[slice(*run)])
        stages.append(replace(alone, layers=layers, first_device=first, devices=variant.width, tensor=own))
    return Plan(widest, shape.replicas, shape.stride, tuple(stages), arrangement=shape.arrangement)


def price(problem: Problem, plan: Plan, rounding: oracle.Rounding) -> tuple[int, list[oracle.Figures]]:
    """Price a plan where it stands."""
    variants = tuple(
        plan.variant
        if stage.tensor is None
        else replace(plan.variant, tensor=stage.tensor, sequence=plan.variant.sequence and stage.tensor > 1)
        for stage in plan.stages
    )
    by_stage = plan.arrangement == "stage-major"
    strides = [stage.devices if by_stage else plan.replica_stride for stage in plan.stages]
    blocks = tuple(
        tuple(stage.first_device + replica * stride for replica in range(plan.replicas))
        for stage, stride in zip(plan.stages, strides, strict=True)
    )
    shape = Shape(variants, plan.replicas, plan.arrangement, blocks, plan.replica_stride)
    costs, figures, first = Costs(problem, shape, rounding), list[oracle.Figures](), 0
    for at, stage in enumerate(plan.stages):
        inner = oracle.inner_of(replace(plan, variant=variants[at]), stage)
        figures.append(costs.stage(at, first, first + len(stage.layers), inner))
        first += len(stage.layers)
    return costs.objective(figures), figures
