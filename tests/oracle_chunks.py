"""The slow plain reference for interleaved pipelines: the one cut of every number of stages and chunks, all choices.

As `oracle_default`, it shares only data classes with `nest`: how the layers divide, what chunks keep while passes
follow each other, and what crosses boundaries are written out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product

import oracle_default as oracle
import oracle_plans
from oracle_constraints import _left
from oracle_default import Costs, Figures, Rounding
from oracle_groups import decimal
from oracle_places import spot_of
from oracle_plans import Inner, Outer, repeating

from nest.constraints import AllowedDegrees, MaxDevices, MaxStages, WithinLevel
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan, Sharding, Stage
from nest.problem import Problem

Runs = list[tuple[int, int]]


def cut(layers: tuple[Layer, ...], parts: int) -> Runs | None:
    """Return the equal parts of a chain: an embedding or a head of its own kind rides along."""
    kinds = [layer.kind for layer in layers]
    first = int(kinds[0] != "" and kinds.count(kinds[0]) == 1)
    last = int(kinds[-1] != "" and kinds.count(kinds[-1]) == 1)
    middle = len(layers) - first - last
    if middle < parts or middle % parts:
        return None
    each, runs = middle // parts, []
    for part in range(parts):
        runs.append((first + part * each, first + (part + 1) * each))
    runs[0], runs[-1] = (0, runs[0][1]), (runs[-1][0], len(layers))
    return runs


@dataclass(frozen=True)
class Chunked:
    """One outer choice, cut into chunks."""

    costs: Costs
    chunks: int
    runs: Runs

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.costs.outer.stages

    def places(self, at: int) -> list[int]:
        """Return the layers of a stage."""
        return [place for run in self.own(at) for place in range(*run)]

    def own(self, at: int) -> Runs:
        """Return the runs of a stage."""
        return self.runs[at :: self.stages]

    def figures(self, at: int, inner: Inner) -> Figures:
        """Return what a stage costs."""
        replicas = range(self.costs.outer.replicas)
        load = max(self._load(at, inner, replica) for replica in replicas) + self._sharded(at, inner)
        return Figures(load, self._once(at, inner), self._memory(at, inner))

    def objective(self, figures: list[Figures]) -> int:
        """Return the time of an iteration: the slowest stage works all the time, the others fill with a chunk.

        Or the first microbatch passes all of them, and the slowest works on a chunk for each further one.
        """
        loads, further = [each.load for each in figures], self.costs.m - 1
        others = self.costs.m * max(loads) + Fraction(sum(loads) - max(loads), self.chunks)
        longest = max(others, sum(loads) + Fraction(further * max(loads), self.chunks))
        return -(-longest.numerator // longest.denominator) + max(f.sync for f in figures)

    def _layers(self, at: int) -> tuple[Layer, ...]:
        return tuple(self.costs.layers[place] for place in self.places(at))

    def _load(self, at: int, inner: Inner, replica: int) -> int:
        costs, block = self.costs, self.costs.outer.block
        again = repeating(self.costs.problem, self._layers(at), inner)
        total = 0
        for place, repeats in zip(self.places(at), again, strict=True):
            total += costs.layer(place, inner.kind if repeats else "none", block(at, replica))
        for number, (_, end) in enumerate(self.runs[:-1]):
            here, there = number % self.stages, (number + 1) % self.stages
            total += (here == at) * costs.hop(end, block(here, replica), block(there, replica))
            total += (there == at) * costs.hop(end, block(here, replica), block(there, replica))
        return total

    def _exchange(self, at: int, inner: Inner, layers: list[Layer], what: tuple[str, Fraction | int]) -> int:
        return self.costs._exchange(at, inner.group, layers, what)

    def _back(self, at: int, inner: Inner, place: int) -> int:
        zero, layers = self.costs._zero(inner), [self.costs.layers[place]]
        there = self._exchange(at, inner, layers, ("all-gather", self.costs.gathered)) if zero == 3 else 0
        scattered = ("reduce-scatter", self.costs.summed)
        return there + (self._exchange(at, inner, layers, scattered) if zero in (2, 3) else 0)

    def _backward(self, at: int) -> int:
        return sum(self.costs.passes(place, "backward", self.costs.outer.block(at, 0)) for place in self.places(at))

    def _sharded(self, at: int, inner: Inner) -> int:
        costs, block = self.costs, self.costs.outer.block(at, 0)
        if costs._zero(inner) != 3:
            return costs._left(sum(self._back(at, inner, place) for place in self.places(at)), self._backward(at))
        total, first = 0, {run[0] for run in self.own(at)}
        for place, repeats in zip(self.places(at), repeating(self.costs.problem, self._layers(at), inner), strict=True):
            there = self._exchange(at, inner, [costs.layers[place]], ("all-gather", costs.gathered))
            total += costs._left(there, 0 if place in first else costs.passes(place, "forward", block))
            beside = costs.passes(place, "backward", block)
            beside += costs.repeats(place, inner.kind, block) if repeats else 0
            total += costs._left(self._back(at, inner, place), beside)
        return total

    def _once(self, at: int, inner: Inner) -> int:
        costs, layers, zero, summed = self.costs, self._layers(at), self.costs._zero(inner), 0
        if zero < 2:
            whole = inner.zero == 1 and costs.training.sums_whole
            summed += self._exchange(
                at, inner, list(layers), ("reduce-scatter" if zero and not whole else "all-reduce", costs.summed)
            )
        if zero and inner.group < costs.outer.replicas:
            summed += costs._across(at, inner.group, layers)
        behind = sum(self._back(at, inner, place) for place in self.places(at))
        part = Fraction(summed) * (1 - Fraction(1, max(2, len(layers))))
        left = costs._left(summed, min(part.numerator // part.denominator, max(0, self._backward(at) - behind)))
        if zero in (1, 2):
            left += self._exchange(at, inner, list(layers), ("all-gather", costs.gathered))
        return (
            left
            + self._ends(at)
            + costs.round(costs._stepped_on(layers, inner) * decimal(costs.training.step_s_per_byte))
        )

    def _ends(self, at: int) -> int:
        costs = self.costs
        tied = sum((decimal(layer.tied_bytes) for layer in self._layers(at)), Fraction(0))
        if not tied or costs._table() in self.places(at):
            return 0
        block, last = costs.outer.block, self.stages - 1
        pairs = [costs.group((block(0, one), block(last, one))) for one in range(costs.outer.replicas)]
        return costs.round(max(pair.seconds("all-reduce", tied * costs.summed) for pair in pairs))

    def _memory(self, at: int, inner: Inner) -> Fraction:
        costs, layers, zero = self.costs, self._layers(at), inner.zero
        over = costs._over(inner.group)
        held, passing, done = Fraction(0), list[list[tuple[Fraction, Fraction]]](), 0
        again = repeating(self.costs.problem, layers, inner)
        for first, end in self.own(at):
            passing.append([])
            for layer, repeats in zip(layers[done : done + end - first], again[done : done + end - first], strict=True):
                figures = next(one for one in layer.recomputed if one.kind == inner.kind) if repeats else layer
                whole = costs._whole([layer], over, zero if costs._zero(inner) == zero else 0)
                passing[-1].append((decimal(figures.activation_bytes), decimal(figures.working_bytes) + whole))
            done += end - first
        for size, ranks in zip(costs._weights(layers), over, strict=True):
            parts = [costs.optimizer, costs.gradients, 1]
            held += size * sum(parts[zero:]) + costs._up(size * sum(parts[:zero]) / ranks)
        held += costs._whole(layers, over, zero if costs._zero(inner) != zero else 0)
        received, stays = self._buffered(at)
        step = costs.stepped * costs._stepped_on(layers, inner) + costs.m * sum(received)
        most = max(self._peak(at, passing, received), step)
        return held + most + costs.m * stays + decimal(costs.training.overhead_bytes)

    def _buffered(self, at: int) -> tuple[list[Fraction], Fraction]:
        """Return what buffers hold of a microbatch: what comes into each chunk, and all else of a stage."""
        costs = self.costs
        if not costs.training.buffers_boundaries:
            return [Fraction(0)] * self.chunks, Fraction(0)
        results = sum((decimal(layer.result_bytes) for layer in self._layers(at)), Fraction(0))
        sent = sum((costs.alive(end) for _, end in self.own(at)), Fraction(0))
        return [costs.alive(first) for first, _ in self.own(at)], 2 * sent + results

    def _peak(self, at: int, passing: list[list[tuple[Fraction, Fraction]]], received: list[Fraction]) -> Fraction:
        """Return the most that is kept and in use while the passes of a stage follow each other."""
        kept = [0] * self.chunks
        sizes = [sum((size for size, _ in chunk), Fraction(0)) for chunk in passing]
        most = Fraction(0)
        for kind, chunk in order(self.stages, self.chunks, at, self.costs.m):
            if kind == "forward":
                kept[chunk] += 1
                continue
            kept[chunk] -= 1
            others, own = sum((count * size for count, size in zip(kept, sizes, strict=True)), Fraction(0)), Fraction(0)
            flying = [count + (number == chunk) for number, count in enumerate(kept)]
            others += sum((self.costs.m - count) * size for count, size in zip(flying, received, strict=True))
            for size, moment in passing[chunk]:
                own += size
                most = max(most, others + own + moment)
        return most


def order(stages: int, chunks: int, at: int, microbatches: int) -> list[tuple[str, int]]:
    """Return the passes of a stage as Megatron-LM takes them, by chunk."""
    total, groups = microbatches * chunks, groups_of(stages, microbatches)
    chunk_of = [chunk for size in groups for chunk in range(chunks) for _ in range(size)]
    ahead = min(total, 2 * (stages - at - 1) + (chunks - 1) * groups[0])
    found = [("forward", chunk_of[number]) for number in range(ahead)]
    for number in range(total):
        if ahead + number < total:
            found.append(("forward", chunk_of[ahead + number]))
        found.append(("backward", chunks - 1 - chunk_of[number]))
    return found


def groups_of(stages: int, microbatches: int) -> list[int]:
    """Return the microbatches that pass a chunk together: groups of the least size, none below the stages."""
    for size in range(1, microbatches + 1):
        sizes = [min(size, microbatches - first) for first in range(0, microbatches, size)]
        if min(sizes) >= min(stages, microbatches):
            return sizes
    raise AssertionError("all of them are a group")


def choices(problem: Problem, rounding: Rounding) -> Iterator[Chunked]:
    """Yield every outer choice that the rules allow, memory apart."""
    allowed = problem.choices.chunks
    for outer in oracle_plans.outer_choices(problem) if "interleaved" in problem.choices.schedules else ():
        costs = Costs(problem, outer, rounding)
        for chunks in range(2, len(costs.layers) + 1):
            runs = cut(costs.layers, outer.stages * chunks)
            several = outer.stages > 1 and (allowed is None or chunks in allowed)
            if runs is not None and several and keeps(problem, outer):
                yield Chunked(costs, chunks, runs)


def keeps(problem: Problem, outer: Outer) -> bool:
    """Whether an outer choice in its place keeps the side constraints, which look at no layers; memory apart."""
    width = outer.variant.width
    blocks = [outer.block(at, replica) for at in range(outer.stages) for replica in range(outer.replicas)]
    group = problem.cluster.levels[0].fanout
    for rule in problem.constraints:
        kept = True
        if isinstance(rule, MaxStages):
            kept = outer.stages <= rule.stages
        elif isinstance(rule, AllowedDegrees):
            kept = {"stages": outer.stages, "replicas": outer.replicas}[rule.axis] in rule.values
        elif isinstance(rule, MaxDevices):
            kept = max(blocks) + width <= rule.devices
        elif isinstance(rule, WithinLevel):
            kept = all(block // group == (block + width - 1) // group for block in blocks)
        if not kept:
            return False
    return True


def room(problem: Problem) -> Fraction:
    """Return the bytes that a stage may take on a device."""
    left = [_left(each, problem) for each in problem.constraints if each.kind == "memory_headroom"]
    return min([decimal(problem.cluster.hbm_bytes), *left])


def inners(problem: Problem, chunked: Chunked, at: int) -> Iterator[Inner]:
    """Yield all that a stage may choose: as if its layers were the whole model."""
    outer, layers = chunked.costs.outer, chunked._layers(at)
    edges = tuple(Edge(one.id, two.id, 0) for one, two in pairwise(layers))
    loose = tuple(replace(layer, tied_bytes=0) for layer in layers)
    kinds = problem.choices.stage_recompute
    if not any(one.kind in (kinds or ()) for layer in layers for one in layer.recomputed):
        kinds = kinds and frozenset({"none"})  # nothing of the stage can do what is asked for
    choices = replace(problem.choices, stage_recompute=kinds)
    alone = replace(problem, graphs={outer.variant: LayerGraph(loose, edges)}, choices=choices)
    return oracle_plans.inners(alone, outer, (0, len(layers)))


def best(problem: Problem, rounding: Rounding) -> oracle.Best:
    """Try every interleaved plan of a problem."""
    found, most = oracle.Best(None, None), room(problem)
    for chunked in choices(problem, rounding):
        options = []
        for at in range(chunked.stages):
            priced = {chunked.figures(at, each): each for each in inners(problem, chunked, at)}
            fitting = {(each.load, each.sync): inner for each, inner in priced.items() if each.memory <= most}
            options.append([(Figures(*times, Fraction(0)), inner) for times, inner in fitting.items()])
        for picked in product(*options):
            objective = chunked.objective([figures for figures, _ in picked])
            if found.objective is None or objective < found.objective:
                found = oracle.Best(objective, plan_of(chunked, [inner for _, inner in picked]))
    return found


def plan_of(chunked: Chunked, inner: list[Inner]) -> Plan:
    """Return the plan with these choices."""
    outer, layers = chunked.costs.outer, chunked.costs.layers
    plain = oracle_plans.plan_of(
        chunked.costs.problem, outer, [(at, at + 1) for at in range(chunked.stages)], [Inner(0, 1)] * chunked.stages
    )
    ranks = outer.variant.context * outer.variant.expert
    stages = [
        Stage(
            tuple(layers[place].id for place in chunked.places(at)),
            stage.first_device,
            stage.devices,
            each.kind,  # type: ignore[arg-type]
            Sharding("replicas", each.zero, each.group * ranks) if each.zero and each.group * ranks > 1 else Sharding(),
            recomputed=each.count or None,
        )
        for at, (stage, each) in enumerate(zip(plain.stages, inner, strict=True))
    ]
    return replace(plain, stages=tuple(stages), schedule="interleaved", chunks=chunked.chunks)


def price(problem: Problem, plan: Plan, rounding: Rounding) -> tuple[int, list[Figures]]:
    """Price a plan of equal parts where it stands."""
    spot = spot_of(plan, problem.cluster.devices)
    outer = Outer(plan.variant, len(plan.stages), plan.replicas, plan.arrangement, spot)
    costs = Costs(problem, outer, rounding)
    runs = cut(costs.layers, len(plan.stages) * plan.chunks)
    assert runs is not None
    chunked = Chunked(costs, plan.chunks, runs)
    figures = [chunked.figures(at, oracle_plans.inner_of(plan, stage)) for at, stage in enumerate(plan.stages)]
    return chunked.objective(figures), figures
