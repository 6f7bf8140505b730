"""The search under preset `default` by its parts: bounds, times of groups, deadlines, reasons, scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import oracle_default as oracle
import pytest
from pace import is_within
from random_default import SMALL, Size, random_problem
from seeds import seeds

from nest.cluster import Cluster, Level
from nest.cost.exchanges import Exchanges, axis_group, axis_starts
from nest.cost.groups import spread
from nest.cost.scale import scale_of
from nest.dp.incumbent import Incumbent
from nest.dp.sum_outer import SumBounds, SumChoice, SumRange, least_of_variant, sum_choices, sum_ranges
from nest.dp.sum_search import SumSearch
from nest.dp.watch import Watch
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.explain import explain
from nest.graph import CollectiveKind, Edge, Layer, LayerGraph
from nest.presets import DEFAULT, PAPER, Preset
from nest.problem import Choices, Copies, Form, Problem, Training, Variant
from nest.result import Status
from nest.solve import solve
from nest.tables import GroupedTables, Tables
from nest.tables.exchanged import exchanged_anywhere, exchanged_at
from nest.units import EXACT_LIMIT, NEVER, RELATIVE_ERROR

NARROW = Variant(1)
WIDE = Size(layers=6, devices=40, levels=4, variants=2, batch=40)
KINDS: tuple[CollectiveKind, ...] = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring")


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_bounds_are_below_the_optimum(seed: int) -> None:
    """No bound of an outer choice exceeds the best plan of this choice, found without anything to beat."""
    problem = random_problem(seed, WIDE)
    table = Tables.of(problem)
    for tables in table.grouped:
        bounds, found = SumBounds(tables), list(single_choices(tables))
        for of_range, within, of_single, choice in found[:: 1 + len(found) // 25]:
            alone = Incumbent()
            for each in SumSearch(tables, Watch(None, None, alone)).prepare(choice):
                own = Incumbent()
                replace(each, engine=SumSearch(tables, Watch(None, None, own))).settle()
                assert not own.found or each.bound <= own.objective
                each.settle()
            if alone.found:
                assert of_range <= alone.objective
                assert of_single <= alone.objective
                assert least_of_variant(table, tables.variant) <= alone.objective
                for rival in (NEVER, alone.objective + 1):
                    assert bounds.filled(within, rival) <= alone.objective
                    assert SumBounds(tables).filled(alone_in(choice), rival) <= alone.objective


def alone_in(choice: SumChoice) -> SumRange:
    """Return a range of a single outer choice."""
    return SumRange(choice.stages, choice.replicas, choice.replicas, choice.arrangement, choice.further)


def single_choices(tables: GroupedTables) -> Iterator[tuple[int, SumRange, int, SumChoice]]:
    """Yield each range of outer choices and each choice in it, both behind their bounds."""
    bounds = SumBounds(tables)
    for ranges in sum_ranges(bounds):
        for row in range(len(ranges)):
            choices = sum_choices(bounds, ranges[row])
            for at in range(len(choices)):
                choice = choices[at].single
                assert choice is not None
                yield int(ranges.bounds[row]), ranges[row], int(choices.bounds[at]), choice


@pytest.mark.parametrize("seed", range(40))
def test_ranges_hold_every_choice_once(seed: int) -> None:
    """What devices, choices and memory leave of all numbers of stages and replicas, counted one by one."""
    for tables in Tables.of(random_problem(seed, WIDE)).grouped:
        bounds, choices, blocks = SumBounds(tables), tables.problem.choices, tables.devices // tables.width
        expected = set()
        for replicas in range(1, min(blocks, tables.microbatches) + 1):
            sharing = tables.most_sharing(np.array([replicas]))
            fewest = int(bounds.fewest_stages(np.array([replicas]), sharing)[0])
            for stages in range(fewest, min(tables.layers, blocks // replicas) + 1):
                if replicas in (choices.replicas or {replicas}) and stages in (choices.stages or {stages}):
                    expected.add((stages, replicas))
        found = [each for *_, each in single_choices(tables)]
        for arrangement in DEFAULT.arrangements:
            pairs = [(each.stages, each.replicas) for each in found if each.arrangement == arrangement]
            outermost = 0 if arrangement == "stage-major" else 1
            least = 1 if arrangement == DEFAULT.arrangements[0] else 2
            assert sorted(pairs) == sorted(pair for pair in expected if pair[outermost] >= least)
        for choice in found:
            assert choice.further == -(-tables.microbatches // choice.replicas) - 1


@pytest.mark.parametrize("seed", range(60))
def test_exchanges_anywhere_are_no_more_than_at_any_place(seed: int) -> None:
    """What holders exchange once per iteration at least, of one choice and of its range, in each of its places."""
    problem = random_problem(seed, WIDE)
    for tables in Tables.of(problem).grouped:
        for _, within, _, choice in list(single_choices(tables))[::3]:
            options = tables.options(choice.replicas, choice.stages)
            if not options:
                continue
            types = tuple({option.zero for option in options})
            stages, by_stage = np.array([choice.stages]), choice.arrangement == "stage-major"
            ends = [(choice.replicas, choice.replicas), (within.fewest, within.most)]
            least = [
                float(exchanged_anywhere(tables, pair, stages, types, by_stage=by_stage).sync[0])
                for pair in ((np.array([low]), np.array([high])) for low, high in ends)
            ]
            for placing in tables.placings(choice.stages, choice.replicas, choice.arrangement):
                holders = {site.holders for site in tables.sites(choice.stages, choice.replicas, placing)}
                taken = float(exchanged_at(tables, holders, options).sync[0])
                assert max(least) * (1 - 1e-12) <= taken + 8


def cut_problem(seed: int) -> Problem:
    """Return a chain of layers whose cuts cost as much as they do, for one replica of a few stages."""
    rng = np.random.default_rng(seed)
    count, stages = int(rng.integers(6, 11)), int(rng.integers(2, 5))
    layers = tuple(Layer(at, float(rng.integers(1, 12)), 0.0, 0, 0) for at in range(count))
    edges = tuple(Edge(at, at + 1, int(rng.integers(0, 12))) for at in range(count - 1))
    choices = Choices(stages=frozenset({stages}), replicas=frozenset({1}))
    cluster = Cluster(stages, 1, (Level(stages, 1.0, 0.0),))
    training = Training(int(rng.integers(2, 7)))
    return Problem("cuts", {NARROW: LayerGraph(layers, edges)}, cluster, training, choices, DEFAULT)


def prices(problem: Problem) -> Iterator[tuple[int, int]]:
    """Yield sum and largest of the loads, in seconds, of every cut into stages."""
    graph = problem.graphs[NARROW]
    stages = problem.cluster.devices
    for inner in combinations(range(1, len(graph)), stages - 1):
        cuts = [0, *inner, len(graph)]
        sent = [0, *(int(graph.edges[cut - 1].bytes) for cut in inner), 0]
        work = [int(sum(layer.forward_s for layer in graph.layers[a:b])) for a, b in pairwise(cuts)]
        loads = [each + before + after for each, before, after in zip(work, sent[:-1], sent[1:], strict=True)]
        yield sum(loads), max(loads)


@pytest.mark.parametrize("seed", seeds(60, 150))
def test_sum_against_largest(seed: int) -> None:
    """The best trade-off of both, of all cuts."""
    problem = cut_problem(seed)
    further = problem.training.microbatches - 1
    best = min(loads + further * largest for loads, largest in prices(problem))
    assert solve(problem).objective_s == best


def test_trade_offs_are_no_extremes() -> None:
    """In some of the problems above neither the least sum nor the least largest load is part of the best plan."""
    between = 0
    for seed in range(150):
        problem = cut_problem(seed)
        further, found = problem.training.microbatches - 1, list(prices(problem))
        best = min(found, key=lambda price: price[0] + further * price[1])
        ends = min(found), min(found, key=lambda price: price[::-1])
        between += all(best[0] + further * best[1] < end[0] + further * end[1] for end in ends)
    assert between >= 10


def settle(tables: GroupedTables, incumbent: Incumbent, choice: SumChoice) -> None:
    """Settle an outer choice in each of its places."""
    for prepared in SumSearch(tables, Watch(None, None, incumbent)).prepare(choice):
        prepared.settle()


@pytest.mark.parametrize("seed", range(40))
def test_settled_alone_or_with_something_to_beat(seed: int) -> None:
    """An outer choice has the same best plan whatever was found before, and none that is not better."""
    tables = Tables.of(random_problem(seed, WIDE)).grouped
    for each in tables[:1]:
        choices = [choice for *_, choice in single_choices(each)]
        for choice in choices[:: 1 + len(choices) // 5]:
            alone = Incumbent()
            settle(each, alone, choice)
            if not alone.found:
                continue
            for value, found in ((alone.objective + 1, True), (alone.objective, False)):
                rival = Incumbent(value)
                settle(each, rival, choice)
                assert rival.found is found
                assert not found or rival.objective == alone.objective


@pytest.mark.parametrize("seed", range(60))
def test_times_of_groups_lie_between_their_extremes(seed: int) -> None:
    """`least_s` and `longest_s` hold for any devices, and `hop_s` is what two devices take."""
    rng = np.random.default_rng(seed)
    fanouts = rng.choice([1, 2, 3, 4], rng.integers(1, 5)).tolist()
    levels = tuple(Level(each, float(rng.choice([1, 7, 50])), float(rng.choice([0, 0.1, 3]))) for each in fanouts)
    cluster = Cluster(int(np.prod(fanouts)), 1, levels)
    exchanges = Exchanges(Problem("", {Variant(1): ONE}, cluster, Training(1), preset=DEFAULT))
    for _ in range(20):
        count = int(rng.integers(1, cluster.devices + 1))
        places = np.sort(rng.choice(cluster.devices, count, replace=False))
        apart = np.array([np.diff(places).min(initial=cluster.devices)])
        size, where = float(rng.integers(0, 1000)), exchanges.spread(places)
        for kind in KINDS:
            taken = float(exchanges.seconds(kind, where, np.array([size]))[0])
            assert taken <= exchanges.longest_s(kind, count, size) * (1 + 1e-12)
            if kind in KINDS[:3]:
                least = exchanges.least_s(kind, np.array([count]), apart, size)[0]
                assert least <= taken * (1 + 1e-12)
    for at, size in enumerate(cluster.group_sizes):
        inner = cluster.group_sizes[at - 1] if at else 1
        if inner < size:
            pair = exchanges.seconds("ring", spread(cluster, [0, inner]), np.array([5.0]))
            assert exchanges.hop_s(at, np.array([5.0])) == pair


ONE = LayerGraph((Layer("a", 1.0, 2.0, 10, 1),), ())


@pytest.mark.parametrize("seed", range(60))
def test_nested_groups_are_alike_everywhere(seed: int) -> None:
    """Groups of a variant that nests are spread alike in every block, which is what tables rely on."""
    problem = random_problem(seed, WIDE)
    exchanges = Exchanges(problem)
    for variant in problem.graphs:
        if problem.unnested(variant) is not None or variant.width > problem.cluster.devices:
            continue
        for axis in ("tensor", "context", "expert"):
            step, count = axis_group(variant, axis)
            starts = axis_starts(Form(variant), axis)
            blocks = range(0, problem.cluster.devices - variant.width + 1, variant.width)
            found = {exchanges.spread(block + start + step * np.arange(count)) for block in blocks for start in starts}
            assert len(found) == 1


@pytest.mark.parametrize("seed", range(30))
def test_deadline(seed: int) -> None:
    """A search that is stopped says so, and its bound holds."""
    problem = random_problem(seed, SMALL)
    whole, stopped = solve(problem), solve(problem, time_limit_s=0.0)
    assert stopped.status in (Status.UNKNOWN, Status.FEASIBLE, Status.INFEASIBLE, Status.OPTIMAL)
    if whole.objective_ticks is not None and stopped.bound_ticks is not None:
        assert stopped.bound_ticks <= whole.objective_ticks


def test_long_search_stops_in_time() -> None:
    """Nothing that takes long forgets the clock."""
    layers = tuple(Layer(at, 0.01 + at % 7 / 1000, 0.02, 10**8 + at % 11, 10**7) for at in range(150))
    edges = tuple(Edge(at, at + 1, 10**6) for at in range(149))
    levels = (Level(8, 1e11, 1e-6), Level(512, 1e10, 1e-5))
    graphs = {Variant(t): LayerGraph(layers, edges) for t in (1, 2, 4, 8)}
    problem = Problem("long", graphs, Cluster(4096, 8 * 10**10, levels), Training(1000), preset=DEFAULT)
    assert is_within(10, lambda: solve(problem, time_limit_s=0.5))


def test_reasons() -> None:
    """What rules every plan out is named: nesting, width, choices, memory of a layer, microbatches in flight."""
    cluster = Cluster(8, 100, (Level(4, 100.0, 0.0), Level(2, 10.0, 0.0)))
    chain = LayerGraph(tuple(Layer(name, 1.0, 2.0, 10, 30) for name in "ab"), (Edge("a", "b", 5),))

    def reason(graph: LayerGraph = chain, variant: Variant = NARROW, **changes: object) -> str:
        problem = Problem("", {variant: graph}, cluster, Training(4), preset=DEFAULT)
        result = solve(replace(problem, **changes))  # type: ignore[arg-type]
        assert result.status is Status.INFEASIBLE
        return result.reason or ""

    assert "groups of 3 devices do not nest with groups of 4" in reason(variant=Variant(3))
    assert "a stage takes 16 devices, the cluster has 8" in reason(variant=Variant(16))
    assert "3 stages are asked for, there are 2 layers" in reason(choices=Choices(stages=frozenset({3})))
    assert "5 replicas are asked for, there are 4 microbatches" in reason(choices=Choices(replicas=frozenset({5})))
    heavy = LayerGraph((Layer("a", 1.0, 2.0, 10, 101),), ())
    assert "the stage that holds layer 'a' needs at least" in reason(heavy)
    full = LayerGraph(tuple(Layer(name, 1.0, 2.0, 0, 60) for name in "ab"), (Edge("a", "b", 5),))
    assert "no cut of the layers fits the " in reason(full, choices=Choices(replicas=frozenset({1})))
    assert "every stage has to shard" in reason(choices=Choices(zero=frozenset({1}), zero_degree=frozenset({7})))
    assert "needs at least" in reason(training=Training(4, overhead_bytes=1000))


@pytest.mark.parametrize("seed", seeds(20, 40))
def test_explanations_hold(seed: int) -> None:
    """Where there is no plan, each change that is said to help does."""
    problem = random_problem(seed, SMALL)
    explanation = explain(problem, time_limit_s=None)
    assert (explanation is None) == (oracle.best(problem, oracle.Rounding(9)).plan is not None)
    for relaxation in () if explanation is None else explanation.relaxations:
        assert solve(relaxation.problem).plan is not None, relaxation.text


@pytest.mark.parametrize("seed", range(60))
def test_rounding_cannot_matter(seed: int) -> None:
    """The price in ticks is the price in seconds to a part in 1e9, and in the common case floats hold it exactly."""
    problem = random_problem(seed, SMALL, ugly=True)
    result = solve(problem)
    if result.plan is None or result.objective_ticks is None:
        return
    fine = oracle.price(problem, result.plan, oracle.Rounding(30))[0]
    exponent = result.time.exponent
    assert abs(result.objective_ticks * 10 ** (30 - exponent) - fine) <= RELATIVE_ERROR * fine
    assert result.objective_ticks < EXACT_LIMIT


def test_scale_depends_on_no_choice() -> None:
    """A plan has the same ticks under all choices and side constraints."""
    problem = random_problem(3)
    assert scale_of(problem.with_choices(zero=frozenset({0}), stages=frozenset({1}))) == scale_of(problem)
    half = replace(problem, training=replace(problem.training, overhead_bytes=0.5))
    assert scale_of(half).quanta_per_byte == 10


@pytest.mark.parametrize(
    "preset",
    [
        replace(PAPER, objective="sum"),
        replace(PAPER, collectives="groups"),
        replace(DEFAULT, sharding="stage"),
        replace(DEFAULT, sync_all_stages=False),
        replace(DEFAULT, arrangements=()),
    ],
)
def test_presets_that_mix(preset: Preset) -> None:
    """A preset that nobody prices is refused, by solver and judge."""
    problem = Problem("", {NARROW: ONE}, Cluster(1, 100, (Level(1, 1.0, 0.0),)), Training(1), preset=preset)
    plan = solve(problem.with_preset(PAPER)).plan
    assert plan is not None
    for ask in (solve, lambda mixed: evaluate(mixed, plan)):
        with pytest.raises(InvalidProblem, match="only go together"):
            ask(problem)


@pytest.mark.parametrize("seed", range(20))
def test_free_synchronisation(seed: int) -> None:
    """A preset whose synchronisation takes nothing has none but the optimizer's step, in tables and judge alike."""
    problem = random_problem(seed).with_preset(replace(DEFAULT, sync_factor=0.0, all_replicas=False))
    plan = solve(problem).plan
    if plan is not None:
        assert all(stage.sync == stage.step for stage in evaluate(problem, plan).stages)


def test_more_of_anything_never_hurts() -> None:
    """More bandwidth, less latency, more memory: never a slower best plan."""
    for seed in range(40):
        problem = random_problem(seed)
        best = solve(problem)
        if best.objective_s is None:
            continue
        levels = problem.cluster.levels
        faster = [replace(each, bandwidth_bytes_per_s=2 * each.bandwidth_bytes_per_s) for each in levels]
        sooner = [replace(each, latency_s=each.latency_s / 2) for each in levels]
        for changes in ({"levels": tuple(faster)}, {"levels": tuple(sooner)}, {"hbm_bytes": 1e12}):
            better = solve(replace(problem, cluster=replace(problem.cluster, **changes))).objective_s
            assert better is not None
            assert better <= best.objective_s * (1 + 1e-9)


def test_large() -> None:
    """A hundred layers on a thousand devices, in about a second: what this design promises."""
    layers = tuple(Layer(at, 0.01, 0.02, 3 * 10**8, 10**8) for at in range(98))
    graph = LayerGraph(layers, tuple(Edge(at, at + 1, 5 * 10**7) for at in range(97)))
    levels = (Level(8, 3e11, 3e-6), Level(20, 2.5e10, 1.4e-5), Level(7, 2.5e10, 1.5e-5))
    cluster = Cluster(1024, 8 * 10**10, levels, partial=True)
    training = Training(global_batch=1536, copies=Copies(6, 2), overhead_bytes=4 * 10**9)
    graphs = {Variant(t, 1, 1, sp, b): graph for t in (1, 2, 4, 8) for b in (1, 2, 4) for sp in (False, True)}
    problem = Problem("large", graphs, cluster, training, preset=DEFAULT)
    assert solve(problem).status is Status.OPTIMAL
    assert is_within(10, lambda: solve(problem))
