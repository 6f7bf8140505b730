"""How many plans there are: the size of the space that a solver searches, counted exactly.

A plan is a variant, a number of replicas, a division of the layers into contiguous stages, and a ZeRO type and degree
for each stage, such that all of it fits on the devices. Memory is not looked at: what it rules out is the solver's
to find. Where stages may have widths of their own, or be sharded inside, plans that make use of it are not counted;
of a model that branches, those along the order in which its layers are given are.

Let ``p(x) = sum of x^z`` over the shardings that a stage may take, ``z`` being the multiple of its base width that one
occupies. Of ``n`` layers there are ``C(n - 1, S - 1)`` divisions into ``S`` stages, so that the coefficient of ``x^k``
in ``sum over S of C(n - 1, S - 1) p(x)^S`` counts the pipelines that occupy ``k`` base widths. Where ``S`` is free that
sum is ``p (1 + p)^(n - 1)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import accumulate, pairwise, product
from math import comb, prod

from nest.line import EVERY, Line
from nest.places import Shape, distinct_placings, lines
from nest.problem import Choices, Problem, Variant
from nest.technologies import affordable


def plans_of(problem: Problem) -> dict[Variant, int]:
    """Count the plans of each allowed variant that fit on the devices, with every choice of technologies (C14)."""
    choices = len(affordable(problem))
    return {variant: choices * _scheduled(problem, variant) for variant in problem.variants}


def _scheduled(problem: Problem, variant: Variant) -> int:
    """Count plans of all schedules: the same of each, but that nothing recomputes under ZB-H1 (C6)."""
    names = problem.choices.schedules
    total = len(names - {"zb-h1", "interleaved"}) * _plans(problem, variant)
    total += _interleaved(problem, variant) if "interleaved" in names else 0
    if "zb-h1" not in names:
        return total
    kinds, layers = problem.recomputes(variant), problem.graphs[variant].layers
    if "none" not in kinds and any(layer.again(kind) for layer in layers for kind in kinds):
        return total
    return total + _plans(problem.with_choices(stage_recompute=frozenset({"none"})), variant)


def _interleaved(problem: Problem, variant: Variant) -> int:
    """Count plans with chunks: one cut for each number of stages and chunks, what stages choose besides is free."""
    graph, choices, total = problem.graphs[variant], problem.choices, 0
    room, layers = problem.cluster.devices // variant.width, len(graph)
    if problem.unnested(variant):
        return 0
    for stages, chunks in product(range(2, min(room, layers) + 1), range(2, layers // 2 + 1)):
        ends = graph.equal_parts(stages * chunks)
        allowed = (choices.stages is None or stages in choices.stages) and (
            choices.chunks is None or chunks in choices.chunks
        )
        if ends is None or not allowed:
            continue
        runs = list(pairwise([0, *ends]))
        ways = prod(_again_ways(problem, variant, runs[at::stages]) for at in range(stages))
        for replicas in range(1, min(problem.microbatches(variant), room // stages) + 1):
            if choices.replicas is not None and replicas not in choices.replicas:
                continue
            shards = _shards(problem, variant, replicas) ** stages
            total += ways * shards * _places(problem, variant, stages, replicas)
    return total


def _again_ways(problem: Problem, variant: Variant, runs: list[tuple[int, int]]) -> int:
    """Count what a stage of some runs of layers may recompute."""
    layers = [layer for run in runs for layer in problem.graphs[variant].layers[slice(*run)]]
    kinds, found = problem.recomputes(variant), 0
    for kind in kinds:
        able = sum(layer.again(kind) is not None for layer in layers)
        found += sum(problem.choices.admits_recomputed(number, able) for number in range(1, able + 1))
    return found + ("none" in kinds) if found else 1


def _shards(problem: Problem, variant: Variant, replicas: int) -> int:
    """Count how a stage of so many replicas may shard."""
    groups = len(problem.shard_groups(variant, replicas))
    return sum(groups if zero else 1 for zero in problem.choices.zero)


def _places(problem: Problem, variant: Variant, stages: int, replicas: int, line: Line = EVERY) -> int:
    """Count how stages and replicas may stand on a line."""
    shape, cluster = Shape(variant.width, stages, replicas), problem.cluster
    return len(distinct_placings(problem.preset.arrangements, shape, line, cluster.devices, cluster.group_sizes))


def _plans(problem: Problem, variant: Variant) -> int:
    if problem.preset.sharding == "replicas":
        return _plans_of_equal_stages(problem, variant)
    room = problem.cluster.devices // variant.width
    shardings = _shardings(problem, variant)
    if not room or not shardings:
        return 0
    pipelines = list(accumulate(_pipelines(shardings, len(problem.graphs[variant]), room, problem.choices.stages)))
    most = min(problem.microbatches(variant), room)
    allowed = problem.choices.replicas
    replicas = range(1, most + 1) if allowed is None else [count for count in allowed if count <= most]
    return sum(pipelines[room // count] for count in replicas)


def _plans_of_equal_stages(problem: Problem, variant: Variant) -> int:
    """Count plans whose stages are all as wide, shard over replicas, and recompute: each in its way.

    What places stages and replicas alike on one line is one plan, under whichever arrangement.
    """
    every = lines(problem.cluster, variant.width, ())
    layers, total = len(problem.graphs[variant]), 0
    if problem.unnested(variant):
        return 0
    room, choices = problem.cluster.devices // variant.width, problem.choices
    cut = _stage_ways(problem, variant, min(layers, room))
    for replicas in range(1, min(problem.microbatches(variant), room) + 1):
        if choices.replicas is not None and replicas not in choices.replicas:
            continue
        ways = _shards(problem, variant, replicas)
        for stages in range(1, min(layers, room // replicas) + 1):
            if choices.stages is None or stages in choices.stages:
                places = sum(_places(problem, variant, stages, replicas, line) for line in every)
                total += places * cut[stages] * ways**stages
    return total


def _stage_ways(problem: Problem, variant: Variant, most: int) -> tuple[int, ...]:
    """Count the cuts into 0, 1, ... stages, each with what its stages recompute."""
    kinds, layers = problem.recomputes(variant), problem.graphs[variant].layers
    able = [tuple(layer.again(kind) is not None for layer in layers) for kind in kinds if kind != "none"]
    if problem.choices.recomputed is None:
        return _cuts(tuple(map(sum, zip(*able, strict=True))) or (0,) * len(layers), plain="none" in kinds, most=most)
    return _numbered_cuts(problem.choices, able, len(layers), plain="none" in kinds, most=most)


def _numbered_cuts(
    choices: Choices, able: list[tuple[bool, ...]], layers: int, *, plain: bool, most: int
) -> tuple[int, ...]:
    """Count the same where the choices say how many layers of a stage may recompute."""
    sums = [[0, *accumulate(kind)] for kind in able]
    allowed = [
        sum(choices.admits_recomputed(count, total) for count in range(1, total + 1)) for total in range(layers + 1)
    ]

    def ways(first: int, end: int) -> int:
        """Return in how many ways the layers from ``first`` to ``end`` may recompute."""
        found = sum(allowed[kind[end] - kind[first]] for kind in sums)
        return found + plain if found else 1

    rows = [[1] + [0] * layers]
    for _ in range(most):
        before = rows[-1]
        rows.append([sum(before[first] * ways(first, end) for first in range(end)) for end in range(layers + 1)])
    return tuple(row[layers] for row in rows)


@cache
def _cuts(able: tuple[int, ...], *, plain: bool, most: int) -> tuple[int, ...]:
    """Count the cuts into 0, 1, ... stages, each with what its stages recompute.

    A stage recomputes nothing, or one kind up to one of its layers that can. So a walk over the layers marks at most
    one of each stage, in as many ways as it can recompute.

    Parameters
    ----------
    able
        In how many ways each layer can.
    plain
        Whether a stage may recompute nothing although it could.
    """
    if not any(able):
        return (0, *(comb(len(able) - 1, stages - 1) for stages in range(1, most + 1)))
    closed = [1] + [0] * most
    unable, idle, marked = ([0] * (most + 1) for _ in range(3))
    for ways in able:
        unable = [here + before for here, before in zip(unable, [0, *closed[:-1]], strict=True)]
        marked = [here + ways * (some + none) for here, some, none in zip(marked, idle, unable, strict=True)]
        if ways:
            idle, unable = [some + none for some, none in zip(idle, unable, strict=True)], [0] * (most + 1)
        closed = [here + none + (some if plain else 0) for here, none, some in zip(marked, unable, idle, strict=True)]
    return tuple(closed)


def _shardings(problem: Problem, variant: Variant) -> dict[int, int]:
    """Return how many ZeRO types a stage may take with each degree; degree 1 is no sharding."""
    sharding_types = len(problem.choices.zero - {0})
    degrees = dict.fromkeys(problem.zero_degrees(variant.width), sharding_types)
    return {1: 1} | degrees if 0 in problem.choices.zero else degrees


def _pipelines(shardings: Mapping[int, int], layers: int, room: int, stages: frozenset[int] | None) -> list[int]:
    """Count, for each number of base widths up to ``room``, the pipelines that occupy exactly so many."""
    if stages is None:
        return _times(_power({0: 1} | dict(shardings), layers - 1, room), shardings)
    totals = [0] * (room + 1)
    for number in stages:
        ways = comb(layers - 1, number - 1)
        if ways and number <= room:
            totals = [total + ways * more for total, more in zip(totals, _power(shardings, number, room), strict=True)]
    return totals


def _power(base: Mapping[int, int], exponent: int, degree: int) -> list[int]:
    """Return the coefficients of ``base(x) ** exponent`` up to ``x ** degree``.

    Notes
    -----
    With ``base = x^low q`` and ``c = q^m``, comparing coefficients in ``q c' = m q' c`` gives
    ``k q_0 c_k = sum over z > 0 of ((m + 1) z - k) q_z c_(k - z)``: one pass, however large the exponent.
    """
    low = min(base)
    shift = low * exponent
    rest = [(power - low, ways) for power, ways in base.items() if power > low]
    power = [base[low] ** exponent]
    for k in range(1, degree - shift + 1):
        total = sum(((exponent + 1) * z - k) * ways * power[k - z] for z, ways in rest if z <= k)
        power.append(total // (k * base[low]))
    return ([0] * shift + power)[: degree + 1]


def _times(left: list[int], right: Mapping[int, int]) -> list[int]:
    """Return the product of two polynomials, as long as the first."""
    return [sum(ways * left[k - z] for z, ways in right.items() if z <= k) for k in range(len(left))]
