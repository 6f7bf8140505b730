"""Each rule under preset `default` by itself: a plan that breaks only it, and the judge reports exactly it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nest.cluster import Cluster, Level
from nest.evaluate import evaluate
from nest.graph import Edge, Layer, LayerGraph, Recomputed
from nest.plan import Plan, Sharding, Stage, over_replicas
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, Training, Variant

NARROW, WIDE, THREE, AGAIN = Variant(1), Variant(2), Variant(3), Variant(1, microbatch=2)
AGAINS = {name: (Recomputed("full", 1.0, 1), Recomputed("selective", 1.0, 1)) for name in "acd"}
GRAPH = LayerGraph(
    tuple(Layer(name, 1.0, 2.0, 10, 1, recomputed=AGAINS.get(name, ())) for name in "abcd"),
    (Edge("a", "b", 5), Edge("b", "c", 5), Edge("c", "d", 5)),
)
PROBLEM = Problem(
    "four layers on sixteen devices",
    dict.fromkeys((NARROW, WIDE, THREE, AGAIN), GRAPH),
    Cluster(16, 44, (Level(4, 100.0, 0.0), Level(4, 10.0, 0.0))),
    Training(4),
    Choices(
        tensor=frozenset({1, 3}),
        replicas=frozenset({1, 2, 4, 5}),
        stages=frozenset({2, 3}),
        zero=frozenset({0, 2}),
        zero_degree=frozenset({2, 3, 4, 5}),
        microbatch=frozenset({1}),
        stage_recompute=frozenset({"none", "full"}),
    ),
    DEFAULT,
)
"""A device holds 44 bytes: two layers need 2 * 20 + 2 of them with one microbatch in flight, and 44 with two.

Over two ranks ZeRO-2 leaves 30 of the 40 bytes that do not move, and has 10 of gradients whole for a moment.
"""


def plan_of(
    *cuts: int, replicas: int = 2, variant: Variant = NARROW, zeros: tuple[int, ...] = (0, 0, 0), degree: int = 2
) -> Plan:
    """Return a plan whose stages are neighbours, each beside its own replicas."""
    ends = [*cuts, 4]
    runs = list(zip([0, *cuts], ends, strict=True))
    width = variant.width
    stages = [
        Stage(
            tuple("abcd"[first:end]),
            at * replicas * width,
            width,
            "none",
            over_replicas(zeros[at], degree),
        )
        for at, (first, end) in enumerate(runs)
    ]
    return Plan(variant, replicas, width, tuple(stages), "stage-major")


LEGAL = plan_of(2)
SHARDED = plan_of(2, zeros=(2, 2))


def with_stage(at: int, plan: Plan = LEGAL, **changes: object) -> Plan:
    """Return a plan with something changed in one stage."""
    stages = list(plan.stages)
    stages[at] = replace(stages[at], **changes)  # type: ignore[arg-type]
    return replace(plan, stages=tuple(stages))


INSIDE = replace(
    LEGAL,
    stages=tuple(
        replace(stage, first_device=at * 4, devices=2, sharding=Sharding("stage", 2, 2))
        for at, stage in enumerate(LEGAL.stages)
    ),
)
BROKEN: dict[str, tuple[str, Plan]] = {
    "width not allowed": ("variant", plan_of(2, variant=WIDE)),
    "microbatch not allowed": ("variant", plan_of(2, variant=AGAIN)),
    "unit beside groups of four": ("nesting", plan_of(2, variant=THREE)),
    "technology without a menu": ("technology", replace(LEGAL, technologies=("fibre",))),
    "layer left out": ("cover", with_stage(1, layers=("c",))),
    "layer twice": ("cover", with_stage(1, layers=("b", "c", "d"))),
    "stages swapped": ("order", replace(LEGAL, stages=(LEGAL.stages[1], LEGAL.stages[0]))),
    "replicas not allowed": ("replicas", plan_of(2, replicas=3)),
    "no replica": ("replicas", plan_of(2, replicas=0)),
    "more replicas than microbatches": ("replicas", plan_of(2, replicas=5)),
    "stages not allowed": ("stages", plan_of(1, 2, 3, zeros=(0,) * 4)),
    "schedule not allowed": ("schedule", replace(LEGAL, schedule="gpipe")),
    "schedule without a price": ("schedule", replace(LEGAL, schedule="zb-h1")),
    "chunks without interleaving": ("chunks", replace(LEGAL, chunks=2)),
    "kind not allowed": ("recompute", with_stage(0, recompute="selective")),
    "more layers than can": ("recompute", with_stage(0, recompute="full", recomputed=2)),
    "type not allowed": ("sharding", plan_of(2, zeros=(1, 0))),
    "degree that divides nothing": ("sharding", plan_of(2, replicas=4, zeros=(2, 2), degree=3)),
    "inside the stage": ("sharding", INSIDE),
    "block too wide": ("block", with_stage(1, devices=2)),
    "gap between stages": ("placement", with_stage(1, first_device=3)),
    "stages on the same devices": ("placement", with_stage(1, first_device=0)),
    "gap between replicas": ("placement", replace(LEGAL, replica_stride=2)),
    "last stage first": ("placement", replace(LEGAL, arrangement="replica-major-reversed")),
    "stride of the other arrangement": ("placement", replace(LEGAL, arrangement="replica-major")),
    "too many devices": ("devices", plan_of(1, 2, replicas=6)),
    "too much memory": ("memory", plan_of(1)),
}
"""Case, the one rule it breaks, plan."""


@pytest.mark.parametrize("plan", [LEGAL, SHARDED], ids=["plain", "sharded"])
def test_legal_plan(plan: Plan) -> None:
    """The plans that the cases start from break no rule."""
    assert evaluate(PROBLEM, plan).violations == ()


@pytest.mark.parametrize("case", BROKEN)
def test_one_broken_rule(case: str) -> None:
    """The judge names the broken rule, and no other."""
    rule, plan = BROKEN[case]
    many = replace(PROBLEM, training=Training(8)).with_choices(replicas=None)
    verdict = evaluate(many if case == "too many devices" else PROBLEM, plan)
    assert {violation.rule for violation in verdict.violations} == {rule}, (case, verdict.violations)
    assert all(violation.message for violation in verdict.violations)


@pytest.mark.parametrize(
    ("numbers", "count", "legal"),
    [({1}, 1, True), ({1}, None, False), ({2}, 1, False), ({2}, None, True), ({7}, None, True), ({7}, 1, False)],
)
def test_numbers_of_layers_that_recompute(numbers: set[int], count: int | None, legal: bool) -> None:
    """Layers c and d can: one or both do as a problem says, and both where it says more."""
    plan = with_stage(1, recompute="full", recomputed=count)
    broken = evaluate(PROBLEM.with_choices(recomputed=frozenset(numbers)), plan).violations
    assert {violation.rule for violation in broken} == (set() if legal else {"recompute"})


def test_groups_of_replicas_may_be_ruled_out() -> None:
    """Of four replicas two may share the weights, unless the problem leaves it at all of them."""
    plan, roomy = plan_of(2, replicas=4, zeros=(2, 2)), replace(PROBLEM, training=Training(8))
    assert evaluate(roomy, plan).legal
    broken = evaluate(roomy.with_choices(hybrid=False), plan).violations
    assert {violation.rule for violation in broken} == {"sharding"}
    assert roomy.with_choices(hybrid=False, zero_degree=None).shard_groups(NARROW, 12) == (12,)


def test_load_out_of_range() -> None:
    """Rings whose latencies leave the range of ticks for each microbatch break the rule `range`, and no other.

    Layers of 3e-6 s ask for ticks of 1e-16 s or finer, of which 2^60 are 115 s at most. A ring over 1,021 devices, too
    few or too many for halves, waits 1,020 times for 0.012 s, and under ZeRO-3 each of the four layers runs three.
    """
    graph = LayerGraph(tuple(Layer(name, 1e-6, 2e-6, 10, 1) for name in "abcd"), GRAPH.edges)
    cluster = Cluster(1021, 1000, (Level(1021, 1e9, 0.012),))
    problem = Problem("four layers", {NARROW: graph}, cluster, Training(1021), preset=DEFAULT)
    for zero, broken in ((0, set()), (3, {"range"})):
        plan = Plan(NARROW, 1021, 1, (Stage(tuple("abcd"), 0, 1, "none", over_replicas(zero, 1021)),), "stage-major")
        assert {violation.rule for violation in evaluate(problem, plan).violations} == broken


def test_memory_to_the_last_byte() -> None:
    """The first stage needs 2 * 20 + 2 * 2 bytes: a device of 44 holds them, one of 43.9 does not."""
    for hbm, broken in ((44, set()), (43.9, {"memory"})):
        problem = replace(PROBLEM, cluster=replace(PROBLEM.cluster, hbm_bytes=hbm))
        assert {violation.rule for violation in evaluate(problem, LEGAL).violations} == broken


def test_degrees_are_those_of_all_copies() -> None:
    """Numbers of replicas that divide all, where such a degree is allowed and some sharding is."""
    assert PROBLEM.shard_groups(NARROW, 4) == (4, 2)
    assert PROBLEM.shard_groups(NARROW, 7) == ()
    assert PROBLEM.shard_groups(NARROW, 1) == ()
    assert PROBLEM.shard_groups(Variant(2, 2, 1), 2) == (2, 1)
    assert PROBLEM.with_choices(zero_degree=None).shard_groups(NARROW, 12) == (12, 6, 4, 3, 2)
    assert PROBLEM.copy_ranks(Variant(2, 3, 2), 5) == (30, 10)
    assert PROBLEM.with_choices(zero=frozenset({0})).shard_groups(NARROW, 4) == ()


@pytest.mark.parametrize(
    ("variant", "found"),
    [
        (Variant(1), None),
        (Variant(2), None),
        (Variant(4, 2), None),
        (Variant(3), (3, 4)),
        (Variant(2, 3), (6, 4)),
        (Variant(2, 1, 3), (6, 4)),
        (Variant(16), None),
    ],
)
def test_nesting(variant: Variant, found: tuple[int, int] | None) -> None:
    """Units divide the groups below the whole, or are multiples of them."""
    assert PROBLEM.unnested(variant) == found


def test_every_rule_is_broken_here() -> None:
    """The cases above break every rule of the formulation."""
    formulation = (Path(__file__).resolve().parent.parent / "docs" / "formulation.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^### C\d+ (\w+)$", formulation, re.MULTILINE))
    assert described == {rule for rule, _ in BROKEN.values()} | {"range"}
