"""Stages on nodes: how many boundaries and blocks cross from one to another, counted from the devices of a plan.

The first case is that of alpa-projects/alpa#752: 32 equal stages on 4 nodes of 8 devices cross nodes 3 times at least,
and were placed so that they did 5 times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from math import prod

import pytest
from artifact_data import ARTIFACT_DATA
from random_problems import random_problem

from nest.cluster import Cluster, Level
from nest.evaluate import Evaluation, evaluate
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Status
from nest.solve import solve

NODES, NODE, STAGES, LEAST, FOUND_THERE = 4, 8, 32, 3, 5
"""The figures of the issue: nodes, devices of each, stages, crossings that must be, and those that were."""

FACTS = ARTIFACT_DATA.parent / "validation" / "issue_facts.json"

NO_ZERO, ANY_ZERO = frozenset({0}), frozenset({0, 1, 2, 3})

each_preset = pytest.mark.parametrize("preset", [ARTIFACT, PAPER], ids=lambda preset: preset.name)


def equal_layers(count: int, fanouts: Sequence[int], *, tensor: int = 1, parameters: int = 10) -> Problem:
    """Return a chain of equal layers on a cluster whose every further level is slower, one stage for each layer."""
    layers = tuple(Layer(f"layer{at}", 1.0, 2.0, parameters, 0) for at in range(count))
    edges = tuple(Edge(one.id, other.id, 8) for one, other in pairwise(layers))
    levels = tuple(Level(fanout, 100.0 / 10**at, 0.001 * 10**at) for at, fanout in enumerate(fanouts))
    return Problem(
        name="equal layers",
        graphs={Variant(tensor): LayerGraph(layers, edges)},
        cluster=Cluster(prod(fanouts), 1000, levels),
        training=Training(16),
        choices=Choices(stages=frozenset({count}), zero=NO_ZERO),
    )


def best(problem: Problem) -> tuple[Plan, Evaluation]:
    """Return the proven best plan and the judge's verdict on it."""
    result = solve(problem)
    assert result.status is Status.OPTIMAL, result.reason
    assert result.plan is not None
    verdict = evaluate(problem, result.plan)
    assert verdict.legal, verdict.violations
    return result.plan, verdict


def blocks(plan: Plan, replica: int) -> list[range]:
    """Return the devices of each stage of a replica."""
    starts = [replica * plan.replica_stride + stage.first_device for stage in plan.stages]
    return [range(start, start + stage.devices) for start, stage in zip(starts, plan.stages, strict=True)]


def straddles(devices: Sequence[int], node: int = NODE) -> bool:
    """Whether some devices lie on more than one node."""
    return len({device // node for device in devices}) > 1


def crossed(plan: Plan, replica: int = 0, node: int = NODE) -> list[bool]:
    """Return of each boundary whether the devices on both sides of it lie on more than one node."""
    return [straddles([*one, *other], node) for one, other in pairwise(blocks(plan, replica))]


def level_of(cluster: Cluster, devices: Sequence[int]) -> int:
    """Return the innermost level of which one group has all these devices."""
    sizes = cluster.group_sizes
    return next(level for level, size in enumerate(sizes) if len({device // size for device in devices}) == 1)


def levels_seen(problem: Problem, plan: Plan) -> Iterator[set[tuple[int, int, int]]]:
    """Yield the levels of entry, exit and block of each stage, as every replica that counts sees them."""
    cluster, firsts = problem.cluster, problem.preset.boundary == "first"
    seen: list[set[tuple[int, int, int]]] = [set() for _ in plan.stages]
    for replica in range(plan.replicas if problem.preset.all_replicas else 1):
        placed = blocks(plan, replica)
        between = [
            level_of(cluster, [one[0], other[0]] if firsts else [*one, *other]) for one, other in pairwise(placed)
        ]
        for at, (entry, out) in enumerate(zip([0, *between], [*between, 0], strict=True)):
            seen[at].add((entry, out, level_of(cluster, placed[at])))
    yield from seen


@pytest.mark.skipif(not FACTS.is_file(), reason=f"the facts of the issue are not in {FACTS}")
def test_the_figures_are_those_of_the_issue() -> None:
    """The constants above are the row's."""
    rows = json.loads(FACTS.read_text())["rows"]
    row = next(row for row in rows if row["ref"] == "alpa-projects/alpa#752")
    names = ("nodes", "gpus_per_node", "stages", "crossings_expected", "crossings_found")
    assert [row[name] for name in names] == [NODES, NODE, STAGES, LEAST, FOUND_THERE]


@each_preset
@pytest.mark.parametrize("zero", [NO_ZERO, ANY_ZERO], ids=["none", "free"])
def test_equal_stages_cross_nodes_as_seldom_as_they_can(preset: Preset, zero: frozenset[int]) -> None:
    """Four full nodes are joined by three boundaries, by the devices and by the levels that the judge saw."""
    problem = equal_layers(STAGES, (NODE, NODES)).with_preset(preset).with_choices(zero=zero)
    plan, verdict = best(problem)
    assert sorted(device for block in blocks(plan, 0) for device in block) == list(range(NODES * NODE))
    assert sum(crossed(plan)) == LEAST
    assert [stage.levels.entry > 0 for stage in verdict.stages] == [False, *crossed(plan)]
    assert [stage.levels.exit > 0 for stage in verdict.stages] == [*crossed(plan), False]


def test_a_scattered_placement_is_counted_and_refused() -> None:
    """Two neighbours on different nodes that change places make the crossings of the issue, and break a rule."""
    problem = equal_layers(STAGES, (NODE, NODES))
    plan, _ = best(problem)
    at = crossed(plan).index(True)
    one, other = plan.stages[at : at + 2]
    exchanged = (
        replace(one, first_device=other.first_device),
        replace(other, first_device=one.first_device),
    )
    scattered = replace(plan, stages=(*plan.stages[:at], *exchanged, *plan.stages[at + 2 :]))
    assert sum(crossed(scattered)) == FOUND_THERE
    assert {violation.rule for violation in evaluate(problem, scattered).violations} == {"placement"}


@each_preset
@pytest.mark.parametrize(
    ("stages", "replicas", "counts"),
    [
        (16, 2, [1, 1]),
        (8, 4, [0, 0, 0, 0]),
        (5, 6, [0, 1, 0, 1, 1, 0]),  # replicas of 5 devices start at 0, 5, 10, ... and nodes at 0, 8, 16, 24
        (6, 5, [0, 1, 1, 0, 0]),
    ],
)
def test_each_replica_crosses_where_its_devices_do(
    preset: Preset, stages: int, replicas: int, counts: list[int]
) -> None:
    """Under ``paper`` a stage is as slow as its slowest replica, under ``artifact`` as replica 0."""
    problem = equal_layers(stages, (NODE, NODES)).with_preset(preset)
    plan, verdict = best(problem.with_choices(replicas=frozenset({replicas})))
    assert [sum(crossed(plan, replica)) for replica in range(replicas)] == counts
    counting = range(replicas if preset.all_replicas else 1)
    sides = [[sum(pair) for pair in pairwise([False, *crossed(plan, replica), False])] for replica in counting]
    judged = [(stage.levels.entry > 0) + (stage.levels.exit > 0) for stage in verdict.stages]
    assert judged == [max(each) for each in zip(*sides, strict=True)]


@each_preset
def test_sharded_stages_cross_nodes_as_seldom_as_they_can(preset: Preset) -> None:
    """With a memory that takes half a stage, 16 stages fill the nodes: 3 boundaries cross, and no block."""
    problem = equal_layers(STAGES // 2, (NODE, NODES), parameters=1000).with_preset(preset)
    plan, verdict = best(problem.with_choices(zero=ANY_ZERO))
    assert {stage.devices for stage in plan.stages} == {2}
    assert sum(crossed(plan)) == LEAST
    assert not any(map(straddles, blocks(plan, 0)))
    assert [stage.levels.block for stage in verdict.stages] == [0] * len(plan.stages)


def arrangements(blocks: int, width: int, devices: int) -> Iterator[list[range]]:
    """Yield all ways to place blocks of neighbours on a line, gaps between them or none."""
    spare = devices - blocks * width
    for gaps in combinations(range(blocks + spare), spare):
        before = [sum(gap - at <= block for at, gap in enumerate(gaps)) for block in range(blocks)]
        yield [range(block * width + gap, block * width + gap + width) for block, gap in enumerate(before)]


def test_arrangements() -> None:
    """Each way to place the blocks comes once, without overlap, on devices that exist."""
    found = {tuple(placed) for placed in arrangements(2, 3, 8)}
    starts = [(0, 3), (0, 4), (0, 5), (1, 4), (1, 5), (2, 5)]
    assert found == {(range(one, one + 3), range(other, other + 3)) for one, other in starts}


@pytest.mark.parametrize(
    ("width", "stages", "straddling", "fewest"),
    [(3, 10, 2, 2), (3, 8, 2, 0), (5, 6, 3, 2), (6, 5, 2, 2), (7, 4, 3, 0), (4, 8, 0, 0), (8, 4, 0, 0)],
)
def test_blocks_that_do_not_divide_a_node(width: int, stages: int, straddling: int, fewest: int) -> None:
    """Straddling blocks are those that the judge sees, and none too many for a line without gaps (C9).

    The brute force also says what gaps, which are not in the space, would spare.
    """
    problem = equal_layers(stages, (NODE, NODES), tensor=width)
    plan, verdict = best(problem.with_choices(replicas=frozenset({1})))
    assert [stage.levels.block > 0 for stage in verdict.stages] == list(map(straddles, blocks(plan, 0)))
    assert sum(map(straddles, blocks(plan, 0))) == straddling
    for devices, least in ((stages * width, straddling), (NODES * NODE, fewest)):
        assert min(sum(map(straddles, placed)) for placed in arrangements(stages, width, devices)) == least


def test_a_stage_takes_more_devices_to_keep_another_on_its_node() -> None:
    """Least degrees that fit would put the middle block over two nodes, where its ring is slow."""
    node, nodes, memory, sizes = 4, 3, 200, (100, 200, 100)
    base = equal_layers(len(sizes), (node, nodes))
    graph = base.graphs[Variant(1)]
    layers = tuple(replace(layer, parameter_bytes=2 * size) for layer, size in zip(graph.layers, sizes, strict=True))
    cluster = replace(base.cluster, hbm_bytes=memory)
    problem = replace(base, graphs={Variant(1): LayerGraph(layers, graph.edges)}, cluster=cluster)
    plan, verdict = best(problem.with_choices(zero=ANY_ZERO, replicas=frozenset({1})))

    def placed(degrees: Sequence[int]) -> list[range]:
        ends = [sum(degrees[at:]) for at in range(len(degrees))]
        return [range(end - degree, end) for end, degree in zip(ends, degrees, strict=True)]

    def count(degrees: Sequence[int]) -> int:
        return sum(straddles(block, node) for block in placed(degrees))

    fitting = [
        degrees
        for degrees in product((1, 2, 4, 8), repeat=len(sizes))
        if sum(degrees) <= node * nodes
        and all(2 * 2 * size <= memory * degree for size, degree in zip(sizes, degrees, strict=True))
    ]
    assert min(fitting) == (2, 4, 2)
    assert count(min(fitting)) == 1
    assert min(map(count, fitting)) == 0
    assert blocks(plan, 0) == placed([stage.devices for stage in plan.stages])
    assert sum(straddles(block, node) for block in blocks(plan, 0)) == 0
    assert [stage.levels.block for stage in verdict.stages] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(60))
def test_the_judges_levels_are_those_of_the_devices(seed: int) -> None:
    """On random problems, every stage pays levels that one of its replicas sees, and none that it does not."""
    problem = random_problem(seed)
    plan = solve(problem).plan
    if plan is not None:
        figures = evaluate(problem, plan).stages
        for stage, seen in zip(figures, levels_seen(problem, plan), strict=True):
            assert tuple(stage.levels) in seen
