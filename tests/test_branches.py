"""Models that branch, under preset `default`: the best of all cuts, judged, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import oracle_default as oracle
import pytest
from random_branches import BRANCHED, best, cuttings, orders, random_branched, random_branched_plan, reordered
from random_default import Size
from random_problems import show_plan, show_problem
from seeds import seeds
from test_default_agreement import refuted_by

from nest.breakdown import load_parts, memory_parts
from nest.certificate import check as claimed
from nest.cli import run as run_cli
from nest.cli.exits import ExitCode
from nest.cluster import Cluster, Level
from nest.constraints import Budget, LevelTraffic, MaxStages, ReservedDevices, Together
from nest.errors import InvalidProblem, LimitReached, OutOfScope
from nest.evaluate import crossing, evaluate
from nest.files import read_problem, write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan, Stage
from nest.presets import DEFAULT, PAPER
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Status
from nest.simulate import pipeline_of
from nest.solve import solve
from nest.tables.family import Family
from nest.units import HARD_LIMIT

FEW = replace(BRANCHED, layers=4)
MORE = replace(BRANCHED, layers=6, devices=12, levels=3, variants=2)


def check(problem: Problem) -> None:
    """Assert that `solve` finds the best objective there is, and that one order of the layers bounds it."""
    result = solve(problem)
    rounding = oracle.Rounding(result.time.exponent)
    known = best(problem, rounding)
    shown = f"{show_problem(problem)}\n{result}\n{show_plan(result.plan)}\n{known.objective} {show_plan(known.plan)}"
    ordered = solve(problem, cuts="order")
    if result.plan is None or known.plan is None:
        assert result.plan is known.plan is ordered.plan is None, shown
        assert result.status is Status.INFEASIBLE, shown
        assert claimed(problem, HARD_LIMIT).holds, shown
        return
    verdict, rival = evaluate(problem, result.plan), evaluate(problem, known.plan)
    assert verdict.legal, shown
    assert rival.legal, shown
    assert result.status is Status.OPTIMAL, shown
    assert result.objective_ticks == result.bound_ticks == verdict.objective_ticks, shown
    assert result.objective_ticks is not None
    assert known.objective is not None
    assert rival.objective_ticks is not None
    assert result.objective_ticks <= rival.objective_ticks, shown
    slack = 1000 * problem.microbatches(result.plan.variant) if rounding.doubtful else 0
    assert abs(result.objective_ticks - known.objective) <= slack, shown
    assert claimed(problem, result.objective_ticks).holds, shown
    assert refuted_by(problem, result.objective_ticks + 1) == result.objective_ticks, shown
    assert ordered.bound_ticks is not None
    assert ordered.bound_ticks <= result.objective_ticks, shown
    assert ordered.objective_ticks is None or ordered.objective_ticks >= result.objective_ticks, shown


@pytest.mark.parametrize("seed", seeds(30, 100))
def test_few_layers(seed: int) -> None:
    """Every chain of downsets of a few layers."""
    check(random_branched(seed, FEW, ugly=seed % 10 == 9))


@pytest.mark.parametrize("seed", range(400, 440))
def test_few_layers_around_devices_that_are_down(seed: int) -> None:
    """On every line of devices."""
    problem = random_branched(seed, FEW)
    down = random.Random(seed).sample(range(problem.cluster.devices), 1 + seed % 2)
    check(problem.with_constraints(ReservedDevices(sorted(down))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_layers(seed: int) -> None:
    """More layers."""
    check(random_branched(seed, ugly=seed % 10 == 9))


@pytest.mark.parametrize(("seed", "size"), [(1290, BRANCHED), (3018, MORE)])
def test_degrees_that_leave_no_way_to_shard(seed: int, size: Size) -> None:
    """Some numbers of replicas have no group of the only degree that is allowed."""
    check(random_branched(seed, size))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3200))
def test_more_layers(seed: int) -> None:
    """Still more, and larger clusters."""
    check(random_branched(seed, MORE, ugly=seed % 10 == 9))


@pytest.mark.parametrize("seed", range(40))
def test_prices(seed: int) -> None:
    """The judge's figures of any plan are the reference's, and its parts add up."""
    problem = random_branched(seed)
    plan = random_branched_plan(seed, problem)
    verdict = evaluate(problem, plan)
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    ids = [name for stage in plan.stages for name in stage.layers]
    graph = problem.graphs[plan.variant]
    changed = reordered(problem, [graph.index[name] for name in ids])
    objective, figures = oracle.price(changed, plan, rounding)
    if rounding.doubtful:
        pytest.skip("a time is too near to half a tick")
    assert verdict.objective_ticks == objective
    assert [(each.load, each.sync) for each in verdict.stages] == [(each.load, each.sync) for each in figures]
    assert [each.total for each in load_parts(problem, plan, verdict)] == [each.load for each in figures]
    assert [each.total for each in memory_parts(problem, plan, verdict)] == [each.memory for each in verdict.stages]


TOWERS = (Edge("a1", "a2", 1e6), Edge("a2", "end", 1e6), Edge("b1", "b2", 1e6), Edge("b2", "end", 1e6))


def towers(**more: object) -> Problem:
    """Return two towers of two layers each, which meet in a last one, on two devices."""
    times = {"a1": 0.2, "a2": 0.1, "b1": 0.3, "b2": 0.1, "end": 0.3}
    layers = tuple(Layer(name, seconds, seconds, 10**6, 10**6) for name, seconds in times.items())
    graph = LayerGraph(layers, TOWERS)
    cluster = Cluster(2, 10**9, (Level(2, 1e9, 0.0),))
    wanted = Choices(stages=frozenset({2}), zero=frozenset({0}))
    given: dict[str, object] = {"preset": DEFAULT, "choices": wanted, **more}
    return Problem("towers", {Variant(1): graph}, cluster, Training(8, "sgd"), **given)  # type: ignore[arg-type]


def test_a_stage_may_take_from_both_towers() -> None:
    """The first layers of both towers weigh as much as the rest, and nothing else does."""
    problem = towers()
    result, ordered = solve(problem), solve(problem, cuts="order")
    assert result.plan is not None
    assert [stage.layers for stage in result.plan.stages] == [("a1", "b1"), ("a2", "b2", "end")]
    assert ordered.status is Status.FEASIBLE
    assert ordered.reason == "stages were sought along one order of the layers only, others may be better"
    assert ordered.objective_ticks is not None
    assert result.objective_ticks is not None
    assert ordered.objective_ticks > result.objective_ticks
    stages = pipeline_of(problem, result.plan, evaluate(problem, result.plan)).stages
    assert stages[1].receive == stages[0].receive_gradient > 0


def test_a_chain_has_one_order() -> None:
    """There both kinds of cuts are the same."""
    graph = towers().graphs[Variant(1)].in_one_order()
    chain = replace(towers(), graphs={Variant(1): graph})
    assert graph.in_one_order() is graph
    assert solve(chain, cuts="order").status is Status.OPTIMAL


def _plan(*stages: tuple[str, ...]) -> Plan:
    made = tuple(Stage(layers, at, 1) for at, layers in enumerate(stages))
    return Plan(Variant(1), 1, 1, made, "stage-major")


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((("a1", "a2", "end"), ("b1", "b2")), "layer 'b2' of stage 1 sends to 'end' of stage 0, which is before it"),
        ((("a1", "b2"), ("a2", "b1", "end")), "layer 'b1' of stage 1 sends to 'b2' of stage 0, which is before it"),
        ((("b1", "a1"), ("a2", "b2", "end")), "stage 0 does not list its layers in the order of the model"),
    ],
)
def test_stages_that_are_no_downsets(stages: tuple[tuple[str, ...], ...], message: str) -> None:
    """A later stage feeds an earlier one, or layers are out of order."""
    (violation,) = evaluate(towers(), _plan(*stages)).violations
    assert (violation.rule, violation.message) == ("order", message)


def test_other_presets_take_chains() -> None:
    """They price single edges along a run."""
    with pytest.raises(InvalidProblem, match="preset 'paper' takes chains, with or without skip edges"):
        towers().with_preset(PAPER)


def test_constraints_on_runs_are_refused() -> None:
    """Stages are no runs of layers; constraints that look at something else stay."""
    what = "together looks at runs of layers, and nothing orders layers 'a2' and 'b1'"
    with pytest.raises(InvalidProblem, match=what):
        solve(towers(constraints=(Together(["a1", "b1"]),)))
    limited = towers(constraints=(MaxStages(1),), choices=Choices(zero=frozenset({0})))
    result = solve(limited)
    assert result.plan is not None
    assert len(result.plan.stages) == 1


def test_too_many_downsets() -> None:
    """Loose layers by the dozen have downsets by the thousand; one order of them still has a plan and a bound."""
    loose = tuple(Layer(at, 0.1, 0.1, 10**6, 10**6) for at in range(16))
    graph = LayerGraph((*loose, Layer("end", 0.1, 0.1, 0, 0)), tuple(Edge(at, "end", 10) for at in range(16)))
    problem = replace(towers(), graphs={Variant(1): graph})
    with pytest.raises(LimitReached, match=r"more than 16384 downsets.*--cuts order"):
        solve(problem)
    result = solve(problem, cuts="order")
    assert result.status is Status.FEASIBLE
    assert result.bound_ticks is not None
    assert 0 < result.bound_ticks < (result.objective_ticks or 0)
    fewer = LayerGraph((*loose[:13], graph.layers[-1]), graph.edges[:13])
    for ask in (solve, lambda problem: claimed(problem, HARD_LIMIT)):
        with pytest.raises(LimitReached, match="its 8193 downsets make more than 1048576 stages"):
            ask(replace(problem, graphs={Variant(1): fewer}))


def test_one_order_beside_what_ties_stages_together() -> None:
    """The best plan along one order counts where it keeps a budget, and is refused, not answered, where it does not."""
    free = solve(towers(), cuts="order")
    assert free.plan is not None
    sent = crossing(towers(), free.plan)[0]
    assert sent > 0
    kept = towers().with_constraints(LevelTraffic(0, sent))
    assert solve(kept, cuts="order").objective_ticks == free.objective_ticks
    for broken in (LevelTraffic(0, sent - 1), Budget(1e-9, rate_per_device_s=1)):
        with pytest.raises(OutOfScope, match=f"along one order of the layers breaks {broken.kind}.*take cuts 'all'"):
            solve(towers().with_constraints(broken), cuts="order")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A problem file with branches is solved and judged."""
    path, plan = tmp_path / "towers.toml", tmp_path / "plan.json"
    write_problem(towers(), path)
    assert read_problem(path).branches
    assert run_cli(["solve", str(path), "-o", str(plan)]) == ExitCode.OK
    assert "optimal" in capsys.readouterr().out
    assert run_cli(["evaluate", str(plan)]) == ExitCode.OK
    assert run_cli(["certify", str(plan)]) == ExitCode.OK
    assert "confirmed by checker" in capsys.readouterr().out
    assert run_cli(["solve", str(path), "--cuts", "order"]) == ExitCode.OK
    assert "one order of the layers only" in " ".join(capsys.readouterr().out.split())
    assert run_cli(["solve", str(path), "--cuts", "order", "--certify"]) == ExitCode.INVALID
    assert "--certify does not go with --cuts order" in capsys.readouterr().err


def test_orders_and_downsets() -> None:
    """The reference tries each chain of downsets once: as many as there are chains in the family."""
    problem = towers()
    graph = problem.graphs[Variant(1)]
    family = Family.of(graph.before)
    tried = sum(1 for order in orders(graph) for _ in cuttings(order, 2))
    assert tried == len(family.sizes) - 2 == 8
