"""Graphs with branches: the solver against every way to cut small ones, the judge's rules, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from dag_problems import (
    oracle,
    random_chain_of_towers,
    random_replicated,
    random_split,
    random_tight,
    random_wide,
)

from nest.dag import (
    DNN_PARTITIONING,
    PIPER,
    DagEdge,
    DagLayer,
    DagProblem,
    DagResult,
    DagStage,
    DeviceClass,
    LoadModel,
    Option,
    TooManyDownsets,
    all_downsets,
    judge,
    load_model_named,
    solve_dag,
)
from nest.dag.cuts import cuts_of
from nest.dag.knapsack import Choice, least_time
from nest.dag.load import Load
from nest.dag.split import SplitSearch, lower_bound, misfit
from nest.dag.tables import folded, split_tables
from nest.dag.units import units_of
from nest.downsets import bits, downsets_along, topological_orders
from nest.errors import InvalidPlan, InvalidProblem
from nest.result import Status

TINY = 1e-9


def layer(name: int, time: float = 1, size: int = 1, **rest: object) -> DagLayer:
    """Return a layer that takes the same on both classes of devices."""
    options = {(kind, 1): (Option(kind, time, size),) for kind in ("accelerator", "cpu")}
    return DagLayer(name, options, **rest)  # type: ignore[arg-type]


def split(
    layers: list[DagLayer], edges: list[tuple[int, int, float]], count: int = 2, memory: float | None = None
) -> DagProblem:
    """Return a problem with accelerators only."""
    classes = (DeviceClass("accelerator", count, memory), DeviceClass("cpu", 0, None, False))
    return DagProblem("small", DNN_PARTITIONING, tuple(layers), tuple(DagEdge(*edge) for edge in edges), classes)


def stages_of(*layers: tuple[int, ...]) -> tuple[DagStage, ...]:
    """Return a plan with an accelerator for each tuple of layers."""
    return tuple(DagStage(names, "accelerator", ("accelerator",) * len(names)) for names in layers)


def check_against_oracle(problem: DagProblem) -> DagResult:
    """Assert that the solver finds the optimum, or that there is no plan."""
    result, best = solve_dag(problem), oracle(problem)
    if best is None:
        assert (result.status, result.value) == (Status.INFEASIBLE, None), problem.name
        assert result.reason
    else:
        assert result.status is Status.OPTIMAL, (problem.name, result.reason)
        assert result.bound == result.objective
        assert result.value == pytest.approx(float(best), rel=TINY, abs=TINY), problem.name
    return result


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_split_is_the_best_of_all_ways(first: int) -> None:
    """Colours, a backward pass, two classes of devices, and memory that binds or not, over every chain of stages."""
    results = [check_against_oracle(random_split(seed)) for seed in range(first, first + 100)]
    assert Counter(result.status for result in results).keys() == {Status.OPTIMAL, Status.INFEASIBLE}
    assert max(len(result.stages) for result in results) >= 4


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_replicated_is_the_best_of_all_ways(first: int) -> None:
    """Replicas, widths and options of layers, exchanges that depend on the option, over every chain of stages."""
    results = [check_against_oracle(random_replicated(seed)) for seed in range(first, first + 100)]
    shapes = {(stage.width, stage.replicas) for result in results for stage in result.stages}
    assert {(1, 1), (2, 1), (1, 2)} <= shapes


def test_many_options_of_a_layer() -> None:
    """Layers with up to four options, of which a relaxation takes parts."""
    for seed in range(1_000_000, 1_000_040):
        check_against_oracle(random_replicated(seed, options=4))


@pytest.mark.parametrize("make", [random_tight, random_wide])
def test_memory_that_decides(make: Callable[[int], DagProblem]) -> None:
    """Stages that have to take slow options, and those that leave room in memory to the stages before them."""
    for seed in range(45):
        check_against_oracle(make(seed))


def test_fewer_replicas_can_be_worth_more_devices() -> None:
    """The last layer takes two replicas, or one of width 4: then the first has fewer microbatches in flight."""
    layers = (
        DagLayer(0, {("device", 1): (Option("only", 6, 0, 5, 100),)}),
        DagLayer(1, {("device", 1): (Option("only", 12),), ("device", 4): (Option("only", 6),)}),
    )
    problem = DagProblem("wide", PIPER, layers, (DagEdge(0, 1, 0),), (DeviceClass("device", 5, 10),), 1.0, 4)
    result = check_against_oracle(problem)
    assert [(stage.width, stage.replicas) for stage in result.stages] == [(1, 1), (4, 1)]


@pytest.mark.parametrize("make", [random_split, random_chain_of_towers])
def test_search_of_all_downsets_alone(make: Callable[[int], DagProblem]) -> None:
    """Without the plans of topological orders, which often are the best of such small graphs."""
    for seed in range(100):
        problem = make(seed)
        tables, best = split_tables(problem), oracle(problem)
        if misfit(tables):
            assert best is None
            continue
        lower = lower_bound(tables)
        search = SplitSearch(tables, all_downsets(tables.before), lambda: None)
        chain = search.best(lower, 10**18)
        assert (chain is None) == (best is None)
        assert best is None or lower <= float(best) * tables.load.time.ticks_per_s + 1
        if chain is not None and best is not None:
            assert tables.load.value(chain.value) == pytest.approx(float(best), rel=TINY, abs=TINY)
            assert search.best(lower, chain.value + 1) == chain, "a cap just above the optimum rules it out"
            assert search.best(lower, chain.value) is None


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_split, random_replicated, random_tight, random_wide])
def test_thousands_of_ways(make: Callable[[int], DagProblem]) -> None:
    """The same, over more graphs."""
    for seed in range(10_000, 14_000):
        check_against_oracle(make(seed))


def test_edges_against_the_order_of_stages() -> None:
    """A backward edge leads to an earlier stage: both of its ends pay for it, as for any other.

    Once, replicated stages paid only where the source is in no later stage, and a plan was claimed that costs more.
    """
    option = Option("only", 4, parameter_bytes=0, sync_in={}, sync_out={})
    layers = tuple(DagLayer(at, {("device", 1): (option,)}, backward=True) for at in range(3))
    edges = (DagEdge(0, 1, 10), DagEdge(1, 2, 1))
    problem = DagProblem("backward", PIPER, layers, edges, (DeviceClass("device", 2, None),), 1.0, 2)
    result = check_against_oracle(problem)
    assert [stage.layers for stage in result.stages] in ([(0, 1, 2)], [(2,), (0, 1)])


def test_bound_and_value_enclose_the_optimum_where_downsets_are_too_many() -> None:
    """With a limit, the answer is feasible and says so; the bound is never above the optimum, the value never below."""
    wider = 0
    for make in (random_split, random_replicated):
        for seed in range(60):
            problem = make(seed)
            best, result = oracle(problem), solve_dag(problem, limit=3)
            if result.complete:
                continue
            wider += 1
            assert result.status in {Status.OPTIMAL, Status.FEASIBLE, Status.UNKNOWN, Status.INFEASIBLE}
            if result.status is Status.OPTIMAL:
                assert best is not None
                assert result.value == pytest.approx(float(best), rel=TINY)
                continue
            assert "more than 3 downsets" in result.reason
            assert "topological orders" in result.reason
            assert best is None or result.bound_value is None or result.bound_value <= float(best) + TINY
            assert result.value is None or (best is not None and result.value >= float(best) - TINY)
            assert result.status is not Status.INFEASIBLE or best is None
    assert wider > 40


def test_too_many_downsets_are_refused() -> None:
    """The error says how many were found and how many are allowed; at the limit there is none."""
    with pytest.raises(TooManyDownsets, match="more than 1023 downsets: 1024 were found") as error:
        all_downsets([0] * 10, limit=1023)
    assert (error.value.found, error.value.limit) == (1024, 1023)
    assert len(all_downsets([0] * 10, limit=1024).sets) == 1024


def test_downsets_of_a_diamond() -> None:
    """Each holds what is before its units, by size; bits and members say the same."""
    family = all_downsets([0b0, 0b1, 0b1, 0b110])
    assert family.sets == (0b0, 0b1, 0b11, 0b101, 0b111, 0b1111)
    assert [sum(1 << at for at in np.flatnonzero(row)) for row in family.members] == list(family.sets)
    assert bits([1 << 64], 65).tolist() == [[0, 1]]


def test_topological_orders_are_orders() -> None:
    """Their beginnings are downsets: some of all, the empty one and the whole among them."""
    draw = random.Random(7)
    for _ in range(50):
        before = [sum(1 << earlier for earlier in range(at) if draw.random() < 0.3) for at in range(9)]
        family = downsets_along(topological_orders(before), 9)
        assert {0, 2**9 - 1} <= set(family.sets) <= set(all_downsets(before).sets)


def test_cuts_are_what_the_definition_says() -> None:
    """Of every pair of downsets: a tensor is paid for if the stage holds some but not all of its units."""
    draw = random.Random(3)
    for _ in range(30):
        before = [sum(1 << earlier for earlier in range(at) if draw.random() < 0.3) for at in range(6)]
        tensors = tuple((draw.randrange(1, 2**6), draw.randrange(1, 9)) for _ in range(8))
        family = all_downsets(before)
        cuts, everything = cuts_of(family, tensors), np.arange(len(family.sets))
        certain = cuts.certain(everything, everything)
        for one, other in product(everything.tolist(), repeat=2):
            small, large = family.sets[one], family.sets[other]
            if small & ~large or small == large:
                continue
            stage = large & ~small
            expected = sum(ticks for units, ticks in tensors if units & stage and units & ~stage)
            pair = np.array([one]), np.array([other])
            assert certain[one, other] + cuts.rest(*pair)[0] == expected


def test_a_tensor_is_paid_for_once() -> None:
    """A layer with two readers elsewhere pays once, and each reader's stage once."""
    problem = split([layer(0), layer(1), layer(2)], [(0, 1, 5), (0, 2, 5)], count=3)
    loads = [price.load for price in judge(problem, stages_of((0,), (1,), (2,))).prices]
    assert [Load(problem).value(load) for load in loads] == [6, 6, 6]
    assert Load(problem).value(judge(problem, stages_of((0,), (1, 2))).objective) == 7


def test_orphans_order_stages_the_other_way() -> None:
    """Backward layers without a forward layer of their colour: the one that is read comes in no earlier stage."""
    orphans = [layer(1, backward=True), layer(2, backward=True)]
    problem = split([layer(0), *orphans], [(0, 1, 0), (1, 2, 0)])
    assert judge(problem, stages_of((2,), (0, 1))).violations == ()
    assert judge(problem, stages_of((0, 1), (2,))).violations == ("layer 2 is in a later stage than 1",)
    anchored = replace(
        problem, layers=(layer(0, colour=7), layer(1, backward=True, colour=7), layer(2, backward=True, colour=7))
    )
    assert len(units_of(anchored)) == 1
    assert anchored.arcs == ()


def test_colours_close_cycles() -> None:
    """Layers between two of one colour share their stage, although no colour says so."""
    layers = [layer(0, colour=1), layer(1), layer(2, colour=1), layer(3)]
    units = units_of(split(layers, [(0, 1, 1), (1, 2, 1), (2, 3, 1)]))
    assert [unit.layers for unit in units] == [(0, 1, 2), (3,)]


def test_leaves_are_folded_only_where_memory_allows() -> None:
    """A weight that takes no time, but memory, may have to stay on another device than its only reader.

    Whoever moves it there regardless, as the original does, finds no plan.
    """
    problem = split([layer(0, 0, 4), layer(1, 2, 4)], [(0, 1, 1)], count=2, memory=6)
    fold = folded(split_tables(problem))
    assert len(fold.kept.units) == 1
    assert (fold.exact, fold.kept.memory.tolist(), fold.relaxed.memory.tolist()) == (False, [8], [4])
    result = check_against_oracle(problem)
    assert [stage.layers for stage in result.stages] == [(0,), (1,)]
    roomy = split([layer(0, 0, 4), layer(1, 2, 4)], [(0, 1, 1)], count=2, memory=8)
    assert folded(split_tables(roomy)).exact
    assert check_against_oracle(roomy).value == 2


def test_infeasible_says_why() -> None:
    """A layer that fits nowhere is named; else what all of them take."""
    assert (
        "hold the layers that must share one: 0, 9 bytes" in solve_dag(split([layer(0, size=9)], [], memory=5)).reason
    )
    result = solve_dag(split([layer(at, size=4) for at in range(3)], [], count=2, memory=5))
    assert "its layers take 12 bytes, and there are 2 of class accelerator" in result.reason
    device = DeviceClass("device", 2, 5)
    big = DagLayer(0, {("device", 1): (Option("only", 1, 4, 2),)})
    assert (
        "layer 0 takes 6 bytes at least, a device has 5"
        in solve_dag(DagProblem("big", PIPER, (big,), (), (device,))).reason
    )
    wide = DagLayer(0, {("device", 4): (Option("only", 1),)})
    assert (
        "layer 0 has no options at a width of at most 2 devices"
        in solve_dag(DagProblem("wide", PIPER, (wide,), (), (device,))).reason
    )


def test_time_limit_ends_a_search() -> None:
    """What is known by then is answered: a bound, and no claim beyond it."""
    draw = random.Random(5)
    layers = [layer(at, draw.randint(1, 99)) for at in range(14)]
    result = solve_dag(split(layers, [(at, at + 1, 3) for at in range(0, 13, 2)], count=4), time_limit_s=1e-6)
    assert result.status is Status.UNKNOWN
    assert "time limit" in result.reason
    assert result.bound_value is not None
    assert result.bound_value >= max(sum(each.options["cpu", 1][0].time for each in layers) / 4, 1) - 1


def brute_force(layers: list[list[Choice]], capacity: int) -> int | None:
    """Return the least time over all choices."""
    fitting = [
        sum(choice[0] for choice in chosen)
        for chosen in product(*layers)
        if sum(choice[1] for choice in chosen) <= capacity
    ]
    return min(fitting, default=None)


def test_knapsack_is_exact() -> None:
    """Against all choices, with a cap on the time at and just below the optimum."""
    draw = random.Random(1)
    for _ in range(300):
        layers = [
            [(draw.randint(0, 20), draw.randint(0, 20), at) for at in range(draw.randint(1, 4))]
            for _ in range(draw.randint(1, 5))
        ]
        capacity = draw.randint(0, 60)
        best = brute_force(layers, capacity)
        taken = least_time(layers, capacity, 10**9)
        if best is None:
            assert taken is None
            continue
        assert taken is not None
        assert taken.time == best == sum(options[at][0] for options, at in zip(layers, taken.options, strict=True))
        assert sum(options[at][1] for options, at in zip(layers, taken.options, strict=True)) <= capacity
        assert least_time(layers, capacity, best) == taken
        assert least_time(layers, capacity, best - 1) is None


def test_knapsack_is_not_greedy() -> None:
    """Options taken by time for a byte, as Piper takes them, need both steps here; one is enough."""
    cheap, right = [(0, 10, 0), (1, 8, 1)], [(0, 10, 0), (3, 5, 1)]
    taken = least_time([cheap, right], 15, 100)
    assert taken is not None
    assert (taken.time, taken.options) == (3, (0, 1))


PLANS = {
    "layer 2 is in 0 stages": stages_of((0, 1)),
    "layer 1 is in 2 stages": stages_of((0, 1), (1, 2)),
    "layer 0 is in a later stage than 1": stages_of((1,), (0, 2)),
    "3 devices of class accelerator, of which there are 2": stages_of((0,), (1,), (2,)),
    "stage 0 needs 3 bytes, a device has 2": stages_of((0, 1, 2)),
    "stage 0 has 2 replicas of width 1": (replace(stages_of((0,))[0], replicas=2), *stages_of((1, 2))),
    "colour 5 is in stages": stages_of((0, 1), (2,)),
}


@pytest.mark.parametrize("message", PLANS)
def test_judge_names_what_is_broken(message: str) -> None:
    """Each rule has a plan that breaks it."""
    colour = 5 if message.startswith("colour") else None
    layers = [layer(0), layer(1, colour=colour), layer(2, colour=colour)]
    verdict = judge(split(layers, [(0, 1, 1), (1, 2, 1)], memory=2), PLANS[message])
    assert any(violation.startswith(message) for violation in verdict.violations), verdict.violations


def test_judge_counts_replicas_of_all_stages() -> None:
    """More replicas in all than microbatches, and a number of replicas that does not divide them."""
    layers = tuple(DagLayer(at, {("device", 1): (Option("only", 1),)}) for at in range(2))
    problem = DagProblem("two", PIPER, layers, (DagEdge(0, 1, 0),), (DeviceClass("device", 9, None),), 1.0, 4)
    plan = tuple(DagStage((at,), "device", ("only",), 1, replicas) for at, replicas in ((0, 4), (1, 3)))
    violations = judge(problem, plan).violations
    assert violations == ("stage 1 has 3 replicas of width 1", "more replicas in all than the 4 microbatches")


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (DagStage((0,), "tpu", ("tpu",)), "'tpu' is no class of devices"),
        (DagStage((9,), "cpu", ("cpu",)), "there is no layer 9"),
        (DagStage((0,), "cpu", ("fast",)), "layer 0 has no option 'fast' at width 1 on cpu"),
    ],
)
def test_what_is_no_plan(stage: DagStage, message: str) -> None:
    """Names that the problem does not have."""
    with pytest.raises(InvalidPlan, match=message):
        judge(split([layer(0)], []), (stage,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": (), "options": ()}, "0 layers with 0 options"),
        ({"options": ()}, "1 layers with 0 options"),
        ({"replicas": 0}, "0 replicas of width 1"),
    ],
)
def test_stages_that_make_no_sense(change: dict[str, object], message: str) -> None:
    """They are found when they are built."""
    with pytest.raises(InvalidPlan, match=message):
        replace(stages_of((0,))[0], **change)  # type: ignore[arg-type]


def test_piper_by_hand() -> None:
    """One stage of two layers on three replicas in front of another: every term of the load, and memory in flight."""
    one = Option("one", 6, 10, 2, 9, {}, {2: 1})
    layers = (
        DagLayer(0, {("device", 1): (one,)}),
        DagLayer(1, {("device", 1): (Option("two", 3, 0, 1, 0, {}, {}),)}),
        DagLayer(2, {("device", 1): (Option("three", 5, 0, 0, 0, {0: 2}, {}),)}),
    )
    problem = DagProblem("hand", PIPER, layers, (DagEdge(0, 2, 4),), (DeviceClass("device", 4, 26),), 2.0, 6)
    plan = (
        DagStage((0, 1), "device", ("one", "two"), 1, 3),
        DagStage((2,), "device", ("three",), 1, 1),
    )
    verdict, load = judge(problem, plan), Load(problem)
    first = (6 + 3 + 2 * (4 + 1) / 2) / 3 + 4 * 2 * 9 / (3 * 6 * 2)
    second = 5 + 2 * (4 + 2) / 2
    assert [load.value(price.load) for price in verdict.prices] == pytest.approx([first, second])
    assert [price.memory for price in verdict.prices] == [10 + 2 * 2 + 1 * 2, 0]
    assert verdict.violations == ()


def test_sizes_with_many_decimals_can_be_added() -> None:
    """Sums of measurements as files hold them neither overflow nor lose what matters."""
    options = {("accelerator", 1): (Option("accelerator", 1, 1156055.0399999998),)}
    problem = split([DagLayer(0, options), DagLayer(1, options)], [(0, 1, 1)], memory=2312110.08)
    assert solve_dag(problem).status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": ()}, "layers: the graph is empty"),
        ({"layers": (layer(0), layer(0))}, "layers: id 0 is given twice"),
        ({"edges": (DagEdge(0, 7, 1),)}, r"edges\[0\].target: there is no layer 7"),
        ({"edges": (DagEdge(0, 1, -1),)}, r"edges\[0\].cost: -1; give a finite number from 0"),
        ({"edges": (DagEdge(0, 1, 1), DagEdge(1, 0, 1))}, "edges: there is a cycle"),
        ({"edges": (DagEdge(0, 1, 1), DagEdge(0, 2, 2))}, r"edges\[1\].cost: 2, but another edge of 0 has 1"),
        ({"layers": (layer(0, backward=True), layer(1), layer(2))}, "0 is backward, 1 is not"),
        ({"layers": (layer(0, time=float("inf")), layer(1), layer(2))}, "a negative or infinite number"),
        ({"classes": ()}, "classes: names"),
        ({"classes": (DeviceClass("cpu", 0, None),)}, "there is no device"),
        ({"classes": (DeviceClass("cpu", 1, 0),)}, "1 devices of 0 bytes"),
        ({"classes": (DeviceClass("cpu", 1, None),)}, "no class of devices or no width"),
        ({"bandwidth": 0.0}, "bandwidth: 0.0"),
        ({"microbatches": 0}, "microbatches: 0"),
        ({"preset": PIPER}, "classes: 2 of them"),
        (
            {"layers": (DagLayer(0, {("cpu", 1): (Option("a", 1), Option("b", 2))}), layer(1), layer(2))},
            "more than preset dnn-partitioning has",
        ),
    ],
)
def test_problems_that_make_no_sense(change: dict[str, object], message: str) -> None:
    """Each is one line that says where, what, and what would be right."""
    good = split([layer(0), layer(1), layer(2)], [(0, 1, 1)])
    with pytest.raises(InvalidProblem, match=message):
        replace(good, **change)  # type: ignore[arg-type]


def test_load_models() -> None:
    """They have names; combinations that no solver covers are refused."""
    assert load_model_named("piper") is PIPER
    with pytest.raises(InvalidProblem, match="choose one of dnn-partitioning, piper"):
        load_model_named("pipedream")
    with pytest.raises(InvalidProblem, match="stages with replicas pay for each edge"):
        LoadModel("mine", "each edge", 1, replicas=False, resync_factor=0, source="")


def test_parallel_towers() -> None:
    """Two towers of equal layers on two devices: each device takes one, though layers are numbered across."""
    layers = [layer(at) for at in range(8)]
    edges = [(at, at + 2, 1.0) for at in range(6)]
    result = solve_dag(split(layers, edges))
    assert sorted(stage.layers for stage in result.stages) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert result.value == 4
