"""The slow plain reference for preset `default`: every plan of a small problem, priced from `docs/formulation.md`.

It shares the data classes of a problem and a plan with `nest`, and nothing else: which devices form a group, what the
algorithms of a collective take, loads, memory and the list of legal plans are written out again, in exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, product

from oracle_groups import Group, decimal

from nest.cluster import Cluster
from nest.graph import Collective, Layer
from nest.plan import Plan, Sharding, Stage
from nest.presets import Arrangement
from nest.problem import Problem, Variant


@dataclass(frozen=True)
class Outer:
    """What a plan has one of."""

    variant: Variant
    stages: int
    replicas: int
    arrangement: Arrangement


@dataclass(frozen=True)
class Figures:
    """What one stage costs: ticks, ticks, bytes."""

    load: int
    sync: int
    memory: Fraction


@dataclass(frozen=True)
class Inner:
    """What a stage chooses: ZeRO type, replicas of a group that shares its weights, what how many layers recompute."""

    zero: int
    group: int
    kind: str = "none"
    count: int = 0


@dataclass(frozen=True)
class Best:
    """The best objective of all plans and one plan that has it, or neither."""

    objective: int | None
    plan: Plan | None


class Rounding:
    """Rounds seconds to ticks, halves to even, and notes what floating-point arithmetic could round otherwise."""

    def __init__(self, exponent: int) -> None:
        self.per_second = Fraction(10) ** exponent
        self.doubtful = 0

    def __call__(self, seconds: Fraction) -> int:
        """Return ticks."""
        exact = seconds * self.per_second
        away = abs(exact - (exact.numerator // exact.denominator) - Fraction(1, 2))
        self.doubtful += away <= 32 * exact / 2**53
        return round(exact)


def nests(cluster: Cluster, variant: Variant) -> bool:
    """Whether the units of a variant and the groups of the network divide each other."""
    size, groups = 1, []
    for level in cluster.levels:
        size *= level.fanout
        groups.append(size)
    units = [variant.tensor, variant.tensor * variant.context, variant.tensor * variant.context * variant.expert]
    return all(unit % group == 0 or group % unit == 0 for unit in units for group in groups if group < cluster.devices)


class Costs:
    """Prices of one outer choice."""

    def __init__(self, problem: Problem, outer: Outer, rounding: Rounding) -> None:
        self.problem, self.outer, self.round = problem, outer, rounding
        self.cluster, self.training = problem.cluster, problem.training
        self.variant, self.layers = outer.variant, problem.graphs[outer.variant].layers
        self.width = self.variant.tensor * self.variant.context * self.variant.expert
        place = {layer.id: at for at, layer in enumerate(self.layers)}
        self.edges = [(place[e.source], place[e.target], e.bytes) for e in problem.graphs[outer.variant].edges]
        given = self.training.copies
        adam = 6 if self.training.optimizer == "adam" else 0
        self.optimizer, self.gradients = (given.optimizer, given.gradients) if given else (adam, 1)
        self.m = -(-microbatches(problem, self.variant) // outer.replicas)
        self.quantum = quantum(problem)
        self.stage, self.layer, self.hop = cache(self._stage), cache(self._layer), cache(self._hop)
        self.group = cache(lambda members: Group(self.cluster, list(members)))

    def block(self, at: int, replica: int) -> int:
        """Return the first device of a stage."""
        if self.outer.arrangement == "stage-major":
            return (at * self.outer.replicas + replica) * self.width
        return (replica * self.outer.stages + at) * self.width

    def _stage(self, at: int, first: int, end: int, inner: Inner) -> Figures:
        zero, layers = inner.zero, self.layers[first:end]
        load = max(self._load(at, first, end, inner, replica) for replica in range(self.outer.replicas))
        each = {0: [], 1: [], 2: [("reduce-scatter", self.gradients)]}.get(
            zero, [("all-gather", 1), ("all-gather", 1), ("reduce-scatter", self.gradients)]
        )
        one, size = Fraction(1), inner.group
        load += sum(self._exchange(at, size, [layer], what, one) for layer in layers for what in each)
        once = {
            0: [("all-reduce", self.gradients)],
            1: [("reduce-scatter", self.gradients), ("all-gather", 1)],
            2: [("all-gather", 1)],
            3: [],
        }[zero]
        left = 1 - decimal(self.training.sync_overlap)
        sync = sum(self._exchange(at, size, layers, what, left) for what in once)
        if zero and size < self.outer.replicas:
            sync += self._across(at, size, layers, left)
        return Figures(load, sync, self._memory(at, layers, inner))

    def _load(self, at: int, first: int, end: int, inner: Inner, replica: int) -> int:
        again = repeating(self.layers[first:end], inner)
        kinds = [inner.kind if repeats else "none" for repeats in again]
        block = self.block(at, replica)
        total = sum(self.layer(place, kind, block) for place, kind in zip(range(first, end), kinds, strict=True))
        if at > 0:
            total += self.hop(first, self.block(at - 1, replica), self.block(at, replica))
        if at + 1 < self.outer.stages:
            total += self.hop(end, self.block(at, replica), self.block(at + 1, replica))
        return total

    def _layer(self, place: int, kind: str, block: int) -> int:
        layer = self.layers[place]
        passes, collectives = [layer.forward_s, layer.backward_s], list(layer.collectives)
        for again in layer.recomputed:
            if again.kind == kind:
                passes.append(again.repeated_s)
                collectives += again.collectives
        exchanged = sum(self._inside(each, block) for each in collectives)
        return exchanged + sum(self.round(decimal(seconds)) for seconds in passes)

    def _hop(self, cut: int, here: int, there: int) -> int:
        sources = {source for source, target, _ in self.edges if source < cut <= target}
        alive = sum(
            max(decimal(size) for source, target, size in self.edges if source == one and target >= cut)
            for one in sources
        )
        pairs = (self.group((here + rank, there + rank)) for rank in range(self.width))
        return max(self.round(pair.hop(alive) if alive else Fraction(0)) for pair in pairs)

    def _inside(self, each: Collective, block: int) -> int:
        t, c, e = self.variant.tensor, self.variant.context, self.variant.expert
        ranks = [(x, y, z) for z in range(e) for y in range(c) for x in range(t)]
        groups: dict[tuple[int, ...], list[int]] = {}
        for x, y, z in ranks:
            key = {"tensor": (y, z), "context": (x, z), "expert": (x, y)}[each.axis]
            groups.setdefault(key, []).append(block + x + t * y + t * c * z)
        times = []
        for members in groups.values():
            seconds = self.group(tuple(members)).seconds(each.kind, decimal(each.bytes))
            hidden = min(seconds, decimal(each.hidden_s))
            times.append(self.round(seconds - hidden + decimal(self.training.overlap_tax) * hidden))
        return max(times)

    def _exchange(
        self, at: int, size: int, layers: tuple[Layer, ...] | list[Layer], what: tuple[str, int], left: Fraction
    ) -> int:
        """Return what the holders of dense and of expert weights exchange, in groups of so many replicas."""
        kind, times = what
        groups = [range(one, one + size) for one in range(0, self.outer.replicas, size)]
        experts = sum((decimal(layer.expert_parameter_bytes) for layer in layers), Fraction(0))
        whole = sum((decimal(layer.parameter_bytes) for layer in layers), Fraction(0))
        t, c, e = self.variant.tensor, self.variant.context, self.variant.expert
        total = 0
        for weights, own in ((whole - experts, False), (experts, True)):
            slowest = Fraction(0)
            for x, mine, group in product(range(t), range(e) if own else [0], groups):
                ranks = [mine] if own else range(e)
                members = [
                    self.block(at, replica) + x + t * y + t * c * z
                    for replica in group
                    for z in ranks
                    for y in range(c)
                ]
                slowest = max(slowest, self.group(tuple(sorted(members))).seconds(kind, weights * times))
            total += self.round(slowest * left)
        return total

    def _across(self, at: int, size: int, layers: tuple[Layer, ...], left: Fraction) -> int:
        """Return what an all-reduce of shares takes between the groups that each share the weights."""
        inside, total = self.variant.context, 0
        for weights, ranks in zip(self._weights(layers), (inside * self.variant.expert, inside), strict=True):
            slowest = Fraction(0)
            for rank, one in product(range(self.width), range(size)):
                members = [self.block(at, replica) + rank for replica in range(one, self.outer.replicas, size)]
                share = weights * self.gradients / (size * ranks)
                slowest = max(slowest, self.group(tuple(members)).seconds("all-reduce", share))
            total += self.round(slowest * left)
        return total

    def _memory(self, at: int, layers: tuple[Layer, ...], inner: Inner) -> Fraction:
        held, moment, zero = Fraction(0), Fraction(0), inner.zero
        over = inner.group * self.variant.context * self.variant.expert, inner.group * self.variant.context
        figures = [
            next(each for each in layer.recomputed if each.kind == inner.kind) if repeats else layer
            for layer, repeats in zip(layers, repeating(layers, inner), strict=True)
        ]
        for layer, each in zip(layers, figures, strict=True):
            own = decimal(each.working_bytes)
            for size, ranks in zip(self._weights([layer]), over, strict=True):
                if ranks > 1 and zero >= 2:
                    own += size * self.gradients
                if ranks > 1 and zero == 3:
                    own += size
            moment = max(moment, own)
        for size, ranks in zip(self._weights(layers), over, strict=True):
            parts = [self.optimizer, self.gradients, 1]
            quanta = size * sum(parts[:zero]) / ranks / self.quantum
            held += size * sum(parts[zero:]) - (-quanta.numerator // quanta.denominator) * self.quantum
        kept = sum((decimal(each.activation_bytes) for each in figures), Fraction(0))
        return held + self.flying(at) * kept + moment + decimal(self.training.overhead_bytes)

    def flying(self, at: int) -> int:
        """Return how many microbatches a stage has in flight."""
        return min(self.m, self.outer.stages - at)

    def _weights(self, layers: tuple[Layer, ...] | list[Layer]) -> tuple[Fraction, Fraction]:
        experts = sum((decimal(layer.expert_parameter_bytes) for layer in layers), Fraction(0))
        return sum((decimal(layer.parameter_bytes) for layer in layers), Fraction(0)) - experts, experts

    def objective(self, figures: list[Figures]) -> int:
        """Return the time of an iteration."""
        loads = [each.load for each in figures]
        return sum(loads) + (self.m - 1) * max(loads) + max(each.sync for each in figures)


def microbatches(problem: Problem, variant: Variant) -> int:
    """Return the microbatches of an iteration."""
    batch = problem.training.global_batch
    return -(-batch // (variant.expert * variant.microbatch)) if batch else problem.training.microbatches


def quantum(problem: Problem) -> Fraction:
    """Return the largest power of a tenth of which every byte count that memory depends on is a multiple."""
    sizes = [decimal(problem.training.overhead_bytes)]
    for graph in problem.graphs.values():
        sizes += [decimal(edge.bytes) for edge in graph.edges]
        for layer in graph.layers:
            sizes += [decimal(layer.parameter_bytes), decimal(layer.activation_bytes)]
            sizes += [decimal(layer.expert_parameter_bytes), decimal(layer.working_bytes)]
            for each in layer.recomputed:
                sizes += [decimal(each.activation_bytes), decimal(each.working_bytes)]
    found = Fraction(1)
    while any((size / found).denominator > 1 for size in sizes):
        found /= 10
    return found


def price(problem: Problem, plan: Plan, rounding: Rounding) -> tuple[int, list[Figures]]:
    """Price a plan whose blocks are where its arrangement has them."""
    outer = Outer(plan.variant, len(plan.stages), plan.replicas, plan.arrangement)
    costs, figures, first = Costs(problem, outer, rounding), [], 0
    for at, stage in enumerate(plan.stages):
        figures.append(costs.stage(at, first, first + len(stage.layers), inner_of(plan, stage)))
        first += len(stage.layers)
    return costs.objective(figures), figures


def outer_choices(problem: Problem) -> Iterator[Outer]:
    """Yield every outer choice that the rules allow, memory apart."""
    choices = problem.choices
    for variant, graph in problem.graphs.items():
        width = variant.tensor * variant.context * variant.expert
        pairs = [
            (choices.tensor, variant.tensor),
            (choices.expert, variant.expert),
            (choices.context, variant.context),
            (choices.microbatch, variant.microbatch),
            (None if choices.sequence is None else {choices.sequence}, variant.sequence),
        ]
        if not nests(problem.cluster, variant) or any(ok is not None and value not in ok for ok, value in pairs):
            continue
        for stages, replicas in product(range(1, len(graph) + 1), range(1, microbatches(problem, variant) + 1)):
            fits = stages * replicas * width <= problem.cluster.devices
            if not fits or (choices.stages is not None and stages not in choices.stages):
                continue
            if choices.replicas is None or replicas in choices.replicas:
                yield Outer(variant, stages, replicas, "stage-major")
                yield Outer(variant, stages, replicas, "replica-major")


def best(problem: Problem, rounding: Rounding) -> Best:
    """Try every plan of a problem."""
    found = Best(None, None)
    for outer in outer_choices(problem):
        costs = Costs(problem, outer, rounding)
        layers = len(costs.layers)
        for inner in combinations(range(1, layers), outer.stages - 1):
            cuts = list(pairwise([0, *inner, layers]))
            options = [
                [
                    (costs.stage(at, *run, each), each)
                    for each in inners(problem, outer, run)
                    if _fits(costs, at, run, each)
                ]
                for at, run in enumerate(cuts)
            ]
            for picked in product(*options):
                objective = costs.objective([figures for figures, _ in picked])
                if found.objective is None or objective < found.objective:
                    found = Best(objective, plan_of(problem, outer, cuts, [each for _, each in picked]))
    return found


def repeating(layers: tuple[Layer, ...], inner: Inner) -> list[bool]:
    """Return which layers of a stage compute something again."""
    able = [at for at, layer in enumerate(layers) if any(each.kind == inner.kind for each in layer.recomputed)]
    return [at in able[: inner.count] for at in range(len(layers))]


def inners(problem: Problem, outer: Outer, run: tuple[int, int]) -> Iterator[Inner]:
    """Yield all that a stage may choose."""
    choices, d = problem.choices, outer.replicas
    ranks = outer.variant.context * outer.variant.expert
    again = _recomputations(problem, outer, run)
    for zero in sorted(choices.zero):
        for group in range(1, d + 1):
            degrees = choices.zero_degree
            shards = group * ranks > 1 and d % group == 0 and (degrees is None or group * ranks in degrees)
            if shards if zero else group == d:
                yield from (Inner(zero, group, kind, count) for kind, count in again)


def _recomputations(problem: Problem, outer: Outer, run: tuple[int, int]) -> list[tuple[str, int]]:
    allowed = problem.choices.stage_recompute
    layers = problem.graphs[outer.variant].layers[slice(*run)]
    found = []
    for kind in ("selective", "full"):
        if allowed is None or kind in allowed:
            able = sum(any(each.kind == kind for each in layer.recomputed) for layer in layers)
            found += [(kind, count) for count in range(1, able + 1)]
    return found if found and allowed is not None and "none" not in allowed else [("none", 0), *found]


def inner_of(plan: Plan, stage: Stage) -> Inner:
    """Return what a stage of a plan chooses."""
    ranks, zero = plan.variant.context * plan.variant.expert, stage.sharding.zero
    count = len(stage.layers) if stage.recomputed is None else stage.recomputed
    return Inner(zero, stage.sharding.degree // ranks if zero else plan.replicas, stage.recompute, count)


def _fits(costs: Costs, at: int, run: tuple[int, int], inner: Inner) -> bool:
    return costs.stage(at, *run, inner).memory <= decimal(costs.cluster.hbm_bytes)


def plan_of(problem: Problem, outer: Outer, cuts: list[tuple[int, int]], inner: list[Inner]) -> Plan:
    """Return the plan with these choices, everything else as the definition has it."""
    variant, layers = outer.variant, problem.graphs[outer.variant].layers
    width, ranks = variant.width, variant.context * variant.expert
    by_stage = outer.arrangement == "stage-major"
    stages = [
        Stage(
            tuple(layer.id for layer in layers[first:end]),
            at * width * (outer.replicas if by_stage else 1),
            width,
            each.kind,  # type: ignore[arg-type]
            Sharding("replicas", each.zero, each.group * ranks) if each.zero and each.group * ranks > 1 else Sharding(),
            recomputed=each.count or None,
        )
        for at, ((first, end), each) in enumerate(zip(cuts, inner, strict=True))
    ]
    return Plan(
        variant, outer.replicas, width * (1 if by_stage else outer.stages), tuple(stages), arrangement=outer.arrangement
    )


def plans(problem: Problem) -> Iterator[Plan]:
    """Yield every plan of a problem that the rules allow, memory and side constraints apart."""
    for outer in outer_choices(problem):
        layers = len(problem.graphs[outer.variant])
        for inner in combinations(range(1, layers), outer.stages - 1):
            cuts = list(pairwise([0, *inner, layers]))
            for picked in product(*(list(inners(problem, outer, run)) for run in cuts)):
                yield plan_of(problem, outer, cuts, list(picked))
