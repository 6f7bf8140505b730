"""The tick and the byte quantum: fine enough, small enough, and the same whatever the solver may choose."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import oracle
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from random_problems import Size, random_plan, random_problem, show_plan, show_problem

from nest.cluster import Cluster, Level
from nest.cost import scale
from nest.cost.extremes import Extremes, extremes_of
from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.evaluate import Evaluation, evaluate
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan
from nest.presets import ARTIFACT, PAPER
from nest.problem import Choices, Problem, Training, Variant
from nest.units import EXACT_LIMIT, HARD_LIMIT, RELATIVE_ERROR

SIZE = Size(layers=10, devices=60, levels=5, microbatches=5000)
SEEDS = st.integers(0, 10**6)


def stretched(problem: Problem, compute: float, spread: float, network: float) -> Problem:
    """Return a problem with all layer times times ``compute``, every other one also ``spread``, and network times."""

    def layers(graph: LayerGraph) -> tuple[Layer, ...]:
        factors = [compute * (spread if at % 2 else 1) for at in range(len(graph))]
        return tuple(
            replace(layer, forward_s=layer.forward_s * factor, backward_s=layer.backward_s * factor)
            for layer, factor in zip(graph.layers, factors, strict=True)
        )

    graphs = {variant: LayerGraph(layers(graph), graph.edges) for variant, graph in problem.graphs.items()}
    levels = tuple(
        Level(level.fanout, level.bandwidth_bytes_per_s / network, level.latency_s * network)
        for level in problem.cluster.levels
    )
    return replace(problem, graphs=graphs, cluster=replace(problem.cluster, levels=levels))


def priced(problem: Problem, plan: Plan) -> Evaluation:
    """Judge a plan; give up on it where it has no price, or where no tick can serve the problem."""
    try:
        verdict = evaluate(problem, plan)
    except InvalidProblem:
        reject()
    assume(verdict.objective_ticks is not None)
    return verdict


@settings(deadline=None, max_examples=300)
@given(
    seed=SEEDS,
    compute=st.sampled_from([1e-6, 1e-3, 1.0, 1e4]),
    spread=st.sampled_from([1e-9, 1e-4, 1.0]),
    network=st.sampled_from([1e-9, 1e-3, 1.0, 1e3]),
)
def test_rounding_cannot_matter(seed: int, compute: float, spread: float, network: float) -> None:
    """D8: the price in ticks is within 1e-9 of the price in exact fractions of a second."""
    problem = stretched(random_problem(seed, SIZE, ugly=True), compute, spread, network)
    plan = random_plan(seed, problem)
    assume(any(layer.forward_s + layer.backward_s > 0 for layer in problem.graphs[plan.variant].layers))
    verdict = priced(problem, plan)
    exact = oracle.price(problem, plan, None).objective
    got = (verdict.objective_ticks or 0) * Fraction(10) ** -verdict.scale.time.exponent
    shown = f"{show_problem(problem)}\n{show_plan(plan)}\ngot {float(got)} want {float(exact)}"
    assert abs(got - exact) <= Fraction(RELATIVE_ERROR) * exact, shown


@settings(deadline=None, max_examples=200)
@given(seed=SEEDS, network=st.sampled_from([1e-3, 1.0, 1e6]))
def test_prices_keep_within_the_limits(seed: int, network: float) -> None:
    """D8, C12: loads of unsharded stages are exact as floats, and objectives of legal plans fit 64 bits."""
    problem = stretched(random_problem(seed, SIZE).with_choices(zero=frozenset({0})), 1.0, 1.0, network)
    plan = random_plan(seed, problem)
    verdict = priced(problem, plan)
    assert max(stage.load for stage in verdict.stages) <= EXACT_LIMIT, (show_problem(problem), verdict)
    in_range = (verdict.objective_ticks or 0) < HARD_LIMIT
    assert in_range == all(violation.rule != "range" for violation in verdict.violations), verdict


@given(seed=SEEDS, others=SEEDS)
def test_scale_depends_on_no_choice(seed: int, others: int) -> None:
    """A plan has the same ticks under every restriction of what the solver may choose."""
    problem = random_problem(seed, SIZE)
    free = dict.fromkeys(("tensor", "expert", "context", "microbatch", "sequence"))
    choices = replace(random_problem(others, SIZE).choices, **free)  # type: ignore[arg-type]
    assert scale_of(replace(problem, choices=choices)) == scale_of(problem)
    kept = min(problem.graphs)
    narrow = Choices(tensor=frozenset({kept.tensor}), zero=frozenset({0}))
    assert scale_of(replace(problem, choices=narrow)) == scale_of(problem)


def one_layer(seconds: float, microbatches: int) -> Problem:
    """Return one layer of so many seconds, half of them backward, on one device."""
    graph = LayerGraph((Layer(0, seconds / 2, seconds / 2, 0, 0),), ())
    cluster = Cluster(1, 1, (Level(1, 1.0, 0.0),))
    return Problem("one layer", {Variant(1): graph}, cluster, Training(microbatches))


@pytest.mark.parametrize(
    ("seconds", "microbatches", "exponent"),
    [
        (1.0, 1, 15),  # largest load 2 s (the forward pass repeated): 2e15 is below 2^53 = 9.007e15
        (1.0, 5, 14),  # five of them are 1e16, too many; 1e15 is not
        (1e-6, 1, 18),  # never finer than 1e-18 s
        (1e10, 1, 5),
        (1.0, 10**6, 10),  # 2e6 s: 2e15 at 1e-9 s, but 4 half ticks of 1 s must stay below 1e-9: 4e9 ticks a second
    ],
)
def test_tick_worked(seconds: float, microbatches: int, exponent: int) -> None:
    """D8: as fine as the limit on the largest objective allows, finer where precision asks for it."""
    scale = scale_of(one_layer(seconds, microbatches))
    assert scale.time.exponent == exponent


def test_precision_worked() -> None:
    """D8: the stage that rounding hurts most decides.

    Layers of 1 to 6 s and a million microbatches. A stage of j layers is off by at most 1.5 j + 2.5 ticks, and its
    load is at least 6 s and the sum of its own layers: 4 / 6, 5.5 / 6, 7 / 6, 8.5 / 10, 10 / 15, 11.5 / 21. The third
    is the worst: 1.17e9 ticks a second, so 1e-10 s. The largest objective alone, 4.2e7 s, would allow 1e-8 s.
    """
    layers = tuple(Layer(at, at / 2, at / 2, 0, 0) for at in range(1, 7))
    graph = LayerGraph(layers, tuple(Edge(at, at + 1, 0) for at in range(1, 6)))
    problem = Problem("six", {Variant(1): graph}, Cluster(6, 1, (Level(6, 1.0, 0.0),)), Training(10**6))
    assert scale_of(problem).time.exponent == 10


def test_times_too_far_apart() -> None:
    """No tick serves layers of a nanosecond behind a network of years."""
    layers = (Layer(0, 1e-9, 1e-9, 0, 0), Layer(1, 1e-9, 1e-9, 0, 0))
    cluster = Cluster(2, 1, (Level(1, 1e9, 0.0), Level(2, 1e-9, 1e9)))
    problem = Problem("far", {Variant(1): LayerGraph(layers, (Edge(0, 1, 1),))}, cluster, Training(1))
    with pytest.raises(InvalidProblem, match="check the units"):
        scale_of(problem)


def test_bytes_too_many() -> None:
    """Sums of quanta must fit 64 bits."""
    graph = LayerGraph((Layer(0, 1.0, 1.0, 1e12 + 0.5, 1e-9),), ())
    problem = Problem("large", {Variant(1): graph}, Cluster(1, 1, (Level(1, 1.0, 0.0),)), Training(1))
    with pytest.raises(InvalidProblem, match="check their unit"):
        scale_of(problem)


def test_quanta_are_common_to_all_variants() -> None:
    """The finest decimal place of any layer or edge of any variant counts."""
    plain = LayerGraph((Layer(0, 1.0, 1.0, 3, 4), Layer(1, 1.0, 1.0, 3, 4)), (Edge(0, 1, 5),))
    tenths = LayerGraph(plain.layers, (Edge(0, 1, 0.1),))
    cluster = Cluster(4, 10, (Level(4, 1.0, 0.0),))
    problem = Problem("two", {Variant(1): plain, Variant(2): tenths}, cluster, Training(1))
    assert scale_of(problem).quanta_per_byte == 10
    assert scale_of(problem.with_choices(tensor=frozenset({1}))).quanta_per_byte == 10


@pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)
def test_all_zero_times(preset: object) -> None:
    """A problem in which nothing takes time has a tick all the same."""
    graph = LayerGraph((Layer(0, 0.0, 0.0, 0, 0),), ())
    problem = Problem("nothing", {Variant(1): graph}, Cluster(1, 1, (Level(1, 1.0, 0.0),)), Training(3))
    assert scale_of(problem.with_preset(PAPER if preset is PAPER else ARTIFACT)).time.exponent == 18


def test_scale_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command asks for it several times, and a search for many problems that differ in side constraints alone."""
    asked: list[str] = []

    def counted(problem: Problem, *, closer: bool = False) -> list[Extremes]:
        asked.append(problem.name)
        return extremes_of(problem, closer=closer)

    monkeypatch.setattr(scale, "extremes_of", counted)
    one = random_problem(7, SIZE)
    limited = replace(one, name="limited", choices=Choices(stages=frozenset({1})))
    other = replace(one, name="other", cluster=replace(one.cluster))
    first = scale_of(one)
    assert [scale_of(each) for each in (one, limited, other)] == [first] * 3
    assert asked == [one.name, "other"]
