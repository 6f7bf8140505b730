"""The slow plain reference for preset `default`: every plan of a small problem, priced from `docs/formulation.md`.

It shares the data classes of a problem and a plan with `nest`, and nothing else: which devices form a group, what the
algorithms of a collective take, loads and memory are written out again, in exact fractions. The list
of legal plans is in `oracle_plans`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, product

from oracle_groups import Group, decimal
from oracle_places import class_of, spot_of
from oracle_plans import Inner, Outer, inner_of, inners, microbatches, outer_choices, plan_of, repeating

from nest.graph import Collective, Layer
from nest.plan import Plan
from nest.problem import Copies, Problem


@dataclass(frozen=True)
class Figures:
    """What one stage costs: ticks, ticks, bytes."""

    load: int
    sync: int
    memory: Fraction


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


class Costs:
    """Prices of one outer choice."""

    def __init__(self, problem: Problem, outer: Outer, rounding: Rounding) -> None:
        self.problem, self.outer, self.round = problem, outer, rounding
        self.cluster, self.training = problem.cluster, problem.training
        self.variant, self.layers = outer.variant, problem.graphs[outer.variant].layers
        self.width = self.variant.tensor * self.variant.context * self.variant.expert
        self.inside = 1  # how many times as many devices a block has, between which it is sharded
        place = {layer.id: at for at, layer in enumerate(self.layers)}
        self.edges = [(place[e.source], place[e.target], e.bytes) for e in problem.graphs[outer.variant].edges]
        given = self.training.copies or Copies(6 if self.training.optimizer == "adam" else 0)
        self.optimizer, self.gradients, self.stepped = given.optimizer, given.gradients, given.stepped
        self.gathered = decimal(given.gathered)
        self.summed = decimal(given.gradients if given.reduced is None else given.reduced)
        tax = round(decimal(self.training.overlap_tax) * 10**6)
        self.hidden = 10**6 - tax if self.training.hides_gradients else 0
        self.m = -(-microbatches(problem, self.variant) // outer.replicas)
        self.quantum = quantum(problem)
        self.classes_of = self._classes_of()
        self.stage, self.layer, self.hop = cache(self._stage), cache(self._layer), cache(self._hop)
        self.passes, self.repeats = cache(self._passes), cache(self._repeats)
        self.exchanged, self.weighed = cache(self._exchanged), cache(self._weighed)
        self.group = cache(lambda members: Group(self.cluster, list(members)))

    def _stage(self, at: int, first: int, end: int, inner: Inner) -> Figures:
        load = max(self._load(at, first, end, inner, replica) for replica in range(self.outer.replicas))
        load += self._sharded(at, first, end, inner)
        return Figures(load, self._once(at, first, end, inner), self.memory(at, self.layers[first:end], inner))

    def _zero(self, inner: Inner) -> int:
        """Return the ZeRO type by what is exchanged: stages that hold what they gather do as under type 1."""
        held = inner.zero == 3 and self.outer.stages > 1 and self.training.holds_gathered
        return 1 if held else inner.zero

    def _left(self, ticks: int, beside: int) -> int:
        return ticks - min(ticks, beside) * self.hidden // 10**6

    def _sharded(self, at: int, first: int, end: int, inner: Inner) -> int:
        """Return what is left of what a ZeRO type exchanges for each microbatch."""
        block, backward = self.outer.block(at, 0), self._backward(at, first, end)
        if self._zero(inner) != 3:
            return self._left(self._scattered(at, first, end, inner), backward)
        total = 0
        for place, again in zip(range(first, end), repeating(self.problem, self.layers[first:end], inner), strict=True):
            layers = [self.layers[place]]
            there = self._exchange(at, inner.group, layers, ("all-gather", self.gathered))
            back = there + self._exchange(at, inner.group, layers, ("reduce-scatter", self.summed))
            total += self._left(there, self.passes(place, "forward", block) if place > first else 0)
            repeats = self.repeats(place, inner.kind, block) if again else 0
            total += self._left(back, self.passes(place, "backward", block) + repeats)
        return total

    def _backward(self, at: int, first: int, end: int) -> int:
        return sum(self.passes(place, "backward", self.outer.block(at, 0)) for place in range(first, end))

    def _scattered(self, at: int, first: int, end: int, inner: Inner) -> int:
        """Return what a backward pass exchanges, hidden or not."""
        kinds = {2: [("reduce-scatter", self.summed)]}.get(inner.zero, [])
        if self._zero(inner) == 3:
            kinds = [("all-gather", self.gathered), ("reduce-scatter", self.summed)]
        return sum(
            self._exchange(at, inner.group, [self.layers[place]], (kind, times))
            for place in range(first, end)
            for kind, times in kinds
        )

    def _once(self, at: int, first: int, end: int, inner: Inner) -> int:
        """Return what a stage does once per iteration."""
        layers, size, zero = self.layers[first:end], inner.group, self._zero(inner)
        summed = 0
        if zero < 2:
            whole = inner.zero == 1 and self.training.sums_whole
            kind = "reduce-scatter" if zero and not whole else "all-reduce"
            summed += self._exchange(at, size, layers, (kind, self.summed))
        if zero and size < self.outer.replicas:
            summed += self._across(at, size, layers)
        window = max(0, self._backward(at, first, end) - self._scattered(at, first, end, inner))
        part = Fraction(summed) * (1 - Fraction(1, max(2, len(layers))))
        left = self._left(summed, min(part.numerator // part.denominator, window))
        if zero in (1, 2):
            left += self._exchange(at, size, layers, ("all-gather", self.gathered))
        left += self._ends(first, end)
        return left + max(self.round(self._stepped_on(layers, inner) * decimal(step)) for step in self._steps(at))

    def _steps(self, at: int) -> list[float]:
        own = {each.name: each.step_s_per_byte for each in self.cluster.classes}
        usual = self.training.step_s_per_byte
        found = [own.get(name) for name in self.classes_of[self.outer.block(at, 0)]]
        return [usual if step is None else step for step in found]

    def _ends(self, first: int, end: int) -> int:
        """Return what first and last stage take to sum the gradients of what layers copy of a table before them."""
        table = self._table()
        tied = sum((decimal(layer.tied_bytes) for layer in self.layers[first:end]), Fraction(0))
        if not tied or first <= table < end:
            return 0
        last, replicas = self.outer.stages - 1, range(self.outer.replicas)
        pairs = [self.group((self.outer.block(0, replica), self.outer.block(last, replica))) for replica in replicas]
        return self.round(max(pair.seconds("all-reduce", tied * self.summed) for pair in pairs))

    def _table(self) -> int:
        graph = self.problem.graphs[self.variant]
        return [layer.id for layer in graph.layers].index(graph.layers[0].id if graph.table is None else graph.table)

    def _whole_experts(self) -> bool:
        """Whether an expert's weights are on all tensor ranks, each of which has tokens of its own."""
        return self.training.whole_experts and self.variant.sequence

    def _stepped_on(self, layers: tuple[Layer, ...], inner: Inner) -> Fraction:
        total = Fraction(0)
        for size, ranks in zip(self._weights(layers), self._over(inner.group), strict=True):
            total += self._up(size / (ranks if inner.zero else 1))
        return total

    def _over(self, replicas: int) -> tuple[int, int]:
        """Return how many ranks of some replicas hold copies of a dense weight, and of an expert's."""
        each = replicas * self.variant.context * self.inside
        return each * self.variant.expert, each * (self.variant.tensor if self._whole_experts() else 1)

    def _load(self, at: int, first: int, end: int, inner: Inner, replica: int) -> int:
        again = repeating(self.problem, self.layers[first:end], inner)
        kinds = [inner.kind if repeats else "none" for repeats in again]
        block = self.outer.block(at, replica)
        total = sum(self.layer(place, kind, block) for place, kind in zip(range(first, end), kinds, strict=True))
        if at > 0:
            total += self.hop(first, self.outer.block(at - 1, replica), self.outer.block(at, replica))
        if at + 1 < self.outer.stages:
            total += self.hop(end, self.outer.block(at, replica), self.outer.block(at + 1, replica))
        return total

    def _layer(self, place: int, kind: str, block: int) -> int:
        both = sum(self.passes(place, when, block) for when in ("forward", "backward"))
        return both + self.repeats(place, kind, block)

    def _passes(self, place: int, when: str, block: int) -> int:
        ways = self._ways(place, block)
        own = max(self.round(decimal(layer.forward_s if when == "forward" else layer.backward_s)) for layer in ways)
        together = zip(*(layer.collectives for layer in ways), strict=True)
        return own + sum(self._inside(each, block) for each in together if each[0].when == when)

    def _ways(self, place: int, block: int) -> list[Layer]:
        """Return a layer as each class of devices has it on which the stage of a block stands, in any replica."""
        names, others = self.classes_of[block], dict(self.problem.graphs[self.variant].others)
        return [others.get(name, self.layers)[place] for name in sorted(names)]

    def _classes_of(self) -> dict[int, set[str]]:
        """Return for each block the classes of all devices of its stage."""
        found: dict[int, set[str]] = {}
        for at in range(self.outer.stages):
            blocks = [self.outer.block(at, replica) for replica in range(self.outer.replicas)]
            names = {class_of(self.cluster, block + rank) for block in blocks for rank in range(self.width)}
            found |= dict.fromkeys(blocks, names)
        return found

    def _repeats(self, place: int, kind: str, block: int) -> int:
        ways = self._ways(place, block)
        found = [[again for again in layer.recomputed if again.kind == kind] for layer in ways]
        if not found[0]:
            return 0
        together = zip(*(again[0].collectives for again in found), strict=True)
        own = max(self.round(decimal(again[0].repeated_s)) for again in found)
        return own + sum(self._inside(each, block) for each in together)

    def _hop(self, cut: int, here: int, there: int) -> int:
        return sum(self._crossing(cut, here, there))

    def _crossing(self, cut: int, here: int, there: int) -> tuple[int, int]:
        """Return what it takes to receive what comes across a boundary, and to send as much the other way."""
        alive = self.alive(cut)
        pairs = [self.group((here + rank, there + rank)) for rank in range(self.width)]
        t, gathered = self.variant.tensor, 0
        if self.training.splits_transfers and t > 1 and not self.variant.sequence:
            gathered, alive = self.round(self.group(tuple(range(t))).seconds("all-gather", alive)), alive / t
        hop = max(self.round(pair.hop(alive) if alive else Fraction(0)) for pair in pairs)
        return gathered + hop, hop if self.training.blocking_sends else 0

    def _inside(self, ways: tuple[Collective, ...], block: int) -> int:
        """Return what a collective takes, given as each class of devices there has it."""
        each, beside = ways[0], min(decimal(way.hidden_s) for way in ways)
        t, c, e = self.variant.tensor, self.variant.context, self.variant.expert
        ranks = [(x, y, z) for z in range(e) for y in range(c) for x in range(t)]
        groups: dict[tuple[int, ...], list[int]] = {}
        for x, y, z in ranks:
            key = {"tensor": (y, z), "context": (x, z), "expert": (x, y)}[each.axis]
            groups.setdefault(key, []).append(block + x + t * y + t * c * z)
        times = []
        for members in groups.values():
            seconds = self.group(tuple(members)).seconds(each.kind, decimal(each.bytes))
            hidden = min(seconds, beside)
            times.append(self.round(seconds - hidden + decimal(self.training.overlap_tax) * hidden))
        return max(times)

    def _exchange(
        self, at: int, size: int, layers: tuple[Layer, ...] | list[Layer], what: tuple[str, Fraction | int]
    ) -> int:
        """Return what the holders of dense and of expert weights exchange, in groups of so many replicas."""
        return self.exchanged(at, size, self._weights(layers), what)

    def _exchanged(self, at: int, size: int, held: tuple[Fraction, Fraction], what: tuple[str, Fraction | int]) -> int:
        kind, times = what
        groups = [range(one, one + size) for one in range(0, self.outer.replicas, size)]
        t, c, e = self.variant.tensor, self.variant.context, self.variant.expert
        total = 0
        for weights, own in zip(held, (False, True), strict=True):
            slowest = Fraction(0)
            everywhere = own and self._whole_experts()
            for x, mine, group in product([0] if everywhere else range(t), range(e) if own else [0], groups):
                ranks = [mine] if own else range(e)
                members = [
                    self.outer.block(at, replica) + column + t * y + t * c * z + t * c * e * again
                    for replica in group
                    for again in range(self.inside)
                    for z in ranks
                    for y in range(c)
                    for column in (range(t) if everywhere else [x])
                ]
                slowest = max(slowest, self.group(tuple(sorted(members))).seconds(kind, weights * times))
            total += self.round(slowest)
        return total

    def _across(self, at: int, size: int, layers: tuple[Layer, ...]) -> int:
        """Return what an all-reduce of shares takes between the groups that each share the weights."""
        total = 0
        for weights, ranks in zip(self._weights(layers), self._over(1), strict=True):
            slowest = Fraction(0)
            for rank, one in product(range(self.width * self.inside), range(size)):
                members = [self.outer.block(at, replica) + rank for replica in range(one, self.outer.replicas, size)]
                share = weights * self.summed / (size * ranks)
                slowest = max(slowest, self.group(tuple(sorted(members))).seconds("all-reduce", share))
            total += self.round(slowest)
        return total

    def memory(self, at: int, layers: tuple[Layer, ...], inner: Inner) -> Fraction:
        """Return the bytes that a stage takes."""
        held, kept, zero, passing = Fraction(0), Fraction(0), inner.zero, list[tuple[Fraction, Fraction]]()
        over = self._over(inner.group)
        figures = [
            next(each for each in layer.recomputed if each.kind == inner.kind) if repeats else layer
            for layer, repeats in zip(layers, repeating(self.problem, layers, inner), strict=True)
        ]
        for layer, each in zip(layers, figures, strict=True):
            kept += decimal(each.activation_bytes)
            whole = self._whole([layer], over, zero if self._zero(inner) == zero else 0)
            passing.append((kept, decimal(each.working_bytes) + whole))
        for size, ranks in zip(self._weights(layers), over, strict=True):
            parts = [self.optimizer, self.gradients, 1]
            held += size * sum(parts[zero:]) + self._up(size * sum(parts[:zero]) / ranks)
        held += self._whole(layers, over, zero if self._zero(inner) != zero else 0)
        received, stays = self._buffered(layers)
        flying = self.flying(at)
        most = max(
            (flying - 1) * kept + self.peak(passing) + (self.m - flying) * received,
            self.stepped * self._stepped_on(layers, inner) + self.m * received,
        )
        return held + most + self.m * stays + decimal(self.training.overhead_bytes)

    def _buffered(self, layers: tuple[Layer, ...]) -> tuple[Fraction, Fraction]:
        """Return what buffers hold of a microbatch: what comes into a stage, and all else."""
        if not self.training.buffers_boundaries or len(layers) == len(self.layers):
            return Fraction(0), Fraction(0)
        ids = [layer.id for layer in self.layers]
        first, end = ids.index(layers[0].id), ids.index(layers[-1].id) + 1
        results = sum((decimal(layer.result_bytes) for layer in layers), Fraction(0))
        return self.alive(first), 2 * self.alive(end) + results

    def alive(self, cut: int) -> Fraction:
        """Return the bytes alive across a cut: of each layer before it the largest tensor that goes beyond."""
        sources = {source for source, target, _ in self.edges if source < cut <= target}
        sent = (
            max(decimal(size) for source, target, size in self.edges if source == one and target >= cut)
            for one in sources
        )
        return sum(sent, Fraction(0))

    def peak(self, passing: list[tuple[Fraction, Fraction]]) -> Fraction:
        """Return the most that a pass takes, of what is kept up to each layer and what that has in use for a moment."""
        return max(kept + moment for kept, moment in passing)

    def flying(self, at: int) -> int:
        """Return how many microbatches a stage has in flight."""
        return min(self.m, self.outer.stages - at)

    def _up(self, size: Fraction) -> Fraction:
        quanta = size / self.quantum
        return -(-quanta.numerator // quanta.denominator) * self.quantum

    def _whole(self, layers: tuple[Layer, ...] | list[Layer], over: tuple[int, int], zero: int) -> Fraction:
        """Return what gradients and gathered weights take that are whole though they are shared."""
        whole = Fraction(0)
        for size, ranks in zip(self._weights(layers), over, strict=True):
            if ranks > 1 and zero >= 2:
                whole += size * self.gradients + (self._up(size * self.gathered) if zero == 3 else 0)
        return whole

    def _weights(self, layers: tuple[Layer, ...] | list[Layer]) -> tuple[Fraction, Fraction]:
        return self.weighed(tuple(layer.id for layer in layers))

    def _weighed(self, ids: tuple[int, ...]) -> tuple[Fraction, Fraction]:
        """Return the bytes of the dense weights of layers, and of their experts'."""
        layers = [layer for layer in self.layers if layer.id in ids]
        experts = sum((decimal(layer.expert_parameter_bytes) for layer in layers), Fraction(0))
        whole = sum((decimal(layer.parameter_bytes) for layer in layers), Fraction(0))
        once = self.layers[self._table()] in layers  # a stage that has the table needs no copies of it
        tied = sum((decimal(layer.tied_bytes) for layer in layers), Fraction(0)) if once else 0
        return whole - experts - tied, experts

    def objective(self, figures: list[Figures]) -> int:
        """Return the time of an iteration."""
        loads = [each.load for each in figures]
        return sum(loads) + (self.m - 1) * max(loads) + max(each.sync for each in figures)


def quantum(problem: Problem) -> Fraction:
    """Return the largest power of a tenth of which every byte count that memory depends on is a multiple."""
    sizes = [decimal(problem.training.overhead_bytes)]
    for graph in problem.graphs.values():
        sizes += [decimal(edge.bytes) for edge in graph.edges]
        for layer in graph.layers:
            sizes += [decimal(layer.parameter_bytes), decimal(layer.activation_bytes)]
            sizes += [decimal(layer.expert_parameter_bytes), decimal(layer.working_bytes)]
            sizes += [decimal(layer.tied_bytes), decimal(layer.result_bytes)]
            for each in layer.recomputed:
                sizes += [decimal(each.activation_bytes), decimal(each.working_bytes)]
    found = Fraction(1)
    while any((size / found).denominator > 1 for size in sizes):
        found /= 10
    return found


def price(problem: Problem, plan: Plan, rounding: Rounding) -> tuple[int, list[Figures]]:
    """Price a plan where it stands."""
    costs = _costs_of(problem, plan, rounding)
    figures = [costs.stage(at, first, end, inner) for at, first, end, inner in _stages_of(plan)]
    return costs.objective(figures), figures


def memories(problem: Problem, plan: Plan) -> list[Fraction]:
    """Return what each stage of a plan takes of memory, in bytes."""
    costs = _costs_of(problem, plan, Rounding(0))
    return [costs.memory(at, costs.layers[first:end], inner) for at, first, end, inner in _stages_of(plan)]


def _costs_of(problem: Problem, plan: Plan, rounding: Rounding) -> Costs:
    spot = spot_of(plan, problem.cluster.devices)
    return Costs(problem, Outer(plan.variant, len(plan.stages), plan.replicas, plan.arrangement, spot), rounding)


def _stages_of(plan: Plan) -> Iterator[tuple[int, int, int, Inner]]:
    first = 0
    for at, stage in enumerate(plan.stages):
        yield at, first, first + len(stage.layers), inner_of(plan, stage)
        first += len(stage.layers)


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


def _fits(costs: Costs, at: int, run: tuple[int, int], inner: Inner) -> bool:
    sizes = {each.name: each.hbm_bytes for each in costs.cluster.classes}
    names = costs.classes_of[costs.outer.block(at, 0)]
    room = min(decimal(sizes.get(name, costs.cluster.hbm_bytes)) for name in names)
    return costs.stage(at, *run, inner).memory <= room
