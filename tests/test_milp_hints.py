"""Plans and bounds that CP-SAT is given: they change no optimum, and a plan is never lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ortools.sat.python import cp_model
from random_problems import random_plan
from test_milp import PLAIN_BROKEN, TINY, both_presets, drawn, plain, with_and_without_zero
from test_rules import BROKEN, LEGAL

from nest.evaluate import evaluate
from nest.milp import Claim, cpsat, cpsat_model, solve_cpsat
from nest.milp.formulation import Formulation
from nest.milp.space import Space
from nest.plan import Plan
from nest.presets import Preset
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve


@with_and_without_zero
def test_hint_is_a_start_not_a_bound(problem: Problem) -> None:
    """A poor or an illegal plan as a hint changes nothing about the optimum."""
    wanted = solve(problem).objective_ticks
    for plan in (random_plan(1, problem), PLAIN_BROKEN["stages swapped"][1], LEGAL, solve(problem).plan):
        claim = solve_cpsat(problem, hint=plan)
        assert (claim.status, claim.objective, claim.bound) == (Status.OPTIMAL, wanted, wanted)


@both_presets
@pytest.mark.parametrize("seed", [*range(200, 212), *range(300, 306)])
def test_hint_is_kept(seed: int, preset: Preset) -> None:
    """Whatever the time, a legal plan that is given is claimed unless a better one is, at the judge's price.

    Whether it is above the first limits, or dominated, so that no index set has it, does not matter; nor is any plan
    that breaks a rule mistaken for a legal one.
    """
    problem = (drawn if seed < 300 else plain)(seed, TINY, preset)
    tables = Space.of(problem).tables
    for plan in (*(random_plan(again, problem) for again in range(6)), *(case[1] for case in BROKEN.values())):
        verdict = evaluate(problem, plan) if plan.variant in problem.graphs and known(problem, plan) else None
        start = cpsat.start_of(tables, plan)
        assert (start is not None) == (verdict is not None and verdict.legal)
        if start is not None and verdict is not None:
            assert start.objective == verdict.objective_ticks
            claim = solve_cpsat(problem, hint=plan, time_limit_s=0)
            assert claim.objective is not None
            assert claim.objective <= start.objective
            assert claim.bound is not None
            assert claim.bound <= claim.objective


def known(problem: Problem, plan: Plan) -> bool:
    """Whether a problem has the layers of a plan."""
    return all(name in problem.graphs[plan.variant].index for stage in plan.stages for name in stage.layers)


@with_and_without_zero
def test_hint_is_complete(problem: Problem) -> None:
    """Every variable of the programme is hinted, at values that are a solution together."""
    best = solve(problem).plan
    assert best is not None
    made = cpsat_model.build(Formulation(Space.of(problem)))
    cpsat.complete_hint(made, best, None)
    hint = made.model.proto.solution_hint
    assert sorted(hint.vars) == list(range(len(made.model.proto.variables)))
    solver = cp_model.CpSolver()
    solver.parameters.cp_model_presolve = False
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(made.model) == cp_model.OPTIMAL
    assert solver.value(made.objective) == solve(problem).objective_ticks


@with_and_without_zero
def test_losing_a_hint_is_a_fault(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that rules out a plan that is known to be legal is wrong, and nobody believes it."""
    best, right = solve(problem).plan, cpsat.run

    def wrong(made: cpsat_model.CpSatModel, *rest: object, **more: object) -> Claim:
        claim = right(made, *rest, **more)  # type: ignore[arg-type]
        return replace(claim, status=Status.INFEASIBLE, plan=None, objective=None) if rest[1:] else claim

    monkeypatch.setattr(cpsat, "run", wrong)
    with pytest.raises(RuntimeError, match="finds no plan of"):
        solve_cpsat(problem, hint=best)


@both_presets
@pytest.mark.parametrize("seed", range(200, 212))
def test_known_bound_and_any_plan(seed: int, preset: Preset) -> None:
    """A bound that holds changes no optimum; and whoever is content with any plan gets one where there is one."""
    problem = drawn(seed, TINY, preset)
    wanted = solve(problem).objective_ticks
    for at_least in (wanted, None if wanted is None else wanted // 2):
        claim = solve_cpsat(problem, at_least=at_least)
        assert (claim.objective, claim.bound) == (wanted, wanted)
    first = solve_cpsat(problem, first=True)
    assert (first.plan is None) == (wanted is None)
    assert first.plan is None or evaluate(problem, first.plan).legal
