"""The slow plain reference for plans whose stages have widths of their own: every one of a small problem.

Stages differ in tensor width, in how far they are sharded inside, or in both. It prices them by `oracle_default`, each
of its own variant, and writes out again what `docs/formulation.md` says of such plans: which there are, where they
stand, and what crosses a boundary between two widths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import lcm

import oracle_default as oracle
import oracle_plans
from oracle_groups import decimal
from oracle_places import Spot

from nest.plan import Plan, Sharding
from nest.presets import Arrangement
from nest.problem import Problem, Variant

Blocks = tuple[tuple[int, ...], ...]
"""First device of each stage (rows) in each replica (columns)."""


@dataclass(frozen=True)
class Piece:
    """What a stage is of: the plan's variant with its own tensor width, and over how many times its devices it shards.

    Those devices share the sequences of a microbatch where it is split.
    """

    whole: Variant
    inside: int = 1
    split: bool = False

    @property
    def variant(self) -> Variant:
        """The variant of its figures."""
        return replace(self.whole, microbatch=self.whole.microbatch // (self.inside if self.split else 1))

    @property
    def width(self) -> int:
        """Devices of a stage."""
        return self.whole.tensor * self.whole.context * self.whole.expert * self.inside


@dataclass(frozen=True)
class Shape:
    """A plan but for its layers: what each stage is of, the replicas, and where they stand."""

    pieces: tuple[Piece, ...]
    replicas: int
    arrangement: Arrangement
    blocks: Blocks
    stride: int


class StageCosts(oracle.Costs):
    """Prices of stages of one piece in a plan whose other stages may be of others."""

    def __init__(self, problem: Problem, shape: Shape, piece: Piece, rounding: oracle.Rounding) -> None:
        super().__init__(problem, outer_of(shape, piece), rounding)
        self.shape, self.inside = shape, piece.inside
        self.m = -(-oracle_plans.microbatches(problem, piece.whole) // shape.replicas)

    def _load(self, at: int, first: int, end: int, inner: oracle_plans.Inner, replica: int) -> int:
        again = oracle_plans.repeating(self.problem, self.layers[first:end], inner)
        kinds = [inner.kind if repeats else "none" for repeats in again]
        block = self.outer.block(at, replica)
        total = sum(self.layer(place, kind, block) for place, kind in zip(range(first, end), kinds, strict=True))
        total += self._relaid(at - 1, first, replica) if at else 0
        return total + (self._relaid(at, end, replica) if at + 1 < len(self.shape.pieces) else 0)

    def _relaid(self, at: int, cut: int, replica: int) -> int:
        """Return the transfer from a stage to the next."""
        ends = [piece.variant for piece in self.shape.pieces[at : at + 2]]
        splits, parts = self.training.splits_transfers, any(end.sequence for end in ends)
        sent, gathered = Fraction(0), 0
        for variant, other in (ends, ends[::-1]):
            alive = self._alive(variant, cut)
            shares = splits and variant.tensor > 1 and not variant.sequence
            counterparts = 1 if splits or parts else max(1, -(-other.tensor // variant.tensor))
            sent = max(sent, alive / variant.tensor if shares else alive * counterparts)
            if shares:
                gather = self.group(tuple(range(variant.tensor))).seconds("all-gather", alive)
                gathered = max(gathered, self.round(gather))
        here, there = self.outer.block(at, replica), self.outer.block(at + 1, replica)
        widths = [each.width for each in self.shape.pieces[at : at + 2]]
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
        self.by_piece = {each: StageCosts(problem, shape, each, rounding) for each in set(shape.pieces)}

    def stage(self, at: int, first: int, end: int, inner: oracle_plans.Inner) -> oracle.Figures:
        """Return the figures of a stage."""
        return self.by_piece[self.shape.pieces[at]].stage(at, first, end, inner)

    def objective(self, figures: list[oracle.Figures]) -> int:
        """Return the time of an iteration."""
        return self.by_piece[self.shape.pieces[0]].objective(figures)


def families(problem: Problem) -> Iterator[tuple[Piece, ...]]:
    """Yield what stages of a plan may be of."""
    choices, seen = problem.choices, set[tuple[Piece, ...]]()
    if choices.stage_tensor is None and choices.shard_inside is None:
        return
    for base in problem.graphs:
        pairs = [
            (choices.tensor if choices.stage_tensor is None else choices.stage_tensor, base.tensor),
            (choices.expert, base.expert),
            (choices.context, base.context),
            (choices.microbatch, base.microbatch),
            (None if choices.sequence is None else {choices.sequence}, base.sequence),
        ]
        if any(ok is not None and value not in ok for ok, value in pairs):
            continue
        widths = choices.stage_tensor or {base.tensor}
        alike = [replace(base, tensor=each, sequence=base.sequence and each > 1) for each in sorted(widths)]
        pieces = [piece for each in alike if each in problem.graphs for piece in _pieces(problem, each)]
        family = tuple(piece for piece in pieces if piece.variant in problem.graphs and _nests(problem, piece))
        if family and family not in seen:
            seen.add(family)
            yield family


def _pieces(problem: Problem, whole: Variant) -> Iterator[Piece]:
    choices = problem.choices
    for degree in sorted(choices.shard_inside or {1}):
        for split in (False, True):
            if degree == 1 and not split:
                yield Piece(whole)
            elif degree > 1 and choices.splits_batch in (None, split) and not (split and whole.microbatch % degree):
                yield Piece(whole, degree, split)


def _nests(problem: Problem, piece: Piece) -> bool:
    cluster, size = problem.cluster, 1
    for level in cluster.levels:
        size *= level.fanout
        if size < cluster.devices and piece.width % size and size % piece.width:
            return False
    return oracle_plans.nests(cluster, piece.variant)


def shapes(problem: Problem) -> Iterator[Shape]:
    """Yield every plan but for its layers."""
    choices, layers = problem.choices, len(next(iter(problem.graphs.values())))
    for family in families(problem):
        most = oracle_plans.microbatches(problem, family[0].whole)
        for count in range(1, layers + 1):
            if choices.stages is not None and count not in choices.stages:
                continue
            for pieces in product(family, repeat=count):
                if sum(piece.width for piece in pieces) > problem.cluster.devices:
                    continue
                for replicas in range(1, most + 1):
                    if choices.replicas is None or replicas in choices.replicas:
                        yield from placed(problem, pieces, replicas)


def placed(problem: Problem, pieces: tuple[Piece, ...], replicas: int) -> Iterator[Shape]:
    """Yield where stages of these pieces may stand."""
    widths, devices = [each.width for each in pieces], problem.cluster.devices
    beside = max(pieces, key=lambda piece: piece.whole.tensor).whole.width
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
            yield Shape(pieces, replicas, "stage-major", tuple(blocks), beside)
    starts, end = list[int](), 0
    for width in widths:
        starts.append(next(at for at in range(end, end + width) if at % width == 0))
        end = starts[-1] + width
    for stride in range(end, devices + 1):
        if stride % lcm(*widths) == 0 and (replicas - 1) * stride + end <= devices:
            rows = tuple(tuple(start + stride * replica for replica in range(replicas)) for start in starts)
            yield Shape(pieces, replicas, "replica-major", rows, stride)


def best(problem: Problem, rounding: oracle.Rounding) -> oracle.Best:
    """Try every plan; of the ways of a stage only those count of which no other is as fast and synchronises as fast."""
    found = oracle.Best(None, None)
    for shape in shapes(problem):
        costs, count = Costs(problem, shape, rounding), len(shape.pieces)
        layers = len(problem.graphs[shape.pieces[0].variant])
        for inner in combinations(range(1, layers), count - 1):
            cuts = list(pairwise([0, *inner, layers]))
            options = [_undominated(problem, costs, at, run) for at, run in enumerate(cuts)]
            for picked in product(*options):
                objective = costs.objective([figures for figures, _ in picked])
                if found.objective is None or objective < found.objective:
                    found = oracle.Best(objective, plan_of(problem, shape, cuts, [each for _, each in picked]))
    return found


def inners(problem: Problem, shape: Shape, at: int, run: tuple[int, int]) -> Iterator[oracle_plans.Inner]:
    """Yield all that a stage may choose: inside, it shards over the devices of one replica."""
    piece = shape.pieces[at]
    outer = outer_of(shape, piece)
    if piece.inside == 1:
        yield from oracle_plans.inners(problem, outer, run)
        return
    plain = problem.with_choices(zero=frozenset({0}))
    for again in oracle_plans.inners(plain, outer, run):
        yield from (replace(again, zero=zero, group=1) for zero in sorted(problem.choices.zero - {0}))


def _undominated(
    problem: Problem, costs: Costs, at: int, run: tuple[int, int]
) -> list[tuple[oracle.Figures, oracle_plans.Inner]]:
    kept = list[tuple[oracle.Figures, oracle_plans.Inner]]()
    for inner in inners(problem, costs.shape, at, run):
        figures = costs.stage(at, *run, inner)
        fits = figures.memory <= decimal(problem.cluster.hbm_bytes)
        if fits and not any(each.load <= figures.load and each.sync <= figures.sync for each, _ in kept):
            kept.append((figures, inner))
    return kept


def outer_of(shape: Shape, piece: Piece) -> oracle_plans.Outer:
    """Return what plans of one variant have one of, of stages that stand like these."""
    spot = Spot(shape.arrangement, shape.blocks, shape.stride)
    return oracle_plans.Outer(piece.variant, len(shape.pieces), shape.replicas, shape.arrangement, spot)


def plan_of(problem: Problem, shape: Shape, cuts: list[tuple[int, int]], inner: list[oracle_plans.Inner]) -> Plan:
    """Return the plan with these choices."""
    widest = max(shape.pieces, key=lambda piece: piece.whole.tensor).whole
    ids = [layer.id for layer in problem.graphs[widest].layers]
    stages = []
    for at, (run, each) in enumerate(zip(cuts, inner, strict=True)):
        piece = shape.pieces[at]
        alone = oracle_plans.plan_of(problem, outer_of(shape, piece), [run], [each]).stages[0]
        own = None if piece.whole.tensor == widest.tensor else piece.whole.tensor
        first, layers = shape.blocks[at][0], tuple(ids[slice(*run)])
        stage = replace(alone, layers=layers, first_device=first, devices=piece.width, tensor=own)
        if piece.inside > 1:
            stage = replace(stage, sharding=Sharding("stage", each.zero, piece.inside, piece.split))
        stages.append(stage)
    return Plan(widest, shape.replicas, shape.stride, tuple(stages), arrangement=shape.arrangement)


def shape_of(plan: Plan) -> Shape:
    """Return a plan but for its layers, where all devices are on its line."""
    pieces, blocks = list[Piece](), list[tuple[int, ...]]()
    for stage in plan.stages:
        whole, own = plan.variant, stage.tensor
        if own is not None:
            whole = replace(whole, tensor=own, sequence=whole.sequence and own > 1)
        inside = stage.sharding.degree if stage.sharding.kind == "stage" else 1
        pieces.append(Piece(whole, inside, stage.sharding.splits_batch))
        stride = stage.devices if plan.arrangement == "stage-major" else plan.replica_stride
        blocks.append(tuple(stage.first_device + replica * stride for replica in range(plan.replicas)))
    return Shape(tuple(pieces), plan.replicas, plan.arrangement, tuple(blocks), plan.replica_stride)


def inner_of(plan: Plan, at: int, piece: Piece) -> oracle_plans.Inner:
    """Return what a stage of a plan chooses."""
    inner = oracle_plans.inner_of(replace(plan, variant=piece.variant), plan.stages[at])
    return replace(inner, group=1) if piece.inside > 1 else inner


def price(problem: Problem, plan: Plan, rounding: oracle.Rounding) -> tuple[int, list[oracle.Figures]]:
    """Price a plan where it stands."""
    shape = shape_of(plan)
    costs, figures, first = Costs(problem, shape, rounding), list[oracle.Figures](), 0
    for at, (stage, piece) in enumerate(zip(plan.stages, shape.pieces, strict=True)):
        figures.append(costs.stage(at, first, first + len(stage.layers), inner_of(plan, at, piece)))
        first += len(stage.layers)
    return costs.objective(figures), figures
