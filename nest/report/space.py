"""How many plans there are: the size of the space that a solver searches, counted exactly.

A plan is a variant, a number of replicas, a division of the layers into contiguous stages, and a ZeRO type and degree
for each stage, such that all of it fits on the devices. Memory is not looked at: what it rules out is the solver's
to find.

Let ``p(x) = sum of x^z`` over the shardings that a stage may take, ``z`` being the multiple of its base width that one
occupies. Of ``n`` layers there are ``C(n - 1, S - 1)`` divisions into ``S`` stages, so that the coefficient of ``x^k``
in ``sum over S of C(n - 1, S - 1) p(x)^S`` counts the pipelines that occupy ``k`` base widths. Where ``S`` is free that
sum is ``p (1 + p)^(n - 1)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import comb

from nest.problem import Problem, Variant


def plans_of(problem: Problem) -> dict[Variant, int]:
    """Count the plans of each allowed variant that fit on the devices."""
    return {variant: _plans(problem, variant) for variant in problem.variants}


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
    """Count plans whose stages are all as wide, and shard over replicas: each stage has its ZeRO type.

    With one stage or one replica, all arrangements are the same plan.
    """
    layers, total = len(problem.graphs[variant]), 0
    if problem.unnested(variant):
        return 0
    room, choices = problem.cluster.devices // variant.width, problem.choices
    for replicas in range(1, min(problem.microbatches(variant), room) + 1):
        if choices.replicas is not None and replicas not in choices.replicas:
            continue
        sharding = bool(problem.copy_degrees(variant, replicas))
        types = sum(zero == 0 or sharding for zero in choices.zero)
        for stages in range(1, min(layers, room // replicas) + 1):
            if choices.stages is None or stages in choices.stages:
                ways = len(problem.preset.arrangements) if stages > 1 and replicas > 1 else 1
                total += ways * comb(layers - 1, stages - 1) * types**stages
    return total


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
