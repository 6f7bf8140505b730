"""The mathematical programme on clusters with several classes of devices: both models, solver and reference agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import oracle_default as oracle
import pytest
from random_branches import BRANCHED, random_branched
from random_classes import FEW, divided, mixed, mixed_places
from random_default import Size, random_problem
from random_places import idle_plan
from random_problems import show_plan
from seeds import seeds
from sum_programmes import BACKENDS, MODELS, agree, ask, both_models, rules_agree, step_slowly
from test_certificate_schedules import EITHER, gpipe
from test_classes import chain, posed, two_classes
from test_default_agreement import LARGER, TINY, constraints_of
from test_milp_sums import best_of_all, covered

from nest.certify import Finding, certify
from nest.constraints import Budget, Constraint, DistinctStages, LevelTraffic, SameSharding
from nest.evaluate import crossing, evaluate
from nest.graph import Layer, LayerGraph
from nest.milp import solve_cpsat
from nest.milp.sum_choices import choices_of, least_of_variant
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_plans import encode
from nest.milp.sum_room import room_below
from nest.milp.sum_stages import StageWays
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve
from nest.tables import Tables
from nest.units import HARD_LIMIT

LARGE = Size(layers=10, devices=64, levels=4, variants=3, batch=64)


def optimum(problem: Problem) -> int | None:
    """Return the least ticks that the dynamic program finds."""
    return solve(problem).objective_ticks


@pytest.mark.parametrize("seed", seeds(25, 600))
def test_agreement(seed: int) -> None:
    """Two or three classes, of whole groups or of any devices, of other speed and memory."""
    problem = mixed(seed)
    agree(problem, optimum(problem))


@pytest.mark.parametrize("seed", seeds(12, 400))
def test_agreement_with_the_reference(seed: int) -> None:
    """Every plan on every line, priced by the reference."""
    problem = mixed(7000 + seed, FEW)
    result = solve(problem)
    rounding = oracle.Rounding(result.time.exponent)
    best = oracle.best(problem, rounding).objective
    agree(problem, result.objective_ticks if rounding.doubtful else best)


@pytest.mark.parametrize("seed", seeds(15, 300))
def test_agreement_where_devices_are_idle(seed: int) -> None:
    """Placings with gaps, and around devices that are down, on lines in every order of the classes."""
    problem = mixed_places(seed)
    agree(problem, optimum(problem))


@pytest.mark.parametrize("seed", seeds(8, 200))
def test_agreement_where_layers_branch(seed: int) -> None:
    """Stages that are differences of downsets."""
    problem = divided(random_branched(seed, BRANCHED), f"branches {seed}")
    agree(problem, optimum(problem))


@pytest.mark.parametrize("seed", seeds(8, 200))
def test_gpipe(seed: int) -> None:
    """All microbatches in flight; alone, and beside 1F1B."""
    problem = divided(gpipe(seed), f"gpipe {seed}")
    agree(problem, optimum(problem))
    if seed % 3 == 0:
        either = problem.with_choices(schedules=EITHER)
        agree(either, optimum(either))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2500))
def test_agreement_on_larger_problems(seed: int) -> None:
    """More layers and devices."""
    problem = mixed(seed, LARGE if seed % 5 == 0 else LARGER)
    agree(problem, optimum(problem))


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_consequences_lose_nothing(seed: int) -> None:
    """The programme of the rules alone, all outer choices and all ways in one model, has the same optimum."""
    rules_agree(mixed(seed, TINY))


@pytest.mark.parametrize("seed", seeds(8, 150))
def test_small_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where outer choices are asked one by one, limits and horizons are near, and nothing is kept."""
    step_slowly(monkeypatch)
    problem = mixed(300 + seed)
    agree(problem, optimum(problem), ("cpsat",))


@pytest.mark.parametrize("seed", seeds(12, 100))
def test_bounds_are_below_the_optimum(seed: int) -> None:
    """No bound of a variant, or of an outer choice before its stages are known, is above the best plan there."""
    problem = mixed(seed, FEW)
    tables = Tables.of(problem)
    for variant in tables.fitting:
        stages = StageWays(tables.of_variant(variant), "fastest")
        for bound, own, choice in choices_of(tables, variant):
            room = room_below(stages, choice, HARD_LIMIT)
            best = None if room.empty else ask(*MODELS[0], SumFormulation(tables, [room])).objective
            assert best is None or max(bound, own, room.least, least_of_variant(tables, variant)) <= best


@pytest.mark.parametrize("seed", seeds(8, 150))
def test_local_side_constraints(seed: int) -> None:
    """Of each kind that looks at something else."""
    problem = divided(random_problem(seed, TINY), f"local {seed}")
    every = constraints_of(problem)
    problem = problem.with_constraints(every[seed % len(every)])
    agree(problem, optimum(problem))


def coupled(kind: str, seed: int) -> Problem:
    """Return a problem with a constraint of a kind that ties stages together, mostly one that the best plan breaks."""
    problem = divided(random_problem(seed, replace(TINY, layers=3)), f"coupled {seed}")
    ids, free = [layer.id for layer in next(iter(problem.graphs.values())).layers], solve(problem)
    level = seed % len(problem.cluster.levels)
    spent, sent = 1.0, 0
    if free.plan is not None and free.objective_s is not None:
        spent, sent = free.objective_s * free.plan.used_devices, crossing(problem, free.plan)[level]
    every: dict[str, Callable[[], Constraint]] = {
        "budget": lambda: Budget(spent * 0.8, rate_per_device_s=1),
        "distinct_stages": lambda: DistinctStages(1),
        "same_sharding": lambda: SameSharding(list(dict.fromkeys([ids[0], ids[-1]]))),
        "level_traffic": lambda: LevelTraffic(level, max(0, sent - 1)),
    }
    return problem.with_constraints(every[kind]())


@pytest.mark.parametrize("seed", seeds(3, 60))
@pytest.mark.parametrize("kind", ["budget", "distinct_stages", "same_sharding", "level_traffic"])
def test_coupling(kind: str, seed: int) -> None:
    """What ties stages together: both models, and `nest solve`, which asks the dynamic program first."""
    problem = coupled(kind, seed)
    best = best_of_all(problem)
    agree(problem, best, BACKENDS if covered(problem) else ("cpsat",))
    found = solve(problem)
    assert (found.objective_ticks, found.status is Status.INFEASIBLE) == (best, best is None)


def test_shapes_are_of_all_classes() -> None:
    """Layers that take the same on one class, and not on the other, make stages of two shapes."""
    graph = chain(0.002, 0.001, layers=2)
    (name, (first, last)), cluster = graph.others[0], two_classes()
    other = LayerGraph(graph.layers, graph.edges, others=((name, (first, replace(last, forward_s=0.0015))),))
    for each, legal in ((graph, True), (other, False)):
        problem = posed(each, cluster, stages=frozenset({2})).with_constraints(DistinctStages(1))
        best = optimum(problem)
        assert (best is not None) is legal
        agree(problem, best)


@both_models
@pytest.mark.parametrize("seed", seeds(4, 40))
def test_legal_plan_has_the_judged_price(seed: int, module: Any, run: Any) -> None:
    """A programme fixed to any legal plan takes exactly what the judge says; what is illegal it does not have."""
    problem = mixed(seed, TINY) if seed % 2 else mixed_places(seed)
    made, legal = SumFormulation.whole(problem), 0
    for again in range(25):
        plan = idle_plan(again, problem)
        if plan is None:
            continue
        verdict, solution = evaluate(problem, plan), encode(made, plan)
        if not verdict.legal:
            assert solution is None, show_plan(plan)
            continue
        legal += 1
        assert solution is not None, show_plan(plan)
        assert made.price(solution.arcs, solution.choice) == verdict.objective_ticks
        if legal <= 3:
            assert ask(module, run, made, solution).objective == verdict.objective_ticks


def test_plans_are_of_all_kinds() -> None:
    """What CP-SAT finds stands on one class or another, on several in one stage or pipeline, and begins with any."""
    seen: Counter[str] = Counter()
    for problem in map(partial(mixed, size=FEW), range(30)):
        plan = solve_cpsat(problem).plan if problem.cluster.classes else None
        if plan is None:
            continue
        classes = [stage.classes for stage in evaluate(problem, plan).stages]
        seen["turned"] += bool(plan.line.order)
        seen["one class"] += len(frozenset.union(*classes)) == 1
        seen["several in a stage"] += any(len(each) > 1 for each in classes)
        seen["several in a pipeline"] += len(set(classes)) > 1
    assert all(seen[kind] >= 2 for kind in ("turned", "one class", "several in a stage", "several in a pipeline")), seen


def test_four_classes() -> None:
    """As many as a cluster may have, on a line that is turned: the two fastest are apart on the network."""
    graph, cluster = chain(0.008, 0.004, layers=8), two_classes()
    kinds = [
        replace(cluster.classes[0], name=name, ranges=((at, at + 1),))
        for name, at in (("half", 1), ("quarter", 3), ("eighth", 0))
    ]
    several = replace(graph, others=tuple((each.name, _faster(graph, 2 ** -(at + 1))) for at, each in enumerate(kinds)))
    problem = posed(several, replace(cluster, classes=tuple(kinds)), stages=frozenset({2}), replicas=frozenset({1}))
    result = solve(problem)
    agree(problem, result.objective_ticks)
    assert result.plan is not None
    assert [stage.first_device for stage in result.plan.stages] in ([0, 3], [3, 0])
    assert result.plan.line.order
    hinted = solve_cpsat(problem, hint=result.plan, at_least=result.bound_ticks)
    assert (hinted.plan is not None, hinted.status) == (True, Status.OPTIMAL)


def _faster(graph: LayerGraph, times: float) -> tuple[Layer, ...]:
    """Return layers that take so many times as long."""
    return tuple(
        replace(each, forward_s=each.forward_s * times, backward_s=each.backward_s * times) for each in graph.layers
    )


@pytest.mark.parametrize("name", ["cpsat", "pyomo"])
def test_certify(name: str) -> None:
    """The prover confirms an optimum on two classes, and refutes a plan that leaves the faster one idle."""
    problem = posed(chain(0.002, 0.001), two_classes(), stages=frozenset({2}), replicas=frozenset({2}))
    best = solve(problem).plan
    assert best is not None
    assert certify(problem, best, provers=["checker", name]).finding is Finding.OPTIMAL
    first, last = best.stages
    even = replace(best, stages=(replace(first, layers=(0, 1, 2)), replace(last, layers=(3, 4, 5))))
    assert certify(problem, even, provers=[name]).finding is Finding.REFUTED
