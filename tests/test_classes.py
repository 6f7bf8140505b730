"""Several classes of devices on one cluster: solver, judge, checker and reference agree, as integers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import oracle_default as oracle
import pytest
from oracle_places import class_of
from random_classes import FEW, mixed, mixed_places
from random_places import idle_plan
from random_problems import show_plan, show_problem
from seeds import seeds
from test_default_agreement import LARGER, check, refuted_by

from nest.breakdown import load_parts, memory_parts
from nest.certificate import check as claimed
from nest.classes import across, fastest, slowest
from nest.cluster import Cluster, DeviceClass, Level
from nest.constraints import MemoryHeadroom, Pin, ReservedDevices, WithinLevel
from nest.dp.incumbent import Incumbent
from nest.dp.sum_outer import SumBounds, SumChoices, least_of_variant, sum_choices, sum_ranges
from nest.dp.sum_search import SumSearch
from nest.dp.watch import Watch
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.graph import Collective, Edge, Layer, LayerGraph, Recomputed
from nest.line import EVERY, Line
from nest.places import lines
from nest.plan import Plan, Stage
from nest.presets import DEFAULT, PAPER
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Status
from nest.simulate import pipeline_of
from nest.solve import solve
from nest.tables import GroupedTables, Tables
from nest.units import NEVER

ONE = Variant(1)
MANY = replace(FEW, layers=9, devices=24, variants=1)


@pytest.mark.parametrize("seed", seeds(30, 200))
def test_best_plan(seed: int) -> None:
    """Every plan on every line."""
    check(mixed(seed, FEW))


@pytest.mark.parametrize("seed", seeds(20, 120))
def test_best_place(seed: int) -> None:
    """Every plan in every place, with idle devices, and around some that are down."""
    check(mixed_places(seed))


def alike(problem: Problem) -> Problem:
    """Return a problem all of whose layers are as one of those that can compute the most again, on each class."""
    graphs = {}
    for variant, graph in problem.graphs.items():
        ids = [layer.id for layer in graph.layers]
        at = max(range(len(ids)), key=lambda at: len(graph.layers[at].recomputed))
        same, *others = (
            tuple(replace(layers[at], id=each, tied_bytes=0) for each in ids)
            for layers in (graph.layers, *(layers for _, layers in graph.others))
        )
        theirs = tuple(zip([name for name, _ in graph.others], others, strict=True))
        graphs[variant] = LayerGraph(same, graph.edges, None, theirs)
    return replace(problem, graphs=graphs)


@pytest.mark.parametrize("seed", seeds(30, 200))
def test_best_plan_of_layers_alike(seed: int) -> None:
    """Every plan on every line, where stages hold whole numbers of layers that all take the same."""
    check(alike(mixed(seed, FEW)))


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_checker_of_layers_alike(seed: int) -> None:
    """The checker proves the optimum of more layers on more devices, and refutes a tick more by a plan as good."""
    problem = alike(mixed(seed, MANY))
    result = solve(problem)
    if result.objective_ticks is None:
        assert result.status is Status.INFEASIBLE
    else:
        assert claimed(problem, result.objective_ticks).holds
        assert refuted_by(problem, result.objective_ticks + 1) == result.objective_ticks


@pytest.mark.parametrize("seed", seeds(60, 400))
def test_plans(seed: int) -> None:
    """Judge and reference price any plan alike, on lines in any order; parts of loads and memory add up."""
    problem = mixed(seed) if seed % 2 else mixed_places(seed)
    plan = idle_plan(seed, problem)
    if plan is None:
        return
    verdict = evaluate(problem, plan)
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    objective, figures = oracle.price(problem, plan, rounding)
    shown = f"{show_problem(problem)}\n{show_plan(plan)}\n{verdict}"
    assert not {each.rule for each in verdict.violations} & {"placement", "devices", "block", "nesting"}, shown
    if not rounding.doubtful:
        assert [stage.load for stage in verdict.stages] == [each.load for each in figures], shown
        assert [stage.sync for stage in verdict.stages] == [each.sync for each in figures], shown
        assert verdict.objective_ticks == objective, shown
    for stage, parts in zip(verdict.stages, load_parts(problem, plan, verdict), strict=True):
        assert parts.total == stage.load, shown
    for stage, held in zip(verdict.stages, memory_parts(problem, plan, verdict), strict=True):
        assert held.total == stage.memory, shown
    assert pipeline_of(problem, plan, verdict).stages


def test_optima_are_of_all_kinds() -> None:
    """Optima above stand on one class or the other, on both in one stage, and begin with either."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        problem = mixed(seed, FEW)
        plan = solve(problem).plan
        if plan is None or not problem.cluster.classes:
            continue
        classes = [stage.classes for stage in evaluate(problem, plan).stages]
        seen["turned"] += bool(plan.line.order)
        seen["one class"] += len(frozenset.union(*classes)) == 1
        seen["both in a stage"] += any(len(each) > 1 for each in classes)
        seen["both in a pipeline"] += len(set(classes)) > 1
    assert all(seen[kind] >= 10 for kind in ("turned", "one class", "both in a stage", "both in a pipeline")), seen


@pytest.mark.parametrize("seed", range(0, 120, 2))
def test_classes_alike_are_one(seed: int) -> None:
    """Two classes with the same figures have the optimum of one."""
    problem = mixed(seed, FEW)
    alike = tuple(
        replace(each, hbm_bytes=problem.cluster.hbm_bytes, step_s_per_byte=None) for each in problem.cluster.classes
    )
    one = {variant: replace(graph, others=()) for variant, graph in problem.graphs.items()}
    two = {
        variant: replace(graph, others=tuple((each.name, graph.layers) for each in alike))
        for variant, graph in problem.graphs.items()
    }
    plain = replace(problem, graphs=one, cluster=replace(problem.cluster, classes=(), own_class=""))
    both = replace(problem, graphs=two, cluster=replace(problem.cluster, classes=alike))
    found, again = solve(plain), solve(both)
    assert found.objective_ticks is None or again.objective_ticks is not None
    if found.objective_ticks is not None and again.objective_ticks is not None:
        assert again.objective_ticks <= found.objective_ticks  # there are more lines on which it may stand
        same = replace(both, cluster=replace(both.cluster, classes=()), graphs=one) if not alike else both
        assert evaluate(same, found.plan or Plan(ONE, 1, 1, ())).objective_ticks == found.objective_ticks


@pytest.mark.parametrize("seed", range(1, 120, 2))
def test_a_faster_class_is_never_worse(seed: int) -> None:
    """Where some devices take half the time for everything, no optimum takes longer, but for what is rounded."""
    problem = mixed(seed, FEW)
    if not problem.cluster.classes:
        return
    name = problem.cluster.classes[0].name
    faster = {variant: _halved(graph, name) for variant, graph in problem.graphs.items()}
    usual, quick = solve(problem), solve(replace(problem, graphs=faster))
    if usual.objective_s is not None:
        assert quick.objective_s is not None
        assert quick.objective_s <= usual.objective_s * (1 + 1e-9)


def _halved(graph: LayerGraph, name: str) -> LayerGraph:
    def half(layer: Layer) -> Layer:
        again = tuple(replace(each, repeated_s=each.repeated_s / 2) for each in layer.recomputed)
        return replace(layer, forward_s=layer.forward_s / 2, backward_s=layer.backward_s / 2, recomputed=again)

    others = tuple((one, tuple(map(half, each)) if one == name else each) for one, each in graph.others)
    return replace(graph, others=others)


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_bounds_are_below_the_optimum(seed: int) -> None:
    """No bound of an outer choice, or of one of its places, is above the best plan there."""
    problem = mixed(seed, LARGER)
    tables = Tables.of(problem)
    for each in tables.grouped:
        bounds = SumBounds(each)
        for ranges in sum_ranges(bounds):
            for row in range(0, len(ranges), 1 + len(ranges) // 8):
                choices = sum_choices(bounds, ranges[row])
                for at in range(0, len(choices), 1 + len(choices) // 3):
                    _bounds_hold(tables, each, choices, at)


def _bounds_hold(all_tables: Tables, tables: GroupedTables, choices: SumChoices, row: int) -> None:
    alone, choice = Incumbent(), choices[row].single
    assert choice is not None
    for each in SumSearch(tables, Watch(None, None, Incumbent())).prepare(choice):
        own = Incumbent()
        replace(each, engine=SumSearch(tables, Watch(None, None, own))).settle()
        assert not own.found or each.bound <= own.objective
        alone.objective = min(alone.objective, own.objective if own.found else alone.objective)
    if alone.objective < NEVER:
        assert choices.bounds[row] <= alone.objective
        assert least_of_variant(all_tables, tables.variant) <= alone.objective
        for rival in (NEVER, alone.objective + 1):
            assert SumBounds(tables).filled(choices[row], rival) <= alone.objective


@pytest.mark.parametrize(("stages", "replicas"), [(2, 4), (4, 2)])
def test_classes_in_turns(stages: int, replicas: int) -> None:
    """Blocks that are far apart on a line may be neighbours on the network; no bound may say otherwise."""
    layers = tuple(Layer(at, 0.001, 0.001, 10**6, 0) for at in range(4))
    edges = tuple(Edge(at, at + 1, 10**6) for at in range(3))
    graph = LayerGraph(layers, edges, others=(("fast", layers),))
    levels = Level(4, 1e12, 0.0), Level(2, 1e6, 0.0)
    fast = DeviceClass("fast", ((0, 2), (4, 6)), 1e9)
    cluster = Cluster(8, 1e9, levels, own_class="slow", classes=(fast,))
    wanted = Choices(zero=frozenset({0}), replicas=frozenset({replicas}), stages=frozenset({stages}))
    problem = Problem("turns", {ONE: graph}, cluster, Training(2 * replicas), wanted, DEFAULT)
    check(problem)
    tables = Tables.of(problem)
    bounds = SumBounds(tables.grouped[0])
    for ranges in sum_ranges(bounds):
        for row in range(len(ranges)):
            _bounds_hold(tables, tables.grouped[0], sum_choices(bounds, ranges[row]), 0)


def chain(slow_s: float, fast_s: float, layers: int = 6) -> LayerGraph:
    """Return equal layers, which take so long forward on either class, and twice that backward."""
    made = [[Layer(at, each, 2 * each, 1000, 10) for at in range(layers)] for each in (slow_s, fast_s)]
    edges = tuple(Edge(at, at + 1, 0) for at in range(layers - 1))
    return LayerGraph(tuple(made[0]), edges, others=(("fast", tuple(made[1])),))


def two_classes(fast: tuple[int, int] = (2, 4), devices: int = 4, memory: float = 1e9) -> Cluster:
    """Return pairs of devices, some of which are fast."""
    levels = (Level(2, 1e9, 0.0), Level(devices // 2, 1e9, 0.0))
    return Cluster(devices, 1e9, levels, own_class="slow", classes=(DeviceClass("fast", (fast,), memory),))


def posed(graph: LayerGraph, cluster: Cluster, **choices: object) -> Problem:
    """Return a problem with many microbatches and no sharding."""
    wanted = Choices(zero=frozenset({0}), **choices)  # type: ignore[arg-type]
    return Problem("two classes", {ONE: graph}, cluster, Training(24), wanted, DEFAULT)


def test_by_hand() -> None:
    """Layers are shared by speed: of six equal ones, two go to the slow device and four to the one twice as fast."""
    problem = posed(chain(0.002, 0.001), two_classes(), stages=frozenset({2}), replicas=frozenset({2}))
    result = check(problem)
    assert result.plan is not None
    assert sorted(len(stage.layers) for stage in result.plan.stages) == [2, 4]
    assert result.objective_s == pytest.approx(0.012 + 0.012 + 11 * 0.012, rel=1e-4)
    judged = zip(result.plan.stages, evaluate(problem, result.plan).stages, strict=True)
    assert {len(stage.layers): set(each.classes) for stage, each in judged} == {2: {"slow"}, 4: {"fast"}}


def test_memory_turns_the_line() -> None:
    """The first stage holds the most microbatches: it goes where there is memory, wherever that is on the line."""
    layers = tuple(Layer(at, 0.001, 0.002, 0, 100) for at in range(4))
    graph = LayerGraph(layers, tuple(Edge(at, at + 1, 0) for at in range(3)), others=(("fast", layers),))
    cluster = replace(two_classes(memory=400), hbm_bytes=200)
    result = check(posed(graph, cluster, stages=frozenset({2}), replicas=frozenset({2})))
    assert result.plan is not None
    assert result.plan.line.order == ((2, 4), (0, 2))
    assert [stage.first_device for stage in result.plan.stages] == [2, 0]
    turned = replace(cluster, hbm_bytes=400, classes=(replace(cluster.classes[0], hbm_bytes=200),))
    straight = check(posed(graph, turned, stages=frozenset({2}), replicas=frozenset({2}))).plan
    assert straight is not None
    assert straight.line == EVERY


def test_a_block_on_two_classes_waits() -> None:
    """Layer by layer the slowest device of a block counts, and so does the least memory."""
    layers = Layer(0, 0.001, 0.004, 100, 10), Layer(1, 0.003, 0.002, 100, 10)
    other = Layer(0, 0.002, 0.003, 100, 10), Layer(1, 0.001, 0.001, 100, 10)
    variant = Variant(2)
    graph = LayerGraph(layers, (Edge(0, 1, 0),), others=(("fast", other),))
    cluster = Cluster(2, 1000, (Level(2, 1e9, 0.0),), own_class="slow", classes=(DeviceClass("fast", ((1, 2),), 500),))
    problem = Problem("block", {variant: graph}, cluster, Training(1), preset=DEFAULT)
    result = check(problem)
    assert result.objective_s == pytest.approx(0.002 + 0.003 + 0.004 + 0.002)
    tight = replace(cluster, classes=(replace(cluster.classes[0], hbm_bytes=399),))
    assert solve(replace(problem, cluster=tight)).status is Status.INFEASIBLE
    assert result.plan is not None
    verdict = evaluate(replace(problem, cluster=tight), result.plan)
    assert [each.rule for each in verdict.violations] == ["memory"]
    assert "a device has 399" in verdict.violations[0].message


def test_blends() -> None:
    """Of each time the longest counts, or the shortest for a bound; what hides a collective the other way round."""

    def layer(passes: tuple[float, float], hidden: float, again: float) -> Layer:
        beside = (Collective("all-reduce", 8, "tensor", "forward", hidden),)
        return Layer(0, *passes, 4, 2, collectives=beside, recomputed=(Recomputed("full", again, 1),))

    graph = LayerGraph((layer((1, 4), 0.1, 3),), (), others=(("b", (layer((2, 3), 0.3, 2),)),))
    assert across(graph, {"b"}).layers == graph.others[0][1]
    assert across(graph, {"a"}).layers == across(graph, ()).layers == graph.layers
    assert across(graph, {"a", "b"}).layers == slowest(graph).layers == (layer((2, 4), 0.1, 3),)
    assert fastest(graph).layers == (layer((1, 3), 0.3, 2),)


def test_lines() -> None:
    """Whole blocks follow each other in every order of the classes; what is no block is left out."""
    cluster = Cluster(
        10, 1, (Level(2, 1.0, 0), Level(5, 1.0, 0)), own_class="a", classes=(DeviceClass("b", ((0, 3), (6, 8)), 1),)
    )
    turned = Line((), ((4, 6), (8, 10), (0, 4), (6, 8)))
    assert lines(cluster, 2, ()) == (EVERY, turned, Line((), ((0, 4), (6, 8), (4, 6), (8, 10))))
    assert turned.devices(np.arange(12)).tolist() == [4, 5, 8, 9, 0, 1, 2, 3, 6, 7, 10, 11]
    assert [turned.position(device) for device in (4, 8, 0, 7)] == [0, 2, 4, 9]
    assert lines(cluster, 4, {9})[1:] == (Line(((8, 10),), ((4, 8), (0, 4))),)
    assert class_of(cluster, 2) == "b"
    assert cluster.classes_in(np.array([2, 4]), 2) == {"a", "b"}


def test_orders_that_are_none() -> None:
    """A plan on a line that no order of classes makes breaks rule `placement`, and no other."""
    problem = posed(chain(0.002, 0.001), two_classes(), stages=frozenset({2}))
    stages = (Stage((0, 1), 1, 1), Stage((2, 3, 4, 5), 3, 1))
    plan = Plan(ONE, 1, 2, stages, "replica-major", line=Line((), ((1, 2), (3, 4), (0, 1), (2, 3))))
    violations = evaluate(problem, plan).violations
    assert [each.rule for each in violations] == ["placement"]
    assert "in the order 1 to 1 and 3 to 3" in violations[0].message


def test_side_constraints() -> None:
    """Headroom is of each class's memory, devices are pinned and reserved by number; others are refused."""
    graph = chain(0.002, 0.001)
    problem = posed(graph, two_classes(), stages=frozenset({2}))
    for each in (Pin([2, 3], stage=0), ReservedDevices([2]), MemoryHeadroom(fraction=0.5)):
        wanted = problem.with_constraints(each)
        result = solve(wanted)
        assert result.plan is not None
        assert result.objective_ticks is not None
        assert evaluate(wanted, result.plan).legal
        assert claimed(wanted, result.objective_ticks).holds
    pinned = solve(problem.with_constraints(Pin([2, 3], stage=0))).plan
    assert pinned is not None
    assert pinned.stages[0].first_device in (2, 3)
    with pytest.raises(InvalidProblem, match=r"a device has 4000.* bytes, give fewer"):
        posed(graph, two_classes(memory=4000)).with_constraints(MemoryHeadroom(bytes=5000))
    assert solve(problem.with_constraints(WithinLevel("stage", 0))).plan is not None


def test_bad_clusters() -> None:
    """One line says what is wrong with classes."""
    cluster = two_classes()
    wrong = [
        ({"own_class": ""}, "cluster.class: missing"),
        ({"own_class": "fast"}, "'fast' is there twice"),
        ({"classes": (DeviceClass("fast", ((2, 5),), 1),)}, "a class has device 4"),
        ({"classes": (DeviceClass("fast", ((0, 4),), 1),)}, "no device is left to class 'slow'"),
        ({"classes": tuple(DeviceClass(name, ((0, 1),), 1) for name in "ab")}, "device 0 is of 'a' and of 'b'"),
        ({"classes": tuple(DeviceClass(str(at), ((at, at + 1),), 1) for at in range(4))}, "5 classes"),
    ]
    for changes, message in wrong:
        with pytest.raises(InvalidProblem, match=message):
            replace(cluster, **changes)  # type: ignore[arg-type]
    for ranges in ((), ((3, 3),), ((2, 3), (1, 2))):
        with pytest.raises(InvalidProblem, match="give ranges of devices"):
            DeviceClass("b", ranges, 1)


def test_bad_problems() -> None:
    """Times are due for every class of the cluster and no other, with the bytes of the layers; one preset has them."""
    graph, cluster = chain(0.002, 0.001), two_classes()
    with pytest.raises(InvalidProblem, match="no times of the layers on class 'fast' with"):
        posed(replace(graph, others=()), cluster)
    with pytest.raises(InvalidProblem, match="times on class 'fast', which the cluster does not have"):
        posed(graph, replace(cluster, classes=(), own_class=""))
    with pytest.raises(InvalidProblem, match="under preset 'paper'"):
        posed(graph, cluster).with_preset(PAPER)
    with pytest.raises(InvalidProblem, match="leave it out, or give one class"):
        posed(graph, cluster, stage_tensor=frozenset({1, 2}))
    larger = tuple(replace(layer, parameter_bytes=1) for layer in graph.layers)
    with pytest.raises(InvalidProblem, match="layer 0 on class 'fast' differs in more than times"):
        replace(graph, others=(("fast", larger),))
    with pytest.raises(InvalidProblem, match="class 'fast' has 5 layers"):
        replace(graph, others=(("fast", graph.layers[:5]),))
