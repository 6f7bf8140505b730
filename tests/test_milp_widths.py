"""The programme where stages have widths of their own: both models, the dynamic program and the reference agree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from types import ModuleType
from typing import Any

import oracle_plans
import oracle_uneven
import pytest
import random_inside
import random_uneven
from random_problems import show_plan, show_problem
from seeds import seeds
from sum_programmes import BACKENDS, agree, ask, both_models, rules_agree, step_slowly
from test_milp_sums import covered
from uneven_checks import check

from nest.constraints import Budget, Constraint, LevelTraffic, MaxDevices, MemoryHeadroom, SameSharding
from nest.errors import OutOfScope
from nest.evaluate import evaluate
from nest.milp import solve_cpsat
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_kinds import Stages
from nest.milp.sum_plans import SumSolution, encode
from nest.milp.sum_room import room_below
from nest.milp.wide_choices import WideChoice
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve

KINDS: dict[str, ModuleType] = {"tensor": random_uneven, "inside": random_inside}
LARGER = random_uneven.Size(layers=5, devices=16)

both_kinds = pytest.mark.parametrize("kind", KINDS)


def of_seed(kind: str, seed: int, size: random_uneven.Size = random_uneven.SMALL) -> Problem:
    """Return the problem of a seed in which stages may have widths of their own, or be sharded inside."""
    problem: Problem = KINDS[kind].random_problem(seed, size)
    return problem


@both_kinds
@pytest.mark.parametrize("seed", seeds(20, 300))
def test_agreement(kind: str, seed: int) -> None:
    """Both models find what the dynamic program does: of the same problems as the reference, the judge and the checker.

    Those ask in `test_uneven_agreement` and `test_inside_agreement` about every plan of a few layers on a few devices.
    """
    problem = of_seed(kind, seed)
    agree(problem, solve(problem).objective_ticks)


@both_kinds
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_agreement_with_the_reference(kind: str, seed: int) -> None:
    """The same at once, of other problems: reference, judge, dynamic program, checker and both models."""
    problem = of_seed(kind, 5000 + seed)
    agree(problem, check(problem).objective_ticks)


@pytest.mark.slow
@both_kinds
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_agreement_on_larger_problems(kind: str, seed: int) -> None:
    """More layers and devices."""
    problem = of_seed(kind, seed, LARGER)
    agree(problem, solve(problem).objective_ticks)


@both_kinds
@pytest.mark.parametrize("seed", seeds(5, 100))
def test_consequences_lose_nothing(kind: str, seed: int) -> None:
    """The programme of the rules alone, all outer choices and all ways in one model, has the same optimum."""
    problem = of_seed(kind, seed)
    rules_agree(problem)


@pytest.mark.parametrize(("kind", "seed"), [("tensor", 12), ("tensor", 16), ("inside", 7), ("inside", 10)])
def test_optima_have_such_stages(kind: str, seed: int) -> None:
    """The problems do ask for plans whose stages differ, or are sharded inside, and CP-SAT finds these."""
    plan = solve(of_seed(kind, seed), backend="cpsat").plan
    assert plan is not None
    assert plan.uneven or plan.sharded_inside


@both_kinds
@pytest.mark.parametrize("seed", seeds(5, 100))
def test_small_steps(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where outer choices are asked one by one, limits and horizons are near, and nothing is kept."""
    step_slowly(monkeypatch)
    problem = of_seed(kind, seed)
    agree(problem, solve(problem).objective_ticks, ("cpsat",))


@both_models
@both_kinds
@pytest.mark.parametrize("seed", seeds(3, 40))
def test_legal_plan_has_the_judged_price(kind: str, seed: int, module: Any, run: Any) -> None:
    """A programme fixed to any legal plan takes exactly what the judge says; what is illegal it does not have."""
    problem = of_seed(kind, seed)
    made, legal = SumFormulation.whole(problem), 0
    for again in range(12):
        plan = KINDS[kind].random_plan(again, problem)
        if plan is None:
            continue
        verdict, solution = evaluate(problem, plan), encode(made, plan)
        assert (solution is not None) == verdict.legal, f"{show_problem(problem)}\n{show_plan(plan)}\n{verdict}"
        if solution is None:
            continue
        legal += 1
        assert made.price(solution.arcs, solution.choice) == verdict.objective_ticks
        if legal <= 2:
            assert ask(module, run, made, solution).objective == verdict.objective_ticks


@both_kinds
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_a_limit_leaves_plans_below_it(kind: str, seed: int) -> None:
    """Of all stages of a legal plan none is left out below a limit of a tick more than it takes."""
    problem = of_seed(kind, seed)
    made = SumFormulation.whole(problem)
    stages = Stages(made.tables, "every")
    for again in range(12):
        plan = KINDS[kind].random_plan(again, problem)
        solution = None if plan is None else encode(made, plan)
        if solution is None or not isinstance(made.choices[solution.choice], WideChoice):
            continue
        choice, price = made.choices[solution.choice], made.price(solution.arcs, solution.choice)
        room, arcs = room_below(stages.of(choice), choice, price + 1), made.arcs
        for arc in solution.arcs:
            ways = room.ways[int(arcs.position[arc]) - 1]
            kept = zip(*(each.tolist() for each in ways[:4]), strict=True)
            assert (arcs.first[arc], arcs.end[arc], arcs.load[arc], arcs.sync[arc]) in set(kept)


@both_models
def test_stages_follow_each_other_where_they_stand(module: Any, run: Any) -> None:
    """A path may not go on from another spot, though its layers would fit: C3 says from which state it does."""
    for seed in range(100):
        made = SumFormulation.whole(of_seed("tensor", seed))
        for at, choice in enumerate(made.choices):
            pair = _broken_pair(made, at) if isinstance(choice, WideChoice) and choice.stages == 2 else None
            if pair is not None:
                claim = ask(module, run, made, SumSolution(at, pair))
                assert claim.status is Status.INFEASIBLE
                return
    raise AssertionError("some problem has two spots for a second stage")


def _broken_pair(made: SumFormulation, choice: int) -> list[int] | None:
    """Return two stages with all layers, the second of which stands elsewhere than the first says."""
    own, arcs = made.by_choice[choice], made.arcs
    for first in own[arcs.position[own] == 2].tolist():
        for last in own[arcs.position[own] == 1].tolist():
            layers = made.cuts(first)[1] == made.cuts(last)[0]
            if layers and arcs.end[first] != arcs.first[last]:
                return [first, last]
    return None


def every_plan(problem: Problem) -> Iterator[Plan]:
    """Yield the plans whose stages may differ, as the reference lists them, and those of one variant."""
    yield from oracle_plans.plans(problem)
    for shape in oracle_uneven.shapes(problem):
        layers = len(problem.graphs[shape.pieces[0].variant])
        for inside in combinations(range(1, layers), len(shape.pieces) - 1):
            runs = list(pairwise([0, *inside, layers]))
            ways = (list(oracle_uneven.inners(problem, shape, at, run)) for at, run in enumerate(runs))
            yield from (oracle_uneven.plan_of(problem, shape, runs, list(each)) for each in product(*ways))


def best_of(problem: Problem) -> int | None:
    """Return the least of what the legal plans take, as the judge has them."""
    verdicts = (evaluate(problem, plan) for plan in every_plan(problem))
    return min((each.objective_ticks or 0 for each in verdicts if each.legal), default=None)


@both_kinds
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_budget(kind: str, seed: int) -> None:
    """What a whole plan costs, on as many devices as it takes: `nest solve`, both models and the reference."""
    problem = of_seed(kind, seed, random_uneven.Size(layers=2, devices=6, batch=4))
    free = solve(problem)
    if free.plan is None or free.objective_s is None:
        return
    cost = free.objective_s * free.plan.used_devices
    asked = problem.with_constraints(Budget(cost * 0.8, rate_per_device_s=1))
    best = best_of(asked)
    agree(asked, best, BACKENDS if covered(asked) else ("cpsat",))
    assert solve(asked).objective_ticks == best


@both_kinds
@pytest.mark.parametrize("seed", range(20, 22))
def test_limits(kind: str, seed: int) -> None:
    """On devices and on memory."""
    problem = of_seed(kind, seed)
    some: Constraint = MaxDevices(max(1, problem.cluster.devices - 2)) if seed % 2 else MemoryHeadroom(fraction=0.3)
    asked = problem.with_constraints(some)
    agree(asked, solve(asked).objective_ticks)


@both_kinds
@pytest.mark.parametrize("seed", range(700, 703))
def test_hint_and_bound(kind: str, seed: int) -> None:
    """From a plan, and from a bound, the same optimum; without time a legal plan is claimed as it was given."""
    problem = of_seed(kind, seed)
    wanted = solve(problem)
    for again in range(3):
        plan = KINDS[kind].random_plan(again, problem)
        if plan is None or wanted.objective_ticks is None:
            continue
        verdict = evaluate(problem, plan)
        assert solve_cpsat(problem, hint=plan, at_least=wanted.bound_ticks).objective == wanted.objective_ticks
        at_once = solve_cpsat(problem, hint=plan, time_limit_s=0)
        assert at_once.objective == (verdict.objective_ticks if verdict.legal else None)
        assert at_once.bound is not None
        assert at_once.bound <= wanted.objective_ticks


@pytest.mark.parametrize("constraint", [LevelTraffic(0, 1), SameSharding([0])], ids=["level_traffic", "same_sharding"])
def test_what_is_not_covered_is_refused(constraint: Constraint) -> None:
    """Bytes of such stages are not counted, and nothing else ties them together."""
    problem = of_seed("tensor", 0)
    layer = next(iter(problem.graphs.values())).layers[0].id
    asked = problem.with_constraints(SameSharding([layer]) if constraint.kind == "same_sharding" else constraint)
    with pytest.raises(OutOfScope, match=f"does not keep side constraint {constraint.kind} where stages have widths"):
        solve_cpsat(asked)
