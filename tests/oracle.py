"""The slow plain reference: every plan of a small problem, priced straight from `docs/formulation.md`.

It shares the data classes of a problem and a plan with `nest`, and nothing else: sizes, levels, times, memory and the
list of legal plans are written out again here, in exact fractions. Never part of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import TypeAlias

import oracle_constraints

from nest.cluster import Cluster
from nest.graph import Layer
from nest.plan import Plan, Sharding, Stage
from nest.problem import Choices, Problem, Variant

Time: TypeAlias = int | Fraction
"""Ticks, or (without a tick) seconds as exact fractions."""


@dataclass(frozen=True)
class Block:
    """A stage of replica 0 in its place: layers ``[first, end)`` on devices ``[device, device + width)``."""

    first: int
    end: int
    device: int
    width: int
    zero: int = 0
    degree: int = 1
    repeats: bool = False


@dataclass(frozen=True)
class Price:
    """What a plan costs: loads and syncs by stage, memory by stage in bytes."""

    objective: Time
    loads: tuple[Time, ...]
    syncs: tuple[Time, ...]
    memory: tuple[Fraction, ...]


@dataclass(frozen=True)
class Best:
    """The best objective of all plans, None if there is none, and one plan that reaches it."""

    objective: Time | None
    plan: Plan | None


def best(problem: Problem, exponent: int | None) -> Best:
    """Try every plan of a problem, with ticks of ``10 ** -exponent`` seconds (exact seconds for None)."""
    found = Best(None, None)
    for variant in problem.graphs:
        if _allowed(problem.choices, variant):
            found = _Search(problem, variant, exponent, found).run()
    return found


def price(problem: Problem, plan: Plan, exponent: int | None) -> Price:
    """Price a plan whose stages cover the layers in order and lie on the cluster, legal or not."""
    costs = _Costs(problem, plan.variant, exponent)
    blocks, first = [], 0
    for stage in plan.stages:
        end = first + len(stage.layers)
        zero, degree = _inside(stage.sharding)
        repeats = stage.recompute == "full"
        blocks.append(Block(first, end, stage.first_device, stage.devices, zero, degree, repeats))
        first = end
    return costs.price(tuple(blocks), plan.replicas, plan.replica_stride)


def broken_constraints(problem: Problem, plan: Plan, paid: Price, exponent: int | None) -> set[str]:
    """Return the kinds of the side constraints that a priced plan breaks."""
    return oracle_constraints.broken(case_of(problem, plan, paid, exponent))


def case_of(problem: Problem, plan: Plan, paid: Price, exponent: int | None) -> oracle_constraints.Case:
    """Return a priced plan as the side constraints of the reference see it."""
    seconds = Fraction(paid.objective) / (1 if exponent is None else Fraction(10) ** exponent)
    return oracle_constraints.Case(problem, plan, paid.memory, seconds)


def slack(problem: Problem, plan: Plan) -> int:
    """Return how many ticks floating-point arithmetic may move the price of a plan.

    Every elementary time is at most one tick off; a load has at most three for each layer and four for its network.
    """
    rounds = -(-problem.training.microbatches // plan.replicas) + len(plan.stages) - 1
    return rounds * (3 * max(len(stage.layers) for stage in plan.stages) + 4) + 1


def _inside(sharding: Sharding) -> tuple[int, int]:
    return (sharding.zero, sharding.degree) if sharding.kind == "stage" else (0, 1)


def _allowed(choices: Choices, variant: Variant) -> bool:
    pairs = [
        (choices.tensor, variant.tensor),
        (choices.expert, variant.expert),
        (choices.context, variant.context),
        (choices.microbatch, variant.microbatch),
    ]
    sequence = choices.sequence in (None, variant.sequence)
    return sequence and all(allowed is None or value in allowed for allowed, value in pairs)


def _span(cluster: Cluster, low: int, high: int) -> int:
    """Climb from both devices until they meet; two devices in one innermost group meet at level 0."""
    climbs = 0
    while low != high:
        low, high = low // cluster.levels[climbs].fanout, high // cluster.levels[climbs].fanout
        climbs += 1
    return max(climbs - 1, 0)


def _decimal(value: float) -> Fraction:
    """Read a byte count as it is written, so that 0.1 is a tenth."""
    return Fraction(repr(value))


class _Costs:
    """Prices of one variant of a problem."""

    def __init__(self, problem: Problem, variant: Variant, exponent: int | None) -> None:
        self.problem, self.preset, self.cluster = problem, problem.preset.name, problem.cluster
        self.graph, self.exponent = problem.graphs[variant], exponent
        place = {layer.id: at for at, layer in enumerate(self.graph.layers)}
        self.edges = [(place[e.source], place[e.target], _decimal(e.bytes)) for e in self.graph.edges]
        self.network = Fraction(1, 1000) if self.preset == "artifact" else Fraction(1)
        self.load: Callable[[Block, int, int, int], Time] = cache(self._load)
        self.sync: Callable[[Block, int, int], Time] = cache(self._sync)
        self.memory: Callable[[Block, int], Fraction] = cache(self._memory)
        self.quantum = self._quantum()

    def round(self, seconds: Fraction) -> Time:
        """Return ticks, halves to even."""
        return seconds if self.exponent is None else round(seconds * Fraction(10) ** self.exponent)

    def price(self, blocks: tuple[Block, ...], replicas: int, stride: int) -> Price:
        """Price stages in their places."""
        count = len(blocks)
        seen = range(replicas if self.preset == "paper" else 1)
        loads = tuple(max(self.placed_load(blocks, at, r * stride) for r in seen) for at in range(count))
        syncs = tuple(self.sync(block, replicas, stride) for block in blocks)
        memory = tuple(self.memory(block, count - at) for at, block in enumerate(blocks))
        sync = max(syncs) if self.preset == "paper" else syncs[0]
        return Price(max(loads) * self.rounds(replicas, count) + sync, loads, syncs, memory)

    def rounds(self, replicas: int, stages: int) -> int:
        """Return how often the slowest load counts."""
        share, rest = divmod(self.problem.training.microbatches, replicas)
        return share + (rest > 0) + stages - 1

    def placed_load(self, blocks: tuple[Block, ...], at: int, base: int) -> Time:
        """Return the load of a stage in the replica that starts at device ``base``."""
        block = blocks[at]
        entry = self.boundary(blocks[at - 1], block, base) if at > 0 else 0
        out = self.boundary(block, blocks[at + 1], base) if at + 1 < len(blocks) else 0
        whole = _span(self.cluster, base + block.device, base + block.device + block.width - 1)
        return self.load(block, entry, out, whole)

    def boundary(self, upper: Block, lower: Block, base: int) -> int:
        """Return the level of the boundary from a stage to the next; that one lies lower on the line."""
        far = upper.device if self.preset == "artifact" else upper.device + upper.width - 1
        return _span(self.cluster, base + lower.device, base + far)

    def layers(self, block: Block) -> tuple[Layer, ...]:
        return self.graph.layers[block.first : block.end]

    def parameters(self, block: Block) -> Fraction:
        return sum((_decimal(layer.parameter_bytes) for layer in self.layers(block)), Fraction(0))

    def transfer(self, size: Fraction, level: int) -> Time:
        slowest = min(Fraction(self.cluster.levels[at].bandwidth_bytes_per_s) for at in range(level + 1))
        once = size / slowest + Fraction(self.cluster.levels[level].latency_s)
        return self.round(self.network * once * (1 if level == 0 else 2))

    def ring(self, size: Fraction, degree: int, level: int) -> Time:
        slowest = min(Fraction(self.cluster.levels[at].bandwidth_bytes_per_s) for at in range(level + 1))
        step = Fraction(self.cluster.levels[level].latency_s) + size / degree / slowest
        return self.round(self.network * (degree - 1) * step)

    def _load(self, block: Block, entry: int, out: int, whole: int) -> Time:
        forward = [self.round(Fraction(layer.forward_s)) for layer in self.layers(block)]
        backward = [self.round(Fraction(layer.backward_s)) for layer in self.layers(block)]
        done: Time = 0
        for place in range(block.first, block.end):
            enters = [self.transfer(size, entry) for a, b, size in self.edges if b == place and a < block.first]
            done = max([done, *enters]) + forward[place - block.first]
        again: Time = 0
        if block.repeats:
            again = sum(backward) if self.preset == "artifact" else sum(forward)
        for place in reversed(range(block.first, block.end)):
            leaves = [self.transfer(size, out) for a, b, size in self.edges if a == place and b >= block.end]
            again = max([again, *leaves]) + backward[place - block.first]
        rings = {0: 0, 1: 0, 2: 1, 3: 2}[block.zero]
        shards = rings * self.ring(self.parameters(block), block.degree, whole) if rings else 0
        return done + again + shards

    def _sync(self, block: Block, replicas: int, stride: int) -> Time:
        size = self.parameters(block)
        if self.preset == "paper" and block.zero == 3:
            size /= block.degree
        speeds = [Fraction(level.bandwidth_bytes_per_s) for level in self.cluster.levels]
        latencies = [Fraction(level.latency_s) for level in self.cluster.levels]
        total, part, ranks = Fraction(0), size, replicas
        while ranks >= 2:
            total += latencies[0] + part / speeds[0]
            part, ranks = part / 2, ranks // 2
        low = Fraction(0)
        for level in range(1, _span(self.cluster, 0, (replicas - 1) * stride) + 1):
            total += 2 * (latencies[level] + size / speeds[level]) + low
            low += total
        return self.round(self.network * total)

    def _memory(self, block: Block, from_end: int) -> Fraction:
        """Return bytes, sharded ones rounded up to whole quanta."""
        own = self.parameters(block)
        kept = sum((_decimal(layer.activation_bytes) for layer in self.layers(block)), Fraction(0))
        optimizer = 6 * own if self.problem.training.optimizer == "adam" else Fraction(0)
        parts = [optimizer, own, own]
        whole, shared = sum(parts[block.zero :]), Fraction(sum(parts[: block.zero]))
        stash = kept
        if block.repeats:
            stash = Fraction(sum(size for a, b, size in self.edges if a < block.first <= b < block.end))
        quanta = shared / block.degree / self.quantum
        return whole - (-quanta.numerator // quanta.denominator) * self.quantum + kept + (from_end - 1) * stash

    def _quantum(self) -> Fraction:
        """Return the largest power of a tenth of which every byte count is a multiple."""
        sizes = [
            _decimal(size)
            for graph in self.problem.graphs.values()
            for size in (
                *(layer.parameter_bytes for layer in graph.layers),
                *(layer.activation_bytes for layer in graph.layers),
                *(edge.bytes for edge in graph.edges),
            )
        ]
        quantum = Fraction(1)
        while any((size / quantum).denominator > 1 for size in sizes):
            quantum /= 10
        return quantum


class _Search:
    """Every plan of one variant, from the last stage (device 0) up."""

    def __init__(self, problem: Problem, variant: Variant, exponent: int | None, best: Best) -> None:
        self.problem, self.variant, self.best = problem, variant, best
        self.costs = _Costs(problem, variant, exponent)
        base = variant.tensor * variant.expert * variant.context
        self.options = [(zero, degree, base * degree) for zero, degree in self._shardings(base)]
        self.layers = len(problem.graphs[variant])

    def _shardings(self, base: int) -> Iterator[tuple[int, int]]:
        choices, most = self.problem.choices, self.problem.cluster.devices // base
        powers = [2**power for power in range(1, most + 1) if 2**power <= most]
        degrees = powers if choices.zero_degree is None else [z for z in choices.zero_degree if 2 <= z <= most]
        if 0 in choices.zero:
            yield 0, 1
        yield from product(sorted(choices.zero - {0}), sorted(degrees))

    def run(self) -> Best:
        """Try them all."""
        self._extend((), self.layers)
        return self.best

    def _extend(self, blocks: tuple[Block, ...], end: int) -> None:
        """Put one more stage, which ends before layer ``end``, in front of ``blocks``."""
        used = sum(block.width for block in blocks)
        for first in reversed(range(end)):
            for zero, degree, width in self.options:
                if used + width > self.problem.cluster.devices:
                    continue
                repeats = bool(blocks) and self.problem.choices.recompute == "full"
                block = Block(first, end, used, width, zero, degree, repeats)
                longer = (block, *blocks)
                memory = self.costs.memory(block, len(longer))
                if memory > _decimal(self.problem.cluster.hbm_bytes) or not self._stage_allowed(block, memory):
                    continue
                if first == 0:
                    self._finish(longer)
                elif not self._hopeless(longer):
                    self._extend(longer, first)

    def _stage_allowed(self, block: Block, memory: Fraction) -> bool:
        names = [layer.id for layer in self.costs.layers(block)]
        return oracle_constraints.stage_allowed(self.problem, names, block.first == 0, memory)

    def _hopeless(self, blocks: tuple[Block, ...]) -> bool:
        """Whether replica 0 alone makes every plan that ends with all but the first of ``blocks`` no better."""
        if self.best.objective is None or len(blocks) < 2:
            return False
        most = self.problem.cluster.devices // sum(block.width for block in blocks)
        load = self.costs.placed_load(blocks, 1, 0)
        return load * self.costs.rounds(most, len(blocks)) >= self.best.objective

    def _finish(self, blocks: tuple[Block, ...]) -> None:
        """Try every number of replicas of a complete pipeline."""
        choices, stride = self.problem.choices, sum(block.width for block in blocks)
        if choices.stages is not None and len(blocks) not in choices.stages:
            return
        least = max(self.costs.placed_load(blocks, at, 0) for at in range(len(blocks)))
        for replicas in range(1, min(self.problem.training.microbatches, self.problem.cluster.devices // stride) + 1):
            if choices.replicas is not None and replicas not in choices.replicas:
                continue
            best = self.best.objective
            if best is not None and least * self.costs.rounds(replicas, len(blocks)) >= best:
                continue
            price = self.costs.price(blocks, replicas, stride)
            if best is None or price.objective < best:
                plan = self._plan(blocks, replicas, stride)
                if not broken_constraints(self.problem, plan, price, self.costs.exponent):
                    self.best = Best(price.objective, plan)

    def _plan(self, blocks: tuple[Block, ...], replicas: int, stride: int) -> Plan:
        ids = [layer.id for layer in self.problem.graphs[self.variant].layers]
        stages = tuple(
            Stage(
                tuple(ids[block.first : block.end]),
                block.device,
                block.width,
                "full" if block.repeats else "none",
                Sharding("stage", block.zero, block.degree) if block.degree > 1 else Sharding(),
            )
            for block in blocks
        )
        return Plan(self.variant, replicas, stride, stages)
