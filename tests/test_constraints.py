"""Side constraints: what each keeps and breaks, at its very limit too, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import nextafter
from typing import TYPE_CHECKING, cast

import numpy as np
import oracle
import oracle_constraints
import pytest
from random_constraints import LOCAL_KINDS, random_constraints
from random_problems import Size, placed_plan, random_plan, random_problem, show_plan, show_problem
from seeds import seeds

from nest.cluster import Cluster, Level
from nest.constraints import (
    KINDS,
    AllowedDegrees,
    Apart,
    Budget,
    Constraint,
    CutsAt,
    DistinctStages,
    Divides,
    EqualStages,
    Filters,
    LevelTraffic,
    LocalConstraint,
    MaxDevices,
    MaxStages,
    MemoryHeadroom,
    Outer,
    Pin,
    ReservedDevices,
    Run,
    SameSharding,
    Site,
    Together,
    WithinLevel,
)
from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import UNSHARDED, Plan, Sharding, inside_stage
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem, Training, Variant

if TYPE_CHECKING:
    from nest.constraints.placement import Grouping
    from nest.constraints.widths import Axis

NARROW, THREE = Variant(1), Variant(3)
MIXED, LONG = Variant(2, expert=2, context=2), Variant(3, context=2)
GRAPH = LayerGraph(
    (*(Layer(name, 1.0, 2.0, 10, 1) for name in "abc"), Layer("d", 1.0, 2.0, 10, 2)),
    (Edge("a", "b", 5), Edge("b", "c", 5), Edge("c", "d", 5), Edge("a", "d", 3)),
)
PROBLEM = Problem(
    "four layers on sixteen devices",
    dict.fromkeys((NARROW, THREE, MIXED, LONG), GRAPH),
    Cluster(16, 100, (Level(4, 100.0, 0.0, "node"), Level(4, 10.0, 0.0, "rack"))),
    Training(4),
)
"""Nodes of four devices, of 100 bytes each. A stage of one device takes 20 bytes for each of its layers, and more."""


def plan_of(cuts: str, *shardings: Sharding, variant: Variant = NARROW, replicas: int = 1) -> Plan:
    """Return a plan whose stages are separated by bars, as in ``ab|cd``."""
    ends = [0]
    for stage in cuts.split("|"):
        ends.append(ends[-1] + len(stage))
    return placed_plan(PROBLEM, variant, ends, shardings or [UNSHARDED] * (len(ends) - 1), replicas)


WHOLE, HALVES, SINGLES = plan_of("abcd"), plan_of("ab|cd"), plan_of("a|b|c|d")
THREES, MIX = plan_of("abcd", variant=THREE), plan_of("abcd", variant=MIXED)
PAIR = plan_of("ab|cd", inside_stage(2, 2), UNSHARDED, replicas=2)
"""Two replicas of three devices: stage 1 on device 0, stage 0 on devices 1 and 2; then on 3, and on 4 and 5."""

CASES: list[tuple[Constraint, Plan, Plan]] = [
    (AllowedDegrees("tensor", [3]), THREES, WHOLE),
    (AllowedDegrees("expert", [2]), MIX, WHOLE),
    (AllowedDegrees("context", [1]), WHOLE, MIX),
    (AllowedDegrees("replicas", [1, 3]), plan_of("abcd", replicas=3), plan_of("abcd", replicas=2)),
    (AllowedDegrees("stages", [2]), HALVES, WHOLE),
    (Divides(heads=4), MIX, THREES),
    (Divides(vocabulary=4), WHOLE, THREES),
    (Divides(kv_heads=4), MIX, THREES),
    (Divides(kv_heads=1, heads=3), THREES, MIX),
    (Divides(kv_heads=1, replicate_kv=False), WHOLE, THREES),
    (Divides(experts=3), THREES, MIX),
    (Divides(sequence=1025), WHOLE, MIX),
    (Divides(batch=True), plan_of("abcd", replicas=4), plan_of("abcd", replicas=3)),
    (MaxStages(2), HALVES, plan_of("a|b|cd")),
    (MaxDevices(6), PAIR, plan_of("abcd", variant=THREE, replicas=4)),
    (ReservedDevices([9, 6]), PAIR, MIX),
    (MemoryHeadroom(bytes=50), HALVES, plan_of("abc|d")),
    (MemoryHeadroom(fraction=0.5), HALVES, plan_of("abc|d")),
    (Together(["a", "c"]), plan_of("abc|d"), HALVES),
    (Apart(["a", "c", "d"]), plan_of("ab|c|d"), HALVES),
    (CutsAt(["c", "d"]), plan_of("ab|c|d"), plan_of("a|bcd")),
    (EqualStages(), HALVES, plan_of("abc|d")),
    (EqualStages(first_lighter=2), plan_of("a|bcd"), HALVES),
    (EqualStages(first_lighter=1, last_lighter=1), plan_of("a|bc|d"), SINGLES),
    (EqualStages(first_lighter=1), plan_of("abcd"), HALVES),
    (EqualStages(counting=["b", "c"]), HALVES, plan_of("abc|d")),
    (EqualStages(last_lighter=1, counting=["b", "c"]), plan_of("ab|c|d"), HALVES),
    (WithinLevel("tensor", "node"), THREES, plan_of("abcd", variant=THREE, replicas=2)),
    (WithinLevel("tensor", "node"), MIX, plan_of("a|bcd", variant=THREE)),
    (WithinLevel("context", 0), MIX, plan_of("abcd", variant=LONG)),
    (WithinLevel("context", 0), plan_of("abcd", variant=THREE, replicas=2), plan_of("abcd", variant=LONG)),
    (WithinLevel("expert", 0), plan_of("abcd", variant=THREE, replicas=2), MIX),
    (WithinLevel("stage", 0), PAIR, plan_of("ab|cd", inside_stage(2, 4), UNSHARDED)),
    (WithinLevel("stage", 0), plan_of("abcd", inside_stage(2, 4)), MIX),
    (Pin((1, 2), layer="b"), PAIR, WHOLE),
    (Pin((0, 1), stage=-1), SINGLES, plan_of("ab|cd", UNSHARDED, inside_stage(1, 4))),
    (Pin((3, 4), stage=0), SINGLES, plan_of("a|b|cd")),
    (Pin((0, 15), stage=2), SINGLES, HALVES),
    (Pin((0, 15), stage=-3), SINGLES, HALVES),
    (LevelTraffic("rack", 100), PAIR, plan_of("ab|cd", replicas=4)),
    (Budget(200, rate_per_device_s=1), PAIR, MIX),
    (DistinctStages(2), SINGLES, plan_of("a|bc|d")),
    (SameSharding(["a", "b"]), PAIR, plan_of("a|b|cd", inside_stage(1, 2), UNSHARDED, UNSHARDED)),
    (SameSharding(["a", "d"]), HALVES, PAIR),
]
"""A constraint, a plan that keeps it, and one that breaks it."""


def broken(constraint: Constraint, plan: Plan, problem: Problem = PROBLEM) -> set[str]:
    """Return the rules that a plan breaks under one side constraint, in which the judge names how."""
    violations = evaluate(problem.with_constraints(constraint), plan).violations
    assert all(constraint.text in each.message for each in violations if each.rule == constraint.kind)
    return {each.rule for each in violations}


@pytest.mark.parametrize(("constraint", "kept", "other"), CASES, ids=lambda value: getattr(value, "kind", ""))
def test_one_constraint(constraint: Constraint, kept: Plan, other: Plan) -> None:
    """The judge names the constraint that a plan breaks, and nothing else, and nothing where the plan keeps it."""
    assert broken(constraint, kept) == set()
    assert broken(constraint, other) == {constraint.kind}


def test_every_kind_is_tried() -> None:
    """No kind is left out above, and each is known by its own name."""
    assert {type(constraint) for constraint, _, _ in CASES} == set(KINDS.values())
    assert all(KINDS[constraint.kind] is type(constraint) for constraint, _, _ in CASES)


AT_THE_LIMIT: list[tuple[Constraint, Constraint, Plan]] = [
    (MaxStages(2), MaxStages(1), HALVES),
    (MaxDevices(6), MaxDevices(5), PAIR),
    (ReservedDevices([6]), ReservedDevices([5]), PAIR),
    (MemoryHeadroom(bytes=56), MemoryHeadroom(bytes=56.0001), HALVES),
    (MemoryHeadroom(fraction=0.56), MemoryHeadroom(fraction=0.560000001), HALVES),
    (Pin((1, 2), layer="b"), Pin((2, 2), layer="b"), PAIR),
    (Pin((1, 2), stage=0), Pin((1, 1), stage=0), PAIR),
    (EqualStages(last_lighter=1, counting=["a", "b", "d"]), EqualStages(counting=["a", "b", "d"]), HALVES),
    (LevelTraffic(1, 32), LevelTraffic(1, 31.999), PAIR),
    (LevelTraffic(0, 224), LevelTraffic(0, 223), PAIR),
    (LevelTraffic(0, 104), LevelTraffic(0, 103), plan_of("a|bc|d")),
    (Budget(129, rate_per_device_s=1), Budget(128.9999999999, rate_per_device_s=1), PAIR),
    (Budget(12.9, price_per_device_hour=360), Budget(12.9, price_per_device_hour=360.0000001), PAIR),
    (Budget(38.7, watts_per_device=0.3), Budget(38.7, watts_per_device=0.3000000001), PAIR),
    (DistinctStages(2), DistinctStages(1), SINGLES),
]


@pytest.mark.parametrize(("limit", "tighter", "plan"), AT_THE_LIMIT, ids=lambda value: getattr(value, "kind", ""))
def test_limit_itself_is_allowed(limit: Constraint, tighter: Constraint, plan: Plan) -> None:
    """What is exactly at the limit is allowed, what is beyond it by a little is not, also where floats are not exact.

    `HALVES` takes 44 bytes of 100, which in floats are more than ``100 * (1 - 0.56)``.

    `PAIR`: of the layers ``ab|cd``, 5 + 3 bytes cross the cut, forward and backward, for each of 2 microbatches of each
    replica. Between the nodes is only the boundary of the second one (device 3 and devices 4 and 5): 32 bytes. All in
    all it is twice as much, and the two replicas send and receive the gradients of 40 bytes of parameters: 64 + 160.
    Stage 0 takes 2 s + 1 s for the gradients (2 * 5 / 10) + 4 s + 0.1 s in the ring, three rounds 21.3 s, and the
    synchronisation 20 / 100 s: 6 devices for 21.5 s.

    In ``a|bc|d`` the skip ``ad`` is sent forward to stage 2, backward to stage 0: twice 5 + 5 + 3 for 4 microbatches.
    """
    assert broken(limit, plan) == set()
    assert broken(tighter, plan) == {limit.kind}


def test_traffic_under_both_presets() -> None:
    """Type 3 synchronises its shards in `paper` only; first devices count in `artifact`, whole blocks in `paper`."""
    shards = plan_of("ab|cd", inside_stage(3, 2), UNSHARDED, replicas=2)
    for preset, total in ((PAPER, 64 + 2 * 2 * 30), (ARTIFACT, 64 + 2 * 2 * 40)):
        problem = PROBLEM.with_preset(preset)
        assert broken(LevelTraffic(0, total), shards, problem) == set()
        assert broken(LevelTraffic(0, total - 1), shards, problem) == {"level_traffic"}
    skipping = plan_of("a|bc|d", UNSHARDED, inside_stage(1, 2), inside_stage(1, 2))
    assert broken(LevelTraffic("rack", 52), skipping) == set(), "forward ab, back ab and ad, four microbatches"
    assert broken(LevelTraffic("rack", 51), skipping) == {"level_traffic"}
    wide = plan_of("ab|cd", inside_stage(2, 4), UNSHARDED)
    assert broken(LevelTraffic("rack", 63), wide) == {"level_traffic"}, "devices 0 and 1 to 4, four microbatches"
    assert broken(LevelTraffic("rack", 0), wide, PROBLEM.with_preset(ARTIFACT)) == set()


def test_shapes_differ_by_recomputation() -> None:
    """Layers that cost the same make another stage where the last one does not recompute."""
    recomputing = PROBLEM.with_choices(recompute="full")
    alike = replace(recomputing, graphs={NARROW: replace(GRAPH, layers=tuple(Layer(n, 1, 2, 10, 1) for n in "abcd"))})
    for problem, most in ((alike, 2), (alike.with_choices(recompute="none"), 1)):
        plan = placed_plan(problem, NARROW, range(5), [UNSHARDED] * 4, 1)
        assert broken(DistinctStages(most), plan, problem) == set()
        if most > 1:
            assert broken(DistinctStages(most - 1), plan, problem) == {"distinct_stages"}


def test_memory_rule_is_not_a_constraint() -> None:
    """A stage that no device holds breaks the rule `memory`, and no constraint that is silent about memory."""
    small = replace(PROBLEM, cluster=replace(PROBLEM.cluster, hbm_bytes=43))
    assert broken(MaxStages(2), HALVES, small) == {"memory"}


@pytest.mark.parametrize("seed", seeds(60, 250))
def test_judge_agrees_with_the_reference(seed: int) -> None:
    """On random plans, judge and reference see the same side constraints broken."""
    for verdict, kinds, wanted, shown in _verdicts(seed):
        assert verdict == wanted, f"{shown}\n{kinds}"


def _verdicts(seed: int) -> list[tuple[set[str], set[str], set[str], str]]:
    """Return what the judge finds broken, of which kinds, what the reference finds broken, and the case."""
    problem = random_problem(seed, Size(layers=5, devices=16), ugly=seed % 5 == 4)
    problem = problem.with_constraints(*random_constraints(seed, problem))
    kinds, found = {each.kind for each in problem.constraints}, []
    for again in range(4):
        plan = random_plan(1000 * seed + again, problem)
        if plan.replicas * plan.replica_stride > problem.cluster.devices:
            continue
        verdict = evaluate(problem, plan)
        exponent = verdict.scale.time.exponent
        wanted = oracle.broken_constraints(problem, plan, oracle.price(problem, plan, exponent), exponent)
        shown = f"{show_problem(problem)}\n{show_plan(plan)}"
        found.append(({each.rule for each in verdict.violations} & kinds, kinds, wanted, shown))
    return found


@pytest.mark.parametrize("seed", seeds(60, 150))
def test_budgets_to_the_last_byte(seed: int) -> None:
    """A random plan keeps a budget of exactly what it takes by the reference, and breaks a smaller one."""
    problem = random_problem(seed, Size(layers=5, devices=16))
    plan = random_plan(seed, problem)
    if plan.replicas * plan.replica_stride > problem.cluster.devices:
        return
    exponent = scale_of(problem).time.exponent
    case = oracle.case_of(problem, plan, oracle.price(problem, plan, exponent), exponent)
    for level in range(problem.levels):
        limit_itself(oracle_constraints.traffic(case, level), problem, plan, partial(LevelTraffic, level))
    cost = len(case.all_devices()) * case.iteration_s
    limit_itself(cost, problem, plan, partial(Budget, rate_per_device_s=1))
    shapes = oracle_constraints.shapes(case)
    assert "distinct_stages" not in broken(DistinctStages(shapes), plan, problem)
    assert shapes == 1 or "distinct_stages" in broken(DistinctStages(shapes - 1), plan, problem)


def limit_itself(amount: Fraction, problem: Problem, plan: Plan, budget: Callable[[float], Constraint]) -> None:
    """Assert that a plan keeps a budget of an amount, if a float is so much, and breaks one a trifle below."""
    exact = Fraction(repr(float(amount))) == amount
    assert not exact or budget(0).kind not in broken(budget(float(amount)), plan, problem)
    assert amount == 0 or budget(0).kind in broken(budget(float(amount) * (1 - 1e-12)), plan, problem)


def test_random_constraints_bind() -> None:
    """Of each kind, the plans above keep some and break some."""
    kept, lost = Counter[str](), Counter[str]()
    for seed in range(250):
        for _, kinds, wanted, _ in _verdicts(seed):
            kept.update(kinds - wanted)
            lost.update(wanted)
    assert all(kept[kind] >= 8 and lost[kind] >= 8 for kind in KINDS), (kept, lost)


@pytest.mark.parametrize("seed", range(40))
def test_arrays_are_many_single_questions(seed: int) -> None:
    """Every hook says the same of each run and place of an array as of that run and place alone."""
    problem = random_problem(seed, Size(layers=5, devices=16))
    variant = min(problem.graphs)
    layers, rng = len(problem.graphs[variant]), np.random.default_rng(seed)
    first, end = (axis.ravel() for axis in np.triu_indices(layers))
    run = Run(first[:, None], end[:, None] + 1)
    stages = int(rng.integers(1, layers + 1))
    outer = Outer(variant, stages, int(rng.integers(1, 4)))
    site = Site(int(rng.integers(1, stages + 1)), np.arange(0, 12)[None, :], 2 * variant.width, 5 * variant.width)
    for constraint in random_constraints(seed, problem, LOCAL_KINDS):
        assert isinstance(constraint, LocalConstraint)

        def masks(run: Run, site: Site, constraint: LocalConstraint = constraint) -> list[np.ndarray]:
            return [
                constraint.admits_run(problem, variant, run),
                constraint.admits_stage(problem, variant, stages, site.position, run),
                np.broadcast_to(constraint.admits_place(problem, outer, run, site), (len(run.first), site.start.size)),
            ]

        whole = [np.broadcast_to(mask, (len(first), 12)) for mask in masks(run, site)]
        for at, place in product(range(len(first)), range(12)):
            one = Run(run.first[at : at + 1], run.end[at : at + 1])
            alone = masks(one, replace(site, start=site.start[:, place : place + 1]))
            assert [mask[at, place] for mask in whole] == [mask.all() for mask in alone], constraint


def test_search_by_place_only_where_it_matters() -> None:
    """Whether a constraint looks at places follows from widths, groups and sharding."""
    one, three = (replace(PROBLEM, graphs={variant: GRAPH}) for variant in (Variant(2), THREE))
    for problem, what, level, looks in (
        (one, "tensor", 0, False),
        (three, "tensor", 0, True),
        (three, "tensor", 1, False),
        (one, "stage", 0, True),
        (one.with_choices(zero=frozenset({0})), "stage", 0, False),
        (three, "expert", 0, False),
    ):
        filters = Filters(problem.with_constraints(WithinLevel(what, level)))  # type: ignore[arg-type]
        assert filters.by_place == looks, (what, level)
    assert Filters(one.with_constraints(Pin((0, 1), stage=0))).by_place
    assert not Filters(one.with_constraints(MaxStages(1), Together(["a", "b"]))).by_place


NONSENSE = [
    (lambda: AllowedDegrees(cast("Axis", "tensors"), [1]), "allowed_degrees.axis: 'tensors'; give one of tensor, "),
    (lambda: AllowedDegrees("tensor", []), "allowed_degrees.values: nothing is listed; give at least one"),
    (lambda: AllowedDegrees("tensor", [0]), "allowed_degrees.values: 0; give a whole number from 1"),
    (Divides, "divides: nothing is to be divided; give heads, kv_heads, vocabulary, experts, sequence or"),
    (lambda: Divides(heads=0), "divides.heads: 0; give a whole number from 1"),
    (lambda: MaxStages(0), "max_stages.stages: 0; give a whole number from 1"),
    (lambda: MaxDevices(True), "max_devices.devices: True; give a whole number from 1"),
    (lambda: ReservedDevices([3, 3]), "reserved_devices.devices: 3 is listed twice; list each once"),
    (lambda: ReservedDevices([-1]), "reserved_devices.devices: -1; give a whole number from 0"),
    (
        lambda: ReservedDevices([16]),
        "reserved_devices.devices: there is no device 16; the devices of the cluster are 0",
    ),
    (MemoryHeadroom, "memory_headroom: neither fraction nor bytes is given; give one of them"),
    (lambda: MemoryHeadroom(0.1, 5), "memory_headroom: fraction and bytes are both given; give one of them"),
    (lambda: MemoryHeadroom(fraction=1), "memory_headroom.fraction: 1; give a number from 0 to below 1"),
    (lambda: MemoryHeadroom(bytes=-1), "memory_headroom.bytes: -1; give a finite number from 0"),
    (lambda: MemoryHeadroom(bytes=100), "memory_headroom.bytes: 100; a device has 100 bytes, give fewer"),
    (lambda: Together([]), "together.layers: nothing is listed; give at least one"),
    (lambda: Together(["a", "x"]), "together.layers: 'x' is no layer; name the id of a layer"),
    (lambda: Apart(["a", "a"]), "apart.layers: 'a' is listed twice; list each once"),
    (lambda: CutsAt([0]), "cuts_at.layers: 0 is no layer; name the id of a layer"),
    (lambda: EqualStages(-1), "equal_stages.first_lighter: -1; give a whole number from 0"),
    (lambda: EqualStages(counting=["x"]), "equal_stages.counting: 'x' is no layer; name the id of a layer"),
    (lambda: EqualStages(counting=[]), "equal_stages.counting: nothing is listed; give at least one"),
    (lambda: WithinLevel(cast("Grouping", "zero"), 0), "within_level.what: 'zero'; give one of tensor, context, "),
    (lambda: WithinLevel("stage", 2), "within_level.level: 2 is no level of the cluster; the levels are 0 ('node'), 1"),
    (lambda: WithinLevel("stage", "nod"), "within_level.level: 'nod' is no level of the cluster; the levels are 0 "),
    (lambda: Pin((0, 1)), "pin: neither layer nor stage is given; give one of them"),
    (lambda: Pin((0, 1), "a", 0), "pin: layer and stage are both given; give one of them"),
    (lambda: Pin((2, 1), "a"), "pin.devices: [2, 1]; give the first and the last device, as in [0, 7]"),
    (lambda: Pin((2, 16), "a"), "pin.devices: there is no device 16; the devices of the cluster are 0 to 15"),
    (lambda: Pin((2, 3), "x"), "pin.layer: 'x' is no layer; name the id of a layer"),
    (lambda: LevelTraffic(0, float("nan")), "level_traffic.most_bytes: nan; give a finite number from 0"),
    (
        lambda: LevelTraffic("top", 1),
        "level_traffic.level: 'top' is no level of the cluster; the levels are 0 ('node')",
    ),
    (lambda: Budget(1), "budget: no rate is given; give one of rate_per_device_s, price_per_device_hour, watts_per_"),
    (lambda: Budget(1, 1, 1), "budget: rate_per_device_s and price_per_device_hour are given; give one of rate_per_"),
    (lambda: Budget(-1, 1), "budget.most: -1; give a finite number from 0"),
    (lambda: Budget(1, -1), "budget.rate_per_device_s: -1; give a finite number from 0"),
    (lambda: DistinctStages(0), "distinct_stages.most: 0; give a whole number from 1"),
    (lambda: SameSharding(["x"]), "same_sharding.layers: 'x' is no layer; name the id of a layer"),
    (lambda: SameSharding([]), "same_sharding.layers: nothing is listed; give at least one"),
]


@pytest.mark.parametrize(("make", "message"), NONSENSE, ids=[message.split(";")[0] for _, message in NONSENSE])
def test_nonsense_is_refused(make: Callable[[], Constraint], message: str) -> None:
    """One line says what is wrong, at the latest when the constraint meets the problem."""
    with pytest.raises(InvalidProblem) as caught:
        PROBLEM.with_constraints(make())
    assert str(caught.value).startswith(message)


def test_texts_stay_short() -> None:
    """Of many layers, devices or values a text names the first few."""
    assert Together(["a", "b"]).text == "layers 'a' and 'b' share a stage"
    assert CutsAt(range(1000)).text == "stages begin only with layers 0, 1, 2, 3, 4, 5, 6 and 993 more"
    assert AllowedDegrees("tensor", [4, 2]).text == "tensor is among 2 and 4"
    assert Budget(3, price_per_device_hour=2.5, unit="USD").text.endswith("at most 3 USD, a device 2.5 USD per hour")
    assert Budget(3, watts_per_device=700).text == "an iteration costs at most 3 J, a device 700 J per second"


def test_levels_of_one_name() -> None:
    """A name that two levels share names neither."""
    cluster = replace(PROBLEM.cluster, levels=tuple(replace(each, name="x") for each in PROBLEM.cluster.levels))
    with pytest.raises(InvalidProblem, match="'x' is the name of several levels"):
        replace(PROBLEM, cluster=cluster, constraints=(WithinLevel("stage", "x"),))


def test_headroom_is_rounded_down() -> None:
    """Two thirds of 0.7 bytes are no float, and the nearest one is above them: what is left is the next one below."""
    problem = replace(PROBLEM, cluster=replace(PROBLEM.cluster, hbm_bytes=0.7))
    left, exact = MemoryHeadroom(fraction=1 / 3).memory_limit(problem), Fraction("0.7") * (1 - Fraction(repr(1 / 3)))
    assert Fraction(repr(left)) <= exact < Fraction(repr(nextafter(left, 1)))
    assert float(exact) == nextafter(left, 1)
